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
from donewhen.graph.step.audit import Subject, audit, can_judge, is_audit_due
from donewhen.graph.step.calls import ask_before_end, make_read_call
from donewhen.graph.step.gates import NOTHING, CallContext, StepContext
from donewhen.graph.step.leave import StepWork, leave, question_pause
from donewhen.graph.sync import run_aside, run_in_thread
from donewhen.state.channels import Json, Step
from donewhen.state.criteria import criteria_of, meets
from donewhen.state.language.texts import other_language, say_why
from donewhen.state.ledger import first_exhausted
from donewhen.state.plan.next import RESERVE
from donewhen.state.plan.plan import answering_step
from donewhen.state.plan.steps import MALFORMED
from donewhen.state.proof.audit import doubts_to_send_back, findings, reasons
from donewhen.state.proof.evidence import (
    EvidenceScope,
    ground_claim,
    read_goal_check,
    read_references,
    satisfies,
    stale_reads,
)
from donewhen.state.proof.journal import is_change, observation
from donewhen.state.proof.planned import claim_of_calls
from donewhen.state.proof.receipt import AuditRow
from donewhen.state.records import JournalEntry, Pause, StepChange, StepClaim, StepRecord
from donewhen.state.secrets import conceal
from donewhen.state.settings import Settings

READ_ON = "A person is asked first. Finish again when you have read the answer."
MOST_REPEATED = 10
"""The most reads that one goal_check repeats."""
SAID_MEANWHILE = "Not finished yet: the user said something meanwhile, which comes next. Follow it, then finish again."
KEPT = "Your result is kept: leave it empty unless it changes."
FORM_CORRECTIONS = 2
"""How often a criterion is sent back only because its quotes are imprecise; after that it stays unverified."""
UNDECIDED = ("refused", "interrupt", "command")
"""Errors of a check's call that say nothing about the criterion."""


@dataclass
class Proof:
    """The claims that the criteria of a step or of the goal are met, and the verdicts so far."""

    context: CallContext
    criteria: Sequence[Json]
    claims: dict[int, Json]
    scope: EvidenceScope
    verdicts: dict[int, Json] = field(default_factory=dict)
    imprecise: Mapping[str, int] = field(default_factory=dict)
    """By criterion number, how often its evidence was refused only for its form, before this proof."""

    @property
    def rows(self) -> list[Json]:
        """The verdicts in the order of criteria."""
        return [verdict for _, verdict in sorted(self.verdicts.items())]

    def why_rejected(self, verdict: Json) -> str:
        """Return a verdict in words: which criterion, and why it was rejected."""
        number, text = verdict["criterion"], verdict["text"][:120]
        return self.scope.say("criterion", number=number, text=text, why=verdict["note"])

    def rejected(self) -> list[Json]:
        """Return the verdicts that structure alone rejects; if there are none, a judge may be asked."""
        level = self.context.settings.verification
        level = "grounded" if level in ("audited", "judged") else level
        checks = [{"check": criterion.get("check")} for criterion in self.criteria]  # without the wish for a judge
        return [
            verdict
            for verdict in self.rows
            if not verdict.get("stays") and not satisfies(verdict["verdict"], checks[verdict["criterion"] - 1], level)
        ]


@dataclass
class StepProof(Proof):
    """A claim that a step is done, or with it the run."""

    context: StepContext
    claim: StepClaim = field(kw_only=True)
    audit: Json | None = None
    """The `AuditRow` of the result, if it is the answer."""
    last_audit: Json | None = None
    """What the next audit needs of this one."""
    unjudged: AuditRow | None = None
    """The audit that was not possible, if a judge has to decide a criterion."""
    why_doubted: str = ""
    """The judge's doubts in words for people; its audit sends them back in others."""
    doubted: bool = False
    """True once the judge's doubts were sent back to the model, which happens once."""
    refused_by_hooks: bool = False
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
    def note_on_result(self) -> str:
        """What a model whose claim is sent back is told about its result; "" if the plan made the claim."""
        return "" if self.claim.get("planned") else KEPT

    def output(self) -> Any:
        """Return the structured result, if one is requested and this result is the answer."""
        form = form_of(self.context.state["run"].get("output_schema")) if self.is_answer else None
        data, _ = form.read({}, self.scope.result) if form else (None, [])
        return data


