"""Crash on demand: count boundaries, and wrap storage, tools and models so that they reach them.

A boundary is a moment before or after something that lasts or acts: a checkpoint, its writes, a store entry, a tool, a
model.
"""

import copy
import functools
import inspect
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import Op, PutOp, Result, TTLConfig

from donewhen.agent.storage import Storage, open_storage
from donewhen.agent.storage.storage import Database, SaverAndRows
from donewhen.agent.storage.table import RowStore
from donewhen.agent.testing.script import Policy
from donewhen.agent.tools import as_tools
from donewhen.graph.tools.call import with_class, wrap_bodies
from donewhen.state.channels import Json
from donewhen.state.errors import StorageError

T = TypeVar("T")
CrashMode = Literal["raise", "kill", "freeze"]
ToolPhase = Literal["before", "inside", "after"]
STORAGE = ("open", "put", "put.done", "put_writes", "put_writes.done", "store", "store.done", "close")
"""Boundaries of a storage; `.done` is right after the operation, before the caller gets its result."""
WRITTEN = ("put.done", "put_writes.done", "store.done")

_midway: ContextVar[Callable[[], None] | None] = ContextVar("midway", default=None)


class Crashed(Exception):
    """The exception of a crash in mode `raise`; from a storage it reaches callers as a StorageError."""


class Crash:
    """Counts the boundaries that a run reaches, from 1, and crashes at number `at`; never if that is None.

    `kill` sends SIGKILL to this process, `freeze` sends SIGSTOP (its parent may send SIGCONT), `raise` raises `Crashed`
    once. `only` names the boundaries that count (default: all). With `log`, a crash leaves a line there:
    `{"crashed", "at", "written"}`.
    """

    def __init__(
        self,
        at: int | None = None,
        *,
        mode: CrashMode = "raise",
        only: Iterable[str] | None = None,
        log: Path | None = None,
    ) -> None:
        self.at = at
        self.mode = mode
        self.only: frozenset[str] | None = None if only is None else frozenset(only)
        self.log = log
        self.trace: list[str] = []
        """The counted boundaries reached, in order."""
        self.written: int = 0
        """The number of checkpoints and writes; an answer is safe after the next one."""
        self.first_write: float = 0.0
        """The time of the first storage operation, by `time.perf_counter`; 0.0 for none."""
        self._lock = threading.Lock()

    def reach(self, boundary: str) -> None:
        """Count a boundary, and crash if it is the chosen one."""
        with self._lock:
            self.written += boundary in ("put.done", "put_writes.done")
            if boundary in WRITTEN:
                self.first_write = self.first_write or time.perf_counter()
            if self.only is not None and boundary not in self.only:
                return
            self.trace.append(boundary)
            if len(self.trace) != self.at:
                return
            if self.log is not None:
                note(self.log, {"crashed": boundary, "at": self.at, "written": self.written})
            if self.mode != "raise":
                os.kill(os.getpid(), signal.SIGKILL if self.mode == "kill" else signal.SIGSTOP)
                return
        raise Crashed(f"simulated failure at boundary {self.at} ({boundary})")

    def policy(self, policy: Policy) -> Policy:
        """Return the policy of a ScriptedModel with a boundary `model` before each of its replies."""

        def reply(messages: list[Any], tools: list[dict[str, Any]]) -> Any:
            self.reach("model")
            return policy(messages, tools)

        return reply


def note(path: Path, row: dict[str, Any]) -> None:
    """Append a line of JSON that survives a SIGKILL right after."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
        file.flush()
        os.fsync(file.fileno())


def notes(path: Path) -> list[dict[str, Any]]:
    """Return all lines written by `note`, oldest first."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def midway() -> None:
    """Mark the boundary `<tool>.inside`: call it in a tool after its effect and before it returns.

    It does nothing if no crash is wanted.
    """
    if (reach := _midway.get()) is not None:
        reach()


