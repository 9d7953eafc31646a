"""Number the events of a thread, store them, and write them to LangGraph's custom stream.

A run does the same whether or not anybody listens.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypedDict

from langgraph.runtime import Runtime, get_runtime
from langgraph.store.base import BaseStore, PutOp
from langgraph.types import StreamWriter
from pydantic_core import to_jsonable_python

from donewhen.graph.clock import current_clock, text_of
from donewhen.graph.sync import finish_batch
from donewhen.state.channels import Json
from donewhen.state.language.texts import say
from donewhen.state.proof.journal import closing_lines, is_failure
from donewhen.state.records import JournalEntry, Pause, StepChange, StepRecord
from donewhen.state.secrets import SecretStream, conceal, conceal_json, hide_known
from donewhen.state.settings import Settings

LEVELS = {
    **dict.fromkeys(
        (
            "goal",
            "heard",
            "late",
            "mode",
            "revision",
            "step_started",
            "step_finished",
            "question",
            "outcome",
            "stalled",
        ),
        logging.INFO,
    ),
    **dict.fromkeys(("note", "correction"), logging.WARNING),
}
"""Log levels by event type; other types are logged at DEBUG."""
UNLOGGED = ("speech", "todos", "charged", "spent")
PIECES = ("speech", "thinking")
"""Events whose texts join to one."""
_log = logging.getLogger("donewhen.graph")
PLACE = ("type", "thread_id", "turn", "seq", "after")
ANSWER = "answer.text"
"""The path of the argument that holds the run's answer."""
PASSING = (*PIECES, "speech_restarted", "stalled", "todos", "custom", "outcome")
"""Events that are not stored as they are sent: pieces, what other events or the state have, and the end, which every
stream makes. `keep_speech` stores what pieces of speech say."""
AHEAD = 1_000_000_000
"""Numbers reserved for the events of a run at work, more than it ever sends: they are sent before they are stored."""
MOST_THREADS = 10_000
"""The number of threads of graphs on other storages whose last event a process remembers."""
Append = Callable[[int, int, Json], None]
"""Stores an event, `(number, turn, event)`, together with what the run stores next."""


class Standing(TypedDict):
    """The last numbers of a thread's events, in its row."""

    rest: int
    """The greatest number so far; of a thread at rest, that of the event `waiting` or `outcome`."""
    kept: int | None
    """The number of the last stored event; None if a later one may have been stored since."""
    turn: int
    """The request of the last event."""


