"""The state of a run in checkpoints, as JSON and messages: every key, who writes it, and how writes combine."""

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
"""The version of the stored state; see `state/versions.py`."""

GOAL = "goal"
"""The step name in observations that prove the goal itself: `goal.1` …"""
PLANNING = "p"
"""The step name in observations of planning: `p.1`, `p.2` …"""


SAID = "said_"
"""The id prefix of messages in which planner and steps speak while they work; models are not shown them again."""


class RunInput(TypedDict, total=False):
    """The input of a run: the user's message. Nothing else is read from outside."""

    messages: Messages


class RunOutput(TypedDict, total=False):
    """The output that clients show."""

    messages: Messages
    todos: list[Json]
    files: Files
    plan: Json | None
    outcome: Json | None


class RunState(TypedDict, total=False):
    """One thread: the conversation is kept, everything else belongs to the current request."""

    messages: Messages
    version: int
    turn: int
    """The number of the request on the thread; part of every effect's key."""
    fence: SeldomText
    """A random word for this thread that marks the tags around foreign text."""
    goal: SeldomText
    request: SeldomText
    """The id of the message with the goal."""
    language: str
    """The language of the runtime's texts for the user."""
    output_schema: SeldomDict
    """The JSON Schema of the structured result, if one is requested."""
    attachments: SeldomList
    """Images and files of the conversation, `{key, type, chars}`; their data is in the store, if there is one."""
    before: SeldomList
    """Observations of earlier requests, by ids such as `1:s2.3`, bounded; they can be recalled."""
    conversation: SeldomText
    """The conversation before the request, bounded; for planning."""
    background: SeldomDict
    """The application's `context` and `memory` for the request, as texts."""
    plan: SeldomDict
    planning: Annotated[PlanningRecord, SELDOM]
    steps: StepRecords
    journal: Journal
    transcripts: Transcripts
    """Rounds of planning and of waiting steps, kept to continue them."""
    claims: Claims
    """Short keys of all writes of finished steps, in all requests of this branch; see `graph/tools/effects.py`."""
    spent: Annotated[Amounts, add]
    granted: Annotated[Amounts, add]
    pending: Pause | None
    approval: Annotated[Approval, SELDOM]
    """The approved plan."""
    approvals: Entries
    """All decisions of people about plans, calls, budgets and effects; for the receipt."""
    modes: Entries
    """The decisions about the mode, as `ModeRow`s; the last one counts."""
    heard: str
    """The last interjection that the journal includes."""
    feedback: str | None
    ending: Ending | None
    """The ending of the run, once it is decided."""
    outcome: Json | None
    todos: Rows
    files: Files


class PlanningOutput(TypedDict, total=False):
    """The output of `plan` for the run."""

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
    """The checkpointed state of `plan` while it works."""

    id: str
    """The id of the planning: the key of its rounds."""
    transcript: Transcript
    """The rounds since it was dispatched; if shortened, all rounds after the note about earlier ones."""


class Planning(PlanningStored, total=False):
    """The state of `plan`: what is stored, and its inputs from the run."""

    brief: Json
    asked: list[JournalEntry]
    """The user's answers in this run."""
    begun: dict[str, str]
    """Started and unfinished steps, id → content."""
    allowance: Amounts
    known: list[JournalEntry]
    """Observations of planning in this run so far."""
    turn: int
    run: Json
    """The run's state when planning was dispatched, for the audit."""
    attachments: list[Json]
    account: Json
    """The run's account when planning starts: `granted`, `spent`, and the steps that are `done`."""
    earlier: list[AnyMessage]
    """Its rounds before it was dispatched again."""


class StepOutput(TypedDict, total=False):
    """The output of `execute` for the run."""

    claims: Claims
    """Written when the step is done."""
    messages: Messages
    """The step's messages to people."""
    journal: Journal
    spent: Annotated[Amounts, add]
    steps: StepRecords
    transcripts: Transcripts
    files: Files


class StepStored(StepOutput, total=False):
    """The checkpointed state of `execute` while a step works."""

    id: str
    transcript: Transcript
    """The rounds since it was dispatched; if shortened, all rounds after the note about earlier ones."""
    record: Annotated[StepRecord, FIELDS]
    decision: Json | None
    """The decision of the last reply, until it is carried out."""
    wrote: Claims
    """Short keys of writes with a known outcome since the step was dispatched."""


class Step(StepStored, total=False):
    """The state of `execute`: what is stored, and the step's inputs from the run (K7)."""

    fence: str
    step: Json
    alone: bool
    """True if its executor works on its own."""
    conversation: str
    """The conversation with its executor that it continues; "" is the thread's."""
    goal: str
    turn: int
    language: str
    granted_tools: list[str]
    """Tools that the approved plan allows without asking."""
    promotable: list[str]
    """Reasons for which the step leaves so that the run gets a plan; see `state/plan/planning.py`."""
    heard: str
    """The last interjection that the brief includes."""
    last: bool
    """True if it is the last open step of the plan."""
    brief: str
    attachments: list[Json]
    known: list[JournalEntry]
    """Citable observations: earlier ones of this step, and those of its dependencies."""
    before: list[JournalEntry]
    """Observations of earlier requests, which can be recalled but not cited."""
    asked: list[JournalEntry]
    """The user's answers in this run, to any step."""
    rejected: dict[str, str]
    """Calls that a person rejected, in any step of this request, with the reasons."""
    claimed: list[str]
    """Short keys of accounted writes: of finished steps, and of others that work or wait."""
    earlier: list[AnyMessage]
    """Its rounds before it was dispatched again."""
    length: Any
    call_history: Any
    """Caches what is computed from the journal while the step works."""
    known_targets: Any
    """Returns the `KnownTargets` of the run, collected on first use."""
    begun: set[str]
    """The first round that this process started or continued."""
    allowance: Amounts
    run: Json
    """The run's state when the step was dispatched, for the audit."""


def changed_todos(before: Sequence[Json], rows: list[Json]) -> Any:
    """Return the changed rows of the checklist; all rows for another plan."""
    if [row["id"] for row in before] != [row["id"] for row in rows]:
        return Overwrite(rows)
    return [row for row, old in zip(rows, before, strict=True) if row != old]
