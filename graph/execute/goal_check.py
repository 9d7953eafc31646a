"""The goal_check node: a step is done when its evidence says so: complete, grounded, checked, judged."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from donewhen.graph.calls.invoking import Site
from donewhen.graph.calls.observing import keep, seen_before, thread_of, whole
from donewhen.graph.context import Deps, settings_of
from donewhen.graph.events import charged, emit
from donewhen.graph.execute.checking import Check, run_check
from donewhen.graph.execute.judging import judge
from donewhen.graph.execute.leaving import corrected, leave
from donewhen.state.ledger import add, exhausted
from donewhen.state.people.amounts import counted
from donewhen.state.proof.evidence import Seen, criteria_of, enough, excerpt, ground, level_of, overtaken, read_claims
from donewhen.state.proof.journal import observation
from donewhen.state.run import Json, Step
from donewhen.state.settings import Settings

MOST_AGAIN = 10
"""Readings that one goal_check makes again."""
UNJUDGED = "not judged, because something else is missing"


@dataclass
class Inquiry:
    """One claim to be done, and what was found out about it so far."""

    site: Site
    claim: Json
    """`{kind, arguments, id}` of finish_step or finish_task; `decided`, if its proof was cut off by the budget."""
    criteria: list[Json]
    seen: Seen
    verdicts: dict[int, Json] = field(default_factory=dict)
    checks: list[Json] = field(default_factory=list)
    """Observations of the checks."""

    @property
    def settings(self) -> Settings:
        """Of the run."""
        return settings_of(self.site.runtime)

    def bad(self) -> list[Json]:
        """Verdicts that are not as good as their criterion demands."""
        level = self.settings.verification
        return [
            v
            for n, v in sorted(self.verdicts.items())
            if not enough(v["verdict"], level_of(self.criteria[n - 1], level))
        ]


async def goal_check(state: Step, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Step:
    """Hold the claims of `finish_step` or `finish_task` against the evidence; accept them or say what is missing."""
    settings = settings_of(runtime)
    claim = state.get("decision") or state["record"]["claim"]
    site = Site(state, runtime, config, deps, settings.tool_seconds)
    criteria = criteria_of(state["step"])
    claims = read_claims(claim["arguments"].get("goal_check"), len(criteria), settings.verification)
    inquiry = Inquiry(site, claim, criteria, await _seen(site, claim))
    if isinstance(claims, list):
        return _refused(inquiry, claims)
    await _look_again(inquiry, claims)
    inquiry.verdicts |= {int(number): verdict for number, verdict in claim.get("decided", {}).items()}
    needs = await _decide(inquiry, claims)
    charged(runtime, state["step"]["id"], site.spent)
    if needs:
        return _cut_off(inquiry, needs)
    if bad := inquiry.bad():
        told = [v for v in bad if v["note"] != UNJUDGED]
        return _refused(inquiry, [f"criterion {v['criterion']} ({v['text'][:120]}): {v['note']}" for v in told])
    return await _accepted(inquiry)


async def _seen(site: Site, claim: Json) -> Seen:
    """What may be cited, with the whole text of everything that is cited."""
    state, store, thread = site.state, site.runtime.store, thread_of(site.runtime)
    cited = str(claim["arguments"].get("goal_check"))
    entries = seen_before(state)
    full = [await whole(store, thread, state.get("turn", 1), e) if e["id"] in cited else e for e in entries]
    id = state["step"]["id"]
    used = any(e["step"] == id and e["source"] == "tool" for e in entries)
    writes_text = not used and not state["step"].get("tools")
    return Seen(full, id, str(claim["arguments"].get("result", "")), writes_text)


async def _look_again(inquiry: Inquiry, claims: dict[int, Json]) -> None:
    """Make cited readings of a folder again if something in it changed since, as far as the budget goes."""
    site, seen = inquiry.site, inquiry.seen
    fresh: dict[str, Json] = {}
    for id in overtaken(claims, seen)[:MOST_AGAIN]:
        if exhausted(site.left(), ("tool_calls",)):
            break
        old = seen.entries[seen.index[id]]
        reading = {"tool": old["tool"], "arguments": old["arguments"], "expect": "ok"}
        found = await run_check(reading, site, site.state["record"]["observed"] + len(inquiry.checks) + 1)
        if found.entry is not None:
            inquiry.checks.append(found.entry)
            fresh[id] = await whole(site.runtime.store, thread_of(site.runtime), site.state.get("turn", 1), found.entry)
    if fresh:
        again = {id: entry["id"] for id, entry in fresh.items()}
        inquiry.seen = Seen([*seen.entries, *fresh.values()], seen.step, seen.result, seen.writes_text, again)


async def _decide(inquiry: Inquiry, claims: dict[int, Json]) -> str | None:
    """Give every criterion its verdict, cheapest first; the key of the budget that proving stopped at, if it did."""
    to_judge: list[tuple[int, Json]] = []
    for number, criterion in enumerate(inquiry.criteria, 1):
        if number in inquiry.verdicts:
            continue
        if claims[number]["met"] and criterion.get("check"):
            if exhausted(inquiry.site.left(), ("tool_calls",)):
                return "tool_calls"
            inquiry.verdicts[number] = await _checked(inquiry, number, criterion)
        else:
            verdict = _grounded(inquiry, number, criterion, claims[number])
            inquiry.verdicts[number] = verdict
            if verdict["verdict"] == "supported" and level_of(criterion, inquiry.settings.verification) == "judged":
                to_judge.append((number, verdict))
                inquiry.verdicts[number] = {**verdict, "verdict": "unverified", "note": UNJUDGED}
    judging = {number for number, _ in to_judge}
    if any(v["criterion"] not in judging for v in inquiry.bad()):
        return None
    for number, verdict in to_judge:
        if exhausted(inquiry.site.left(), ("model_calls",)):
            for open_number in judging:
                inquiry.verdicts.pop(open_number)
            return "model_calls"
        inquiry.verdicts[number] = await _judged(inquiry, verdict)
        judging.discard(number)
    return None


def _verdict(number: int, criterion: Json, claimed: bool) -> Json:
    return {"criterion": number, "text": criterion["text"], "claimed": claimed, "evidence": [], "note": ""}


def _grounded(inquiry: Inquiry, number: int, criterion: Json, claim: Json) -> Json:
    """What the cited observations are worth."""
    verdict = _verdict(number, criterion, claim["met"])
    if not claim["met"]:
        note = "you say yourself that it is not met; go on working, or give_up"
        return {**verdict, "verdict": "failed", "note": note}
    good, problems = ground(claim, inquiry.seen)
    if inquiry.settings.verification == "claimed":
        return {**verdict, "verdict": "supported" if good else "unverified", "evidence": good}
    if problems:
        return {**verdict, "verdict": "unverified", "note": "; ".join(problems)}
    return {**verdict, "verdict": "supported", "evidence": good}


async def _checked(inquiry: Inquiry, number: int, criterion: Json) -> Json:
    """What the runtime's own check says; the model's word plays no part."""
    verdict = _verdict(number, criterion, True)
    observed = inquiry.site.state["record"]["observed"] + len(inquiry.checks) + 1
    found: Check = await run_check(criterion["check"], inquiry.site, observed)
    if found.entry is None:
        return {**verdict, "verdict": found.verdict, "note": found.said}
    inquiry.checks.append(found.entry)
    evidence = [{"observation": found.entry["id"], "quote": found.entry["text"][:200]}]
    return {**verdict, "verdict": found.verdict, "note": found.said, "evidence": evidence}


async def _judged(inquiry: Inquiry, verdict: Json) -> Json:
    """What a second model makes of the cited observations."""
    site, seen = inquiry.site, inquiry.seen
    own = observation(f"{seen.step}.result", seen.step, 0, "result", seen.result)
    shown = []
    for item in verdict["evidence"]:
        place = seen.index.get(item["observation"])
        entry = own if place is None else dict(seen.entries[place])
        shown.append({**entry, "text": excerpt(entry["text"], item.get("quote", ""))})
    found, why, cost = await judge(
        verdict["text"], shown, site.deps, inquiry.settings, site.left(), site.state.get("fence", "")
    )
    site.spent = add(site.spent, cost)
    return {**verdict, "verdict": found, "note": why}


def _answer(inquiry: Inquiry, text: str) -> HumanMessage | ToolMessage:
    """The result of the call that claimed to be done."""
    id = inquiry.claim.get("id")
    return ToolMessage(text, tool_call_id=id) if id else HumanMessage(text)


def _change(inquiry: Inquiry) -> Json:
    """What any end of the inquiry changes in the record."""
    observed = inquiry.site.state["record"]["observed"] + len(inquiry.checks)
    return {"observed": observed, "claim": None, "verdicts": [v for _, v in sorted(inquiry.verdicts.items())]}


def _refused(inquiry: Inquiry, problems: Sequence[str]) -> Step:
    """The step does not advance; the model is told, per criterion, what is missing."""
    site, record = inquiry.site, inquiry.site.state["record"]
    change = {**_change(inquiry), "refused": record["refused"] + 1}
    lines = "\n".join(f"- {problem}" for problem in problems)
    text = f"Correction: the step is not finished; its goal_check does not hold.\n{lines}\n"
    messages = [_answer(inquiry, f"{text}Work on what is missing, then finish_step again, or give_up.")]
    common: Step = {"journal": inquiry.checks, "spent": site.spent}
    said = "; ".join(problems)
    if change["refused"] < inquiry.settings.max_refusals:
        return {**common, **corrected(site.state, site.runtime, said, messages, site.spent, change)}
    emit(site.runtime, "correction", step=site.state["step"]["id"], text=said[:500])
    reason = f"{counted(change['refused'], 'refused goal_check')}; the last: {said[:600]}"
    failed = {**change, "status": "failed", "code": "unproven", "reason": reason}
    return {**common, **leave(site.state, site.runtime, failed, messages, site.spent)}


def _cut_off(inquiry: Inquiry, needs: str) -> Step:
    """The budget ended in the middle of the proof: it goes on from there when there is more."""
    site = inquiry.site
    decided = {str(number): verdict for number, verdict in inquiry.verdicts.items()}
    kept = {key: inquiry.claim[key] for key in ("kind", "arguments", "id")}
    key = exhausted(site.left(), (needs,))
    change = {**_change(inquiry), "status": "ready", "code": f"allowance:{key}"}
    change["claim"] = {**kept, "decided": decided, "needs": needs}
    return {"journal": inquiry.checks, "spent": site.spent, **leave(site.state, site.runtime, change, (), site.spent)}


async def _accepted(inquiry: Inquiry) -> Step:
    site, arguments = inquiry.site, inquiry.claim["arguments"]
    state, id = site.state, site.state["step"]["id"]
    result = str(arguments["result"]).strip()
    at = datetime.now(UTC).isoformat(timespec="seconds")
    entry = observation(f"{id}.result", id, state["record"]["rounds"], "result", result, at=at)
    entry = await keep(site.runtime.store, thread_of(site.runtime), state.get("turn", 1), entry)
    early = arguments.get("reason") if inquiry.claim["kind"] == "finish_task" else None
    done = {"status": "done", "code": "done", "result": result, "corrections": 0, "finished_task": early}
    messages = [_answer(inquiry, "Accepted.")]
    left = leave(state, site.runtime, {**_change(inquiry), **done}, messages, site.spent)
    return {"journal": [*inquiry.checks, entry], "spent": site.spent, **left}
