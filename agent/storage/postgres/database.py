"""Storage in a PostgreSQL database. A working session writes through the connection that holds its lock."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from donewhen.agent.storage.cipher import Cipher
from donewhen.agent.storage.postgres.connections import (
    FULL_PATIENCE,
    SESSIONS,
    Connections,
    PgConnection,
    has_ended,
    wait_for_notice,
)
from donewhen.agent.storage.postgres.locks import TABLE as LEASES
from donewhen.agent.storage.postgres.locks import Hold, TakenOver, find_free, hold, hold_in_transaction, lock_key
from donewhen.agent.storage.postgres.saver import PgSaver, PgSession, PgStore, set_up
from donewhen.agent.storage.storage import SaverAndRows, WaitForWork, causes, unique_version, wait_unnotified
from donewhen.agent.storage.store import POSTGRES_KINDS, POSTGRES_ORDER, deletion_statements
from donewhen.agent.storage.table import (
    MIGRATIONS,
    TABLE,
    migration,
    missing_marks,
    select_unchanged,
    version_of,
)
from donewhen.state.errors import ConfigError, StorageError, ThreadBusy

_SETUP_PATIENCE = 10.0
"""Seconds to wait for a connection, and for another process that creates the tables."""
NOTICE = 0.25
"""Seconds between two looks whether the server closed the connection of a run at work."""
_POOLED = (
    "reached through a connection pooler: it works, by leases instead of locks; name the direct URL for workers, which"
    " is faster, and frees the threads of a killed worker at once"
)
CHECKPOINTS = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
_BY_BYTES = ' TEXT COLLATE "C"'
"""Compares columns by bytes, like Python, whatever the database's locale."""
_TEXTS_OF_3 = ("thread_id", "status", "owner", "queue", "due", "updated", "asked")
_CHANGES = ", ".join(f"ALTER COLUMN {name} TYPE{_BY_BYTES}" for name in _TEXTS_OF_3)
_MIGRATIONS = {**MIGRATIONS, 3: (f"ALTER TABLE donewhen_threads {_CHANGES}",)}
_DEFAULTS: dict[str, Any] = {
    "application_name": "donewhen",
    "connect_timeout": int(_SETUP_PATIENCE),
    # A lock held over a dead network is freed, and noticed here, within about a minute.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


class PostgresDatabase:
    """One connection per session for saver and store, so that a worker that lost the lock cannot write (a fence).

    At most 16 runs are at work at once in a process, and 4 connections serve all else; others wait for their turn.
    Behind a pooler in transaction mode (PgBouncer, Supabase, Neon, RDS Proxy) each write renews a lease instead, and
    nothing is left in a session that may be somebody else's next: docs/operations.md says what that costs.
    """

    at_once: int = SESSIONS
    grace: float = 4 * NOTICE

    def __init__(self, url: str, display: str, cipher: Cipher | None = None) -> None:
        self.display = display
        self._cipher = cipher
        try:
            self._options: dict[str, Any] = _DEFAULTS | conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise ConfigError(f"storage {display!r} is not a PostgreSQL URL") from error
        self._connections = Connections(self._options, display)

    @asynccontextmanager
    async def open(self, thread_id: str | None, *, writes: bool, working: bool) -> AsyncIterator[SaverAndRows]:
        busy = f"thread {thread_id!r} is being worked on by another worker"
        if working and thread_id and self._connections.all_at_work() and not await self.find_free([thread_id]):
            raise ThreadBusy(busy)  # now, and not only when a connection comes free
        async with AsyncExitStack() as stack:
            lent = self._connections.borrow(working=working, locks=thread_id is not None)
            connection = await stack.enter_async_context(lent)
            await self._prepare(connection)
            await connection.set_read_only(None if writes else True)
            session = PgSession(connection)
            stack.push_async_callback(_put_back, session, connection)
            if thread_id is not None:
                session.hold = hold(lock_key(thread_id), connection, session.turn)
                stack.push_async_callback(_free, session.hold, session)
                if not await session.hold.take(connection):
                    raise ThreadBusy(busy)
            session.reconnect = partial(self._reconnect, connection, session.hold, FULL_PATIENCE if working else 0.0)
            stack.push_async_callback(session.writes.flush)
            if working:
                stack.push_async_callback(_end, asyncio.create_task(_notice_loss(session)))
            yield PgSaver(session), PgStore(session)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[tuple[SaverAndRows, WaitForWork]]:
        async with self._connections.connect_beside() as connection:
            await self._prepare(connection)
            if connection.pooled:  # a notice would reach the client that has the server's session at that moment
                wait_for_work: WaitForWork = wait_unnotified
            else:
                await connection.execute("LISTEN donewhen_queued")
                noticed = asyncio.Event()  # set by notices that come while a query is answered
                connection.add_notify_handler(lambda _: noticed.set())
                wait_for_work = partial(wait_for_notice, connection, noticed)
            await connection.set_read_only(True)
            session = PgSession(connection)
            yield (PgSaver(session), PgStore(session)), wait_for_work

    async def _reconnect(self, lost: PgConnection, own_hold: Hold | None, patience: float) -> PgConnection:
        """Return another connection, with the same hold, for one that the server closed; wait while the server starts.
        Raises psycopg.OperationalError, also if another worker changed the thread meanwhile.
        """
        deadline = asyncio.get_running_loop().time() + patience
        while True:
            try:
                if (connection := await self._connect_again(lost, own_hold)) is not None:
                    return connection
                refused = psycopg.OperationalError("the connection was lost, and another worker has the thread now")
            except TakenOver:
                raise
            except psycopg.OperationalError as error:  # the server is not there yet
                refused = error
            if asyncio.get_running_loop().time() > deadline:
                raise refused
            await asyncio.sleep(random.uniform(0.05, 0.5))

    async def _connect_again(self, lost: PgConnection, own_hold: Hold | None) -> PgConnection | None:
        connection, has_hold = await self._connections.connect(), False
        try:
            await connection.set_read_only(lost.read_only)
            has_hold = own_hold is None or await own_hold.take_again(connection)
            return connection if has_hold else None
        finally:
            if not has_hold:
                await connection.close()

    async def find_free(self, thread_ids: Sequence[str]) -> list[str]:
        async with self._connections.borrow() as connection:
            await self._prepare(connection)
            free = await find_free(connection, [lock_key(each) for each in thread_ids])
            return [thread_id for thread_id in thread_ids if lock_key(thread_id) in free]

    async def delete(self, thread_ids: Sequence[str], still: tuple[str, str] | None = None) -> list[str]:
        async with self._connections.borrow() as connection:
            await self._prepare(connection)
            await connection.set_read_only(None)
            async with connection.transaction():
                locked = await hold_in_transaction(connection, [lock_key(each) for each in thread_ids])
                free = [thread_id for thread_id in thread_ids if lock_key(thread_id) in locked]
                if still:
                    query, values = select_unchanged(free, still)
                    rows = await (await connection.execute(query.replace("?", "%s").encode(), values)).fetchall()
                    free = [row["thread_id"] for row in rows]
                kinds = await (await connection.execute(POSTGRES_KINDS.encode())).fetchall()
                kind_rows = [(row["after"],) for row in kinds]
                for statement, values in deletion_statements(free, CHECKPOINTS, kind_rows, POSTGRES_ORDER):
                    await connection.execute(statement.replace("?", "%s").encode(), values)
            return [thread_id for thread_id in thread_ids if thread_id not in free]

    async def check(self) -> str:
        async with self._connections.connect_beside() as connection:
            await self._prepare(connection)
            await _write_marks(connection, {"checked": "yes"})
            return _POOLED if connection.pooled else ""

    async def aclose(self) -> None:
        await self._connections.aclose()

    def next_version(self, current: Any) -> Any:
        return unique_version(current)

    def fault(self, error: BaseException) -> StorageError | None:
        for cause in causes(error):
            if isinstance(cause, psycopg.Error):
                text = (str(cause).strip() or type(cause).__name__).splitlines()[0]
                if password := str(self._options.get("password") or ""):
                    text = text.replace(password, "***")
                return StorageError(f"{self.display} failed: {text}")
        return None

    async def _prepare(self, connection: PgConnection) -> None:
        """Set up the database of a connection if necessary."""
        if self._cipher not in connection.ready_for:
            if await self._missing_marks(connection):
                await connection.set_read_only(None)
                await self._set_up(connection)
            connection.ready_for.add(self._cipher)

    async def _set_up(self, connection: PgConnection) -> None:
        """Make or change the tables in one transaction, under a lock that works behind a pooler too.

        Nothing waits long for what others hold: with old snapshots or in their transactions. Raises StorageError.
        """
        waits_for = "another process is setting it up"
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = '{_SETUP_PATIENCE:g}s'".encode())
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_key("\0set up"),))
                waits_for = ""
                await self._make_tables(connection)
        except psycopg.errors.LockNotAvailable:
            waits_for = waits_for or f"its tables have to be changed, and are in use by {await _others(connection)}"
            raise StorageError(f"{self.display} is locked: {waits_for} (waited {_SETUP_PATIENCE:g} seconds)") from None

    async def _make_tables(self, connection: PgConnection) -> None:
        await connection.execute("CREATE TABLE IF NOT EXISTS donewhen_meta (name text PRIMARY KEY, value text)")
        await set_up(connection)
        for statements in migration(await _read_marks(connection), _MIGRATIONS):
            for statement in statements:
                await connection.execute(statement.encode())
        for statement in (*TABLE, LEASES):
            await connection.execute(statement.replace(" TEXT", _BY_BYTES).encode())
        await _write_marks(connection, await self._missing_marks(connection))

    async def _missing_marks(self, connection: PgConnection) -> dict[str, str]:
        marks, used = await _read_marks(connection), False
        if self._cipher is not None and "key" not in marks:
            with suppress(psycopg.errors.UndefinedTable):
                cursor = await connection.execute("SELECT EXISTS (SELECT 1 FROM checkpoints) AS used")
                used = any(row["used"] for row in await cursor.fetchall())
        return missing_marks(
            marks,
            library=version_of("langgraph-checkpoint-postgres"),
            cipher=self._cipher,
            used=used,
            name=self.display,
        )


