"""Crashes on demand: a count of boundaries, and wrappers of storage, tools and models that reach them.

A boundary is a moment before or after something lasting: a checkpoint, its writes, a store entry, a tool, a model.
"""

import functools
import json
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, DeltaChannelHistory
from langgraph.store.base import BaseStore, Op, PutOp, Result

from donewhen.agent.storage import Storage, open_storage
from donewhen.agent.storage.storage import Database, Opened
from donewhen.agent.testing.script import Policy
from donewhen.agent.tools import as_tools
from donewhen.state.errors import StorageError

CrashMode = Literal["raise", "kill", "freeze"]
ToolPhase = Literal["before", "inside", "after"]
STORAGE = ("open", "put", "put.done", "put_writes", "put_writes.done", "store", "store.done", "close")
"""Boundaries of a storage; `.done` is right after the operation, when nobody was told of it yet."""
WRITTEN = ("put.done", "put_writes.done", "store.done")

_midway: ContextVar[Callable[[], None] | None] = ContextVar("midway", default=None)


class Crashed(Exception):
    """What a crash in mode `raise` raises; from a storage it reaches callers as a StorageError."""


class Crash:
    """Counts the boundaries that a run reaches, from 1, and crashes at number `at`; None: never.

    `kill` sends SIGKILL to the own process, `freeze` SIGSTOP (whoever started it may send SIGCONT), `raise` raises
    `Crashed`, once. `only` names the boundaries that count (default: all). With `log`, a crash leaves a line there:
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
        self.only = None if only is None else frozenset(only)
        self.log = log
        self.trace: list[str] = []
        """The boundaries that were reached and count, in order."""
        self.written = 0
        """How many checkpoints and writes were done: an answer is safe with the first after it was given."""
        self.first_write = 0.0
        """When the first storage operation was done, by `time.perf_counter`; 0.0: none was."""
        self._lock = threading.Lock()

    def reach(self, boundary: str) -> None:
        """Say that a boundary is reached; crashes if it is the one."""
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
        """The policy of a ScriptedModel with a boundary `model` before each of its replies."""

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
    """All lines written by `note`, oldest first."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def midway() -> None:
    """Call it inside a tool where its effect has happened and its result is not out: the boundary `<tool>.inside`.

    Does nothing where no crash is wanted.
    """
    if (reached := _midway.get()) is not None:
        reached()


def crashing_tool(
    tool: BaseTool | Callable[..., Any],
    phase: ToolPhase | None = None,
    at: int = 1,
    *,
    mode: CrashMode = "raise",
    crash: Crash | None = None,
) -> BaseTool:
    """The same tool with boundaries `<name>.before`, `<name>.inside` (where it calls `midway`) and `<name>.after`.

    `phase` and `at` crash it in that phase of its nth call (`phase=None`: any phase counts); `crash` is given instead
    to count it together with other things.
    """
    made = as_tools([tool])[0]
    counted = crash or Crash(at, mode=mode, only=None if phase is None else [f"{made.name}.{phase}"])
    kind = _crashing(type(made), counted)
    twin: BaseTool = kind.__new__(kind)
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"):
        object.__setattr__(twin, slot, getattr(made, slot))
    return twin


