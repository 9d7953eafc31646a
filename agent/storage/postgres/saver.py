"""A session on one connection: what LangGraph's saver and store write is sent together, as one transaction."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.store.base import GetOp, Item, Op, Result
from langgraph.store.postgres import PostgresStore
from langgraph.store.postgres.aio import AsyncPostgresStore
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from typing_extensions import override

from donewhen.agent.storage.postgres.connections import PgConnection
from donewhen.agent.storage.postgres.locks import Hold, lock_key
from donewhen.agent.storage.serializer import StrictSerializer
from donewhen.agent.storage.session import Session, SessionSaver, SessionStore, Statement, StatementRecorder
from donewhen.agent.storage.storage import unique_version
from donewhen.state.values import storable

Done = TypeVar("Done")
_SERDE = StrictSerializer()
_FORGETS = tuple(
    f"DELETE FROM {table} WHERE thread_id = %s AND checkpoint_ns = %s"
    for table in ("checkpoint_writes", "checkpoint_blobs", "checkpoints")
)
_ROW = re.compile(r"VALUES\s*\(([%s,\s]+)\)")
MOST_ROWS = 1000
"""A statement has at most 65,535 values."""
_GET = "SELECT value, created_at, updated_at FROM store WHERE prefix = %s AND key = %s"
"""LangGraph's query for `get` also updates times to live, which a reader may not do."""


@lru_cache(512)
def _of_rows(sql: str, count: int) -> bytes:
    """Return a statement that inserts a row as one that inserts so many, which costs a tenth of so many statements."""
    return _ROW.sub(lambda row: "VALUES " + ", ".join([f"({row[1]})"] * count), sql).encode()


def _in_few(statement: Statement) -> Iterator[tuple[bytes, Sequence[Any]]]:
    """Yield statements, and their values, that execute a statement with all its rows."""
    sql, rows = statement
    size = MOST_ROWS if _ROW.search(sql) else 1
    for first in range(0, len(rows), size):
        part = rows[first : first + size]
        yield _of_rows(sql, len(part)), [*chain.from_iterable(part)]


