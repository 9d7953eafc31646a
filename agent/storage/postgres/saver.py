"""LangGraph's saver and store on a session's single connection, with few statements."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar, cast

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.store.base import GetOp, Op, PutOp, Result
from langgraph.store.postgres.aio import AsyncPostgresStore
from psycopg import AsyncCursor
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb
from typing_extensions import override

from donewhen.agent.storage.postgres.connections import PgConnection
from donewhen.agent.storage.postgres.locks import Hold, lock_key
from donewhen.agent.storage.rounds import Rounds, Writes, follow_checkpoint
from donewhen.agent.storage.serializer import StrictSerializer
from donewhen.agent.storage.storage import unique_version
from donewhen.agent.storage.store import stop_batching
from donewhen.agent.storage.table import RowStore
from donewhen.state.private_langgraph import DeltaSnapshot

Done = TypeVar("Done")
Part = tuple[str, Sequence[Any]]
"""A statement's part that changes tables, with `%s` for its values."""
_CHECKPOINT = """
    INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
    VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id)
    DO UPDATE SET checkpoint = EXCLUDED.checkpoint, metadata = EXCLUDED.metadata"""
_BLOBS = """
    INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
    SELECT %s, %s, * FROM (VALUES {rows}) AS blobs ON CONFLICT DO NOTHING"""
_WRITES = """
    INSERT INTO checkpoint_writes
        (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob)
    SELECT %s, %s, %s, %s, %s, * FROM (VALUES {rows}) AS writes
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO """
_ONCE = f"{_WRITES} NOTHING"
_AGAIN = f"{_WRITES} UPDATE SET channel = EXCLUDED.channel, type = EXCLUDED.type, blob = EXCLUDED.blob"
_TABLES = ("checkpoint_writes", "checkpoint_blobs", "checkpoints")


def _with_rows(part: str, place: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Part]:
    """Return a part with rows of four values each; none without rows."""
    filled = part.format(rows=", ".join(["(%s, %s, %s, %s)"] * len(rows)))
    return [(filled, (*place, *chain.from_iterable(rows)))] if rows else []


@lru_cache(256)
def _join(parts: tuple[str, ...]) -> bytes:
    """Join parts into one statement."""
    *before, last = parts
    named = ", ".join(f"part{number} AS ({part})" for number, part in enumerate(before))
    return (f"WITH {named} {last}" if before else last).encode()


def _in_a_transaction(migrations: Sequence[str]) -> list[str]:
    """Return LangGraph's migrations without the wait for everybody's old snapshots, among them our own."""
    return [each.replace(" CONCURRENTLY ", " ") for each in migrations]


class SessionSaver(AsyncPostgresSaver):
    """LangGraph's tables and values; a checkpoint and its waiting writes are one statement.

    Texts among the channel values are plain JSON, where PostgreSQL accepts no NUL: it becomes U+FFFD.
    """

    MIGRATIONS = _in_a_transaction(AsyncPostgresSaver.MIGRATIONS)

    def __init__(self, store: "SessionStore") -> None:
        super().__init__(store.conn, serde=StrictSerializer())
        self.store, self.lock = store, store.lock
        self.rounds = Rounds()
        self.writes: Writes[Part] = Writes(self.execute_parts)
        self.hold: Hold | None = None
        """The hold on the thread of the session."""
        self.reconnect: Callable[[], Awaitable[PgConnection]] | None = None
        """Returns another connection, with the same hold; this may take a while."""
        self._lost: psycopg.Error | None = None
        """Why there was none."""
        self._reconnecting = asyncio.Lock()
        self._put: tuple[str, Sequence[Any]] | None = None
        """The last row that the session wrote of the thread that it holds."""
        store.saver = self

    @override
    def get_next_version(self, current: str | None, channel: None) -> str:
        return unique_version(current)

    @override
    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        if self.rounds.is_new(config):
            return None
        read = super().aget_tuple
        return follow_checkpoint(await self.do(lambda: read(config)))

    @override
    async def aget_delta_channel_history(self, *given: Any, **options: Any) -> Any:
        read = super().aget_delta_channel_history
        return await self.do(lambda: read(*given, **options))

    @override
    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        place = config["configurable"]
        thread, space = str(place["thread_id"]), place.get("checkpoint_ns", "")
        can_wait, over = self.rounds.note_checkpoint(config, checkpoint, metadata)
        if over:
            await self.writes.write(())  # a statement deletes nothing that it writes itself
        values, inline = dict[str, Any](), dict[str, Any]()
        for name, value in checkpoint["channel_values"].items():
            if isinstance(value, str):
                inline[name] = value.replace("\0", "\ufffd")
            elif value is None or isinstance(value, bool | int | float):
                inline[name] = value
            else:
                values[name] = value
                if isinstance(value, DeltaSnapshot):
                    inline[name] = True
        versions = {name: version for name, version in new_versions.items() if name in values}
        blobs = [row[2:] for row in self._dump_blobs(thread, space, values, versions)]
        stored = Jsonb({**checkpoint, "channel_values": inline})
        given = Jsonb(get_serializable_checkpoint_metadata(config, metadata))
        row = (thread, space, checkpoint["id"], place.get("checkpoint_id"), stored, given)
        gone = "DELETE FROM {} WHERE thread_id = %s AND checkpoint_ns = ANY(%s)"
        parts: list[Part] = [(gone.format(table), (thread, over)) for table in _TABLES] if over else []
        parts += [*_with_rows(_BLOBS, (thread, space), blobs), (_CHECKPOINT, row)]
        await self.writes.write(parts, can_wait=can_wait)
        return {"configurable": {"thread_id": thread, "checkpoint_ns": space, "checkpoint_id": checkpoint["id"]}}

    @override
    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        place = config["configurable"]
        at = (str(place["thread_id"]), place["checkpoint_ns"], place["checkpoint_id"], task_id, task_path)
        rows = [row[len(at) :] for row in self._dump_writes(*at, writes)]
        again = all(name in WRITES_IDX_MAP for name, _ in writes)
        can_wait = self.rounds.can_writes_wait(config, task_id, task_path) and not again  # no row is written twice
        await self.writes.write(_with_rows(_AGAIN if again else _ONCE, at, rows), can_wait=can_wait)

    async def do(self, work: Callable[[], Awaitable[Done]]) -> Done:
        """Do an operation that may be repeated, and again on another connection if the server closes this one."""
        for last in (False, False, True):
            used = self.store.connection
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
            if self.store.connection is not used:  # another operation did it
                return
            try:
                self.store.conn = await reconnect()
            except psycopg.Error as error:
                self._lost = error
                raise
            if self._put:  # others may have noted meanwhile that nobody works on the thread
                await self.store.execute_once(*self._put)

    async def put_row(self, sql: str, values: Sequence[Any], *, queued: bool, claims: bool | None) -> None:
        """Write a row; the first time for the thread that is held, claim it in the same statement."""
        await self.writes.write(())  # whoever reads where a thread is reads its checkpoint next
        parts, given, execute = list[str](), values, self.store.execute
        if claims is False:
            execute = self.store.execute_once
        elif claims and self.hold and self.hold.key == lock_key(str(values[0])):
            self._put = sql, values
            if claim := self.hold.claim():
                parts, given = [f"claimed AS ({claim[0]})"], (*claim[1], *values)
        if queued:
            parts, sql = [*parts, f"queued AS ({sql})"], "SELECT pg_notify('donewhen_queued', '')"
        await execute(f"WITH {', '.join(parts)} {sql}" if parts else sql, given)
        if given is not values and self.hold:
            self.hold.claimed()

    async def execute_parts(self, parts: list[Part]) -> None:
        """Execute parts as one statement."""
        if not parts:
            return
        statement = _join(tuple(part for part, _ in parts))
        values = [value for _, values in parts for value in values]
        await self.store.execute(statement, values)

    @override
    @asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncIterator[AsyncCursor[DictRow]]:
        await self.writes.write(())
        async with self.store._cursor(pipeline=pipeline) as cursor:
            yield cursor