async def goal_check(state: Step, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Step:
    """Check what is claimed against the evidence; accept it or say what is missing.

    A model claims with `finish_step` or `finish_task`; planned calls and executors without a model of ours claim too.
    """
    tools = deps.all_tools(runtime.context, state["run"].get("plan"))
    context = StepContext.of(state, runtime, config, deps, tools)
    claim = state.get("decision") or state["record"]["claim"] or _claim_of_calls(context)
    if claim is None:
        return {"decision": None}
    update = await _prove(cast("StepClaim", claim), context)
    after, id = update["record"], state["step"]["id"]
    if after["status"] != "done" and not after.get("claim") and (message_id := claim.get("said")):
        # the streamed result was not accepted
        emit(runtime, "speech_restarted", step=id, id=message_id, argument=f"{claim['kind']}.result")
    return update


def _claim_of_calls(context: StepContext) -> StepClaim | None:
    """Return the claim that planned calls make; None if a model has to make it.

    No model has read what the calls returned, so a judge has to; and only a model can write a structured result.
    """
    state, settings, entries = context.state, context.settings, context.caller.known
    is_audited = is_audit_due(settings, state["run"], entries) and can_judge(context.deps, settings)
    needs_form = state["record"]["answers"] and state["run"].get("output_schema")
    return claim_of_calls(state["step"], entries, context.caller.language) if is_audited and not needs_form else None


async def _prove(claim: StepClaim, context: StepContext) -> Step:
    """Check a claim: its form, its evidence and checks, then hooks, a judge, and whether the user said something since.

    What comes later is only asked about a claim that nothing before has refused.
    """
    state, runtime, settings = context.state, context.runtime, context.settings
    record, criteria = state["record"], criteria_of(state["step"])
    standing = {int(number): accepted for number, accepted in record["standing"].items()}
    goal_check, language = claim["arguments"].get("goal_check"), state["language"]
    claims = read_goal_check(goal_check, criteria, settings.verification, standing, language)
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
    if await check_criteria(proof):
        emit_charge(runtime, state["step"]["id"], context.spent)
        return _leave_for_budget(proof, "tool_calls")
    reason = str(claim["arguments"].get("unchanged") or record["unchanged"]).strip()
    rejected = proof.rejected()
    is_idle = proof.scope.unchanged and not reason and settings.verification != "claimed"
    objections = [proof.scope.say("unchanged")] if is_idle else []
    is_refused = bool(rejected or objections or _language_to_use(proof))
    if state["is_last"] and not is_refused:
        answers, ask = [*state["user_answers"], *context.caller.known], partial(question_pause, state)
        refusal, pause = await ask_before_end(context, proof.scope.result, answers, output=proof.output(), ask=ask)
        if pause:
            return _ask_person(proof, pause.dump())
        objections = [refusal] if refusal else []
        proof.refused_by_hooks = is_refused = bool(refusal)
    doubts = [] if is_refused else await _audit_result(proof)
    emit_charge(runtime, state["step"]["id"], context.spent)
    if proof.unjudged:
        used_up = proof.unjudged.get("lacks")
        return _leave_for_budget(proof, "model_calls") if used_up else _fail_unjudged(proof, proof.unjudged)
    is_accepted = not (is_refused or doubts)
    if is_accepted and not claim.get("whole") and await _has_new_words(context):
        return _hear_first(proof)
    emit_verdicts(runtime, state["step"]["id"], proof.rows, accepted=is_accepted)
    return await _accept(proof) if is_accepted else _refuse(proof, rejected, objections, doubts)


def _language_to_use(proof: StepProof) -> str:
    """Return the language of the run if the answer declares another one and was not sent back for that; else ""."""
    context, planning = proof.context, proof.context.state["run"]["planning"]
    if not proof.is_answer or proof.record["language_told"]:
        return ""
    return other_language(proof.claim["arguments"].get("language"), context.settings.speaks, planning["language"])


async def _has_new_words(context: StepContext) -> bool:
    """Return whether the user said something that no round of the step includes yet."""
    state = context.state
    cursor = max(state["record"]["interjection_cursor"], state["interjection_cursor"])
    return bool(await new_interjections(context.runtime, cursor, state["step"]["id"]))


def _hear_first(proof: StepProof) -> Step:
    """Let the step go on, because its next round reads what the user said meanwhile."""
    context = proof.context
    record: StepRecord = {**proof.record, **_change(proof), "doubted": False}
    messages = [_answer(proof.claim, f"{SAID_MEANWHILE} {proof.note_on_result}".rstrip())]
    common: Step = {"journal": context.new_entries, "spent": context.spent}
    return {**common, "record": record, "transcript": messages, "decision": None}


async def _load_heard(context: StepContext) -> list[JournalEntry]:
    """Return, as observations, what the user said while the step worked, as far as its rounds have read it."""
    state = context.state
    run, own = state["interjection_cursor"], state["record"]["interjection_cursor"]
    return await heard_entries(context.runtime, state["step"]["id"], run, own)


async def _audit_result(proof: StepProof) -> list[str]:
    """Audit the result if that is due; return the doubts to send back to the model.

    If the result is the run's answer, doubts are sent back once, and those that remain are shown with it. If a judge
    has to decide a criterion, the step is done only without doubts.
    """
    context, settings, state = proof.context, proof.context.settings, proof.context.state
    for_judge = list[int]()  # criteria that a judge decides; what structure rejects, no judge can accept
    for number, verdict in proof.verdicts.items():
        criterion, is_cited = proof.criteria[number - 1], verdict["verdict"] == "cited"
        if is_cited and not criterion.get("check") and not satisfies("cited", criterion, settings.verification):
            for_judge.append(number)
    is_answer = proof.is_answer
    if not (for_judge or is_answer):
        return []
    journal = [*context.caller.known, *await _load_heard(context), *context.new_entries]
    if not for_judge and not is_audit_due(settings, state["run"], journal):
        return []
    id, result = state["step"]["id"], proof.scope.result
    unchanged = str(proof.claim["arguments"].get("unchanged") or "")
    records = {**state["run"]["steps"], id: {**proof.record, "status": "done", "unchanged": unchanged}}
    others = {key: other["verdicts"] for key, other in records.items()} if is_answer else {}
    verdicts = {**others, id: proof.rows}
    subject = Subject(state["run"], result, journal, proof.output(), verdicts, records, None if is_answer else id)
    subject = replace(subject, last_audit=proof.record["judged"])
    audit_row, proof.last_audit = await audit(context, subject, reserve=RESERVE if is_answer else NOTHING)
    why = proof.why_doubted = reasons(audit_row, state["language"])
    is_judged = not (audit_row["problem"] or audit_row.get("nobody"))
    for number in for_judge:
        note = why or proof.scope.say("no_doubt")
        proof.verdicts[number] |= {"verdict": "unverified" if why else "proven", "note": note, "by": "judge"}
    if is_answer:
        proof.audit = dict(audit_row)
    if for_judge:
        proof.unjudged = None if is_judged else audit_row
        return findings(audit_row)
    doubts = [] if proof.doubted else doubts_to_send_back(audit_row)
    proof.doubted = proof.doubted or bool(doubts)
    return doubts


def _answer(claim: StepClaim, text: str) -> AnyMessage:
    """Return the message that answers the claim: to its call, if a model made it by one."""
    return ToolMessage(text, tool_call_id=claim["id"]) if claim.get("id") else HumanMessage(text)


def _correction(problems: Sequence[str], then: str) -> str:
    lines = "\n".join(f"- {problem}" for problem in problems)
    return f"Correction: the step is not finished.\n{lines}\n{then}"


def _change(proof: StepProof) -> StepChange:
    """Return the changes of the record that are the same however the proof ends."""
    rejected = {verdict["criterion"] for verdict in proof.rejected()}
    standing = {str(n): claim for n, claim in proof.claims.items() if n in proof.verdicts and n not in rejected}
    change: StepChange = {
        "observed": proof.context.observed + len(proof.context.new_entries),
        "claim": None,
        "draft": "" if proof.claim.get("planned") else proof.claim["arguments"]["result"],
        "verdicts": proof.rows,
        "standing": {} if proof.claim.get("planned") else standing,
    }
    if proof.last_audit is not None:
        change["judged"] = proof.last_audit
    if proof.audit is not None:
        change |= {"audit": proof.audit, "doubted": proof.doubted}
    if reason := str(proof.claim["arguments"].get("unchanged") or "").strip():
        change["unchanged"] = reason
    return change


def _refuse(proof: StepProof, rejected: Sequence[Json], objections: list[str], doubts: list[str]) -> Step:
    """Tell the model why the step is not done; too many refusals fail it.

    `rejected` are verdicts, `objections` come from the runtime and the hooks, `doubts` from a judge. Neither form alone
    (imprecise quotes, another language), nor doubts alone that decide no criterion, nor the claim of a plan's calls
    count as a refusal.
    """
    problems = [proof.why_rejected(verdict) for verdict in rejected]
    language = _language_to_use(proof)
    problems += [*objections, *([proof.scope.say("language", wanted=language)] if language else [])]
    imprecise = [str(verdict["criterion"]) for verdict in rejected if verdict.get("form")]
    counts = proof.imprecise
    change: StepChange = {
        **_change(proof),
        "language_told": bool(proof.record["language_told"] or language),
        "imprecise": {**counts, **{number: counts.get(number, 0) + 1 for number in imprecise}},
    }
    if doubts and not rejected:
        then = "A judge doubts this. Find out or do what is missing, or say only what was shown; then finish again."
    else:
        then = "Work on what is missing, or cite what proves it, then finish_step again, or give_up."
    shown = [number for number in change["standing"] if not proof.verdicts[int(number)].get("stays")]
    then += f" Leave out criterion {', '.join(shown)}: shown already." if shown else ""
    then += f" {proof.note_on_result}" if not doubts and proof.note_on_result else ""
    is_only_form = len(imprecise) == len(rejected) and not objections and not doubts
    is_only_doubt = bool(doubts) and proof.verdicts.keys() == {int(n) for n in change["standing"]} and not objections
    is_decided = any(verdict["verdict"] == "unverified" for verdict in proof.rows)  # by a judge, if there is only doubt
    for_people = [*problems, *([proof.why_doubted] if doubts else [])]
    context, error_text, refusals = proof.context, "; ".join(for_people), proof.record["refused"] + 1
    messages = [_answer(proof.claim, _correction([*problems, *doubts], then))]
    common: Step = {"journal": context.new_entries, "spent": context.spent}
    if is_only_form or (is_only_doubt and not is_decided) or proof.claim.get("planned"):
        # It does not count as an unusable reply either.
        emit(context.runtime, "correction", step=context.state["step"]["id"], text=error_text[:500])
        record: StepRecord = {**proof.record, **change}
        return {**common, "record": record, "transcript": messages, "decision": None}
    change["refused"] = refusals
    if refusals < context.settings.max_refusals:
        work = StepWork(context.state, context.runtime, context.deps, context.spent).note(**change)
        return {**common, **send_back(work, error_text, messages)}
    emit(context.runtime, "correction", step=context.state["step"]["id"], text=error_text[:500])
    reason = say_why(context.state["language"], "refused_checks", refusals, said=error_text[:600])
    code = "refused" if proof.refused_by_hooks else "unproven"
    failed: StepChange = {**change, "status": "failed", "code": code, "reason": reason}
    return {**common, **leave(context.state, context.runtime, failed, messages, context.spent)}


def _ask_person(proof: StepProof, waiting: Pause) -> Step:
    """Leave with a question; the answer comes as an observation."""
    context = proof.context
    emit_charge(context.runtime, context.state["step"]["id"], context.spent)
    change: StepChange = {**_change(proof), "status": "waiting", "waiting": waiting}
    messages = [_answer(proof.claim, READ_ON)]
    update = leave(context.state, context.runtime, change, messages, context.spent)
    return {"journal": context.new_entries, "spent": context.spent, **update}


def _leave_for_budget(proof: StepProof, used_up: str) -> Step:
    """Leave because the budget ran out during the proof, which continues from here with more budget."""
    return _leave_with_claim(proof, {"status": "ready", "code": ""}, used_up)


def _fail_unjudged(proof: StepProof, audit_row: AuditRow) -> Step:
    """End the step because a judge has to decide a criterion and gives no verdict; a retry asks it again."""
    reason = reasons(audit_row, proof.context.state["language"])
    return _leave_with_claim(proof, {"status": "failed", "code": "model_error", "reason": reason}, "model_calls")


def _leave_with_claim(proof: StepProof, change: StepChange, needs: str) -> Step:
    """Leave with the claim and what is decided of it; `needs` is the amount of which the rest takes one."""
    context = proof.context
    verdicts = {str(number): each for number, each in proof.verdicts.items() if each.get("by") != "judge"}
    claim = cast("StepClaim", {**proof.claim, "decided": verdicts, "needs": needs})
    change = {**_change(proof), **change, "claim": claim}
    update = leave(context.state, context.runtime, change, (), context.spent)
    return {"journal": context.new_entries, "spent": context.spent, **update}


async def _accept(proof: StepProof) -> Step:
    """End the step; its result becomes an observation."""
    context, arguments = proof.context, proof.claim["arguments"]
    state, id, result = context.state, context.state["step"]["id"], proof.scope.result
    entry = observation(f"{id}.result", id, state["record"]["rounds"], "result", result, at=now())
    entry = await context.caller.texts.put_entry(entry)
    change: StepChange = {
        **_change(proof),
        "status": "done",
        "code": "done",
        "result": result,
        "corrections": 0,
        "finished_task": arguments.get("reason") if proof.claim["kind"] == "finish_task" else None,
        "said": proof.claim.get("said"),
        "standing": {},
        "draft": "",
        "judged": None,
    }
    if not proof.scope.unchanged:
        change["unchanged"] = ""
    messages = [_answer(proof.claim, "Accepted.")]
    update = leave(state, context.runtime, change, messages, context.spent)
    return {"journal": [*context.new_entries, entry], "spent": context.spent, **update}


async def _evidence_scope(context: StepContext, claim: StepClaim, claims: dict[int, Json]) -> EvidenceScope:
    """Return what the claims of a step may cite.

    What its model was not shown of an observation is marked there as unread, unless an executor's output is the result
    as it is.
    """
    step, records = context.state["step"], context.state["run"].get("steps") or {}
    limit = observation_limit(context.deps, context.settings, "execute", step.get("executor"))
    citable = [*context.caller.known, *await _load_heard(context)]
    entries = await with_whole_texts(context, citable, claims.values(), None if claim.get("whole") else limit)
    toolbox = context.deps.step_tools(context.settings, context.state)
    own = [entry for entry in entries if entry["step"] == step["id"] and not entry.get("outside")]
    granted = step.get("tools")
    may_write = any(toolbox.effect(name) != "read" for name in granted or ())
    used_tools = any(entry["source"] == "tool" and entry["ok"] for entry in own)
    return EvidenceScope(
        entries,
        step["id"],
        str(claim["arguments"].get("result", "")).strip(),
        writes_text=granted == [] or not toolbox or (granted is None and not used_tools),
        unchanged=may_write and not any(is_change(entry) or entry.get("unknown") for entry in own),
        recalled=recalled_spans([*records.values(), context.state["record"]]),
        language=context.state["language"],
    )


async def with_whole_texts(
    context: CallContext, entries: Iterable[JournalEntry], claims: Iterable[Json], limit: int | None
) -> list[JournalEntry]:
    """Return the observations; those that claims cite have their full text, and say which span of it was not shown.

    `limit` are the most characters of an observation that were shown; None if that does not matter.
    """
    cited = {each.get("observation") for claim in claims for each in read_references(claim)}
    loaded: list[JournalEntry] = []
    for entry in entries:
        whole = await context.caller.texts.load(entry) if entry["id"] in cited else {**entry}
        if entry["id"] in cited and limit is not None:
            is_of_program = "program" in whole  # the program read it, and the model only what that printed
            span = (0, len(whole["text"])) if is_of_program else omitted_span(whole["text"], limit, whole["id"])
            whole["unread"] = span
        loaded.append(whole)
    return loaded


def recalled_spans(records: Iterable[StepRecord]) -> dict[str, list[list[int]]]:
    """Return the ranges of characters that these steps recalled, by observation."""
    spans: dict[str, list[list[int]]] = {}
    for record in records:
        for id, ranges in record["recalled"].items():
            spans[id] = [*spans.get(id, []), *ranges]
    return spans


async def refresh_stale_reads(proof: Proof) -> None:
    """Repeat cited reads whose subject has changed since, as far as the budget allows."""
    context, scope = proof.context, proof.scope
    fresh: dict[str, JournalEntry] = {}
    for id in stale_reads(proof.claims, scope)[:MOST_REPEATED]:
        if first_exhausted(context.amounts_left(), ("tool_calls",)):
            break
        old = scope.entry(id)
        result = await make_read_call(context, str(old["tool"]), old["arguments"])
        if not isinstance(result, str):
            fresh[id] = await context.caller.texts.load(result[0])
    if fresh:
        again = {id: entry["id"] for id, entry in fresh.items()}
        proof.scope = replace(scope, entries=[*scope.entries, *fresh.values()], again=again)


async def check_criteria(proof: Proof) -> str | None:
    """Decide every open criterion by its check or evidence; return the amount that is used up if one stays open."""
    used_up = None
    for number, criterion in enumerate(proof.criteria, 1):
        if number in proof.verdicts:
            continue
        claim = proof.claims[number]
        open_verdict: Json = {"criterion": number, "text": criterion["text"], "claimed": claim["met"]}
        open_verdict |= {"evidence": [], "note": ""}
        if criterion.get("check"):
            if used_up := first_exhausted(proof.context.amounts_left(), ("tool_calls",)):
                continue
            proof.verdicts[number] = await _check(proof, criterion["check"], open_verdict)
        else:
            proof.verdicts[number] = await run_aside(proof.scope.size, partial(_ground, proof, claim, open_verdict))
    return used_up


def _ground(proof: Proof, claim: Json, verdict: Json) -> Json:
    """Return the verdict on a claim by the observations that it cites."""
    level, secrets = proof.context.settings.verification, proof.context.deps.secrets
    if not claim["met"]:
        return {**verdict, "verdict": "failed", "note": proof.scope.say("not_met")}
    grounds = ground_claim(claim, proof.scope)
    if grounds.problems and level != "claimed":
        return {**verdict, "verdict": "unverified", "note": conceal("; ".join(grounds.problems), secrets)}
    verdict = {**verdict, "evidence": grounds.evidence}
    if level == "claimed":
        return {**verdict, "verdict": "cited" if grounds.evidence else "unverified"}
    if grounds.imprecise:
        corrections = proof.imprecise.get(str(verdict["criterion"]), 0)
        end = {"stays": True} if corrections >= FORM_CORRECTIONS and grounds.evidence else {"form": True}
        return {**verdict, "verdict": "unverified", "note": conceal("; ".join(grounds.imprecise), secrets), **end}
    return {**verdict, "verdict": "cited"}


async def _check(proof: Proof, check: Json, verdict: Json) -> Json:
    """Return the verdict of the runtime's own check; the model's claim plays no part."""
    result = await make_read_call(proof.context, check["tool"], check["arguments"])
    if isinstance(result, str):
        return {**verdict, "verdict": "unverified", "note": result}
    entry, outcome = result
    verdict = {**verdict, "evidence": [{"observation": entry["id"], "quote": entry["text"][:200]}]}
    if not outcome.ok and (outcome.unknown or outcome.error in UNDECIDED or check["expect"] != "ok"):
        note = proof.scope.say("check_failed", tool=check["tool"], said=repr(outcome.text[:200]))
        return {**verdict, "verdict": "unverified", "note": note}
    # In a thread, because a pattern may take a second.
    ok = outcome.ok and not entry.get("failed")
    met, why = await run_in_thread(partial(meets, check["expect"], ok, outcome.text, proof.scope.language))
    note = proof.scope.say("check_open" if met is None else "check_decided", tool=check["tool"], why=why)
    return {**verdict, "verdict": "unverified" if met is None else "proven" if met else "failed", "note": note}
