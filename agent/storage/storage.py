"""The storage of runs: one interface for every database.

It has sessions with a lock per thread, and readers without.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from time import monotonic
from typing import Any, Protocol
from weakref import WeakSet

from langgraph.checkpoint.base import BaseCheckpointSaver

from donewhen.agent.storage.cipher import Cipher
from donewhen.agent.storage.sealed_saver import SealedSaver
from donewhen.agent.storage.store import DELETE_AT_ONCE, ThreadStore
from donewhen.agent.storage.table import RowStore
from donewhen.state.errors import ConfigError, DoneWhenError, StorageError, ThreadBusy
from donewhen.state.values import storable

LONGEST_NAME = 255
"""The most characters of a thread id or an owner, because database indexes limit keys."""
LOCK_PATIENCE = 10.0
"""Seconds that a short change waits for a lock that another has; then it raises ThreadBusy."""


def check_name(what: str, name: object) -> str:
    """Return the name of an owner or a request if it can be stored; it may be empty. Raises ConfigError.

    A character that cannot be stored is refused, not replaced: two names could become one.
    """
    if not isinstance(name, str):
        raise ConfigError(f"{what} is a text, not {type(name).__name__}")
    if len(name) > LONGEST_NAME:
        raise ConfigError(f"{what} {name[:40]!r}… has {len(name)} characters; {LONGEST_NAME} are allowed")
    if storable(name) != name:
        raise ConfigError(f"{what} {name!r} holds a character that no database can store")
    return name


def check_thread_id(thread_id: object) -> str:
    """Return `thread_id` if it can be stored. Raises ConfigError if it is empty, too long, or not text."""
    if not isinstance(thread_id, str) or not thread_id:
        raise ConfigError(f"thread id {repr(thread_id)[:80]} must be a non-empty text")
    return check_name("thread id", thread_id)


SaverAndRows = tuple[BaseCheckpointSaver[Any], RowStore]
"""The saver and store that a database opens; a Storage wraps the store in a `ThreadStore`."""
SaverAndStore = tuple[BaseCheckpointSaver[Any], ThreadStore]
lock_holders: WeakSet[Any] = WeakSet()
"""All objects that hold a lock by a file descriptor. A forked child closes its copies, which would hold them too."""


def _close_locks() -> None:
    for each in lock_holders:
        with suppress(Exception):  # it is closed
            os.close(each.fileno())


if hasattr(os, "register_at_fork"):  # on Windows nothing forks
    os.register_at_fork(after_in_child=_close_locks)

WaitForWork = Callable[[asyncio.Event, float], Awaitable[None]]
"""Waits for at most this many seconds, until the event is set or any process queues a thread."""


async def wait_unnotified(event: asyncio.Event, seconds: float) -> None:
    """Wait as `WaitForWork` does, for a database that does not notify."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


class Database(Protocol):
    """The interface of a database, implemented by `MemoryDatabase`, `SqliteDatabase` and `PostgresDatabase`."""

    display: str
    at_once: int
    """The most runs that can be at work at once in a process."""
    grace: float
    """Seconds in which a worker that lost its connection, and its locks with it, takes them again."""

    def open(self, thread_id: str | None, *, writes: bool, working: bool) -> AbstractAsyncContextManager[SaverAndRows]:
        """Open a session that closes at the end: under the lock of a given thread, read-only without `writes`.

        `working`: for as long as a run works. Such a session waits for its turn without limit, any other for a finite
        time. Raises ThreadBusy at once if somebody else holds the lock, and StorageError if no connection comes free.
        """
        ...

    def listen(self) -> AbstractAsyncContextManager[tuple[SaverAndRows, WaitForWork]]:
        """Open a reader, and yield a function that waits for queued threads."""
        ...

    async def find_free(self, thread_ids: Sequence[str]) -> list[str]:
        """Return the threads whose lock nobody holds now."""
        ...

    async def delete(self, thread_ids: Sequence[str], still: tuple[str, str] | None = None) -> list[str]:
        """Delete threads with all their data in one transaction; return those that stay instead.

        They stay if somebody works on them, and if `still` is given, `(status, time)`, unless they have that status
        and have not changed since that time. This is read when nobody can change them any more.
        """
        ...

    async def aclose(self) -> None:
        """Close connections kept for the next session in this event loop."""
        ...

    async def check(self) -> str:
        """Read and write a small value, and return remarks. Raises the error if it fails."""
        ...

    def fault(self, error: BaseException) -> StorageError | None:
        """Return `error` as a StorageError if it comes from this database, else None."""
        ...

    def next_version(self, current: Any) -> Any:
        """Return the version of a channel after `current`."""
        ...


def unique_version(current: Any) -> str:
    """Return the next version of a channel, unique among all branches of a thread, like LangGraph's savers.

    Versions are compared as texts, so threads with longer numbers keep these.
    """
    number = "0" * 8 if current is None else str(current).split(".")[0]
    return f"{int(number) + 1:0{len(number)}}.{random.getrandbits(48):012x}"


