"""The events of a run: a typed union, with a JSON schema for programs in other languages."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Discriminator, TypeAdapter
from typing_extensions import TypedDict

from donewhen.state.channels import Json
from donewhen.state.ledger import MeterRow
from donewhen.state.proof.receipt import SentenceRow, SettledRow, Status
from donewhen.state.records import Mode, Pause, PauseKind, StepStatus


class Placed(TypedDict):
    """The position of an event; all events have these fields."""

    thread_id: str
    turn: int
    """The number of the request on the thread, from 1."""
    seq: int
    """Greater than that of any earlier event of the thread, in any process; but streams in which nothing changes begin
    and end with the same two numbers. An event has the same in every stream and in `watch`, so use it as a cursor."""
    after: int
    """The `seq` of the last stored event before this one, or 0. If you have that event, or a later one, you missed only
    events that are not stored, such as pieces of speech."""


class Started(Placed):
    """The first event of each stream of an agent; streams of its graph have none."""

    type: Literal["started"]
    goal: str


class Goal(Placed):
    """The goal of the request, cut at 2,000 characters."""

    type: Literal["goal"]
    text: str
    message: str
    """The id of the message that began the request."""


class Note(Placed):
    """A notice for people, such as a fallback, a limit, or a lack of progress."""

    type: Literal["note"]
    text: str


class ModeChosen(Placed):
    """The mode of the request, who chose it, and why; sent again when a step becomes a plan."""

    type: Literal["mode"]
    mode: Mode
    by: str
    reason: str


class Decided(Placed):
    """The decision in a reply of the planner (`step` None) or of a step: `submit_plan`, `calls`, `finish_step` …"""

    type: Literal["decision"]
    step: str | None
    kind: str
    tools: list[str]
    """The tools of a decision of kind `calls`."""


class Thinking(Placed):
    """A piece of the model's reasoning, if the provider returns it. It is not part of any message or evidence."""

    type: Literal["thinking"]
    step: str | None
    text: str


class Stalled(Placed):
    """The model has sent nothing for this many seconds; repeated while this lasts. The request is still open."""

    type: Literal["stalled"]
    step: str | None
    seconds: float


class Speech(Placed):
    """A piece of text from the planner (`step` None) or a step; the pieces of one `argument` join to the exact text.

    `watch` yields the whole text of a message at once, under the same `id`.
    """

    type: Literal["speech"]
    step: str | None
    text: str
    id: str
    """The id of the message, the same on `messages` and, if it is kept, in state."""
    answer: NotRequired[bool]
    """True for a piece of the answer, which the outcome contains in full."""
    argument: NotRequired[str]
    """The argument of the decision that holds this text: `answer.text`, `ask_user.question`, `submit_plan.speak`,
    `finish_step.result`, `finish_task.result`; "" for prose. Other events report the decision itself.
    """


class SpeechRestarted(Placed):
    """Discard the speech of an interrupted or rejected reply; it may be sent again from the start."""

    type: Literal["speech_restarted"]
    step: str | None
    id: str
    """The id of the discarded message; its replacement has a new one."""
    argument: NotRequired[str]
    """If set, discard only the speech of this argument; otherwise only the prose."""


class Planned(Placed):
    """A plan was proposed; `plan` is a `PlanJson`."""

    type: Literal["plan"]
    plan: Json


class Revised(Placed):
    """A plan was approved and becomes active; `plan` is a `PlanJson`."""

    type: Literal["revision"]
    revision: str
    by: str
    """`user` or `policy`."""
    plan: Json


class Asked(Placed):
    """A question to a person. `waiting`, or the interrupt on LangGraph's server, lists every open one by id."""

    type: Literal["question"]
    kind: PauseKind
    step: str | None
    question: str
    options: list[str]
    problem: str
    """What is missing in the last answer, or wrong with it; "" if none was given."""
    tool_call_id: str
    """The tool call that shows the question in the conversation."""


class Heard(Placed):
    """What the user said while the run worked (`tell`) was heard: a round of planning or of a step includes it now."""

    type: Literal["heard"]
    step: str | None
    """The step whose round was the first to include it; None for planning, and for what comes between steps."""
    text: str
    at: str
    """When it was said, ISO 8601, UTC."""
    name: NotRequired[str]
    """Who said it, if `by=` named them."""


