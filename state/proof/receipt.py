"""The receipt of a run: everything needed to check it, as JSON in the outcome."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from donewhen.state.channels import PLANNING, Json
from donewhen.state.criteria import criteria_of
from donewhen.state.ledger import MeterRow, meter
from donewhen.state.proof.evidence import Verdict
from donewhen.state.proof.journal import call_key, closing_lines, is_failure, repeated_calls
from donewhen.state.records import WRITES, JournalEntry, ModeRow, StepRecord, StepStatus
from donewhen.state.secrets import conceal, redact, redact_json
from donewhen.state.settings import Settings
from donewhen.state.statuses import record_of

Status = Literal["completed", "answered", "partial", "failed", "cancelled", "exhausted"]
"""How a run ended. `completed`: something was done or looked up, and shown. `answered`: the user has words, and nothing
was changed: small talk, general knowledge, a refusal by the instructions, an untrue premise explained.
"""
SUCCEEDED = ("completed", "answered")
"""The statuses of runs that did what they should."""


class Evidence(TypedDict):
    """An observation, and the words in it that prove a criterion."""

    observation: str
    """Its id, such as `s2.3`; `recall`, the journal in state and `donewhen show` have the text."""
    quote: NotRequired[str]
    before: NotRequired[bool]
    """True if it describes its subject before a later change."""
    part: NotRequired[bool]
    """True if the model saw only part of it."""


class CriterionRow(TypedDict):
    """One criterion: planned, claimed, verified."""

    criterion: int
    """From 1."""
    text: str
    check: dict[str, Any] | None
    """As approved: `{tool, arguments, expect}`."""
    claimed: bool | None
    """The model's claim; None if it made none."""
    verdict: Verdict
    evidence: list[Evidence]
    note: str
    """The explanation of the check or the judge, or why evidence was missing."""
    by: NotRequired[Literal["judge"]]
    """Set if a judge decided the verdict."""


class RepeatedRow(TypedDict):
    """A call that returned the same result several times in a row."""

    tool: str
    arguments: dict[str, Any]
    times: int


class StepRow(TypedDict):
    """One step of the last plan."""

    id: str
    content: str
    status: StepStatus
    reason: str
    result: str
    """In the model's words; `criteria` has the proof."""
    rounds: int
    started: str
    """ISO 8601, UTC; "" if it never started. Likewise `ended`."""
    ended: str
    executor: NotRequired[str]
    """The executor that worked on it; empty for the default one."""
    transcript: NotRequired[list[dict[str, Any]]]
    """The messages of an executor that works on its own, in short form: rows of `by`, `text` and `calls`."""
    spent: dict[str, float]
    """By ledger key, for all attempts of this plan."""
    unchanged: str
    """Why the step changed nothing although it had tools for writing, in the model's words; "" if it did."""
    silent_rounds: int
    """The longest series of rounds without anything new."""
    repeated: list[RepeatedRow]
    """Calls repeated although they returned the same result."""
    criteria: list[CriterionRow]


class ReplacedRow(TypedDict):
    """A step of an earlier plan of the same request that was not done and is not in the last plan."""

    id: str
    content: str
    status: StepStatus
    reason: str
    by: str
    """Who decided: `user` or `policy`."""
    instead: list[str]
    """Ids of the steps that replace it."""


