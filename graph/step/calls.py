"""Make the calls of one decision in order: each passes the gates, is made once, and becomes an observation.

Planning, checks and the judge make their calls here too; only steps ask a person for approval.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphInterrupt, ParentCommand
from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.events import emit, emit_charge, emit_observation, now, thread_of
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
from donewhen.graph.people.interjections import new_interjections
from donewhen.graph.step.leave import NewTargets, Reason, approval_pause, leave, relay_pause, unknown_effect_pause
from donewhen.graph.step.texts import RecallResult, known_entries, load_text, recall, store_entry, store_text
from donewhen.graph.sync import run_in_thread
from donewhen.graph.tools.call import CallResult, ToolCall, call_tool, seconds_for
from donewhen.graph.tools.changes import keep_changes
from donewhen.graph.tools.effects import (
    CallOutcome,
    Effect,
    EffectLog,
    MakeCall,
    Place,
    UnknownEffect,
    base_of,
    differences,
    effect_key,
    perform,
    replaced_texts,
    shorten_text,
    storable_artifact,
)
from donewhen.graph.tools.hooks import END_OPTIONS, Call, End, HookDecision
from donewhen.graph.tools.rendering import is_large
from donewhen.graph.tools.toolbox import KnownTool
from donewhen.state.channels import Json, Step
from donewhen.state.consent import KnownTargets
from donewhen.state.ledger import Amounts, add, first_exhausted, subtract
from donewhen.state.plan.planning import PROMOTED
from donewhen.state.plan.steps import SILENT_ROUNDS
from donewhen.state.private_langgraph import with_resume_values
from donewhen.state.proof.journal import (
    Source,
    call_key,
    canonical_json,
    has_spoken_since,
    is_tool_call,
    observation,
)
from donewhen.state.reading.decisions import LOOKUPS
from donewhen.state.records import FrozenCall, JournalEntry, Pause, StepClaim, StepRecord
from donewhen.state.secrets import conceal_json, redact_json
from donewhen.state.settings import Settings

EFFECT = "donewhen_effect"
"""Metadata key of a call for its effect's key, which is the same when the call is repeated after a crash."""
OBSERVATION = "donewhen_observation"
"""Metadata key of a call for the id of the observation that it becomes."""
MOST_ASKED = 20
"""Times that the tool of one call may ask, also where nobody is asked because a policy answers."""
WAITS = "asks"
"""Error of a call whose tool waits for a person. It is stored, so it keeps its value."""


