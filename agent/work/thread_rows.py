"""The rows of threads, which stand beside their checkpoints: their status, and the work for workers.

The rows are the queue: an index finds waiting work, and the lock of the thread decides which worker does it. A request
may be given to several workers, one after the other; it is carried out once.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import StateSnapshot

from donewhen.agent.gate import left_to_policy, open_at_work, queued_answers
from donewhen.agent.request import Request, goal_in_row, is_not_begun, is_unread, request_in_row
from donewhen.agent.run import INTERRUPTED, Run, read_run, require_thread, waiting_error
from donewhen.agent.storage import Storage
from donewhen.agent.storage.storage import check_name
from donewhen.agent.storage.store import ThreadStore
from donewhen.agent.storage.table import CUT_OFF, DAMAGED, NEVER
from donewhen.agent.work.news import Notifier, store_failure
from donewhen.graph.events import Standing
from donewhen.graph.llm.output import OutputForm
from donewhen.graph.pauses.call import CallPause
from donewhen.graph.pauses.pause import OpenPause, load_pause, meanwhile_text
from donewhen.graph.people.answers import policy_seconds
from donewhen.graph.people.interjections import read_interjections
from donewhen.graph.people.pauses import words_to_show
from donewhen.state.channels import VERSION, Json
from donewhen.state.errors import ConfigError
from donewhen.state.ledger import with_granted
from donewhen.state.proof.receipt import SUCCEEDED
from donewhen.state.records import Pause
from donewhen.state.secrets import conceal, conceal_json
from donewhen.state.settings import Settings, stored_settings
from donewhen.state.values import map_texts, store_label

_log = logging.getLogger("donewhen.work")
QUEUE = "agents"
"""The default queue of agents; the command has its own."""
OPEN = ("queued", "running", "waiting")
CANCEL_POLL = 1.0
"""Seconds between two checks for a request to cancel."""

GOAL_CHARS, EACH_GOAL_CHARS, GOALS_CHARS = 500, 200, 20_000
"""The most characters of the goal in a row, of each in the list of its thread's goals, and of all these."""
QUESTION_CHARS = 300
ARGUMENTS_CHARS = 4_000
TEXT_CHARS = 10_000
DUE_FIRST = ""
"""The `due` of started runs: it sorts before every time, so that they come before all others."""
DUE_NOW = " "
"""Begins the `due` of what is due at once: it sorts after `DUE_FIRST` and before every time, so no clock has to agree.
The time of the row follows, so that what is due at once is taken in the order of time."""

ENDED = ("completed", "answered", "partial", "failed", "cancelled", "exhausted")
TRIES = 5
"""The number of retries after crashes or errors; after the next one, a run is left to a person."""
READ_AT_ONCE = 1000
"""Threads read at once."""


@dataclass(frozen=True)
class ThreadInfo:
    """One row of a list of threads."""

    thread_id: str
    goal: str
    """Its first 500 characters, if it is longer; `Agent.get` has all."""
    status: str
    """The status of its run, `queued` for a worker, or `damaged` if what is stored about it cannot be read."""
    updated: str
    """ISO 8601, UTC."""
    metadata: Json = field(default_factory=dict)
    """As given at the start, such as folder and model; never secrets."""
    owner: str = ""
    """As given at the start."""
    created: str = ""
    pending: Sequence[Json] = ()
    """Open questions: `id`, `kind`, `text` and more of each, as in `Agent.pending`."""
    queue: str = ""
    """The queue whose workers continue the run; "" if only `resume` does."""
    problem: str = ""
    """Why it did not succeed, workers gave up on it or nobody works on it, or what is damaged; "" once it goes on."""
    due: str = ""
    """The time, ISO 8601, before which no worker takes it up: of a queued run, or when the settings' policy answers."""

    code: str = ""
    """The `outcome.code` of a run that has ended."""
    spent: Mapping[str, float] = field(default_factory=dict)
    """What its last request had spent when it last waited, was stopped or ended; empty before that."""
    schedule: str = ""
    """The id of the schedule of which it is a run; "" if of none, or if the thread got another request since."""
    moment: str = ""
    """The time of that schedule for which it runs, ISO 8601."""
    goals: Sequence[str] = ()
    """The goals of its requests, oldest first, 200 characters of each: about the latest hundred, or more if they are
    shorter, and always the first."""

    def to_dict(self) -> Json:
        """Return all fields by name, in plain JSON."""
        return {**vars(self), "pending": list(self.pending), "goals": list(self.goals)}


