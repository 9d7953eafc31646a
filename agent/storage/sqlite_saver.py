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
from langgraph.store.base import BaseStore, GetOp, ListNamespacesOp, Op, PutOp, Result, SearchOp

from donewhen.agent.storage.cipher import StrictSerializer
from donewhen.agent.storage.sqlite_file import SqliteFile, surely
from donewhen.graph.calls.replies import NAMESPACE as REPLIES

STEPS = ("plan:", "execute:")
"""How the namespaces of our subgraphs begin; each task of theirs has one of its own."""
Returned = TypeVar("Returned")


class FileSaver(BaseCheckpointSaver[Any]):
    """The checkpointer of a session or, with `reads`, of a reader, whose writes SQLite refuses.

    What can be had again without asking anybody is committed with what comes next: an input, and a round whose reply is
    in the store. With the run's checkpoint after a planning or a step go its rounds: all that it came to is in the run.
    """

    def __init__(self, file: SqliteFile, reads: bool, next_version: Callable[[Any], Any]) -> None:
        super().__init__(serde=StrictSerializer())
        self.file = file
        self._reads = reads
        self._next_version = next_version
        self._inside: dict[str, str] = {}
        """Namespaces of plannings and steps at work → the checkpoint of the run that they began at."""
        self._held: list[Callable[[SqliteSaver], Any]] = []
        self.safe: set[str] = set()
        """Checkpoints that are only an input, and tasks whose reply is in the store: what they write can wait."""

    async def _call(self, work: Callable[[SqliteSaver], Returned], *, writes: bool) -> Returned:
        if self._reads and writes:
            raise sqlite3.OperationalError("attempt to write a readonly database")
        held, self._held = self._held, []

        def carried_out(file: SqliteFile) -> Returned:
            for each in held:
                each(file.saver)
            return work(file.saver)

        return await self.file.call(carried_out, writes=writes or bool(held))

    async def settled(self) -> None:
        """Commit what is held."""
        if held := self._held:
            await surely(self.file.begin(lambda file: [each(file.saver) for each in held]))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._call(lambda saver: saver.get_tuple(config), writes=False)

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for found in await self._call(lambda saver: list(saver.list(config, **options)), writes=False):
            yield found

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, versions: ChannelVersions
    ) -> RunnableConfig:
        place = config["configurable"]
        if (namespace := place.get("checkpoint_ns", "")).startswith(STEPS):
            self._inside[namespace] = metadata.get("parents", {}).get("", "")
        ended = [] if namespace else [key for key, at in self._inside.items() if at == place.get("checkpoint_id")]
        gone = [(str(place["thread_id"]), key) for key in ended if self._inside.pop(key)]

        def put(saver: SqliteSaver) -> RunnableConfig:
            for table in ("checkpoints", "writes") if gone else ():
                saver.conn.executemany(f"DELETE FROM {table} WHERE thread_id = ? AND checkpoint_ns = ?", gone)
            return saver.put(config, checkpoint, metadata, versions)

        if metadata.get("source") == "input":
            self.safe.add(checkpoint["id"])
            self._held.append(put)
            return {"configurable": {**place, "checkpoint_id": checkpoint["id"]}}
        return await self._call(put, writes=True)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        def put(saver: SqliteSaver) -> None:
            saver.put_writes(config, writes, task_id, task_path)

        if self.safe & {task_id, config["configurable"]["checkpoint_id"]}:
            self.safe.discard(task_id)
            self._held.append(put)
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

    def __init__(self, file: SqliteFile, reads: bool, safe: set[str]) -> None:
        self.file = file
        self._reads = reads
        self._safe = safe
        self.supports_ttl, self.ttl_config = file.store.supports_ttl, file.store.ttl_config

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        asked = list(ops)
        writes = not all(isinstance(op, GetOp | SearchOp | ListNamespacesOp) for op in asked)
        if self._reads and writes:
            raise sqlite3.OperationalError("attempt to write a readonly database")
        results = await self.file.call(lambda file: file.store.batch(asked), writes=writes)
        replies = [op.value or {} for op in asked if isinstance(op, PutOp) and op.namespace[: len(REPLIES)] == REPLIES]
        self._safe.update(str(reply["round"]) for reply in replies if "round" in reply)  # not to be read where sealed
        return results

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        raise NotImplementedError("use abatch")

    async def rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """One statement on the table of threads."""
        writes = not sql.startswith("SELECT")
        if self._reads and writes:
            raise sqlite3.OperationalError("attempt to write a readonly database")
        return await self.file.call(lambda file: file.connection.execute(sql, values).fetchall(), writes=writes)
