"""The records of a run: pauses, frozen calls, claims, and steps. All are JSON."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from donewhen.state.ledger import MeterRow
from donewhen.state.values import Json

StepStatus = Literal[
    "pending", "running", "waiting", "ready", "done", "failed", "blocked", "skipped", "exhausted", "stale"
]  # fmt: skip
"""A `ready` step continues on its own; a `waiting` one needs a person. A `stale` step was done, but its result no
longer holds and another step repeats it. `state/statuses.py` says what may follow what.
"""
WRITES = ("write", "idempotent")
"""The effects of tools that change something."""
EFFECTS = ("read", "idempotent", "write")
"""All effects, from the least to the greatest."""
PauseKind = Literal["plan", "question", "tool", "budget", "effect"]
PLAN_ACTION = "confirm_plan"
"""The name of the tool call that shows a plan in the conversation."""
ACTIONS = (PLAN_ACTION, "ask_user", "approve_tool", "resolve_effect", "extend_budget")
"""The names of the tool calls that show questions."""


class Ask(TypedDict, total=False):
    """A question of an executor or a tool, or a call that it wants approved; it becomes a pause."""

    id: str
    """The id of the interrupt."""
    kind: Literal["question", "tool"]
    question: str
    options: list[str]
    tool: str
    """tool: the call."""
    arguments: Json
    schema: Json
    """question: the JSON Schema of a form."""
    digest: str
    """A hash of a tool's question, to recognize the same question when it is asked again."""
    unreached: str
    """Why the last answer did not reach the executor that asked."""


class Meanwhile(TypedDict):
    """What somebody said at questions that are for somebody else."""

    by: str
    """Who; "" if nobody knows."""
    text: str
    at: str
    """ISO 8601, to the millisecond."""


