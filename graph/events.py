"""What a run tells while it works: typed events on the custom stream. Nothing depends on anybody listening."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired

from langgraph.runtime import Runtime
from pydantic import Discriminator, TypeAdapter
from typing_extensions import TypedDict

from donewhen.state.graph_state import Json
from donewhen.state.ledger import MeterRow
from donewhen.state.proof.receipt import Status
from donewhen.state.records import Mode, ModeRow, Pause, StepStatus
from donewhen.state.settings import Settings


class Started(TypedDict):
    """The first event of every stream."""

    type: Literal["started"]
    thread_id: str
    goal: str


class Goal(TypedDict):
    """The request as it is worked on, at most 2,000 characters of it."""

    type: Literal["goal"]
    text: str


class Note(TypedDict):
    """Something people should know: a fallback, a limit, a standstill."""

    type: Literal["note"]
    text: str


class ModeChosen(TypedDict):
    """How much is made of the request, by whom and why; told again when a step becomes a plan."""

    type: Literal["mode"]
    mode: Mode
    by: str
    reason: str


class Speech(TypedDict):
    """A piece of what the planner (`step` None) or a step says; pieces of one `argument` join to the exact text."""

    type: Literal["speech"]
    step: str | None
    text: str
    id: str
    """Of the message that the piece belongs to, the same on `messages` and, if it stays, in state."""
    answer: NotRequired[bool]
    """A piece of the answer, which comes whole with the outcome too."""
    argument: NotRequired[str]
    """Of a text for people inside of a decision, where it stands: `answer.text`, `ask_user.question`,
    `submit_plan.speak`, `finish_step.result`, `finish_task.result`. What was decided is told by other events too."""


class SpeechRestarted(TypedDict):
    """What was said of a reply that broke off or was not taken is void; it may come again from the start."""

    type: Literal["speech_restarted"]
    step: str | None
    id: str
    """Of the message that is void; what comes instead has another."""
    argument: NotRequired[str]
    """Only what was said as this argument is void; without, only what was said as prose."""


class Planned(TypedDict):
    """A plan was made; `plan` is a `PlanJson`."""

    type: Literal["plan"]
    plan: Json


class Todos(TypedDict):
    """The checklist as it stands: rows of id, content, status."""

    type: Literal["todos"]
    todos: list[Json]


class StepStarted(TypedDict):
    type: Literal["step_started"]
    step: str
    content: str


class ToolStarted(TypedDict):
    """A call begins; credentials in its arguments are redacted."""

    type: Literal["tool_started"]
    step: str
    tool: str
    arguments: Json


class Observed(TypedDict):
    """A tool answered; at most 300 characters of what it said."""

    type: Literal["observation"]
    id: str
    step: str
    tool: str
    ok: bool
    seconds: float
    text: str


class Correction(TypedDict):
    """A reply could not be used, and the model was told why. `step` None: of the planner."""

    type: Literal["correction"]
    step: str | None
    text: str


class StepFinished(TypedDict):
    type: Literal["step_finished"]
    step: str
    status: StepStatus
    result: str
    reason: str


class Charged(TypedDict):
    """What was spent since it was last said, by key of the ledger; `spent` tells the sums."""

    type: Literal["charged"]
    step: str | None
    spent: dict[str, float]


class Spent(TypedDict):
    type: Literal["spent"]
    meter: list[MeterRow]


class Waiting(TypedDict):
    """The last event of a stream whose run waits for a person; `run` is `Run.to_dict()`."""

    type: Literal["waiting"]
    pending: list[Pause]
    problem: str
    """Why the last answer was not taken."""
    run: Json


class Ended(TypedDict):
    """The last event of a stream whose run ended, or was stopped (`running`); `run` is `Run.to_dict()`."""

    type: Literal["outcome"]
    status: Status | Literal["running"]
    code: str
    text: str
    run: Json


class Failed(TypedDict):
    """The last event of a stream that an exception ended; what was recorded stays, `resume` goes on."""

    type: Literal["error"]
    kind: str
    """The exception's class."""
    text: str


Event = Annotated[
    Started | Goal | Note | ModeChosen | Speech | SpeechRestarted | Planned | Todos | StepStarted | ToolStarted
    | Observed | Correction | StepFinished | Charged | Spent | Waiting | Ended | Failed,
    Discriminator("type"),
]  # fmt: skip
"""One event of a stream: a plain dict that dumps to JSON, told apart by `type`."""


def event_schema() -> Json:
    """The JSON schema of `Event`."""
    return TypeAdapter(Event).json_schema()


ANSWER = "answer.text"
"""The argument that is the answer of the run."""


def emit(runtime: Runtime[Settings], type: str, **fields: Any) -> None:
    """Send one event `{"type": …, …}` to whoever streams `custom`."""
    runtime.stream_writer({"type": type, **fields})


def mode_chosen(runtime: Runtime[Settings], row: ModeRow) -> None:
    """What is made of the request is decided."""
    emit(runtime, "mode", **row)


def observed(runtime: Runtime[Settings], entry: Mapping[str, Any]) -> None:
    """A tool answered."""
    fields = {key: entry[key] for key in ("id", "step", "tool", "ok", "seconds")}
    emit(runtime, "observation", **fields, text=entry["text"][:300])


def charged(runtime: Runtime[Settings], step: str | None, spent: Mapping[str, float]) -> None:
    """Something was spent, by planning (`None`) or by a step, since it was last said; `spent` events tell the sums."""
    if spent:
        emit(runtime, "charged", step=step, spent=dict(spent))