class ApprovalRow(TypedDict):
    """A decision of a person or a policy."""

    kind: Literal["plan", "tool", "budget", "effect", "question", "run"]
    """What was asked; `run` if nothing was, and somebody named cancelled the run."""
    id: str
    decision: str
    text: str
    by: str
    """`user` for a person, or `policy`."""
    name: NotRequired[str]
    """Which person, if `by=` said so; of a policy `--yes`, if that option of the command decided."""
    answered_by: NotRequired[str]
    """Who alone was asked, if not everybody."""
    at: str
    thread: NotRequired[str]
    """The thread in which a person approved the schedule of this run."""
    revision: NotRequired[str]
    """The revision of the plan that was shown."""
    shown: NotRequired[list[str]]
    """The steps of the plan that was shown, unless it was approved as it was."""
    approved_revision: NotRequired[str]
    """The approved revision. It differs if the plan was edited, and in a schedule's run: its plan has no schedule."""
    changes: NotRequired[list[str]]
    """What an edit changed in the plan that was shown."""
    step: NotRequired[str | None]
    tool: NotRequired[str]
    again: NotRequired[bool]
    """True if the call had been made, and the question was whether to make it once more: `not_happened` is yes."""
    arguments: NotRequired[dict[str, Any]]
    """The exact arguments of the call."""
    edited: NotRequired[dict[str, Any]]
    """The arguments after a person's edit."""
    batch: NotRequired[list[dict[str, Any]]]
    """Calls of the same reply, decided together with it."""
    new: NotRequired[list[str]]
    """Values of these calls that had no source."""
    sources: NotRequired[list[dict[str, Any]]]
    """The arguments of the call that need a source, `{argument, value, source}`."""


class QuestionRow(TypedDict):
    """A question and its answer."""

    id: str
    question: str | None
    answer: str
    by: str
    """Who answered: `user` or `policy`."""
    name: NotRequired[str]
    """Which person, if `by=` said so."""
    assumed: bool
    """True if nobody answered, and the work continued with an assumption."""
    assumption: str
    """The assumption, from the step's result, or from the plan if the planner asked; "" if none was stated."""


class HeardRow(TypedDict):
    """What the user said while the run worked, with `tell`."""

    id: str
    text: str
    at: str
    step: str | None
    """The step that heard it first; None for planning, and for what came between steps."""
    name: NotRequired[str]
    """Which person, if `by=` said so."""


class LateRow(TypedDict):
    """What the user said when the work was done already; no prompt included it."""

    id: str
    text: str
    at: str
    name: NotRequired[str]
    """Which person, if `by=` said so."""


Result = Literal["done", "failed", "refused", "unknown", "repeated"]
"""What became of a call with effects."""
WHY_CHARS = 300
"""The most characters of why a call failed or was refused; the observation has all of it."""


class EffectRow(TypedDict):
    """A call that had an effect, or may have had one."""

    id: str
    tool: str
    arguments: dict[str, Any]
    ok: bool
    effect: Literal["write", "idempotent"]
    at: NotRequired[str]
    """When its outcome was saved, ISO 8601; missing if nothing was saved of it, and in older receipts."""
    result: NotRequired[Result]
    """What became of it. `refused`: it was never made. `repeated`: its outcome was unknown, and the equal call in
    `settled` counts for both. Older receipts lack it.
    """
    why: NotRequired[str]
    """If it failed or was refused: what its tool said, or who refused it and why, shortened."""
    by: NotRequired[Literal["user"]]
    """Set if a person said whether it took effect."""
    failed: NotRequired[bool | str]
    """If it was made and returned a failure: the words that say so, such as `exit_code 2`, or True. It may have changed
    something.
    """
    unknown: NotRequired[bool]
    """True if it began and its outcome is unknown; then `ok` is false, and `id` may be only the step's."""
    settled: NotRequired[list[str]]
    """Ids of the later observations that show whether it took effect, which nobody knew when it was made."""
    delegated: NotRequired[bool]
    """True if it handed the step to an executor that works on its own."""
    sources: NotRequired[list[dict[str, Any]]]
    """Where its arguments come from, `{argument, value, source}`; the source is None if there is none."""


class UndoneRow(TypedDict):
    """A change of a file that a person undid after the run."""

    id: str
    """The observation of the call that made it; prefixed with the request's number if earlier, such as `1:s2.3`."""
    path: str
    at: str


class FieldRow(TypedDict):
    """One value of the structured result, and its source."""

    path: str
    """Such as `offers[0].price`; "" if the result is a single value."""
    evidence: list[Evidence]
    """The observation or result with this value; empty if the value occurs in none verbatim, such as a sum."""


