"""What a run tells while it works: typed events, one union of them, with a JSON schema for programs in any language."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Discriminator, TypeAdapter
from typing_extensions import TypedDict

from donewhen.state.ledger import MeterRow
from donewhen.state.proof.receipt import SentenceRow, Status
from donewhen.state.records import Mode, Pause, PauseKind, StepStatus
from donewhen.state.run import Json


class Placed(TypedDict):
    """Where an event stands. Every event has these."""

    thread_id: str
    turn: int
    """Counts the requests of the thread, from 1."""
    seq: int
    """Greater than that of any earlier event of the thread, in whichever process; the cursor of whoever follows it."""
    after: int
    """`seq` of the event before it, 0 where this process told none: who has seen that one has missed nothing."""


class Started(Placed):
    """The first event of every stream."""

    type: Literal["started"]
    goal: str


class Goal(Placed):
    """The request as it is worked on, at most 2,000 characters of it."""

    type: Literal["goal"]
    text: str


class Note(Placed):
    """Something people should know: a fallback, a limit, a standstill."""

    type: Literal["note"]
    text: str


class ModeChosen(Placed):
    """How much is made of the request, by whom and why; told again when a step becomes a plan."""

    type: Literal["mode"]
    mode: Mode
    by: str
    reason: str


class Decided(Placed):
    """What a reply of the planner (`step` None) or of a step came to: `submit_plan`, `calls`, `finish_step` …"""

    type: Literal["decision"]
    step: str | None
    kind: str
    tools: list[str]
    """kind `calls`: which."""


class Stalled(Placed):
    """A model has been silent for so many seconds; told again as it goes on. Nothing is lost yet."""

    type: Literal["stalled"]
    step: str | None
    seconds: float


class Speech(Placed):
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


class SpeechRestarted(Placed):
    """What was said of a reply that broke off or was not taken is void; it may come again from the start."""

    type: Literal["speech_restarted"]
    step: str | None
    id: str
    """Of the message that is void; what comes instead has another."""
    argument: NotRequired[str]
    """Only what was said as this argument is void; without, only what was said as prose."""


class Planned(Placed):
    """A plan was made; `plan` is a `PlanJson`."""

    type: Literal["plan"]
    plan: Json


class Revised(Placed):
    """A plan, or another one, is approved and goes to work; `plan` is a `PlanJson`."""

    type: Literal["revision"]
    revision: str
    by: str
    """user or policy."""
    plan: Json


class Asked(Placed):
    """A person is asked. What is open, with ids, tells `waiting`; over LangGraph's server, the interrupt does."""

    type: Literal["question"]
    kind: PauseKind
    step: str | None
    question: str
    options: list[str]
    problem: str
    """Why the last answer was not taken; "" if none was given."""
    tool_call_id: str
    """Of the tool call that stands for the question in the conversation."""


class Todos(Placed):
    """The checklist as it stands: rows of id, content, status."""

    type: Literal["todos"]
    todos: list[Json]


class StepStarted(Placed):
    type: Literal["step_started"]
    step: str
    content: str


class ToolStarted(Placed):
    """A call begins; credentials in its arguments are redacted."""

    type: Literal["tool_started"]
    id: str
    """Of the observation that will tell what came of it."""
    step: str | None
    tool: str
    arguments: Json
    diffs: NotRequired[dict[str, str]]
    """By argument, how its text differs from the one that it takes the place of: a unified diff without its head."""


class Observed(Placed):
    """A tool answered; at most 300 characters of what it said."""

    type: Literal["observation"]
    id: str
    step: str
    tool: str
    ok: bool
    seconds: float
    text: str


class Correction(Placed):
    """A reply could not be used, and the model was told why. `step` None: of the planner."""

    type: Literal["correction"]
    step: str | None
    text: str


class Judged(Placed):
    """What became of the criteria of a step, or of the goal (`step` None).

    A verdict is `{criterion, text, verdict, evidence, note}`.
    """

    type: Literal["verdicts"]
    step: str | None
    accepted: bool
    verdicts: list[Json]


class Audited(Placed):
    """A judge said of every sentence of the answer, or of a step's result, whether it is shown, and of the goal."""

    type: Literal["audit"]
    step: str | None
    problem: str
    met: str
    missing: list[str]
    sentences: list[SentenceRow]


class StepFinished(Placed):
    type: Literal["step_finished"]
    step: str
    status: StepStatus
    result: str
    reason: str


class Charged(Placed):
    """What was spent since it was last said, by key of the ledger; `spent` tells the sums."""

    type: Literal["charged"]
    step: str | None
    spent: dict[str, float]


class Spent(Placed):
    type: Literal["spent"]
    meter: list[MeterRow]


class Custom(Placed):
    """What a tool of the application wrote to the stream, by LangGraph's `get_stream_writer`, as JSON."""

    type: Literal["custom"]
    data: Any


class Waiting(Placed):
    """The last event of a stream whose run waits for a person; `run` is `Run.to_dict()`."""

    type: Literal["waiting"]
    pending: list[Pause]
    problem: str
    """Why the last answer was not taken."""
    run: Json


class Ended(Placed):
    """The last event of a run that ended, or of a stream that was stopped (`running`)."""

    type: Literal["outcome"]
    status: Status | Literal["running"]
    code: str
    text: str
    run: NotRequired[Json]
    """`Run.to_dict()`, in streams of an Agent."""


class Failed(Placed):
    """The last event of a stream that an exception ended; what was recorded stays, `resume` goes on."""

    type: Literal["error"]
    kind: str
    """The exception's class."""
    text: str


Event = Annotated[
    Started | Goal | Note | ModeChosen | Planned | Revised | Todos | StepStarted | Decided | ToolStarted | Observed
    | Speech | SpeechRestarted | Stalled | Asked | Correction | Judged | Audited | StepFinished | Charged | Spent
    | Custom | Waiting | Ended | Failed,
    Discriminator("type"),
]  # fmt: skip
"""One event of a stream: a plain dict that dumps to JSON, told apart by `type`."""


def event_schema() -> Json:
    """Return the JSON schema of `Event`."""
    return TypeAdapter(Event).json_schema()
