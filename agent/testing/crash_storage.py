"""Storages that crash: between whoever uses a storage and the storage."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, DeltaChannelHistory
from langgraph.store.base import BaseStore, Op, PutOp, Result

from donewhen.agent.storage import Storage, open_storage
from donewhen.agent.storage.storage import Database, Hear, Opened
from donewhen.agent.testing.crash import Crash, Crashed, CrashMode
from donewhen.state.errors import StorageError


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

    def listening(self) -> AbstractAsyncContextManager[tuple[Opened, Hear]]:
        return self._inner.listening()

    async def unheld(self, thread_ids: Sequence[str]) -> list[str]:
        return await self._inner.unheld(thread_ids)

    async def thread_ids(self, limit: int) -> list[str]:
        return await self._inner.thread_ids(limit)

    async def delete(self, thread_ids: Sequence[str]) -> list[str]:
        return await self._inner.delete(thread_ids)

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
