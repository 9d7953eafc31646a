"""Checkpointer and store that open a session for every operation: slower, but nothing has to be closed."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.store.base import BaseStore, Op, Result

from donewhen.agent.storage.storage import Storage, Worked
from donewhen.graph.sync import wait

Opener = Callable[[str | None], AbstractAsyncContextManager[Worked]]
"""Opens a session to write on a thread, or a reader for None."""
PATIENCE = 10.0
"""Seconds that a write waits for its turn; a run holds its thread for longer."""


def direct(storage: Storage) -> tuple["DirectSaver", "DirectStore"]:
    """Return checkpointer and store of a storage; a write to a thread that is worked on raises ThreadBusy."""

    def opener(thread_id: str | None) -> AbstractAsyncContextManager[Worked]:
        return storage.reader() if thread_id is None else storage.session(thread_id, patience=PATIENCE)

    return DirectSaver(opener, storage.next_version), DirectStore(lambda _: storage.writer())


def _thread(config: RunnableConfig) -> str:
    return str(config["configurable"]["thread_id"])


class DirectSaver(BaseCheckpointSaver[Any]):
    """The checkpointer."""

    def __init__(self, opener: Opener, next_version: Callable[[Any], Any]) -> None:
        super().__init__()
        self._open = opener
        self._next_version = next_version

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        async with self._open(None) as (saver, _):
            return await saver.aget_tuple(config)

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        async with self._open(None) as (saver, _):
            async for found in saver.alist(config, **options):
                yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        async with self._open(_thread(config)) as (saver, _):
            return await saver.aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        async with self._open(_thread(config)) as (saver, _):
            await saver.aput_writes(config, writes, task_id, task_path)

    async def aget_delta_channel_history(self, *args: Any, **options: Any) -> Any:
        async with self._open(None) as (saver, _):
            return await saver.aget_delta_channel_history(*args, **options)

    async def adelete_thread(self, thread_id: str) -> None:
        async with self._open(thread_id) as (saver, _):
            await saver.adelete_thread(thread_id)

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._next_version(current)


class DirectStore(BaseStore):
    """The store. Its entries are not under a thread's lock; each batch is its own transaction."""

    def __init__(self, opener: Opener) -> None:
        self._open = opener

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        async with self._open(None) as (_, store):
            return await store.abatch(list(ops))

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return wait(self.abatch(ops))