def time_text(moment: datetime) -> str:
    """Return a time as rows have it: texts sort as times do. A time without a zone is local. Raises ConfigError."""
    try:
        return moment.astimezone(UTC).isoformat(timespec="milliseconds")
    except (AttributeError, OverflowError, ValueError):
        raise ConfigError(f"{str(moment)[:60]!r} is no time that can be stored: give a datetime") from None


async def update_row(
    store: ThreadStore, thread_id: str, row: Json | None = None, *, claims: bool = True, **change: Any
) -> None:
    """Write the changed fields of a thread's row: goal, status (`running` by default), metadata, settings …

    Its questions stay as they are until others are given or another request comes: what has closed since, a reader
    finds in the state.

    `running` is written before the checkpoints change, any other status after everything that follows from it. `row`
    is the row if it was read already, {} if there is none. `claims` as in `ThreadTable.put`.
    """
    now = await store.threads.next_update()
    before = (await store.threads.get(thread_id) if row is None else row) or {"created": now}
    fields = {key: value for key, value in change.items() if value is not None}
    if "goal" in fields:
        fields["goal"] = _short_goal(fields["goal"])
        kept: Any = before.get("goals", [before.get("goal", "")])
        fields["goals"] = _with_goal(map(_short_goal, fields["goals"]) if "goals" in fields else kept, fields["goal"])
    if fields.get("due") == DUE_NOW:
        fields["due"] += now
    if isinstance(fields.get("settings"), Settings):
        fields["settings"] = fields["settings"].model_dump(mode="json", exclude_unset=True)
    fresh: Json = {"status": "running", "due": DUE_NOW + now, "updated": now}
    fresh |= {"problem": "", "code": "", "reason": ""}
    written = {"goal": "", "metadata": {}, "asked": "", "pending": [], **before, **fresh, **fields}
    if request_in_row(fields) not in ("", request_in_row(before)):  # another request than before
        written |= {"spent": {}, "asked": "", "pending": []}
        if "schedule" in before:
            written["ran"] = before.get("ran") or _end_in(before)
    if (log := store.log) and log.thread_id == thread_id:
        written["events"] = log.stands(at_rest=not is_unsettled(written))
    await store.threads.put(thread_id, written, claims=claims)


def _short_goal(goal: str) -> str:
    return _cut(conceal(goal.strip()[: 2 * GOAL_CHARS]), GOAL_CHARS)


def _with_goal(earlier: Iterable[str], goal: str) -> list[str]:
    """Return the goals of a thread with the current one; the first stays, and the latest, as far as there is room."""
    *goals, goal = (_cut(each, EACH_GOAL_CHARS) for each in (*filter(None, earlier), goal))
    goals = goals if goals[-1:] == [goal] else [*goals, goal]
    while len(goals) > 2 and sum(map(len, goals)) > GOALS_CHARS:
        del goals[1]
    return goals


def _end_in(row: Json) -> Json:
    """Return how the run of a schedule ended in a row that gets another request, which may close it."""
    ended = row["status"] in ENDED
    return {
        "status": row["status"] if ended else "cancelled",
        "reason": row.get("reason", ""),
        "problem": "",
        "pending": [],
    }


def as_run(row: Json) -> Json:
    """Return the row of a thread that runs a schedule as it was before other requests came to the thread."""
    return {**row, **(row.get("ran") or {})}