class _JsonRecorder(StatementRecorder):
    """A recorder that converts LangGraph's `Jsonb` to text at once.

    psycopg would convert it when it is sent: by then it may have changed, and a value that PostgreSQL refuses would
    make all pending writes fail.
    """

    @override
    def record(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        super().record(sql, [[*map(_convert_json, row)] for row in rows])


def _convert_json(value: Any) -> Any:
    return Jsonb(json.dumps(storable(value.obj)), dumps=str) if isinstance(value, Jsonb) else value


class _RecorderPool(ConnectionPool[Any]):
    """Lends a recorder to LangGraph's saver and store, which take nothing but connections and pools of psycopg."""

    def __init__(self, recorder: StatementRecorder) -> None:
        self._recorder = recorder

    @override
    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[Any]:
        yield self._recorder


class _SessionPool(AsyncConnectionPool[Any]):
    """Lends the connection of a session to what LangGraph reads with, for one operation at a time."""

    def __init__(self, session: "PgSession") -> None:
        self._session = session

    @override
    @asynccontextmanager
    async def connection(self, timeout: float | None = None) -> AsyncIterator[PgConnection]:
        async with self._session.use(reads=True) as connection:
            yield connection


class PgSession(Session):
    """A session on a connection, or on another one in its place, if the server closes it."""

    def __init__(self, connection: PgConnection) -> None:
        super().__init__(self._commit, _JsonRecorder())
        self.connection: PgConnection = connection
        self.turn: asyncio.Lock = connection.turn
        """Is held by whoever uses the connection."""
        self.hold: Hold | None = None
        """The hold on the thread of the session."""
        self.reconnect: Callable[[], Awaitable[PgConnection]] | None = None
        """Returns another connection, with the same hold; this may take a while."""
        self._lost: psycopg.Error | None = None
        """Why there was none."""
        self._reconnecting = asyncio.Lock()
        self._put: Statement | None = None
        """The last row that the session wrote of the thread that it holds."""

    @asynccontextmanager
    async def use(self, *, reads: bool = False) -> AsyncIterator[PgConnection]:
        """Use the connection alone, for one operation; `reads` as in `PgConnection.operation`."""
        async with self.turn, self.connection.operation(reads=reads):
            yield self.connection

    async def do(self, work: Callable[[], Awaitable[Done]]) -> Done:
        """Do an operation that may be repeated, and again on another connection if the server closes this one."""
        for last in (False, False, True):
            used = self.connection
            try:
                return await work()
            except psycopg.Error:
                if last or not used.closed or self.reconnect is None:
                    raise
                await self._connect_again(used, self.reconnect)
        raise AssertionError("the last time returns or raises")

    async def _connect_again(self, used: PgConnection, reconnect: Callable[[], Awaitable[PgConnection]]) -> None:
        async with self._reconnecting:
            if self._lost:
                raise self._lost
            if self.connection is not used:  # another operation did it
                return
            try:
                self.connection = await reconnect()
            except psycopg.Error as error:
                self._lost = error
                raise
            if self._put:  # meanwhile others may have written that nobody works on the thread
                await self._commit_once([self._put])

    async def _commit(self, statements: list[Statement]) -> None:
        if statements:
            await self.do(lambda: self._commit_once(statements))

    async def _commit_once(self, statements: Sequence[Statement]) -> None:
        """Execute statements in one transaction, on the connection that there is now, in one journey to the server."""
        async with self.use() as connection, connection.pipeline(), connection.cursor(binary=True) as cursor:
            for sql, values in chain.from_iterable(map(_in_few, statements)):
                await cursor.execute(sql, values)

    async def read(self, sql: str, values: Sequence[Any]) -> list[DictRow]:
        """Return the rows that a statement finds."""

        async def find() -> list[DictRow]:
            async with self.use(reads=True) as connection, connection.cursor(binary=True) as cursor:
                await cursor.execute(sql.encode(), values)
                return await cursor.fetchall()

        return await self.do(find)

    async def put_row(self, row: Statement, *, queued: bool, claims: bool | None) -> None:
        """Write a row; the first time for the thread that is held, claim it in the same transaction."""
        statements, claim = [row], None
        if claims and self.hold and self.hold.key == lock_key(str(row.rows[0][0])):
            self._put = row
            if claim := self.hold.claim():
                statements.insert(0, Statement(claim[0], [claim[1]]))
        if queued:
            statements.append(Statement("SELECT pg_notify('donewhen_queued', '')", [()]))
        if claims is False:
            await self.writes.write(())  # the checkpoint first: readers of the row read the checkpoint after it
            await self._commit_once(statements)
        else:
            await self.writes.write(statements)
        if claim and self.hold:
            self.hold.claimed()


class PgSaver(SessionSaver):
    """The checkpointer of a session.

    Texts and numbers among the channel values and the metadata are plain JSON: they are stored as `storable` says.
    """

    session: PgSession

    def __init__(self, session: PgSession) -> None:
        super().__init__(session, PostgresSaver(_RecorderPool(session.recorder), serde=_SERDE), _FORGETS)
        self._reading = AsyncPostgresSaver(_SessionPool(session), serde=_SERDE)

    @override
    def get_next_version(self, current: str | None, channel: None) -> str:
        return unique_version(current)

    @override
    async def read_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._read(lambda: self._reading.aget_tuple(config))

    @override
    async def read_list(self, config: RunnableConfig | None, **options: Any) -> Sequence[CheckpointTuple]:
        async def find() -> Sequence[CheckpointTuple]:
            return [checkpoint async for checkpoint in self._reading.alist(config, **options)]

        return await self._read(find)

    @override
    async def aget_delta_channel_history(self, *args: Any, **options: Any) -> Any:
        return await self._read(lambda: self._reading.aget_delta_channel_history(*args, **options))

    async def _read(self, find: Callable[[], Awaitable[Done]]) -> Done:
        await self.session.writes.write(())
        return await self.session.do(find)


class PgStore(SessionStore):
    """The store of a session."""

    session: PgSession

    def __init__(self, session: PgSession) -> None:
        super().__init__(session, PostgresStore(_RecorderPool(session.recorder)))

    @property
    @override
    def ahead(self) -> int | None:
        return self.session.connection.ahead

    @override
    async def find(self, ops: Sequence[Op]) -> list[Result]:
        others = [op for op in ops if not isinstance(op, GetOp)]
        results = iter(await self._find(others) if others else ())
        return [await self._get(op) if isinstance(op, GetOp) else next(results) for op in ops]

    async def _get(self, op: GetOp) -> Item | None:
        for row in await self.session.read(_GET, (".".join(op.namespace), op.key)):
            return Item(key=op.key, namespace=op.namespace, **row)
        return None

    async def _find(self, ops: Sequence[Op]) -> list[Result]:
        reading = AsyncPostgresStore(_SessionPool(self.session))
        reading.supports_pipeline = False  # a transaction instead, which poolers support better
        return await self.session.do(lambda: reading.abatch(ops))

    @override
    async def read_rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in await self.session.read(sql.replace("?", "%s"), values)]

    @override
    async def put_row(
        self, sql: str, values: Sequence[Any], *, queued: bool = False, claims: bool | None = None
    ) -> None:
        await self.session.put_row(Statement(sql.replace("?", "%s"), [values]), queued=queued, claims=claims)

    @override
    def put_with_next(self, sql: str, values: Sequence[Any]) -> None:
        super().put_with_next(sql.replace("?", "%s"), values)


async def set_up(connection: PgConnection) -> None:
    """Make or change LangGraph's tables."""
    session = PgSession(connection)
    await _Tables(_SessionPool(session)).setup()
    await _StoreTables(_SessionPool(session)).setup()


def _in_a_transaction(migrations: Sequence[str]) -> list[str]:
    """Return LangGraph's migrations without the wait for everybody's old snapshots, among them our own."""
    return [each.replace(" CONCURRENTLY ", " ") for each in migrations]


class _Tables(AsyncPostgresSaver):
    MIGRATIONS = _in_a_transaction(AsyncPostgresSaver.MIGRATIONS)


class _StoreTables(AsyncPostgresStore):
    MIGRATIONS = _in_a_transaction(AsyncPostgresStore.MIGRATIONS)
