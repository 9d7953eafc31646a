"""Confirmed schedules, each with its plan and approval, and their runs.

A run's thread is named after its schedule and time, so no time runs twice, with any number of workers.
"""

import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Literal

from langchain_core.messages import HumanMessage

from donewhen.agent.request import Request
from donewhen.agent.run import Run
from donewhen.agent.storage import Storage
from donewhen.agent.storage.store import ThreadStore
from donewhen.agent.work.thread_rows import OPEN, QUEUE, enqueue
from donewhen.state.channels import Json
from donewhen.state.errors import ScheduleError, ThreadBusy
from donewhen.state.plan.plan import revision_of
from donewhen.state.plan.schedule import occurrences
from donewhen.state.plan.text import moments_text, schedule_text
from donewhen.state.settings import stored_settings

SPACE = ("donewhen_schedules",)
GRACE = timedelta(minutes=5)
"""How late a run may start before it counts as missed."""
MOST_MOMENTS = 10_000
"""The most times examined at once; the next poll continues from there."""
KEPT = 10
"""The most skipped times that are stored."""
PATIENCE = 10.0


@dataclass(frozen=True)
class ScheduleInfo:
    """One schedule."""

    id: str
    title: str
    goal: str
    schedule: Json
    """The plan's schedule: `every_minutes`, `at`, `weekdays`, `cron`, `timezone`, `missed`."""
    when: str
    """The same in words."""
    status: Literal["active", "paused"]
    next_runs: list[str]
    """The next three times, ISO 8601; [] while it is paused."""
    thread_id: str
    """The thread in which it was confirmed."""
    confirmed: str
    plan: Json
    owner: str = ""
    queue: str = ""
    """The queue whose workers run it."""
    last: Json | None = None
    """The last run: `at`, `thread_id`."""
    skipped: list[Json] = field(default_factory=list)
    """The last times without a run: `at`, `why`."""

    def to_dict(self) -> Json:
        """Return all fields by name, in plain JSON."""
        return {**vars(self)}