async def read_standing(store: ThreadStore, thread_id: str, row: Json) -> Standing:
    """Return the numbers of a thread's last events. An older version numbered them by the clock."""
    standing: Standing = row.get("events") or {"rest": store.threads.clock().now() // 1000, "kept": None, "turn": 1}
    if not row:
        return {"rest": 0, "kept": 0, "turn": 1}
    return standing if standing["kept"] is not None else {**standing, "kept": await store.events.last(thread_id)}


async def write_status(store: ThreadStore, run: Run, row: Json, **change: Any) -> None:
    """Write the status of a run that nobody works on, its questions, and when a worker is due to continue it."""
    fields: Json = {"status": run.status, "due": _policy_due(run, settings_in(row)), "request": {}}
    fields |= {"spent": read_spent(row, run), "code": run.outcome["code"] if run.outcome else ""}
    if run.outcome and run.status not in SUCCEEDED:
        fields["reason"] = _cut(conceal(run.outcome["reason"]), QUESTION_CHARS)
    if run.status == "running":  # it was drained, perhaps before it began: the row keeps its request
        by_worker = {"status": "queued", "due": DUE_FIRST, "spent": fields["spent"]}
        fields = by_worker if row.get("queue") else {**fields, "problem": INTERRUPTED, "request": row.get("request")}
    else:
        fields |= questions_of(store, run)
    await update_row(store, run.thread_id, row, tries=0, **fields, **change)


def read_spent(row: Json, run: Run) -> Json:
    """Return what the request of a thread's row has spent; `run` may still be that of the request before."""
    return dict(run.spent) if request_in_row(row) in ("", run.request) else {}


async def write_crash(
    store: ThreadStore,
    thread_id: str,
    row: Json,
    notifier: Notifier | None = None,
    *,
    by_itself: bool = False,
    **change: Any,
) -> None:
    """Write that a run was cut off, as by the end of its worker: the next retries it, up to five times, or a person.

    If it did not die, but only lost its connection, it may continue unless another worker has begun. `by_itself`: it
    cut off its own work, as when it stops, which is no failure of the run and not counted.
    """
    fields: Json = {"due": NEVER, "problem": INTERRUPTED}
    said = ""
    if row.get("queue"):
        tries = int(row.get("tries") or 0) + (not by_itself)
        fields = {"status": "queued", "due": DUE_FIRST, "tries": tries}
        said = f"its worker died; it is in the queue again, retry {tries} of {TRIES}"
        if by_itself:
            said = "its worker stopped and cut it off; it is in the queue again"
        elif tries > TRIES:
            problem = f"its worker died {tries} times"
            fields |= {"status": "running", "due": NEVER, "queue": "", "problem": problem}
            said = f"{problem}; it is left to a person"
            await store_failure(store, thread_id, row, problem, notifier)
    await update_row(store, thread_id, row, claims=False, **fields, **change)
    if said:
        _log.warning("%s: %s", thread_id, said)
    if notifier:
        notifier.wake()


def is_unsettled(row: Json) -> bool:
    """Return whether a row may not match its thread, because a worker died or the row is outdated."""
    if row["status"] == "waiting":
        return not row.get("asked")
    return _is_at_work(row)


def _is_at_work(row: Json) -> bool:
    """Return whether a row says that somebody works on its thread."""
    return bool(row.get("status") == "running" and row.get("due") != NEVER)


def last_turn(row: Json) -> int:
    """Return the number of a thread's last request, from its row; 0 if it has not ended or the state has to be read."""
    return int(row["turn"]) if row.get("status") in ENDED and row.get("version") == VERSION else 0


async def requeue_untaken(store: ThreadStore, thread_id: str) -> bool:
    """Return submitted work that the graph did not take to the queue, unchanged; return False if there was none."""
    row = await store.threads.get(thread_id) or {}
    if waits := bool(row.get("queue") and row.get("request")):
        await update_row(store, thread_id, row, status="queued", due=DUE_FIRST)
    return waits


async def requeue_given_up(store: ThreadStore, thread_id: str, row: Json, own: str) -> None:
    """Return a run that workers gave up on to its queue, or to `own`, to be tried as often as at first."""
    if row.get("status") == "running" and row.get("due") == NEVER and row.get("problem") not in ("", INTERRUPTED):
        change: Json = {"status": "queued", "queue": queue_of(row, own), "due": DUE_NOW, "tries": 0}
        await update_row(store, thread_id, row, **change)


def run_now(thread_id: str, row: Json, snapshot: StateSnapshot, form: OutputForm | None = None) -> Run:
    """Return the run of a thread from its row and its state: this alone decides what the thread does now.

    If another request is stored and has not been read, the previous one is over and its questions are closed. Raises
    UnknownThread, and StorageError for an unknown version of the state.
    """
    status: Any = "queued" if row.get("status") == "queued" else "running"
    settings = settings_in(row)
    if is_unread(row, snapshot.values):
        limits = with_granted(settings.limits, None) if settings else {}
        run = Run(thread_id, status, limits=limits, request=request_in_row(row))
    else:
        snapshot = require_thread(thread_id, snapshot)
        run = read_run(thread_id, snapshot, settings, form, at_work=_is_at_work(row))
        run = run.without(queued_answers(row), status) if has_work(row) else run
    goal = run.goal or goal_in_row(row) or str(row.get("goal") or "")  # until the state has received the request
    return replace(run, goal=goal, problem=run.problem or str(row.get("problem") or ""))


def check_free(thread_id: str, row: Json, snapshot: StateSnapshot, hint: str = "") -> None:
    """Raise ThreadWaiting unless the thread's last request, begun or not, has ended; the error ends with `hint`."""
    if snapshot.created_at or is_not_begun(row, snapshot.values):
        run = run_now(thread_id, row, snapshot)
        if run.status in OPEN:
            raise waiting_error(run, hint)


def has_work(row: Json) -> bool:
    """Return whether submitted work remains for a worker or, after workers gave up, for `resume`."""
    request, problem = row.get("request") or {}, row.get("problem") or ""
    gave_up = problem not in ("", INTERRUPTED)
    return row.get("status") == "queued" or bool(request and gave_up) or bool("answers" in request and problem)


def _policy_due(run: Run, settings: Settings | None) -> str:
    """Return when the policy of the settings answers the first of the open questions; NEVER if it does not."""
    since, seconds = left_to_policy(run.pending).values(), policy_seconds(settings)
    if not since or seconds is None:
        return NEVER
    try:
        return time_text(datetime.fromisoformat(min(since)) + timedelta(seconds=seconds))
    except OverflowError:  # after the year 9999
        return NEVER


def fields_at_work(store: ThreadStore, run: Run, ids: Collection[str]) -> Json:
    """Return the fields of a thread's row while a run works on answers to these questions; the others stay open."""
    return {"answered": dict.fromkeys(ids, ""), **questions_of(store, run.without(ids))}


async def read_still_open(store: ThreadStore, thread_id: str, row: Json, values: Mapping[str, Any]) -> list[OpenPause]:
    """Return the questions that stay open while a run works on answers to others, or is to: it is queued or cut off.

    They stood in the row when the work began; since then it may have closed some, and others were answered.
    """
    ids = [pause["id"] for pause in row.get("pending") or ()] if row["status"] in ("running", "queued") else []
    if not ids or is_unread(row, values):
        return []
    answered = {**queued_answers(row), **await _read_entries(store, thread_id, ids)}
    return [pause for pause in open_at_work(values) if pause.id in ids and pause.id not in answered]


def questions_of(store: ThreadStore, run: Run) -> Json:
    """Return the fields of a thread's row for the open questions of its run, and since when the first one is open."""
    pending = [_pause_summary(pause) for pause in run.pending]
    since = [str(pause["asked_at"]) for pause in pending if pause["asked_at"]]
    return {"pending": pending, "asked": min(since, default=store.threads.now()) if pending else ""}


def _pause_summary(pause: Pause) -> Json:
    summary = {key: pause.get(key) for key in ("id", "kind", "step", "asked_at")}
    summary["options"] = [conceal(each) for each in pause.get("options") or ()]
    asked = load_pause(pause).but(meanwhile=[])  # `show_asked` adds what others say
    if isinstance(asked, CallPause):
        summary |= {"tool": asked.tool, "arguments": _short_arguments(asked.arguments or {})}
    summary |= {key: pause[key] for key in ("schema", "language", "about") if key in pause}
    summary |= asked.asked_of
    shown = _cut(conceal(asked.text()), TEXT_CHARS)
    return {**summary, "question": conceal(str(pause.get("question") or ""))[:QUESTION_CHARS], "text": shown}


async def show_asked(store: ThreadStore, thread_id: str, row: Json) -> Json:
    """Return a row whose questions for somebody named show what others have said since they were asked."""
    pending: Sequence[Json] = row.get("pending") or ()
    if not any(pause.get("answered_by") for pause in pending):
        return row
    interjections = await read_interjections(store, thread_id, "")
    return {**row, "pending": [_with_words(pause, interjections) for pause in pending]}


def _with_words(pause: Json, interjections: Sequence[Json]) -> Json:
    """Return a question in a row with what others have said since, which its text has behind what is noted first."""
    if not pause.get("answered_by"):
        return pause
    since = map_texts(words_to_show(pause, interjections), conceal)
    language, text = pause.get("language") or "en", str(pause["text"])
    new = [row for row in since if meanwhile_text([row], language) not in text]
    noted, gap, asked = text.partition("\n\n")  # a row of an older version has the words already
    text = _cut(f"{noted} {meanwhile_text(new, language)}{gap}{asked}", TEXT_CHARS) if new else text
    return {**pause, "text": text, "meanwhile": since}


def _short_arguments(arguments: Json) -> Json:
    """Return the arguments of a call for a list: without credentials, long texts cut, at most the first 20 values."""
    shown = map_texts(conceal_json(arguments), lambda text: _cut(text, QUESTION_CHARS))
    if len(json.dumps(shown)) <= ARGUMENTS_CHARS:
        return dict(shown)
    return {name: _cut(json.dumps(each), 100) for name, each in [*shown.items()][:20]}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def settings_in(row: Mapping[str, Any]) -> Settings | None:
    """Return the settings of a thread's request, without defaults; None if the row has none."""
    return None if row.get("settings") is None else stored_settings(row["settings"])


def queue_of(row: Json, own: str) -> str:
    """Return the queue whose workers have the tools of a thread's run; `own` if the row names none."""
    return str(row.get("queue") or row.get("home") or own)


async def enqueue(
    store: ThreadStore, thread_id: str, queue: str, work: Request | Json, at: datetime | None = None, **more: Any
) -> None:
    """Store work for the workers of a queue, from `at` on: a request, or `{answers, asks}`.

    `more` are other fields of the thread's row. The caller holds the thread.
    """
    due = time_text(at) if at else DUE_NOW
    change: Json = {"request": work, "answered": {}}
    if isinstance(work, Request):
        facts = {"settings": work.settings, "metadata": work.metadata, "owner": work.owner or None}
        change |= {"goal": work.goal, "request": work.to_json(), "home": queue, **facts}
    await update_row(store, thread_id, status="queued", queue=queue, due=due, tries=0, **change, **more)


# Submitted answers. Each question has one entry, and the first answer stays there, also when it was moved to the row:
# that decides who was first. Whoever holds the thread next moves the entries of open questions. Who submits stores the
# entry and then reads the row; the holder writes the row and then reads the entries. So at least one of the two sees
# what the other wrote.


def _answer_space(thread_id: str) -> tuple[str, ...]:
    return ("donewhen", "answers", store_label(thread_id))


async def leave_answers(store: ThreadStore, thread_id: str, queue: str, answers: Json) -> Json:
    """Store answers by id for whoever holds the thread next: all, or none if another answer to one of them was first.

    Return that answer by the id of its question, or {}.
    """
    space = _answer_space(thread_id)
    for place, id in enumerate(ordered := sorted(answers)):  # all go in one order: who is first at one, is at all
        others = {each: answers[each] for each in ordered if each != id}
        await store.put_new(space, id, {"answer": answers[id], "queue": queue, "others": others})
        entry = (await _read_entries(store, thread_id, [id])).get(id)
        # With what came beside it: so a loss shows at the first question in common, before an equal answer of theirs
        # could be withdrawn.
        first = {**entry.get("others", {}), id: entry["answer"]} if entry else {}
        lost = [each for each in ordered if each in first and first[each] != answers[each]]
        if lost or entry is None:
            await withdraw_answers(store, thread_id, ordered[:place])
            return {each: first.get(each, "") for each in (lost or [id])[:1]}
    return {}


async def _read_entries(store: ThreadStore, thread_id: str, ids: Iterable[str]) -> dict[str, Json]:
    """Return the entries of these questions, by id: `{answer, queue, others, moved}`.

    `others` are the answers that were submitted together with it.
    """
    items = {id: await store.aget(_answer_space(thread_id), id) for id in ids}
    return {id: dict(item.value) for id, item in items.items() if item}


async def read_left_answers(store: ThreadStore, thread_id: str, ids: Iterable[str]) -> dict[str, Json]:
    """Return the entries of these questions, by id, that nobody moved to the row."""
    entries = await _read_entries(store, thread_id, ids)
    return {id: entry for id, entry in entries.items() if not entry.get("moved")}


async def withdraw_answers(store: ThreadStore, thread_id: str, ids: Iterable[str]) -> None:
    """Delete answers that were left."""
    for id in ids:
        await store.adelete(_answer_space(thread_id), id)


def untaken_answers(row: Json, run: Run) -> Json:
    """Return the queued answers to open questions that the graph did not get, by id.

    It got those that a worker gave, unless it still waits at the same interrupt: then that worker died before.
    """
    request, open_ids = row.get("request") or {}, [pause["id"] for pause in run.pending]
    is_same = bool(open_ids) and request.get("asks") == run.pending[0]["interrupt_id"]
    given = () if is_same else row.get("answered") or ()
    queued = request.get("answers") or {}
    return {id: queued[id] for id in open_ids if id in queued and id not in given}


async def enqueue_left_answers(store: ThreadStore, run: Run, before: Json | None = None, queue: str = "") -> Run:
    """Queue left answers to open questions, together with `before`; return the resulting run.

    `queue` is the one to which `before` returns; "" if it is queued.
    """
    thread_id, before = run.thread_id, before or {}
    entries = await _read_entries(store, thread_id, [pause["id"] for pause in run.pending])
    left = {id: entry for id, entry in entries.items() if not entry.get("moved")}
    await withdraw_answers(store, thread_id, entries.keys() - left - before.keys())  # these are asked again
    fresh = {id: entry for id, entry in left.items() if id not in before}
    if fresh or queue:
        answers = {**before, **{id: entry["answer"] for id, entry in fresh.items()}}
        queue = next((entry["queue"] for entry in fresh.values()), queue)
        asks, run = run.pending[0]["interrupt_id"], run.without(answers)
        await enqueue(store, thread_id, queue, {"answers": answers, "asks": asks}, **questions_of(store, run))
    for id, entry in left.items():
        await store.aput(_answer_space(thread_id), id, {**entry, "moved": True}, index=False)
    return run


CANCEL = ("donewhen", "cancel")


@dataclass(frozen=True)
class Cancellation:
    """Why a run is cancelled, and by whom."""

    reason: str = ""
    by: str = ""


async def request_cancel(store: ThreadStore, thread_id: str, why: Cancellation, request: str = "") -> None:
    """Ask the worker of a thread to end its run. Work that begins later forgets it: repeat it until the run ended.

    `request`: the id of the request that is meant, so that none that begins right now is ended.
    """
    value = {**vars(why), "request": request}
    await store.aput((*CANCEL, store_label(thread_id)), "asked", value, index=False)


_Listening = tuple[asyncio.Future[Cancellation], str]
"""The coming cancellation, and the request that may be cancelled; "" for any."""


class CancelListener:
    """Waits for requests to cancel an agent's working runs; one of the runs polls for all, once a second."""

    def __init__(self) -> None:
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Listening]] = WeakKeyDictionary()

    async def wait(
        self, store: ThreadStore, thread_id: str, drain: Callable[[], None], request: str = ""
    ) -> Cancellation:
        """Wait until the run is cancelled from any process; drain it, and return why and by whom.

        `request`: the id of the request that begins with the run, if one does.
        """
        loop = asyncio.get_running_loop()
        runs = self._loops.setdefault(loop, {})
        why: asyncio.Future[Cancellation] = loop.create_future()
        runs[thread_id] = (why, request)
        try:
            while not (await asyncio.wait([why], timeout=CANCEL_POLL))[0]:
                if next(iter(runs)) == thread_id:
                    try:
                        await self._read_requests(store, runs)
                    except Exception:  # its connection may be broken: the next run polls; if it stays, the runs fail
                        runs[thread_id] = runs.pop(thread_id)
        finally:
            del runs[thread_id]
        drain()
        return why.result()

    async def _read_requests(self, store: ThreadStore, runs: Mapping[str, _Listening]) -> None:
        items, _ = await store.read_each(CANCEL)
        asked = {item.namespace[-1]: item.value for item in items}
        for thread_id, (why, request) in runs.items() if asked else ():
            value = asked.get(store_label(thread_id))
            is_meant = value is not None and (not request or (value.get("request") or request) == request)
            if value is not None and is_meant and not why.done():
                why.set_result(Cancellation(str(value.get("reason")), str(value.get("by") or "")))


