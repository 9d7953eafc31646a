"""Storages that crash before and after each operation."""

import copy
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import Op, PutOp, Result, TTLConfig

from donewhen.agent.storage import Storage, open_storage
from donewhen.agent.storage.storage import Database, Opened
from donewhen.agent.storage.store import RowStore
from donewhen.agent.testing.crash import Crash, Crashed
from donewhen.state.errors import StorageError


def crashing(storage: str | Storage, crash: Crash) -> Storage:
    """Return the same storage with crashes: `Agent(storage=crashing("sqlite:///runs.db", Crash(7)))`.

    Every session reaches the boundaries `open`, `put`, `put.done`, `put_writes`, `put_writes.done`, `store`,
    `store.done` and `close` of `crash`. In mode `raise` it fails as a database does: callers get a StorageError.
    Reading crashes nothing.
    """
    opened = open_storage(storage) if isinstance(storage, str) else storage
    return Storage(cast(Database, CrashingDatabase(opened._database, crash)), opened._cipher)


class CrashingDatabase:
    """A database that `crashing` puts around the storage's own."""

    def __init__(self, inner: Database, crash: Crash) -> None:
        self.display: str = inner.display
        self.at_once: int = inner.at_once
        self._inner = inner
        self._crash = crash

    @asynccontextmanager
    async def open(self, thread_id: str | None, *, writes: bool) -> AsyncIterator[Opened]:
        if not writes:
            async with self._inner.open(thread_id, writes=False) as opened:
                yield opened
            return
        self._crash.reach("open")
        async with self._inner.open(thread_id, writes=True) as (saver, store):
            yield crashing_saver(saver, self._crash), CrashingStore(store, self._crash)
            self._crash.reach("close")

    def fault(self, error: BaseException) -> StorageError | None:
        if isinstance(error, Crashed):
            return StorageError(f"{self.display} failed: {error}")
        return self._inner.fault(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def crashing_saver(saver: BaseCheckpointSaver[Any], crash: Crash) -> BaseCheckpointSaver[Any]:
    """Return a checkpointer that reaches a boundary before and after each `put` and `put_writes`."""
    twin = copy.copy(saver)
    for name in ("put", "aput", "put_writes", "aput_writes"):
        setattr(twin, name, _reach_around(getattr(saver, name), name.removeprefix("a"), crash))
    return twin


def _reach_around(write: Callable[..., Any], operation: str, crash: Crash) -> Callable[..., Any]:
    @functools.wraps(write)  # LangGraph asks what arguments it takes
    def plain(*given: Any, **named: Any) -> Any:
        with _around(crash, operation):
            return write(*given, **named)

    @functools.wraps(write)
    async def awaited(*given: Any, **named: Any) -> Any:
        with _around(crash, operation):
            return await write(*given, **named)

    return awaited if inspect.iscoroutinefunction(write) else plain


class CrashingStore(RowStore):
    """A store that reaches `store` before each batch that writes and `store.done` after it."""

    def __init__(self, inner: RowStore, crash: Crash) -> None:
        self._inner = inner
        self._crash = crash
        self.supports_ttl: bool = inner.supports_ttl
        self.ttl_config: TTLConfig | None = inner.ttl_config

    async def rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        if sql.startswith("SELECT"):
            return await self._inner.rows(sql, values)
        with _around(self._crash, "store"):
            return await self._inner.rows(sql, values)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        if not any(isinstance(op, PutOp) for op in ops):
            return await self._inner.abatch(ops)
        with _around(self._crash, "store"):
            return await self._inner.abatch(ops)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        if not any(isinstance(op, PutOp) for op in ops):
            return self._inner.batch(ops)
        with _around(self._crash, "store"):
            return self._inner.batch(ops)


@contextmanager
def _around(crash: Crash, operation: str) -> Iterator[None]:
    crash.reach(operation)
    yield
    crash.reach(f"{operation}.done")