class Pause(TypedDict, total=False):
    """A question to a person, as JSON. `id`, `kind`, `question`, `options` and `step` are always set, others by kind.
    One that somebody put off has `id`, `problem` and `draft` alone.

    Its kinds are the classes of `graph/pauses`.
    """

    id: str
    """Identifies the question permanently on this thread: `s2.q1`, `confirm.1f3a…`; answers name it."""
    kind: PauseKind
    question: str
    text: str
    """All that a person needs to answer, as Markdown in their language; in `Run.pending`, and in what clients get."""
    options: list[str]
    """Answers to choose from; [] if any text is allowed."""
    step: str | None
    """The step that asks; None for planning or the run."""
    purpose: str
    """question: the purpose of the step, if another step asks the same question."""
    tool_call_id: str
    """The tool call that shows the pause in the conversation."""
    asked_at: str
    """ISO 8601: since when it is open; missing until it is asked."""
    answered_by: str
    """Who alone may answer; anybody if missing."""
    meanwhile: list[Meanwhile]
    """What others have said since, or so shortly before that no model has read it; who is asked should know."""
    message_id: str | None
    """The message in which the question was streamed, if it was."""
    interrupt_id: str
    """LangGraph's id; only of the current pause."""
    problem: str
    """What is missing in the last answer, or wrong with it."""
    draft: str | None
    """plan, tool: the text of a rejected edit, shown again to be corrected."""
    reply: str
    """plan: what the planner answered to the person's last words about it."""
    before: Json
    """plan: the plan that the person had spoken about, if this is another one."""
    language: str
    """The language of the pause; English if missing."""
    others: "list[Pause]"
    """The other open pauses in short form: id, kind, question, options, step."""
    plan: Json
    """plan: the `PlanJson` to approve."""
    revision: str
    """plan: its content hash; an answer with another one is stale."""
    limits: Json
    """plan: the limits of the run, shown with it."""
    writes: list[str]
    """plan: tools with effects that the approval allows with any arguments."""
    writes_known: list[str]
    """plan: tools with effects that the approval allows for known targets."""
    effects: dict[str, str]
    """plan: what its tools with effects are, idempotent or write; the approval is for them as this."""
    agents: list[str]
    """plan: its executors that work on their own, and may change whatever they can."""
    next_runs: list[str]
    """plan: the next three times of a recurring plan, ISO 8601 with offset."""
    living: list[Json]
    """plan: the schedules that the thread of a recurring plan has already, `{id, schedule}`; they go on."""
    template: Json
    """plan: the template of which it was made: `{name, values, as_saved, left}`; `left` has values that still stand."""
    tool: str
    """tool, effect: the call, exactly as it will run."""
    arguments: Json
    diffs: dict[str, str]
    """tool: by argument, the diff to the text that it replaces."""
    batch: list[Json]
    """tool: calls of the same reply or program that are approved with it, `{position, tool, arguments}`."""
    code: str
    """tool: the text of the program that makes these calls."""
    hook: str
    """tool: what a hook asks about the call; nothing answers it for a person."""
    sources: list[Json]
    """tool: the arguments that need a source, `{argument, value, source}`; the source is None if there is none."""
    new: list[str]
    """tool: targets of these calls that no person approved or mentioned, and no tool returned as a whole value."""
    relayed: bool
    """question, tool: True if an executor or a tool asks."""
    schema: Json
    """question: the JSON Schema of a form; the answer is an object that fits it."""
    exhausted: str | list[str]
    """budget: the ledger key or keys that are used up."""
    of_planning: bool
    """budget: True if the rounds of planning are used up, which `plan_rounds` limits."""
    at_end: bool
    """budget: True if all steps are done, and the answer could not be proven."""
    of_day: str
    """budget: `owner:` or `queue:` and the date, if the budget of a day is used up, which other runs share."""
    suggested: dict[str, float]
    """budget: the increase that `extend` alone grants."""
    done: list[str]
    """budget: ids of finished steps; `left` has the others."""
    left: list[str]
    meter: list[MeterRow]
    """budget: rows `{key, spent, limit}`."""
    changes: list[str]
    """plan: the differences from the previously approved plan."""
    name: str
    """The name of the action for clients: `confirm_plan`, `ask_user`, `approve_tool` …"""
    call: str | None
    """question: the model's tool call that asked."""
    attempt: str
    """effect: the attempt with the unknown outcome."""
    about: Literal["failure", "early"]
    """question: the topic of the run's own question: failed steps (`failure`), or skipping the rest (`early`)."""
    failed: list[str]
    failure: str
    early: list[str]
    reserve: dict[str, float]
    """budget: what is kept for the answer, so that an extension has to be for more."""
    with_replan: dict[str, float]
    """The grants that come with a replan."""


Mode = Literal["answer", "step", "plan"]


ModeChooser = Literal["triage", "plan", "settings", "executor", "promotion"]
"""Who decides about the mode; `plan` is the draft, and an executor takes the whole goal."""


class ModeRow(TypedDict):
    """A decision about the mode; the last one counts."""

    mode: Mode
    by: ModeChooser
    reason: str