def _crashing(kind: Any, crash: Crash) -> Any:
    """The class of such tools with boundaries around `_run` and `_arun`."""

    @functools.wraps(kind._run)
    def run(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        _enter(self.name, crash)
        result = kind._run(self, *args, **kwargs)
        crash.reach(f"{self.name}.after")
        return result

    @functools.wraps(kind._arun)
    async def arun(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        _enter(self.name, crash)
        result = await kind._arun(self, *args, **kwargs)
        crash.reach(f"{self.name}.after")
        return result

    bodies: dict[str, Any] = {"_run": run, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    if kind._arun is not BaseTool._arun:  # LangChain asks whether it is
        bodies["_arun"] = arun
    return type(kind)(kind.__name__, (kind,), bodies)


def _enter(name: str, crash: Crash) -> None:
    _midway.set(lambda: crash.reach(f"{name}.inside"))
    crash.reach(f"{name}.before")


def crashing(
    storage: str | Storage, crash: Crash | None = None, *, at: int | None = None, mode: CrashMode = "raise"
) -> Storage:
    """The same storage with crashes: `Agent(storage=crashing("sqlite:///runs.db", at=7))`.

    Every session reaches the boundaries `open`, `put`, `put.done`, `put_writes`, `put_writes.done`, `store`,
    `store.done` and `close` of `crash`, or of a new one that crashes at the boundary number `at`. In mode `raise` it
    fails as a database does: callers get a StorageError. Reading crashes nothing.
    """
    opened = open_storage(storage) if isinstance(storage, str) else storage
    return Storage(CrashingDatabase(opened._database, crash or Crash(at, mode=mode)), opened._cipher)


class CrashingDatabase:
    """What `crashing` puts between a Storage and its database."""

    def __init__(self, inner: Database, crash: Crash) -> None:
        self.display = inner.display
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
            yield CrashingSaver(saver, self._crash), CrashingStore(store, self._crash)
            self._crash.reach("close")

    async def thread_ids(self, limit: int) -> list[str]:
        return await self._inner.thread_ids(limit)

    async def check(self) -> None:
        await self._inner.check()

    def fault(self, error: BaseException) -> StorageError | None:
        if isinstance(error, Crashed):
            return StorageError(f"{self.display} failed: {error}")
        return self._inner.fault(error)

    def next_version(self, current: Any) -> Any:
        return self._inner.next_version(current)


class CrashingSaver(BaseCheckpointSaver[Any]):
    """A checkpointer that reaches `put` and `put_writes` before each such operation and `….done` after it."""

    def __init__(self, inner: BaseCheckpointSaver[Any], crash: Crash) -> None:
        super().__init__(serde=inner.serde)
        self._inner = inner
        self._crash = crash

    @property
    def config_specs(self) -> list[Any]:
        return self._inner.config_specs

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._inner.get_next_version(current, channel)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._inner.aget_tuple(config)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._inner.get_tuple(config)

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        async for found in self._inner.alist(config, **options):
            yield found

    def list(self, config: RunnableConfig | None, **options: Any) -> Iterator[CheckpointTuple]:
        return self._inner.list(config, **options)

    async def aput(self, *given: Any) -> RunnableConfig:
        with _around(self._crash, "put"):
            return await self._inner.aput(*given)

    def put(self, *given: Any) -> RunnableConfig:
        with _around(self._crash, "put"):
            return self._inner.put(*given)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        with _around(self._crash, "put_writes"):
            await self._inner.aput_writes(config, writes, task_id, task_path)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        with _around(self._crash, "put_writes"):
            self._inner.put_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._inner.adelete_thread(thread_id)

    def delete_thread(self, thread_id: str) -> None:
        self._inner.delete_thread(thread_id)

    async def aget_delta_channel_history(self, **given: Any) -> Mapping[str, DeltaChannelHistory]:
        return await self._inner.aget_delta_channel_history(**given)

    def get_delta_channel_history(self, **given: Any) -> Mapping[str, DeltaChannelHistory]:
        return self._inner.get_delta_channel_history(**given)


class CrashingStore(BaseStore):
    """A store that reaches `store` before each batch that writes and `store.done` after it."""

    def __init__(self, inner: BaseStore, crash: Crash) -> None:
        self._inner = inner
        self._crash = crash
        self.supports_ttl = inner.supports_ttl
        self.ttl_config = inner.ttl_config

    async def rows(self, sql: str, values: Sequence[Any]) -> Any:
        inner: Any = self._inner
        if sql.startswith("SELECT"):
            return await inner.rows(sql, values)
        with _around(self._crash, "store"):
            return await inner.rows(sql, values)

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
