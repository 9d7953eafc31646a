"""What is known of threads beside their checkpoints: whose they are, how they stand, what they were started with."""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from weakref import WeakKeyDictionary

from donewhen.agent.run import Run
from donewhen.agent.storage import Storage
from donewhen.agent.storage.thread_store import ThreadStore
from donewhen.agent.storage.thread_table import NEVER
from donewhen.graph.people.answering import BY_POLICY
from donewhen.graph.tools.effects import label
from donewhen.state.errors import ConfigError
from donewhen.state.graph_state import Json
from donewhen.state.records import Pause
from donewhen.state.settings import Settings
from donewhen.state.settings.merging import stored_settings

CANCEL_POLL = 1.0
"""Seconds between two looks whether somebody else wants the run to end."""

GOAL_CHARS = 500
QUESTION_CHARS = 300
BEGUN = ""
"""Sorts before every moment: a run that was begun is due before any that was not."""

ENDED = ("completed", "partial", "failed", "cancelled", "exhausted")
UNKNOWN = "unknown"
"""The status of a thread that an older version left, until somebody looks at it."""
TRIES = 5
"""Times that a run is taken up after it was cut off or an error, before it is left to a person."""
AT_ONCE = 1000
"""Threads that are looked up at once."""


@dataclass(frozen=True)
class ThreadInfo:
    """One line of a list of threads."""

    thread_id: str
    goal: str
    status: str
    """Of its run, or `queued` for a worker, or `unknown` for one that an older version left."""
    updated: str
    """ISO 8601, UTC; "" where it is not known, as `created`."""
    metadata: Json = field(default_factory=dict)
    """What whoever started it wants to remember, such as folder and model; never secrets."""
    owner: str = ""
    """Whose it is, as its starter said."""
    created: str = ""
    pending: Sequence[Json] = ()
    """What it waits for: `id`, `kind`, `question`, `options`, `step` and `asked_at` of each pause."""
    queue: str = ""
    """Workers of this queue carry it on; "": nobody but who resumes it."""
    problem: str = ""
    """Why workers could not carry it on; "" once it goes on."""

    def to_dict(self) -> Json:
        """All fields by name, in plain JSON."""
        return {**vars(self), "pending": list(self.pending)}


def now_text() -> str:
    """This moment, as rows have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


async def read_row(store: ThreadStore, thread_id: str) -> Json | None:
    """All that is known of one thread; None of a thread that there is not."""
    row = await store.threads.get(thread_id)
    if row == {}:  # written by an older version, which kept it in the store
        item = await store.aget(("donewhen", "threads", label(thread_id)), "info")
        return dict(item.value) if item else {}
    return row


async def note_thread(store: ThreadStore, thread_id: str, known: Json | None = None, **change: Any) -> None:
    """Write down what changed about a thread: goal, status (running, where none is said), metadata, settings …

    `running` is written before anything of its checkpoints changes, any other status when all that follows is done.
    `known`: its row, where that was read already; {} if there is none.
    """
    before = (await read_row(store, thread_id) if known is None else known) or {"created": now_text()}
    given = {key: value for key, value in change.items() if value is not None}
    if "goal" in given:
        given["goal"] = given["goal"].strip()[:GOAL_CHARS]
    if isinstance(given.get("settings"), Settings):
        given["settings"] = given["settings"].model_dump(mode="json", exclude_unset=True)
    now = now_text()
    fresh = {"status": "running", "due": now, "updated": now, "asked": "", "pending": [], "problem": ""}
    await store.threads.put(thread_id, {"goal": "", "metadata": {}, **before, **fresh, **given})


async def note_end(store: ThreadStore, run: Run, row: Json, **change: Any) -> None:
    """Write down how a run stands at the end of a leg, what it asks, and when a worker has to look at it again."""
    pending = [_asked(pause) for pause in run.pending]
    stands: Json = {"status": run.status, "due": _overdue(pending, settings_of_row(row)), "request": {}}
    if run.status == "waiting":
        stands["asked"] = min([str(pause["asked_at"]) for pause in pending if pause["asked_at"]], default=now_text())
    if run.status == "running" and row.get("queue"):  # it was asked to stop, maybe before it had begun; others go on
        stands = {"status": "queued", "due": BEGUN}
    await note_thread(store, run.thread_id, row, pending=pending, tries=0, **stands, **change)


async def note_cut_off(store: ThreadStore, thread_id: str, row: Json, **change: Any) -> None:
    """Write down that whoever worked on a run is gone: it is for the next worker, but not for ever, or for a person."""
    stands: Json = {"due": NEVER}
    if row.get("queue"):
        stands = {"status": "queued", "due": BEGUN, "tries": int(row.get("tries") or 0) + 1}
        if stands["tries"] > TRIES:
            stands |= {"status": "running", "due": NEVER, "queue": "", "problem": f"its worker died {TRIES} times"}
    await note_thread(store, thread_id, row, **stands, **change)


def left_undone(row: Json) -> bool:
    """Return whether a row does not say how its thread stands: whoever held it was cut off, or it is outdated."""
    status = row.get("status", UNKNOWN)
    if status == "waiting":
        return not row.get("asked")
    return status in ("running", UNKNOWN) and row.get("due") != NEVER


async def put_back(store: ThreadStore, thread_id: str) -> bool:
    """Leave what was submitted to another worker, as it was; False where nothing was."""
    row = await read_row(store, thread_id) or {}
    if waits := bool(row.get("queue") and row.get("request")):
        await note_thread(store, thread_id, status="queued", due=BEGUN)
    return waits


def to_do(row: Json) -> bool:
    """Whether what was submitted is still to be taken up, by a worker, or by who resumes what workers could not."""
    return row.get("status") == "queued" or bool(row.get("request") and row.get("problem"))


def _overdue(asked: Sequence[Json], settings: Settings | None) -> str:
    """When the settings answer what is asked, if nobody does by then."""
    since = [pause["asked_at"] for pause in asked if pause["kind"] in BY_POLICY and pause["asked_at"]]
    if not since:
        return NEVER
    if settings is None or settings.on_question == "wait" or settings.question_seconds is None:
        return NEVER
    until = datetime.fromisoformat(min(since)) + timedelta(seconds=settings.question_seconds)
    return until.astimezone(UTC).isoformat(timespec="milliseconds")


def _asked(pause: Pause) -> Json:
    said = {key: pause.get(key) for key in ("id", "kind", "options", "step", "asked_at")}
    return {**said, "question": str(pause.get("question") or "")[:QUESTION_CHARS]}


CANCEL = ("donewhen", "cancel")


async def ask_to_cancel(store: ThreadStore, thread_id: str, reason: str) -> None:
    """Tell whoever works on a thread that its run is to end."""
    await store.aput((*CANCEL, label(thread_id)), "asked", {"reason": reason}, index=False)


class Cancelling:
    """Hears who is to end of the runs that an agent works on: one of them asks for all, once a second."""

    def __init__(self) -> None:
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Future[str]]] = WeakKeyDictionary()

    async def asked(self, store: ThreadStore, thread_id: str, drain: Callable[[], None]) -> str:
        """Wait until somebody, anywhere, cancels the run, and ask it to stop; gives the reason."""
        loop = asyncio.get_running_loop()
        runs = self._loops.setdefault(loop, {})
        reason: asyncio.Future[str] = loop.create_future()
        runs[thread_id] = reason
        try:
            while not (await asyncio.wait([reason], timeout=CANCEL_POLL))[0]:
                if next(iter(runs)) == thread_id:
                    with suppress(Exception):  # a database that fails is asked again; where it fails for good, runs do
                        await self._ask(store, runs)
        finally:
            del runs[thread_id]
        drain()
        return reason.result()

    async def _ask(self, store: ThreadStore, runs: Mapping[str, asyncio.Future[str]]) -> None:
        reasons = {item.namespace[-1]: str(item.value["reason"]) for item in await store.asearch(CANCEL, limit=1000)}
        for thread_id, reason in runs.items() if reasons else ():
            if label(thread_id) in reasons and not reason.done():
                reason.set_result(reasons[label(thread_id)])


async def forget_cancel(store: ThreadStore, thread_id: str) -> None:
    """The run has ended."""
    if await store.aget((*CANCEL, label(thread_id)), "asked") is not None:
        await store.adelete((*CANCEL, label(thread_id)), "asked")


def info_of(thread_id: str, row: Mapping[str, Any]) -> ThreadInfo:
    """A row as people get it."""
    return ThreadInfo(
        thread_id,
        row.get("goal", ""),
        row.get("status", "unknown"),
        row.get("updated", ""),
        row.get("metadata") or row.get("extra") or {},
        row.get("owner", ""),
        row.get("created", ""),
        tuple(row.get("pending") or ()),
        row.get("queue", ""),
        row.get("problem", ""),
    )


async def thread_settings(store: ThreadStore, thread_id: str) -> Settings | None:
    """The settings with which the thread's request was started, or resumed last; None where none are remembered."""
    return settings_of_row(await read_row(store, thread_id) or {})


