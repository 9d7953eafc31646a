"""Runs kept in a PostgreSQL database. A working session writes through the connection that holds its lock."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from donewhen.agent.storage.cipher import Cipher, missing_marks, version_of
from donewhen.agent.storage.postgres.connections import SESSIONS, Connections, PgConnection, hear, holding
from donewhen.agent.storage.postgres.saver import SessionSaver, SessionStore, store_on
from donewhen.agent.storage.storage import Hear, Opened, causes, locks, unique_version
from donewhen.agent.storage.thread_store import POSTGRES_KINDS, forgetting
from donewhen.agent.storage.thread_table import BACKFILL, TABLE
from donewhen.state.errors import ConfigError, StorageError, ThreadBusy

_PATIENCE = 10.0
"""Seconds to wait for a connection, and for another process that is setting up the tables."""
_UNHELD = (
    "SELECT k FROM unnest(%s::bigint[]) AS k EXCEPT SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks"
    " WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
CHECKPOINTS = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
_DEFAULTS: dict[str, Any] = {
    "application_name": "donewhen",
    "connect_timeout": int(_PATIENCE),
    # A lock held over a dead network is freed, and noticed here, within about a minute.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


class PostgresDatabase:
    """One connection per session, for saver and store alike: who lost the lock cannot write (a fence).

    At most 16 sessions are open at once in a process, and 4 connections for reading; others wait for their turn. While
    a session is open, or a worker listens, the connection of one that has ended is kept for the next.
    Session locks do not work through a pooler in transaction mode (pgbouncer): connect past it.
    """

    at_once = SESSIONS

    def __init__(self, url: str, display: str, cipher: Cipher | None = None) -> None:
        self.display = display
        self._cipher = cipher
        try:
            self._options: dict[str, Any] = _DEFAULTS | conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise ConfigError(f"storage {display!r} is not a PostgreSQL URL") from error
        self._connections = Connections(self._options)

    @asynccontextmanager
    async def open(self, thread_id: str | None, *, writes: bool) -> AsyncIterator[Opened]:
        async with AsyncExitStack() as stack:
            connection = await self._connections.turn(stack, session=thread_id is not None)
            if thread_id is not None:
                locks.add(connection)
                key = _lock_key(thread_id)
                if not await _try_lock(connection, key):
                    raise ThreadBusy(f"thread {thread_id!r} is being worked on by another worker")
                stack.push_async_callback(_unlock, connection, key)
            opened = await self._prepared(connection)
            stack.push_async_callback(opened[0].settled)
            if not writes:
                await connection.execute("SET default_transaction_read_only = on")
            with holding(thread_id is not None):
                yield opened

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[tuple[Opened, Hear]]:
        async with AsyncExitStack() as stack:
            await self._connections.keep(stack)
            connection = await self._connections.connect(stack)
            opened = await self._prepared(connection)
            await connection.execute("LISTEN donewhen_queued")
            await connection.execute("SET default_transaction_read_only = on")
            connection.add_notify_handler(lambda _: None)  # else they are kept
            yield opened, partial(hear, connection)

    async def unheld(self, thread_ids: Sequence[str]) -> list[str]:
        async with AsyncExitStack() as stack:
            connection = await self._connections.turn(stack, session=False)
            keys = {_lock_key(thread_id): thread_id for thread_id in thread_ids}
            cursor = await connection.execute(_UNHELD, ([*keys],))
            return [keys[row["k"]] for row in await cursor.fetchall()]

    async def delete(self, thread_ids: Sequence[str]) -> list[str]:
        async with AsyncExitStack() as stack:
            connection = await self._connections.turn(stack, session=False)
            await self._prepared(connection)
            keys = {thread_id: _lock_key(thread_id) for thread_id in thread_ids}
            query = "SELECT k FROM unnest(%s::bigint[]) AS k WHERE pg_try_advisory_lock(k)"
            cursor = await connection.execute(query, ([*keys.values()],))
            locked = {row["k"] for row in await cursor.fetchall()}
            free = [thread_id for thread_id, key in keys.items() if key in locked]
            try:
                async with connection.transaction():
                    kinds = await (await connection.execute(POSTGRES_KINDS.encode())).fetchall()
                    known = [(row["after"],) for row in kinds]
                    for statement, values in forgetting(free, CHECKPOINTS, known):
                        await connection.execute(statement.replace("?", "%s").encode(), values)
            finally:
                await _unlock(connection, *locked)
            return [thread_id for thread_id in thread_ids if thread_id not in free]

    async def check(self) -> None:
        async with AsyncExitStack() as stack:
            connection = await self._connections.connect(stack)
            await self._prepared(connection)
            await _write_marks(connection, {"checked": "yes"})

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

    async def _prepared(self, connection: PgConnection) -> tuple[SessionSaver, SessionStore]:
        store = connection.prepared
        if store is None:
            store = await store_on(connection)
            await self._set_up(connection, SessionSaver(store), store)
            connection.prepared = store
        return SessionSaver(store), store

    async def _set_up(self, connection: PgConnection, saver: SessionSaver, store: SessionStore) -> None:
        key = _lock_key("\0set up")
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        # Polled: a waiting lock statement would hold up CREATE INDEX CONCURRENTLY, and that the lock.
        while await self._missing_marks(connection):
            if await _try_lock(connection, key):
                await self._made(connection, saver, store, key)
            elif asyncio.get_running_loop().time() > deadline:
                raise StorageError(f"{self.display} is locked: another process is setting it up")
            else:
                await asyncio.sleep(0.02)

    async def _made(self, connection: PgConnection, saver: SessionSaver, store: SessionStore, key: int) -> None:
        try:
            await saver.setup()
            await store.setup()
            for statement in (*TABLE, BACKFILL):
                await connection.execute(statement.encode())
            await connection.execute("CREATE TABLE IF NOT EXISTS donewhen_meta (name text PRIMARY KEY, value text)")
            await _write_marks(connection, await self._missing_marks(connection))
        finally:
            await _unlock(connection, key)

    async def _missing_marks(self, connection: PgConnection) -> dict[str, str]:
        found, used = dict[str, str](), False
        with suppress(psycopg.errors.UndefinedTable):
            cursor = await connection.execute("SELECT name, value FROM donewhen_meta")
            found = {row["name"]: row["value"] for row in await cursor.fetchall()}
        if self._cipher is not None and "key" not in found:
            with suppress(psycopg.errors.UndefinedTable):
                used = bool(await _one(connection, "SELECT EXISTS (SELECT 1 FROM checkpoints)"))
        return missing_marks(
            found,
            library=version_of("langgraph-checkpoint-postgres"),
            cipher=self._cipher,
            used=used,
            name=self.display,
        )


def _lock_key(name: str) -> int:
    digest = hashlib.sha256(b"donewhen:" + name.encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


async def _try_lock(connection: PgConnection, key: int) -> bool:
    return bool(await _one(connection, "SELECT pg_try_advisory_lock(%s)", key))


async def _unlock(connection: PgConnection, *keys: int) -> None:
    freed = False
    try:
        with suppress(psycopg.Error):
            await connection.execute("SELECT pg_advisory_unlock(k) FROM unnest(%s::bigint[]) AS k", ([*keys],))
            freed = True
    finally:
        if not freed:  # closing frees them too, but a little later; and a broken connection has lost them already
            await connection.close()


async def _write_marks(connection: PgConnection, marks: dict[str, str]) -> None:
    for name, value in marks.items():
        await connection.execute(
            "INSERT INTO donewhen_meta VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value",
            (name, value),
        )


async def _one(connection: PgConnection, query: Any, *arguments: Any) -> Any:
    cursor = await connection.execute(query, arguments)
    row = await cursor.fetchone()
    return None if row is None else next(iter(row.values()))
