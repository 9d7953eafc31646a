"""Runs kept in a PostgreSQL database. A working session writes through the connection that holds its lock."""

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.store.base import GetOp
from langgraph.store.postgres.aio import AsyncPostgresStore
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, dict_row
from typing_extensions import override

from donewhen.agent.storage.cipher import Cipher, StrictSerializer, missing_marks
from donewhen.agent.storage.storage import Opened, causes, unique_version
from donewhen.agent.storage.thread_store import stop_batching
from donewhen.agent.storage.thread_table import BACKFILL, TABLE
from donewhen.state.errors import ConfigError, StorageError, ThreadBusy

PgConnection = psycopg.AsyncConnection[DictRow]

_PATIENCE = 10.0
"""Seconds to wait for a connection, and for another process that is setting up the tables."""
_FULL_PATIENCE = 60.0
"""Seconds to wait for other processes to leave the server a connection."""
SESSIONS, LOOKS = 16, 4
_DEFAULTS: dict[str, Any] = {
    "application_name": "donewhen",
    "connect_timeout": int(_PATIENCE),
    # A lock held over a dead network is freed, and noticed here, within about a minute.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


class _ReadingStore(AsyncPostgresStore):
    """LangGraph's own query for `get` is an UPDATE too, of times to live, which a reader may not do."""

    @override
    def _get_batch_GET_ops_queries(self, get_ops: Sequence[tuple[int, GetOp]]) -> list[Any]:
        wanted: dict[tuple[str, ...], list[tuple[int, str]]] = {}
        for index, op in get_ops:
            wanted.setdefault(op.namespace, []).append((index, op.key))
        query = "SELECT key, value, created_at, updated_at FROM store WHERE prefix = %s AND key = ANY(%s)"
        return [
            (query, (".".join(namespace), [key for _, key in items]), namespace, items)
            for namespace, items in wanted.items()
        ]

    async def rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """One statement on the table of threads."""
        async with self.lock:
            cursor = await self.conn.execute(sql.replace("?", "%s").encode(), values)  # type: ignore[union-attr]
            return [tuple(row.values()) for row in await cursor.fetchall()] if cursor.description else []


class _TextSaver(AsyncPostgresSaver):
    """Texts among the channel values stand in plain JSON, where PostgreSQL takes no NUL: it becomes U+FFFD."""

    @override
    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        values = {
            name: value.replace("\0", "\ufffd") if isinstance(value, str) else value
            for name, value in checkpoint["channel_values"].items()
        }
        return await super().aput(config, {**checkpoint, "channel_values": values}, metadata, new_versions)


@dataclass
class _Line:
    """Where sessions of one event loop wait for a connection, and what a session hands on to the next one waiting."""

    sessions: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SESSIONS))
    looks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LOOKS))
    handed: list[PgConnection] = field(default_factory=list)
    waiting: int = 0


_holding: ContextVar[bool] = ContextVar("donewhen_holding", default=False)
"""Whether a session is open around this one, as where a tool starts a run; it must not wait for itself."""


