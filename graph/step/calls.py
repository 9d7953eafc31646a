"""Make calls: each passes the gates, is made once, and becomes an observation.

A call has five shapes of its own. A `Call` is what a model, a plan or a step wants, with what a person decided about it
(`state/records.py`); it is stored until it is made. A `Ruling` is what the gates say of it (`graph/step/gates.py`). A
`CallOutcome` is what came of it (`graph/tools/call.py`), a `JournalEntry` the observation that it becomes, and a `Row`,
with the entry that it names, what the store knows of its effect (`graph/tools/effects.py`). What a plan says of calls,
what hooks and people are shown of one, and what the receipt says of effects are views of these.

Planning, checks and the judge make their calls here too; only steps ask a person.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar, cast

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langgraph.errors import GraphInterrupt, ParentCommand
from langgraph.runtime import Runtime

from donewhen.graph.events import emit, emit_charge, emit_note, emit_observation, now
from donewhen.graph.executors.relay import (
    answered_asks,
    asks_in_vain,
    conceal_ask,
    interrupt_value,
    questions_of,
    resume_values,
)
from donewhen.graph.llm.attachments import keep_images
from donewhen.graph.llm.briefs import FIND_TOOLS, find_tools, offer_for_step
from donewhen.graph.llm.cost import Meter
from donewhen.graph.llm.history import observation_limit, render_observation
from donewhen.graph.llm.reply import LOOK_FIRST
from donewhen.graph.llm.speech import without_listeners
from donewhen.graph.pauses.question import QuestionPause
from donewhen.graph.step.gates import (
    GATES,
    GATES_OF_CHECKS,
    CallContext,
    Go,
    No,
    Ruling,
    StepContext,
    Wait,
    call_for_hooks,
    rule,
    source_rows,
)
from donewhen.graph.step.leave import leave, relay_pause, unknown_effect_pause
from donewhen.graph.step.texts import Span, recall
from donewhen.graph.sync import run_in_thread
from donewhen.graph.tools.call import CallOutcome, ToolCall, call_tool, seconds_for
from donewhen.graph.tools.changes import keep_changes
from donewhen.graph.tools.effects import (
    Effect,
    EffectLog,
    MakeCall,
    UnknownEffect,
    base_of,
    differences,
    effect_key,
    failure_in,
    perform,
    replaced_texts,
    storable_artifact,
)
from donewhen.graph.tools.hooks import END_OPTIONS, End
from donewhen.graph.tools.rendering import is_large
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.state.channels import Json, Step
from donewhen.state.ledger import Amounts, add
from donewhen.state.people.answers import may_answer
from donewhen.state.plan.steps import SILENT_ROUNDS
from donewhen.state.private_langgraph import with_resume_values
from donewhen.state.proof.journal import (
    CallHistory,
    Source,
    call_key,
    canonical_json,
    has_succeeded,
    is_change,
    is_tool_call,
    observation,
    shorten_text,
)
from donewhen.state.reading.decisions import LOOKUPS
from donewhen.state.records import WRITES, Ask, Call, JournalEntry, Pause, StepChange, StepRecord, decision_on
from donewhen.state.secrets import conceal, redact_json
from donewhen.state.settings import Settings

EFFECT = "donewhen_effect"
"""Metadata key of a call for its effect's key, which is the same when the call is repeated after a crash."""
OBSERVATION = "donewhen_observation"
"""Metadata key of a call for the id of the observation that it becomes."""
MOST_ASKED = 20
"""How often the tool of one call may ask; answers of a policy count, too."""
WAITS = "asks"
"""The error of a call whose tool waits for a person. It is stored, so it keeps its value."""


Change = TypeVar("Change")
"""The update of the node that makes the calls."""


