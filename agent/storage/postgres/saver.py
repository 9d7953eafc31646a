"""LangGraph's saver and store on a session's single connection, with few statements."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import lru_cache
from itertools import chain
from typing import Any, cast

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
from donewhen.agent.storage.rounds import Rounds, Writes, follow_checkpoint
from donewhen.agent.storage.serializer import StrictSerializer
from donewhen.agent.storage.storage import unique_version
from donewhen.agent.storage.store import stop_batching
from donewhen.agent.storage.table import RowStore
from donewhen.state.private_langgraph import DeltaSnapshot

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
        store.saver = self

    @override
    def get_next_version(self, current: str | None, channel: None) -> str:
        return unique_version(current)

    @override
    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return None if self.rounds.is_new(config) else follow_checkpoint(await super().aget_tuple(config))

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

    async def execute_parts(self, parts: list[Part]) -> None:
        """Execute parts as one statement."""
        if not parts:
            return
        statement = _join(tuple(part for part, _ in parts))
        values = [value for _, values in parts for value in values]
        async with self.store._cursor() as cursor:
            await cursor.execute(statement, values)

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
            return await batch(asked)

        puts = any(isinstance(op, PutOp) for op in asked)
        results = await (saver.writes.commit_with(put) if puts else batch(asked))
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
        async with self._cursor() as cursor:
            await cursor.execute(sql.replace("?", "%s").encode(), values)
            return [tuple(row.values()) for row in await cursor.fetchall()]

    @override
    async def put_row(self, sql: str, values: Sequence[Any], *, queued: bool) -> None:
        await self.saver.writes.write(())  # whoever reads where a thread is reads its checkpoint next
        if queued:
            sql = f"WITH queued AS ({sql}) SELECT pg_notify('donewhen_queued', '')"
        async with self._cursor() as cursor:
            await cursor.execute(sql.replace("?", "%s").encode(), values)


async def make_store(connection: PgConnection) -> SessionStore:
    """Return LangGraph's store on a connection."""
    store = SessionStore(connection)
    await stop_batching(store)
    return store
