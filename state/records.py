"""The records in a run: a pause, a frozen call, a claim, and what became of a step. All of it is JSON."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from typing_extensions import TypedDict

from donewhen.state.ledger import MeterRow
from donewhen.state.values import Json

StepStatus = Literal[
    "pending", "running", "waiting", "ready", "done", "failed", "blocked", "skipped", "exhausted", "stale"
]  # fmt: skip
"""`ready`: left off where the step goes on by itself; `waiting`: for a person. From `done` on it has ended.
`stale`: it was done, and another step does it again, because what it rests on no longer holds."""
PauseKind = Literal["plan", "question", "tool", "budget", "effect"]


class Pause(TypedDict, total=False):
    """What a person is asked. The first line of keys is always there, the others by kind."""

    id: str
    """Names the question, in this thread for ever: `s2.q1`, `confirm.1f3a…`; answers are given to it."""
    kind: PauseKind
    question: str
    options: list[str]
    """Answers to choose from; [] where anything may be said."""
    step: str | None
    """The step that asks; None: planning, or the run."""
    purpose: str
    """question: what the step is for, where another step asks in the same words."""
    tool_call_id: str
    """Of the tool call that stands for the pause in the conversation."""
    asked_at: str
    """ISO 8601; of the pause that is asked now."""
    message_id: str | None
    """Of the message in which the question was streamed; None where it was not."""
    interrupt_id: str
    """LangGraph's id; of the pause that is asked now."""
    problem: str
    """Why the last answer was not taken."""
    draft: str | None
    """plan, tool: the text of an edit that could not be taken, given back to be mended."""
    said: str
    """plan, tool, failure: the words that were asked back, so that “change” can mean them."""
    language: str
    """In which the pause is shown; English without it."""
    others: "list[Pause]"
    """The other open pauses, in short: id, kind, question, options, step."""
    plan: Json
    """plan: what is to be approved, a `PlanJson`."""
    revision: str
    """plan: its content hash; an answer that names another one is stale."""
    limits: Json
    """plan: what the run may spend, shown with it."""
    writes: list[str]
    """plan: tools that change something, which approving it approves with any arguments."""
    writes_known: list[str]
    """plan: tools that change something, which approving it approves for targets that are known."""
    next_runs: list[str]
    """plan: the next three moments at which a recurring plan runs, ISO 8601 with offset."""
    tool: str
    """tool, effect: the call, frozen as it will run."""
    arguments: Json
    diffs: dict[str, str]
    """tool: by argument, how its text differs from the one that it takes the place of."""
    batch: list[Json]
    """tool: calls of the same reply that are approved with it, `{position, tool, arguments}`."""
    new: list[str]
    """tool: targets of these calls that nobody approved or said, and no tool returned as a whole value."""
    relayed: bool
    """question, tool: an executor that works by itself asks."""
    unreached: str
    """question, tool: why the last answer could not be brought to that executor."""
    exhausted: str | list[str]
    """budget: the key or keys of the ledger that are used up."""
    suggested: dict[str, float]
    """budget: what `extend` alone would grant."""
    done: list[str]
    """budget: ids of finished steps; `left`: of the others."""
    left: list[str]
    meter: list[MeterRow]
    """budget: rows `{key, spent, limit}`."""
    changes: list[str]
    """plan: what is not as in the plan approved before."""
    name: str
    """Of its action, as clients know it: `confirm_plan`, `ask_user`, `approve_tool` …"""
    call: str | None
    """question: the model's tool call that asked."""
    attempt: str
    """effect: the attempt that was cut off."""
    about: Literal["failure", "early"]
    """question: of the run itself, about steps that failed (`failed`), or about leaving out the rest (`early`)."""
    failed: list[str]
    failure: str
    early: list[str]
    with_replan: dict[str, float]
    """What agreeing to another plan grants."""


Mode = Literal["answer", "step", "plan"]


class ModeRow(TypedDict):
    """A choice of the mode; the last one holds."""

    mode: Mode
    by: str
    """triage, plan (the careful draft), settings, executor (which takes the goal whole) or promotion."""
    reason: str