@dataclass
class Calls(CallContext, ABC, Generic[Change]):
    """Calls of a model: those still to be made, and what came of the others."""

    limit: int = 0
    """The most characters of an observation that the model is shown."""
    history: CallHistory = field(default_factory=CallHistory)
    held: list[str] = field(default_factory=list)
    """Results of printed calls, which the model is sent in one message when all are there."""
    results: list[AnyMessage] = field(default_factory=list)
    """The messages for the model."""
    files: dict[str, str] = field(default_factory=dict)
    found_tools: list[str] = field(default_factory=list)
    """Names of tools that `find_tools` found."""
    recalled: list[Span] = field(default_factory=list)
    acted: bool = False
    """True once a call was made or answered, and not only refused."""
    learned: bool = False
    """True once a call returned something new."""

    @abstractmethod
    async def _rule(self, call: Call) -> Ruling:
        """Return what the gates say of a call."""

    @abstractmethod
    async def _searched_tools(self) -> tuple[Toolbox, set[str]]:
        """Return the tools that `find_tools` searches, and the names of those that the model has already."""

    async def _halt(self, why: Ask | Wait | UnknownEffect) -> Change:
        """Stop before the next call: its tool asks, a gate rules so, or nobody knows whether it was made before.

        Only steps stop: in planning no tool or gate asks about a read, and a read can be made again.
        """
        raise AssertionError(f"only a step can wait: {why}")

    @abstractmethod
    def _finish(self) -> Change:
        """Return the update after all calls."""

    async def _unfold(self, first: Call) -> bool:
        """Put a program's next call first; return whether the calls changed. Only steps have programs."""
        return False

    def _update_before(self, first: Call) -> Change | None:
        """Return the update that must be stored before this call is made; None if it can be made at once."""
        return None

    async def _rehearse(self) -> bool:
        """Put the changes that the first call's program would make next behind it; return whether the calls changed."""
        return False

    async def run(self) -> Change:
        """Make the calls; stop at the first that may not be made now."""
        while self.calls:
            first = self.calls[0]
            if question := open_question(first):
                return await self._halt(question)
            if first["name"] in LOOKUPS:
                await self._look_up(first)
                self.calls = self.calls[1:]
                continue
            if await self._unfold(first):
                continue
            if update := self._update_before(first):
                return update
            group: dict[int, tuple[Call, Go | No]] = {}
            for call in self._next_group():
                ruling = await self._rule(call)
                if isinstance(ruling, Wait) and group:
                    break  # it begins the next group, because a step can only leave before a first call
                if isinstance(ruling, Wait) and "waiting" in ruling.change and await self._rehearse():
                    ruling = await self._rule(call)
                if isinstance(ruling, Wait):
                    if not (refusal := await self._refusal_to_ask(ruling.change)):
                        return await self._halt(ruling)
                    ruling = No(refusal)
                group[self.observed + len(group) + 1] = call, ruling  # behind the reads of a rehearsal
            outcomes = await self._make(group)
            if isinstance(outcomes, UnknownEffect):
                return await self._halt(outcomes)
            waiting = [await self._record(call, number, outcomes[number]) for number, (call, _) in group.items()]
            for number, (call, _) in group.items():  # after all results, which have their numbers already
                await self._record_notes(call, outcomes[number].notes)
            seconds = max(outcome.seconds for outcome in outcomes.values())
            self.spent = add(self.spent, {"active_seconds": seconds})
            self.calls = [*filter(None, waiting), *self.calls[len(group) :]]
        return self._finish()

    def _next_group(self) -> Sequence[Call]:
        """Return the calls to make together: consecutive different reads within the budget, or one other call."""
        keys: set[str] = set()
        room = self.amounts_left().get("tool_calls", len(self.calls))
        for call in self.calls:
            key, tool = call_key(call["name"], call["args"]), self.tools.get(call["name"])
            is_read = tool is not None and tool.effect == "read"
            if not is_read or key in keys or len(keys) >= room or open_question(call):
                break
            keys.add(key)
        return self.calls[: max(len(keys), 1)]

    async def _refusal_to_ask(self, change: StepChange) -> str:
        """Return why hooks refuse to ask people what the step would wait for; "" if they agree or it does not wait."""
        waiting = change.get("waiting")
        return await self.deps.policies.refusal_of(waiting, self.caller.goal, self.runtime) if waiting else ""

    async def _make(self, group: Mapping[int, tuple[Call, Go | No]]) -> dict[int, CallOutcome] | UnknownEffect:
        """Carry out the calls in parallel; return their outcomes, or why a person must be asked about one of them."""
        started = [refuse_or_make(self, call, self._id_of(number), ruling) for number, (call, ruling) in group.items()]
        results = [await started[0]] if len(started) == 1 else await asyncio.gather(*started)
        self.meters.clear()
        outcomes: dict[int, CallOutcome] = {}
        for number, result in zip(group, results, strict=True):
            if isinstance(result, UnknownEffect):  # a read never returns it, and any other is alone in its group
                return result
            outcomes[number] = result
        return outcomes

    def _id_of(self, number: int) -> str:
        return f"{self.caller.id}.{number}"

    async def _look_up(self, call: Call) -> None:
        """Show the model what it looked up, which is no observation, and tell it if it read this before."""
        fence = self.caller.fence
        if call["name"] == FIND_TOOLS:
            toolbox, names = await self._searched_tools()
            search = await find_tools(self.deps, toolbox, call, names.union(self.found_tools), fence)
            self.found_tools += search["names"]
            text, is_new = str(search["text"]), bool(search["names"])
        else:
            entries, room = [*self.caller.before, *self.entries], self.settings.observation_chars
            text, span = await recall(call, entries, self.caller.texts, fence, room)
            is_new = span is not None and [*span[1:]] not in self._spans().get(span[0], ())
            if span and is_new:
                self.recalled.append(span)
            elif span:
                text = f"{text}\nNote: you read this before."
        self.learned = self.learned or is_new
        self.acted = True
        self._show(call, text)

    def _spans(self) -> dict[str, list[list[int]]]:
        """Return the ranges of characters that were recalled, by observation."""
        spans = dict[str, list[list[int]]]()
        for id, *span in self.recalled:
            spans[id] = [*spans.get(id, ()), span]
        return spans

    async def _record(self, call: Call, number: int, outcome: CallOutcome) -> Call | None:
        """Charge the call, store its observation, and show its result to the model.

        A call that waits for a person is only charged, and returned with its questions.
        """
        is_waiting = waits(call, outcome)
        if outcome.made:
            charge: Amounts = {} if is_waiting and call.get("delegated") else {"tool_calls": 1}
            self.spent = add(add(self.spent, outcome.spent), charge)
        if is_waiting:
            return cast("Call", {**call, **outcome.artifact})
        self.observed = number
        self.acted = self.acted or outcome.made or decision_on(call) == "answered"
        self.files.update((outcome.artifact or {}).get("files", {}))
        entry = observe(self, call, self._id_of(number), outcome)
        if "program" in call:
            entry["program"] = call["program"]
        earlier, changed = None, False
        if is_call := is_tool_call(entry):
            earlier, changed = self.history.last_equal(entry, self.entries)
        self.learned = self.learned or (earlier is None if is_call else entry["ok"])
        hint = _people_note(call)
        if earlier is None or changed or is_change(entry):
            self._show(call, self._render(entry, hint))
        else:
            entry["same_as"] = earlier.get("same_as") or earlier["id"]
            self._show(call, self._render_repetition(entry, hint, shown_twice="same_as" in earlier))
        if entry["effect"] in WRITES and not call.get("delegated") and (rows := await self._source_rows(call)):
            entry["sources"] = rows
        entry = await self.caller.texts.put_entry(entry)
        self.new_entries.append(entry)
        emit_observation(self.runtime, entry)
        return None

    async def _record_notes(self, call: Call, notes: Sequence[str]) -> None:
        """Store the hooks' notes on a call, and show them beside its result."""
        for entry in await store_notes(self, self.observed + 1, notes):
            self.observed += 1
            self.new_entries.append(entry)
            if "program" in call:  # it is shown when the program ends
                entry["program"] = call["program"]
                continue
            note = self._render(entry, "")
            if not call.get("native"):
                self.held.append(note)
                continue
            index, message = next(
                (n, each) for n, each in enumerate(self.results) if getattr(each, "tool_call_id", "") == call["id"]
            )
            self.results[index] = message.model_copy(update={"content": f"{message.text}\n{note}"})

    def _render(self, entry: JournalEntry, hint: str) -> str:
        return render_observation(entry, self.limit, hint, self.caller.fence)

    def _render_repetition(self, entry: JournalEntry, hint: str, *, shown_twice: bool) -> str:
        """Render an unchanged result: in full the second time, later in one line if that is shorter (X11)."""
        note = f"As {entry['same_as']}, unchanged."
        if not shown_twice or len(entry["text"]) <= len(note):
            return self._render(entry, f"{hint} {note}".strip())
        return f"[{entry['id']}] {entry['tool']} {'ok' if entry['ok'] else 'error'}\n{note} {hint}".rstrip()

    def _show(self, call: Call, text: str) -> None:
        if "program" in call:  # the program reads it, and not the model
            return
        if call.get("native"):
            self.results.append(ToolMessage(text, tool_call_id=call["id"]))
        else:
            self.held.append(text)

    async def _source_rows(self, call: Call) -> list[Json]:
        """Return where the arguments of a write come from; only steps write."""
        return []

    def _decline(self, name: str, id: str) -> None:
        """Answer a claim or plan that came with calls and is not taken, because a call waits or failed."""
        self.results.append(ToolMessage(LOOK_FIRST.format(name=name), tool_call_id=id))


