"""The state of a run in checkpoints, as JSON and messages: every key, who writes it, and how writes combine.

First come the reducers and channels, whose stored history grows linearly. Then come the keys of each state. At the end
are `apply_update`, with the same reducers as LangGraph's channels, and its reverse, `difference`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar, cast, get_type_hints

from langchain_core.messages import AnyMessage
from langgraph.channels import DeltaChannel
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from donewhen.state.ledger import Amounts, add
from donewhen.state.private_langgraph import messages_delta_reducer
from donewhen.state.records import Approval, Ending, JournalEntry, Pause, PlanningRecord, StepRecord
from donewhen.state.values import Json as Json
from donewhen.state.values import with_name

VERSION = 6
"""The version of the stored state; see `state/versions.py`."""

GOAL = "goal"
"""The step name in observations that prove the goal itself: `goal.1` …"""
PLANNING = "p"
"""The step name in observations of planning: `p.1`, `p.2` …"""


REPLIES = ("donewhen", "replies")
"""The namespace of a store in which the reply of the round at work is saved."""
SPEECH_PREFIX = "said_"
"""The id prefix of messages in which planner and steps speak while they work; models are not shown them again."""
TASK = "task"
"""The name of the call that shows a step in the conversation."""
ANSWERED_BY = "donewhen_answered_by"
"""Names, in `additional_kwargs`, who answered a question for somebody named, in the result of its call."""
OWN_WORDS = "donewhen_own_words"
"""Marks, in `additional_kwargs`, the result of a call in the conversation that is a word of the runtime."""
Item = TypeVar("Item")
State = TypeVar("State", bound=Mapping[str, Any])
SNAPSHOT_EVERY = 250
"""The number of writes between two full copies; checkpoints in between store only what was appended."""
MESSAGES_EVERY = 40
"""The same for the conversation, which grows with every request: a reader goes back 20 turns at most."""
EARLIER = "earlier_rounds"
"""The id of the note that replaces rounds for which a prompt has no room."""


def append(state: Sequence[Item] | None, writes: Sequence[Any]) -> list[Item]:
    """Concatenate all writes; `Overwrite` starts over."""
    return [*(state or []), *(item for write in writes for item in write or [])]


def is_shortened(rounds: Sequence[Any]) -> bool:
    """Return whether rounds begin with the note about earlier ones. Servers that show a state read mappings."""
    first = rounds[0] if rounds else {}
    return (first.get("id") if isinstance(first, Mapping) else first.id) == EARLIER


def append_rounds(state: Sequence[AnyMessage] | None, writes: Sequence[Any]) -> list[AnyMessage]:
    """Append rounds; those that begin with the note about earlier rounds replace everything before."""
    result = list(state or ())
    for write in writes:
        rounds = write["add"] if isinstance(write, Mapping) else write
        if is_shortened(rounds):
            result.clear()
        result += rounds
    return result


def append_by_key(
    state: Mapping[str, Sequence[AnyMessage]] | None, writes: Sequence[Mapping[str, Sequence[AnyMessage]] | None]
) -> dict[str, list[AnyMessage]]:
    """Append to the rounds under each key."""
    result = {key: list(rounds) for key, rounds in (state or {}).items()}
    for write in writes:
        for key, rounds in (write or {}).items():
            result[key] = append_rounds(result.get(key), [rounds])
    return result


def merge(state: Mapping[str, Any] | None, writes: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Merge shallowly, so that a writer names only the keys that it changes."""
    result = dict(state or {})
    for write in writes:
        result.update(write or {})
    return result


def merge_rows(state: Sequence[dict[str, Any]] | None, writes: Sequence[Sequence[dict[str, Any]]]) -> list[Any]:
    """Replace rows by their id, and append new ones."""
    rows = {row["id"]: row for write in (state or [], *writes) for row in write}
    return list(rows.values())