def crashing_tool(tool: BaseTool | Callable[..., Any], crash: Crash) -> BaseTool:
    """Return the tool with boundaries `<name>.before`, `<name>.inside` (where it calls `midway`) and `<name>.after`."""
    plain = as_tools([tool])[0]

    @contextmanager
    def around(tool: BaseTool) -> Iterator[None]:
        _midway.set(lambda: crash.reach(f"{tool.name}.inside"))
        crash.reach(f"{tool.name}.before")
        yield
        crash.reach(f"{tool.name}.after")

    return with_class(wrap_bodies(type(plain), around), plain)


async def crash_points(
    run: Callable[[Storage], Awaitable[T]], *, only: Iterable[str] | None = None
) -> AsyncIterator[tuple[str, T]]:
    """Call `run` undisturbed, then for each point at which its storage can fail: it fails there, and is called again.

    `run(storage)` makes an agent with this storage, starts its thread or continues it to its end, and returns what
    you want to check. Yields each point, and what the second call of `run` returned. The first point is "", without a
    failure; the others are before and after each write, so a tool may have acted before anything says so. `only` names
    the points to try (default: all), such as "store.done". The storage stays in memory.
    """
    boundaries = None if only is None else frozenset(only)
    yield "", await run(open_storage("memory:"))
    for number in itertools.count(1):
        crash, storage = Crash(number, only=boundaries), open_storage("memory:")
        with suppress(StorageError, Crashed):
            await run(crashing(storage, crash))
        if len(crash.trace) < number:
            return
        yield crash.trace[number - 1], await run(storage)


# Storages that crash before and after each operation ------------------------------------------------------------


def crashing(storage: str | Storage, crash: Crash) -> Storage:
    """Return the same storage with crashes: `Agent(storage=crashing("sqlite:///runs.db", Crash(7)))`.

    Every session reaches the boundaries `open`, `put`, `put.done`, `put_writes`, `put_writes.done`, `store`,
    `store.done` and `close` of `crash`. In mode `raise` it fails as a database does: callers get a StorageError.
    Reading reaches no boundary.
    """
    opened = open_storage(storage) if isinstance(storage, str) else storage
    return Storage(cast(Database, CrashingDatabase(opened._database, crash)), opened._cipher)


class CrashingDatabase:
    """A database that `crashing` puts around the storage's own."""

    def __init__(self, inner: Database, crash: Crash) -> None:
        self.display: str = inner.display
        self.at_once: int = inner.at_once
        self.grace: float = inner.grace
        self._inner = inner
        self._crash = crash

    @asynccontextmanager
    async def open(self, thread_id: str | None, *, writes: bool, working: bool) -> AsyncIterator[SaverAndRows]:
        if not writes:
            async with self._inner.open(thread_id, writes=False, working=working) as opened:
                yield opened
            return
        self._crash.reach("open")
        async with self._inner.open(thread_id, writes=True, working=working) as (saver, store):
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
    @functools.wraps(write)  # LangGraph inspects the signature
    def plain(*args: Any, **named: Any) -> Any:
        with _around(crash, operation):
            return write(*args, **named)

    @functools.wraps(write)
    async def awaited(*args: Any, **named: Any) -> Any:
        with _around(crash, operation):
            return await write(*args, **named)

    return awaited if inspect.iscoroutinefunction(write) else plain


class CrashingStore(RowStore):
    """A store that reaches `store` before each batch that writes and `store.done` after it."""

    def __init__(self, inner: RowStore, crash: Crash) -> None:
        self._inner = inner
        self._crash = crash
        self.supports_ttl: bool = inner.supports_ttl
        self.ttl_config: TTLConfig | None = inner.ttl_config

    @property
    def ahead(self) -> int | None:
        return self._inner.ahead

    async def read_rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return await self._inner.read_rows(sql, values)

    async def put_row(
        self, sql: str, values: Sequence[Any], *, queued: bool = False, claims: bool | None = None
    ) -> None:
        with _around(self._crash, "store"):
            await self._inner.put_row(sql, values, queued=queued, claims=claims)

    async def put_new(self, namespace: Sequence[str], key: str, value: Json) -> None:
        with _around(self._crash, "store"):
            await self._inner.put_new(namespace, key, value)

    def put_with_next(self, sql: str, values: Sequence[Any]) -> None:
        self._inner.put_with_next(sql, values)

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