@dataclass
class StepCalls(Calls[Step], StepContext):
    """The calls in a step's record; the step leaves before the first that may not be made now."""

    may_ask: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        record, executor = self.state["record"], self.state["step"].get("executor")
        self.calls, self.held = record["calls"], list(record["held"])
        self.limit = observation_limit(self.deps, self.settings, "execute", executor)
        self.history = self.state["call_history"]

    async def _rule(self, call: Call) -> Ruling:
        return await rule(call, self, GATES)

    async def _searched_tools(self) -> tuple[Toolbox, set[str]]:
        toolbox = self.deps.step_tools(self.settings, self.state)
        return toolbox, {*(await offer_for_step(self.deps, self.settings, toolbox, self.state)).bound}

    async def _source_rows(self, call: Call) -> list[Json]:
        return await source_rows(call, self)

    def _spans(self) -> dict[str, list[list[int]]]:
        spans = dict(self.state["record"]["recalled"])
        return spans | {id: [*spans.get(id, ()), *ranges] for id, ranges in super()._spans().items()}

    def _lookup_changes(self) -> StepChange:
        """Return the record's change: tools that were found, and what was recalled."""
        change, record = StepChange(), self.state["record"]
        if self.found_tools:
            change["found"] = [*record["found"], *self.found_tools]
        made = {call_key(e["tool"] or "", e["arguments"]) for e in self.new_entries if is_tool_call(e)}
        if made & record["asked_often"].keys():  # the next equal one may be asked about again
            change["asked_often"] = {key: last for key, last in record["asked_often"].items() if key not in made}
        return {**change, "recalled": spans} if (spans := self._spans()) else change

    def _update(self) -> Step:
        emit_charge(self.runtime, self.state["step"]["id"], self.spent)
        update: Step = {
            "journal": self.new_entries,
            "transcript": self.results,
            "spent": self.spent,
            "files": self.files,
        }
        return {**update, "wrote": self.new_writes} if self.new_writes else update

    def _finish(self) -> Step:
        """Return the update after all calls; a claim that came with them goes to goal_check if all succeeded."""
        record, update = self.state["record"], self._update()
        silence = count_silence(record, self.learned)
        if self.held:
            self.results.append(HumanMessage("\n\n".join(self.held)))
        if self.results and (hint := silence_hint(self.state, self.runtime, silence["silent"])):
            last = self.results[-1]
            self.results[-1] = last.model_copy(update={"content": f"{last.text}\n{hint}"})
        after: StepRecord = {
            **record,
            "calls": [],
            "held": [],
            "observed": self.observed,
            **silence,
            **self._lookup_changes(),
        }
        after = {**after, "corrections": 0} if self.acted else after
        if claim := record["then"]:
            after["then"] = None
            of_calls = [entry for entry in self.new_entries if entry["source"] == "tool"]
            if of_calls and all(map(has_succeeded, of_calls)):
                return {**update, "record": after, "decision": dict(claim)}
            self._decline(claim["kind"], claim["id"])
        return {**update, "record": after}

    def keep_begun(self, seconds: float) -> Step:
        """Charge the seconds and what the models of its open call have cost; the step goes on with the same call."""
        call, *others = self.calls
        for spent in ({"active_seconds": seconds}, *(meter.spent for meter in self.meters)):
            self.spent = add(self.spent, spent)
        if self.spent.get("model_calls"):
            call = {**call, "charged": True}
        return {**self._update(), "record": {**self.state["record"], "calls": [call, *others]}}

    async def _halt(self, why: Ask | Wait | UnknownEffect) -> Step:
        """Leave before the next call. The remaining calls are stored, to be made when the step goes on.

        If the step fails, they are answered now instead. Should a person let it go on, its model decides anew.
        """
        change = await self._change_to_leave(self.calls[0], why)
        if change["status"] == "failed":
            for call in self.calls:
                self._show(call, f"Not run: {change['reason']}")
            self.calls = ()
        update = self._update()
        if claim := self.state["record"]["then"]:
            self._decline(claim["kind"], claim["id"])
            change = {**change, "then": None}
        whole_change: StepChange = {
            "calls": list(self.calls),
            **change,
            "held": self.held,
            "observed": self.observed,
            **self._lookup_changes(),
        }
        return {**update, **leave(self.state, self.runtime, whole_change, self.results, self.spent, self.new_writes)}

    async def _change_to_leave(self, call: Call, why: Ask | Wait | UnknownEffect) -> StepChange:
        """Return the record's change with which the step leaves.

        The step fails if hooks refuse to ask people whether a write was made.
        """
        if isinstance(why, Wait):
            return why.change
        if not isinstance(why, UnknownEffect):
            return {"status": "waiting", "waiting": relay_pause(call, why, self.state, self.settings).dump()}
        waiting = unknown_effect_pause(call, self.state, why, self.settings).dump()
        change: StepChange = {"status": "waiting", "waiting": waiting}
        if refusal := await self._refusal_to_ask(change):
            return {"status": "failed", "code": "not_asked", "reason": refusal}
        return change