async def forget_cancel(store: ThreadStore, thread_id: str) -> None:
    """Delete a request to cancel."""
    if await store.aget((*CANCEL, store_label(thread_id)), "asked") is not None:
        await store.adelete((*CANCEL, store_label(thread_id)), "asked")


def read_info(thread_id: str, row: Mapping[str, Any]) -> ThreadInfo:
    """Return a row in its public form."""
    schedule, _, moment = str("" if "ran" in row else row.get("schedule") or "").partition(" ")
    return ThreadInfo(
        thread_id,
        row.get("goal", ""),
        row["status"],
        row.get("updated", ""),
        row.get("metadata") or {},
        row.get("owner", ""),
        row.get("created", ""),
        tuple(row.get("pending") or ()),
        row.get("queue", ""),
        row.get("problem") or row.get("reason") or "",
        _time_in(row),
        row.get("code", ""),
        row.get("spent") or {},
        schedule,
        moment,
        tuple(row.get("goals") or ()),
    )


def _time_in(row: Mapping[str, Any]) -> str:
    """Return the time for which a thread waits that is queued or waits for an answer; "" if for none."""
    due = str(row.get("due") or "")
    return due if due[:1].isdigit() and row["status"] in ("queued", "waiting") else ""


Row = TypeVar("Row")
Show = Callable[[BaseCheckpointSaver[Any], ThreadStore, str, Json], Awaitable[Json]]
"""Returns the row of a thread as it is shown now."""


