"""The decide node: one round, one checkpoint. It asks the model, reads the reply, and makes the calls."""

import base64
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, Self

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from donewhen.graph.binding import let_wait
from donewhen.graph.context import Deps
from donewhen.graph.events import thread_of
from donewhen.graph.executors.executor import executor_problem
from donewhen.graph.llm.ask import ModelRequest
from donewhen.graph.llm.attachments import brief_message, with_images
from donewhen.graph.llm.briefs import offer_for_step, profile_text
from donewhen.graph.llm.history import fit_transcript, render_earlier_answer, reply_messages, rounds_of
from donewhen.graph.llm.printed import read_printed
from donewhen.graph.llm.reply import Decision, UnusableReply, answer_refused, aside, read_reply
from donewhen.graph.llm.speech import Voice
from donewhen.graph.people.interjections import with_interjections
from donewhen.graph.round import Role, make_round, no_objections, send_back
from donewhen.graph.step.calls import count_silence, silence_hint
from donewhen.graph.step.leave import StepWork, leave, question_pause
from donewhen.graph.step.program import ProgramCalls
from donewhen.graph.step.texts import known_entries, scope_of
from donewhen.graph.tools.hooks import NOT_ASKED
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.prompts import instructions
from donewhen.state.channels import REPLIES, Json, Step, apply_update, difference
from donewhen.state.language.texts import known_language, primary_language, say_why
from donewhen.state.ledger import Amounts, add
from donewhen.state.plan.steps import FOR_ROUNDS, MALFORMED, SILENT_ROUNDS
from donewhen.state.proof.journal import find_earlier_answer
from donewhen.state.reading.decisions import CLAIMS, EXECUTE, PROGRAM
from donewhen.state.records import StepChange, StepClaim, StepStatus
from donewhen.state.settings import Settings
from donewhen.state.values import store_label

GO_ON = "Go on with the step: call a tool, or finish_step once every criterion is proven, or give_up."
NOT_MADE = "The call that you printed as text was not made. Make it as a tool call or, if you cannot, print it alone."
FEW_ROUNDS = 3
"""While at most so many rounds are left, each request says how many; so does the one at half of the allowance."""
EXAMPLE = (
    "A good reply calls one of your tools with the arguments of its schema, or is finish_step with "
    '{"result": "…", "goal_check": [{"criterion": 1, "met": true, "evidence": [{"observation": "s1.1"}]}]} and the '
    "ids of your own observations."
)
GIVEN_UP = "The step was given up. If you are reading this, somebody asked to try it again."
_SERDE = JsonPlusSerializer(pickle_fallback=False, allowed_json_modules=None, allowed_msgpack_modules=None)


