"""One face for every database: sessions with a lock per thread, readers without, health, and deletion."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from time import monotonic
from typing import Any, Protocol, Self

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from donewhen.agent.storage.cipher import Cipher
from donewhen.agent.storage.sealed_saver import SealedSaver
from donewhen.agent.storage.thread_store import ThreadStore
from donewhen.agent.storage.urls import check_thread_id
from donewhen.graph.tools.effects import label
from donewhen.state.errors import DoneWhenError, StorageError, ThreadBusy

Opened = tuple[BaseCheckpointSaver[Any], BaseStore]


class Database(Protocol):
    """What a kind of database has to offer; `MemoryDatabase`, `SqliteDatabase` and `PostgresDatabase` do."""

    display: str

    def open(self, thread_id: str | None, *, writes: bool) -> AbstractAsyncContextManager[Opened]:
        """Own connections, closed at the end; with a thread id under its lock, without `writes` for reading only.

        Raises ThreadBusy at once when somebody else holds the lock.
        """
        ...

    async def thread_ids(self, limit: int) -> list[str]:
        """Threads with a checkpoint, the one changed last first."""
        ...

    async def check(self) -> None:
        """Read what is there and write something small; any error says what is wrong."""
        ...

    def fault(self, error: BaseException) -> StorageError | None:
        """`error` in words for users if it comes from this database, else None."""
        ...


class Storage:
    """Checkpointer and store of every thread in one database.

    Connections belong to a session, so one object serves any number of event loops, one after the other or in
    several OS threads. A database error that leaves a session or a reader is a StorageError.
    """

    def __init__(self, database: Database, cipher: Cipher | None = None) -> None:
        self._database = database
        self._cipher = cipher

    def __repr__(self) -> str:
        return f"Storage({self.url_for_display!r})"

    @property
    def url_for_display(self) -> str:
        """The URL without its password."""
        return self._database.display

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Nothing stays open between sessions; kept so that callers need not know that."""

    @asynccontextmanager
    async def session(self, thread_id: str, *, patience: float = 0.0) -> AsyncIterator[Opened]:
        """`(checkpointer, store)` for working on one thread, alone.

        The lock dies with its holder. Raises ThreadBusy when another worker, in this process or in another,
        holds it (at once, or after `patience` seconds); StorageError when the database cannot be used;
        ConfigError for the thread id.
        """
        check_thread_id(thread_id)
        deadline = monotonic() + patience
        async with AsyncExitStack() as stack:
            while True:
                try:
                    opened = await stack.enter_async_context(self._opened(thread_id, writes=True))
                    break
                except ThreadBusy:
                    if monotonic() >= deadline:
                        raise
                await asyncio.sleep(0.01)
            yield opened

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[Opened]:
        """`(checkpointer, store)` for reading, whoever works on the threads; databases refuse its writes."""
        async with self._opened(None, writes=False) as opened:
            yield opened

    @asynccontextmanager
    async def unlocked(self) -> AsyncIterator[Opened]:
        """`(checkpointer, store)` that write without a lock: for what belongs to no thread.

        Who works on a thread through it has to see to it that nobody else does.
        """
        async with self._opened(None, writes=True) as opened:
            yield opened

    async def thread_ids(self, limit: int = 1000) -> list[str]:
        """Ids of the threads that have a checkpoint, the one changed last first."""
        async with self._translated():
            return await self._database.thread_ids(limit)

    async def healthy(self) -> None:
        """Return when the database can be read and written, else raise StorageError saying what is wrong."""
        async with self._translated():
            await self._database.check()

    def next_version(self, current: str | int | None) -> str:
        """The channel version after `current`, in the format that all savers here share."""
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{random.random():016}"

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread's checkpoints, its writes and its entries in `("donewhen", …, label(thread_id))`.

        An unknown thread is no error; a thread that is being worked on is ThreadBusy.
        """
        async with self._opened(check_thread_id(thread_id), writes=True) as (checkpointer, store):
            await checkpointer.adelete_thread(thread_id)
            await store.forget(label(thread_id))

    @asynccontextmanager
    async def _opened(
        self, thread_id: str | None, *, writes: bool
    ) -> AsyncIterator[tuple[BaseCheckpointSaver[Any], ThreadStore]]:
        async with self._translated(), self._database.open(thread_id, writes=writes) as (checkpointer, store):
            if self._cipher is not None:
                checkpointer = SealedSaver(checkpointer, self._cipher)
            yield checkpointer, ThreadStore(store, self._cipher)

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        try:
            yield
        except DoneWhenError:
            raise
        except Exception as error:
            fault = self._database.fault(error)
            if fault is None:
                raise
            raise fault from error
