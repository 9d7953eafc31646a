"""The shape of a run in checkpoints: JSON and messages. Every key, who writes it, and how writes combine."""

from collections.abc import Sequence
from typing import Annotated, Any

from langchain_core.messages import AnyMessage
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from donewhen.state.channels import (
    FIELDS,
    SELDOM,
    Claims,
    Entries,
    Files,
    Journal,
    Messages,
    Rows,
    SeldomDict,
    SeldomList,
    SeldomText,
    StepRecords,
    Transcript,
    Transcripts,
)
from donewhen.state.ledger import Amounts, add
from donewhen.state.records import Approval, Ending, JournalEntry, Pause, PlanningRecord, StepRecord
from donewhen.state.values import Json as Json

VERSION = 3
"""Of the stored state; see `state/versions.py`."""

GOAL = "goal"
"""Stands for the step in what proves the goal itself, at delivery: `goal.1` …"""
PLANNING = "p"
"""Stands for the step in the ids of what planning observed: `p.1`, `p.2` …"""


SAID = "said_"
"""How ids of messages begin in which planner and steps speak as they work; no model is shown them again."""


class RunInput(TypedDict, total=False):
    """What starts a run: the user's message. Nothing else is read from outside."""

    messages: Messages


class RunOutput(TypedDict, total=False):
    """What clients show."""

    messages: Messages
    todos: list[Json]
    files: Files
    plan: Json | None
    outcome: Json | None


class RunState(TypedDict, total=False):
    """One thread: the conversation stays, everything else is about the request worked on now."""

    messages: Messages
    version: int
    turn: int
    """Counts the requests of this thread; part of every effect's key."""
    fence: SeldomText
    """A word drawn for this thread, which the tags around foreign text carry: no text can know it."""
    goal: SeldomText
    request: SeldomText
    """The id of the message that the goal was read from."""
    language: str
    """In which the runtime speaks to the user, of those it has texts of."""
    output_schema: SeldomDict
    """JSON Schema of the result, where it is wanted as data."""
    attachments: SeldomList
    """Images and files of the conversation, `{key, type, chars}`; their data stands in the store, if there is one."""
    before: SeldomList
    """What earlier requests of the thread observed, by ids such as `1:s2.3`, bounded: it can be recalled."""
    conversation: SeldomText
    """What was said on this thread before the request, bounded; for planning."""
    background: SeldomDict
    """What the application handed in for the request: `context` and `memory`, as texts."""
    plan: SeldomDict
    planning: Annotated[PlanningRecord, SELDOM]
    steps: StepRecords
    journal: Journal
    transcripts: Transcripts
    """Rounds of the planner and of steps that wait; kept so that they go on where they were."""
    claims: Claims
    """Of every write of a step that is done, in all requests of this branch; see `graph/tools/effects.py`."""
    spent: Annotated[Amounts, add]
    granted: Annotated[Amounts, add]
    pending: Pause | None
    approval: Annotated[Approval, SELDOM]
    """The approved plan."""
    approvals: Entries
    """Every decision of a person about a plan, a call, a budget or an effect; for the receipt."""
    modes: Entries
    """How much was made of the request, by whom and why: `ModeRow`s, the last one holds."""
    heard: str
    """Up to where the journal has what the user said while the run worked."""
    feedback: str | None
    ending: Ending | None
    """How the run must end, once that is decided."""
    outcome: Json | None
    todos: Rows
    files: Files


class PlanningOutput(TypedDict, total=False):
    """What `plan` leaves in the run."""

    messages: Messages
    planning: PlanningRecord
    approval: Approval | None
    plan: Json | None
    pending: Pause | None
    ending: Ending | None
    spent: Annotated[Amounts, add]
    transcripts: Transcripts
    journal: Journal
    modes: Entries
    language: str


class PlanningStored(PlanningOutput, total=False):
    """What `plan` itself keeps in checkpoints while it is at work."""

    id: str
    """Of the planning: the key of its rounds."""
    transcript: Transcript
    """The rounds since it was sent off; behind a note of earlier ones, all that it is shown."""


class Planning(PlanningStored, total=False):
    """The two phases of `plan`: what is stored, and what is read from the run when they start or go on."""

    brief: Json
    asked: list[JournalEntry]
    """What the user answered in this run."""
    begun: dict[str, str]
    """Steps that were begun and are not finished, id → content."""
    allowance: Amounts
    known: list[JournalEntry]
    """What planning observed in this run so far."""
    turn: int
    run: Json
    """The state of the run when planning was sent off, for the audit."""
    attachments: list[Json]
    account: Json
    """How the run stands when planning starts: `granted`, `spent`, and the steps that are `done`."""
    earlier: list[AnyMessage]
    """Its rounds before it was sent off again."""


class StepOutput(TypedDict, total=False):
    """What `execute` leaves in the run."""

    claims: Claims
    """Left when the step is done."""
    messages: Messages
    """What the step said to people."""
    journal: Journal
    spent: Annotated[Amounts, add]
    steps: StepRecords
    transcripts: Transcripts
    files: Files


class StepStored(StepOutput, total=False):
    """What `execute` itself keeps in checkpoints while a step is at work."""

    id: str
    transcript: Transcript
    """The rounds since it was sent off; behind a note of earlier ones, all that it is shown."""
    record: Annotated[StepRecord, FIELDS]
    decision: Json | None
    """What the last reply decided and nobody acted on yet."""
    wrote: Claims
    """Of the writes that the step has made since it was sent off, and whose outcome is known."""


class Step(StepStored, total=False):
    """One step at work: what is stored, and what is read from the run when it starts or goes on (K7)."""

    fence: str
    step: Json
    alone: bool
    """Whether its executor works by itself."""
    conversation: str
    """Which conversation with its executor it goes on with; "" is the one of the thread."""
    goal: str
    turn: int
    language: str
    granted_tools: list[str]
    """What the approved plan allows this step to call without asking."""
    promotable: list[str]
    """For what the step leaves so that the run gets a plan: see `state/plan/planning.py`."""
    heard: str
    """Up to where the brief has what the user said while the run worked."""
    last: bool
    """Whether no other step of the plan is left."""
    brief: str
    attachments: list[Json]
    known: list[JournalEntry]
    """Observations that may be cited: earlier ones of this step, and those of steps it depends on."""
    before: list[JournalEntry]
    """What earlier requests of the thread observed: to be recalled, not cited."""
    asked: list[JournalEntry]
    """What the user answered in this run, to whichever step."""
    rejected: dict[str, str]
    """Calls that a person refused, in whichever step of this request, and why."""
    claimed: list[str]
    """Of the writes that are accounted for: of steps that are done, and of others that are at work or wait."""
    earlier: list[AnyMessage]
    """Its rounds before it was sent off again."""
    length: Any
    call_history: Any
    """What is worked out once of the transcript, and of what may be cited, while the step is at work."""
    known_targets: Any
    """A function that gives the `KnownTargets` of the run, gathered once when they are first needed."""
    begun: set[str]
    """Filled with the round that this process began or went on with first."""
    allowance: Amounts
    run: Json
    """The state of the run when the step was sent off, for the audit."""


def changed_todos(before: Sequence[Json], rows: list[Json]) -> Any:
    """Return what to write of the checklist: the rows that changed; all of them for another plan."""
    if [row["id"] for row in before] != [row["id"] for row in rows]:
        return Overwrite(rows)
    return [row for row, old in zip(rows, before, strict=True) if row != old]
