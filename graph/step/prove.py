"""Prove that a step is done: by evidence, by the runtime's checks, and where required by a judge. Fails closed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.events import emit, emit_charge, emit_verdicts, now
from donewhen.graph.llm.history import observation_limit, omitted_span
from donewhen.graph.llm.output import form_of
from donewhen.graph.people.interjections import heard_entries, new_interjections
from donewhen.graph.round import send_back
from donewhen.graph.step.audit import Subject, audit, can_judge, is_audit_due, judged
from donewhen.graph.step.calls import ask_before_end, make_reading
from donewhen.graph.step.gates import CallContext, StepContext
from donewhen.graph.step.leave import StepWork, leave, question_pause
from donewhen.graph.sync import run_aside, run_in_thread
from donewhen.graph.tools.hooks import END_OPTIONS
from donewhen.state.channels import Json, Step
from donewhen.state.criteria import criteria_of, meets
from donewhen.state.language.texts import other_language, say_why
from donewhen.state.ledger import first_exhausted
from donewhen.state.plan.next import RESERVE
from donewhen.state.plan.plan import answering_step
from donewhen.state.plan.steps import MALFORMED
from donewhen.state.proof.audit import NO_DOUBT, doubts_to_send_back, findings, reasons
from donewhen.state.proof.evidence import (
    EvidenceScope,
    enough,
    ground_claim,
    is_change,
    read_goal_check,
    read_references,
    stale_reads,
)
from donewhen.state.proof.journal import observation
from donewhen.state.proof.planned import claim_of_calls
from donewhen.state.records import JournalEntry, Pause, StepChange, StepClaim, StepRecord
from donewhen.state.secrets import conceal
from donewhen.state.settings import Settings

UNCHANGED = (
    "no call of this step changed anything, though it was granted tools for that: make the change, or finish with "
    "`unchanged`: why nothing had to be changed"
)
OTHER_LANGUAGE = "write what the user reads in this language: {language}, unless they asked for another"
READ_ON = "A person is asked first. Finish again when you have read the answer."
MOST_AGAIN = 10
"""The most reads that one goal_check repeats."""
SAID_MEANWHILE = "Not finished yet: the user said something meanwhile, which comes next. Follow it, then finish again."
KEPT = "Your result is kept: leave it empty unless it changes."
FORM_CORRECTIONS = 2
"""The most corrections of a criterion for imprecise quotes alone; then it stays unverified."""
UNDECIDED = ("refused", "interrupt", "command")
"""Errors of a check's call that say nothing about the criterion."""


@dataclass
class Proof:
    """Claims that the criteria of a step or of the goal are met, and the verdicts so far."""

    context: CallContext
    criteria: Sequence[Json]
    claims: dict[int, Json]
    scope: EvidenceScope
    verdicts: dict[int, Json] = field(default_factory=dict)
    imprecise: Mapping[str, int] = field(default_factory=dict)
    """By criterion number, how often its evidence was refused only for its form."""

    @property
    def rows(self) -> list[Json]:
        """The verdicts in the order of criteria."""
        return [verdict for _, verdict in sorted(self.verdicts.items())]

    def bad(self) -> list[Json]:
        """Return the verdicts that are not enough, judged by structure alone; without any, a judge may be asked."""
        level = self.context.settings.verification
        level = "grounded" if level in ("audited", "judged") else level
        checks = {number: {"check": criterion.get("check")} for number, criterion in enumerate(self.criteria, 1)}
        return [
            verdict
            for number, verdict in sorted(self.verdicts.items())
            if not verdict.get("stays") and not enough(verdict["verdict"], checks[number], level)
        ]