class CallFacts(TypedDict, total=False):
    """What an observation says of the call that gave it, or of the question that was answered."""

    tool: str | None
    arguments: Mapping[str, Any]
    """Of the call; of an answer: the question, by whom it is, and the pause that asked."""
    ok: bool
    """True unless it says otherwise."""
    effect: str | None
    """None for what was no call of a tool, and for a call that was not made."""
    seconds: float
    at: str
    """ISO 8601, UTC."""
    targets: Iterable[str]
    """What a call read or wrote, by names that its tool gives."""


class JournalEntry(TypedDict, total=False):
    """An observation: something that a run saw."""

    id: str
    """`<step>.<n>`, unique in a request: `s2.3`, `p.1` of planning, `said.1` of what the user said meanwhile."""
    step: str
    round: int
    source: Literal["tool", "user", "check", "result"]
    tool: str | None
    arguments: Json
    """Of the call; of an answer: the question, by whom it is, and the pause that asked."""
    ok: bool
    effect: str | None
    """None for what was no call of a tool, and for a call that was not made."""
    text: str
    """The text, or its head and tail if it is long; `length` and `digest` are of the whole."""
    length: int
    digest: str
    stored: bool
    """Whether the whole text is in the store."""
    seconds: float
    at: str
    """ISO 8601, UTC."""
    targets: list[str]
    """What a call read or wrote, by names that its tool gives."""
    delegated: bool
    """Made by an executor that works by itself."""
    transcript: list[Json]
    """What such an executor said and called, in short."""
    unknown: bool
    """Whether nobody knows if the write happened."""
    same_as: str
    """The observation that had the same result."""


class PlanningRecord(TypedDict, total=False):
    """One planning: where it stands, and what it works from."""

    number: int
    """Counts the plannings of a request."""
    transcript: str
    """The key of its rounds, and how its questions are called: `plan`, `plan@2` …"""
    phase: Literal["triage", "draft"]
    open: bool
    """Whether nothing has come out of it yet."""
    rounds: int
    corrections: int
    """Unusable replies in a row."""
    texts: int
    """Replies in a row that were only text."""
    questions: int
    calls: list["FrozenCall"]
    """Reading calls to be made next."""
    found: list[str]
    """Tools that it found beside those it was offered."""
    heard: str
    """Up to where its rounds have what the user said while it worked."""
    language: str
    """The language of its last decision, if there are texts of it."""
    mode: str
    """The mode before it; `reason`: why the planner chose another one."""
    reason: str
    proposal: Json
    """A plan to start from: the quick one, or the one that a person rejected."""
    sketched: bool
    """Whether the proposal is the quick plan, on which it can fall back."""
    fell_back: str
    """Why it did."""
    feedback: str | None
    """What a person wants to be different."""
    failure: str
    """Why it is planned anew."""
    failed: list[str]
    """Steps that failed."""
    finished: dict[str, Json]
    """Steps that are done and stay, id → `{content, result}`."""
    tried: list[str]
    """Hashes of the work that failed already."""
    promoted: str
    """The code with which a step left that was too little for the request."""
    refused: bool
    """Whether a person refused its plan without saying why."""
    stale: list[str]
    """Finished steps that its plan does again."""
    instead: dict[str, list[str]]
    """Old step → the new ones in its place."""
    dropped: dict[str, str]
    """Step or criterion → why it goes."""
    let_go: bool
    """Whether a criterion of the goal goes."""
    came_back: list[str]
    """Criteria of a plan's only step, now gone, of which the new plan says nothing."""
    answer_told: bool
    """Whether an answer went back once; likewise `repeat_told`, `lost_told` and `language_told` of other flaws."""
    repeat_told: bool
    lost_told: bool
    language_told: bool


class Approval(TypedDict, total=False):
    """The record that a plan was approved."""

    revision: str
    by: str
    """user or policy."""
    plan: Json
    tools: dict[str, list[str]]
    """Step → the tools that it may use."""
    before: Json | None
    """The plan that it replaces, until it is active."""
    at_work: bool
    """Whether its steps have their records."""


class Ending(TypedDict, total=False):
    """How a run must end; `deliver` reads it."""

    code: str
    reason: str
    """For the log."""
    text: str
    """For the user."""
    message_id: str | None
    """The message in which the text was streamed."""
    evidence: list[Json]
    output: Any
    """The answer as data, where it is wanted so."""
    audit: Json | None
    again: bool
    """Whether a run that has ended is to be audited once more; `problem`: why it could not be."""
    problem: str


