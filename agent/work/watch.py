"""Watch a run from any process: read its events as they are stored, and end with how it paused or ended."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol

from langgraph.types import StateSnapshot

from donewhen.agent.request import is_not_begun, request_in_row
from donewhen.agent.run import Run
from donewhen.agent.storage.events import READ_AT_ONCE
from donewhen.agent.stream import clean_event, end_event
from donewhen.agent.work.thread_rows import is_unsettled
from donewhen.state.channels import Json
from donewhen.state.errors import ConfigError, StorageError
from donewhen.state.statuses import AT_WORK, FINAL

POLL = 0.5
"""Seconds between two polls."""
OUTAGE_PATIENCE = 60.0
"""Seconds to wait for a storage that could be read before: its server restarts, say."""


class Reader(Protocol):
    """Reads threads, as a Runner does."""

    async def read_row(self, thread_id: str) -> Json:
        """Return the row of a thread. Raises UnknownThread."""
        ...

    async def read_events(self, thread_id: str, after: int, turn: int = 0) -> list[Json]:
        """Return the events of a thread after a number and from a request on."""
        ...

    async def read(self, thread_id: str, *, row: Json | None = None) -> tuple[Run, StateSnapshot]:
        """Return the run of a thread, and its state; `row` is its row if it was read already."""
        ...


async def watch_run(
    reader: Reader,
    thread_id: str,
    cursor: str | None = None,
    after: int | None = None,
    secrets: Sequence[str] = (),
) -> AsyncIterator[tuple[Json, str]]:
    """Yield (event, cursor after it) until the outcome, or until the run is left to a person, with a problem.

    While it waits for an answer, it is polled on.

    Raises ConfigError for an invalid cursor, or one of another thread; StorageError if the storage stays away.
    """
    seen = _read_cursor(cursor, thread_id) if after is None else after
    known: Json | None = None
    patient_until, over = 0.0, False
    while True:
        try:
            row, events = await reader.read_row(thread_id), list[Json]()
            if row != known:  # who works on the thread changes its row first
                events, over, is_all = await _read_new(reader, thread_id, row, seen)
                known = row if is_all else None
        except StorageError:
            if time.monotonic() > patient_until:
                raise
            await asyncio.sleep(POLL)
            continue
        patient_until = time.monotonic() + OUTAGE_PATIENCE
        for event in events:
            seen = event["seq"]
            yield clean_event(event, secrets), json.dumps({"of": thread_id, "n": seen}, separators=(",", ":"))
        if over:
            return
        if not events:
            await asyncio.sleep(POLL)


def _read_cursor(cursor: str | None, thread_id: str) -> int | None:
    """Return the event number in a cursor; None, the beginning of the request, without one or in an old version's."""
    try:
        seen = json.loads(cursor) if cursor else {"of": thread_id}
    except (ValueError, TypeError):
        seen = None
    if not isinstance(seen, dict) or type(seen.get("of")) is not str or type(seen.get("n", 0)) is not int:
        raise ConfigError(f"{str(cursor)[:60]!r} is no cursor of a watched run: pass one that came with an event")
    if seen["of"] != thread_id:
        raise ConfigError(
            f"the cursor is of thread {seen['of']!r}, not of {thread_id!r}: watch without one, or with its own"
        )
    return seen.get("n")


async def _read_new(reader: Reader, thread_id: str, row: Json, seen: int | None) -> tuple[list[Json], bool, bool]:
    """Return the events after the last that was seen; whether there will be no more, and whether there are none until
    the row changes.
    """
    standing = row.get("events") or {}
    if seen is None and request_in_row(row):
        _, snapshot = await reader.read(thread_id, row=row)
        if await reader.read_row(thread_id) != row:
            return [], False, False
        if is_not_begun(row, snapshot.values):
            seen = int(standing.get("rest") or 0)  # of the request before, which is over
    events = await reader.read_events(thread_id, seen or 0, standing.get("turn", 0) if seen is None else 0)
    whole = seen is not None or (events and events[0]["type"] == "goal")
    shown = [each for event in events if whole for each in (*_beginning(event, seen or 0), event)]
    more = len(events) == READ_AT_ONCE
    if row["status"] == "queued" or is_unsettled(row) or (whole and more):
        return shown, False, not (is_unsettled(row) or more)
    run, snapshot = await reader.read(thread_id, row=row)
    if await reader.read_row(thread_id) != row:
        return shown, False, False
    place = {"thread_id": thread_id, "turn": standing.get("turn") or int(snapshot.values.get("turn") or 1)}
    before = [*_events_before(run)]
    if not whole and snapshot.values:
        first = (events[0]["seq"] - 2 if events else standing["rest"] - 1) if standing and len(before) == 1 else 1
        shown = [{**each, **place, "seq": seq, "after": 0} for seq, each in enumerate(before, first)] + events
    if more:
        return shown, False, False
    is_left = run.status == "running" and bool(run.problem)
    rest = standing["rest"] if standing else len(before) + 1
    end: Json = {**end_event(run), **place, "seq": rest, "after": standing.get("kept") or 0}
    return [*shown, *([end] if is_left or rest > (seen or 0) else ())], is_left or run.outcome is not None, True


def _beginning(event: Json, seen: int) -> Iterator[Json]:
    """Yield the event with which the stream of a new request begins, before its goal."""
    if event["type"] == "goal" and (at := event["seq"] - 2) > seen:
        place = {key: event[key] for key in ("thread_id", "turn", "after")}
        yield {"type": "started", "goal": event["text"], **place, "seq": at}


def _events_before(run: Run) -> Iterator[Json]:
    """Yield events, made from the state, for a request that an older version began without storing events."""
    yield {"type": "started", "goal": run.goal}
    if run.plan:
        yield {"type": "plan", "plan": run.plan}
    contents = {step["id"]: step["content"] for step in (run.plan["steps"] if run.plan else ())}
    for id, record in run.steps.items():
        if record["started"] and record["status"] in (*AT_WORK, *FINAL) and id in contents:
            yield {"type": "step_started", "step": id, "content": contents[id]}
        if record["status"] in FINAL:
            fields = {key: record[key] for key in ("status", "result", "reason")}
            yield {"type": "step_finished", "step": id, **fields}
