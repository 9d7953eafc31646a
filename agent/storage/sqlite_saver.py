"""LangGraph's saver and store on the one connection of a SQLite file."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.base import BaseStore, GetOp, ListNamespacesOp, Op, Result, SearchOp

from donewhen.agent.storage.cipher import StrictSerializer
from donewhen.agent.storage.rounds import Rounds
from donewhen.agent.storage.sqlite_file import SqliteFile, surely

Returned = TypeVar("Returned")


class FileSaver(BaseCheckpointSaver[Any]):
    """The checkpointer of a session or, with `reads`, of a reader, whose writes SQLite refuses."""

    def __init__(self, file: SqliteFile, reads: bool, next_version: Callable[[Any], Any]) -> None:
        super().__init__(serde=StrictSerializer())
        self.file = file
        self._reads = reads
        self._next_version = next_version
        self.rounds = Rounds[Callable[[SqliteSaver], Any]]()

    async def _call(self, work: Callable[[SqliteSaver], Returned], *, writes: bool) -> Returned:
        if self._reads and writes:
            raise sqlite3.OperationalError("attempt to write a readonly database")
        held = self.rounds.take()

        def carried_out(file: SqliteFile) -> Returned:
            for each in held:
                each(file.saver)
            return work(file.saver)

        return await self.file.call(carried_out, writes=writes or bool(held))

    async def settled(self) -> None:
        """Commit what is held."""
        if held := self.rounds.take():
            await surely(self.file.begin(lambda file: [each(file.saver) for each in held]))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        if self.rounds.begins(config):
            return None
        return await self._call(lambda saver: saver.get_tuple(config), writes=False)

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for found in await self._call(lambda saver: list(saver.list(config, **options)), writes=False):
            yield found

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, versions: ChannelVersions
    ) -> RunnableConfig:
        place = config["configurable"]
        waits, over = self.rounds.put(config, checkpoint, metadata)
        gone = [(str(place["thread_id"]), namespace) for namespace in over]

        def put(saver: SqliteSaver) -> RunnableConfig:
            for table in ("checkpoints", "writes") if gone else ():
                saver.conn.executemany(f"DELETE FROM {table} WHERE thread_id = ? AND checkpoint_ns = ?", gone)
            return saver.put(config, checkpoint, metadata, versions)

        if waits:
            self.rounds.held.append(put)
            return {"configurable": {**place, "checkpoint_id": checkpoint["id"]}}
        return await self._call(put, writes=True)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        def put(saver: SqliteSaver) -> None:
            saver.put_writes(config, writes, task_id, task_path)

        if self.rounds.can_wait(config, task_id, task_path):
            self.rounds.held.append(put)
        else:
            await self._call(put, writes=True)

    async def aget_delta_channel_history(self, *given: Any, **options: Any) -> Any:
        return await self._call(lambda saver: saver.get_delta_channel_history(*given, **options), writes=False)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._call(lambda saver: saver.delete_thread(thread_id), writes=True)

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._next_version(current)


class FileStore(BaseStore):
    """The store beside it."""

    def __init__(self, file: SqliteFile, reads: bool, rounds: Rounds[Any]) -> None:
        self.file = file
        self._reads = reads
        self._rounds = rounds
        self.supports_ttl, self.ttl_config = file.store.supports_ttl, file.store.ttl_config

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        asked = list(ops)
        writes = not all(isinstance(op, GetOp | SearchOp | ListNamespacesOp) for op in asked)
        if self._reads and writes:
            raise sqlite3.OperationalError("attempt to write a readonly database")
        results = await self.file.call(lambda file: file.store.batch(asked), writes=writes)
        self._rounds.stored(asked)
        return results

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        raise NotImplementedError("use abatch")

    async def rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """One statement on the table of threads."""
        writes = not sql.startswith("SELECT")
        if self._reads and writes:
            raise sqlite3.OperationalError("attempt to write a readonly database")
        return await self.file.call(lambda file: file.connection.execute(sql, values).fetchall(), writes=writes)