class JournalEntry(TypedDict):
    """An observation. `observation` of `state/proof/journal.py` makes it, with everything that each one has."""

    id: str
    """`<step>.<n>`, unique in a request: `s2.3`, `p.1` for planning, `said.1` for interjections."""
    step: str
    round: int
    source: Literal["tool", "user", "check", "result"]
    text: str
    """The text, or its head and tail if it is long; `length` and `digest` describe the full text."""
    length: int
    digest: str
    stored: bool
    """True if the full text is in the store."""
    tool: str | None
    arguments: Json
    """The arguments of the call; for an answer the question, who answered, and the pause."""
    ok: bool
    effect: str | None
    """None if it was not a tool call, or the call was not made."""
    seconds: float
    at: str
    """ISO 8601, UTC."""
    targets: list[str]
    """The targets of a call, as declared by its tool."""
    delegated: NotRequired[bool]
    """True if an executor that works on its own made the call."""
    transcript: NotRequired[list[Json]]
    """The messages and calls of such an executor, in short form."""
    unknown: NotRequired[bool]
    """True if it is unknown whether the write took effect."""
    made: NotRequired[bool]
    """False for a call that was refused before its tool began, or that a person left out."""
    confirmed: NotRequired[bool]
    """True if the call was not made, since a person said that an equal one had taken effect."""
    made_at: NotRequired[str]
    """When the call began, if it was settled later: a person said that it took effect or is not made again, or
    nobody knows what it did. If they did not want it made once more, its outcome is that of an equal call, which was
    made then; "" if that is not known."""
    failed: NotRequired[bool | str]
    """Set if the call was made and what it returns is a failure: the words of it that say so, such as `exit_code 2`,
    or True."""
    reads: NotRequired[list[str]]
    """Of a call with effects: what its result also depends on; see `find_later_change`."""
    refused: NotRequired[int]
    """Of a write that was certainly refused, and does not succeed by waiting: how often people had spoken by then; see
    `limit_refusals` of `graph/step/gates.py`."""
    same_as: NotRequired[str]
    """The observation with the same result."""
    heard: NotRequired[Json]
    """Of an interjection: its key, and the step and time at which it was heard."""
    images: NotRequired[list[Json]]
    """The images of the result: the `key` of each in the store, its `type` and its `chars`."""
    identity: NotRequired[list[str]]
    """The fields of the result that name something, if its tool says so; else their names decide."""
    column: NotRequired[str]
    """The name of the only column of a result that is a table, or is its only value."""
    calculated: NotRequired[bool]
    """True if it was calculated from the arguments."""
    sources: NotRequired[list[Json]]
    """Of a write: where its arguments come from, `{argument, value, source}`; the source is None if there is none."""
    program: NotRequired[Json]
    """Of a call that a program made: the `id` of the program, its number `n` there from 0, its `line`, a `key` of the
    call as the program wanted it, and `ahead` if it was made only to rehearse.
    """
    users_text: NotRequired[bool]
    """True if it holds words of the user, such as a skill, which are not framed as untrusted data."""
    outside: NotRequired[bool]
    """True of a change by a step whose observations cannot be cited here: only its targets are known."""
    unread: NotRequired[tuple[int, int] | None]
    """Of a cited observation: the range of its characters that the model was not shown."""


class UsersRequest(TypedDict):
    """A person wants something: by the request, or by other words to a run that was interrupted."""

    kind: Literal["request"]


class Failure(TypedDict):
    """Steps failed, or a limit was reached: another way is wanted."""

    kind: Literal["failure"]
    failure: str
    """What happened, for the planner."""
    tried: list[str]
    """Hashes of the work that failed so far in this request."""
    twice: bool
    """True if the only step of the plan failed twice, so that several take its place."""


class Growth(TypedDict):
    """The only step of the plan is at work and goes on, and more may be needed around it (Q74)."""

    kind: Literal["growth"]
    code: str
    """One of `GROWS`."""
    wants: str
    """Why the step needs a plan, for the planner and people."""


Reason = UsersRequest | Failure | Growth
"""Why there is a planning. A planning that reads what people say about a plan keeps that of the one before."""


class PlanChange(TypedDict):
    """What a plan changes of the approved one."""

    stale: list[str]
    """Finished steps that it repeats."""
    instead: dict[str, list[str]]
    """Old step → the new steps that replace it."""
    dropped: dict[str, str]
    """Dropped step or criterion → the reason."""
    drops_criterion: bool
    """True if a criterion of the goal is dropped."""
    unmentioned: list[str]
    """Criteria of the goal that it does not mention, if the approved plan had them at its only step; else []."""


class ProposedPlan(TypedDict):
    """A plan of the planner."""

    plan: Json
    reason: str
    """The planner's reason for its size; "" if it gives none."""
    change: PlanChange
    living: NotRequired[list[Json]]
    """The schedules of the thread, `{id, schedule}`, if the plan has one, too."""


class ShownPlan(TypedDict):
    """The plan about which a person speaks."""

    pause: Pause
    """It is asked again if the planner answers."""
    change: PlanChange
    language: str
    """The language that the decision which proposed it declared; "" if none."""


class Feedback(TypedDict):
    """What a person said: about a plan that they were shown, about a failure, or to a run that was interrupted."""

    text: str
    name: NotRequired[str]
    """Who said it, if `by=` named them."""
    about: ShownPlan | None