async def decide(state: Step, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Step:
    """Ask the model for the next action of the step, and carry it out.

    Calls are made here only if the reply could be saved before. Without a store they are left to the node `act`.
    """
    settings, rounds = runtime.context, rounds_of(state)
    toolbox = deps.step_tools(settings, state)  # once a round: tools may change between rounds
    shown = fit_transcript(rounds, settings.transcript_chars, state["fence"], state["transcript_length"])
    before: Step = state if shown is rounds else {**state, "transcript": shown}
    if saved := await _load_reply(before, runtime):
        update = saved
    else:
        cursor = max(state["record"]["interjection_cursor"], state["interjection_cursor"])
        current, words = await with_interjections(before, cursor, runtime)
        task = "" if current["record"]["answers"] else str(current["record"]["task"] or "")
        voice = Voice(runtime, current["step"]["id"], language=current["language"], task=task, inside=True)
        update = await StepRound(current, runtime, deps, tools=toolbox, voice=voice, rounds=[*shown, *words]).run()
        update = {**update, "transcript": [*words, *update.get("transcript", ())]} if words else update
    after: Step = apply_update(before, update)
    has_calls = after["record"]["status"] == "running" and bool(after["record"]["calls"])
    if has_calls and (saved or await _save_reply(before, runtime, update)):
        after = apply_update(after, await ProgramCalls.of(after, runtime, config, deps, toolbox).run())
    return difference(state, after)


@dataclass
class StepRound(StepWork):
    """One round of a step: the request to the model, and the changes its reply makes."""

    tools: Toolbox = field(kw_only=True)
    voice: Voice = field(kw_only=True)
    rounds: Sequence[AnyMessage] = field(kw_only=True)
    """The rounds so far, as the model is shown them."""
    offered: Sequence[str] = ()
    """The control tools that the model is shown, and that a correction names."""

    async def run(self) -> Step:
        """Make the round, and return its update."""
        if problem := executor_problem(self.state["step"].get("executor"), self.deps.executors):
            return leave(self.state, self.runtime, {"status": "failed", "code": "no_executor", "reason": problem})
        update = await make_round(self, STEP)
        return {"spent": self.spent, "messages": self.voice.messages(), **update}

    def obstacle(self) -> str | None:
        """Return what stands in the way of a round: what it lacks, or that the step needs a plan after so many."""
        promote_after = self.settings.promote_after if "rounds" in self.state["promotable"] else None
        is_due = promote_after is not None and self.record["rounds"] >= promote_after
        return self.lacks() or (FOR_ROUNDS if is_due else None)

    def leave(self, obstacle: str) -> Step:
        """Leave to go on with more budget or time, or so that the run gets a plan."""
        if obstacle != FOR_ROUNDS:
            return super().leave(obstacle)
        reason = say_why(self.language, "rounds", self.settings.promote_after)
        return leave(self.state, self.runtime, {"status": "ready", "code": FOR_ROUNDS, "reason": reason})

    def give_up(self, reason: str, messages: Sequence[AnyMessage], code: str) -> Step:
        """End the step after too many corrections, with a code of its own if the last reply was a malformed claim."""
        called = {call["name"] for call in messages[0].tool_calls} if isinstance(messages[0], AIMessage) else set()
        return super().give_up(reason, messages, code or (MALFORMED if called and called <= {*CLAIMS} else ""))

    async def question(self) -> ModelRequest:
        """Return the request: instructions, tools, the brief, the rounds. It begins as the last one did."""
        state, step, settings, amounts = self.state, self.state["step"], self.settings, self.left()
        offer = await offer_for_step(self.deps, settings, self.tools, state)
        controls = (*EXECUTE, PROGRAM) if settings.programs and offer.bound else EXECUTE
        self.legal, self.claimed = offer.legal(controls), self.record["draft"]
        can_recall = offer.bound or offer.more or state["known"] or state["before"]
        offered = [name for name in self.legal if name != "finish_task" and (can_recall or name != "recall")]
        if not state["is_last"]:  # in the last step finish_task is legal, but not offered: it equals finish_step (K1)
            offered.append("finish_task")
        self.offered = offered
        tools = offer.definitions(offered, self.tools, answers=self.record["answers"])
        executor, attached = step.get("executor"), state["attachments"]
        executor_profile = self.deps.executors[executor].profile if executor else ""
        get_model = partial(self.deps.model, "execute", settings, executor)
        profile = profile_text(settings.profile, executor_profile, settings.speaks)
        brief = HumanMessage(state["brief"])
        if attached:
            brief = await brief_message(state["brief"], attached, self.runtime, get_model)
        entries = [*state["before"], *known_entries(state)]
        messages = await with_images([brief, *self.rounds], entries, state["fence"], self.runtime, get_model)
        reminder, rounds_left = [], amounts.get("rounds")
        if rounds_left is not None and (rounds_left <= FEW_ROUNDS or rounds_left == state["allowance"]["rounds"] // 2):
            # It comes last and is not kept, so that earlier messages never change.
            reminder = [HumanMessage(f"(Rounds left in this step, this one included: {rounds_left:g}.)")]
        return ModelRequest(
            "execute",
            [SystemMessage(instructions("execute", profile)), *messages, *reminder],
            tools,
            executor,
            amounts,
            self.voice,
            place={"step": step["id"], "round": self.record["rounds"] + 1},
            passing=len(reminder),
            thread=thread_of(self.runtime),
            fence=state["fence"],
            rounds=state["fitted_rounds"],
        )

    async def read_text(self, message: AIMessage, decision: Decision) -> Decision | UnusableReply:
        """Return the claim that a text consists of; else the text is speech, and a call printed in it is not made."""
        if self.prints:
            return decision
        text = str(message.text)
        printed = await aside(message, partial(read_printed, text, self.legal, self.tools))
        if printed.whole and [call["name"] for call in printed.calls] in ([claim] for claim in CLAIMS):
            # It is the whole reply, and a claim has to be proven anyway.
            return await aside(message, partial(read_reply, message, self.legal, self.tools, result=self.claimed))
        return replace(decision, arguments={"printed": bool(printed.calls or printed.problems)})

    async def speak(self, message: AIMessage, decision: Decision) -> Step:
        """Go on after speech, which was streamed already; say that a call printed in it was not made (N10).

        After several rounds without anything new, speech alone counts as a reply that cannot be used.
        """
        corrections = self.record["corrections"]
        silent = self._note_silence().record["silent"]
        hint = silence_hint(self.state, self.runtime, silent)
        text = f"{NOT_MADE if decision.arguments.get('printed') else ''} {GO_ON} {hint}".strip()
        messages: list[AnyMessage] = [message, HumanMessage(text)]
        if silent <= SILENT_ROUNDS:
            return self.go_on(messages)
        return send_back(self.note(corrections=corrections), say_why(self.language, "text_alone"), messages)

    async def store_calls(self, message: AIMessage, decision: Decision) -> Step:
        """Put the calls into the record, with a claim that came with them; they are made next."""
        answers, held = answer_refused(decision)
        claim = self._claim(decision.claim) if decision.claim else None
        return self.note(calls=decision.calls, held=held, then=claim).go_on([message, *answers])

    async def give_up_step(self, message: AIMessage, decision: Decision) -> Step:
        """End the step as its model says."""
        kind, reason = decision.arguments["kind"], decision.arguments["reason"]
        status: StepStatus = "blocked" if kind == "blocked" else "failed"
        change: StepChange = {"status": status, "code": f"gave_up:{kind}", "reason": reason}
        messages = [message, *reply_messages(message, GIVEN_UP)]
        return leave(self.state, self.runtime, change, messages, self.spent)

    async def claim(self, message: AIMessage, decision: Decision) -> Step:
        """Put the claim into the state, for `goal_check`."""
        return {**self.go_on([message]), "decision": dict(self._claim(decision))}

    def _claim(self, decision: Decision) -> StepClaim:
        """Return the claim with the id of the message in which its result was streamed."""
        message_id = self.voice.message_id("finish_step.result", "finish_task.result")
        return {"kind": decision.kind, "arguments": decision.arguments, "id": decision.id, "said": message_id}  # type: ignore[typeddict-item]

    async def ask_user(self, message: AIMessage, decision: Decision) -> Step:
        """Leave with a question, unless people answered it before or it must not be asked.

        The answer becomes the result of this call.
        """
        state, id = self.state, self.state["step"]["id"]
        question, options = decision.arguments["question"], decision.arguments.get("options")
        more: Json = {"call": decision.id, "message_id": self.voice.message_id("ask_user.question")}
        pause = question_pause(state, question, options or (), **more)
        if primary_language(declared := decision.arguments.get("language")):
            pause = pause.but(language=known_language(declared))
        waiting, reply = pause.dump(), ""
        if earlier := find_earlier_answer(state["user_answers"], question, options, step=id, seen=known_entries(state)):
            reply = render_earlier_answer(earlier)
        elif refusal := await self.deps.policies.refusal_of(waiting, state["goal"], self.runtime):
            reply = NOT_ASKED.format(why=refusal)
            self.voice.retract("ask_user.question")
        if reply:
            return self._note_silence().go_on([message, *reply_messages(message, reply)])
        change: StepChange = {"status": "waiting", "waiting": waiting, "corrections": 0}
        return leave(state, self.runtime, change, [message], self.spent)

    def _note_silence(self) -> Self:
        """Note a round without anything new."""
        return self.note(**count_silence(self.record, new=False), corrections=0)


STEP: Role[StepRound, Step] = Role(
    ask=StepRound.question,
    read_text=StepRound.read_text,
    objections=no_objections,
    handlers={
        "speak": StepRound.speak,
        "calls": StepRound.store_calls,
        "ask_user": StepRound.ask_user,
        "give_up": StepRound.give_up_step,
        "finish_step": StepRound.claim,
        "finish_task": StepRound.claim,
    },
    example=EXAMPLE,
)


# The reply of a round is saved before it is acted on, if there is a store: one round is one checkpoint, and after a
# crash in it no model is asked again.


async def _load_reply(state: Step, runtime: Runtime[Settings]) -> Step | None:
    """Return the saved update of this round's reply; None unless a crash interrupted the round after its reply."""
    if state["own_rounds"]:
        return None
    state["own_rounds"].add(_task_of(runtime))
    update: Step | None = await load_saved(runtime, f"{scope_of(state)}:{state['step']['id']}")
    return update


async def _save_reply(state: Step, runtime: Runtime[Settings], update: Step) -> bool:
    """Save the update of a reply, replacing that of the previous round; return False if there is no store."""
    key = f"{scope_of(state)}:{state['step']['id']}"
    if is_saved := await save(runtime, key, update, update.get("spent") or {}):
        let_wait(runtime, checkpoint=False)
    return is_saved


async def load_saved(runtime: Runtime[Settings], key: str) -> Any:
    """Return what this very task saved under a key before it was cut off; None if that is nothing."""
    task = _task_of(runtime)
    item = await runtime.store.aget(_saved_on(thread_of(runtime)), key) if runtime.store and task else None
    if item is None or item.value["round"] != task:
        return None
    return _SERDE.loads_typed((item.value["type"], base64.b64decode(item.value["update"])))


async def save(runtime: Runtime[Settings], key: str, content: Any, spent: Amounts) -> bool:
    """Save what a task has so far, in place of what the last one saved under the key; return False without a store.

    The scope, a part of the key, distinguishes several runs on one thread in an outer graph.
    """
    if runtime.store is None:
        return False
    type, data = _SERDE.dumps_typed(content)
    value = {"round": _task_of(runtime), "spent": spent, "type": type, "update": base64.b64encode(data).decode()}
    await runtime.store.aput(_saved_on(thread_of(runtime)), key, value, index=False)
    return True


async def spent_by(store: BaseStore, thread: str, tasks: Collection[str]) -> Amounts:
    """Return what these tasks, which were cut off, had spent when they saved something last."""
    items = await store.asearch(_saved_on(thread), limit=10_000) if tasks else ()
    return reduce(add, (each.value.get("spent") for each in items if each.value["round"] in tasks), Amounts())


def _saved_on(thread: str) -> tuple[str, ...]:
    return (*REPLIES, store_label(thread))


def _task_of(runtime: Runtime[Settings]) -> str:
    """Return the id of LangGraph's task: the same when a node is repeated after a crash, and another one otherwise."""
    return str(runtime.execution_info.task_id if runtime.execution_info else "")
