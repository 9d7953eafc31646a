"""The goal_check node: a step is done when its evidence says so: complete, grounded, checked, and where due audited."""

from collections.abc import Sequence
from typing import cast

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from donewhen.graph.calls.audit import Subject, audit, audit_due
from donewhen.graph.calls.invoking import Site
from donewhen.graph.calls.observing import keep, seen_before
from donewhen.graph.calls.proving import Proof, check_criteria, evidence_scope, refresh_stale_readings
from donewhen.graph.context import Deps, settings_of
from donewhen.graph.events import charged, emit, judged, now
from donewhen.graph.execute.leaving import corrected, leave
from donewhen.graph.models.output import form_of
from donewhen.state.graph_state import Json, Step
from donewhen.state.ledger import exhausted
from donewhen.state.people.amounts import counted
from donewhen.state.plan.progress import RESERVE
from donewhen.state.proof.audit import findings, to_send_back
from donewhen.state.proof.goal_check import criteria_of, enough, read_goal_check
from donewhen.state.proof.journal import observation
from donewhen.state.records import StepClaim, StepRecord
from donewhen.state.settings import Settings

UNCHANGED = (
    "no call of this step changed anything, though it was granted tools for that: make the change, or finish with "
    "`unchanged`: why nothing had to be changed"
)