class OutputRow(TypedDict):
    """The structured result, if requested; the data itself is `output` in the outcome."""

    problem: str
    """Why it was not delivered; "" if it was."""
    fields: list[FieldRow]
    more: int
    """The number of values beyond the first thousand, which were not traced."""
    unsourced: NotRequired[list[str]]
    """The paths of numbers, dates and ids that stand in no observation, be they computed, concluded or made up."""


class SentenceRow(TypedDict):
    """A delivered sentence, and the judge's verdict on it."""

    n: int
    text: str
    shown: Literal["yes", "no", "contradicted"]
    by: list[str]
    """Ids of observations."""
    why: str


class SettledRow(TypedDict):
    """A change of unknown outcome that a later observation settled, as the judge found."""

    change: str
    """The id of its observation."""
    happened: bool
    by: list[str]
    """Ids of what was observed after it."""


class AuditRow(TypedDict):
    """A judge's verdict on the delivered text and the goal."""

    problem: str
    """Why a required audit was not possible; "" if it was made, or if the model cannot audit (`nobody`)."""
    met: Literal["yes", "part", "no", "declined", ""]
    """The judge's verdict on the goal; "" without an audit. `declined`: the instructions forbid it, or it rests on
    something untrue, and the text says so.
    """
    missing: list[str]
    """Missing parts of the goal."""
    sentences: list[SentenceRow]
    settled: NotRequired[list[SettledRow]]
    lacks: NotRequired[str]
    """The limit that left nothing for the judge, if that is the problem."""
    nobody: NotRequired[bool]
    """True if the judge's model cannot audit, such as the demo model; the run was not audited."""


class PlanRow(TypedDict):
    """The last plan's name and content hash."""

    title: str | None
    revision: str | None


class Receipt(TypedDict):
    """The receipt of a run: plan, work, claims, proofs, approvals, effects and cost."""

    goal: str
    status: Status
    code: str
    ended: NotRequired[str]
    """When the request ended: ISO 8601, UTC; older receipts lack it."""
    plan: PlanRow | None
    schedule: dict[str, Any] | None
    verification: Literal["claimed", "grounded", "audited", "judged"]
    criteria: list[CriterionRow]
    """The criteria of the goal, if the plan has several steps; verified when the answer was delivered."""
    evidence: NotRequired[list[Evidence]]
    """What an answer without a plan cites; older receipts lack it."""
    steps: list[StepRow]
    replaced: list[ReplacedRow]
    approvals: list[ApprovalRow]
    questions: list[QuestionRow]
    heard: NotRequired[list[HeardRow]]
    """What the user said to the working run; older receipts have it among the questions."""
    late: NotRequired[list[LateRow]]
    """What the user said too late."""
    modes: list[ModeRow]
    """The decisions about the mode; the last one counted."""
    effects: list[EffectRow]
    earlier: NotRequired[list[EffectRow]]
    """What requests did whose place this one took, with ids of request and step such as `1:s2`: what they changed
    stays changed, unless it was undone.
    """
    undone: NotRequired[list[UndoneRow]]
    """The changes that were undone after the run."""
    output: OutputRow | None
    """None if no structured result was requested."""
    audit: AuditRow | None
    """None if no audit was required."""
    looked: bool
    """True if anything was read, or the answer rests on what an earlier request read."""
    changed: bool
    """True if anything was changed, or may have been."""
    background: NotRequired[list[str]]
    """The texts added to the goal: `agents_md`, `context`, `memory`."""
    spent: dict[str, float]
    meter: list[MeterRow]


