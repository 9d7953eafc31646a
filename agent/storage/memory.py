"""Runs kept in this process only."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from donewhen.agent.storage.cipher import StrictSerializer
from donewhen.agent.storage.storage import Opened
from donewhen.state.errors import StorageError, ThreadBusy


class MemoryDatabase:
    """Everything is gone with this object; its locks are a set."""

    display = "memory:"

    def __init__(self) -> None:
        self._saver = InMemorySaver(serde=StrictSerializer())
        self._store = InMemoryStore()
        self._held: set[str] = set()

    @asynccontextmanager
    async def open(self, thread_id: str | None, *, writes: bool) -> AsyncIterator[Opened]:
        if thread_id is None:
            yield self._saver, self._store
            return
        if thread_id in self._held:
            raise ThreadBusy(f"thread {thread_id!r} is being worked on")
        self._held.add(thread_id)
        try:
            yield self._saver, self._store
        finally:
            self._held.discard(thread_id)

    async def thread_ids(self, limit: int) -> list[str]:
        newest = {thread: max(spaces[""]) for thread, spaces in self._saver.storage.items() if spaces.get("")}
        return sorted(newest, key=lambda thread: newest[thread], reverse=True)[:limit]

    async def check(self) -> None:
        return

    def fault(self, error: BaseException) -> StorageError | None:
        return None