def count_silence(record: StepRecord, new: bool) -> StepChange:
    """Return the record's change after a round: how many rounds in a row brought nothing new, and the most so far."""
    rounds = 0 if new else record["silent"] + 1
    return {"silent": rounds, "silent_most": max(rounds, record["silent_most"])}


def silence_hint(state: Step, runtime: Runtime[Settings], rounds: int) -> str:
    """Return a hint for the model after several rounds without anything new, else ""; tell the user once."""
    if rounds < SILENT_ROUNDS:
        return ""
    if rounds == SILENT_ROUNDS:
        emit_note(runtime, state["language"], "nothing_new", step=state["step"]["id"], count=rounds)
    hint = f"Nothing new was observed in {rounds} rounds."
    return f"{hint} Unless you wait for something: do something else, finish, ask, or give up."


def open_question(call: Call) -> Ask | None:
    """Return the first unanswered question of a call."""
    asks, answers = call.get("asks") or [], call.get("answers") or []
    return asks[len(answers)] if len(answers) < len(asks) else None


def waits(call: Call, outcome: CallOutcome) -> bool:
    """Return whether the executor or tool that was called waits for a person's answer.

    An artifact of the tool's own that looks like questions does not count.
    """
    artifact = outcome.artifact if call.get("delegated") or outcome.error == WAITS else None
    return isinstance(artifact, Mapping) and bool(artifact.get("asks"))


