"""Our tables: one row per thread, so that lists, queues and sweeps never read checkpoints; and the marks of a database,
which are its version and a fingerprint of its key.

The column `info` holds everything about a thread, encrypted if there is a key. The other columns are copies for
queries.
"""

import functools
import json
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from langgraph.store.base import BaseStore

from donewhen.agent.storage.cipher import Cipher
from donewhen.graph.clock import SECOND, Clock, current_clock, moment_of, text_of
from donewhen.state.channels import Json
from donewhen.state.errors import StorageError
from donewhen.state.values import storable

COLUMNS = ("status", "owner", "queue", "due", "updated", "asked")
_SELECT = f"SELECT thread_id, {', '.join(COLUMNS)}, info FROM donewhen_threads"
TABLE = (
    "CREATE TABLE IF NOT EXISTS donewhen_threads (thread_id TEXT PRIMARY KEY, status TEXT NOT NULL,"
    " owner TEXT NOT NULL, queue TEXT NOT NULL, due TEXT NOT NULL, updated TEXT NOT NULL, info TEXT NOT NULL,"
    " asked TEXT NOT NULL DEFAULT '')",
    "CREATE INDEX IF NOT EXISTS donewhen_threads_updated ON donewhen_threads (updated, thread_id)",
    "CREATE INDEX IF NOT EXISTS donewhen_threads_owner ON donewhen_threads (owner, updated, thread_id)",
    "CREATE INDEX IF NOT EXISTS donewhen_threads_status ON donewhen_threads (status, updated, thread_id)",
    "CREATE INDEX IF NOT EXISTS donewhen_threads_mine ON donewhen_threads (owner, status, updated, thread_id)",
    "CREATE INDEX IF NOT EXISTS donewhen_threads_turns ON donewhen_threads (queue, owner, due, thread_id)"
    " WHERE status = 'queued'",
    "CREATE INDEX IF NOT EXISTS donewhen_threads_work ON donewhen_threads (queue, status, due)",
    "CREATE INDEX IF NOT EXISTS donewhen_threads_asked ON donewhen_threads (status, asked, thread_id)",
    "CREATE INDEX IF NOT EXISTS donewhen_threads_asked_of ON donewhen_threads (owner, status, asked, thread_id)",
    "CREATE INDEX IF NOT EXISTS donewhen_threads_undone ON donewhen_threads (status, due)",
    "CREATE TABLE IF NOT EXISTS donewhen_due (id TEXT PRIMARY KEY, queue TEXT NOT NULL, due TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS donewhen_due_next ON donewhen_due (queue, due)",
    "CREATE TABLE IF NOT EXISTS donewhen_events (thread_id TEXT NOT NULL, n BIGINT NOT NULL, turn BIGINT NOT NULL,"
    " event TEXT NOT NULL, PRIMARY KEY (thread_id, n))",
    "CREATE TABLE IF NOT EXISTS donewhen_spent (day TEXT NOT NULL, owner TEXT NOT NULL, queue TEXT NOT NULL,"
    " session TEXT NOT NULL, key TEXT NOT NULL, amount DOUBLE PRECISION NOT NULL,"
    " PRIMARY KEY (day, owner, queue, session, key))",
    "CREATE INDEX IF NOT EXISTS donewhen_spent_queue ON donewhen_spent (day, queue)",
    "CREATE TABLE IF NOT EXISTS donewhen_announced (thread_id TEXT NOT NULL, request TEXT NOT NULL,"
    " owner TEXT NOT NULL, queue TEXT NOT NULL, key TEXT NOT NULL, amount DOUBLE PRECISION NOT NULL,"
    " PRIMARY KEY (thread_id, request, key))",
)
MIGRATIONS = {2: ("ALTER TABLE donewhen_threads ADD COLUMN asked TEXT NOT NULL DEFAULT ''",)}
"""By version of the tables, the statements that make the next one. `find_unsettled` finds what waits in version 2."""
STORAGE_VERSION = 1
"""Increased whenever older versions of this project cannot read what is written."""
TABLES = 7
"""Raised whenever tables change; databases of `OLDEST_TABLES` and later are migrated when they are opened.

2: the first that was released. 3: since when a thread asks. 4: leases; on PostgreSQL texts are compared by bytes.
5: when schedules are due; a worker that starts adds those that were confirmed before. 6: events. 7: budgets of days."""
OLDEST_TABLES = 2
DAMAGED = "damaged"
"""The status, in lists, of a thread whose row cannot be read; its `problem` says why."""
NEVER = "never"
"""The due time of rows that are never due; it sorts after every moment."""
CUT_OFF = "interrupted"
"""The status, in filters and counts, of a run that nobody works on; its row has `running`, see `_state`."""
_UNDONE = " UNION ALL ".join(
    f"SELECT thread_id FROM donewhen_threads WHERE {where}"
    for where in (
        f"status = 'running' AND due < '{NEVER}'",
        "status = 'waiting' AND asked = ''",
    )
)
_QUEUED = "FROM donewhen_threads AS t WHERE t.queue = ? AND t.status = 'queued'"
_FIRST = f"{_QUEUED} AND t.owner = owners.owner AND t.due <= ? ORDER BY t.due, t.thread_id LIMIT 1"
_FIRSTS = (
    f"SELECT * FROM (WITH RECURSIVE owners(owner) AS (SELECT min(t.owner) {_QUEUED} UNION ALL"
    f" SELECT (SELECT min(t.owner) {_QUEUED} AND t.owner > owners.owner) FROM owners WHERE owners.owner IS NOT NULL)"
    f" SELECT (SELECT t.due {_FIRST}), (SELECT t.thread_id {_FIRST}), owner FROM owners WHERE owner IS NOT NULL)"
    " AS firsts"
)
"""Jumps from owner to owner in the index, however much each of them has queued."""
_OLDEST = (
    "SELECT due, thread_id, owner FROM donewhen_threads WHERE queue = ? AND status = '{}' AND due <= ?"
    " ORDER BY due LIMIT ?"
)