@dataclass
class StepProof(Proof):
    """A claim that a step is done, or with it the run."""

    context: StepContext
    claim: StepClaim = field(kw_only=True)
    audit: Json | None = None
    """The judge's verdict on the result, if it is the answer."""
    judged: Json | None = None
    """What the next audit needs of this one."""
    doubted: bool = False
    """True if the judge's doubts were sent back to the model once."""
    by_policy: bool = False
    """True if hooks refuse to end the run with this result."""

    @property
    def record(self) -> StepRecord:
        """The record of the step."""
        return self.context.state["record"]

    @property
    def is_answer(self) -> bool:
        """True if the step's result is the run's answer."""
        plan = self.context.state["run"].get("plan") or {}
        return self.record["answers"] and answering_step(plan) == self.context.caller.id

    @property
    def kept(self) -> str:
        """What a model is told of the result of its claim that is sent back; "" if it made none."""
        return "" if self.claim.get("planned") else KEPT

    def output(self) -> Any:
        """Return the structured result, if one is requested and this result is the answer."""
        form = form_of(self.context.state["run"].get("output_schema")) if self.is_answer else None
        data, _ = form.read({}, self.scope.result) if form else (None, [])
        return data


async def goal_check(state: Step, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Step:
    """Check the claims of `finish_step` or `finish_task` against the evidence; accept them or say what is missing."""
    context = StepContext.of(state, runtime, config, deps, deps.all_tools(runtime.context))
    claim = state.get("decision") or state["record"]["claim"] or _claim_of_calls(context)
    if claim is None:
        return {"decision": None}
    update = await _prove(cast("StepClaim", claim), context)
    after, id = update["record"], state["step"]["id"]
    if after["status"] != "done" and not after.get("claim") and (said := claim.get("said")):
        # the streamed result was not accepted
        emit(runtime, "speech_restarted", step=id, id=said, argument=f"{claim['kind']}.result")
    return update


def _claim_of_calls(context: StepContext) -> StepClaim | None:
    """Return the claim that planned calls make, None if a model has to make it.

    No model has read what they returned, so a judge is about to.
    """
    state, settings, entries = context.state, context.settings, context.caller.known
    judge = is_audit_due(settings, state["run"], entries) and can_judge(context.deps, settings)
    as_data = state["record"]["answers"] and state["run"].get("output_schema")
    return claim_of_calls(state["step"], entries, context.caller.language) if judge and not as_data else None


async def _prove(claim: StepClaim, context: StepContext) -> Step:
    state, runtime, settings = context.state, context.runtime, context.settings
    record, criteria = state["record"], criteria_of(state["step"])
    standing = {int(number): stands for number, stands in record["standing"].items()}
    claims = read_goal_check(claim["arguments"].get("goal_check"), criteria, settings.verification, standing)
    if isinstance(claims, list):
        messages = [_answer(claim, _correction(claims, f"Send the goal_check again. {KEPT}"))]
        work = StepWork(state, runtime, context.deps).note(claim=None, draft=claim["arguments"]["result"])
        return send_back(work, "; ".join(claims), messages, MALFORMED)
    proof = StepProof(
        context,
        criteria,
        claims,
        await _evidence_scope(context, claim, claims),
        {int(number): verdict for number, verdict in claim.get("decided", {}).items()},
        record["imprecise"],
        claim=claim,
        doubted=record["doubted"],
    )
    await refresh_stale_reads(proof)
    if needs := await check_criteria(proof):
        emit_charge(runtime, state["step"]["id"], context.spent)
        return _leave_for_budget(proof, needs)
    reason = str(claim["arguments"].get("unchanged") or record["unchanged"]).strip()
    bad = proof.bad()
    objections = [UNCHANGED] if proof.scope.unchanged and not reason and settings.verification != "claimed" else []
    if wanted := _other_language(proof):
        objections.append(OTHER_LANGUAGE.format(language=wanted))
    if state["last"] and not bad and not objections:
        refused, waiting = await _ask_hooks(proof)
        if waiting:
            return _ask_person(proof, waiting)
        objections = [refused] if refused else []
        proof.by_policy = bool(refused)
    doubts = [] if bad or objections else await _audit_result(proof)
    emit_charge(runtime, state["step"]["id"], context.spent)
    if not (bad or objections or doubts or claim.get("whole")) and await _said_meanwhile(context):
        return _hear_first(proof)
    emit_verdicts(runtime, state["step"]["id"], proof.rows, accepted=not (bad or objections or doubts))
    if bad or objections or doubts:
        return _refuse(proof, bad, objections, doubts)
    return await _accept(proof)


def _other_language(proof: StepProof) -> str:
    """Return the language of the run if the answer declares another one and was not sent back for that; else ""."""
    context, planning = proof.context, proof.context.state["run"]["planning"]
    if not proof.is_answer or proof.record["language_told"]:
        return ""
    return other_language(proof.claim["arguments"].get("language"), context.settings.speaks, planning["language"])


async def _said_meanwhile(context: StepContext) -> bool:
    """Return whether the user said something that no round of the step includes yet."""
    state = context.state
    cursor = max(state["record"]["interjection_cursor"], state["interjection_cursor"])
    return bool(await new_interjections(context.runtime, cursor, state["step"]["id"]))


def _hear_first(proof: StepProof) -> Step:
    """Let the step go on, so that its next round hears what the user said meanwhile."""
    context = proof.context
    record: StepRecord = {**proof.record, **_change(proof), "doubted": False}
    messages = [_answer(proof.claim, f"{SAID_MEANWHILE} {proof.kept}".rstrip())]
    common: Step = {"journal": context.noted, "spent": context.spent}
    return {**common, "record": record, "transcript": messages, "decision": None}


async def _heard(context: StepContext) -> list[JournalEntry]:
    """Return what the user said to the step while it worked."""
    state = context.state
    run, own = state["interjection_cursor"], state["record"]["interjection_cursor"]
    return await heard_entries(context.runtime, state["step"]["id"], run, own)


async def _ask_hooks(proof: StepProof) -> tuple[str, Pause | None]:
    """Ask the hooks whether the run may end so; return why not, or the question that a person has to answer first."""
    context, state = proof.context, proof.context.state
    answers = [*state["asked"], *context.caller.known]
    verdict = await ask_before_end(context, proof.scope.result, answers, output=proof.output())
    if not verdict.question:
        return verdict.refused, None
    waiting = question_pause(state, verdict.question, END_OPTIONS).dump()
    refused = await context.deps.policies.refusal_of(waiting, state["goal"], context.runtime)
    return refused, None if refused else waiting


async def _audit_result(proof: StepProof) -> list[str]:
    """Audit the result if that is due; return the doubts to send back to the model.

    The result of the only step is the run's answer: its doubts are sent back once, and remaining doubts are shown
    with it. Where a judge decides a criterion, the step is done only without doubts.
    """
    context, settings, state = proof.context, proof.context.settings, proof.context.state
    decides = list[int]()  # a judge cannot accept what structure rejects
    for number, verdict in proof.verdicts.items():
        criterion, cited = proof.criteria[number - 1], verdict["verdict"] == "cited"
        if cited and not criterion.get("check") and not enough("cited", criterion, settings.verification):
            decides.append(number)
    only = proof.is_answer
    if not (decides or only):
        return []
    journal = [*context.caller.known, *await _heard(context), *context.noted]
    if not decides and not is_audit_due(settings, state["run"], journal):
        return []
    id, result = state["step"]["id"], proof.scope.result
    unchanged = str(proof.claim["arguments"].get("unchanged") or "")
    records = {**state["run"]["steps"], id: {**proof.record, "status": "done", "unchanged": unchanged}}
    others = {key: other["verdicts"] for key, other in records.items()} if only else {}
    verdicts = {**others, id: proof.rows}
    subject = Subject(state["run"], result, journal, proof.output(), verdicts, records, None if only else id)
    subject = replace(subject, before=proof.record["judged"])
    noted = len(context.noted)
    found = await audit(context, subject, reserve=int(RESERVE["model_calls"]) if only else 0)
    proof.judged = judged(subject, found, context.noted[noted:])
    why = reasons(found)
    for number in decides:
        proof.verdicts[number] |= {"verdict": "unverified" if why else "proven", "note": why or NO_DOUBT, "by": "judge"}
    if only:
        proof.audit = dict(found)
    if decides:
        return findings(found) or ([why] if why else [])
    doubts = [] if proof.doubted else doubts_to_send_back(found)
    proof.doubted = proof.doubted or bool(doubts)
    return doubts


def _answer(claim: StepClaim, text: str) -> AnyMessage:
    """Return the answer to the claiming call."""
    return ToolMessage(text, tool_call_id=claim["id"]) if claim.get("id") else HumanMessage(text)


def _correction(problems: Sequence[str], then: str) -> str:
    lines = "\n".join(f"- {problem}" for problem in problems)
    return f"Correction: the step is not finished.\n{lines}\n{then}"


def _change(proof: StepProof) -> StepChange:
    """Return the changes of the record that are the same however the proof ends."""
    bad = {v["criterion"] for v in proof.bad()}
    stands = {str(n): claim for n, claim in proof.claims.items() if n in proof.verdicts and n not in bad}
    change: StepChange = {
        "observed": proof.context.observed + len(proof.context.noted),
        "claim": None,
        "draft": "" if proof.claim.get("planned") else proof.claim["arguments"]["result"],
        "verdicts": proof.rows,
        "standing": {} if proof.claim.get("planned") else stands,
    }
    if proof.judged is not None:
        change["judged"] = proof.judged
    if proof.audit is not None:
        change |= {"audit": proof.audit, "doubted": proof.doubted}
    if said := str(proof.claim["arguments"].get("unchanged") or "").strip():
        change["unchanged"] = said
    return change


def _refuse(proof: StepProof, bad: Sequence[Json], objections: list[str], doubted: list[str]) -> Step:
    """Tell the model why the step is not done; too many refusals fail it, those for imprecise quotes not counted.

    `bad` are rejected verdicts, `objections` come from the runtime and the hooks, `doubted` from a judge.
    """
    problems = [f"criterion {v['criterion']} ({v['text'][:120]}): {v['note']}" for v in bad] + objections + doubted
    forms = [str(v["criterion"]) for v in bad if v.get("form")]
    before = proof.imprecise
    change: StepChange = {
        **_change(proof),
        "language_told": bool(proof.record["language_told"] or _other_language(proof)),
        "imprecise": {**before, **{number: before.get(number, 0) + 1 for number in forms}},
    }
    if doubted and not bad:
        then = "A judge doubts this. Find out or do what is missing, or say only what was shown; then finish again."
    else:
        then = "Work on what is missing, or cite what proves it, then finish_step again, or give_up."
    then += f" Leave out criterion {', '.join(change['standing'])}: shown already." if change["standing"] else ""
    then += f" {proof.kept}" if not doubted and proof.kept else ""
    only_form = len(forms) == len(bad) and not objections and not doubted
    only_doubt = bool(doubted) and proof.verdicts.keys() == {int(n) for n in change["standing"]} and not objections
    decided = any(verdict["verdict"] == "unverified" for verdict in proof.rows)  # a judge rejected the claim
    context, said, refused = proof.context, "; ".join(problems), proof.record["refused"] + 1
    messages = [_answer(proof.claim, _correction(problems, then))]
    common: Step = {"journal": context.noted, "spent": context.spent}
    if (
        only_form or (only_doubt and not decided) or proof.claim.get("planned")
    ):  # counts neither as an unusable reply nor as a refusal
        emit(context.runtime, "correction", step=context.state["step"]["id"], text=said[:500])
        record: StepRecord = {**proof.record, **change}
        return {**common, "record": record, "transcript": messages, "decision": None}
    change["refused"] = refused
    if refused < context.settings.max_refusals:
        work = StepWork(context.state, context.runtime, context.deps, context.spent).note(**change)
        return {**common, **send_back(work, said, messages)}
    emit(context.runtime, "correction", step=context.state["step"]["id"], text=said[:500])
    reason = say_why(context.state["language"], "refused_checks", refused, said=said[:600])
    code = "refused" if proof.by_policy else "unproven"
    failed: StepChange = {**change, "status": "failed", "code": code, "reason": reason}
    return {**common, **leave(context.state, context.runtime, failed, messages, context.spent)}


def _ask_person(proof: StepProof, waiting: Pause) -> Step:
    """Leave with a question; the answer comes as an observation."""
    context = proof.context
    emit_charge(context.runtime, context.state["step"]["id"], context.spent)
    change: StepChange = {**_change(proof), "status": "waiting", "waiting": waiting}
    messages = [_answer(proof.claim, READ_ON)]
    left = leave(context.state, context.runtime, change, messages, context.spent)
    return {"journal": context.noted, "spent": context.spent, **left}


def _leave_for_budget(proof: StepProof, needs: str) -> Step:
    """Leave because the budget ran out during the proof, which continues from here with more budget."""
    context = proof.context
    decided = {str(number): verdict for number, verdict in proof.verdicts.items()}
    change: StepChange = {**_change(proof), "status": "ready", "code": ""}
    change["claim"] = {**proof.claim, "decided": decided, "needs": needs}
    return {
        "journal": context.noted,
        "spent": context.spent,
        **leave(context.state, context.runtime, change, (), context.spent),
    }


async def _accept(proof: StepProof) -> Step:
    """End the step; its result becomes an observation."""
    context, arguments = proof.context, proof.claim["arguments"]
    state, id, result = context.state, context.state["step"]["id"], proof.scope.result
    entry = observation(f"{id}.result", id, state["record"]["rounds"], "result", result, at=now())
    entry = await context.caller.texts.put_entry(entry)
    early = arguments.get("reason") if proof.claim["kind"] == "finish_task" else None
    done: StepChange = {"status": "done", "code": "done", "result": result, "corrections": 0, "finished_task": early}
    done["said"] = proof.claim.get("said")
    messages = [_answer(proof.claim, "Accepted.")]
    change: StepChange = {**_change(proof), **done, "standing": {}, "draft": "", "judged": None}
    if not proof.scope.unchanged:
        change["unchanged"] = ""
    left = leave(state, context.runtime, change, messages, context.spent)
    return {"journal": [*context.noted, entry], "spent": context.spent, **left}


async def _evidence_scope(context: StepContext, claim: StepClaim, claims: dict[int, Json]) -> EvidenceScope:
    """Return what the claims of a step may cite; who answers for a whole output chose nothing of what was seen."""
    step, records = context.state["step"], context.state["run"].get("steps") or {}
    limit = observation_limit(context.deps, context.settings, "execute", step.get("executor"))
    known = [*context.caller.known, *await _heard(context)]
    entries = await with_whole_texts(context, known, claims.values(), None if claim.get("whole") else limit)
    toolbox = context.deps.step_tools(context.settings, context.state)
    own = [e for e in entries if e["step"] == step["id"] and not e.get("outside")]
    granted = step.get("tools")
    writing = [name for name in granted or () if toolbox.effect(name) != "read"]
    used = any(e["source"] == "tool" and e["ok"] for e in own)
    return EvidenceScope(
        entries,
        step["id"],
        str(claim["arguments"].get("result", "")).strip(),
        writes_text=granted == [] or not toolbox or (granted is None and not used),
        unchanged=bool(writing) and not any(is_change(e) or e.get("unknown") for e in own),
        recalled=recalled_spans([*records.values(), context.state["record"]]),
    )


async def with_whole_texts(
    context: CallContext, entries: Iterable[JournalEntry], claims: Iterable[Json], limit: int | None
) -> list[JournalEntry]:
    """Return observations, those that claims cite with their full text, and with the span that was not shown of it.

    `limit` are the most characters of one that were shown; None if that does not matter.
    """
    cited = {each.get("observation") for claim in claims for each in read_references(claim)}
    found: list[JournalEntry] = []
    for entry in entries:
        whole = await context.caller.texts.whole(entry) if entry["id"] in cited else {**entry}
        if entry["id"] in cited and limit is not None:
            of_program = (0, len(whole["text"])) if "program" in whole else None  # what it did not print was not shown
            whole["unread"] = of_program or omitted_span(whole["text"], limit, whole["id"])
        found.append(whole)
    return found


def recalled_spans(records: Iterable[StepRecord]) -> dict[str, list[list[int]]]:
    """Return what these steps recalled of each observation: one may build on results of others."""
    spans: dict[str, list[list[int]]] = {}
    for record in records:
        for id, ranges in record["recalled"].items():
            spans[id] = [*spans.get(id, []), *ranges]
    return spans


async def refresh_stale_reads(proof: StepProof) -> None:
    """Repeat cited reads whose subject has changed since, as far as the budget allows."""
    context, scope = proof.context, proof.scope
    fresh: dict[str, JournalEntry] = {}
    for id in stale_reads(proof.claims, scope)[:MOST_AGAIN]:
        if first_exhausted(context.amounts_left(), ("tool_calls",)):
            break
        old = scope.entry(id)
        reading = await make_reading(context, str(old["tool"]), old["arguments"])
        if not isinstance(reading, str):
            fresh[id] = await context.caller.texts.whole(reading[0])
    if fresh:
        again = {id: entry["id"] for id, entry in fresh.items()}
        proof.scope = replace(scope, entries=[*scope.entries, *fresh.values()], again=again)


async def check_criteria(proof: Proof) -> str | None:
    """Decide every criterion by its check or evidence; return the budget key that ran out, if any."""
    for number, criterion in enumerate(proof.criteria, 1):
        if number in proof.verdicts:
            continue
        claim = proof.claims[number]
        open_verdict: Json = {"criterion": number, "text": criterion["text"], "claimed": claim["met"]}
        open_verdict |= {"evidence": [], "note": ""}
        if claim["met"] and criterion.get("check"):
            if first_exhausted(proof.context.amounts_left(), ("tool_calls",)):
                return "tool_calls"
            proof.verdicts[number] = await _check(proof, criterion["check"], open_verdict)
        else:
            proof.verdicts[number] = await run_aside(proof.scope.size, partial(_ground, proof, claim, open_verdict))
    return None


def _ground(proof: Proof, claim: Json, verdict: Json) -> Json:
    """Return the verdict on the cited observations."""
    level, secrets = proof.context.settings.verification, proof.context.deps.secrets
    if not claim["met"]:
        note = "the model itself says that it is not met"
        return {**verdict, "verdict": "failed", "note": note}
    found = ground_claim(claim, proof.scope)
    verdict["evidence"] = found.evidence
    if level == "claimed":
        return {**verdict, "verdict": "cited" if found.evidence else "unverified"}
    if found.problems:
        return {**verdict, "evidence": [], "verdict": "unverified", "note": conceal("; ".join(found.problems), secrets)}
    if found.imprecise:
        told = proof.imprecise.get(str(verdict["criterion"]), 0)
        end = {"stays": True} if told >= FORM_CORRECTIONS and found.evidence else {"form": True}
        return {**verdict, "verdict": "unverified", "note": conceal("; ".join(found.imprecise), secrets), **end}
    return {**verdict, "verdict": "cited"}


async def _check(proof: Proof, check: Json, verdict: Json) -> Json:
    """Return the verdict of the runtime's own check; the model's claim plays no part."""
    reading = await make_reading(proof.context, check["tool"], check["arguments"])
    if isinstance(reading, str):
        return {**verdict, "verdict": "unverified", "note": reading}
    entry, result = reading
    verdict["evidence"] = [{"observation": entry["id"], "quote": entry["text"][:200]}]
    if not result.ok and (result.unknown or result.error in UNDECIDED or check["expect"] != "ok"):
        note = f"the check {check['tool']} itself failed: {result.text[:200]!r}"
        return {**verdict, "verdict": "unverified", "note": note}
    # A second, with a pattern of a model, for a text of any length.
    met, said = await run_in_thread(partial(meets, check["expect"], result.ok, result.text))
    return {**verdict, "verdict": "proven" if met else "failed", "note": f"the check {check['tool']} decided: {said}"}