async def _notice_loss(session: PgSession) -> None:
    """Let a session reconnect that has nothing to read or write, as in a long call."""
    with suppress(psycopg.Error):  # the session's next operation raises it
        while True:
            await asyncio.sleep(NOTICE)
            if has_ended(session.connection):
                await session.read("SELECT 1", ())


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def _free(own_hold: Hold, session: PgSession) -> None:
    await own_hold.free(session.connection)


async def _put_back(session: PgSession, connection: PgConnection) -> None:
    """Close the connection that replaced the session's own, if there is one."""
    if session.connection is not connection:
        await session.connection.close()
        session.connection = connection


async def _others(connection: PgConnection) -> str:
    """Return which other sessions of the database have had a transaction open for long."""
    query = (
        "SELECT pid, application_name AS name FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid()"
        f" AND xact_start < clock_timestamp() - interval '{_SETUP_PATIENCE} s' ORDER BY xact_start"
    )
    rows = await (await connection.execute(query.encode())).fetchall()
    named = [f"{row['name'] or 'a client'} (pid {row['pid']})" for row in rows[:3]]
    return f"{', '.join(named) or 'others'}: end that, and start again"


async def _read_marks(connection: PgConnection) -> dict[str, str]:
    try:
        cursor = await connection.execute("SELECT name, value FROM donewhen_meta")
    except psycopg.errors.UndefinedTable:
        return {}
    return {row["name"]: row["value"] for row in await cursor.fetchall()}


async def _write_marks(connection: PgConnection, marks: dict[str, str]) -> None:
    """Write all marks or none."""
    async with connection.transaction():
        for name, value in marks.items():
            await connection.execute(
                "INSERT INTO donewhen_meta VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value",
                (name, value),
            )
