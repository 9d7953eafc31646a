"""Write events to LangGraph's custom stream. Nothing depends on a listener."""

import logging
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from langgraph.runtime import Runtime
from pydantic_core import to_jsonable_python

from donewhen.state.channels import Json
from donewhen.state.records import Pause, StepRecord
from donewhen.state.settings import Settings

LEVELS = {
    **dict.fromkeys(
        ("goal", "heard", "mode", "revision", "step_started", "step_finished", "question", "outcome", "stalled"),
        logging.INFO,
    ),
    **dict.fromkeys(("note", "correction"), logging.WARNING),
}
"""Log levels by event type; other types are logged at DEBUG."""
UNLOGGED = ("speech", "todos", "charged", "spent")
_log = logging.getLogger("donewhen.graph")
ANSWER = "answer.text"
"""The path of the argument that holds the run's answer."""
MOST_THREADS = 10_000
"""The number of threads whose last event this process remembers."""


@dataclass
class _Sequence:
    """The current turn and the last sequence number of a thread."""

    turn: int = 1
    last: int = 0


_sequences: OrderedDict[str, _Sequence] = OrderedDict()


def set_turn(thread_id: str, turn: int) -> _Sequence:
    """Set the turn that the thread's next events belong to."""
    place = _sequences.setdefault(thread_id, _Sequence())
    place.turn = turn
    _sequences.move_to_end(thread_id)
    if len(_sequences) > MOST_THREADS:
        _sequences.popitem(last=False)
    return place


def stamp_event(thread_id: str, event: Mapping[str, Any]) -> Any:
    """Add the thread, the turn and `seq`.

    `seq` is the time in microseconds, or the last one plus one, so it keeps growing across processes.
    """
    place = _sequences.get(thread_id) or set_turn(thread_id, 1)
    before, place.last = place.last, max(place.last + 1, time.time_ns() // 1000)
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
    """Return the current time, ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec=timespec)


def thread_of(runtime: Runtime[Settings]) -> str:
    """Return the thread's id; "" in a run without a checkpointer."""
    info = runtime.execution_info
    return str((info.thread_id if info else None) or "")


def emit(runtime: Runtime[Settings], type: str, **fields: Any) -> None:
    """Send one event `{"type": …, …}` to the `custom` stream, and log it."""
    event = stamp_event(thread_of(runtime), {"type": type, **fields})
    runtime.stream_writer(event)
    if _log.isEnabledFor(level := LEVELS.get(type, logging.DEBUG)) and type not in UNLOGGED:
        said = ", ".join(f"{key}={str(value)[:200]!r}" for key, value in fields.items() if value not in (None, "", []))
        _log.log(level, "%s %s: %s", event["thread_id"], type, said, extra={"event": event})


def emit_observation(runtime: Runtime[Settings], entry: Mapping[str, Any]) -> None:
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