class SentPlan(TypedDict):
    """A plan that came in one reply with looks."""

    id: str
    """The id of its tool call."""
    arguments: Json


class PlanningWork(TypedDict):
    """The rounds of a planning so far."""

    rounds: int
    rounds_when_asked: int
    """The number of rounds when a person last answered a question of planning."""
    rounds_granted: int
    """The rounds that a person granted since then."""
    corrections: int
    """Unusable replies in a row."""
    texts: int
    """Consecutive replies that were only text."""
    questions: int
    corrected: list["Correction"]
    """The `Correction`s that it has made."""
    by_planner: bool
    """True if the planner's model does triage, because that of triage could not be used."""
    calls: list["Call"]
    """Read-only calls to make next."""
    call_answers: list[str]
    """Answers to printed calls that are not made; they are sent with the results of the others."""
    sent_plan: SentPlan | None
    """The plan that came with the looks in `calls`; it is taken if none of them fails."""
    found_tools: list[str]
    """Tools found in addition to the offered ones."""
    recalled: list[str]
    """Ids of the observations that were recalled."""
    interjection_cursor: str
    """The last interjection that its rounds include; "" if none."""
    last_audit: Json | None
    """What the next audit of its answer needs of the last one."""


Correction = Literal["answer", "repeat", "lost", "language", "consent"]
"""The corrections that a planning makes once: of an answer, a plan that failed before, criteria that are left out, the
language, and a consent that the judge does not find."""


class PlanningRecord(TypedDict):
    """One planning of a request: why there is one, what it has to keep, how far it is, and what it proposed.

    `state/plan/planning.py` makes it, with one function for each reason.
    """

    number: int
    """The number of the planning within the request."""
    transcript: str
    """The key of its rounds, and the prefix of its questions: `plan`, `plan@2` …"""
    phase: Literal["triage", "draft"]
    open: bool
    """True until it has an outcome."""
    why: Reason
    finished: dict[str, Json]
    """Finished steps that are kept, id → `{content, result}`."""
    failed: list[str]
    """Steps that failed."""
    feedback: Feedback | None
    sketch: ProposedPlan | None
    """The plan of triage, which the draft starts from and falls back on."""
    change: PlanChange
    """The change by the plan that it proposed last."""
    language: str
    """The language that its last decision declared; "" if none."""
    work: PlanningWork


class Approval(TypedDict, total=False):
    """The approval of a plan."""

    revision: str
    by: str
    """`user` or `policy`."""
    names: dict[str, str]
    """Step → who approved it as it is, if they gave a name."""
    plan: Json
    tools: dict[str, list[str]]
    """Step → its granted tools."""
    effects: dict[str, str]
    """The effects of its tools that are more than reading, as they were when it was shown."""
    before: Json | None
    """The plan it replaces, until it is active."""
    given: Json
    """Of a plan that a schedule brought: the fields of the receipt's row about its approval, in another thread."""
    at_work: bool
    """True if the plan is active: its steps have records."""


class Ending(TypedDict, total=False):
    """The ending of a run, for `deliver`."""

    code: str
    reason: str
    """For the log."""
    text: str
    """For the user."""
    message_id: str | None
    """The message in which the text was streamed."""
    evidence: list[Json]
    earlier: list[str]
    """Ids of the observations of earlier requests that the text rests on: those it cites, or that were recalled."""
    output: Any
    """The structured answer, if one is requested."""
    output_problem: str
    """Why the structured answer does not fit."""
    audit: Json | None
    again: bool
    """True if a finished run should be audited again; `problem` says why that was not possible."""
    problem: str


class Approved(TypedDict):
    """The call runs without another question."""

    kind: Literal["approved"]
    by: str
    """`user` or `policy`."""
    name: NotRequired[str]
    """Which person; "" if they are not known."""


class Agreed(TypedDict):
    """What a person agreed to who approved a call, also one that they edited."""

    question: str
    """What a hook asked about it, as they read it; "" if none did."""
    name: str
    """Which person; "" if they are not known."""
    answered_by: NotRequired[str]
    """Whom alone a hook asked; "" if no hook did, or anybody."""
    times: NotRequired[int]
    """To how many questions of hooks people agreed about the call with these arguments; 0 if missing."""


