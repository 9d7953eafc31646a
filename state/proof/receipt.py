"""The shape of a receipt: what a person, or a program, needs to check a run. JSON; kept in the outcome."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from donewhen.state.ledger import MeterRow
from donewhen.state.proof.goal_check import Verdict
from donewhen.state.records import ModeRow, StepStatus

Status = Literal["completed", "partial", "failed", "cancelled", "exhausted"]


class Evidence(TypedDict):
    """An observation, and the words in it that prove something."""

    observation: str
    """Its id, such as `s2.3`; `recall`, the journal in state and `donewhen show` have the text."""
    quote: NotRequired[str]
    before: NotRequired[bool]
    """Meant as it was before what it describes was changed."""
    part: NotRequired[bool]
    """The model saw a part of it only."""


class CriterionRow(TypedDict):
    """One criterion: planned, claimed, verified."""

    criterion: int
    """From 1."""
    text: str
    check: dict[str, Any] | None
    """As approved: `{tool, arguments, expect}`."""
    claimed: bool | None
    """The model's word; None if it never claimed."""
    verdict: Verdict
    evidence: list[Evidence]
    note: str
    """The word of the check or the judge, or the reason why evidence was missing."""


class RepeatedRow(TypedDict):
    """A call that gave the same result several times in a row."""

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
    """In the model's words; what proves it stands in `criteria`."""
    rounds: int
    started: str
    """ISO 8601, UTC; "" for a step that was never set to work, and `ended` for one that has not ended."""
    ended: str
    executor: NotRequired[str]
    """The executor that worked on it; the default one if there is none."""
    transcript: NotRequired[list[dict[str, Any]]]
    """The words of an executor that works by itself, in short: rows of `by`, `text` and `calls`."""
    spent: dict[str, float]
    """By ledger key, all attempts of this plan together."""
    unchanged: str
    """Why nothing was changed though tools for that were granted, in the model's words; "" where something was."""
    silent_rounds: int
    """The longest row of rounds that brought nothing new."""
    repeated: list[RepeatedRow]
    """Calls that were made again though they gave the same result."""
    criteria: list[CriterionRow]


class ReplacedRow(TypedDict):
    """A step of an earlier plan of the same request that was not done and is not in the last plan."""

    id: str
    content: str
    status: StepStatus
    reason: str
    by: str
    """Decided by: user or policy."""
    instead: list[str]
    """Ids of the steps that the plan got in its place."""


class ApprovalRow(TypedDict):
    """A decision of a person or a policy."""

    kind: Literal["plan", "tool", "budget", "effect", "question"]
    id: str
    decision: str
    text: str
    by: str
    at: str
    revision: NotRequired[str]
    """The revision of the plan that was shown."""
    approved_revision: NotRequired[str]
    """The revision of the plan that was approved; another one if it was edited."""
    step: NotRequired[str | None]
    tool: NotRequired[str]
    arguments: NotRequired[dict[str, Any]]
    """Of the call that was decided about, exactly."""
    edited: NotRequired[dict[str, Any]]
    """The arguments that a person gave it instead."""
    batch: NotRequired[list[dict[str, Any]]]
    """Calls of the same reply that were decided about with it."""
    new: NotRequired[list[str]]
    """Targets of these calls that nobody knew of before."""


class QuestionRow(TypedDict):
    """A question and its answer."""

    id: str
    question: str | None
    answer: str
    by: str
    """Answered by: user or policy."""
    assumed: bool
    """True if nobody answered, and the work went on by an assumption."""
    assumption: str
    """What was assumed, in the words of the step's result, or of the plan if the planner asked; "" if nobody said."""


class EffectRow(TypedDict):
    """A call that changed something, or may have."""

    id: str
    tool: str
    arguments: dict[str, Any]
    ok: bool
    effect: Literal["write", "idempotent"]
    unknown: NotRequired[bool]
    """True if it began and its outcome is unknown; `ok` is false then, and `id` may be the step's alone."""


class FieldRow(TypedDict):
    """One value of the data that was delivered, and where it comes from."""

    path: str
    """Such as `offers[0].price`; "" where the data is that value."""
    evidence: list[Evidence]
    """The observation or result in which it stands; empty for what stands nowhere as it is, such as a sum."""


class OutputRow(TypedDict):
    """The result as data, where that was asked for; the data itself is `output` in the outcome."""

    problem: str
    """The problem for which it was not delivered; "" if it was."""
    fields: list[FieldRow]
    more: int
    """Values beyond the first thousand, which were not looked up."""


class SentenceRow(TypedDict):
    """A sentence that was delivered, and what a judge said of it."""

    n: int
    text: str
    shown: Literal["yes", "no", "contradicted"]
    by: list[str]
    """Ids of observations."""
    why: str


class AuditRow(TypedDict):
    """A judge's verdict on the text that was delivered, and on the goal."""

    problem: str
    """Why there was no audit, where one was due; "" where there was one, or nobody who could make it (`nobody`)."""
    met: Literal["yes", "part", "no", ""]
    """Whether the user has what they asked for; "" without an audit."""
    missing: list[str]
    """Of what they asked for."""
    sentences: list[SentenceRow]
    nobody: NotRequired[bool]
    """The model of the role cannot judge, as the demo model cannot: nobody audited the run."""


class PlanRow(TypedDict):
    """The last plan's name and content hash."""

    title: str | None
    revision: str | None


class Receipt(TypedDict):
    """What was planned, executed, claimed and verified, who approved it, what it did and what it cost."""

    goal: str
    status: Status
    code: str
    plan: PlanRow | None
    schedule: dict[str, Any] | None
    verification: Literal["claimed", "grounded", "audited", "judged"]
    criteria: list[CriterionRow]
    """The goal's own, of a plan of several steps; proven when the answer was delivered."""
    steps: list[StepRow]
    replaced: list[ReplacedRow]
    approvals: list[ApprovalRow]
    questions: list[QuestionRow]
    modes: list[ModeRow]
    """How much was made of the request, by whom and why; the last one held."""
    effects: list[EffectRow]
    output: OutputRow | None
    """None where no data was asked for."""
    audit: AuditRow | None
    """None where none was due."""
    looked: bool
    """True if anything was looked at."""
    changed: bool
    """True if anything was changed, or may have been."""
    spent: dict[str, float]
    meter: list[MeterRow]


class Outcome(TypedDict):
    """The end of a run."""

    status: Status
    code: str
    """The terminal reason, one of `state/proof/outcome.py`."""
    text: str
    """The answer, for the user."""
    reason: str
    """For logs."""
    missing: list[str]
    """What the user asked for and does not have, as a judge says."""
    looked: bool
    """True if anything was looked at; `changed`: if anything was changed, or may have been."""
    changed: bool
    output: NotRequired[Any]
    """The result as data, where that was asked for and what came fits."""
    receipt: Receipt