def _people_note(call: Call) -> str:
    """Return a note for the model: a person's changes of the call, and their answers to its tool."""
    if call.get("delegated"):
        return ""
    notes = list[str]()
    if call.get("edited"):
        said = f" and said: {words[:500]}" if (words := call.get("edit_words")) else ""
        who = call.get("edited_by") or "the user"
        notes.append(f"{who} changed the arguments to {canonical_json(call['args'])[:500]}{said}")
    for ask, answer in zip(call.get("asks") or (), call.get("answers") or (), strict=False):
        answer_text = "nobody answered" if answer is None else f"they said {canonical_json(answer)[:500]}"
        notes.append(f"the tool asked the user “{ask['question'][:500]}”; {answer_text}")
    return " ".join(f"Note: {note}." for note in notes)


async def _show_to_hooks(call: Call, context: CallContext, outcome: CallOutcome) -> CallOutcome:
    """Show the outcome to the hooks; return it with their notes, and without its result if they withhold that.

    A withheld result is stored nowhere. The call's effect remains.
    """
    made_call, policies = call_for_hooks(call, context, ok=outcome.ok, text=outcome.text), context.deps.policies
    verdict = await policies.ask(policies.hooks.after_call, made_call, context.runtime, context.caller.language)
    if refusal := verdict.refused_alone:
        ok, text = outcome.ok and made_call.effect != "read", f"The call was made; its result is withheld: {refusal}"
        outcome = replace(outcome, ok=ok, text=text, artifact=None, images=())
    return replace(outcome, notes=[*outcome.notes, *verdict.notes])


async def _show_questions_to_hooks(context: CallContext, outcome: CallOutcome) -> CallOutcome:
    """Return the outcome of a call whose executor or tool asks people, or a failed one if hooks refuse a question."""
    artifact: Mapping[str, Any] = outcome.artifact
    for ask in artifact["asks"][len(artifact.get("answers") or ()) :]:
        pending = cast("Pause", {**ask, "step": context.caller.id})
        if refusal := await context.deps.policies.refusal_of(pending, context.caller.goal, context.runtime):
            text = f"It wanted to ask a person “{ask['question'][:500]}”, and {refusal}"
            return replace(outcome, ok=False, text=text, artifact=None, error="interrupt")
    return outcome


