"""The decide node: one round, one checkpoint. It asks the model, reads the reply, and makes the calls."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.events import emit, emit_charge, thread_of
from donewhen.graph.executors.executor import executor_problem
from donewhen.graph.llm.ask import Question, ask
from donewhen.graph.llm.attachments import brief_message, with_images
from donewhen.graph.llm.briefs import offer_for_step, profile_text
from donewhen.graph.llm.history import (
    calls_natively,
    fit_transcript,
    render_earlier_answer,
    reply_messages,
    rounds_of,
    storable_reply,
)
from donewhen.graph.llm.printed import read_printed
from donewhen.graph.llm.reply import CLAIMS, Decision, UnusableReply, answer_refused, aside, read_reply
from donewhen.graph.llm.speech import Voice
from donewhen.graph.people.interjections import with_interjections
from donewhen.graph.step.calls import StepCalls, count_silence, silence_hint
from donewhen.graph.step.leave import leave, question_pause, send_correction
from donewhen.graph.step.texts import known_entries, scope_of
from donewhen.graph.tools.hooks import NOT_ASKED
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.prompts import instructions
from donewhen.state.channels import REPLIES, Json, Step, apply_update, combine_updates
from donewhen.state.errors import ModelError
from donewhen.state.language.texts import known_language, primary_language, say_why
from donewhen.state.ledger import Amounts, add, allowance_left, first_exhausted
from donewhen.state.plan.steps import FOR_ROUNDS
from donewhen.state.proof.journal import find_earlier_answer
from donewhen.state.reading.decisions import EXECUTE
from donewhen.state.records import StepClaim, StepRecord, StepStatus
from donewhen.state.settings import Settings
from donewhen.state.values import store_label

GO_ON = "Go on with the step: call a tool, or finish_step once every criterion is proven, or give_up."
NOT_MADE = "The call that you printed as text was not made. Make it as a tool call or, if you cannot, print it alone."
FEW_ROUNDS = 3
EXAMPLE = (
    "A good reply calls one of your tools with the arguments of its schema, or is finish_step with "
    '{"result": "…", "goal_check": [{"criterion": 1, "met": true, "evidence": [{"observation": "s1.1"}]}]} and the '
    "ids of your own observations."
)
GIVEN_UP = "The step was given up. If you are reading this, somebody asked to try it again."
_SERDE = JsonPlusSerializer(pickle_fallback=False, allowed_json_modules=None, allowed_msgpack_modules=None)


async def decide(state: Step, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Step:
    """Ask the model for the next action of the step and carry it out; without a store the next node does that."""
    settings, rounds = runtime.context, rounds_of(state)
    toolbox = deps.step_tools(settings, state)  # once a round: tools may change between rounds
    shown = fit_transcript(rounds, settings.transcript_chars, state.get("fence", ""), state["length"])
    cut = shown is not rounds
    before: Step = {**state, "transcript": shown} if cut else state
    if saved := await _load_reply(before, runtime):
        update = saved
    else:  # with what the user said in the meantime
        cursor = max(state["record"].get("interjection_cursor") or "", state.get("interjection_cursor") or "")
        informed, said = await with_interjections(before, "record", cursor, runtime)
        task = "" if informed["record"].get("answers") else str(informed["record"].get("task") or "")
        voice = Voice(runtime, informed["step"]["id"], task=task, inside=True)
        update = await StepRound(informed, runtime, deps, toolbox, voice, [*shown, *said]).run()
        update = {**update, "transcript": [*said, *update.get("transcript", ())]} if said else update
    after: Step = apply_update(before, update)  # type: ignore[assignment]
    calls = after["record"]["status"] == "running" and after["record"].get("calls")
    if calls and (saved or await _save_reply(before, runtime, update)):
        update = combine_updates(update, await StepCalls(after, runtime, config, deps, toolbox).run())  # type: ignore[assignment]
    # A transcript in an update is added to the stored one; one that begins with the note of a cut replaces it.
    return {**update, "transcript": [*shown, *update.get("transcript", ())]} if cut else update


@dataclass
class StepRound:
    """One round of a step: the request to the model, and the changes its reply makes."""

    state: Step
    runtime: Runtime[Settings]
    deps: Deps
    toolbox: Toolbox
    voice: Voice
    rounds: Sequence[AnyMessage]
    """The rounds so far, as the model is shown them."""
    spent: Amounts = field(default_factory=dict)

    async def run(self) -> Step:
        """Ask the model and read its reply; leave the step if no round may be made."""
        settings, deps, toolbox, id = self.runtime.context, self.deps, self.toolbox, self.state["step"]["id"]
        left = allowance_left(self.state)
        if change := self._obstacle(settings, left):
            return leave(self.state, self.runtime, change)
        while True:
            offer = await offer_for_step(deps, settings, toolbox, self.state)
            legal = offer.legal(EXECUTE)
            recalls = offer.bound or offer.more or self.state.get("known") or self.state.get("before")
            offered = [name for name in legal if name != "finish_task" and (recalls or name != "recall")]
            if not self.state.get("last"):  # for the last step it equals finish_step (K1); it stays legal
                offered.append("finish_task")
            tools = offer.definitions(offered, toolbox, answers=bool(self.state["record"].get("answers")))
            left = {key: amount - self.spent.get(key, 0) for key, amount in left.items()}
            reply = await ask(deps, settings, await self._question(settings, tools, left))
            self.spent = add(self.spent, reply.spent)
            if not reply.needs_fewer_tools:
                break
        self.spent = add(self.spent, {"rounds": 1})
        emit_charge(self.runtime, id, self.spent)
        record: StepRecord = {**self.state["record"], "rounds": self.state["record"]["rounds"] + 1}
        self.state = {**self.state, "record": record}
        if reply.message is None:
            return {"spent": self.spent, **self._give_up_asking(settings, reply.error)}
        printed = not calls_natively(self.rounds)
        read = partial(read_reply, reply.message, legal, toolbox, result=record.get("draft", ""))
        outcome = await aside(reply.message, partial(read, printed=printed))
        if isinstance(outcome, Decision) and outcome.kind == "speak" and not printed:
            look = partial(read_printed, str(reply.message.text), legal, toolbox)
            found = await aside(reply.message, look)
            finish = found.whole and [call["name"] for call in found.calls] in ([claim] for claim in CLAIMS)
            if finish:  # nothing else stands in the reply, and evidence proves it, however it was said
                outcome = await aside(reply.message, read)
            else:
                outcome = replace(outcome, arguments={"printed": bool(found.calls or found.problems)})
        if reply.speech:
            decision = outcome if isinstance(outcome, Decision) else Decision("speak")
            reply.speech.finish(outcome.speech, decision.kind, decision.arguments)
        message = await aside(reply.message, partial(storable_reply, reply.message))
        common = Step(spent=self.spent, messages=self.voice.messages())
        if isinstance(outcome, UnusableReply):
            count = record["corrections"] + 1  # with this one, as send_correction counts
            last_chance = count == settings.max_corrections - 1
            outcome = replace(outcome, hint=EXAMPLE) if last_chance else outcome
            messages = [message, *reply_messages(message, partial(outcome.text, offered))]
            said, called = "; ".join(outcome.problems), {call["name"] for call in reply.message.tool_calls}
            finishes = bool(called) and called <= {*CLAIMS}
            sent = send_correction(self.state, self.runtime, said, messages, self.spent, finishes=finishes)
            return {**common, **sent}
        called_tools = [call["name"] for call in outcome.calls]
        emit(self.runtime, "decision", step=id, kind=outcome.kind, tools=called_tools)
        return {**common, **await self._act_on(message, outcome)}

    def _obstacle(self, settings: Settings, left: Amounts) -> StepRecord | None:
        """Return the record's change if the step must leave before the model is asked: at a limit, for one (X08)."""
        state, executor = self.state, self.state["step"].get("executor")
        if executor and (gone := executor_problem(executor, self.deps.executors)):
            return {"status": "failed", "code": "no_executor", "reason": gone}
        if settings.is_late():
            return {"status": "ready", "code": "deadline"}
        if key := first_exhausted(left):
            return {"status": "ready", "code": f"allowance:{key}"}
        most = settings.promote_after if "rounds" in state.get("promotable", ()) else None
        if most is not None and state["record"]["rounds"] >= most:
            reason = say_why(state.get("language", "en"), "rounds", most)
            return {"status": "ready", "code": FOR_ROUNDS, "reason": reason}
        return None

    async def _question(self, settings: Settings, tools: list[Json], left: Amounts) -> Question:
        """Return the request: instructions, tools, the brief, the rounds. Earlier parts never change."""
        state, step = self.state, self.state["step"]
        executor, attached = step.get("executor"), state.get("attachments")
        own = self.deps.executors[executor].profile if executor else ""
        seeing = partial(self.deps.model, "execute", settings, executor)
        profile, brief = profile_text(settings.profile, own, settings.speaks), HumanMessage(state["brief"])
        if attached:
            brief = await brief_message(state["brief"], attached, self.runtime, seeing)
        entries = [*state.get("before", ()), *known_entries(state)]
        shown = await with_images([brief, *self.rounds], entries, state.get("fence", ""), self.runtime, seeing)
        ending, rounds = [], left.get("rounds")
        if rounds is not None and (rounds <= FEW_ROUNDS or rounds == state["allowance"]["rounds"] // 2):
            # It comes last and is not kept, so that earlier messages never change.
            ending = [HumanMessage(f"(Rounds left in this step, this one included: {rounds:g}.)")]
        return Question(
            "execute",
            [SystemMessage(instructions("execute", profile)), *shown, *ending],
            tools,
            executor,
            left,
            self.voice,
            place={"step": step["id"], "round": state["record"]["rounds"] + 1},
            passing=len(ending),
            thread=thread_of(self.runtime),
            fence=state.get("fence", ""),
        )

    def _give_up_asking(self, settings: Settings, error: ModelError | None) -> Step:
        """Leave without a reply: to continue with more budget or time if that helps, else as failed."""
        spent = add(self.state.get("spent"), self.spent)
        key = "deadline" if settings.is_late() else first_exhausted(allowance_left({**self.state, "spent": spent}))
        change: StepRecord = {"status": "failed", "code": "model_error", "reason": str(error)}
        if key and error and error.retryable:
            change = {"status": "ready", "code": f"allowance:{key}"}
        return leave(self.state, self.runtime, change, spent=self.spent)

    async def _act_on(self, message: AIMessage, decision: Decision) -> Step:
        """Return the changes of a legal decision; calls and claims are left in state for the next node."""
        record, arguments = self.state["record"], decision.arguments
        if decision.kind == "speak":
            # The speech was streamed already; a call printed in it was not made (N10).
            silent = self._silent_record()
            hint = silence_hint(self.state, self.runtime, silent)
            said = HumanMessage(f"{NOT_MADE if arguments.get('printed') else ''} {GO_ON} {hint}".strip())
            return {"record": silent, "transcript": [message, said], "decision": None}
        if decision.kind == "ask_user":
            return await self._ask_user(message, decision)
        if decision.kind == "calls":
            answers, held = answer_refused(decision)
            claim = self._claim(decision.claim) if decision.claim else None
            change: StepRecord = {"calls": decision.calls, "held": held, "then": claim}
            return {"record": {**record, **change}, "transcript": [message, *answers], "decision": None}
        if decision.kind == "give_up":
            status: StepStatus = "blocked" if arguments["kind"] == "blocked" else "failed"
            change = {"status": status, "code": f"gave_up:{arguments['kind']}", "reason": arguments["reason"]}
            messages = [message, *reply_messages(message, GIVEN_UP)]
            return leave(self.state, self.runtime, change, messages, self.spent)
        return {"record": record, "transcript": [message], "decision": dict(self._claim(decision))}

    def _claim(self, decision: Decision) -> StepClaim:
        """Return the claim in the form that goal_check expects."""
        said = self.voice.message_id("finish_step.result", "finish_task.result")
        return {"kind": decision.kind, "arguments": decision.arguments, "id": decision.id, "said": said}  # type: ignore[typeddict-item]

    async def _ask_user(self, message: AIMessage, decision: Decision) -> Step:
        """Leave with a question, unless it was answered or is refused. The answer becomes the result of this call."""
        state, id = self.state, self.state["step"]["id"]
        question, options = decision.arguments["question"], decision.arguments.get("options")
        asked, seen, told = state.get("asked", ()), known_entries(state), ""
        more: Json = {"call": decision.id, "message_id": self.voice.message_id("ask_user.question")}
        waiting = question_pause(state, question, options or (), **more)
        if primary_language(declared := decision.arguments.get("language")):
            waiting["language"] = known_language(declared)
        if before := find_earlier_answer(asked, question, options, step=id, seen=seen):
            told = render_earlier_answer(before)
        elif refused := await self.deps.policies.refusal_of(waiting, state["goal"], self.runtime):
            told = NOT_ASKED.format(why=refused)
            self.voice.retract("ask_user.question")
        if told:
            messages = [message, *reply_messages(message, told)]
            return {"record": self._silent_record(), "transcript": messages, "decision": None}
        change: StepRecord = {"status": "waiting", "waiting": waiting, "corrections": 0}
        return leave(state, self.runtime, change, [message], self.spent)

    def _silent_record(self) -> StepRecord:
        """Return the record after a round without anything new."""
        record = self.state["record"]
        return {**record, **count_silence(record, new=False), "corrections": 0}


# The reply of a round is saved before it is acted on: one round is one checkpoint, and after a crash in it no model is
# asked again.


async def _load_reply(state: Step, runtime: Runtime[Settings]) -> Step | None:
    """Return the saved update of this round's reply, if a crash interrupted the round."""
    if state["own_rounds"] or runtime.store is None:
        return None
    namespace, key, round = _saved_at(state, runtime)
    state["own_rounds"].add(round)
    item = await runtime.store.aget(namespace, key)
    if item is None or item.value["round"] != round:
        return None
    update: Step = _SERDE.loads_typed((item.value["type"], base64.b64decode(item.value["update"])))
    return update


async def _save_reply(state: Step, runtime: Runtime[Settings], update: Step) -> bool:
    """Save the update of a reply, replacing that of the previous round; return False if there is no store."""
    if runtime.store is None:
        return False
    type, data = _SERDE.dumps_typed(update)
    namespace, key, round = _saved_at(state, runtime)
    value = {"round": round, "type": type, "update": base64.b64encode(data).decode()}
    await runtime.store.aput(namespace, key, value, index=False)
    return True


def _saved_at(state: Step, runtime: Runtime[Settings]) -> tuple[tuple[str, ...], str, str]:
    """Return namespace and key of the step's saved reply, and the id of this round.

    The scope distinguishes several runs on one thread in an outer graph. The id is that of LangGraph's task: the same
    after a crash, different for every other checkpoint.
    """
    info = runtime.execution_info
    place = (*REPLIES, store_label(thread_of(runtime))), f"{scope_of(state)}:{state['step']['id']}"
    return *place, str(info.task_id if info else "")
