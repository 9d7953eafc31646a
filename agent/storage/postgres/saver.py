"""LangGraph's saver and store on a session's one connection, with as few statements as they can do with."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from itertools import chain
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import GetOp, Op, Result
from langgraph.store.postgres.aio import AsyncPostgresStore
from psycopg import AsyncCursor
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb
from typing_extensions import override

from donewhen.agent.storage.cipher import StrictSerializer
from donewhen.agent.storage.postgres.connections import PgConnection
from donewhen.agent.storage.rounds import Rounds
from donewhen.agent.storage.thread_store import stop_batching

Statement = tuple[str, Sequence[Any]]


def _put(blobs: int) -> str:
    """A checkpoint and so many values of it; as LangGraph's own, but one statement."""
    kept = f"""
        WITH place (thread_id, checkpoint_ns) AS (VALUES (%s, %s)), kept AS (
            INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
            SELECT * FROM place, (VALUES {_rows(blobs)}) AS blobs ON CONFLICT DO NOTHING)"""
    return f"""{kept if blobs else ""}
        INSERT INTO checkpoints
            (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
        VALUES (%s, %s, %s, %s, %s, %s)
        ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id)
        DO UPDATE SET checkpoint = EXCLUDED.checkpoint, metadata = EXCLUDED.metadata"""


def _put_writes(writes: int, again: bool) -> str:
    """So many writes of a task; `again`: in place of what it wrote there before."""
    change = "UPDATE SET channel = EXCLUDED.channel, type = EXCLUDED.type, blob = EXCLUDED.blob"
    return f"""
        INSERT INTO checkpoint_writes
            (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob)
        SELECT %s, %s, %s, %s, %s, * FROM (VALUES {_rows(writes)}) AS writes
        ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO {change if again else "NOTHING"}"""


def _rows(count: int) -> str:
    return ", ".join(["(%s, %s, %s, %b)"] * count)


_OVER = """
    WITH writes AS (DELETE FROM checkpoint_writes WHERE thread_id = %s AND checkpoint_ns = ANY(%s)),
        blobs AS (DELETE FROM checkpoint_blobs WHERE thread_id = %s AND checkpoint_ns = ANY(%s))
    DELETE FROM checkpoints WHERE thread_id = %s AND checkpoint_ns = ANY(%s)"""


class SessionSaver(AsyncPostgresSaver):
    """LangGraph's tables and values; each checkpoint and each task's writes are one statement, not one a value.

    Texts among the channel values stand in plain JSON, where PostgreSQL takes no NUL: it becomes U+FFFD.
    """

    def __init__(self, store: "SessionStore") -> None:
        super().__init__(store.conn, serde=StrictSerializer())
        self.lock = store.lock  # pipelines of two tasks on one connection must not mix
        self.rounds = store.rounds = Rounds[Statement]()

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
        waits, over = self.rounds.put(config, checkpoint, metadata)
        values, inline = dict[str, Any](), dict[str, Any]()
        for name, value in checkpoint["channel_values"].items():
            if isinstance(value, str):
                inline[name] = value.replace("\0", "\ufffd")
            elif value is None or isinstance(value, bool | int | float):
                inline[name] = value
            else:
                values[name] = value
                if isinstance(value, _DeltaSnapshot):
                    inline[name] = True
        versions = {name: version for name, version in new_versions.items() if name in values}
        blobs = [row[2:] for row in self._dump_blobs(thread, space, values, versions)]
        kept = (thread, space, *chain.from_iterable(blobs)) if blobs else ()
        stored = Jsonb({**checkpoint, "channel_values": inline})
        given = Jsonb(get_serializable_checkpoint_metadata(config, metadata))
        put = (_put(len(blobs)), (*kept, thread, space, checkpoint["id"], place.get("checkpoint_id"), stored, given))
        await self._say(*([(_OVER, (thread, over) * 3)] if over else []), put, waits=waits)
        return {"configurable": {"thread_id": thread, "checkpoint_ns": space, "checkpoint_id": checkpoint["id"]}}

    @override
    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        place = config["configurable"]
        at = (str(place["thread_id"]), place["checkpoint_ns"], place["checkpoint_id"], task_id, task_path)
        rows = [row[len(at) :] for row in self._dump_writes(*at, writes)]
        again = all(name in WRITES_IDX_MAP for name, _ in writes)
        if rows:
            put = (_put_writes(len(rows), again), (*at, *chain.from_iterable(rows)))
            await self._say(put, waits=self.rounds.can_wait(config, task_id, task_path))

    async def settled(self) -> None:
        """Commit what is held."""
        if self.rounds.held:
            await self._say()

    async def _say(self, *statements: Statement, waits: bool = False) -> None:
        """What is held and this, in one transaction; or hold this too."""
        if waits:
            self.rounds.held += statements
            return
        async with self.lock:
            together, connection = [*self.rounds.take(), *statements], self.conn
            assert isinstance(connection, PgConnection)
            async with connection.pipeline() if len(together) > 1 else nullcontext():
                for query, values in together:
                    await connection.execute(query.encode(), values)

    @override
    @asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncIterator[AsyncCursor[DictRow]]:
        await self.settled()
        async with super()._cursor(pipeline=pipeline) as cursor:
            yield cursor


class SessionStore(AsyncPostgresStore):
    """LangGraph's own query for `get` is an UPDATE too, of times to live, which a reader may not do."""

    rounds: Rounds[Statement]

    @override
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        asked = list(ops)
        results = await super().abatch(asked)
        self.rounds.stored(asked)
        return results

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
        """One statement on the table of threads; workers hear of what is queued."""
        if sql.startswith("INSERT") and values[1] == "queued":
            sql = f"WITH queued AS ({sql}) SELECT pg_notify('donewhen_queued', '')"
        async with self.lock:
            cursor = await self.conn.execute(sql.replace("?", "%s").encode(), values)  # type: ignore[union-attr]
            return [tuple(row.values()) for row in await cursor.fetchall()] if cursor.description else []


async def store_on(connection: PgConnection) -> SessionStore:
    """The store on a connection."""
    store = SessionStore(connection)
    await stop_batching(store)
    return store