class RowStore(BaseStore):
    """The store of a database: LangGraph's, that also executes the SQL of our own tables.

    The statements are in the SQL that SQLite and PostgreSQL have in common, with `?` for values. Each is executed in a
    transaction of its own, except those of `put_with_next`.
    """

    __slots__ = ()

    @property
    def ahead(self) -> int | None:
        """Return how many nanoseconds the database's clock is ahead of this machine's; None if it has none."""
        return None

    @abstractmethod
    async def read_rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Execute a statement that reads; return its rows."""

    @abstractmethod
    async def put_row(
        self, sql: str, values: Sequence[Any], *, queued: bool = False, claims: bool | None = None
    ) -> None:
        """Execute a statement that writes a row, committed after all that this session wrote before.

        `queued`: a worker can take the thread now; a database that notifies tells the listeners. `claims`, for the row
        of a thread: True takes the thread over, so that a session that lost its connection cannot continue with it;
        False writes only while this session still has the thread; None is for other rows.
        """

    async def put_new(self, namespace: Sequence[str], key: str, value: Json) -> None:
        """Write an entry of the store unless there is one: of two at once, the first stays."""
        await self.put_row(
            "INSERT INTO store (prefix, key, value) VALUES (?, ?, ?) ON CONFLICT (prefix, key) DO NOTHING",
            [".".join(namespace), key, json.dumps(value)],
        )

    @abstractmethod
    def put_with_next(self, sql: str, values: Sequence[Any]) -> None:
        """Execute a statement that writes together with what this session writes next, in the same commit; never
        alone. It may be executed more than once.
        """


class ThreadTable:
    """The thread table, through one session."""

    def __init__(self, store: RowStore, cipher: Cipher | None = None) -> None:
        self.store = store
        self._cipher = cipher

    def clock(self) -> Clock:
        """Return the database's clock: one for all who use it, whatever the clocks of their machines say."""
        return Clock(self.store.ahead)

    def now(self, seconds: float = 0.0) -> str:
        """Return the database's time, or the time so many seconds from now, in the form of rows."""
        return text_of(self.clock().now() + int(seconds * SECOND), "milliseconds")

    async def next_update(self) -> str:
        """Return the time for a row that is written now: later than the time of every other row, even if that was
        written by another clock, and not before anything that was read in this context.
        """
        read = text_of(current_clock().now(), "milliseconds") if self.store.ahead is None else ""
        ((latest,),) = await self.store.read_rows("SELECT max(updated) FROM donewhen_threads", [])
        now = max(self.now(), read)
        return now if not latest or latest < now else text_of(moment_of(latest) + SECOND // 1000, "milliseconds")

    async def get(self, thread_id: str) -> Json | None:
        """Return the row of a thread; None if there is no such thread."""
        rows = await self.store.read_rows(f"{_SELECT} WHERE thread_id = ?", [thread_id])
        return self._read(rows[0])[1] if rows else None

    async def put(self, thread_id: str, info: Json, *, claims: bool = True) -> None:
        """Write the row of a thread; the columns are taken from `info`. `claims` as in `RowStore.put_row`."""
        info = storable(info)
        change = ", ".join(f"{name} = excluded.{name}" for name in (*COLUMNS, "info"))
        await self.store.put_row(
            f"INSERT INTO donewhen_threads (thread_id, {', '.join(COLUMNS)}, info)"
            f" VALUES ({', '.join('?' * (len(COLUMNS) + 2))})"
            f" ON CONFLICT (thread_id) DO UPDATE SET {change}",
            [thread_id, *_columns(info), self._seal(thread_id, info)],
            queued=info.get("status") == "queued",
            claims=claims,
        )

    async def delete(self, thread_id: str) -> None:
        """Delete the row of a thread of which nothing else is stored."""
        await self.store.put_row("DELETE FROM donewhen_threads WHERE thread_id = ?", [thread_id])

    async def find(
        self,
        limit: int,
        *,
        status: Collection[str] = (),
        owner: str | None = None,
        before: str | None = None,
        prefix: str = "",
        after: tuple[str, str] | None = None,
        left: Sequence[str] = (),
    ) -> list[tuple[str, Json]]:
        """Return the matching threads, the last changed first; `before`: not changed since that moment.

        `left` as in `_state`. `after` is `(updated, thread)` of the one before the first. A row that cannot be read has
        the status DAMAGED.
        """
        where, values = _where(status, owner, before, prefix, after, left)
        rows = await self.store.read_rows(
            f"{_SELECT}{where} ORDER BY updated DESC, thread_id DESC LIMIT ?", [*values, limit]
        )
        return [self._read_listed(row) for row in rows]

    async def count(
        self,
        *,
        status: Collection[str] = (),
        owner: str | None = None,
        prefix: str = "",
        left: Sequence[str] = (),
    ) -> int:
        """Return the number of the matching threads. `left` as in `_state`."""
        where, values = _where(status, owner, prefix=prefix, left=left)
        rows = await self.store.read_rows(f"SELECT count(*) FROM donewhen_threads{where}", values)
        return int(rows[0][0])

    async def find_running(self, queue: str, now: str, limit: int) -> list[str]:
        """Return the running threads of a queue, be their workers alive or dead, the longest due first."""
        rows = await self.store.read_rows(
            "SELECT thread_id FROM donewhen_threads WHERE queue = ? AND status = 'running' AND due <= ?"
            " ORDER BY due, updated LIMIT ?",
            [queue, now, limit],
        )
        return [row[0] for row in rows]

    async def find_waiting(
        self, limit: int, *, owner: str | None = None, prefix: str = "", after: tuple[str, str] | None = None
    ) -> list[tuple[str, Json]]:
        """Return threads with open questions, in the order of the oldest of these; `after` is `(asked, thread)`.

        Some are queued with an answer to another question, or at work on one. A row that cannot be read has the status
        DAMAGED.
        """
        where, values = _where((), owner, prefix=prefix)
        where = f"{where or ' WHERE'}{' AND' if where else ''} asked > ''"
        if after is not None:
            where, values = f"{where} AND (asked, thread_id) > (?, ?)", [*values, *after]
        statuses = ("waiting", "queued", "running")
        each = f"SELECT * FROM ({_SELECT}{where} AND status = '{{0}}' ORDER BY asked, thread_id LIMIT ?) AS {{0}}"
        at_once = " UNION ALL ".join(map(each.format, statuses))  # a thread goes from one to the next meanwhile
        rows = await self.store.read_rows(at_once, [*values, limit] * len(statuses))
        asked = 1 + COLUMNS.index("asked")
        rows = sorted(rows, key=lambda row: (row[asked], row[0]))[:limit]
        return [self._read_listed(row) for row in rows]

    async def find_unsettled(self, limit: int) -> list[str]:
        """Return threads whose rows may be wrong: a worker works on them or died, or the row is of an older version.

        A run that was found cut off, or left to a person, is due `NEVER`: it is left out.
        """
        rows = await self.store.read_rows(f"{_UNDONE} LIMIT ?", [limit])
        return [row[0] for row in rows]

    async def find_due(self, queue: str, now: str, limit: int) -> list[tuple[str, str, str]]:
        """Return (due, thread, owner) of a queue's due work: first one thread of each owner, then the longest due.

        Waiting threads whose question the policy answers by now are among them.
        """
        firsts = await self.store.read_rows(_FIRSTS, [queue, queue, queue, now, queue, now])
        firsts += await self.store.read_rows(_OLDEST.format("waiting"), [queue, now, limit])
        rest = await self.store.read_rows(_OLDEST.format("queued"), [queue, now, limit])
        line: list[Any] = [*sorted(row for row in firsts if row[0] is not None), *rest]
        return list({row[1]: row for row in line}.values())[:limit]

    async def put_due_time(self, id: str, queue: str, due: str, *, only_new: bool = False) -> None:
        """Write when a schedule is to be examined next; with `only_new`, only if it has no such time yet."""
        on_conflict = "NOTHING" if only_new else "UPDATE SET queue = excluded.queue, due = excluded.due"
        await self.store.put_row(
            f"INSERT INTO donewhen_due (id, queue, due) VALUES (?, ?, ?) ON CONFLICT (id) DO {on_conflict}",
            [id, queue, due],
        )

    async def delete_due_time(self, id: str) -> None:
        """Delete when a schedule is to be examined, so that it is examined no more."""
        await self.store.put_row("DELETE FROM donewhen_due WHERE id = ?", [id])

    async def find_due_schedules(self, queue: str, now: str, limit: int) -> list[str]:
        """Return the schedules of a queue that are due, the longest due first."""
        rows = await self.store.read_rows(
            "SELECT id FROM donewhen_due WHERE queue = ? AND due <= ? ORDER BY due LIMIT ?", [queue, now, limit]
        )
        return [row[0] for row in rows]

    async def list_with_due_time(self) -> set[str]:
        """Return the ids of all schedules that have a due time."""
        return {row[0] for row in await self.store.read_rows("SELECT id FROM donewhen_due", [])}

    async def counts(self, left: Sequence[str] = ()) -> dict[tuple[str, str], int]:
        """Return the number of threads by (queue, status). `left` as in `_state`."""
        rows = await self.store.read_rows(
            f"SELECT queue, {_state(left)} AS state, count(*) FROM donewhen_threads GROUP BY queue, state", left
        )
        return {(queue, status): int(count) for queue, status, count in rows}

    async def oldest(self, statuses: Sequence[str]) -> dict[str, str]:
        """Return, by status, the time of the last change of the thread that has not changed for longest."""
        marks = ", ".join("?" * len(statuses))
        rows = await self.store.read_rows(
            f"SELECT status, min(updated) FROM donewhen_threads WHERE status IN ({marks}) GROUP BY status", [*statuses]
        )
        return dict(rows)

    def _seal(self, thread_id: str, info: Json) -> str:
        text = json.dumps(info, ensure_ascii=True, default=str)
        if self._cipher is None:
            return text
        return self._cipher.seal_text(text, "thread", thread_id)

    def _read(self, row: tuple[Any, ...]) -> tuple[str, Json]:
        thread_id, *columns, text = row
        try:
            if self._cipher is not None:
                text = self._cipher.unseal_text(text, "thread", thread_id)
            info = dict(json.loads(text, parse_constant=lambda _: None))
        except (StorageError, TypeError, ValueError, RecursionError) as error:
            raise StorageError(f"what is stored about the thread {thread_id!r} is damaged ({error})") from error
        if columns != _columns(info):
            raise StorageError(f"what is stored about the thread {thread_id!r} was changed since it was written")
        return thread_id, storable(info) if "\\ud" in text else info  # an older version stored halves of characters

    def _read_listed(self, row: tuple[Any, ...]) -> tuple[str, Json]:
        """Return a row of a list; one that cannot be read has the status DAMAGED, and hides no other."""
        try:
            return self._read(row)
        except StorageError as error:
            thread_id, *columns, _ = row
            return thread_id, {**dict(zip(COLUMNS, columns, strict=True)), "status": DAMAGED, "problem": str(error)}


def _state(left: Sequence[str]) -> str:
    """Return the expression for a thread's status: a run is `running` while somebody works on it, afterwards CUT_OFF.

    Its row says so, due `NEVER`, unless it could not be settled: these are `left`, the values of the expression.
    """
    is_left = f"due = '{NEVER}' OR thread_id IN ({', '.join('?' * len(left)) or 'NULL'})"
    return f"CASE WHEN status = 'running' AND ({is_left}) THEN '{CUT_OFF}' ELSE status END"


def _where(
    status: Collection[str],
    owner: str | None,
    before: str | None = None,
    prefix: str = "",
    after: tuple[str, str] | None = None,
    left: Sequence[str] = (),
) -> tuple[str, list[Any]]:
    """Return the condition of a list of threads, and its values."""
    wanted: list[tuple[str, list[Any]]] = [("owner = ?", [owner])] if owner is not None else []
    wanted += [("updated <= ?", [before])] if before is not None else []
    wanted += [("(updated, thread_id) < (?, ?)", [*after])] if after is not None else []
    marks = ", ".join("?" * len(status))
    in_rows = ["running" if each == CUT_OFF else each for each in status]
    among = [(f"status IN ({marks})", in_rows), (f"{_state(left)} IN ({marks})", [*left, *status])]
    wanted += among if status else []
    wanted += [("thread_id >= ? AND thread_id < ?", [prefix, prefix + "\U0010ffff"])] if prefix else []
    where = f" WHERE {' AND '.join(sql for sql, _ in wanted)}" if wanted else ""
    return where, [value for _, each in wanted for value in each]


def select_unchanged(thread_ids: Sequence[str], still: tuple[str, str]) -> tuple[str, list[str]]:
    """Return the statement that selects those of the threads that have a status, unchanged since a time."""
    marks = ", ".join("?" * len(thread_ids)) or "NULL"
    where = f"status = ? AND updated <= ? AND thread_id IN ({marks})"
    return f"SELECT thread_id FROM donewhen_threads WHERE {where}", [*still, *thread_ids]


def _columns(info: Json) -> list[str]:
    return [str(info.get(name) or "") for name in COLUMNS]


# Marks ---------------------------------------------------------------------------------------------------------------

version_of: Callable[[str], str] = functools.cache(version)
"""Return the version of an installed package; this takes a millisecond."""


def migration(marks: Mapping[str, str], steps: Mapping[int, Sequence[str]]) -> Iterator[Sequence[str]]:
    """Yield the statements, one transaction each, that migrate a database's tables to the current version.

    `steps` has, by version, the statements for the next one. A new database needs none.
    """
    for tables in range(int(marks.get("tables", TABLES)), TABLES):
        yield *steps.get(tables, ()), f"UPDATE donewhen_meta SET value = '{tables + 1}' WHERE name = 'tables'"


def missing_marks(
    marks: Mapping[str, str], *, library: str, cipher: Cipher | None, used: bool, name: str
) -> dict[str, str]:
    """Return the marks to write before the database can be used: none if it is set up.

    `library` is the version of the saver that creates the tables; `used` is True if any run is stored. Raises
    StorageError if the database is too new or too old, or does not match the key.
    """
    version = marks.get("version", "0")
    if not version.isdecimal() or int(version) > STORAGE_VERSION:
        raise StorageError(
            f"{name} has storage version {version}, this DoneWhen knows {STORAGE_VERSION}: upgrade donewhen"
        )
    if version != "0" and int(marks.get("tables", 1)) < OLDEST_TABLES:
        raise StorageError(f"{name} is of a version before the first release and cannot be read: use a new database")
    wanted = {"version": str(STORAGE_VERSION), "library": library, "tables": str(TABLES)}
    if token := marks.get("key"):
        _check_key(token, cipher, name)
    elif cipher is not None:
        if used:
            raise StorageError(f"{name} holds runs that are not encrypted: leave out the key, or use a new database")
        wanted["key"] = cipher.seal_text("donewhen", "key")
    return {mark: value for mark, value in wanted.items() if marks.get(mark) != value}


def _check_key(token: str, cipher: Cipher | None, name: str) -> None:
    if cipher is None:
        raise StorageError(f"{name} is encrypted: its storage key is needed")
    try:
        cipher.unseal_text(token, "key")
    except StorageError as error:
        raise StorageError(f"{name} is encrypted with another storage key") from error
