"""LangGraph's saver and store in memory, with the thread table in an in-memory SQLite; the locks are a set of ids."""

import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import Item
from langgraph.store.memory import InMemoryStore

from donewhen.agent.storage.rounds import follow_checkpoint
from donewhen.agent.storage.serializer import StrictSerializer
from donewhen.agent.storage.storage import SaverAndRows, WaitForWork, wait_unnotified
from donewhen.agent.storage.store import NEWS, escape_namespace, is_of_threads, news_key
from donewhen.agent.storage.table import TABLE, RowStore, select_unchanged
from donewhen.state.channels import Json
from donewhen.state.errors import StorageError, ThreadBusy
from donewhen.state.values import store_label


class MemorySaver(InMemorySaver):
    """LangGraph's saver."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return follow_checkpoint(await super().aget_tuple(config))


class MemoryStore(InMemoryStore, RowStore):
    """LangGraph's store, with the thread table."""

    def __init__(self) -> None:
        super().__init__()
        self._rows = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        for statement in TABLE:
            self._rows.execute(statement)

    def __del__(self) -> None:
        self._rows.close()

    async def read_rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._rows.execute(sql, values).fetchall()

    async def put_row(
        self, sql: str, values: Sequence[Any], *, queued: bool = False, claims: bool | None = None
    ) -> None:
        self._rows.execute(sql, values)

    async def put_new(self, namespace: Sequence[str], key: str, value: Json) -> None:
        now, place = datetime.now(UTC), tuple(namespace)
        self._data[place].setdefault(key, Item(value=value, key=key, namespace=place, created_at=now, updated_at=now))

    def put_with_next(self, sql: str, values: Sequence[Any]) -> None:
        self._rows.execute(sql, values)

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread's entries, its row, and its notifications that were not delivered yet."""
        label = escape_namespace((store_label(thread_id),))
        for namespace in [each for each in self._data if each[:2] == ("donewhen", NEWS)]:
            for key in [key for key in self._data[namespace] if key.endswith(news_key("", thread_id))]:
                del self._data[namespace][key]
        for namespace in [*self._data]:
            if namespace[:1] == ("donewhen",) and namespace[2:3] == label and is_of_threads(namespace[:2]):
                del self._data[namespace]
        for table in ("donewhen_threads", "donewhen_events", "donewhen_announced"):
            self._rows.execute(f"DELETE FROM {table} WHERE thread_id = ?", [thread_id])


class MemoryDatabase:
    """Keeps runs as long as the object exists."""

    display = "memory:"
    at_once: int = sys.maxsize
    grace: float = 0.0

    def __init__(self) -> None:
        self._saver, self._store = MemorySaver(serde=StrictSerializer()), MemoryStore()
        self._locked_ids: set[str] = set()

    @asynccontextmanager
    async def open(self, thread_id: str | None, *, writes: bool, working: bool = False) -> AsyncIterator[SaverAndRows]:
        if thread_id is None:
            yield self._saver, self._store
            return
        if thread_id in self._locked_ids:
            raise ThreadBusy(f"thread {thread_id!r} is being worked on")
        self._locked_ids.add(thread_id)
        try:
            yield self._saver, self._store
        finally:
            self._locked_ids.discard(thread_id)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[tuple[SaverAndRows, WaitForWork]]:
        yield (self._saver, self._store), wait_unnotified

    async def find_free(self, thread_ids: Sequence[str]) -> list[str]:
        return [each for each in thread_ids if each not in self._locked_ids]

    async def delete(self, thread_ids: Sequence[str], still: tuple[str, str] | None = None) -> list[str]:
        free = await self.find_free(thread_ids)
        if still:
            free = [id for (id,) in await self._store.read_rows(*select_unchanged(free, still))]
        for thread_id in free:
            self._saver.delete_thread(thread_id)
            self._store.delete_thread(thread_id)
        return [each for each in thread_ids if each not in free]

    async def aclose(self) -> None:
        return

    async def check(self) -> str:
        return ""

    def fault(self, error: BaseException) -> StorageError | None:
        return None

    def next_version(self, current: Any) -> Any:
        return self._saver.get_next_version(current, None)