class Outcome(TypedDict):
    """The end of a run."""

    status: Status
    code: str
    """Why the run ended:

    - `answered`: answered without a plan.
    - `scheduled`: a recurring request was saved; nothing ran yet.
    - `worked`: all steps ended; their results decide the status.
    - `finished_early`: the rest of the plan was skipped.
    - `delivered_early`: results were delivered after a failed step.
    - `goal_not_met`: the audit found that something requested is missing.
    - `not_shown`: the audit found a statement without evidence.
    - `unaudited`: a required audit was not possible.
    - `declined`: the agent declined the request.
    - `bad_goal`: the request cannot be used, such as a blank one.
    - `no_plan`: planning produced no usable plan.
    - `model_error`: a model call failed.
    - `cancelled`: a person cancelled the run or rejected its plan.
    - `refused`: a hook refused the answer until the end.
    - `not_asked`: a hook refused a question of the run's own.
    - `unanswered`: the policy ended the run because no person answered.
    - `out_of_budget`: a limit or the deadline was reached, and the results so far were delivered.
    - `stopped`: the run was stopped at a limit.
    """
    text: str
    """The answer, for the user."""
    reason: str
    """For logs."""
    missing: list[str]
    """Missing parts of the goal, as the judge found them."""
    looked: bool
    """True if anything was read, or the answer rests on what an earlier request read."""
    changed: bool
    """True if anything was changed, or may have been."""
    output: NotRequired[Any]
    """The structured result, if one was requested and it fits the schema."""
    receipt: Receipt


def receipt(values: Mapping[str, Any], settings: Settings, status: Status, code: str) -> Receipt:
    """Return the receipt as JSON: what was planned, executed, claimed and verified."""
    plan, records = values.get("plan") or {}, values.get("steps") or {}
    journal = values.get("journal") or []
    whole: Receipt = {
        "goal": conceal(values.get("goal", "")),
        "status": status,
        "code": code,
        "plan": {"title": plan.get("title"), "revision": plan.get("revision")} if plan else None,
        "schedule": schedule_of(values),
        "verification": settings.verification,
        "criteria": criteria_rows(plan.get("done_when") or (), values.get("verdicts") or ()),
        "evidence": list((values.get("ending") or {}).get("evidence") or ()),
        "steps": [_step_row(step, record_of(records, step["id"]), journal) for step in plan.get("steps", ())],
        "replaced": replaced_rows(plan, records),
        "approvals": _approval_rows(values),
        "questions": [_question_row(e, plan, records) for e in journal if e["source"] == "user" and not e.get("heard")],
        "heard": [_heard_row(e) for e in journal if "at" in e.get("heard", ())],
        "late": late_rows(journal),
        "modes": list(values.get("modes") or ()),
        "effects": effect_rows(values),
        "output": values.get("output_row"),
        "audit": values.get("audit"),
        "looked": was_looked_at(values),
        "changed": was_changed(values),
        "background": [*(values.get("background") or ())],
        "spent": dict(values.get("spent") or {}),
        "meter": meter(values.get("spent"), settings.limits, values.get("granted")),
    }
    if earlier := displaced_rows(values):
        whole["earlier"] = earlier
    return whole


def was_looked_at(values: Mapping[str, Any]) -> bool:
    """Return whether anything was read, also by a check, or the answer rests on what an earlier request read.

    What a judge looks up to review the answer does not count.
    """
    plan, journal = values.get("plan") or {}, values.get("journal") or ()
    criteria = [
        *(plan.get("done_when") or ()),
        *(each for step in plan.get("steps") or () for each in criteria_of(step)),
    ]
    checks = {call_key(check["tool"], check["arguments"]) for each in criteria if (check := each.get("check"))}
    reads = (e for e in journal if e["effect"] == "read" and e.get("made", True))
    seen = any(e["source"] == "tool" or call_key(e["tool"], e["arguments"]) in checks for e in reads)
    return seen or bool((values.get("ending") or {}).get("earlier"))


def was_changed(values: Mapping[str, Any]) -> bool:
    """Return whether anything was changed, or may have been."""
    return any(row["ok"] or row.get("unknown") or row.get("failed") for row in _settled_rows(values))


def effect_rows(values: Mapping[str, Any]) -> list[EffectRow]:
    """Return the rows of all calls with effects, without secrets.

    An unknown outcome is settled if an equal call succeeded later, if a person said whether it happened, or if the
    judge found what was observed after it to show it. A call that was not made because a person said that an earlier
    one had taken effect is no row of its own.
    """
    rows, texts = _settled_rows(values), {entry["id"]: entry["text"] for entry in values.get("journal") or ()}
    for row in rows:
        row["arguments"] = redact_json(row["arguments"])
        if row["result"] in ("failed", "refused") and not (row.get("settled") or row.get("by")):
            row["why"] = redact(_why_failed(row, texts[row["id"]]))
        if "sources" in row:
            row["sources"] = redact_json(row["sources"])
    return rows