class PostgresDatabase:
    """One connection per session, for saver and store alike: who lost the lock cannot write (a fence).

    At most 16 sessions are open at once in a process, and 4 connections for reading; others wait for their turn.
    Session locks do not work through a pooler in transaction mode (pgbouncer): connect past it.
    """

    def __init__(self, url: str, display: str, cipher: Cipher | None = None) -> None:
        self.display = display
        self._cipher = cipher
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()
        try:
            self._options: dict[str, Any] = _DEFAULTS | conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise ConfigError(f"storage {display!r} is not a PostgreSQL URL") from error

    @asynccontextmanager
    async def open(self, thread_id: str | None, *, writes: bool) -> AsyncIterator[Opened]:
        async with AsyncExitStack() as stack:
            connection = await self._turn(stack, session=thread_id is not None)
            if thread_id is not None:
                key = _lock_key(thread_id)
                if not await _try_lock(connection, key):
                    raise ThreadBusy(f"thread {thread_id!r} is being worked on by another worker")
                stack.push_async_callback(_unlock, connection, key)
            opened = await self._prepared(connection)
            if not writes:
                await connection.execute("SET default_transaction_read_only = on")
            before = _holding.get()
            _holding.set(before or thread_id is not None)
            try:
                yield opened
            finally:
                _holding.set(before)

    async def thread_ids(self, limit: int) -> list[str]:
        query = (
            "SELECT thread_id FROM checkpoints WHERE checkpoint_ns = ''"
            " GROUP BY thread_id ORDER BY max(checkpoint_id) DESC LIMIT %s"
        )
        async with AsyncExitStack() as stack:
            connection = await self._connect(stack)
            await self._prepared(connection)
            cursor = await connection.execute(query, (limit,))
            return [row["thread_id"] for row in await cursor.fetchall()]

    async def check(self) -> None:
        async with AsyncExitStack() as stack:
            connection = await self._connect(stack)
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

    async def _turn(self, stack: AsyncExitStack, *, session: bool) -> PgConnection:
        """A connection, when it is our turn to have one."""
        line = self._lines.setdefault(asyncio.get_running_loop(), _Line())
        if _holding.get():
            return await self._connect(stack)
        if not session:
            await stack.enter_async_context(line.looks)
            return await self._connect(stack)
        line.waiting += 1
        connection: PgConnection | None = None
        try:
            await stack.enter_async_context(line.sessions)
            if line.handed:
                connection = line.handed.pop()
                stack.push_async_callback(_hand_on, connection, line)
        finally:
            line.waiting -= 1
            await _close_spare(line)
        return connection or await self._connect(stack, line)

    async def _connect(self, stack: AsyncExitStack, line: _Line | None = None) -> PgConnection:
        deadline = asyncio.get_running_loop().time() + _FULL_PATIENCE
        while True:
            try:
                connection = await PgConnection.connect(
                    make_conninfo(**self._options), autocommit=True, prepare_threshold=0, row_factory=dict_row
                )
                break
            except psycopg.OperationalError as error:
                full = "too many clients" in str(error) or "remaining connection slots" in str(error)
                if not full or asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(random.uniform(0.05, 0.5))
        if line is None:
            stack.push_async_callback(connection.close)
        else:
            stack.push_async_callback(_hand_on, connection, line)
        return connection

    async def _prepared(self, connection: PgConnection) -> tuple[AsyncPostgresSaver, AsyncPostgresStore]:
        saver = _TextSaver(connection, serde=StrictSerializer())
        store = _ReadingStore(connection)
        await stop_batching(store)
        store.lock = saver.lock  # pipelines of two tasks on one connection must not mix
        if await self._missing_marks(connection):
            await self._set_up(connection, saver, store)
        return saver, store

    async def _set_up(self, connection: PgConnection, saver: AsyncPostgresSaver, store: AsyncPostgresStore) -> None:
        key = _lock_key("\0set up")
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        # Polled: a waiting lock statement would hold up CREATE INDEX CONCURRENTLY, and that the lock.
        while not await _try_lock(connection, key):
            if asyncio.get_running_loop().time() > deadline:
                raise StorageError(f"{self.display} is locked: another process is setting it up")
            await asyncio.sleep(0.02)
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
        found: dict[str, str] = {}
        if await _one(connection, "SELECT to_regclass('donewhen_meta')"):
            cursor = await connection.execute("SELECT name, value FROM donewhen_meta")
            found = {row["name"]: row["value"] for row in await cursor.fetchall()}
        used = bool(await _one(connection, "SELECT to_regclass('checkpoints')")) and bool(
            await _one(connection, "SELECT EXISTS (SELECT 1 FROM checkpoints)")
        )
        return missing_marks(
            found,
            library=version("langgraph-checkpoint-postgres"),
            cipher=self._cipher,
            used=used,
            name=self.display,
        )


async def _hand_on(connection: PgConnection, line: _Line) -> None:
    """Leave a connection that is as good as new to whoever waits for one."""
    if connection.info.transaction_status == TransactionStatus.IDLE:
        line.handed.append(connection)
        await _close_spare(line)
    else:
        await connection.close()


async def _close_spare(line: _Line) -> None:
    """Nothing stays open that nobody waits for."""
    while len(line.handed) > line.waiting:
        await line.handed.pop().close()


def _lock_key(name: str) -> int:
    digest = hashlib.sha256(b"donewhen:" + name.encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


async def _try_lock(connection: PgConnection, key: int) -> bool:
    return bool(await _one(connection, "SELECT pg_try_advisory_lock(%s)", key))


async def _unlock(connection: PgConnection, key: int) -> None:
    # Closing frees it too, but a little later; and a broken connection has lost it already.
    with suppress(psycopg.Error):
        await connection.execute("SELECT pg_advisory_unlock(%s)", (key,))


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
