"""The act node: runs the calls of one decision, in order, behind the gates, and writes down what came of each.

It stops where it needs a person or more budget.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from donewhen.graph.calls.invoking import Site, invoke
from donewhen.graph.calls.observing import Piece, keep, kept_text, noted, recall, seen_before
from donewhen.graph.context import Deps, settings_of
from donewhen.graph.events import charged, emit, observed
from donewhen.graph.execute.gates import New, StepTools, by_targets, refusal, relayed, stop, unknown_effect
from donewhen.graph.execute.leaving import leave, silence
from donewhen.graph.models.offering import FIND, found, offered_to_step
from donewhen.graph.models.reading import LOOK_FIRST
from donewhen.graph.models.transcript import shown
from donewhen.graph.models.window import shown_chars
from donewhen.graph.people.told import told_since
from donewhen.graph.tools.call import CallResult
from donewhen.graph.tools.effects import CallOutcome, UnknownEffect, kept_of
from donewhen.graph.tools.probing import differences
from donewhen.state.consent import KnownTargets
from donewhen.state.graph_state import Json, Step
from donewhen.state.ledger import add
from donewhen.state.plan.steps import silent
from donewhen.state.proof.journal import call_key, canonical, made
from donewhen.state.reading.decisions import LOOKUPS
from donewhen.state.records import FrozenCall, Pause, StepClaim, StepRecord
from donewhen.state.secrets import redact_json
from donewhen.state.settings import Settings

Outcome = CallOutcome | Piece | str
"""What a call came to: what it did, what was looked up, or in words why it was not made."""


async def act(state: Step, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Step:
    """Run the calls; stop at the first that needs a person or that the budget does not allow."""
    settings = settings_of(runtime)
    tools = deps.tools_for(state["step"].get("executor"), settings)
    return await carry_out(Site(state, runtime, config, deps, settings.tool_seconds), tools)


@dataclass
class Work:
    """What carrying out one decision has come to so far."""

    site: Site
    tools: StepTools
    number: int
    """Of the last observation."""
    held: list[str]
    """Results of printed calls, which go back in one message when all are there."""
    entries: list[Json] = field(default_factory=list)
    results: list[AnyMessage] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    """Tools that `find_tools` found."""
    read: list[Piece] = field(default_factory=list)
    """What was recalled."""
    acted: bool = False
    """Whether anything was done, and not merely refused."""
    new: bool = False
    """Whether anything came of it that the step did not know."""

    @property
    def seen(self) -> list[Json]:
        """What was observed so far, oldest first."""
        return [*seen_before(self.site.state), *self.entries]

    def learned(self) -> StepRecord:
        """What the record gains by looking things up."""
        record, change = self.site.state["record"], StepRecord()
        if self.found:
            change["found"] = [*(record.get("found") or ()), *self.found]
        for piece in self.read:
            spans = change.setdefault("recalled", dict(record.get("recalled") or {}))
            spans[piece.id] = [*spans.get(piece.id, ()), [*piece.span]]
        return change


async def carry_out(site: Site, tools: StepTools) -> Step:
    """Make the calls in the step's record; leave the step at the first that may not be made now."""
    record, settings = site.state["record"], settings_of(site.runtime)
    calls: list[FrozenCall] = list(record["calls"])
    work = Work(site, tools, record["observed"], list(record.get("held") or ()))
    done = 0
    while done < len(calls):
        group = _group(calls[done:], work)
        first = group[0]
        if refusal(first, site.state, settings, tools.get(first["name"])) is None and (
            change := stop(calls[done:], site.state, site.left(), tools, settings, await _new(calls[done:], work))
        ):
            return _halted(work, calls[done:], await _with_diffs(change, first, work))
        if isinstance(outcomes := await _made(group, work), UnknownEffect):
            return _halted(work, calls[done:], unknown_effect(first, site.state, outcomes))
        if asking := _asking(first, outcomes[0]):
            site.spent = add(add(site.spent, asking.spent), {"active_seconds": asking.result.seconds})
            asked = relayed({**first, **asking.result.artifact}, site.state)
            return _halted(work, calls[done:], asked)
        for call, outcome in zip(group, outcomes, strict=True):
            await _note(call, outcome, work)
        seconds = max((one.result.seconds for one in outcomes if isinstance(one, CallOutcome)), default=0.0)
        site.spent = add(site.spent, {"active_seconds": seconds})
        done += len(group)
    return _finished(work)


async def _new(calls: Sequence[FrozenCall], work: Work) -> New:
    """Targets of the calls that no person knows of; nothing is looked up unless the first of them has some."""
    site, tools, settings = work.site, work.tools, settings_of(work.site.runtime)
    state = site.state
    if not by_targets(calls[0], state, tools, settings):
        return {}
    known = state["known_targets"]() if "known_targets" in state else KnownTargets()
    for entry in work.seen:
        known.observe(entry)
    if not tools.new_targets(calls[0]["name"], calls[0]["args"], known):
        return {}
    for id in known.long:
        known.read(id, await kept_text(site.runtime, state, id) or "")
    for said in await told_since(site.runtime, settings, state.get("heard") or ""):
        known.say(said["text"])
    asked = [call for call in calls if by_targets(call, state, tools, settings)]
    return {
        call.get("position", 0): new for call in asked if (new := tools.new_targets(call["name"], call["args"], known))
    }