def displaced_rows(values: Mapping[str, Any]) -> list[EffectRow]:
    """Return the calls with effects of the requests whose place this one took."""
    return [_effect_row(call) for call in values.get("displaced") or () if call["by"] == values.get("turn", 1)]


def _why_failed(row: EffectRow, text: str) -> str:
    """Return the beginning of an error; of a failure that a call returned, its words and the end of the text."""
    if not (failed := row.get("failed")):
        return " ".join(text.split())[:WHY_CHARS]
    said = [failed] if isinstance(failed, str) else []
    printed = " ".join(" ".join(closing_lines(text)).split())[-WHY_CHARS:]
    return ": ".join([*said, *([printed] if printed else [])])


def _settled_rows(values: Mapping[str, Any]) -> list[EffectRow]:
    denied = denials(values.get("approvals") or ())
    rows: list[EffectRow] = []
    equal_rows: defaultdict[str, list[EffectRow]] = defaultdict(list)
    for call in values.get("journal") or ():
        if call["source"] != "tool" or call.get("effect") not in WRITES:
            continue
        row, key = _effect_row(call), call_key(call["tool"], call["arguments"])
        made = [each for each in equal_rows[key] if each["ok"] or each.get("unknown")]
        if (call.get("confirmed") or "made_at" in call) and made and not call.get("unknown"):
            _settle(made[-1], "done", [row["id"]], by_user=bool(call.get("confirmed")))
            continue
        if row["ok"]:
            for each in made:
                _settle(each, "repeated", [row["id"]])
        elif row.get("unknown") and denied[key]:
            denied[key] -= 1
            _settle(row, "failed", by_user=True)
        rows.append(row)
        equal_rows[key].append(row)
    for settlement in (values.get("audit") or {}).get("settled") or ():
        for row in (each for each in rows if each["id"] == settlement["change"]):
            _settle(row, "done" if settlement["happened"] else "failed", settlement["by"])
    return [*rows, *(_effect_row(_as_entry(call)) for call in values.get("unobserved") or ())]