class Refused(TypedDict):
    """The call is not made."""

    kind: Literal["refused"]
    why: str
    who: NotRequired[str]
    """Who alone was asked; the user if missing."""


class Answered(TypedDict):
    """A person's words are the result of the call, which is not made."""

    kind: Literal["answered"]
    text: str
    who: NotRequired[str]
    """Who alone was asked; the user if missing."""


class Known(TypedDict):
    """What a person knows about the effect of an interrupted call."""

    kind: Literal["known"]
    effect: str
    """happened | not_happened | skip."""
    attempt: str
    """The attempt to which it applies."""


Decided = Approved | Refused | Answered | Known


class Call(TypedDict, total=False):
    """A tool call that is decided but not made yet, exactly as it will run."""

    id: str
    """The id of the model's tool call."""
    name: str
    args: Json
    """The arguments that the tool gets, as people are shown them."""
    given: Json
    """The arguments as the model wrote them, if validating `args` would change them; the call is made with these."""
    position: int
    """The position in its reply, from 0."""
    native: bool
    """True for a tool call, False for a call printed as text."""
    decided: Decided
    """What a person, or a policy, decided about it last; nothing yet if missing."""
    agreed: Agreed
    """What the person agreed to who approved it last; missing if nobody was asked about this very call."""
    provider: str
    """Who provided the tool when people were asked about the call, as `KnownTool.provider`; "" if no server did."""
    base: str
    """A digest of the texts that it replaces, to which a difference was shown."""
    edited: bool
    """True if a person changed the arguments."""
    edited_by: str
    """Who alone was asked then; "" if anybody was."""
    edit_words: str
    """What they said with it, for the model; "" if nothing."""
    delegated: bool
    """True if an executor that works on its own makes it."""
    first: str
    """delegated: the key of the first handoff in its conversation with the executor."""
    charged: bool
    """delegated: True if what its models have cost was charged when it was drained."""
    asks: list[Ask]
    """The questions of the executor or the tool; `answers` has the replies so far."""
    answers: list[Any]
    asked: int
    """How often its tool has stopped to ask."""
    planned: bool
    """True if the call comes from the plan, not from a reply."""
    program: Json
    """Of a call that a program makes: as in `JournalEntry`. The program's own call comes after it."""
    rehearsed: bool
    """True if its program was only rehearsed up to it: people decide about it now, and it is made if the program then
    comes to it."""
    differs: bool
    """True if people approved another call in its place."""
    listed: "list[Call]"
    """run_program: the changes that people decided about when it was rehearsed, which it did not make yet."""
    whole: bool
    """run_program: True if the rehearsal came to its end, so that it makes no other changes."""


def decision_on(call: Call) -> str:
    """Return the kind of the last decision about the call; `undecided` if there is none."""
    return call["decided"]["kind"] if "decided" in call else "undecided"


NOT_MADE = ("refused", "answered")
"""Decisions after which a call is not made."""


class StepClaim(TypedDict, total=False):
    """A `finish_step` or `finish_task` whose proof is not complete."""

    kind: Literal["finish_step", "finish_task"]
    arguments: Json
    said: str | None
    """The message in which the result was streamed."""
    id: str
    """The id of the model's tool call."""
    decided: dict[str, Json]
    """Verdicts so far, by the number of the criterion."""
    needs: str
    """The ledger key that interrupted the proof."""
    planned: bool
    """True if it is made of what the planned calls returned, and not by a model."""
    whole: bool
    """True if its result is the output of an executor as it is, which nobody had to read to claim it."""