def settings_of_row(row: Mapping[str, Any]) -> Settings | None:
    """Return the settings of a thread's request, what nobody set left unset; None where none are remembered."""
    return None if row.get("settings") is None else stored_settings(row["settings"])


class Page(list[Json]):
    """Rows, and the `cursor` with which the next ones are asked for; None: there are no more."""

    cursor: str | None = None


async def list_pending(store: ThreadStore, limit: int, *, owner: str | None = None, cursor: str | None = None) -> Page:
    """Return at most so many open questions, but all of a thread; the thread that was asked longest ago comes first.

    Raises ConfigError for a cursor that is none, and a limit below 1.
    """
    if limit < 1:
        raise ConfigError(f"pending gives at least one question at once, not {limit}")
    page, after, most = Page(), _read_cursor(cursor), min(limit + 1, AT_ONCE)
    while True:
        found = await store.threads.waiting(most, owner=owner, after=after)
        for thread_id, row in found:
            if page and len(page) + len(row["pending"]) > limit:
                page.cursor = json.dumps(after)
                break
            about = {"thread_id": thread_id, "goal": row.get("goal", ""), "owner": row.get("owner", "")}
            page += [{**about, **pause} for pause in row["pending"]]
            after = (str(row["asked"]), thread_id)
        if page.cursor or len(found) < most:
            page.sort(key=lambda each: str(each["asked_at"] or ""))
            return page


def _read_cursor(cursor: str | None) -> tuple[str, str] | None:
    try:
        asked, thread_id = json.loads(cursor) if cursor else ("", "")
    except (ValueError, TypeError):
        asked = thread_id = None
    if not isinstance(asked, str) or not isinstance(thread_id, str):
        raise ConfigError(f"{str(cursor)[:60]!r} is no cursor of open questions: give the one that came with a page")
    return (asked, thread_id) if cursor else None


async def list_threads(
    storage: Storage,
    limit: int,
    *,
    status: Collection[str] = (),
    owner: str | None = None,
    before: str | None = None,
    prefix: str = "",
) -> list[ThreadInfo]:
    """Threads by what is asked for, the one changed last first."""
    async with storage.reader() as (_, store):
        found = await store.threads.find(limit, status=status, owner=owner, before=before, prefix=prefix)
        rows = [(id, row or await read_row(store, id) or {}) for id, row in found]
        return [info_of(id, row) for id, row in rows]