class Page(list[Row]):
    """Rows, with the `cursor` of the next page; None at the end."""

    cursor: str | None = None
    damaged: Mapping[str, str] = {}
    """By thread, why its questions cannot be read."""


async def list_pending(
    storage: Storage,
    limit: int,
    show: Show,
    *,
    owner: str | None = None,
    prefix: str = "",
    cursor: str | None = None,
) -> Page[Json]:
    """Return about `limit` open questions, all of each thread, oldest first.

    Raises ConfigError for an invalid cursor, and a limit below 1.
    """
    if limit < 1:
        raise ConfigError(f"pending gives at least one question at once, not {limit}")
    _check_filters(owner=owner, prefix=prefix)
    page, after, most = Page[Json](), _read_cursor(cursor), min(limit + 1, READ_AT_ONCE)
    async with storage.reader() as (saver, store):
        while True:
            rows = await store.threads.find_waiting(most, owner=owner, prefix=prefix, after=after)
            for thread_id, row in rows:
                if row["status"] == DAMAGED:
                    page.damaged = {**page.damaged, thread_id: row["problem"]}
                    after = (str(row["asked"]), thread_id)
                    continue
                if page and len(page) + len(row["pending"]) > limit:
                    page.cursor = json.dumps(after)
                    break
                row = await show(saver, store, thread_id, row)
                about = {"thread_id": thread_id, "goal": row.get("goal", ""), "owner": row.get("owner", "")}
                page += [{**about, **pause} for pause in row["pending"]]
                after = (str(row["asked"]), thread_id)
            if page.cursor or len(rows) < most:
                page.sort(key=lambda each: str(each["asked_at"] or ""))
                return page