async def act(state: Step, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Step:
    """Make the calls in the step's record; stop at the first that needs a person or more budget."""
    tools = deps.tools_for(state["step"].get("executor"), runtime.context)
    return await CallBatch(CallContext(state, runtime, config, deps, tools)).run()


@dataclass
class CallContext:
    """The surroundings of calls: the step that makes them, its tools, and what was spent and observed so far."""

    state: Step
    runtime: Runtime[Settings]
    config: RunnableConfig
    deps: Deps
    tools: Mapping[str, KnownTool]
    """The tools that may be called, which the node looks up once."""
    spent: Amounts = field(default_factory=dict)
    meters: list[Meter] = field(default_factory=list)
    """The meters of calls in progress."""
    wrote: list[str] = field(default_factory=list)
    """Short keys of the writes made here whose outcome is known."""
    observed: int = 0
    """The number of observations that the step had before; for the reads of checks and judges, see `noted`."""
    noted: list[JournalEntry] = field(default_factory=list)
    """Observations made by checks and by a judge."""
    settings: Settings = field(init=False)
    """The settings of the run."""
    seconds: float | None = field(init=False)
    """The time limit of one call, unless its tool declares a longer one."""
    thread: str = field(init=False)
    """The id of the thread."""

    def __post_init__(self) -> None:
        self.settings = self.runtime.context
        self.seconds = self.settings.tool_seconds
        self.thread = thread_of(self.runtime)

    @cached_property
    def place(self) -> Place:
        """The place of the run on its thread, which is part of every effect's key."""
        return Place.of(self.config, depth=2)

    def amounts_left(self) -> Amounts:
        """Return what the step may still spend, minus the spending of these calls."""
        running = add(self.state.get("spent"), self.spent)
        for meter in self.meters:
            running = add(running, meter.least_spent)
        return subtract(self.state.get("allowance") or {}, running)


@dataclass
class GatedCall:
    """A call on its way: what people and policies decide about it, then its outcome."""

    call: FrozenCall
    tool: KnownTool | None
    """None for a look-up, which is no tool."""
    id: str
    """The id of its observation. A call that waits for a person gets another one when it is made again."""
    number: int = 0
    """The number in its id, for calls of steps."""
    may_ask: bool = False
    """True if hooks and the tool may ask a person about it, which only calls of steps may."""
    refusal: str = ""
    """Why it is not made, in words for the model."""
    verdict: HookDecision | None = None
    """The decision of the hooks. They are asked at the gate, and only about a call that nothing else refuses; None for
    calls that pass no gate: `make_call` asks about those.
    """
    outcome: CallOutcome | RecallResult | UnknownEffect | None = None
    """The outcome, the text of a look-up, or why a person must say whether it took effect; None if it was not made."""
    result: CallResult | None = None
    """The result, if there is one."""
    artifact: Json = field(default_factory=dict)
    """The stored parts of the result's artifact."""
    waits: bool = False
    """True if its executor or its tool waits for a person's answer."""


@dataclass
class CallBatch:
    """The calls of one decision that are still to be made, and the results of the others."""

    context: CallContext
    calls: Sequence[FrozenCall] = ()
    number: int = 0
    """The number of the last observation."""
    limit: int = 0
    """The most characters of an observation that the step's model is shown."""
    held: list[str] = field(default_factory=list)
    """Results of printed calls, which are sent back in one message when all are there."""
    entries: list[JournalEntry] = field(default_factory=list)
    """The observations as journal entries."""
    results: list[AnyMessage] = field(default_factory=list)
    """The messages for the model."""
    files: dict[str, str] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    """Tools that `find_tools` found."""
    recalled: list[RecallResult] = field(default_factory=list)
    acted: bool = False
    """True once a call was made or answered, and not only refused."""
    learned: bool = False
    """True once a call returned something new to the step."""

    async def run(self) -> Step:
        """Make the calls in the step's record; leave the step at the first call that may not be made now."""
        context, state = self.context, self.context.state
        self.calls, self.number = list(state["record"]["calls"]), state["record"]["observed"]
        self.held = list(state["record"].get("held") or ())
        self.limit = observation_limit(context.deps, context.settings, "execute", state["step"].get("executor"))
        while self.calls:
            if question := open_question(self.calls[0]):
                return self._halt(relay_pause(self.calls[0], question, state))
            group = [await self._gate(n, call) for n, call in enumerate(self._next_group(), self.number + 1)]
            first = group[0]
            if change := await self._stop_before(first):
                return self._halt(change)
            # A call that hooks ask about begins the next group, because a step can only stop before a first call.
            asked_about = (n for n, each in enumerate(group) if n and each.verdict and each.verdict.question)
            group = group[: next(asked_about, len(group))]
            await self._make(group)
            if isinstance(first.outcome, UnknownEffect):
                return self._halt(await self._ask_about_effect(first.call, first.outcome))
            waiting = [cast("FrozenCall", {**each.call, **each.artifact}) for each in group if each.waits]
            for each in group:
                await self._record(each)
            for each in group:
                if each.result and each.result.notes:
                    await self._record_notes(each.call, each.result.notes)
            seconds = max((each.result.seconds for each in group if each.result), default=0.0)
            context.spent = add(context.spent, {"active_seconds": seconds})
            self.calls = [*waiting, *self.calls[len(group) :]]
            if waiting and (question := open_question(waiting[0])):
                return self._halt(relay_pause(waiting[0], question, state))
        return self._finish()

    def _next_group(self) -> Sequence[FrozenCall]:
        """Return the calls to make together: consecutive different reads within the budget, or one other call."""
        keys: set[str] = set()
        room = self.context.amounts_left().get("tool_calls", len(self.calls))
        for call in self.calls:
            key, tool = call_key(call["name"], call["args"]), self.context.tools.get(call["name"])
            reads = tool is not None and tool.effect == "read"
            if not reads or key in keys or len(keys) >= room or open_question(call):
                break
            keys.add(key)
        return self.calls[: max(len(keys), 1)]

    async def _gate(self, number: int, call: FrozenCall) -> GatedCall:
        """Return the call with what people, the profile and the hooks decide about it."""
        state, tool = self.context.state, self.context.tools.get(call["name"])
        id = f"{state['step']['id']}.{number}"
        gated = GatedCall(call, tool, id, number, may_ask=True, verdict=HookDecision())
        rejected = {**state.get("rejected", {}), **state["record"].get("rejected", {})}
        decided = call.get("decided") or {"kind": "undecided"}
        if decided["kind"] == "answered":
            gated.refusal = f"the user answered instead: {decided['text']}"
        elif decided["kind"] == "refused":
            gated.refusal = f"the user rejected this call: {decided['why']}"
        elif tool is None:
            gated.refusal = "" if call["name"] in LOOKUPS else f"there is no tool {call['name']} any more"
        elif outside := tool.path_problem(call["args"], self.context.settings.profile.allowed_paths):
            gated.refusal = outside
        elif rejected and decided["kind"] == "undecided":
            why = rejected.get(key := call_key(call["name"], call["args"]))
            why = None if has_spoken_since(state["run"], state["asked"], key) else why
            gated.refusal = f"the user rejected this very call before: {why}" if why else ""
        if tool and not gated.refusal and decided["kind"] != "known":
            gated.verdict = await ask_before_call(self.context, gated)
            if gated.verdict.refused or decided["kind"] == "approved":
                gated.verdict = replace(gated.verdict, question="")
        return gated

    async def _stop_before(self, first: GatedCall) -> StepRecord | None:
        """Return the record's change if the step must leave before this call; None if it is made now, or refused.

        If hooks do not let people be asked about the call, it is refused.
        """
        if first.refusal or (first.verdict and first.verdict.refused):
            return None
        change = await self._reason_to_leave(first)
        first.refusal = await self._refused_question(change) if change else ""
        return None if first.refusal else change

    async def _ask_about_effect(self, call: FrozenCall, unknown: UnknownEffect) -> StepRecord:
        """Return the record's change with which people are asked whether the call took effect.

        If hooks do not let them be asked, the step fails.
        """
        change = unknown_effect_pause(call, self.context.state, unknown)
        if refused := await self._refused_question(change):
            return {"status": "failed", "code": "not_asked", "reason": refused}
        return change

    async def _reason_to_leave(self, gated: GatedCall) -> StepRecord | None:
        """Return the record's change if the call lacks budget or approval; None if it has both."""
        call, state, hooked = gated.call, self.context.state, gated.verdict.question if gated.verdict else ""
        if gated.tool is None:
            return None
        if key := first_exhausted(self.context.amounts_left(), ("tool_calls",)):
            return {"status": "ready", "code": f"allowance:{key}"}
        reason = self._approval_reason(call)
        new = await self._new_targets(gated) if reason == "new" else {}
        if reason is None or (reason == "new" and not new.get(call.get("position", 0))):
            if not hooked:
                return None
            reason = "hook"
        if reason == "unlisted" and "write" in state.get("promotable", ()):
            wanted = f"{call['name']}({canonical_json(conceal_json(call['args']))[:500]})"
            why = f"it takes {wanted}, which its plan, that nobody was shown, does not list"
            return {"status": "failed", "code": f"{PROMOTED}write", "reason": why, "calls": []}
        covered = reason in ("by_tool", "new")  # covered by the plan: ask once for all such calls
        others = [other for other in self.calls[1:] if covered and self._needs_approval_too(other, new)]
        conditions = gated.tool.conditions(state.get("language", "en"))
        waiting = approval_pause([call, *others], state, reason, new, hooked, conditions)
        change: StepRecord = {"status": "waiting", "waiting": waiting}
        if (replaced := await replaced_texts(gated.tool.tool, call["args"])) is not None:
            change["calls"] = [{**call, "base": base_of(replaced)}, *self.calls[1:]]
            if diffs := differences(replaced, call["args"]):
                waiting["diffs"] = diffs
        return change

    async def _refused_question(self, change: StepRecord) -> str:
        """Return why hooks refuse to ask people what the step would wait for; "" if they agree or it does not wait."""
        if not (waiting := change.get("waiting")):
            return ""
        context = self.context
        return await context.deps.policies.refusal_of(waiting, context.state["goal"], context.runtime)

    def _approval_reason(self, call: FrozenCall) -> Reason | None:
        """Return why a person must approve the call; `new` applies only if it has targets unknown to people."""
        approvals, delegated = self.context.settings.approvals, call.get("delegated")
        tool = self.context.tools.get(call["name"])
        if tool is None or "decided" in call:
            return None
        if approvals == "each" and (delegated or tool.effect != "read"):
            return "each"
        if delegated or approvals == "never" or tool.effect == "read":
            return None  # The approved plan names the executor.
        if call["name"] not in self.context.state.get("granted_tools", ()):
            return "unlisted"
        if approvals != "shown" or (approval := tool.approval(call["args"])) == "free":
            return None
        return "by_tool" if approval == "ask" else "new"

    def _needs_approval_too(self, call: FrozenCall, new: NewTargets) -> bool:
        reason = self._approval_reason(call)
        return reason == "by_tool" or (reason == "new" and bool(new.get(call.get("position", 0))))

    async def _new_targets(self, gated: GatedCall) -> NewTargets:
        """Return, by position, the targets of calls that no person knows of; {} if this call has none."""
        context, state, tool = self.context, self.context.state, gated.tool

        def look() -> tuple[KnownTargets, bool]:
            known = state["known_targets"]() if "known_targets" in state else KnownTargets()
            for entry in [*known_entries(state), *self.entries]:
                known.observe(entry)
            return known, tool is not None and bool(tool.new_targets(gated.call["args"], known))

        known, new = await run_in_thread(look)  # seconds for megabytes of results
        if not new:
            return {}
        for id in known.long:
            known.read(id, await load_text(context.runtime, state, id) or "")
        cursor, place = state.get("interjection_cursor") or "", state["step"]["id"]
        for said in await new_interjections(context.runtime, cursor, place):
            known.answer(said["text"])
        asked = [each for each in self.calls if self._approval_reason(each) == "new"]
        find = (partial(context.tools[each["name"]].new_targets, each["args"], known) for each in asked)
        found = [await run_in_thread(each) for each in find]
        return {each.get("position", 0): new for each, new in zip(asked, found, strict=True) if new}

    async def _make(self, group: Sequence[GatedCall]) -> None:
        """Make the calls that are not refused, in parallel."""
        context = self.context
        if group[0].call["name"] in LOOKUPS:
            group[0].outcome = await self._look_up(group[0].call)
            return
        running = [each for each in group if not each.refusal]
        for each in running:
            hide = partial(redact_json, each.call["args"])
            hidden = await run_in_thread(hide) if is_large(each.call["args"]) else hide()
            shown: Json = {"tool": each.call["name"], "arguments": hidden}
            replaced = await replaced_texts(each.tool.tool, each.call["args"]) if each.tool else None
            if diffs := differences(replaced, each.call["args"]):
                shown["diffs"] = diffs
            emit(context.runtime, "tool_started", id=each.id, step=context.state["step"]["id"], **shown)
        if len(running) == 1:
            await make_call(context, running[0])
        else:
            await asyncio.gather(*(make_call(context, each) for each in running))
        context.meters.clear()

    async def _look_up(self, call: FrozenCall) -> RecallResult:
        context, state = self.context, self.context.state
        if call["name"] != FIND_TOOLS:
            return await recall(call, state, self.entries, context.runtime)
        toolbox = context.deps.tools_for(state["step"].get("executor"), context.settings)
        offer = await offer_for_step(context.deps, context.settings, toolbox, state)
        came = await find_tools(context.deps, toolbox, call, {*offer.bound, *self.found}, state.get("fence", ""))
        self.found += came["names"]
        self.learned = self.learned or bool(came["names"])
        return RecallResult(str(came["text"]))

    async def _record(self, gated: GatedCall) -> None:
        """Charge the call, store its observation, and add the model's message; a call that waits is only charged."""
        context, call, outcome = self.context, gated.call, gated.outcome
        if isinstance(outcome, CallOutcome):
            charge: Amounts = {} if gated.waits and call.get("delegated") else {"tool_calls": 1}
            context.spent = add(add(context.spent, outcome.spent), charge)
        if isinstance(outcome, RecallResult):
            self._show_look_up(call, outcome)
            return
        if gated.waits:
            return
        self.number = gated.number
        self.acted = self.acted or isinstance(outcome, CallOutcome) or _is_answered(call)
        self.files.update(gated.artifact.get("files", {}))
        entry = observe(context.state, gated)
        before, changed = None, False
        if called := is_tool_call(entry):
            journal = [*known_entries(context.state), *self.entries]
            before, changed = context.state["call_history"].before(entry, journal)
        self.learned = self.learned or (before is None if called else entry["ok"])
        hint = _people_note(call)
        if before is None or changed or (entry["effect"] != "read" and entry["ok"]):
            self._show(call, self._render(entry, hint))
        else:
            entry["same_as"] = before.get("same_as") or before["id"]
            self._show(call, self._render_repetition(entry, hint, again="same_as" in before))
        entry = await store_entry(context.runtime, context.state, entry)
        self.entries.append(entry)
        emit_observation(context.runtime, entry)

    def _show_look_up(self, call: FrozenCall, found: RecallResult) -> None:
        """Show the model what it looked up, which is no observation; it is told if it read this before."""
        again = [*found.span] in self._lookup_changes().get("recalled", {}).get(found.id, ())
        if found.id and not again:
            self.learned = True
            self.recalled.append(found)
        self.acted = True
        self._show(call, f"{found.text}\nNote: you read this before." if again else found.text)

    async def _record_notes(self, call: FrozenCall, notes: Sequence[str]) -> None:
        """Store the hooks' notes on a call, and show them beside its result."""
        for entry in await store_notes(self.context, self.number + 1, notes):
            self.number += 1
            self.entries.append(entry)
            shown = self._render(entry, "")
            if not call.get("native"):
                self.held.append(shown)
                continue
            place, message = next(
                (n, each) for n, each in enumerate(self.results) if getattr(each, "tool_call_id", "") == call["id"]
            )
            self.results[place] = message.model_copy(update={"content": f"{message.text}\n{shown}"})

    def _render(self, entry: JournalEntry, hint: str) -> str:
        return render_observation(entry, self.limit, hint, self.context.state.get("fence", ""))

    def _render_repetition(self, entry: JournalEntry, hint: str, *, again: bool) -> str:
        """Render an unchanged result: in full the second time, later in one line if that is shorter (X11)."""
        said = f"As {entry['same_as']}, unchanged."
        if not again or len(entry["text"]) <= len(said):
            return self._render(entry, f"{hint} {said}".strip())
        return f"[{entry['id']}] {entry['tool']} {'ok' if entry['ok'] else 'error'}\n{said} {hint}".rstrip()

    def _show(self, call: FrozenCall, text: str) -> None:
        if call.get("native"):
            self.results.append(ToolMessage(text, tool_call_id=call["id"]))
        else:
            self.held.append(text)

    def _lookup_changes(self) -> StepRecord:
        """Return the record's change: tools that were found, and what was recalled."""
        record, change = self.context.state["record"], StepRecord()
        if self.found:
            change["found"] = [*(record.get("found") or ()), *self.found]
        spans = dict(record.get("recalled") or {})
        for result in self.recalled:
            spans[result.id] = [*spans.get(result.id, ()), [*result.span]]
        return {**change, "recalled": spans} if spans else change

    def _send_back(self, claim: StepClaim) -> None:
        """Answer a claim that came with calls and is not checked, because a call waits or failed."""
        self.results.append(ToolMessage(LOOK_FIRST.format(name=claim["kind"]), tool_call_id=claim["id"]))

    def _update(self) -> Step:
        context = self.context
        emit_charge(context.runtime, context.state["step"]["id"], context.spent)
        update: Step = {
            "journal": self.entries,
            "transcript": self.results,
            "spent": context.spent,
            "files": self.files,
        }
        return {**update, "wrote": context.wrote} if context.wrote else update

    def _finish(self) -> Step:
        """Return the update after all calls; a claim that came with them goes to goal_check if all succeeded."""
        context, record, update = self.context, self.context.state["record"], self._update()
        silence = count_silence(record, self.learned)
        if self.held:
            self.results.append(HumanMessage("\n\n".join(self.held)))
        if self.results and (hint := silence_hint(context.state, context.runtime, silence)):
            last = self.results[-1]
            self.results[-1] = last.model_copy(update={"content": f"{last.text}\n{hint}"})
        after: StepRecord = {
            **record,
            "calls": [],
            "held": [],
            "observed": self.number,
            **silence,
            **self._lookup_changes(),
        }
        after = {**after, "corrections": 0} if self.acted else after
        if claim := record.get("then"):
            after["then"] = None
            called = [entry for entry in self.entries if entry["source"] == "tool"]
            if called and all(entry["ok"] and is_tool_call(entry) for entry in called):
                return {**update, "record": after, "decision": dict(claim)}
            self._send_back(claim)
        return {**update, "record": after}

    def _halt(self, change: StepRecord) -> Step:
        """Leave before the next call. The remaining calls are stored to run later.

        If the step failed, they are answered now instead, and its model decides anew if the step is told to go on.
        """
        context = self.context
        if change["status"] == "failed":
            for call in self.calls:
                self._show(call, f"Not run: {change['reason']}")
            self.calls = ()
        update = self._update()
        if claim := context.state["record"].get("then"):
            self._send_back(claim)
            change = {**change, "then": None}
        frozen: StepRecord = {"calls": list(self.calls), **change, "held": self.held, "observed": self.number}
        frozen = {**frozen, **self._lookup_changes()}
        return {
            **update,
            **leave(context.state, context.runtime, frozen, self.results, context.spent, context.wrote),
        }


def count_silence(record: StepRecord, new: bool) -> StepRecord:
    """Return the record's change after a round: the current and the longest series of rounds without anything new."""
    rounds = 0 if new else record.get("silent", 0) + 1
    return {"silent": rounds, "silent_most": max(rounds, record.get("silent_most", 0))}


def silence_hint(state: Step, runtime: Runtime[Settings], record: StepRecord) -> str:
    """Return a hint for the model after several rounds without anything new, else ""; tell the user once."""
    rounds = record["silent"]
    if rounds < SILENT_ROUNDS:
        return ""
    if rounds == SILENT_ROUNDS:
        emit(runtime, "note", text=f"Step {state['step']['id']}: nothing new in {rounds} rounds.")
    said = f"Nothing new was observed in {rounds} rounds."
    return f"{said} Unless you wait for something: do something else, finish, ask, or give up."


def open_question(call: FrozenCall) -> Pause | None:
    """Return the first unanswered question of a call."""
    asks, answers = call.get("asks") or [], call.get("answers") or []
    return asks[len(answers)] if len(answers) < len(asks) else None


def _waits(call: FrozenCall, result: CallResult) -> bool:
    """Return whether an executor or a tool waits for a person's answer; a tool's own artifact never says so."""
    artifact = result.artifact if call.get("delegated") or result.error == WAITS else None
    return isinstance(artifact, Mapping) and bool(artifact.get("asks"))


def _is_answered(call: FrozenCall) -> bool:
    return "decided" in call and call["decided"]["kind"] == "answered"


def _people_note(call: FrozenCall) -> str:
    """Return a note for the model: a person's changes of the call, and their answers to its tool."""
    if call.get("delegated"):
        return ""
    notes = [f"the user changed the arguments to {canonical_json(call['args'])[:500]}"] if call.get("edited") else []
    for asked, answer in zip(call.get("asks") or (), call.get("answers") or (), strict=False):
        said = "nobody answered" if answer is None else f"they said {canonical_json(answer)[:500]}"
        notes.append(f"the tool asked the user “{asked['question'][:500]}”; {said}")
    return " ".join(f"Note: {note}." for note in notes)


def _call_for_hooks(context: CallContext, gated: GatedCall) -> Call:
    state, name, effect = context.state, gated.call["name"], gated.tool.effect if gated.tool else "write"
    place = (context.thread, state["step"]["id"], state["goal"])
    return Call(*place, name, gated.call["args"], effect)


async def ask_before_call(context: CallContext, gated: GatedCall) -> HookDecision:
    """Return the verdict of the hooks on a call that is about to be made."""
    policies = context.deps.policies
    if not (hooks := policies.hooks.before_call):
        return HookDecision()
    return await policies.ask(hooks, _call_for_hooks(context, gated), context.runtime)


async def _ask_after_call(context: CallContext, gated: GatedCall, result: CallResult) -> CallResult:
    """Return the result after the hooks; a withheld result is stored nowhere, and the call's effect remains."""
    about, policies = replace(_call_for_hooks(context, gated), ok=result.ok, text=result.text), context.deps.policies
    verdict = await policies.ask(policies.hooks.after_call, about, context.runtime)
    if refused := verdict.refused_alone:
        ok = result.ok and about.effect != "read"
        result = replace(
            result, ok=ok, text=f"The call was made; its result is withheld: {refused}", artifact=None, images=()
        )
    return replace(result, notes=[*result.notes, *verdict.notes])


async def _ask_before_questions(context: CallContext, result: CallResult) -> CallResult:
    """Return the result of a call whose executor or tool asks people, or a failed one if hooks refuse a question."""
    asked: Mapping[str, Any] = result.artifact
    for ask in asked["asks"][len(asked.get("answers") or ()) :]:
        pending = cast("Pause", {**ask, "step": context.state["step"]["id"]})
        if refused := await context.deps.policies.refusal_of(pending, context.state["goal"], context.runtime):
            text = f"It wanted to ask a person “{ask['question'][:500]}”, and {refused}"
            return replace(result, ok=False, text=text, artifact=None, error="interrupt")
    return result


async def ask_before_end(
    context: CallContext,
    text: str,
    answers: Iterable[Mapping[str, Any]],
    status: str = "completed",
    output: Any = None,
) -> HookDecision:
    """Return the decision of the hooks about this end; `output` is the structured result.

    If they ask a question that a person answered in this run already, that answer decides.
    """
    state, policies = context.state, context.deps.policies
    if not (hooks := policies.hooks.before_end):
        return HookDecision()
    end = End(context.thread, state["step"]["id"], state["goal"], text, status, output)
    verdict = await policies.ask(hooks, end, context.runtime)
    if verdict.refused or not verdict.question:
        return HookDecision(verdict.refused)
    for entry in answers:
        if entry["source"] == "user" and entry["arguments"].get("question") == verdict.question:
            said = str(entry["text"]).strip()
            agreed = said.casefold() == END_OPTIONS[0] and entry["arguments"].get("by") == "user"
            refused = "" if agreed else f"a person was asked “{verdict.question}” and said: {said[:500]}"
            verdict = HookDecision(refused)
            break
    return verdict


async def store_notes(context: CallContext, first: int, notes: Sequence[str]) -> list[JournalEntry]:
    """Store the hooks' notes as journal entries, numbered from `first`."""
    state, id = context.state, context.state["step"]["id"]
    said = [
        observation(f"{id}.{number}", id, state["record"]["rounds"], "check", text, tool="policy", at=now())
        for number, text in enumerate(notes, first)
    ]
    for entry in said:
        emit_observation(context.runtime, entry)
    return [await store_entry(context.runtime, state, entry) for entry in said]


async def make_call(context: CallContext, gated: GatedCall) -> None:
    """Make the call; one with effects is made once, and its outcome is replayed if it was made before a crash.

    The outcome is an UnknownEffect if a person must decide whether to make it. Hooks are asked here unless they were
    asked before.
    """
    state, call, tool = context.state, gated.call, gated.tool
    assert tool is not None, call["name"]
    said = gated.verdict or await ask_before_call(context, gated)
    record, id, turn = state["record"], state["step"]["id"], state.get("turn", 1)
    again = (call["asked"],) if call.get("asked") else ()
    where = (context.thread, turn, id, record["attempt"], record["rounds"], call.get("position", 0), *again)
    key = effect_key(context.place.scope, *where, tool=call["name"], arguments=call["args"])
    run = partial(_run_call, context, gated, said)
    outcome = await run(key) if tool.effect == "read" else await _run_once(context, gated, key, run)
    gated.outcome = outcome
    if isinstance(outcome, CallOutcome):
        gated.result = outcome.result
        if gated.result.artifact is not None:
            gated.artifact, gated.waits = storable_artifact(gated.result) or {}, _waits(call, gated.result)


async def _run_once(context: CallContext, gated: GatedCall, key: str, run: MakeCall) -> CallOutcome | UnknownEffect:
    """Make a call with effects, or return the outcome that it had before a crash."""
    state, call, tool = context.state, gated.call, gated.tool
    assert tool is not None
    assert tool.effect != "read"
    decided = call.get("decided")
    said, attempt = (decided["effect"], decided["attempt"]) if decided and decided["kind"] == "known" else (None, "")
    effect = Effect(
        key,
        tool.tool,
        call["args"],
        tool.effect,
        known=said,
        attempt=attempt,
        handoff=bool(call.get("delegated")),
        keyed=tool.keyed,
    )
    log = EffectLog(
        context.runtime.store,
        context.thread,
        context.place,
        step=state["step"]["id"],
        settled=state.get("settled_writes", ()),
        own={*state["record"].get("wrote", ()), *state.get("wrote", ()), *context.wrote},
        turn=state.get("turn", 1),
    )
    outcome = await perform(log, effect, run)
    if isinstance(outcome, UnknownEffect):
        return outcome
    if outcome.key:
        context.wrote.append(outcome.key)
    # The id may belong to another text, from another branch of the history.
    whole = None if outcome.whole else await load_text(context.runtime, state, gated.id)
    if whole and shorten_text(whole) == outcome.result.text:
        outcome = replace(outcome, result=replace(outcome.result, text=whole))
    return outcome


async def _run_call(context: CallContext, gated: GatedCall, said: HookDecision, key: str) -> CallOutcome:
    """Call the tool unless hooks refuse that, and let hooks see the result; return it with the cost of its models."""
    call, refused = gated.call, said.refused
    if not refused and "base" in call:
        refused = await _outdated(gated)
    if said.question and not gated.may_ask:
        refused = f"a person would have to agree, in a step: {said.question}"
    meter = Meter(context.amounts_left, context.deps.prices)
    context.meters.append(meter)
    if refused:
        result = CallResult(False, f"Not run: {refused}", 0.0, error="refused")
    else:
        result = await _call_tool(context, gated, meter, key)
        if _waits(call, result):
            result = await _ask_before_questions(context, result)
    if not _waits(call, result):
        result = replace(result, notes=said.notes) if said.notes else result
        result = await _ask_after_call(context, gated, result) if context.deps.policies.hooks.after_call else result
        if result.images:
            result = await keep_images(result, context.runtime)
    meter.close()
    if gated.tool and gated.tool.effect != "read":
        await store_text(context.runtime, context.state, gated.id, result.text)
    return CallOutcome(result, meter.spent)


async def _outdated(gated: GatedCall) -> str:
    """Return that what a call replaces is no longer what its difference was shown to; "" if it is."""
    assert gated.tool is not None
    replaced = await replaced_texts(gated.tool.tool, gated.call["args"])
    if replaced is None or base_of(replaced) == gated.call["base"]:
        return ""
    return (
        "what it replaces has changed since the difference was shown, so look at it again; the call is asked about anew"
    )


async def _call_tool(context: CallContext, gated: GatedCall, meter: Meter, key: str) -> CallResult:
    """Call the tool with the answers that people gave it so far. Pauses of the graph happen at the top level."""
    assert gated.tool is not None
    state, call, tool, secrets = context.state, gated.call, gated.tool.tool, context.deps.secrets
    id, attempt = state["step"]["id"], state["record"]["attempt"]
    config = without_listeners(context.config, meter)
    about = {**config["metadata"], "step": id, "attempt": attempt, EFFECT: key, OBSERVATION: gated.id}
    config = {**config, "metadata": about}
    if call.get("answers"):
        config = with_resume_values(config, [*resume_values(call).values()])
    answered_asks.set((call.get("asks") or [])[: len(call.get("answers") or ())])
    seconds = seconds_for(tool, call["args"], context.seconds)
    made = ToolCall(
        tool,
        {**call["args"], **call["given"]} if "given" in call else call["args"],
        seconds,
        config,
        key,
        call["id"] or None,
        secrets=secrets,
        callee=gated.tool.callee,
        shown=call["args"],
        model=gated.tool.model,
        context=context.settings.tool_context,
    )
    changed = {"turn": state.get("turn", 1), "step": id, "id": gated.id, "tool": call["name"]}
    try:
        with keep_changes(context.runtime.store, context.thread, changed, secrets):
            return await call_tool(made)
    except GraphInterrupt as pause:
        return _result_of_pause(gated, pause.args[0] if pause.args else (), secrets)
    except ParentCommand:
        text = "The tool wanted to take over the graph, which tools cannot do here."
        return CallResult(False, text, 0.0, error="command")


def _result_of_pause(gated: GatedCall, interrupts: Sequence[Any], secrets: Sequence[str]) -> CallResult:
    """Return the result of a call whose tool stopped to ask: its questions if a person may be asked, else a failure."""
    call, tool = gated.call, gated.tool
    if not (gated.may_ask and interrupts):
        asked = "; ".join(str(interrupt_value(one))[:500] for one in interrupts)
        text = f"The tool stopped to ask a person, which only tools of a step can do: {asked}"
        return CallResult(False, text, 0.0, error="interrupt")
    if call.get("asked", 0) >= MOST_ASKED:
        return CallResult(False, f"The tool asked {MOST_ASKED} times and was given up.", 0.0, error="interrupt")
    asks = questions_of(call, interrupts)
    if asks_in_vain(call, asks):
        return CallResult(False, "It asked again what nobody answered.", 0.0, error="interrupt")
    if tool is None or (tool.tool.metadata or {}).get("secrets") is not True:
        asks = {**asks, "asks": [conceal_ask(ask, secrets) for ask in asks["asks"]]}
    asks["asked"] = call.get("asked", 0) + 1
    return CallResult(False, "It asks.", 0.0, asks, error=WAITS)


def observe(state: Step, gated: GatedCall, source: Source = "tool") -> JournalEntry:
    """Return the observation of a call of this step: its result, or why it was not made."""
    call, result, tool = gated.call, gated.result, gated.tool if gated.result else None
    entry = observation(
        gated.id,
        state["step"]["id"],
        state["record"]["rounds"],
        source,
        result.text if result else f"Not run: {gated.refusal}",
        ok=result.ok if result else _is_answered(call),
        tool=call["name"],
        arguments=call["args"],
        effect=tool.effect if tool else None,
        seconds=result.seconds if result else 0.0,
        at=now(),
        targets=[*tool.targets(call["args"])] if tool else [],
    )
    if result and result.unknown and entry["effect"] == "write":
        entry["unknown"] = True
    if result and result.ok and tool and tool.users_text:
        entry["users_text"] = True
    if result and result.images:
        entry["images"] = [*result.images]
    if result and call.get("delegated"):
        entry["delegated"] = True
        if transcript := gated.artifact.get("transcript"):
            entry["transcript"] = transcript
    return entry


async def make_reading(context: CallContext, name: str, arguments: Json) -> tuple[JournalEntry, CallResult] | str:
    """Make one of the runtime's own read calls; return its observation and result, or why it may not be made.

    The caller checks that the budget allows a tool call.
    """
    state, number = context.state, context.observed + len(context.noted) + 1
    if (tool := context.tools.get(name)) is None or tool.effect != "read":
        return f"the check's tool {name} is not available as a read-only tool"
    if outside := tool.path_problem(arguments, context.settings.profile.allowed_paths):
        return f"the check may not run: {outside}"
    gated = GatedCall({"id": "", "name": name, "args": arguments}, tool, f"{state['step']['id']}.{number}")
    await make_call(context, gated)
    context.meters.clear()
    assert isinstance(gated.outcome, CallOutcome), "the outcome of a read is never unknown"
    assert gated.result is not None
    result = gated.result
    spent: Amounts = {"tool_calls": 1, "active_seconds": result.seconds}
    context.spent = add(add(context.spent, gated.outcome.spent), spent)
    entry = await store_entry(context.runtime, state, observe(state, gated, "check"))
    emit_observation(context.runtime, entry)
    context.noted += [entry, *await store_notes(context, number + 1, result.notes)]
    return entry, result