async def ask_before_end(
    context: CallContext,
    text: str,
    answers: Iterable[Mapping[str, Any]],
    status: str = "completed",
    output: Any = None,
    *,
    ask: Callable[..., QuestionPause] | None = None,
) -> tuple[str, QuestionPause | None]:
    """Ask the hooks about this end; return why not, or the question that a person has to answer first.

    `output` is the structured result. If their question was answered in this run already, by somebody whom they ask or
    by the policy, that answer decides; the policy agrees to nothing. `ask` makes a question; without it nobody can be
    asked.
    """
    caller, policies = context.caller, context.deps.policies
    if not (before_end := policies.hooks.before_end):
        return "", None
    end = End(context.thread, caller.id, caller.goal, text, status, output)
    verdict = await policies.ask(before_end, end, context.runtime, caller.language)
    if verdict.refused or not verdict.question:
        return verdict.refused, None
    for entry in answers:
        asked = entry["arguments"]
        if entry["source"] != "user" or asked.get("question") != verdict.question:
            continue
        if (is_persons := asked.get("by") == "user") and not may_answer(verdict.answered_by, asked.get("name", "")):
            continue
        answer = str(entry["text"]).strip()
        agreed = is_persons and answer.casefold() == END_OPTIONS[0]
        return "" if agreed else f"a person was asked “{verdict.question}” and said: {answer[:500]}", None
    if ask is None:
        return verdict.refused_alone, None
    audience = {"answered_by": verdict.answered_by} if verdict.answered_by else {}
    pause = ask(verdict.question, END_OPTIONS, **audience)
    refusal = await policies.refusal_of(pause.dump(), caller.goal, context.runtime)
    return refusal, None if refusal else pause


async def store_notes(context: CallContext, first: int, notes: Sequence[str]) -> list[JournalEntry]:
    """Store the hooks' notes as journal entries, numbered from `first`."""
    caller, id = context.caller, context.caller.id
    entries = [
        observation(f"{id}.{number}", id, caller.rounds, "check", text, tool="policy", at=now())
        for number, text in enumerate(notes, first)
    ]
    for entry in entries:
        emit_observation(context.runtime, entry)
    return [await caller.texts.put_entry(entry) for entry in entries]


async def refuse_or_make(context: CallContext, call: Call, id: str, ruling: Go | No) -> CallOutcome | UnknownEffect:
    """Refuse the call, or tell people that it begins, and make it; `id` is that of its observation."""
    if isinstance(ruling, No) and not ruling.unless_made:
        answered = decision_on(call) == "answered"
        return CallOutcome(answered, f"Not run: {ruling.why}", error="answered" if answered else "rejected")
    if isinstance(ruling, Go) and (why := await _why_outdated(call, context)):
        ruling = No(why, unless_made=True, notes=ruling.notes)
    base = await _tell_start(context, call, id) if isinstance(ruling, Go) else ""
    return await make_call(context, call, id, ruling, base)


async def _tell_start(context: CallContext, call: Call, id: str) -> str:
    """Tell people that a call begins, with what it replaces; return the digest of that, "" if the tool never says."""
    hide = partial(redact_json, call["args"])
    shown: Json = {"arguments": await run_in_thread(hide) if is_large(call["args"]) else hide()}
    replaced, _ = await replaced_texts(context.tools[call["name"]].tool, call["args"])
    if diffs := differences(replaced, call["args"]):
        shown["diffs"] = diffs
    step = context.caller.id if context.may_ask else None
    emit(context.runtime, "tool_started", id=id, step=step, tool=call["name"], **shown)
    return "" if replaced is None else base_of(replaced)


async def make_call(
    context: CallContext, call: Call, id: str, ruling: Go | No, base: str = ""
) -> CallOutcome | UnknownEffect:
    """Make the call; one with effects is made once, and its outcome is replayed if it was made before a crash.

    `id` is that of its observation; a call that waits for a person gets another one when it is made again. `base` is
    the digest of what it is about to replace. Returns an UnknownEffect if a person must decide whether to make it.
    """
    caller, tool = context.caller, context.tools[call["name"]]
    made_in = (context.thread, caller.texts.turn, caller.id, caller.attempt, caller.rounds, call.get("position", 0))
    times_asked = (call["asked"],) if call.get("asked") else ()
    key = effect_key(context.place.scope, *made_in, *times_asked, tool=call["name"], arguments=call["args"])
    refused: CallOutcome | None = None
    if isinstance(ruling, No):
        refused = CallOutcome(False, f"Not run: {ruling.why}", error="refused", notes=ruling.notes)
    run = partial(_run_call, context, call, id, ruling.notes)
    if tool.effect == "read":
        return refused or await run(key)
    return await _run_once(context, Effect(key, call, tool, refused, base), id, run)