class FrozenCall(TypedDict, total=False):
    """A tool call that a step decided on and has not made: exactly as it will run."""

    id: str
    """Of the model's tool call."""
    name: str
    args: Json
    position: int
    """In the reply that made it, from 0."""
    native: bool
    """Made as a tool call, not printed as text."""
    attempt: str
    """Of its effect, where a person said what became of it."""
    approved: str
    """By whom: user or policy. It then runs without another question."""
    edited: bool
    """Whether the person changed the arguments."""
    refused: str
    """Why a person does not want it; it is not made."""
    response: str
    """What a person answered in its place."""
    known: str
    """What a person said of a call that a crash cut off: the kind of the answer, such as `happened`."""
    delegated: bool
    """Made by an executor that works by itself."""
    first: str
    """delegated: what its conversation with the executor began with."""
    asks: list[Pause]
    """delegated: what the executor asks, and `answers`, what people said so far."""
    answers: list[Any]
    planned: bool
    """Made out by the plan, not by a reply."""


class StepClaim(TypedDict, total=False):
    """A `finish_step` or `finish_task` whose proof the budget cut off."""

    kind: Literal["finish_step", "finish_task"]
    arguments: Json
    said: str | None
    """The message in which the result was streamed."""
    id: str
    """Of the model's tool call."""
    decided: dict[str, Json]
    """Verdicts so far, by number of the criterion."""
    needs: str
    """The key of the ledger that proving stopped at."""


class StepRecord(TypedDict, total=False):
    """What became of a step so far."""

    status: StepStatus
    started: str
    """ISO 8601, UTC: when it was first set to work; `ended`: when it came to its end."""
    ended: str
    attempt: int
    """From 1; a step planned again under its id counts on."""
    observed: int
    """Observations so far; the next one is `<step>.<observed + 1>`."""
    rounds: int
    corrections: int
    """Unusable replies in a row."""
    refused: int
    """Refused goal_checks."""
    silent: int
    """Rounds in a row that brought nothing new; `silent_most`: the longest row."""
    silent_most: int
    questions: int
    result: str
    """In the model's words, once it is done."""
    draft: str
    """The result that was sent with a claim that did not hold; it stands until another one is sent."""
    reason: str
    """Why it ended otherwise, for people; `code` for programs."""
    code: str
    verdicts: list[Json]
    """Per criterion: `{criterion, text, verdict, evidence, note}`."""
    standing: dict[str, Json]
    """What was claimed of criteria that hold, by number; it need not be said again."""
    imprecise: dict[str, int]
    """How often what was said of a criterion was at fault in its form only, by number."""
    unchanged: str
    """Why nothing had to be changed, where it was granted tools for that; in the model's words."""
    audit: Json
    """An `AuditRow`: what a judge said of the result, where that is the answer."""
    doubted: bool
    """Whether what a judge doubted went back to the model already."""
    wrote: list[str]
    """Of the writes of the step."""
    spent: dict[str, float]
    """By key of the ledger."""
    granted: dict[str, float]
    """What a person added to its allowance."""
    allowance: dict[str, float]
    found: list[str]
    """Tools that it found beside those it was offered."""
    recalled: dict[str, list[list[int]]]
    """Observation → the spans of characters that it read on."""
    calls: list[FrozenCall]
    """To be made next, in order."""
    held: list[str]
    """What came of printed calls whose like are still to be made; it goes back in one message."""
    claim: StepClaim | None
    then: StepClaim | None
    """The claim that stood beside the calls which are made now: weighed when all of them went well."""
    delegated: bool
    """Worked on by an executor that works by itself."""
    waiting: Pause | None
    task: str | None
    """The tool call that stands for it in the conversation, while that is open."""
    answers: bool
    """Whether it is the only step, whose result is the answer."""
    said: str | None
    """The message in which its result was streamed."""
    heard: str
    """Up to where its rounds have what the user said while it worked."""
    handled: bool
    """Whether its failure has led to something already."""
    finished_task: str | None
    """The reason it gave for ending the task with steps left."""
    let_go: bool
    """Whether somebody agreed to that."""
    rejected: dict[str, str]
    """Calls that a person rejected: key of the call → why."""
    replaced: Json
    """Where another plan took its place: `{content, by, instead}`."""
