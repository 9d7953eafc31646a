"""The shape of a run in checkpoints: JSON and messages. Every key, who writes it, and how writes combine."""

from collections.abc import Mapping
from typing import Annotated, Any

from langchain_core.messages import AnyMessage
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from donewhen.state.channels import (
    Claims,
    Journal,
    SeldomDict,
    SeldomList,
    SeldomText,
    StepRecords,
    Transcript,
    Transcripts,
    merge,
)
from donewhen.state.ledger import Amounts, add

VERSION = 1
"""Of the stored state; see `state/versions.py`."""

Json = dict[str, Any]
GOAL = "goal"
"""Stands for the step in what proves the goal itself, at delivery: `goal.1` …"""
Modes = Annotated[list[Json], lambda left, right: [*(left or []), *(right or [])]]
PLANNING = "p"
"""Stands for the step in the ids of what planning observed: `p.1`, `p.2` …"""


class RunInput(TypedDict, total=False):
    """What starts a run: the user's message. Nothing else is read from outside."""

    messages: Annotated[list[AnyMessage], add_messages]


class RunOutput(TypedDict, total=False):
    """What clients show."""

    messages: Annotated[list[AnyMessage], add_messages]
    todos: list[Json]
    files: Annotated[dict[str, str], merge]
    plan: Json | None
    outcome: Json | None


class RunState(TypedDict, total=False):
    """One thread: the conversation stays, everything else is about the request worked on now."""

    messages: Annotated[list[AnyMessage], add_messages]
    version: int
    turn: int
    """Counts the requests of this thread; part of every effect's key."""
    fence: SeldomText
    """A word drawn for this thread, which the tags around foreign text carry: no text can know it."""
    goal: SeldomText
    language: str
    """In which the runtime speaks to the user, of those it has texts of."""
    output_schema: SeldomDict
    """JSON Schema of the result, where it is wanted as data."""
    attachments: SeldomList
    """Images and files of the conversation, `{key, type, chars}`; their data stands in the store, if there is one."""
    conversation: SeldomText
    """What was said on this thread before the request, bounded; for planning."""
    plan: SeldomDict
    planning: Json
    """The planner's record: phase, rounds, corrections, proposal, feedback and failure it works from."""
    steps: StepRecords
    journal: Journal
    transcripts: Transcripts
    """Rounds of the planner and of steps that wait; kept so that they go on where they were."""
    claims: Claims
    """Of every write of a step that is done, in all requests of this branch; see `graph/tools/effects.py`."""
    spent: Annotated[Amounts, add]
    granted: Annotated[Amounts, add]
    pending: Json | None
    approval: SeldomDict
    """What a person (or policy) approved: revision, tools per step, by whom."""
    approvals: Annotated[list[Json], lambda left, right: [*(left or []), *(right or [])]]
    """Every decision of a person about a plan, a call, a budget or an effect; for the receipt."""
    modes: Modes
    """How much was made of the request, by whom and why: `ModeRow`s, the last one holds."""
    feedback: str | None
    ending: Json | None
    """How the run must end, once that is decided: code and reason. `deliver` reads it."""
    outcome: Json | None
    todos: SeldomList
    files: Annotated[dict[str, str], merge]


class Planning(TypedDict, total=False):
    """The two phases of `plan`."""

    version: int
    brief: SeldomDict
    planning: Json
    asked: SeldomList
    """What the user answered in this run."""
    approval: Json | None
    kept_steps: SeldomDict
    begun: SeldomDict
    """Steps that were begun and are not finished, id → content."""
    allowance: SeldomDict
    attachments: SeldomList
    known: SeldomList
    """What planning observed in this run so far."""
    turn: int
    account: SeldomDict
    """How the run stands when planning starts: `granted`, `spent`, and the steps that are `done`."""
    transcript: Transcript
    kept: int
    messages: Annotated[list[AnyMessage], add_messages]
    plan: Json | None
    pending: Json | None
    ending: Json | None
    spent: Annotated[Amounts, add]
    transcripts: Transcripts
    journal: Journal
    modes: Modes


class PlanningOutput(TypedDict, total=False):
    """What `plan` leaves in the run."""

    messages: Annotated[list[AnyMessage], add_messages]
    planning: Json
    approval: Json | None
    plan: Json | None
    pending: Json | None
    ending: Json | None
    spent: Annotated[Amounts, add]
    transcripts: Transcripts
    journal: Journal
    modes: Modes


class Step(TypedDict, total=False):
    """One step at work: `execute` starts with the first keys, up to `record`, and leaves the rest."""

    version: int
    fence: SeldomText
    step: SeldomDict
    conversation: SeldomText
    """Which conversation with its executor it goes on with; "" is the one of the thread."""
    goal: SeldomText
    turn: int
    language: SeldomText
    granted_tools: SeldomList
    """What the approved plan allows this step to call without asking."""
    promotable: SeldomList
    """For what the step leaves so that the run gets a plan: see `state/plan/modes.py`."""
    brief: SeldomText
    attachments: SeldomList
    known: SeldomList
    """Observations that may be cited: earlier ones of this step, and those of steps it depends on."""
    asked: SeldomList
    """What the user answered in this run, to whichever step."""
    rejected: SeldomDict
    """Calls that a person refused, in whichever step of this request, and why."""
    claimed: SeldomList
    """Of the writes that are accounted for: of steps that are done, and of others that are at work or wait."""
    transcript: Transcript
    kept: int
    """How many messages of the transcript the run has already."""
    allowance: SeldomDict
    record: Json
    decision: Json | None
    """What the last reply decided and nobody acted on yet."""
    wrote: Claims
    """Of the writes that the step has made since it was sent off, and whose outcome is known."""
    claims: Claims
    """What it leaves in the run when it is done."""
    journal: Journal
    spent: Annotated[Amounts, add]
    steps: StepRecords
    transcripts: Transcripts
    files: Annotated[dict[str, str], merge]


class StepOutput(TypedDict, total=False):
    """What `execute` leaves in the run."""

    claims: Claims
    journal: Journal
    spent: Annotated[Amounts, add]
    steps: StepRecords
    transcripts: Transcripts
    files: Annotated[dict[str, str], merge]


TODO = {"done": "completed", "running": "in_progress", "waiting": "in_progress", "ready": "in_progress"}


def todos(plan: Mapping[str, Any] | None, steps: Mapping[str, Mapping[str, Any]]) -> list[Json]:
    """The checklist in the shape clients draw: pending, in_progress, completed; other ends are said in words."""
    rows = []
    for step in (plan or {}).get("steps", ()):
        status = steps.get(step["id"], {}).get("status", "pending")
        ended = status in ("failed", "blocked", "skipped", "exhausted")
        content = f"{step['content']} ({status})" if ended else step["content"]
        rows.append({"id": step["id"], "content": content, "status": TODO.get(status, "pending")})
    return rows