async def _run_once(context: CallContext, effect: Effect, id: str, run: MakeCall) -> CallOutcome | UnknownEffect:
    """Make a call with effects, or return the outcome that it had before a crash."""
    caller = context.caller
    log = EffectLog(
        context.runtime.store,
        context.thread,
        context.place,
        step=caller.id,
        accounted_for=caller.settled_writes,
        own={*caller.own_writes, *context.new_writes},
        turn=caller.texts.turn,
        secrets=context.deps.secrets,
    )
    outcome = await perform(log, effect, run)
    if isinstance(outcome, UnknownEffect):
        return outcome
    if outcome.key:
        context.new_writes.append(outcome.key)
    # The id may belong to another text, from another branch of the history.
    whole = None if outcome.whole else await caller.texts.get(id)
    return replace(outcome, text=whole) if whole and shorten_text(whole) == outcome.text else outcome


async def _run_call(context: CallContext, call: Call, id: str, notes: Sequence[str], key: str) -> CallOutcome:
    """Call the tool, and show the result to hooks; return it with the hooks' notes and what models cost."""
    tool, after_call = context.tools[call["name"]], context.deps.policies.hooks.after_call
    meter = Meter(context.amounts_left, context.deps.prices)
    context.meters.append(meter)
    outcome = await _call_tool(context, call, id, meter, key)
    outcome = replace(outcome, artifact=storable_artifact(outcome.artifact))
    if waits(call, outcome):
        outcome = await _show_questions_to_hooks(context, outcome)
    if not waits(call, outcome):
        outcome = replace(outcome, notes=notes) if notes else outcome
        outcome = await _show_to_hooks(call, context, outcome) if after_call else outcome
        outcome = await keep_images(outcome, context.runtime) if outcome.images else outcome
    meter.close()
    if tool.effect != "read":
        await context.caller.texts.put(id, outcome.text)
    return replace(outcome, spent=meter.spent)


async def _why_outdated(call: Call, context: CallContext) -> str:
    """Return why the call is refused: what it replaces changed since people saw the difference; "" if it did not.

    Nothing is lost if what is there is what the call writes, as after a crash of this very call.
    """
    tool = context.tools[call["name"]].tool
    replaced, unread = await replaced_texts(tool, call["args"]) if "base" in call else (None, "")
    if replaced is None or base_of(replaced) == call["base"] or (replaced and not differences(replaced, call["args"])):
        return ""
    said = conceal(unread, context.deps.secrets)
    return (
        f"what it replaces {f'cannot be read now ({said}), and may have' if unread else 'has'} changed since people "
        "saw the difference. Look at it again; people are asked once more if you make the call again"
    )


async def _call_tool(context: CallContext, call: Call, id: str, meter: Meter, key: str) -> CallOutcome:
    """Call the tool with the answers that people gave it so far.

    If it stops to ask, its questions are the outcome, because the graph pauses only at its top level.
    """
    caller, known_tool, secrets = context.caller, context.tools[call["name"]], context.deps.secrets
    config = without_listeners(context.config, meter)
    metadata = {**config["metadata"], "step": caller.id, "attempt": caller.attempt, EFFECT: key, OBSERVATION: id}
    config = {**config, "metadata": metadata}
    if call.get("answers"):
        config = with_resume_values(config, [*resume_values(call).values()])
    answered_asks.set((call.get("asks") or [])[: len(call.get("answers") or ())])
    tool_call = ToolCall(
        known_tool.tool,
        {**call["args"], **call["given"]} if "given" in call else call["args"],
        seconds_for(known_tool.tool, call["args"], context.seconds),
        config,
        key,
        call["id"] or None,
        secrets=secrets,
        callee=known_tool.callee,
        shown=call["args"],
        model=known_tool.model,
        context=context.settings.tool_context,
    )
    author = {"turn": caller.texts.turn, "step": caller.id, "id": id, "tool": call["name"]}
    try:
        with keep_changes(context.runtime.store, context.thread, author, secrets):
            return await call_tool(tool_call)
    except GraphInterrupt as pause:
        return _outcome_of_pause(call, context, pause.args[0] if pause.args else ())
    except ParentCommand:
        text = "The tool wanted to take over the graph, which tools cannot do here."
        return CallOutcome(False, text, error="command")