class SessionStore(AsyncPostgresStore, RowStore):
    """LangGraph's query for `get` also updates times to live, which a reader may not do, so it is replaced."""

    MIGRATIONS = _in_a_transaction(AsyncPostgresStore.MIGRATIONS)
    saver: SessionSaver

    @property
    def connection(self) -> PgConnection:
        """Return the session's connection."""
        return cast("PgConnection", self.conn)

    @property
    @override
    def ahead(self) -> int | None:
        return self.connection.ahead

    async def execute(self, statement: str | bytes, values: Sequence[Any]) -> list[DictRow]:
        """Execute a statement; return its rows."""
        return await self.saver.do(lambda: self.execute_once(statement, values))

    async def execute_once(self, statement: str | bytes, values: Sequence[Any]) -> list[DictRow]:
        """Execute a statement on the connection that there is now; return its rows."""
        async with self._cursor() as cursor:
            await cursor.execute(statement if isinstance(statement, bytes) else statement.encode(), values)
            return await cursor.fetchall() if cursor.description else []

    @override
    @asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncIterator[AsyncCursor[DictRow]]:
        """Run one operation on the connection, alone; in one transaction if LangGraph asks for a pipeline."""
        whole = self.connection.transaction() if pipeline else nullcontext()
        async with self.lock, self.connection.operation(), whole, self.connection.cursor(binary=True) as cursor:
            yield cursor

    @override
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        asked, batch, saver = list(ops), super().abatch, self.saver

        async def put(held: list[Part]) -> list[Result]:
            await saver.execute_parts(held)  # an entry may name a checkpoint that is held
            return await saver.do(lambda: batch(asked))

        puts = any(isinstance(op, PutOp) for op in asked)
        results = await (saver.writes.commit_with(put) if puts else saver.do(lambda: batch(asked)))
        saver.rounds.note_stored(asked)
        return results

    @override
    async def _execute_batch(self, grouped_ops: dict[Any, Any], results: list[Result], conn: Any = None) -> None:
        kind, ops = next(iter(grouped_ops.items()), (None, ()))
        if len(grouped_ops) > 1 or kind not in (GetOp, PutOp) or any(kind is PutOp and not op.value for _, op in ops):
            await super()._execute_batch(grouped_ops, results)
            return
        async with self._cursor() as cursor:  # one statement needs no pipeline
            if kind is GetOp:
                await self._batch_get_ops(ops, results, cursor)
            else:
                await self._batch_put_ops(ops, cursor)

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

    @override
    async def read_rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in await self.execute(sql.replace("?", "%s"), values)]

    @override
    async def put_row(
        self, sql: str, values: Sequence[Any], *, queued: bool = False, claims: bool | None = None
    ) -> None:
        await self.saver.put_row(sql.replace("?", "%s"), values, queued=queued, claims=claims)


async def make_store(connection: PgConnection) -> SessionStore:
    """Return LangGraph's store on a connection."""
    store = SessionStore(connection)
    await stop_batching(store)
    return store
