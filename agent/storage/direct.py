"""Checkpointer and store that open the storage anew for every operation, for whoever calls LangGraph's verbs directly.

Slower than a session, but they need no opening and closing, and serve async and sync callers alike.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import BaseStore, Op, Result

from agent.storage.storage import Storage
from graph.sync import wait


_VERSIONS = InMemorySaver()
"""All of LangGraph's own savers count versions the same way."""


def _thread(config: RunnableConfig) -> str:
    return str(config["configurable"]["thread_id"])


class DirectSaver(BaseCheckpointSaver[Any]):
    """The checkpointer."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self._storage = storage

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        async with self._storage.reader() as (saver, _):
            return await saver.aget_tuple(config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        async with self._storage.reader() as (saver, _):
            async for found in saver.alist(config, filter=filter, before=before, limit=limit):
                yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        async with self._storage.session(_thread(config)) as (saver, _):
            return await saver.aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        async with self._storage.session(_thread(config)) as (saver, _):
            await saver.aput_writes(config, writes, task_id, task_path)

    async def aget_delta_channel_history(self, *args: Any, **options: Any) -> Any:
        async with self._storage.reader() as (saver, _):
            return await saver.aget_delta_channel_history(*args, **options)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._storage.delete_thread(thread_id)

    def get_next_version(self, current: Any, channel: None) -> Any:
        return _VERSIONS.get_next_version(current, channel)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return wait(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        async def collect() -> list[CheckpointTuple]:
            return [found async for found in self.alist(config, filter=filter, before=before, limit=limit)]

        yield from wait(collect())

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return wait(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        wait(self.aput_writes(config, writes, task_id, task_path))

    def get_delta_channel_history(self, *args: Any, **options: Any) -> Any:
        return wait(self.aget_delta_channel_history(*args, **options))

    def delete_thread(self, thread_id: str) -> None:
        wait(self.adelete_thread(thread_id))


class DirectStore(BaseStore):
    """The store. Every batch is its own session."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        async with self._storage.session("donewhen-direct-store") as (_, store):
            return await store.abatch(ops)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return wait(self.abatch(ops))