class Late(Placed):
    """What the user said while the run worked (`tell`) came too late: the run ended before a prompt had it."""

    type: Literal["late"]
    text: str
    at: str
    """When it was said, ISO 8601, UTC."""
    name: NotRequired[str]
    """Who said it, if `by=` named them."""


class Todos(Placed):
    """The current checklist: rows of id, content and status."""

    type: Literal["todos"]
    todos: list[Json]


class StepStarted(Placed):
    """A step begins; `content` is what it has to do."""

    type: Literal["step_started"]
    step: str
    content: str


class ToolStarted(Placed):
    """A call begins; credentials in its arguments are redacted."""

    type: Literal["tool_started"]
    id: str
    """The id of the observation that will have the result."""
    step: str | None
    tool: str
    arguments: Json
    diffs: NotRequired[dict[str, str]]
    """By argument, the unified diff to the text that it replaces, without its header."""


class Observed(Placed):
    """The result of a call, cut at 300 characters."""

    type: Literal["observation"]
    id: str
    step: str
    tool: str
    ok: bool
    seconds: float
    text: str
    made: NotRequired[Literal[False]]
    """Set if the call was refused, so that no `tool_started` came before."""
    failed: NotRequired[bool | str]
    """Set if the call was made and returned a failure: the words that say so, such as `exit_code 2`, or True."""
    last_lines: NotRequired[list[str]]
    """If it is not `ok`: the last lines of what it returned."""


class Correction(Placed):
    """A reply was unusable, and the model was told why; `step` is None for all but a step's own reply."""

    type: Literal["correction"]
    step: str | None
    text: str


class Verdicts(Placed):
    """Verdicts on a step's criteria, or the goal's (`step` None): `{criterion, text, verdict, evidence, note}`."""

    type: Literal["verdicts"]
    step: str | None
    accepted: bool
    verdicts: list[Json]


class Audited(Placed):
    """A judge's verdicts on every sentence of the answer or of a step's result, and on the goal."""

    type: Literal["audit"]
    step: str | None
    problem: str
    met: str
    missing: list[str]
    sentences: list[SentenceRow]
    settled: NotRequired[list[SettledRow]]


class StepFinished(Placed):
    """A step ended; `reason` says why it did not end as `done`."""

    type: Literal["step_finished"]
    step: str
    status: StepStatus
    result: str
    reason: str


class Charged(Placed):
    """The spending since the last such event, by ledger key; `spent` has the totals."""

    type: Literal["charged"]
    step: str | None
    spent: dict[str, float]


class Spent(Placed):
    """The run's total spending, with its limits."""

    type: Literal["spent"]
    meter: list[MeterRow]


class Custom(Placed):
    """A value that a tool wrote to the stream with LangGraph's `get_stream_writer`, as JSON."""

    type: Literal["custom"]
    data: Any


class Waiting(Placed):
    """The last event of a stream if the run waits for a person; `run` is `Run.to_dict()`."""

    type: Literal["waiting"]
    pending: list[Pause]
    problem: str
    """What is missing in the last answer, or wrong with it."""
    run: Json


class Ended(Placed):
    """The last event of a finished run, or of a stream that was stopped (`running`)."""

    type: Literal["outcome"]
    status: Status | Literal["running"]
    code: str
    text: str
    run: NotRequired[Json]
    """`Run.to_dict()`, in the streams of an Agent."""


class Failed(Placed):
    """The last event of a stream that ended with an exception. Recorded work is kept; `resume` continues it."""

    type: Literal["error"]
    kind: str
    """The class of the exception."""
    text: str


Event = Annotated[
    Started | Goal | Note | ModeChosen | Planned | Revised | Todos | StepStarted | Decided | ToolStarted | Observed
    | Speech | SpeechRestarted | Stalled | Thinking | Asked | Heard | Late | Correction | Verdicts | Audited
    | StepFinished | Charged | Spent | Custom | Waiting | Ended | Failed,
    Discriminator("type"),
]  # fmt: skip
"""One event of a stream: a plain dict that dumps to JSON, distinguished by `type`."""


def event_schema() -> Json:
    """Return the JSON schema of `Event`."""
    return TypeAdapter(Event).json_schema()