class EventLog:
    """Numbers the events of a thread, in the order in which they happen, and stores those that are to be kept.

    Each holder of the thread continues from the `rest` of the last one. That is stored before the graph is called, with
    `AHEAD` added for events that may be sent without being stored. So no number is used twice, except by streams in
    which nothing changes (`open`).
    """

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        self.turn: int = 1
        """The request that the next events belong to."""
        self.unsent: dict[int, int] | None = None
        """The stored events that the stream has not sent yet → the stored one before each; None without a stream."""
        self._rest = self._last = self._kept = 0
        self._append: Append | None = None

    def open(self, stands: Standing, append: Append) -> None:
        """Continue the numbers of the thread's events.

        The two numbers after `rest` are for streams in which nothing changes: each such stream uses the same two.
        """
        self._rest, self._kept, self.turn, self._append = stands["rest"], stands["kept"] or 0, stands["turn"], append
        self._last = self._rest + 1

    @property
    def is_open(self) -> bool:
        """Return whether the log is that of a thread which is held."""
        return self._append is not None

    @property
    def _end(self) -> int:
        return self._last + 1 if self._last > self._rest + 1 else self._rest

    def stands(self, *, at_rest: bool) -> Standing:
        """Return the numbers for the row; while the run is at work, with `AHEAD` for events that may get lost."""
        if at_rest:
            return {"rest": self._end, "kept": self._kept, "turn": self.turn}
        return {"rest": self._last + AHEAD, "kept": None, "turn": self.turn}

    def number(self, event: Mapping[str, Any], *, keep: bool = False, beside: bool = False) -> Any:
        """Return an event with its number, and store it with `keep`.

        `beside`: no stream has it, because its pieces were sent; so no event names it as the one before.
        """
        self._last += 2  # the number before it may be that of an error
        if not self.is_open:  # a graph on another storage: by the clock, so numbers grow in any process
            self._last = max(self._last, current_clock().now() // 1000)
        after = self._kept
        if keep and self._append:
            self._append(self._last, self.turn, {**event, "after": after})
        if keep and not beside:
            self._kept = self._last
            if self.unsent is not None:
                self.unsent[self._last] = after
        return self._placed(event, self._last, after)

    def begin(self, event: Mapping[str, Any]) -> Any:
        """Return the event with which a stream begins, with its place."""
        return self._placed(event, self._rest + 1, self._kept)

    def end(self, event: Mapping[str, Any], *, begun: bool) -> Any:
        """Return the event with which a stream ends, with its place."""
        seq = self._rest + 2 if begun and self._end == self._rest else self._end
        return self._placed(event, seq, self._kept)

    def fail(self, event: Mapping[str, Any], *, begun: bool) -> Any:
        """Return the event of a stream that broke off, with a number before every stored event that was not sent."""
        if self.unsent:
            missed = min(self.unsent)
            return self._placed(event, missed - 1, self.unsent[missed])
        return self.end(event, begun=begun)

    def _placed(self, event: Mapping[str, Any], seq: int, after: int) -> Json:
        return {**event, "thread_id": self.thread_id, "turn": self.turn, "seq": seq, "after": after}


_logs: OrderedDict[str, EventLog] = OrderedDict()
"""The threads of graphs on other storages, the latest used last."""
_log_here: ContextVar[EventLog | None] = ContextVar("event_log", default=None)


def use_log(log: EventLog) -> None:
    """Let the next holder of the log's thread in this task number its events by this log."""
    _log_here.set(log)


@contextmanager
def open_log(thread_id: str, stands: Standing, append: Append) -> Iterator[EventLog]:
    """Number the events of a thread inside, which is held; yield its log."""
    before = _log_here.get()
    log = before if before and before.thread_id == thread_id and not before.is_open else EventLog(thread_id)
    log.open(stands, append)
    _log_here.set(log)
    try:
        yield log
    finally:
        _log_here.set(before)  # not by a token: a generator may end in another context


def log_of(thread_id: str) -> EventLog:
    """Return the log of the thread that is held in this context, or else the one that this process has of it."""
    if (here := _log_here.get()) and here.is_open and here.thread_id == thread_id:
        return here
    log = _logs.setdefault(thread_id, EventLog(thread_id))
    _logs.move_to_end(thread_id)
    if len(_logs) > MOST_THREADS:
        _logs.popitem(last=False)
    return log


def to_event(thread_id: str, written: Any) -> Any:
    """Return a value written to the run's stream as an event; values written by tools become `custom` events."""
    if isinstance(written, Mapping) and {"type", "seq"} <= written.keys() and written.get("thread_id") == thread_id:
        return written
    try:
        data = to_jsonable_python(written, fallback=repr)
    except ValueError:  # a circular value
        data = repr(written)
    return log_of(thread_id).number({"type": "custom", "data": data})


def now() -> str:
    """Return the time on the run's clock, ISO 8601, UTC."""
    return text_of(current_clock().now())


def moment() -> str:
    """Return the time to the millisecond: of what people are asked, say and decide, because these are compared."""
    return text_of(current_clock().now(), "milliseconds")


def thread_of(runtime: Runtime[Settings]) -> str:
    """Return the thread's id; "" in a run without a checkpointer."""
    info = runtime.execution_info
    return str((info.thread_id if info else None) or "")


class CleanWriter:
    """A stream writer that removes known secrets, also those that are split over several pieces of speech."""

    def __init__(self, writer: StreamWriter, known: Sequence[str]) -> None:
        self._writer = writer
        self._known = known
        self._streams: dict[tuple[str, Any], tuple[Json, SecretStream]] = {}

    def __call__(self, event: Any) -> None:
        """Send the part of an event that certainly holds no secret."""
        self._writer(event)

    def without_secrets(self, event: Json) -> Json:
        """Return an event without the secrets."""
        return dict(hide_known(event, self._known))

    def clean(self, event: Json) -> Json:
        """Return an event without the secrets; the text of its stream may come later."""
        if event["type"] == "note":
            event = {**event, "text": conceal(event["text"], self._known)}  # it may quote an exception
        if event["type"] not in PIECES or not self._known:
            return self.without_secrets(event)
        key = (event["type"], event.get("id") or event.get("step"))
        _, stream = self._streams.get(key) or (event, SecretStream(self._known))
        self._streams[key] = event, stream
        return {**event, "text": stream.add(event["text"])}

    def rest(self) -> Iterator[Json]:
        """Yield, at the end of a node, the pieces whose ends were held back."""
        while self._streams:
            event, stream = self._streams.popitem()[1]
            if text := stream.rest():
                yield {**event, "text": text}


def current_runtime() -> Runtime[Any]:
    """Return the runtime of the node that works in this context; one that holds nothing outside a graph."""
    try:
        return get_runtime()
    except (RuntimeError, KeyError):  # not inside a graph
        return Runtime()


def emit(runtime: Runtime[Settings], type: str, **fields: Any) -> Json:
    """Send one event `{"type": …, …}` to the `custom` stream, and log it; return it as it was sent."""
    event: Json = {"type": type, **fields}
    if isinstance(runtime.stream_writer, CleanWriter):
        event = runtime.stream_writer.clean(event)
        if type in PIECES and not event["text"]:
            return event
    return send(runtime, place_event(runtime, event))


def emit_note(runtime: Runtime[Settings], language: str, note: str, **values: Any) -> None:
    """Tell people something about the run: a text of the section `note`, of which 500 characters are shown."""
    event = without_secrets(runtime, {"text": say(language, "note", note, **values)})  # before a cut through one
    emit(runtime, "note", text=event["text"][:500])


def without_secrets(runtime: Runtime[Settings], event: Json) -> Json:
    """Return an event without the secrets that the run knows."""
    writer = runtime.stream_writer
    return writer.without_secrets(event) if isinstance(writer, CleanWriter) else event


def place_event(runtime: Runtime[Settings], event: Json) -> Json:
    """Number an event, and keep it together with what is stored next; it is sent later."""
    placed: Json = log_of(thread_of(runtime)).number(event, keep=event["type"] not in PASSING)
    return placed


async def store_events(store: BaseStore | None) -> None:
    """Store what was emitted so far, where a store of this project would keep it until the next write."""
    if store is not None and hasattr(store, "events"):
        with suppress(Exception):  # then it is stored with the next write
            await finish_batch(store, [PutOp(("donewhen", "events"), "none", None)])


def emit_rest(runtime: Runtime[Settings]) -> None:
    """Send the ends of speech that were held back because they might be the beginning of a secret."""
    if isinstance(runtime.stream_writer, CleanWriter):
        for event in runtime.stream_writer.rest():
            send(runtime, place_event(runtime, event))


def send(runtime: Runtime[Settings], event: Json) -> Json:
    """Send an event that has its place to the `custom` stream, and log it without credentials; return it."""
    type = event["type"]
    runtime.stream_writer(event)
    if _log.isEnabledFor(level := LEVELS.get(type, logging.DEBUG)) and type not in UNLOGGED:
        shown = conceal_json(event)
        fields = {key: value for key, value in shown.items() if key not in PLACE and value not in (None, "", [])}
        said = ", ".join(f"{key}={str(value)[:200]!r}" for key, value in fields.items())
        _log.log(level, "%s %s: %s", event["thread_id"], type, said, extra={"event": shown})
    return event


def keep_speech(runtime: Runtime[Settings], step: str | None, id: str, text: str) -> None:
    """Store as one event the speech that was sent in pieces."""
    event = without_secrets(runtime, {"type": "speech", "step": step, "text": text, "id": id})
    log_of(thread_of(runtime)).number(event, keep=True, beside=True)


def emit_observation(runtime: Runtime[Settings], entry: JournalEntry) -> None:
    """Send a tool's result."""
    fields: Json = {key: entry[key] for key in ("id", "step", "tool", "seconds")}
    if is_failure(entry):
        fields |= {"last_lines": closing_lines(entry["text"])}
    fields |= {key: entry[key] for key in ("made", "failed") if entry.get(key) is not None}
    emit(runtime, "observation", **fields, ok=not is_failure(entry), text=entry["text"][:300])


def emit_step_finished(runtime: Runtime[Settings], step: str, record: StepRecord | StepChange) -> None:
    """Send that a step ended, as its record says.

    A step that works sends it itself as it leaves, because `advance` runs only when all parallel steps have left.
    """
    emit(runtime, "step_finished", step=step, **{key: record.get(key, "") for key in ("status", "result", "reason")})


def emit_charge(runtime: Runtime[Settings], step: str | None, spent: Mapping[str, float]) -> None:
    """Send the spending of planning (`None`) or a step since the last such event; `spent` events have the totals."""
    if spent:
        emit(runtime, "charged", step=step, spent=dict(spent))


def emit_question(runtime: Runtime[Settings], pending: Pause) -> None:
    """Send the question that a person is asked."""
    fields = {key: pending.get(key) for key in ("kind", "step", "question", "tool_call_id")}
    options, problem = list(pending.get("options") or ()), str(pending.get("problem") or "")
    emit(runtime, "question", **fields, options=options, problem=problem)


def emit_verdicts(runtime: Runtime[Settings], step: str | None, verdicts: Sequence[Json], *, accepted: bool) -> None:
    """Send the verdicts on the criteria of a step or of the goal."""
    if verdicts:
        emit(runtime, "verdicts", step=step, accepted=accepted, verdicts=list(verdicts))
