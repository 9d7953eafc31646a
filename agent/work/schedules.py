"""Confirmed schedules, each with its plan and approval, and their runs.

A run's thread is named after its schedule and time, so no time runs twice, with any number of workers.
"""

import hashlib
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count, islice, takewhile
from typing import Any, Literal, Protocol

from cronsim import CronSimError
from langchain_core.messages import HumanMessage
from pydantic import ValidationError

from donewhen.agent.request import Request
from donewhen.agent.run import Run
from donewhen.agent.storage import Storage
from donewhen.agent.storage.storage import LOCK_PATIENCE, check_name
from donewhen.agent.storage.store import ThreadStore
from donewhen.agent.storage.table import NEVER
from donewhen.agent.work.thread_rows import ENDED, OPEN, QUEUE, as_run, enqueue, time_text
from donewhen.graph.llm.attachments import read_blocks
from donewhen.state.channels import Json
from donewhen.state.errors import DoneWhenError, ScheduleError, StorageError, ThreadBusy
from donewhen.state.language.texts import known_language
from donewhen.state.ledger import with_granted
from donewhen.state.options import option_problems
from donewhen.state.plan.plan import revision_of
from donewhen.state.plan.schedule import SCHEDULES, Schedule, iso_text, occurrences, with_times, zone_of
from donewhen.state.plan.text import moments_text, schedule_text
from donewhen.state.proof.receipt import SUCCEEDED
from donewhen.state.secrets import conceal_json
from donewhen.state.settings import CARE, NEVER_LOWERED, SettingsLike, merge_settings, stored_settings

