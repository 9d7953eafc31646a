"""A storage that lasts as long as its process."""

import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from copy import copy
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from donewhen.agent.storage.cipher import StrictSerializer
from donewhen.agent.storage.rounds import Rounds
from donewhen.agent.storage.storage import Hear, Opened, deaf, unique_version
from donewhen.agent.storage.thread_store import escaped
from donewhen.agent.storage.thread_table import TABLE
from donewhen.graph.tools.effects import label
from donewhen.state.errors import StorageError, ThreadBusy


class _MemorySaver(InMemorySaver):
    """The checkpointer; each session has a copy with rounds of its own, all on the same values."""

    rounds: Rounds[Any]

    def get_next_version(self, current: str | None, channel: None) -> str:
        return unique_version(current)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        for namespace in self.rounds.put(config, checkpoint, metadata)[1]:
            self._forget(config["configurable"]["thread_id"], namespace)
        return super().put(config, checkpoint, metadata, new_versions)

    def _forget(self, thread_id: str, namespace: str) -> None:
        for id, (stored, _, _) in self.storage[thread_id].pop(namespace, {}).items():
            self.writes.pop((thread_id, namespace, id), None)
            for name, version in self.serde.loads_typed(stored)["channel_versions"].items():
                self.blobs.pop((thread_id, namespace, name, version), None)


class _MemoryStore(InMemoryStore):
    """With the table of threads, in SQLite's memory."""

    def __init__(self) -> None:
        super().__init__()
        self._rows = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        for statement in TABLE:
            self._rows.execute(statement)

    def __del__(self) -> None:
        self._rows.close()

    async def rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """One statement on the table of threads."""
        return self._rows.execute(sql, values).fetchall()


class MemoryDatabase:
    """Everything is gone with this object; its locks are a set."""

    display = "memory:"
    at_once = sys.maxsize

    def __init__(self) -> None:
        self._saver = _MemorySaver(serde=StrictSerializer())
        self._store = _MemoryStore()
        self._held: set[str] = set()

    @asynccontextmanager
    async def open(self, thread_id: str | None, *, writes: bool) -> AsyncIterator[Opened]:
        saver = copy(self._saver)
        saver.rounds = Rounds()
        if thread_id is None:
            yield saver, self._store
            return
        if thread_id in self._held:
            raise ThreadBusy(f"thread {thread_id!r} is being worked on")
        self._held.add(thread_id)
        try:
            yield saver, self._store
        finally:
            self._held.discard(thread_id)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[tuple[Opened, Hear]]:
        async with self.open(None, writes=False) as opened:
            yield opened, deaf

    async def unheld(self, thread_ids: Sequence[str]) -> list[str]:
        return [each for each in thread_ids if each not in self._held]

    async def delete(self, thread_ids: Sequence[str]) -> list[str]:
        for thread_id in set(thread_ids) - self._held:
            self._saver.delete_thread(thread_id)
            last = escaped((label(thread_id),))
            for namespace in [each for each in self._store._data if each[0] == "donewhen" and each[-1:] == last]:
                del self._store._data[namespace]
            await self._store.rows("DELETE FROM donewhen_threads WHERE thread_id = ?", [thread_id])
        return [each for each in thread_ids if each in self._held]

    async def aclose(self) -> None:
        return

    async def check(self) -> str:
        return ""

    def fault(self, error: BaseException) -> StorageError | None:
        return None

    def next_version(self, current: Any) -> Any:
        return unique_version(current)
