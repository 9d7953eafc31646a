"""The goal_check node: a step is done when its evidence says so: complete, grounded, checked, judged."""

from collections.abc import Sequence
from typing import cast

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from donewhen.graph.calls.invoking import Site
from donewhen.graph.calls.observing import keep
from donewhen.graph.calls.proving import UNJUDGED, Inquiry, decide, have_judged, look_again, seen_by, unsupported
from donewhen.graph.context import Deps, settings_of
from donewhen.graph.events import charged, emit, judged, now
from donewhen.graph.execute.leaving import corrected, leave
from donewhen.state.graph_state import Json, Step
from donewhen.state.ledger import exhausted
from donewhen.state.people.amounts import counted
from donewhen.state.proof.claims import criteria_of, read_claims
from donewhen.state.proof.journal import observation
from donewhen.state.records import StepClaim, StepRecord
from donewhen.state.settings import Settings


async def goal_check(state: Step, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Step:
    """Hold the claims of `finish_step` or `finish_task` against the evidence; accept them or say what is missing."""
    claim = cast("StepClaim", state.get("decision") or state["record"]["claim"])
    update = await _held(claim, state, runtime, config, deps)
    after, id = update["record"], state["step"]["id"]
    if after["status"] != "done" and not after.get("claim") and (said := claim.get("said")):
        # the result was said, and is none
        emit(runtime, "speech_restarted", step=id, id=said, argument=f"{claim['kind']}.result")
    return update


async def _held(claim: StepClaim, state: Step, runtime: Runtime[Settings], config: RunnableConfig, deps: Deps) -> Step:
    settings, record = settings_of(runtime), state["record"]
    site = Site(state, runtime, config, deps, settings.tool_seconds)
    criteria = criteria_of(state["step"])
    standing = {int(number): stands for number, stands in (record.get("standing") or {}).items()}
    claims = read_claims(claim["arguments"].get("goal_check"), criteria, settings.verification, standing)
    if isinstance(claims, list):
        messages = [_answer(claim, _correction(claims, "Send the goal_check again."))]
        return corrected(
            state, runtime, "; ".join(claims), messages, {}, {"claim": None, "draft": claim["arguments"]["result"]}
        )
    inquiry = Inquiry(site, claim, criteria, claims, await seen_by(site, claim, claims))
    inquiry.verdicts = {int(number): verdict for number, verdict in claim.get("decided", {}).items()}
    inquiry.judged = dict(record.get("judged") or {})
    await look_again(inquiry)
    needs = await decide(inquiry) or await have_judged(inquiry)
    charged(runtime, state["step"]["id"], site.spent)
    if needs:
        return _cut_off(inquiry, needs)
    bad = inquiry.bad()
    verdicts = [verdict for _, verdict in sorted(inquiry.verdicts.items())]
    judged(runtime, state["step"]["id"], verdicts, accepted=not bad)
    if bad:
        return _refused(inquiry, bad)
    loose = await unsupported(inquiry)
    if loose and loose != record.get("unconfirmed") and settings.verification == "judged":
        return _loose(inquiry, loose)
    return await _accepted(inquiry, loose)


def _answer(claim: StepClaim, text: str) -> AnyMessage:
    """The result of the call that claimed to be done."""
    return ToolMessage(text, tool_call_id=claim["id"]) if claim.get("id") else HumanMessage(text)


def _correction(problems: Sequence[str], then: str) -> str:
    lines = "\n".join(f"- {problem}" for problem in problems)
    return f"Correction: the step is not finished; its goal_check does not hold.\n{lines}\n{then}"


def _change(inquiry: Inquiry) -> StepRecord:
    """What any end of the inquiry changes in the record."""
    bad = {v["criterion"] for v in inquiry.bad() if v["note"] != UNJUDGED}
    stands = {str(n): claim for n, claim in inquiry.claims.items() if n in inquiry.verdicts and n not in bad}
    return {
        "observed": inquiry.record["observed"] + len(inquiry.checks),
        "claim": None,
        "draft": inquiry.claim["arguments"]["result"],
        "verdicts": [v for _, v in sorted(inquiry.verdicts.items())],
        "standing": stands,
        "judged": inquiry.judged,
    }


def _refused(inquiry: Inquiry, bad: Sequence[Json]) -> Step:
    """The model is told, per criterion, what is missing; too many refusals for more than form fail the step."""
    told = [v for v in bad if v["note"] != UNJUDGED]
    problems = [f"criterion {v['criterion']} ({v['text'][:120]}): {v['note']}" for v in told]
    forms = [str(v["criterion"]) for v in told if v.get("form")]
    before = inquiry.record.get("imprecise") or {}
    change: StepRecord = {
        **_change(inquiry),
        "imprecise": {**before, **{number: before.get(number, 0) + 1 for number in forms}},
    }
    then = "Work on what is missing, or cite what proves it, then finish_step again, or give_up."
    then += f" Proven, and to be left out: criterion {', '.join(change['standing'])}." if change["standing"] else ""
    then += " Your result is kept: leave it empty unless it changes."
    if len(forms) == len(told):
        return _sent_back(inquiry, problems, then, change)
    site, said, refused = inquiry.site, "; ".join(problems), inquiry.record["refused"] + 1
    change["refused"] = refused
    messages = [_answer(inquiry.claim, _correction(problems, then))]
    common: Step = {"journal": inquiry.checks, "spent": site.spent}
    if refused < inquiry.settings.max_refusals:
        return {**common, **corrected(site.state, site.runtime, said, messages, site.spent, change)}
    emit(site.runtime, "correction", step=site.state["step"]["id"], text=said[:500])
    reason = f"{counted(refused, 'refused goal_check')}; the last: {said[:600]}"
    failed: StepRecord = {**change, "status": "failed", "code": "unproven", "reason": reason}
    return {**common, **leave(site.state, site.runtime, failed, messages, site.spent)}


def _sent_back(inquiry: Inquiry, problems: Sequence[str], then: str, change: StepRecord) -> Step:
    """Only the form is at fault: no unusable reply, and no refusal."""
    site = inquiry.site
    emit(site.runtime, "correction", step=site.state["step"]["id"], text="; ".join(problems)[:500])
    messages = [_answer(inquiry.claim, _correction(problems, then))]
    record: StepRecord = {**inquiry.record, **change}
    common: Step = {"journal": inquiry.checks, "spent": site.spent}
    return {**common, "record": record, "transcript": messages, "decision": None}


def _loose(inquiry: Inquiry, loose: list[str]) -> Step:
    """What the result states without support is sent back once."""
    problem = f"result: nothing that was observed says {', '.join(loose)}"
    then = "The criteria are proven. Finish again with what was observed; what stays is marked as unconfirmed."
    return _sent_back(inquiry, [problem], then, {**_change(inquiry), "unconfirmed": loose})


def _cut_off(inquiry: Inquiry, needs: str) -> Step:
    """The budget ended in the middle of the proof: it goes on from there when there is more."""
    site = inquiry.site
    decided = {str(number): verdict for number, verdict in inquiry.verdicts.items()}
    key = exhausted(site.left(), (needs,))
    change: StepRecord = {**_change(inquiry), "status": "ready", "code": f"allowance:{key}"}
    change["claim"] = {**inquiry.claim, "decided": decided, "needs": needs}
    return {"journal": inquiry.checks, "spent": site.spent, **leave(site.state, site.runtime, change, (), site.spent)}


async def _accepted(inquiry: Inquiry, loose: list[str]) -> Step:
    site, arguments = inquiry.site, inquiry.claim["arguments"]
    state, id = site.state, site.state["step"]["id"]
    result = str(arguments["result"]).strip()
    at = now()
    entry = observation(f"{id}.result", id, state["record"]["rounds"], "result", result, at=at)
    entry = await keep(site.runtime, state, entry)
    early = arguments.get("reason") if inquiry.claim["kind"] == "finish_task" else None
    done: StepRecord = {"status": "done", "code": "done", "result": result, "corrections": 0, "finished_task": early}
    done["said"] = inquiry.claim.get("said")
    messages = [_answer(inquiry.claim, "Accepted.")]
    change: StepRecord = {**_change(inquiry), **done, "unconfirmed": loose, "standing": {}, "judged": {}, "draft": ""}
    left = leave(state, site.runtime, change, messages, site.spent)
    return {"journal": [*inquiry.checks, entry], "spent": site.spent, **left}