async def goal_check(state: Step, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Step:
    """Hold the claims of `finish_step` or `finish_task` against the evidence; accept them or say what is missing."""
    claim = cast("StepClaim", state.get("decision") or state["record"]["claim"])
    update = await _weigh(claim, state, runtime, config, deps)
    after, id = update["record"], state["step"]["id"]
    if after["status"] != "done" and not after.get("claim") and (said := claim.get("said")):
        # the result was said, and is none
        emit(runtime, "speech_restarted", step=id, id=said, argument=f"{claim['kind']}.result")
    return update


async def _weigh(claim: StepClaim, state: Step, runtime: Runtime[Settings], config: RunnableConfig, deps: Deps) -> Step:
    settings, record = settings_of(runtime), state["record"]
    site = Site(state, runtime, config, deps, settings.tool_seconds, observed=record["observed"])
    criteria = criteria_of(state["step"])
    standing = {int(number): stands for number, stands in (record.get("standing") or {}).items()}
    claims = read_goal_check(claim["arguments"].get("goal_check"), criteria, settings.verification, standing)
    if isinstance(claims, list):
        messages = [_answer(claim, _correction(claims, "Send the goal_check again."))]
        return corrected(
            state, runtime, "; ".join(claims), messages, {}, {"claim": None, "draft": claim["arguments"]["result"]}
        )
    proof = Proof(site, claim, criteria, claims, await evidence_scope(site, claim, claims))
    proof.verdicts = {int(number): verdict for number, verdict in claim.get("decided", {}).items()}
    proof.doubted = bool(record.get("doubted"))
    await refresh_stale_readings(proof)
    needs = await check_criteria(proof)
    if needs:
        charged(runtime, state["step"]["id"], site.spent)
        return _cut_off(proof, needs)
    bad, unchanged = proof.bad(), _unchanged(proof)
    problems = [] if bad or unchanged else await _doubted(proof, config)
    charged(runtime, state["step"]["id"], site.spent)
    verdicts = [verdict for _, verdict in sorted(proof.verdicts.items())]
    judged(runtime, state["step"]["id"], verdicts, accepted=not (bad or unchanged or problems))
    if bad or unchanged or problems:
        return _refused(proof, bad, unchanged, problems)
    return await _accepted(proof)


def _unchanged(proof: Proof) -> list[str]:
    """Return what is wrong with a claim of a step that was to change something and did not."""
    said = str(proof.claim["arguments"].get("unchanged") or proof.record.get("unchanged") or "").strip()
    missing = proof.scope.unchanged and not said and proof.settings.verification != "claimed"
    return [UNCHANGED] if missing else []


async def _doubted(proof: Proof, config: RunnableConfig) -> list[str]:
    """Have the result audited where that is due; return what goes back to the model for it.

    The result of the only step is what the user gets: what is doubted of it goes back once, and what stays is said
    beside it. Where a judge decides of the step itself, it is done only when nothing is doubted.
    """
    site, settings, state = proof.site, proof.settings, proof.site.state
    decides = [n for n, verdict in proof.verdicts.items() if _judged(verdict, proof.criteria[n - 1], settings)]
    journal = [*seen_before(state), *site.noted]
    only = bool(state["record"].get("answers")) and len((state["run"].get("plan") or {}).get("steps") or ()) == 1
    if not decides and not (only and audit_due(settings, state["run"], journal)):
        return []
    id, result = state["step"]["id"], str(proof.claim["arguments"]["result"]).strip()
    record: Json = {**proof.record, "status": "done", "unchanged": proof.claim["arguments"].get("unchanged")}
    form = form_of(state["run"].get("output_schema"), config) if only else None
    data, _ = form.read({}, result) if form else (None, [])
    records = {**(state["run"].get("steps") or {}), id: record}
    verdicts = {id: [verdict for _, verdict in sorted(proof.verdicts.items())]}
    subject = Subject(state["run"], result, journal, data, verdicts, records, None if only else id)
    found = await audit(site, subject, reserve=int(RESERVE["model_calls"]) if only else 0)
    problems = [found["problem"]] if found["problem"] else findings(found)
    if found.get("nobody"):
        problems = ["the model of the role judge cannot judge"]
    for number in decides:
        change = {"verdict": "unverified", "note": "; ".join(problems)[:1000]} if problems else {"verdict": "proven"}
        proof.verdicts[number] |= {**change} if problems else {**change, "note": "a judge found nothing to doubt"}
    if only:
        proof.audit = dict(found)
    if decides:
        return problems
    doubts = [] if proof.doubted else to_send_back(found)
    proof.doubted = proof.doubted or bool(doubts)
    return doubts


def _judged(verdict: Json, criterion: Json, settings: Settings) -> bool:
    """Return whether a judge has to decide a criterion of the step; what structure does not allow it cannot."""
    return (
        verdict["verdict"] == "cited"
        and not criterion.get("check")
        and not enough(verdict["verdict"], criterion, settings.verification)
    )


def _answer(claim: StepClaim, text: str) -> AnyMessage:
    """The result of the call that claimed to be done."""
    return ToolMessage(text, tool_call_id=claim["id"]) if claim.get("id") else HumanMessage(text)


def _correction(problems: Sequence[str], then: str) -> str:
    lines = "\n".join(f"- {problem}" for problem in problems)
    return f"Correction: the step is not finished.\n{lines}\n{then}"


def _change(proof: Proof) -> StepRecord:
    """What any end of the proof changes in the record."""
    bad = {v["criterion"] for v in proof.bad()}
    stands = {str(n): claim for n, claim in proof.claims.items() if n in proof.verdicts and n not in bad}
    change: StepRecord = {
        "observed": proof.site.observed + len(proof.site.noted),
        "claim": None,
        "draft": proof.claim["arguments"]["result"],
        "verdicts": [v for _, v in sorted(proof.verdicts.items())],
        "standing": stands,
    }
    if proof.audit is not None:
        change |= {"audit": proof.audit, "doubted": proof.doubted}
    if said := str(proof.claim["arguments"].get("unchanged") or "").strip():
        change["unchanged"] = said
    return change


def _refused(proof: Proof, bad: Sequence[Json], unchanged: list[str], doubted: list[str]) -> Step:
    """The model is told, per criterion, what is missing; too many refusals for more than form fail the step."""
    problems = [f"criterion {v['criterion']} ({v['text'][:120]}): {_told(v)}" for v in bad] + unchanged + doubted
    forms = [str(v["criterion"]) for v in bad if v.get("form")]
    before = proof.record.get("imprecise") or {}
    change: StepRecord = {
        **_change(proof),
        "imprecise": {**before, **{number: before.get(number, 0) + 1 for number in forms}},
    }
    if doubted and not bad:
        then = "A judge doubts this. Find out or do what is missing, or say only what was shown; then finish again."
    else:
        then = "Work on what is missing, or cite what proves it, then finish_step again, or give_up."
    then += f" Shown, and to be left out: criterion {', '.join(change['standing'])}." if change["standing"] else ""
    then += " Your result is kept: leave it empty unless it changes." if not doubted else ""
    only_form = len(forms) == len(bad) and not unchanged and not doubted
    only_doubt = bool(doubted) and proof.verdicts.keys() == {int(n) for n in change["standing"]} and not unchanged
    if only_form or (only_doubt and not _decided(proof)):
        return _sent_back(proof, problems, then, change)
    site, said, refused = proof.site, "; ".join(problems), proof.record["refused"] + 1
    change["refused"] = refused
    messages = [_answer(proof.claim, _correction(problems, then))]
    common: Step = {"journal": site.noted, "spent": site.spent}
    if refused < proof.settings.max_refusals:
        return {**common, **corrected(site.state, site.runtime, said, messages, site.spent, change)}
    emit(site.runtime, "correction", step=site.state["step"]["id"], text=said[:500])
    reason = f"{counted(refused, 'refused goal_check')}; the last: {said[:600]}"
    failed: StepRecord = {**change, "status": "failed", "code": "unproven", "reason": reason}
    return {**common, **leave(site.state, site.runtime, failed, messages, site.spent)}


def _told(verdict: Json) -> str:
    """Return what the model is told of a verdict."""
    own = "you say yourself that it is not met; go on working, or give_up"
    return own if verdict["claimed"] is False else str(verdict["note"])


def _decided(proof: Proof) -> bool:
    """Return whether a judge had to decide a criterion, and did not find for it."""
    return any(verdict["verdict"] == "unverified" for verdict in proof.verdicts.values())


def _sent_back(proof: Proof, problems: Sequence[str], then: str, change: StepRecord) -> Step:
    """Send the claim back without counting it as an unusable reply or a refusal."""
    site = proof.site
    emit(site.runtime, "correction", step=site.state["step"]["id"], text="; ".join(problems)[:500])
    messages = [_answer(proof.claim, _correction(problems, then))]
    record: StepRecord = {**proof.record, **change}
    common: Step = {"journal": site.noted, "spent": site.spent}
    return {**common, "record": record, "transcript": messages, "decision": None}


def _cut_off(proof: Proof, needs: str) -> Step:
    """The budget ended in the middle of the proof: it goes on from there when there is more."""
    site = proof.site
    decided = {str(number): verdict for number, verdict in proof.verdicts.items()}
    key = exhausted(site.left(), (needs,))
    change: StepRecord = {**_change(proof), "status": "ready", "code": f"allowance:{key}"}
    change["claim"] = {**proof.claim, "decided": decided, "needs": needs}
    return {"journal": site.noted, "spent": site.spent, **leave(site.state, site.runtime, change, (), site.spent)}


async def _accepted(proof: Proof) -> Step:
    site, arguments = proof.site, proof.claim["arguments"]
    state, id = site.state, site.state["step"]["id"]
    result = str(arguments["result"]).strip()
    at = now()
    entry = observation(f"{id}.result", id, state["record"]["rounds"], "result", result, at=at)
    entry = await keep(site.runtime, state, entry)
    early = arguments.get("reason") if proof.claim["kind"] == "finish_task" else None
    done: StepRecord = {"status": "done", "code": "done", "result": result, "corrections": 0, "finished_task": early}
    done["said"] = proof.claim.get("said")
    messages = [_answer(proof.claim, "Accepted.")]
    change: StepRecord = {**_change(proof), **done, "standing": {}, "draft": ""}
    if not proof.scope.unchanged:
        change["unchanged"] = ""
    left = leave(state, site.runtime, change, messages, site.spent)
    return {"journal": [*site.noted, entry], "spent": site.spent, **left}