class StepRecord(TypedDict):
    """A step so far. `fresh_record` of `state/statuses.py` makes it, with everything that each one has."""

    status: StepStatus
    """Only `change_status` changes it."""
    started: str
    """When it was first dispatched, ISO 8601, UTC; `ended` is when it ended. Each is "" before."""
    ended: str
    today: str
    """The date in its brief, which never changes while it works."""
    attempt: int
    """From 1; a step planned again under its id continues counting."""
    observed: int
    """The number of observations so far; the next one is `<step>.<observed + 1>`."""
    rounds: int
    """The number of rounds so far; a new attempt begins at 0."""
    corrections: int
    """Unusable replies in a row."""
    refused: int
    """The number of refused goal_checks."""
    silent: int
    """Consecutive rounds without anything new; `silent_most` is the longest series."""
    silent_most: int
    questions: int
    """The number of questions so far, which is part of their ids; a new attempt begins at 0."""
    result: str
    """The result in the model's words, once it is done."""
    draft: str
    """The result of a refused claim; it is kept until another one is sent."""
    reason: str
    """Why it ended without being done, for people; `code` is for programs."""
    code: str
    verdicts: list[Json]
    """Per criterion: `{criterion, text, verdict, evidence, note}`."""
    standing: dict[str, Json]
    """Accepted claims by the number of the criterion; they need not be repeated."""
    imprecise: dict[str, int]
    """By criterion number, how often its evidence was refused only for its form."""
    unchanged: str
    """Why the step changed nothing although it had tools for writing, in the model's words."""
    audit: Json | None
    """The `AuditRow` of the result, if it is the answer."""
    language_told: bool
    """True if its result was sent back once because of its language."""
    judged: Json | None
    """What the next audit needs of the last one: its verdict, and the ids of what it rested on."""
    doubted: bool
    """True if a judge's objections were sent back to the model."""
    before: int
    """The number of observations of earlier attempts, and of earlier steps with this id, which this one replaced."""
    wrote: list[str]
    """Short keys of the step's writes."""
    spent: dict[str, float]
    """Spending by ledger key."""
    granted: dict[str, float]
    """Extensions of its allowance."""
    allowance: dict[str, float]
    found: list[str]
    """Tools found in addition to the offered ones."""
    recalled: dict[str, list[list[int]]]
    """Observation → the ranges of characters that were recalled."""
    calls: list[Call]
    """Calls to make next, in order."""
    programs: list[Json]
    """The programs of this attempt that ended, `{id, code}`: the next one sees their variables."""
    held: list[str]
    """Results of printed calls, sent back in one message once all calls are made."""
    claim: StepClaim | None
    then: StepClaim | None
    """A claim sent with the current calls; it is checked if all of them succeed."""
    delegated: bool
    """True if an executor that works on its own has worked on it."""
    waiting: Pause | None
    task: str | None
    """The open tool call that shows the step in the conversation."""
    answers: bool
    """True if its result is the answer of the run."""
    said: str | None
    """The message in which its result was streamed."""
    interjection_cursor: str
    """The last interjection that its rounds include."""
    heard: list[Json]
    """The interjections that its rounds include: rows of `key`, `text` and `at`."""
    handled: bool
    """True if its failure was handled."""
    finished_task: str | None
    """The reason for ending the run early."""
    let_go: bool
    """True if a person agreed to end it early."""
    rejected: dict[str, str]
    """Calls that a person rejected: call key → reason."""
    asked_often: dict[str, str]
    """Calls about which hooks asked otherwise after people agreed: call key → the last question that was agreed to."""
    replaced: Json | None
    """How a new plan replaced it: `{content, by, instead}`."""


class StepChange(TypedDict, total=False):
    """A change of a step's record: the fields that get a new value; `StepRecord` describes them."""

    status: StepStatus
    started: str
    ended: str
    today: str
    observed: int
    corrections: int
    refused: int
    silent: int
    silent_most: int
    result: str
    draft: str
    reason: str
    code: str
    verdicts: list[Json]
    standing: dict[str, Json]
    imprecise: dict[str, int]
    unchanged: str
    audit: Json | None
    language_told: bool
    judged: Json | None
    doubted: bool
    allowance: dict[str, float]
    found: list[str]
    recalled: dict[str, list[list[int]]]
    calls: list[Call]
    programs: list[Json]
    held: list[str]
    claim: StepClaim | None
    then: StepClaim | None
    waiting: Pause | None
    answers: bool
    said: str | None
    handled: bool
    finished_task: str | None
    let_go: bool
    rejected: dict[str, str]
    asked_often: dict[str, str]
    replaced: Json | None