def _asking(call: FrozenCall, outcome: Outcome) -> CallOutcome | None:
    """The outcome of an executor that works by itself, if it cannot go on without a person."""
    if not call.get("delegated") or not isinstance(outcome, CallOutcome):
        return None
    artifact = outcome.result.artifact
    return outcome if isinstance(artifact, Mapping) and artifact.get("asks") else None


def _group(calls: Sequence[FrozenCall], work: Work) -> Sequence[FrozenCall]:
    """Calls to make at the same time: a row of different reads as far as the budget goes, or one of anything else."""
    keys: set[str] = set()
    room = work.site.left().get("tool_calls", len(calls))
    for call in calls:
        key = call_key(call["name"], call["args"])
        alone = call["name"] in LOOKUPS or work.tools.effect(call["name"]) != "read"
        if alone or key in keys or len(keys) >= room:
            break
        keys.add(key)
    return calls[: max(len(keys), 1)]


async def _made(group: Sequence[FrozenCall], work: Work) -> list[Outcome] | UnknownEffect:
    """What the calls came to. An UnknownEffect is about the first of them."""
    site, settings, id = work.site, settings_of(work.site.runtime), work.site.state["step"]["id"]
    if group[0]["name"] in LOOKUPS:
        return [await _looked_up(group[0], work)]
    made: list[Outcome] = [""] * len(group)
    running = []
    for place, call in enumerate(group):
        if "response" in call:
            made[place] = f"the user answered instead: {call['response']}"
        elif why := refusal(call, site.state, settings, work.tools.get(call["name"])):
            made[place] = why
        else:
            number = f"{id}.{work.number + 1 + place}"
            told = {"tool": call["name"], "arguments": redact_json(call["args"]), **await _diffs(call, work)}
            emit(site.runtime, "tool_started", id=number, step=id, **told)
            running.append((place, call))
    site.meters.clear()
    calls = [_invoked(call, place, work) for place, call in running]
    outcomes = await asyncio.gather(*calls) if len(calls) > 1 else [await each for each in calls]
    site.meters.clear()
    for (place, _), outcome in zip(running, outcomes, strict=True):
        if isinstance(outcome, UnknownEffect):
            return outcome
        made[place] = outcome
    return made


async def _diffs(call: FrozenCall, work: Work) -> Json:
    """What people are shown of a call besides its arguments, before it is made."""
    tool = work.tools.get(call["name"])
    diffs = await differences(tool, call["args"]) if tool else {}
    return {"diffs": diffs} if diffs else {}


async def _with_diffs(change: StepRecord, call: FrozenCall, work: Work) -> StepRecord:
    pause = change.get("waiting")
    if not pause or not (more := await _diffs(call, work)):
        return change
    shown: Pause = {**pause, "diffs": more["diffs"]}
    return {**change, "waiting": shown}


async def _looked_up(call: FrozenCall, work: Work) -> Piece:
    site, state = work.site, work.site.state
    if call["name"] != FIND:
        return await recall(call, state, work.entries, site.runtime)
    settings, step = settings_of(site.runtime), state["step"]
    offer = await offered_to_step(site.deps, settings, step, state["record"])
    toolbox = site.deps.tools_for(step.get("executor"), settings)
    came = await found(site.deps, toolbox, call, {*offer.bound, *work.found}, state.get("fence", ""))
    work.found += came["names"]
    work.new = work.new or bool(came["names"])
    return Piece(str(came["text"]))


async def _invoked(call: FrozenCall, place: int, work: Work) -> CallOutcome | UnknownEffect:
    tool = work.tools.get(call["name"])
    assert tool is not None, call["name"]
    observation = f"{work.site.state['step']['id']}.{work.number + 1 + place}"
    return await invoke(work.site, tool, call, work.tools.effect(call["name"]), observation)


async def _note(call: FrozenCall, outcome: Outcome, work: Work) -> None:
    """Record the observation and what the model will see of it."""
    site = work.site
    if isinstance(outcome, Piece):
        _recalled(call, outcome, work)
        return
    work.number += 1
    entry = _entry(call, outcome, work)
    site.state["made"].read(work.seen)
    before, changed = site.state["made"].before(entry) if made(entry) else (None, False)
    work.new = work.new or (entry["ok"] if not made(entry) else before is None)
    hint = f"Note: the user changed the arguments to {canonical(call['args'])[:500]}." if call.get("edited") else ""
    if before is None or changed or (entry["effect"] != "read" and entry["ok"]):
        _say(call, _shown(entry, hint, work), work)
    else:
        entry["same_as"] = before.get("same_as") or before["id"]
        _say(call, _unchanged(entry, hint, work, again="same_as" in before), work)
    entry = await keep(site.runtime, site.state, entry)
    work.entries.append(entry)
    observed(site.runtime, entry)