SPACE = SCHEDULES
GRACE = timedelta(minutes=5)
"""How late a run may start before it counts as missed, if the schedule has `missed: skip`."""
MOST_MOMENTS = 10_000
"""The most times examined at once; the next poll continues from there."""
KEPT = 10
"""The most skipped times that are stored."""
MOST_CHANGES = 100
"""The most changes of a schedule that are stored."""
ONLY_THESE = "its times, owner, settings and metadata can change; goal, steps and what they may do need a new plan"
POLICY = ("on_question", "default_answer", "question_seconds")
"""The settings that say how questions are answered without a person."""
_log = logging.getLogger("donewhen.work")
MOST_DUE = 100
"""The most due schedules that are examined at once; the next poll continues from there."""
BUSY, BROKEN = timedelta(seconds=2), timedelta(hours=1)
"""The time until a schedule is examined again: if its last run has not ended, and if it cannot be read."""
UNREADABLE = (DoneWhenError, CronSimError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What reading a damaged schedule, or one with a time zone that this machine does not know, may raise."""


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
    approved_by: str = ""
    """The name of who confirmed it, if it was given."""
    owner: str = ""
    settings: Json = field(default_factory=dict)
    """The settings that it keeps for its runs, such as `limits` and `models`; without `tool_context` and secrets."""
    metadata: Json = field(default_factory=dict)
    """The metadata that it keeps for its runs; of the command's, the folder and the model."""
    queue: str = ""
    """The queue whose workers run it."""
    last: Json | None = None
    """The last run: `at`, `thread_id`, its `status`, its first `question` if it waits, and its `problem` if it did not
    succeed; until it has ended, no other run starts. A deleted thread has no status."""
    skipped: list[Json] = field(default_factory=list)
    """The last times without a run: `at`, `why`."""
    changes: list[Json] = field(default_factory=list)
    """The last changes of its times, owner, settings and metadata: `at`, `by`, and `changed`, each name with before and
    after."""
    problem: str = ""
    """Why it does not run: what is damaged, or unknown on this machine; "" if all is well."""

    def to_dict(self) -> Json:
        """Return all fields by name, in plain JSON."""
        return {**vars(self)}


async def keep_schedule(store: ThreadStore, run: Run, values: Mapping[str, Any]) -> None:
    """Store the schedule that a run ended with, if any, as approved; safe to repeat until the row says so.

    `values` is the state of the run.
    """
    receipt, plan = run.receipt, run.plan
    if run.outcome is None or run.outcome["code"] != "scheduled" or not receipt or not plan or not plan["schedule"]:
        return
    row = await store.threads.get(run.thread_id) or {}
    approved = receipt["approvals"][-1]
    confirmed = str(approved["at"])
    id = hashlib.sha256(f"{run.thread_id} {confirmed}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    if row.get("status") in ENDED or row.get("kept") == id:  # it was stored before, and may have been deleted
        return
    if (before := await store.aget(SPACE, id)) is not None:
        await store.threads.put_due_time(
            id, str(before.value.get("queue") or QUEUE), _due_text(before.value), only_new=True
        )
    else:
        await _write(store, _row_to_store(id, run, values, row, approved))
    await store.threads.put(run.thread_id, {**row, "kept": id})


def _row_to_store(id: str, run: Run, values: Mapping[str, Any], row: Json, approved: Mapping[str, Any]) -> Json:
    """Return the row of a schedule that was just confirmed; `row` is that of its thread, `values` its state."""
    plan = values["plan"]
    once = {**plan, "schedule": None}
    return {
        "id": id,
        "title": plan["title"],
        "goal": run.goal,
        "schedule": plan["schedule"],
        "plan": {**once, "revision": revision_of(once)},
        "thread_id": run.thread_id,
        "attachments": values.get("attachments") or [],
        "confirmed": str(approved["at"]),
        "approval": {
            **{key: item for key, item in approved.items() if key in ("at", "name", "answered_by")},
            "thread": run.thread_id,
            "revision": plan["revision"],
        },
        "owner": row.get("owner", ""),
        "queue": row.get("home") or QUEUE,
        "settings": _settings_to_store(row.get("settings") or {}, values),
        "metadata": row.get("metadata") or {},
        "paused": False,
        "seen": str(approved["at"]),
        "last": None,
        "skipped": [],
    }


def _settings_to_store(settings: Json, values: Mapping[str, Any]) -> Json:
    """Return the settings of a schedule's runs: those of its request, with the limits and the language of its plan."""
    given, kept = stored_settings(settings), {**settings, "deadline": None, "today": None}
    if granted := values.get("granted"):
        limits = {key: most for key, most in with_granted(given.limits, granted).items() if key in granted}
        kept["limits"] = {**(settings.get("limits") or {}), **limits}
    declared, shown = (values.get("planning") or {}).get("language"), values.get("language")
    if not given.speaks and (declared or shown != known_language()):  # English may be for want of any
        kept["language"] = declared or shown
    return kept


def due_moment(
    row: Mapping[str, Any], now: datetime, *, is_open: bool, ran: datetime | None = None
) -> tuple[datetime | None, Json]:
    """Return the time to run for now, if any, and the row's changes; `is_open`: the previous run has not ended.

    `ran` is the time of the previous run, which may have been queued before an interruption.
    """
    seen, start = datetime.fromisoformat(row["seen"]), datetime.fromisoformat(row["confirmed"])
    moments = takewhile(lambda moment: moment <= now, occurrences(row["schedule"], seen, start))
    past, policy = [*islice(moments, MOST_MOMENTS)], row["schedule"].get("missed") or "once"
    due = [moment for moment in past if moment.replace(microsecond=0) != ran]
    if not due:
        return None, {"seen": _iso(past[-1])} if past else {}
    if policy == "all":
        return (None, {}) if is_open else (due[0], {"seen": _iso(due[0])})
    last, skipped = due[-1], [(moment, "missed") for moment in due[-KEPT - 1 : -1]]
    if len(past) == MOST_MOMENTS or (policy == "skip" and now - last > GRACE):
        return None, _skip_to(row, last, [*skipped, (last, "missed")])
    if is_open:
        return None, _skip_to(row, last, [*skipped, (last, "the run before had not ended")])
    return last, _skip_to(row, last, skipped)


def _skip_to(row: Mapping[str, Any], last: datetime, skipped: list[tuple[datetime, str]]) -> Json:
    all_skipped = [*(row.get("skipped") or ()), *({"at": _iso(moment), "why": why} for moment, why in skipped)]
    return {"seen": _iso(last), "skipped": all_skipped[-KEPT:]}


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


class ThreadsOfSchedules(Protocol):
    """An object that works on threads for schedules, such as a `Runner`."""

    async def withdraw(self, thread_id: str, reason: str) -> None:
        """End a queued run that has not begun."""
        ...

    async def settle_all(self) -> list[str]:
        """Complete what dead workers left undone on any thread; return those that were found undone last."""
        ...


class Schedules:
    """The schedules on a storage, for people and workers. Unknown ids raise ScheduleError."""

    def __init__(self, storage: Storage, threads: ThreadsOfSchedules | None = None) -> None:
        """`threads` works on the threads in which schedules were confirmed or run."""
        self._storage = storage
        self._threads = threads
        self._is_complete = False
        """True once the schedules of earlier versions have due times."""

    async def show(self, id: str) -> ScheduleInfo:
        """Return one schedule, by its id."""
        async with self._storage.reader() as (_, store):
            try:
                return await _read_info(store, id, await _read_row(store, id))
            except StorageError as error:
                return _info(id, {}, str(error))

    async def pause(self, id: str) -> ScheduleInfo:
        """Pause a schedule until it is resumed; a working run continues."""
        return await self._change(id, paused=True)

    async def resume(self, id: str) -> ScheduleInfo:
        """Continue a schedule from now on; times that passed meanwhile are not run."""
        return await self._change(id, paused=False, seen=_iso(datetime.now(UTC)))

    async def delete(self, id: str) -> None:
        """Delete a schedule, and cancel its queued run if that has not begun; the threads of its runs are kept."""
        async with self._hold(id) as store:
            row: Json = {}
            with suppress(StorageError):  # what is damaged can be deleted
                row = await _read_row(store, id)
            if self._threads and (last := row.get("last")) and "ran" not in await _read_last(store, row):
                await self._threads.withdraw(last["thread_id"], "its schedule was deleted before it began")
            await store.threads.delete_due_time(id)
            await store.adelete(SPACE, id)

    async def change(
        self,
        id: str,
        schedule: Mapping[str, Any] | None = None,
        *,
        owner: str | None = None,
        settings: SettingsLike = None,
        metadata: Mapping[str, Any] | None = None,
        by: str = "",
    ) -> ScheduleInfo:
        """Change what needs no new plan; what is left out stays. The goal and the steps need a new plan.

        Args:
            id: The schedule.
            schedule: Its times, with the fields of `plan["schedule"]`; `at`, `cron` or `every_minutes` replaces another
                of them. Times that have passed are not run.
            owner: Whose its later runs are.
            settings: Those of its later runs, such as models and limits, merged as in `start`.
            metadata: That of its later runs, key by key.
            by: Who changes it; `changes` of the schedule has it.

        Raises ScheduleError for unknown times, for a change that changes nothing, and for settings that ask less than
        was approved: less careful `confirm` or `approvals`, other `answered_by` or `approvers`, and another
        `on_question`, `default_answer` or `question_seconds`, unless `on_question` is then `wait`.
        """
        by = check_name("by", by)
        async with self._hold(id) as store:
            row = await _read_row(store, id)
            change: Json = {"owner": check_name("owner", owner)} if owner is not None else {}
            if schedule is not None and not isinstance(schedule, Mapping):
                raise ScheduleError(
                    f"schedule {id}: its times are a mapping such as {{'at': '08:30'}}, not {schedule!r}"
                )
            if schedule:
                zone = stored_settings(row["settings"]).timezone
                change["schedule"] = _new_times(id, row["schedule"], {"timezone": zone, **row["schedule"]}, schedule)
            if settings:
                change["settings"] = _new_settings(id, row["settings"], settings)
            if metadata:
                change["metadata"] = {**row["metadata"], **metadata}
            change = {key: value for key, value in change.items() if value != row[key]}
            if not change:
                raise ScheduleError(f"schedule {id}: nothing changes; {ONLY_THESE}")
            if "schedule" in change:
                change["seen"] = _iso(datetime.now(UTC))
            entry = {"at": _iso(datetime.now(UTC)), "by": by, "changed": _differences(row, change)}
            row |= {**change, "changes": [*(row.get("changes") or ()), entry][-MOST_CHANGES:]}
            await _write(store, row)
            return await _read_info(store, id, row)

    async def run(self, id: str, *, moment: datetime | None = None) -> str:
        """Run a schedule once more now; return the thread's id.

        With `moment`, it is the run for that time of the schedule, which was missed, or whose run did not succeed. A
        time without a zone is in that of the schedule. Raises ScheduleError while a run of it is open, and for a moment
        that is not past, is no time of the schedule, or has succeeded.
        """
        async with self._hold(id) as store:
            row = await _read_row(store, id)
            if await _has_open_run(store, row):
                raise ScheduleError(
                    f"schedule {id} is at work or waits in thread {row['last']['thread_id']}: end that run first"
                )
            now = datetime.now(zone_of(row["schedule"]))
            exact = await _find_moment(store, row, moment, now) if moment else now
            request = await _request_of(store, row, exact)
            skipped = [each for each in row.get("skipped") or () if datetime.fromisoformat(each["at"]) != exact]
            refused = (*OPEN, *SUCCEEDED) if moment else OPEN
            return await self._submit_run(store, row, {"skipped": skipped}, request, exact, refused=refused)

    async def start_due(
        self, queue: str, now: datetime | None = None, *, store: ThreadStore | None = None
    ) -> list[str]:
        """Queue the due runs of a queue; return their threads. Any number of workers may call it at once.

        Only schedules that are due are read. `store` is an open reader, if there is one.
        """
        if store is None:
            async with self._storage.reader() as (_, store):
                return await self.start_due(queue, now, store=store)
        if not self._is_complete:
            await self._add_missing(store)
            self._is_complete = True
        now, started = now or datetime.fromisoformat(store.threads.now()), list[str]()
        for id in await store.threads.find_due_schedules(queue, time_text(now), MOST_DUE):
            with suppress(ThreadBusy):  # another worker has it
                async with self._hold(id, patience=0.0) as own:
                    if thread_id := await self._start_one(own, id, queue, now):
                        started.append(thread_id)
        return started

    async def _add_missing(self, store: ThreadStore) -> None:
        """Write due times for the schedules that an older version stored without."""
        stored_ids, (items, _) = await store.threads.list_with_due_time(), await store.read_each(SPACE)
        missing = [item for item in items if item.key not in stored_ids]
        if missing:
            async with self._storage.writer() as (_, own):
                for item in missing:
                    queue = str(item.value.get("queue") or QUEUE)
                    await own.threads.put_due_time(item.key, queue, _due_text(item.value), only_new=True)

    async def _start_one(self, store: ThreadStore, id: str, queue: str, now: datetime) -> str | None:
        """Queue the run of a held schedule, if one is due; return its thread.

        A schedule that cannot be read is set aside with its problem, and examined again after an hour.
        """
        row: Json = {}
        try:
            if (item := await store.aget(SPACE, id)) is None:
                await store.threads.delete_due_time(id)
                return None
            row = {**item.value, "problem": ""}
            is_due = not row["paused"] and row["queue"] == queue
            last = await _read_last(store, row)
            state: Json = {"is_open": last.get("status") in OPEN, "ran": _time_of_run(last, id)}
            moment, change = due_moment(row, now, **state) if is_due else (None, {})
            request = await _request_of(store, row, moment) if moment else None
        except UNREADABLE as error:
            problem = _problem_text(error)
            if row.get("problem", problem) != problem:
                await store.aput(SPACE, id, {**row, "problem": problem}, index=False)
            await store.threads.put_due_time(id, queue, time_text(now + BROKEN))
            _log.warning("schedule %s is set aside: %s", id, problem)
            return None
        if moment and request:
            return await self._submit_run(store, row, change, request, moment, now)
        await _write(store, {**row, **change}, now)
        return None

    async def _submit_run(
        self,
        store: ThreadStore,
        row: Json,
        change: Json,
        request: Request,
        moment: datetime,
        now: datetime | None = None,
        *,
        refused: Collection[str] | None = None,
    ) -> str:
        """Submit the run of a time, with the row's `change`; after an interruption, the same id is submitted again.

        The id gets a number if a user took it for a thread of theirs, or a person asks for another run of this time.
        `refused`: the statuses of earlier runs of it for which that raises ScheduleError; None if no person asks. The
        row has the run before the queue has it, and the change after that.
        """
        place = f"{row['id']} {_iso(moment)}"
        for number in count(1):
            thread_id = f"{_thread_id(row, moment)}{f'-{number}' if number > 1 else ''}"
            last = {"at": _iso(moment), "thread_id": thread_id}
            if (taken := await store.threads.get(thread_id)) is None:
                await store.aput(SPACE, row["id"], {**row, "last": last}, index=False)
                async with self._storage.session(thread_id) as (_, own):
                    if (taken := await own.threads.get(thread_id)) is None:
                        await enqueue(own, thread_id, row["queue"], request, schedule=place)
                        break
            if _time_of_run(taken, row["id"]) == moment.replace(microsecond=0):
                if refused is None:
                    break
                if (status := as_run(taken)["status"]) in refused:
                    raise ScheduleError(f"the run of {_iso(moment)} is {status}: thread {thread_id}")
        await _write(store, {**row, **change, "last": last}, now)
        return thread_id

    async def _change(self, id: str, **change: Any) -> ScheduleInfo:
        async with self._hold(id) as store:
            row = {**await _read_row(store, id), **change}
            await _write(store, row)
            return await _read_info(store, id, row)

    async def ids_by_thread(self) -> dict[str, list[str]]:
        """Return the ids of all schedules, by the thread in which they were confirmed."""
        async with self._storage.reader() as (_, store):
            items, _ = await store.read_each(SPACE)
        found = dict[str, list[str]]()
        for item in items:
            found.setdefault(str(item.value.get("thread_id")), []).append(item.key)
        return found

    async def list(self, *, owner: str | None = None) -> list[ScheduleInfo]:
        """Return all schedules, or those of one owner, in the order of their confirmation."""
        if self._threads:  # one whose process died when it was confirmed is stored now
            await self._threads.settle_all()
        async with self._storage.reader() as (_, store):
            items, damaged = await store.read_each(SPACE)
            infos = [await _read_info(store, item.key, item.value) for item in items]
        infos += [_info(id, {}, problem) for id, problem in damaged.items()]
        ordered = sorted(infos, key=lambda each: (each.confirmed, each.id))
        return [each for each in ordered if owner is None or each.owner == owner]

    @asynccontextmanager
    async def _hold(self, id: str, patience: float = LOCK_PATIENCE) -> AsyncIterator[ThreadStore]:
        """Open a store in which nobody else changes this schedule. Raises ThreadBusy."""
        async with self._storage.lock(f"schedule {id}", patience=patience) as store:
            yield store


async def _read_row(store: ThreadStore, id: str) -> Json:
    item = await store.aget(SPACE, id)
    if item is None:
        raise ScheduleError(f"there is no schedule {id!r}")
    return dict(item.value)


async def _write(store: ThreadStore, row: Json, now: datetime | None = None) -> None:
    """Store a schedule, and then when it is examined next: after `now`, even if it waits for its last run."""
    await store.aput(SPACE, row["id"], row, index=False)
    soon = time_text((now or datetime.now(UTC)) + BUSY)
    await store.threads.put_due_time(row["id"], row["queue"], max(_due_text(row), soon))


def _due_text(row: Mapping[str, Any]) -> str:
    """Return when a schedule is to be examined next; "", which is at once, if it cannot be read."""
    try:
        if row["paused"]:
            return NEVER
        seen, start = datetime.fromisoformat(row["seen"]), datetime.fromisoformat(row["confirmed"])
        following = next(occurrences(row["schedule"], seen, start), None)
    except UNREADABLE:
        return ""
    return time_text(following) if following else NEVER


def _thread_id(row: Mapping[str, Any], moment: datetime) -> str:
    return f"{row['id']}-{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _time_of_run(thread: Mapping[str, Any], id: str) -> datetime | None:
    """Return the time for which a thread runs a schedule; None if it runs none of it."""
    of, _, at = str(thread.get("schedule") or "").partition(" ")
    return datetime.fromisoformat(at) if of == id else None


async def _find_moment(store: ThreadStore, row: Mapping[str, Any], asked: datetime, now: datetime) -> datetime:
    """Return the time of a schedule that is meant, to the second. Raises ScheduleError if there is none."""
    id, zone = row["id"], zone_of(row["schedule"])
    asked = (asked if asked.tzinfo else asked.replace(tzinfo=zone)).astimezone(zone)
    if asked > now:
        raise ScheduleError(f"schedule {id}: {_iso(asked)} is not past")
    start = datetime.fromisoformat(row["confirmed"])
    times = [next(occurrences(row["schedule"], max(asked - timedelta(seconds=1), start), start), None)]
    times += [
        datetime.fromisoformat(each["at"]) for each in (*(row.get("skipped") or ()), row.get("last") or ()) if each
    ]
    taken = await store.threads.get(_thread_id(row, asked)) or {}
    if _time_of_run(taken, id) == asked.replace(microsecond=0):  # the times changed since
        times.append(asked)
    if meant := [each for each in times if each and asked <= each <= now and each < asked + timedelta(minutes=1)]:
        return meant[0].astimezone(zone)
    raise ScheduleError(f"schedule {id} has no time at {_iso(asked)}; `show` of the schedule names those without a run")


def _new_times(id: str, before: Json, default: Json, given: Mapping[str, Any]) -> Json:
    """Return the times with those that are given. Raises ScheduleError for what names none."""
    kept = {key: value for key, value in default.items() if value is not None}
    try:
        times = Schedule.model_validate(with_times(kept, given)).model_dump(mode="json")
    except ValidationError as error:
        raise ScheduleError(f"schedule {id}: {'; '.join(option_problems(Schedule, error))}") from None
    return {key: value for key, value in times.items() if key in before or value is not None}


def _new_settings(id: str, before: Json, given: SettingsLike) -> Json:
    """Return the settings with those that are given. Raises ScheduleError if they ask less than was approved."""
    old = stored_settings(before)
    new = merge_settings(old, given)
    less = [name for name in NEVER_LOWERED if CARE[name][getattr(new, name)] < CARE[name][getattr(old, name)]]
    fixed = () if new.on_question == "wait" else POLICY
    less += [name for name in ("answered_by", "approvers", *fixed) if getattr(new, name) != getattr(old, name)]
    for name in less:
        raise ScheduleError(f"schedule {id}: {name} was {getattr(old, name)!r} when it was approved; {ONLY_THESE}")
    return {**before, **new.model_dump(mode="json", exclude_unset=True)}


def _differences(row: Mapping[str, Any], change: Mapping[str, Any]) -> Json:
    """Return what changed, each with before and after; of settings and metadata the changed keys, without secrets."""
    changed: Json = {}
    for name in change.keys() - {"seen"}:
        before, after = row[name], change[name]
        if name in ("settings", "metadata"):
            keys = [key for key in {**before, **after} if before.get(key) != after.get(key) and key != "tool_context"]
            before, after = ({key: each.get(key) for key in keys} for each in (before, after))
        changed[name] = [conceal_json(before), conceal_json(after)]
    return changed


async def _request_of(store: ThreadStore, row: Json, moment: datetime) -> Request:
    """Return the request of a schedule's run."""
    when = moments_text([iso_text(moment)])
    goal = f"{row['goal']}\n\n(This is the run of {when}. That it is repeated is taken care of.)"
    earlier = {"at": row["confirmed"], "thread": row["thread_id"]}  # an older version stored no approval
    plan = {"plan": row["plan"], "approved": row["plan"]["revision"], "approval": row.get("approval") or earlier}
    metadata = {**row["metadata"], "schedule": row["id"], "moment": _iso(moment)}
    blocks = await read_blocks(row.get("attachments") or (), store, row["thread_id"])  # it is kept with its schedule
    message = HumanMessage([{"type": "text", "text": goal}, *blocks] if blocks else goal, id=_thread_id(row, moment))
    return Request([message], stored_settings(row["settings"]), metadata, row["owner"], plan)


async def _has_open_run(store: ThreadStore, row: Json) -> bool:
    """Return whether the schedule's last run is queued, at work or waiting."""
    return (await _read_last(store, row)).get("status") in OPEN


async def _read_last(store: ThreadStore, row: Mapping[str, Any]) -> Json:
    """Return the row of the last run's thread, as that run left it; {} if there is none."""
    with suppress(StorageError):  # its row is damaged: it is shown among the threads, and ends nothing here
        return as_run((await store.threads.get(row["last"]["thread_id"]) if row.get("last") else None) or {})
    return {}


def _problem_text(error: Exception) -> str:
    return str(error) if isinstance(error, DoneWhenError) else f"it cannot be read ({type(error).__name__}: {error})"


async def _read_info(store: ThreadStore, id: str, row: Mapping[str, Any]) -> ScheduleInfo:
    """Return a schedule in its public form, with what became of its last run."""
    info, thread = _info(id, row), await _read_last(store, row)
    asked = thread.get("pending") if thread.get("status") == "waiting" else None
    state = {
        "status": thread.get("status", ""),
        "question": next((each["question"] for each in asked or ()), ""),
        "problem": thread.get("problem") or thread.get("reason") or "",
    }
    return replace(info, last={**info.last, **state}) if info.last else info


def _info(id: str, row: Mapping[str, Any], problem: str = "") -> ScheduleInfo:
    """Return a schedule in its public form; what is damaged is left out, with the `problem`."""
    when, runs = "", list[str]()
    try:
        if not problem:
            when, start = schedule_text(row["schedule"]), datetime.fromisoformat(row["confirmed"])
            following = occurrences(row["schedule"], datetime.now(UTC), start)
            runs = [] if row["paused"] else [iso_text(moment) for moment in islice(following, 3)]
    except UNREADABLE as error:
        problem = _problem_text(error)
    texts = {key: str(row.get(key) or "") for key in ("title", "goal", "thread_id", "confirmed", "owner", "queue")}
    return ScheduleInfo(
        id=id,
        when=when,
        schedule=dict(row.get("schedule") or {}),
        plan=dict(row.get("plan") or {}),
        last=row.get("last"),
        skipped=list(row.get("skipped") or ()),
        changes=list(row.get("changes") or ()),
        approved_by=str((row.get("approval") or {}).get("name") or ""),
        settings=conceal_json(
            {key: each for key, each in (row.get("settings") or {}).items() if key != "tool_context"}
        ),
        metadata=dict(row.get("metadata") or {}),
        status="paused" if row.get("paused") else "active",
        next_runs=runs,
        problem=problem or str(row.get("problem") or ""),
        **texts,
    )