async def keep_schedule(store: ThreadStore, run: Run) -> None:
    """Store the schedule that a run ended with, if any, as approved; safe to repeat."""
    receipt, plan = run.receipt, run.plan
    if run.outcome is None or run.outcome["code"] != "scheduled" or not receipt or not plan or not plan["schedule"]:
        return
    confirmed = str(receipt["approvals"][-1]["at"])
    id = hashlib.sha256(f"{run.thread_id} {confirmed}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    if await store.aget(SPACE, id) is not None:
        return
    row, once = await store.threads.get(run.thread_id) or {}, {**plan, "schedule": None}
    kept: Json = {
        "id": id,
        "title": plan["title"],
        "goal": run.goal,
        "schedule": plan["schedule"],
        "plan": {**once, "revision": revision_of(once)},
        "thread_id": run.thread_id,
        "confirmed": confirmed,
        "owner": row.get("owner", ""),
        "queue": row.get("home") or QUEUE,
        "settings": {**(row.get("settings") or {}), "deadline": None},
        "metadata": row.get("metadata") or {},
        "paused": False,
        "seen": confirmed,
        "last": None,
        "skipped": [],
    }
    await store.aput(SPACE, id, kept, index=False)


def due_moment(row: Mapping[str, Any], now: datetime, *, busy: bool) -> tuple[datetime | None, Json]:
    """Return the time to run for now, if any, and the row's changes; `busy`: the previous run has not ended."""
    seen, start = datetime.fromisoformat(row["seen"]), datetime.fromisoformat(row["confirmed"])
    past = takewhile(lambda moment: moment <= now, occurrences(row["schedule"], seen, start))
    due, policy = [*islice(past, MOST_MOMENTS)], row["schedule"].get("missed") or "once"
    if not due:
        return None, {}
    if policy == "all":
        return (None, {}) if busy else (due[0], {"seen": _iso(due[0])})
    last, skipped = due[-1], [(moment, "missed") for moment in due[-KEPT - 1 : -1]]
    if len(due) == MOST_MOMENTS or (policy == "skip" and now - last > GRACE):
        return None, _skip_to(row, last, [*skipped, (last, "missed")])
    if busy:
        return None, _skip_to(row, last, [*skipped, (last, "the run before had not ended")])
    return last, _skip_to(row, last, skipped)


def _skip_to(row: Mapping[str, Any], last: datetime, skipped: list[tuple[datetime, str]]) -> Json:
    all_skipped = [*(row.get("skipped") or ()), *({"at": _iso(moment), "why": why} for moment, why in skipped)]
    return {"seen": _iso(last), "skipped": all_skipped[-KEPT:]}


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


class Schedules:
    """The schedules on a storage, for people and workers. Unknown ids raise ScheduleError."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def show(self, id: str) -> ScheduleInfo:
        """Return one schedule, by its id."""
        async with self._storage.reader() as (_, store):
            return _info(await _read_row(store, id))

    async def pause(self, id: str) -> ScheduleInfo:
        """Pause a schedule until it is resumed; a working run continues."""
        return await self._change(id, paused=True)

    async def resume(self, id: str) -> ScheduleInfo:
        """Continue a schedule from now on; times that passed meanwhile are not run."""
        return await self._change(id, paused=False, seen=_iso(datetime.now(UTC)))

    async def delete(self, id: str) -> None:
        """Delete a schedule; the threads of its runs are kept."""
        async with self._lock(id) as store:
            await _read_row(store, id)
            await store.adelete(SPACE, id)

    async def run(self, id: str) -> str:
        """Run a schedule once more now; return the thread's id. Raises ScheduleError while a run of it is open."""
        async with self._lock(id) as store:
            row = await _read_row(store, id)
            if await _is_busy(store, row):
                raise ScheduleError(
                    f"schedule {id} is at work or waits in thread {row['last']['thread_id']}: end that run first"
                )
            return await self._submit_run(store, row, datetime.now(UTC), {})

    async def start_due(
        self, queue: str, now: datetime | None = None, *, store: ThreadStore | None = None
    ) -> list[str]:
        """Queue the due runs of a queue; return their threads. Any number of workers may call it at once.

        `store` is an open reader, if there is one.
        """
        if store is None:
            async with self._storage.reader() as (_, store):
                return await self.start_due(queue, now, store=store)
        now, started = now or datetime.now(UTC), []
        rows = [row for row in await _read_rows(store) if row["queue"] == queue and not row["paused"]]
        for row in rows:
            if due_moment(row, now, busy=False) == (None, {}):
                continue
            try:
                async with self._lock(row["id"], patience=0.0) as store:
                    row = await _read_row(store, row["id"])
                    moment, change = due_moment(row, now, busy=await _is_busy(store, row))
                    if row["paused"]:
                        continue
                    if moment is not None:
                        started.append(await self._submit_run(store, row, moment, change))
                    elif change:
                        await _write(store, {**row, **change})
            except (ThreadBusy, ScheduleError):
                continue  # another worker has it, or it was deleted
        return started

    async def _submit_run(self, store: ThreadStore, row: Json, moment: datetime, change: Json) -> str:
        """Submit the run of a time, then record it; after an interruption, the same id is submitted again."""
        at = _iso(moment)
        thread_id = f"{row['id']}-{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"
        when = moments_text([moment.isoformat(timespec="minutes")])
        goal = f"{row['goal']}\n\n(This is the run of {when}. That it is repeated is taken care of.)"
        plan = {"plan": row["plan"], "approved": row["plan"]["revision"]}
        metadata = {**row["metadata"], "schedule": row["id"]}
        settings = stored_settings(row["settings"])
        request = Request([HumanMessage(goal, id=thread_id)], settings, metadata, row["owner"], plan)
        async with self._storage.session(thread_id) as (_, own):
            if await own.threads.get(thread_id) is None:
                await enqueue(own, thread_id, row["queue"], request)
        await _write(store, {**row, **change, "last": {"at": at, "thread_id": thread_id}})
        return thread_id

    async def _change(self, id: str, **change: Any) -> ScheduleInfo:
        async with self._lock(id) as store:
            row = {**await _read_row(store, id), **change}
            await _write(store, row)
            return _info(row)

    async def list(self, *, owner: str | None = None) -> list[ScheduleInfo]:
        """Return all schedules, or those of one owner, in the order of their confirmation."""
        async with self._storage.reader() as (_, store):
            rows = await _read_rows(store)
        return [_info(row) for row in rows if owner is None or row["owner"] == owner]

    @asynccontextmanager
    async def _lock(self, id: str, patience: float = PATIENCE) -> AsyncIterator[ThreadStore]:
        async with self._storage.lock(f"schedule {id}", patience=patience) as store:
            yield store


async def _read_rows(store: ThreadStore) -> list[Json]:
    items = await store.asearch(SPACE, limit=10_000)
    return sorted((dict(item.value) for item in items), key=lambda row: (row["confirmed"], row["id"]))


async def _read_row(store: ThreadStore, id: str) -> Json:
    item = await store.aget(SPACE, id)
    if item is None:
        raise ScheduleError(f"there is no schedule {id!r}")
    return dict(item.value)


async def _write(store: ThreadStore, row: Json) -> None:
    await store.aput(SPACE, row["id"], row, index=False)


async def _is_busy(store: ThreadStore, row: Json) -> bool:
    last = await store.threads.get(row["last"]["thread_id"]) if row["last"] else None
    return bool(last) and (last or {}).get("status") in OPEN


def _info(row: Mapping[str, Any]) -> ScheduleInfo:
    start, now = datetime.fromisoformat(row["confirmed"]), datetime.now(UTC)
    following = occurrences(row["schedule"], now, start)
    runs = [] if row["paused"] else [moment.isoformat(timespec="minutes") for moment in islice(following, 3)]
    same = ("id", "title", "goal", "schedule", "thread_id", "confirmed", "plan", "owner", "queue", "last", "skipped")
    return ScheduleInfo(
        when=schedule_text(row["schedule"]),
        status="paused" if row["paused"] else "active",
        next_runs=runs,
        **{key: row[key] for key in same},
    )