def _shown(entry: Json, hint: str, work: Work) -> str:
    site = work.site
    limit = shown_chars(site.deps, settings_of(site.runtime), "execute", site.state["step"].get("executor"))
    return shown(entry, limit, hint, work.site.state.get("fence", ""))


def _unchanged(entry: Json, hint: str, work: Work, *, again: bool) -> str:
    """The same result as before: said at the 2nd time, one line from then on (X11), if that is shorter."""
    said = f"As {entry['same_as']}, unchanged."
    if not again or len(entry["text"]) <= len(said):
        return _shown(entry, f"{hint} {said}".strip(), work)
    return f"[{entry['id']}] {entry['tool']} {'ok' if entry['ok'] else 'error'}\n{said} {hint}".rstrip()


def _recalled(call: FrozenCall, piece: Piece, work: Work) -> None:
    """Reading on is no observation; reading the same again is pointed out."""
    work.acted = True
    known = work.learned().get("recalled") or work.site.state["record"].get("recalled") or {}
    again = [*piece.span] in known.get(piece.id, ())
    if piece.id and not again:
        work.new = True
        work.read.append(piece)
    _say(call, f"{piece.text}\nNote: you read this before." if again else piece.text, work)


def _entry(call: FrozenCall, outcome: CallOutcome | str, work: Work) -> Json:
    """The observation, its cost charged. A call that was not made costs nothing and has no effect."""
    site, name = work.site, call["name"]
    if isinstance(outcome, str):
        answered = "response" in call
        work.acted = work.acted or answered
        return noted(site.state, work.number, call, CallResult(answered, f"Not run: {outcome}", 0.0), None, ())
    work.acted = True
    site.spent = add(add(site.spent, outcome.spent), {"tool_calls": 1})
    came = kept_of(outcome.result) or {}
    work.files.update(came.get("files", {}))
    targets = work.tools.targets(name, call["args"])
    entry = noted(site.state, work.number, call, outcome.result, work.tools.effect(name), targets)
    if not call.get("delegated"):
        return entry
    return {**entry, "delegated": True, **({"transcript": came["transcript"]} if came.get("transcript") else {})}


def _say(call: FrozenCall, text: str, work: Work) -> None:
    if call.get("native"):
        work.results.append(ToolMessage(text, tool_call_id=call["id"]))
    else:
        work.held.append(text)


def _look_first(claim: StepClaim, work: Work) -> None:
    """Answer a claim that cannot be weighed, because the changes it rests on did not all go well, or have to wait."""
    work.results.append(ToolMessage(LOOK_FIRST.format(name=claim["kind"]), tool_call_id=claim["id"]))


def _update(work: Work) -> Step:
    site = work.site
    charged(site.runtime, site.state["step"]["id"], site.spent)
    made: Step = {"journal": work.entries, "transcript": work.results, "spent": site.spent, "files": work.files}
    return {**made, "wrote": site.wrote} if site.wrote else made


def _finished(work: Work) -> Step:
    """All calls are done: back to the model, with a word about it if nothing new came of them."""
    record, update = work.site.state["record"], _update(work)
    change = silent(record, work.new)
    if work.held:
        work.results.append(HumanMessage("\n\n".join(work.held)))
    if work.results and (hint := silence(work.site.state, work.site.runtime, change)):
        last = work.results[-1]
        work.results[-1] = last.model_copy(update={"content": f"{last.text}\n{hint}"})
    after: StepRecord = {**record, "calls": [], "held": [], "observed": work.number, **change, **work.learned()}
    after = {**after, "corrections": 0} if work.acted else after
    if claim := record.get("then"):
        after["then"] = None
        if work.entries and all(entry["ok"] and made(entry) for entry in work.entries):
            return {**update, "record": after, "decision": dict(claim)}
        _look_first(claim, work)
    return {**update, "record": after}


def _halted(work: Work, rest: Sequence[FrozenCall], change: StepRecord) -> Step:
    """Leave before `rest` is run: what was run stays, the rest is frozen as it will run, if the step may go on."""
    over = change["status"] == "failed"
    for call in rest if over else ():
        _say(call, f"Not run: {change['reason']}", work)
    update, site = _update(work), work.site
    if claim := site.state["record"].get("then"):
        _look_first(claim, work)
        change = {**change, "then": None}
    kept: StepRecord = {"calls": list(rest), **change, "held": work.held, "observed": work.number, **work.learned()}
    left = leave(site.state, site.runtime, kept, work.results, site.spent, site.wrote)
    return {**update, **left}