def _check_filters(**filters: str | None) -> None:
    for what, text in filters.items():
        if text is not None:
            check_name(what, text)


def _read_cursor(cursor: str | None) -> tuple[str, str] | None:
    try:
        at, thread_id = json.loads(cursor) if cursor else ("", "")
    except (ValueError, TypeError):
        at = thread_id = None
    if not isinstance(at, str) or not isinstance(thread_id, str):
        raise ConfigError(f"{str(cursor)[:60]!r} is no cursor of a list: pass the one that came with a page")
    return (at, thread_id) if cursor else None


async def list_threads(
    storage: Storage,
    limit: int,
    *,
    status: Collection[str] = (),
    owner: str | None = None,
    before: str | None = None,
    prefix: str = "",
    cursor: str | None = None,
    show: Show | None = None,
) -> Page[ThreadInfo]:
    """Return at most `limit` matching threads, the last changed first; without `show`, as their rows are stored.

    Raises ConfigError for a filter that no thread can match, and an invalid cursor.
    """
    most: Any = limit
    if not isinstance(most, int) or most < 1:
        raise ConfigError(f"threads gives at least one thread, not {limit!r}")
    _check_filters(owner=owner, prefix=prefix, **{f"status {n}": each for n, each in enumerate(status, 1)})
    left = await storage.find_unsettled_left() if {"running", CUT_OFF} & {*status} else []
    async with storage.reader() as (saver, store):
        filters: Json = {"status": status, "owner": owner, "before": before, "prefix": prefix, "left": left}
        rows = await store.threads.find(limit + 1, **filters, after=_read_cursor(cursor))
        shown = [(id, await show(saver, store, id, row) if show else row) for id, row in rows[:limit]]
        page = Page([read_info(id, row) for id, row in shown])
        if len(rows) > limit:
            page.cursor = json.dumps([page[-1].updated, page[-1].thread_id])
        return page