def denials(approvals: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """Return how often a person said that a call did not happen, by the key of the call."""
    rows = [row for row in approvals if row["kind"] == "effect" and row["decision"] == "not_happened"]
    rows = [row for row in rows if not row.get("again")]
    return Counter(call_key(row["tool"], row["arguments"]) for row in rows)


def _effect_row(call: Mapping[str, Any]) -> EffectRow:
    """Return the row of a call with effects."""
    ok = not is_failure(call)
    row: EffectRow = {
        "id": call["id"],
        "tool": call["tool"],
        "arguments": call["arguments"],
        "ok": ok,
        "effect": call["effect"],
        "result": "done" if ok else "failed" if call.get("made", True) else "refused",
    }
    if at := call.get("made_at", call.get("at")):
        row["at"] = at
    if failed := call.get("failed"):
        row["failed"] = failed
    if call.get("unknown"):
        row["unknown"], row["result"] = True, "unknown"
    if call.get("confirmed"):
        row["by"] = "user"
    if call.get("delegated"):
        row["delegated"] = True
    if call.get("sources"):
        row["sources"] = call["sources"]
    return row


def _settle(row: EffectRow, result: Result, by: Sequence[str] = (), *, by_user: bool = False) -> None:
    """Write into the row what became of the call, if that was unknown; `by` are ids of observations that show it."""
    if not row.pop("unknown", False):
        return
    row["ok"], row["result"] = result == "done", result
    if by:
        row["settled"] = [*by]
    if by_user:
        row["by"] = "user"


def _as_entry(call: Mapping[str, Any]) -> Json:
    """Return a call that no step has observed in the form of an observation."""
    return {**call, "id": call["step"], "effect": call["kind"], "unknown": not call["ok"]}


def replaced_rows(plan: Mapping[str, Any], records: Mapping[str, StepRecord]) -> list[ReplacedRow]:
    """Return the steps of earlier plans of this request that were neither done nor kept."""
    ids = {step["id"] for step in plan.get("steps", ())}
    return [
        {
            "id": id,
            "content": record["replaced"]["content"],
            "status": record["status"],
            "reason": record["reason"],
            "by": record["replaced"]["by"],
            "instead": record["replaced"]["instead"],
        }
        for id, record in records.items()
        if id not in ids and record["replaced"]
    ]


def schedule_of(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schedule, if a person saw and approved one."""
    approved = (values.get("approval") or {}).get("plan") or {}
    return dict(approved["schedule"]) if approved.get("schedule") else None


def _approval_rows(values: Mapping[str, Any]) -> list[Any]:
    """Return the decisions, without credentials in what was said."""
    return [{**row, "text": conceal(row["text"])} for row in values.get("approvals") or ()]


def _question_row(entry: JournalEntry, plan: Mapping[str, Any], records: Mapping[str, StepRecord]) -> QuestionRow:
    asked = entry["arguments"]
    assumed = asked.get("by") == "policy" and not entry["ok"]
    assumption_text = plan.get("speak") if entry["step"] == PLANNING else record_of(records, entry["step"])["result"]
    row: QuestionRow = {
        "id": entry["id"],
        "question": conceal(asked["question"]) if asked.get("question") else None,
        "answer": conceal(entry["text"]),
        "by": asked.get("by", "user"),
        "assumed": assumed,
        "assumption": str(assumption_text or "") if assumed else "",
    }
    return {**row, "name": asked["name"]} if asked.get("name") else row


def _heard_row(entry: JournalEntry) -> HeardRow:
    return {**_late_row(entry), "step": entry["heard"].get("step")}


def late_rows(journal: Sequence[JournalEntry]) -> list[LateRow]:
    """Return what the user said that nobody heard."""
    return [_late_row(e) for e in journal if e.get("heard") and "at" not in e["heard"]]


def _late_row(entry: JournalEntry) -> LateRow:
    row: LateRow = {"id": entry["id"], "text": conceal(entry["text"]), "at": entry["at"]}
    return {**row, "name": entry["arguments"]["name"]} if entry["arguments"].get("name") else row


def criteria_rows(criteria: Sequence[Mapping[str, Any]], verdicts: Sequence[Mapping[str, Any]]) -> list[CriterionRow]:
    """Return the criteria with their verdicts; unverified if there is none."""
    by_number = {verdict["criterion"]: verdict for verdict in verdicts}
    rows: list[CriterionRow] = []
    for number, criterion in enumerate(criteria, 1):
        verdict = by_number.get(number, {})
        row: CriterionRow = {
            "criterion": number,
            "text": criterion["text"],
            "check": criterion.get("check"),
            "claimed": verdict.get("claimed"),
            "verdict": verdict.get("verdict", "unverified"),
            "evidence": verdict.get("evidence", []),
            "note": verdict.get("note", ""),
        }
        if by := verdict.get("by"):
            row["by"] = by
        rows.append(row)
    return rows


def _step_row(step: Mapping[str, Any], record: StepRecord, journal: Sequence[JournalEntry]) -> StepRow:
    transcript = [row for e in journal if e["step"] == step["id"] for row in e.get("transcript") or ()]
    row: StepRow = {
        "id": step["id"],
        "content": step["content"],
        "status": record["status"],
        "reason": record["reason"],
        "result": record["result"],
        "rounds": record["rounds"],
        "started": record["started"],
        "ended": record["ended"],
        "spent": dict(record["spent"]),
        "unchanged": record["unchanged"],
        "silent_rounds": record["silent_most"],
        "repeated": redact_json(repeated_calls(journal, step["id"])),
        "criteria": criteria_rows(criteria_of(step), record["verdicts"]),
    }
    if step.get("executor"):
        row["executor"] = step["executor"]
    if transcript:
        row["transcript"] = redact_json(transcript)
    return row