class Storage:
    """The checkpointer and store of all threads in one database.

    One object serves several event loops, one after the other or in different OS threads; connections are kept for
    each of them. Database errors leave a session or reader as StorageError.
    """

    def __init__(self, database: Database, cipher: Cipher | None = None) -> None:
        self._database = database
        self._cipher = cipher

    def __repr__(self) -> str:
        return f"Storage({self.url_for_display!r})"

    @property
    def url_for_display(self) -> str:
        """Return the URL without its password."""
        return self._database.display

    @asynccontextmanager
    async def session(
        self, thread_id: str, *, patience: float = 0.0, working: bool = False
    ) -> AsyncIterator[SaverAndStore]:
        """Open `(checkpointer, store)` to work on one thread exclusively. The lock dies with its holder.

        `working`: for as long as a run works; at most `at_once` of these are open in a process, and more wait. Raises
        ThreadBusy if another worker anywhere holds the lock (at once, or after `patience` seconds); StorageError if the
        database cannot be used; ConfigError for the thread id.
        """
        async with self._hold(check_thread_id(thread_id), patience, working=working) as opened:
            yield opened

    @asynccontextmanager
    async def lock(self, name: str, *, patience: float = 0.0) -> AsyncIterator[ThreadStore]:
        """Open a store under a lock of this name, which no thread has. Raises as `session` does."""
        async with AsyncExitStack() as stack:
            try:
                _, store = await stack.enter_async_context(self._hold(f"\0{name}", patience))
            except ThreadBusy:
                raise ThreadBusy(f"{name}: another process is changing it") from None
            yield store

    @asynccontextmanager
    async def _hold(self, name: str, patience: float, *, working: bool = False) -> AsyncIterator[SaverAndStore]:
        deadline = monotonic() + patience
        async with AsyncExitStack() as stack:
            while True:
                try:
                    opened = await stack.enter_async_context(self._open(name, writes=True, working=working))
                    break
                except ThreadBusy:
                    if monotonic() >= deadline:
                        raise
                await asyncio.sleep(0.01)
            yield opened

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[SaverAndStore]:
        """Open `(checkpointer, store)` for reading, even while others work on the threads."""
        async with self._open(None, writes=False) as opened:
            yield opened

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[tuple[ThreadStore, WaitForWork]]:
        """Open a reading store that stays open, and yield a function that waits for queued threads."""
        async with self._translate_errors(), self._database.listen() as ((_, store), wait_for_work):
            yield ThreadStore(store, self._cipher), wait_for_work

    @asynccontextmanager
    async def writer(self) -> AsyncIterator[SaverAndStore]:
        """Open `(checkpointer, store)` that write without a lock, for data outside threads.

        To work on a thread through it, make sure that nobody else does.
        """
        async with self._open(None, writes=True) as opened:
            yield opened

    async def find_free(self, thread_ids: Sequence[str]) -> list[str]:
        """Return the threads that nobody works on now."""
        async with self._translate_errors():
            return await self._database.find_free(thread_ids) if thread_ids else []

    async def find_left(self, thread_ids: Sequence[str]) -> list[str]:
        """Return the threads that nobody works on, even after the time in which a lost connection is made again."""
        free = await self.find_free(thread_ids)
        if free and self._database.grace:
            await asyncio.sleep(self._database.grace)
            free = await self.find_free(free)
        return free

    async def find_unsettled_left(self) -> list[str]:
        """Return up to 1,000 threads that nobody works on and whose rows do not say so."""
        async with self.reader() as (_, store):
            unsettled = await store.threads.find_unsettled(1000)
        return await self.find_free(unsettled)

    async def aclose(self) -> None:
        """Close connections kept for the next session in this event loop. The storage can be used again."""
        await self._database.aclose()

    async def check_health(self) -> str:
        """Check that the database can be read and written; return remarks, if any. Raises StorageError if not."""
        async with self._translate_errors():
            return await self._database.check()

    @property
    def at_once(self) -> int:
        """Return how many runs can be at work at once in a process; more wait."""
        return self._database.at_once

    def next_version(self, current: Any) -> Any:
        """Return the version of a channel after `current`."""
        return self._database.next_version(current)

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread's checkpoints, writes and entries (`("donewhen", kind, label(thread_id))`). Raises
        ThreadBusy.
        """
        if await self.delete_threads([thread_id]):
            raise ThreadBusy(f"thread {thread_id!r} is being worked on by another worker: cancel it, then delete it")

    async def delete_threads(self, thread_ids: Iterable[str], still: tuple[str, str] | None = None) -> list[str]:
        """Delete threads, a hundred in a transaction; return those that stay instead (as in `Database.delete`)."""
        ids, busy = [check_thread_id(each) for each in thread_ids], list[str]()
        for first in range(0, len(ids), DELETE_AT_ONCE):
            async with self._translate_errors():
                busy += await self._database.delete(ids[first : first + DELETE_AT_ONCE], still)
        return busy

    @asynccontextmanager
    async def _open(
        self, thread_id: str | None, *, writes: bool, working: bool = False
    ) -> AsyncIterator[SaverAndStore]:
        opened = self._database.open(thread_id, writes=writes, working=working)
        async with self._translate_errors(), opened as (checkpointer, store):
            if self._cipher is not None:
                checkpointer = SealedSaver(checkpointer, self._cipher)
            yield checkpointer, ThreadStore(store, self._cipher)

    @asynccontextmanager
    async def _translate_errors(self) -> AsyncIterator[None]:
        try:
            yield
        except DoneWhenError:
            raise
        except Exception as error:
            if (fault := self._database.fault(error)) is None:
                raise
            raise fault from error


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, outermost first."""
    yield error
    if error.__cause__ is not None:
        yield from causes(error.__cause__)