def _outcome_of_pause(call: Call, context: CallContext, interrupts: Sequence[Any]) -> CallOutcome:
    """Return the outcome of a call whose tool stopped to ask: its questions if people may be asked, else a failure."""
    tool, secrets = context.tools[call["name"]].tool, context.deps.secrets
    if not (context.may_ask and interrupts):
        questions = "; ".join(str(interrupt_value(one))[:500] for one in interrupts)
        text = f"The tool stopped to ask a person, which only tools of a step can do: {questions}"
        return CallOutcome(False, text, error="interrupt")
    if call.get("asked", 0) >= MOST_ASKED:
        return CallOutcome(False, f"The tool asked {MOST_ASKED} times and was given up.", error="interrupt")
    asks = questions_of(call, interrupts)
    if asks_in_vain(call, asks):
        return CallOutcome(False, "It asked again what nobody answered.", error="interrupt")
    if (tool.metadata or {}).get("secrets") is not True:
        asks = {**asks, "asks": [conceal_ask(ask, secrets) for ask in asks["asks"]]}
    asks["asked"] = call.get("asked", 0) + 1
    return CallOutcome(False, "It asks.", artifact=asks, error=WAITS)


def observe(context: CallContext, call: Call, id: str, outcome: CallOutcome, source: Source = "tool") -> JournalEntry:
    """Return the observation of a call: its result, or why it was not made."""
    caller, tool = context.caller, context.tools[call["name"]] if outcome.made or outcome.error == "refused" else None
    entry = observation(
        id,
        caller.id,
        caller.rounds,
        source,
        outcome.text,
        ok=outcome.ok,
        tool=call["name"],
        arguments=call["args"],
        effect=tool.effect if tool else None,
        seconds=outcome.seconds,
        at=now(),
        targets=[*tool.targets(call["args"])] if tool else [],
    )
    if outcome.unknown and (entry["effect"] in WRITES or outcome.error == "refused"):
        entry["unknown"] = True
    elif entry["effect"] == "write" and outcome.made and not (entry["ok"] or outcome.passing):
        entry["refused"] = caller.times_spoken
    if tool and not outcome.made:
        entry["made"] = False
    if outcome.confirmed:
        entry["confirmed"] = True
    if outcome.made_at is not None:
        entry["made_at"] = outcome.made_at
    if outcome.ok and tool:
        entry.update(tool.origin(call["args"]))  # type: ignore[typeddict-item]
        if failed := failure_in(outcome.artifact):
            entry["failed"] = failed
        if tool.reads:
            entry["reads"] = [*tool.reads]
    if outcome.ok and tool and tool.users_text:
        entry["users_text"] = True
    if outcome.images:
        entry["images"] = [*outcome.images]
    if tool and call.get("delegated"):
        entry["delegated"] = True
        if transcript := (outcome.artifact or {}).get("transcript"):
            entry["transcript"] = transcript
    return entry


async def make_read_call(context: CallContext, name: str, arguments: Json) -> tuple[JournalEntry, CallOutcome] | str:
    """Make a read call of the runtime itself; return its observation and outcome, or why it may not be made.

    Whoever calls this checks before that the budget allows a tool call.
    """
    number = context.observed + len(context.new_entries) + 1
    if (tool := context.tools.get(name)) is None or tool.effect != "read":
        return f"the check's tool {name} is not available as a read-only tool"
    call, id = Call(id="", name=name, args=arguments), f"{context.caller.id}.{number}"
    ruling = await rule(call, context, GATES_OF_CHECKS)
    if isinstance(ruling, No) and not ruling.unless_made:
        return f"the check may not run: {ruling.why}"
    outcome = await make_call(context, call, id, ruling)
    context.meters.clear()
    assert isinstance(outcome, CallOutcome), "the outcome of a read is never unknown"
    spent: Amounts = {"tool_calls": int(outcome.made), "active_seconds": outcome.seconds}
    context.spent = add(add(context.spent, outcome.spent), spent)
    entry = await context.caller.texts.put_entry(observe(context, call, id, outcome, "check"))
    emit_observation(context.runtime, entry)
    context.new_entries += [entry, *await store_notes(context, number + 1, outcome.notes)]
    return entry, outcome