def merge_records(state: Mapping[str, Any] | None, writes: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Merge step records field by field, so that a writer names only the fields that it changes."""
    result = dict(state or {})
    for write in writes:
        for key, record in (write or {}).items():
            result[key] = {**result.get(key, {}), **record}
    return result


def keep_last(state: Any, writes: Sequence[Any]) -> Any:
    """Return the last write."""
    return writes[-1]


class _Delta(DeltaChannel[Any]):
    """A channel whose checkpoints store only what was written; while it is empty, every checkpoint says so.

    A reader goes back to the last checkpoint with a full copy. For a channel that is empty now, that could be many
    turns ago.
    """

    __slots__ = ()

    def checkpoint(self) -> Any:
        return super().checkpoint() if self.value else self.value


_DELTA: Any = _Delta
Entries = Annotated[list[dict[str, Any]], _DELTA(append, snapshot_frequency=SNAPSHOT_EVERY)]
Journal = Annotated[list[JournalEntry], _DELTA(append, snapshot_frequency=SNAPSHOT_EVERY)]
Messages = Annotated[list[AnyMessage], _DELTA(messages_delta_reducer, snapshot_frequency=MESSAGES_EVERY)]
"""The conversation. LangGraph assigns ids only for its own reducer, which cannot remove all messages at once."""
Rows = Annotated[list[dict[str, Any]], _DELTA(merge_rows, snapshot_frequency=SNAPSHOT_EVERY)]
FIELDS = _DELTA(merge, snapshot_frequency=SNAPSHOT_EVERY)
Files = Annotated[dict[str, str], FIELDS]
Transcript = Annotated[list[AnyMessage], _DELTA(append_rounds, snapshot_frequency=SNAPSHOT_EVERY)]
Transcripts = Annotated[dict[str, list[AnyMessage]], _DELTA(append_by_key, snapshot_frequency=SNAPSHOT_EVERY)]
WriteKeys = Annotated[list[str], _DELTA(append, snapshot_frequency=SNAPSHOT_EVERY)]
StepRecords = Annotated[dict[str, StepRecord], _DELTA(merge_records, snapshot_frequency=SNAPSHOT_EVERY)]
SELDOM = _DELTA(keep_last, snapshot_frequency=1)
"""For large values that are seldom written: stored in the checkpoint after the write, not in every later one."""
SeldomDict = Annotated[dict[str, Any], SELDOM]
SeldomList = Annotated[list[Any], SELDOM]
SeldomText = Annotated[str, SELDOM]


def asker_of(values: Mapping[str, Any]) -> str:
    """Return the name in the message of the request; "" if it has none."""
    messages, request = values.get("messages") or (), values.get("request")
    return next((str(each.name or "") for each in reversed(messages) if request and each.id == request), "")


def named_goal(values: Mapping[str, Any]) -> str:
    """Return the goal as models read it: with the name of who asks for it before it, if its message has one."""
    return with_name(asker_of(values), values["goal"])


def conversation_before(values: Mapping[str, Any]) -> list[AnyMessage]:
    """Return the messages that were there when the request began, without the message with the request."""
    messages, request = values.get("messages") or [], values.get("request")
    lasts = (values.get("conversation_end"), request)
    places = {message.id: at for at, message in enumerate(messages)}
    end = next((places[last] for last in lasts if last in places), -1)
    return [message for message in messages[: end + 1] if message.id != request]


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
    """A random word for this request that marks the tags around foreign text."""
    scope: SeldomText
    """A random word for this run, in the keys of its stored texts; an outer graph may have several runs on a thread."""
    goal: SeldomText
    request: SeldomText
    """The id of the message with the goal."""
    language: str
    """The language of the runtime's texts for the user."""
    output_schema: SeldomDict
    """The JSON Schema of the structured result, if one is requested."""
    request_mark: int
    """A random number for a request inside an outer graph, whose nodes may begin several with the same `turn`. The ids
    of its questions have it in place of that."""
    given_settings: SeldomDict
    """The settings that were LangGraph's context when a request began, but for `tool_context`: an answer has none."""
    answered_by: SeldomDict
    """Who alone answers questions of a kind, by the setting of this name when the request began."""
    approvers: SeldomDict
    """Who alone approves what a tool changes, by the setting of this name when the request began."""
    attachments: SeldomList
    """Images and files of the conversation, `{key, type, chars}`; their data is in the store, if there is one."""
    before: SeldomList
    """Observations of earlier requests, by ids such as `1:s2.3`, bounded; they can be recalled."""
    displaced: SeldomList
    """Calls with effects of requests whose place later ones took, `by` their numbers; see `calls_of_requests`."""
    last_answer: str
    """The id of the message that ended the last request: what stands before it is no new one."""
    conversation_end: str
    """The id of the last message when the request began, if that is not the request's own; else ""."""
    background: SeldomDict
    """The application's `context` and `memory` for the request, as texts."""
    plan: SeldomDict
    planning: Annotated[PlanningRecord, SELDOM]
    steps: StepRecords
    journal: Journal
    transcripts: Transcripts
    """Rounds of planning and of waiting steps, kept to continue them."""
    settled_writes: WriteKeys
    """Short keys of all writes of finished steps, in all requests of this branch; see `graph/tools/effects.py`."""
    spent: Annotated[Amounts, add]
    granted: Annotated[Amounts, add]
    pending: Pause | None
    put_off: Pause | None
    """The question that is asked again after other answers: its `id`, and the `problem` and `draft` that go with it."""
    approval: Annotated[Approval, SELDOM]
    """The approved plan."""
    approvals: Entries
    """All decisions at pauses, of people and of the settings (`by` is `policy`); for the receipt."""
    modes: Entries
    """The decisions about the mode, as `ModeRow`s; the last one counts."""
    interjection_cursor: str
    """The last interjection that the journal includes."""
    ending: Ending | None
    """The ending of the run, once it is decided."""
    outcome: SeldomDict
    todos: Rows
    files: Files


class PlanningOutput(TypedDict, total=False):
    """The output of `plan` for the run."""

    messages: Messages
    planning: PlanningRecord
    approval: Approval | None
    approvals: Entries
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
    allowance: Amounts
    known: list[JournalEntry]
    """Observations of planning in this run so far."""
    turn: int
    run: Json
    """The run's state when planning was dispatched."""
    earlier: list[AnyMessage]
    """Its rounds before it was dispatched again."""


class StepOutput(TypedDict, total=False):
    """The output of `execute` for the run."""

    settled_writes: WriteKeys
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
    """A claim that is to be checked: of the last reply, or of an executor's output."""
    wrote: WriteKeys
    """Short keys of writes with a known outcome since the step was dispatched."""


class Step(StepStored, total=False):
    """The state of `execute`: what is stored, and the step's inputs from the run (K7)."""

    fence: str
    scope: str
    step: Json
    works_alone: bool
    """True if its executor works on its own."""
    conversation: str
    """The conversation with its executor that it continues; "" is the thread's."""
    goal: str
    turn: int
    language: str
    granted_tools: list[str]
    """Tools that the approved plan allows without asking."""
    approved_effects: dict[str, str]
    """The effects that tools had when the plan was shown."""
    promotable: list[str]
    """Reasons for which the step stops so that the plan can grow; see `state/plan/planning.py`."""
    interjection_cursor: str
    """The last interjection that the brief includes."""
    is_last: bool
    """True if it is the last open step of the plan."""
    brief: str
    attachments: list[Json]
    known: list[JournalEntry]
    """Citable observations from before it was dispatched: its own, those of planning, of its dependencies and of steps
    that a later plan replaced, and the user's decisions."""
    before: list[JournalEntry]
    """Observations of earlier requests, which can be recalled but not cited."""
    user_answers: list[JournalEntry]
    """The user's answers in this run, to any step."""
    rejected: dict[str, str]
    """Calls that a person rejected, in any step of this request, with the reasons."""
    asked_often: dict[str, str]
    """Calls about which hooks asked often, in any step of this request, with the last questions."""
    settled_writes: list[str]
    """Short keys of accounted writes: of finished steps, and of others that work or wait."""
    earlier: list[AnyMessage]
    """Its rounds before it was dispatched again."""
    transcript_length: Any
    """Counts the characters of its transcript, each message once."""
    fitted_rounds: Any
    """The rounds of its last request, in the form that its model takes."""
    call_history: Any
    """Caches what is computed from the journal while the step works."""
    get_sources: Any
    """Returns the `Sources` of the step's arguments, collected on first use."""
    sandbox: Any
    """The interpreter of its programs while the step works."""
    own_rounds: set[str]
    """The first round of this process, once it has looked for a saved reply: only that one can have one."""
    allowance: Amounts
    run: Json
    """The run's state when the step was dispatched."""


# A node stores the difference between the stored values and those at its end. Most values only grow, so their common
# beginning is recognized by identity and not compared.


def _appended(before: Sequence[Any], after: Sequence[Any]) -> Any:
    common = len(before)
    if not common or (len(after) >= common and after[0] is before[0] and after[common - 1] is before[-1]):
        return list(after[common:])
    return Overwrite(after)


def _appended_rounds(before: Sequence[AnyMessage], after: Sequence[AnyMessage]) -> Any:
    """Return new rounds in a form that LangGraph does not stream to chat clients as messages.

    Shortened rounds replace the stored ones, so that nothing before them is read again.
    """
    rounds = _appended(before, after)
    return {"add": rounds} if rounds and isinstance(rounds, list) else rounds


def _changed_messages(before: Sequence[AnyMessage], after: Sequence[AnyMessage]) -> Any:
    if [message.id for message in before] != [message.id for message in after[: len(before)]]:
        return Overwrite(after)
    return [*(new for new, old in zip(after, before, strict=False) if new is not old), *after[len(before) :]]


def _changed_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> Any:
    if before.keys() - after.keys():
        return Overwrite(after)
    return {key: new for key, new in after.items() if key not in before or _differ(before[key], new)}


def _by_key(differ: Callable[[Any, Any], Any], empty: Any) -> Callable[[Any, Any], Any]:
    """Return the difference of mappings whose values differ in this way."""

    def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> Any:
        touched = {key: value for key, value in after.items() if value is not before.get(key)}
        written = {key: differ(before.get(key, empty), value) for key, value in touched.items()}
        if before.keys() - after.keys() or any(isinstance(write, Overwrite) for write in written.values()):
            return Overwrite(after)
        return {key: write for key, write in written.items() if write or key not in before}

    return changed


def _changed_rows(before: Sequence[Json], after: Sequence[Json]) -> Any:
    if [row["id"] for row in before] != [row["id"] for row in after]:
        return Overwrite(after)
    return [new for new, old in zip(after, before, strict=True) if new != old]


def _added(before: Amounts, after: Amounts) -> Any:
    if before.keys() - after.keys():
        return Overwrite(after)
    changed = {key: amount for key, amount in after.items() if key not in before or before[key] != amount}
    return add(changed, {key: -before[key] for key in changed.keys() & before.keys()})


def _differ(before: Any, after: Any) -> bool:
    return before is not after and bool(before != after)


DIFFERENCES: dict[Any, Callable[[Any, Any], Any]] = {
    append: _appended,
    append_rounds: _appended_rounds,
    append_by_key: _by_key(_appended, ()),
    messages_delta_reducer: _changed_messages,
    merge: _changed_fields,
    merge_records: _by_key(_changed_fields, {}),
    merge_rows: _changed_rows,
    add: _added,
}
"""Reducer → the function that returns the write between two values."""
_HINTS = [
    (key, getattr(hint, "__metadata__", ()))
    for schema in (RunState, Planning, Step)
    for key, hint in get_type_hints(schema, include_extras=True).items()
]
REDUCERS: dict[str, Callable[[Any, Any], Any]] = {
    key: reducer
    for key, hint in _HINTS
    for reducer in (getattr(channel, "reducer", channel) for channel in hint)
    if reducer in DIFFERENCES
}
"""State key → its reducer; a key without one is replaced."""
SELDOM_KEYS = {key for key, hint in _HINTS if SELDOM in hint}
MERGED = {key for key, reducer in REDUCERS.items() if reducer is merge}
"""Keys whose values are merged field by field."""


def apply_update(values: State, update: Mapping[str, Any]) -> State:
    """Return the values after an update."""
    after = {**values, **{key: _join(key, values.get(key), write) for key, write in update.items()}}
    return cast("State", after)


def difference(before: State, after: Mapping[str, Any]) -> State:
    """Return the smallest update that turns the values before into those after; it has nothing that did not change."""
    return cast("State", dict(_differences(before, after)))


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, new in after.items():
        old = before.get(key)
        if key not in REDUCERS:
            again = key in SELDOM_KEYS and new and new is not old  # a reader goes back to where it was written last
            if again or key not in before or _differ(old, new):
                yield key, new
        elif new is not old and (write := DIFFERENCES[REDUCERS[key]](old or type(new)(), new)):
            yield key, write


def _join(key: str, value: Any, write: Any) -> Any:
    if isinstance(write, Overwrite):
        return write.value
    reducer = REDUCERS.get(key)
    if reducer is None:
        return write
    if reducer is add:
        return add(value, write)
    if reducer is messages_delta_reducer:
        value = value or []
    return value if value and not write else reducer(value, [write])  # the value may be long
