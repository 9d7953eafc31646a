"""Write events to LangGraph's custom stream. Nothing depends on a listener."""

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from langgraph.runtime import Runtime
from langgraph.types import StreamWriter
from pydantic_core import to_jsonable_python

from donewhen.graph.clock import current_clock, text_of
from donewhen.state.channels import Json
from donewhen.state.records import JournalEntry, Pause, StepRecord
from donewhen.state.secrets import SecretStream, conceal, hide_known
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
ANSWER = "answer.text"
"""The path of the argument that holds the run's answer."""
MOST_THREADS = 10_000
"""The number of threads whose last event an agent remembers."""


@dataclass
class EventPlace:
    """The current turn and the last sequence number of a stream of a thread's events."""

    turn: int = 1
    last: int = 0


Places = OrderedDict[str, EventPlace]
"""Where the streams of threads stand, the latest used last."""
_of_process: Places = OrderedDict()
_places: ContextVar[Places] = ContextVar("places", default=_of_process)


def use_places(places: Places) -> None:
    """Count the events of this task in these places: other databases have threads of the same ids."""
    _places.set(places)


def set_turn(thread_id: str, turn: int) -> EventPlace:
    """Set the turn that the thread's next events belong to."""
    places = _places.get()
    place = places.setdefault(thread_id, EventPlace())
    place.turn = turn
    places.move_to_end(thread_id)
    if len(places) > MOST_THREADS:
        places.popitem(last=False)
    return place


def stamp_event(thread_id: str, event: Mapping[str, Any], place: EventPlace | None = None) -> Any:
    """Add the thread, the turn and `seq`.

    `seq` is the time in microseconds, or the last one plus one, so it keeps growing across processes. `place`: of
    another stream than the run's own, such as a watcher's.
    """
    place = place or _places.get().get(thread_id) or set_turn(thread_id, 1)
    before, place.last = place.last, max(place.last + 1, current_clock().now() // 1000)
    return {**event, "thread_id": thread_id, "turn": place.turn, "seq": place.last, "after": before}


def to_event(thread_id: str, written: Any) -> Any:
    """Return a value written to the run's stream as an event; values written by tools become `custom` events."""
    if isinstance(written, Mapping) and {"type", "seq"} <= written.keys() and written.get("thread_id") == thread_id:
        return written
    try:
        data = to_jsonable_python(written, fallback=repr)
    except ValueError:  # a circular value
        data = repr(written)
    return stamp_event(thread_id, {"type": "custom", "data": data})


def now(timespec: str = "seconds") -> str:
    """Return the time on the run's clock, ISO 8601, UTC."""
    return text_of(current_clock().now(), timespec)


def thread_of(runtime: Runtime[Settings]) -> str:
    """Return the thread's id; "" in a run without a checkpointer."""
    info = runtime.execution_info
    return str((info.thread_id if info else None) or "")


class CleanWriter:
    """A stream writer behind which there is no known secret; pieces of speech may split one."""

    def __init__(self, writer: StreamWriter, known: Sequence[str]) -> None:
        self._writer = writer
        self._known = known
        self._streams: dict[tuple[str, Any], tuple[Json, SecretStream]] = {}

    def __call__(self, event: Any) -> None:
        """Send what is clean already."""
        self._writer(event)

    def clean(self, event: Json) -> Json:
        """Return an event without the secrets; the text of its stream may come later."""
        if event["type"] == "note":
            event = {**event, "text": conceal(event["text"], self._known)}  # it may quote an exception
        if event["type"] not in PIECES or not self._known:
            return dict(hide_known(event, self._known))
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


def emit(runtime: Runtime[Settings], type: str, **fields: Any) -> Json:
    """Send one event `{"type": …, …}` to the `custom` stream, and log it; return it as it was sent."""
    event: Json = {"type": type, **fields}
    if isinstance(runtime.stream_writer, CleanWriter):
        event = runtime.stream_writer.clean(event)
        if type in PIECES and not event["text"]:
            return event
    return _send(runtime, event)


def emit_rest(runtime: Runtime[Settings]) -> None:
    """Send the ends of speech that were held back because they might be the beginning of a secret."""
    if isinstance(runtime.stream_writer, CleanWriter):
        for event in runtime.stream_writer.rest():
            _send(runtime, event)


def _send(runtime: Runtime[Settings], written: Json) -> Json:
    event: Json = stamp_event(thread_of(runtime), written)
    type, fields = written["type"], {key: value for key, value in written.items() if key != "type"}
    runtime.stream_writer(event)
    if _log.isEnabledFor(level := LEVELS.get(type, logging.DEBUG)) and type not in UNLOGGED:
        said = ", ".join(f"{key}={str(value)[:200]!r}" for key, value in fields.items() if value not in (None, "", []))
        _log.log(level, "%s %s: %s", event["thread_id"], type, said, extra={"event": event})
    return event


def emit_observation(runtime: Runtime[Settings], entry: JournalEntry) -> None:
    """Send a tool's result."""
    fields = {key: entry[key] for key in ("id", "step", "tool", "ok", "seconds")}
    emit(runtime, "observation", **fields, text=entry["text"][:300])


def emit_step_finished(runtime: Runtime[Settings], step: str, record: StepRecord) -> None:
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
