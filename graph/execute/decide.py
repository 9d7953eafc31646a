"""The decide node: one round, one checkpoint. It asks the model, reads the reply, and makes the calls that it wants."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from donewhen.graph.calls.attached import brief_message
from donewhen.graph.calls.invoking import left_of
from donewhen.graph.calls.observing import seen_before
from donewhen.graph.calls.replies import reply_before, written_down
from donewhen.graph.context import Deps, settings_of
from donewhen.graph.events import charged, decided
from donewhen.graph.execute.act import act
from donewhen.graph.execute.leaving import corrected, has_left, leave, silence
from donewhen.graph.executors.executor import missing
from donewhen.graph.models.ask import Question, ask
from donewhen.graph.models.briefs import profile_text
from donewhen.graph.models.forms import from_text
from donewhen.graph.models.offering import offered_to_step
from donewhen.graph.models.reading import Decision, Unusable, read
from donewhen.graph.models.transcript import called_natively, fitting, kept, respond, rounds_of, shown
from donewhen.graph.models.voice import Voice
from donewhen.graph.people.pauses import pause
from donewhen.graph.people.told import hearing
from donewhen.prompts import instructions
from donewhen.state.graph_state import Json, Step
from donewhen.state.language.texts import known_language, primary
from donewhen.state.ledger import Amounts, add, exhausted
from donewhen.state.plan.modes import PROMOTED
from donewhen.state.plan.steps import silent
from donewhen.state.proof.journal import answered_before
from donewhen.state.reading.decisions import EXECUTE, control_tools
from donewhen.state.records import FrozenCall, StepClaim, StepRecord, StepStatus
from donewhen.state.settings import Settings
from donewhen.state.updates import applied, together

GO_ON = "Go on with the step: call a tool, or finish_step once every criterion is proven, or give_up."
NOT_MADE = "The call that you printed as text was not made: you can call tools, so make it as a tool call."
FEW_ROUNDS = 3
EXAMPLE = (
    "A good reply calls one of your tools with the arguments of its schema, or is finish_step with "
    '{"result": "…", "goal_check": [{"criterion": 1, "met": true, "evidence": [{"observation": "s1.1"}]}]} and the '
    "ids of your own observations."
)
GIVEN_UP = "The step was given up. If you read on here, somebody asked for it to be tried again."
ANSWER_CHARS = 20_000


async def decide(state: Step, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Step:
    """Ask the model what to do next in this step, and do it; without a store the next node does it."""
    rounds = rounds_of(state)
    shown = fitting(rounds, settings_of(runtime).transcript_chars, state.get("fence", ""), state["length"])
    if shown is rounds:
        return await _made(state, runtime, config, deps)
    update = await _made({**state, "transcript": shown}, runtime, config, deps)
    return {**update, "transcript": [*shown, *update.get("transcript", ())]}


async def _made(state: Step, runtime: Runtime[Settings], config: RunnableConfig, deps: Deps) -> Step:
    """A round with what comes of its calls."""
    before = await reply_before(state, runtime)
    update = before or await _asked(state, runtime, deps)
    now: Step = applied(state, update)  # type: ignore[assignment]
    if has_left(now) or not now["record"].get("calls") or not (before or await written_down(state, runtime, update)):
        return update
    return together(update, await act(now, runtime, config, deps=deps))  # type: ignore[return-value]


async def _asked(state: Step, runtime: Runtime[Settings], deps: Deps) -> Step:
    """A round, with what the user said meanwhile."""
    heard = max(state["record"].get("heard") or "", state.get("heard") or "")
    now, said = await hearing(state, "record", heard, runtime)
    update = await _round(now, runtime, deps)
    return {**update, "transcript": [*said, *update.get("transcript", ())]} if said else update


async def _round(state: Step, runtime: Runtime[Settings], deps: Deps) -> Step:
    """One round. Exhaustion is decided here, on entry to it (X08)."""
    settings, left = settings_of(runtime), left_of(state)
    if gone := missing(state["step"].get("executor"), deps.executors):
        return leave(state, runtime, {"status": "failed", "code": "no_executor", "reason": gone})
    if settings.late():
        return leave(state, runtime, {"status": "ready", "code": "deadline"})
    if key := exhausted(left):
        return leave(state, runtime, {"status": "ready", "code": f"allowance:{key}"})
    if _too_long(state, settings):
        reason = f"not done after {settings.most_alone} rounds"
        return leave(state, runtime, {"status": "failed", "code": f"{PROMOTED}rounds", "reason": reason})
    toolbox = deps.tools_for(state["step"].get("executor"), settings)
    task = "" if state["record"].get("answers") else str(state["record"].get("task") or "")
    voice = Voice(runtime, state["step"]["id"], task=task, inside=True)
    offer = await offered_to_step(deps, settings, state["step"], state["record"])
    legal = offer.legal(EXECUTE)
    tools = [*control_tools(_control(legal, state)), *toolbox.openai(offer.bound)]
    reply = await ask(deps, settings, await _question(state, runtime, deps, tools, left, voice))
    spent = add(reply.spent, {"rounds": 1})
    charged(runtime, state["step"]["id"], spent)
    now: Step = {**state, "record": {**state["record"], "rounds": state["record"]["rounds"] + 1}}
    if reply.message is None:
        key = "deadline" if settings.late() else exhausted(left_of({**now, "spent": add(state.get("spent"), spent)}))
        change: StepRecord = {"status": "failed", "code": "model_error", "reason": str(reply.error)}
        if (
            key and reply.error and reply.error.retryable
        ):  # with more to spend, or more time, it would have been asked again
            change = {"status": "ready", "code": f"allowance:{key}"}
        return {"spent": spent, **leave(now, runtime, change, spent=spent)}
    draft, printed = state["record"].get("draft", ""), not called_natively(rounds_of(state))
    outcome = read(reply.message, legal, toolbox, printed=printed, result=draft)
    if reply.speech:
        taken = outcome if isinstance(outcome, Decision) else Decision("speak")
        reply.speech.finish(outcome.speech, taken.kind, taken.arguments)
    if isinstance(outcome, Decision) and outcome.kind == "speak" and not printed:
        calls = from_text(str(reply.message.text), legal, toolbox.names).calls
        outcome = replace(outcome, arguments={"printed": bool(calls)})
    message, common = kept(reply.message), Step(spent=spent, messages=voice.spoken())
    if isinstance(outcome, Unusable):
        last = state["record"]["corrections"] == settings.max_corrections - 2
        outcome = replace(outcome, hint=EXAMPLE) if last else outcome
        messages = [message, *respond(message, partial(outcome.text, legal))]
        return {**common, **corrected(now, runtime, "; ".join(outcome.problems), messages, spent)}
    decided(runtime, state["step"]["id"], outcome.kind, [call["name"] for call in outcome.calls])
    return {**common, **_decided(now, runtime, message, outcome, spent, voice)}


def _too_long(state: Step, settings: Settings) -> bool:
    """Whether the one step of a run takes so many rounds that the run should have a plan."""
    most = settings.most_alone
    return most is not None and "rounds" in state.get("promotable", ()) and state["record"]["rounds"] >= most


async def _question(
    state: Step, runtime: Runtime[Settings], deps: Deps, tools: list[Json], left: Amounts, voice: Voice
) -> Question:
    """The prompt: instructions and tools first, then the brief, then the rounds; nothing earlier ever changes."""
    settings, step = settings_of(runtime), state["step"]
    named = deps.executors.get(step.get("executor") or "")
    profile = profile_text(settings.profile, named.profile if named else "", settings.speaks)
    prompt = instructions("execute", profile)
    model = partial(deps.model, "execute", settings, step.get("executor"))
    brief = await brief_message(state["brief"], state.get("attachments", ()), runtime, model)
    return Question(
        "execute",
        [SystemMessage(prompt), brief, *rounds_of(state), *_running_out(left, state.get("allowance") or {})],
        tools,
        step.get("executor"),
        left,
        voice.say,
        voice.retract,
        voice.stalled,
        place={"step": step["id"], "round": state["record"]["rounds"] + 1},
        fence=state.get("fence", ""),
    )


def _control(legal: Sequence[str], state: Step) -> list[str]:
    """The decisions on offer. Ending the task says no more than finishing its last step (K1); it stays legal."""
    common = [name for name in legal if name != "finish_task"]
    return common if state.get("last") else [*common, "finish_task"]


def _running_out(left: Amounts, allowance: Amounts) -> list[HumanMessage]:
    """Say how many rounds are left at half of them, when calls can still be put together, and when they are few.

    It goes last and away again, so that nothing earlier changes.
    """
    if (rounds := left.get("rounds")) is None or not (rounds <= FEW_ROUNDS or rounds == allowance["rounds"] // 2):
        return []
    return [HumanMessage(f"(Rounds left in this step, this one included: {rounds:g}.)")]


def _decided(
    state: Step, runtime: Runtime[Settings], message: AIMessage, decision: Decision, spent: Amounts, voice: Voice
) -> Step:
    """What a legal decision changes; calls and claims are left in state for the next node."""
    record, arguments = state["record"], decision.arguments
    if decision.kind == "speak":
        return _spoke(state, runtime, message, printed=bool(arguments.get("printed")))
    if decision.kind == "ask_user":
        return _asks(state, runtime, message, decision, spent, voice)
    if decision.kind == "calls":
        native = bool(message.tool_calls or message.invalid_tool_calls)
        calls = [cast("FrozenCall", {**c, "native": native, "position": n}) for n, c in enumerate(decision.calls)]
        told = [ToolMessage(text, tool_call_id=id) for id, text in decision.refused.items()] if native else []
        change: StepRecord = {"calls": calls, "held": [] if native else list(decision.refused.values())}
        change["then"] = _chosen(decision.claim, voice) if decision.claim else None
        return {"record": {**record, **change}, "transcript": [message, *told], "decision": None}
    if decision.kind == "give_up":
        status: StepStatus = "blocked" if arguments["kind"] == "blocked" else "failed"
        change = {"status": status, "code": f"gave_up:{arguments['kind']}", "reason": arguments["reason"]}
        return leave(state, runtime, change, [message, *respond(message, GIVEN_UP)], spent)
    return {"record": record, "transcript": [message], "decision": dict(_chosen(decision, voice))}


def _chosen(decision: Decision, voice: Voice) -> StepClaim:
    """Return a claim to be done as the goal_check takes it."""
    said = voice.id("finish_step.result", "finish_task.result")
    return {"kind": decision.kind, "arguments": decision.arguments, "id": decision.id, "said": said}  # type: ignore[typeddict-item]


def _spoke(state: Step, runtime: Runtime[Settings], message: AIMessage, *, printed: bool) -> Step:
    """Speech was said to the user as it came; the step goes on, told that a call printed in it was not made (N10)."""
    record: StepRecord = {**state["record"], **silent(state["record"], new=False), "corrections": 0}
    hint = silence(state, runtime, record)
    said = HumanMessage(f"{NOT_MADE if printed else ''} {GO_ON} {hint}".strip())
    return {"record": record, "transcript": [message, said], "decision": None}


def _asks(
    state: Step, runtime: Runtime[Settings], message: AIMessage, decision: Decision, spent: Amounts, voice: Voice
) -> Step:
    """Leave with a question; the answer will be the result of this very call."""
    record, question = state["record"], decision.arguments["question"]
    asked, options, seen = state.get("asked", ()), decision.arguments.get("options"), seen_before(state)
    if before := answered_before(asked, question, options, step=state["step"]["id"], seen=seen):
        return _told(state, message, f"You asked this before; the answer was:\n{shown(before, ANSWER_CHARS)}")
    id, number = state["step"]["id"], record.get("questions", 0) + 1
    attempt = "" if record.get("attempt", 1) == 1 else f"@{record['attempt']}"
    more: Json = {"call": decision.id, "message_id": voice.id("ask_user.question")}
    waiting = pause("question", f"{id}{attempt}.q{number}", question, step=id, options=options or (), **more)
    if primary(declared := decision.arguments.get("language")):
        waiting["language"] = known_language(declared)
    change: StepRecord = {"status": "waiting", "waiting": waiting, "questions": number, "corrections": 0}
    return {"spent": spent, **leave(state, runtime, change, [message], spent)}


def _told(state: Step, message: AIMessage, text: str) -> Step:
    """The runtime answers instead of a person."""
    record: StepRecord = {**state["record"], **silent(state["record"], new=False), "corrections": 0}
    return {"record": record, "transcript": [message, *respond(message, text)], "decision": None}
