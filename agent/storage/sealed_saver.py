"""A checkpointer that encrypts its data and verifies on reading that nothing was changed or moved.

Not covered: restoring an earlier real state of a thread by removing its newest rows.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

from donewhen.agent.storage.cipher import Cipher
from donewhen.agent.storage.serializer import StrictSerializer
from donewhen.graph.binding import TaskSaver
from donewhen.state.errors import StorageError

Place = tuple[str, str, str]
"""Thread id, checkpoint namespace, checkpoint id."""
WriteKey = tuple[str, int]
"""Task id, and the index of the write in its task."""

_SEAL = "donewhen_seal"
_OPEN = ("source", "step", "parents", "run_id", "counters_since_delta_snapshot")
"""Metadata that savers filter and prune by; it stays readable, and is compared with its encrypted copy."""
_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, NotImplementedError, RecursionError)


class SealedSaver(TaskSaver):
    """Encrypts channel values, writes and metadata, each bound to its place; async only.

    A manifest in each checkpoint's metadata authenticates the readable rest (ids, parent, versions), the channels
    with values, and the writes of its parent, so that missing rows are noticed. Any mismatch raises StorageError.
    """

    def __init__(self, inner: BaseCheckpointSaver[Any], cipher: Cipher) -> None:
        super().__init__(serde=StrictSerializer())
        self._inner = inner
        self._cipher = cipher
        self._stored: dict[Place, set[WriteKey]] = {}
        self._vouched: dict[Place, set[WriteKey]] = {}

    def let_wait(self, task_id: str, *, checkpoint: bool) -> None:
        if isinstance(self._inner, TaskSaver):
            self._inner.let_wait(task_id, checkpoint=checkpoint)

    def let_go(self, namespace: str) -> None:
        if isinstance(self._inner, TaskSaver):
            self._inner.let_go(namespace)

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._inner.get_next_version(current, channel)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread_id, namespace, parent_id = _place(config)
        versions = checkpoint["channel_versions"]
        values = {
            name: self._cipher.seal(value, "value", thread_id, namespace, name, versions.get(name))
            for name, value in checkpoint["channel_values"].items()
        }
        whole = cast("dict[str, Any]", get_checkpoint_metadata(config, metadata))
        manifest = {
            "metadata": whole,
            "values": sorted(values),
            "writes": sorted(self._stored.pop((thread_id, namespace, parent_id), ())),
        }
        place = (thread_id, namespace, checkpoint["id"])
        seal = self._cipher.seal_text(manifest, "checkpoint", *place, parent_id, _readable(checkpoint))
        await self._inner.aput(
            _config(thread_id, namespace, parent_id),
            {**checkpoint, "channel_values": values},
            cast("CheckpointMetadata", _open(whole) | {_SEAL: seal}),
            new_versions,
        )
        return _config(*place)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        place = _place(config)
        indexes = [WRITES_IDX_MAP.get(channel, index) for index, (channel, _) in enumerate(writes)]
        ring = sorted(set(indexes))
        # Each write names the next one of its batch, so that a missing one is noticed.
        following = dict(zip(ring, ring[1:] + ring[:1], strict=True))
        sealed = [
            (
                channel,
                self._cipher.seal([task_path, index, following[index], value], "write", *place, task_id, channel),
            )
            for index, (channel, value) in zip(indexes, writes, strict=True)
        ]
        await self._inner.aput_writes(_config(*place), sealed, task_id, task_path)
        self._stored.setdefault(place, set()).update((task_id, index) for index in indexes)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        with _raise_for_damaged_checkpoints():
            stored = await self._inner.aget_tuple(config)
            if stored is None and self._vouched.pop(place := _place(config), None) is not None:
                raise StorageError(f"checkpoint {place[2]} of thread {place[0]!r} is missing")
            return None if stored is None else self._unseal(stored)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        hidden = {name: value for name, value in (filter or {}).items() if name not in _OPEN}
        rows = self._inner.alist(config, filter=_open(filter or {}), before=before, limit=None if hidden else limit)
        with _raise_for_damaged_checkpoints():
            async with aclosing(cast("AsyncGenerator[CheckpointTuple]", rows)):
                checkpoints = [self._unseal(stored) async for stored in rows]
        whole = (
            not filter and (limit is None or len(checkpoints) < limit) and not (config and get_checkpoint_id(config))
        )
        if whole and (missing := _parents(checkpoints) - {_place(opened.config) for opened in checkpoints}):
            raise StorageError(f"checkpoints are missing: {sorted(missing)}")
        if hidden:
            checkpoints = [
                opened
                for opened in checkpoints
                if all(opened.metadata.get(name) == value for name, value in hidden.items())
            ]
        for opened in checkpoints[:limit]:
            yield opened

    async def adelete_thread(self, thread_id: str) -> None:
        await self._inner.adelete_thread(thread_id)

    def _unseal(self, stored: CheckpointTuple) -> CheckpointTuple:
        place = thread_id, namespace, _ = _place(stored.config)
        parent_id = _place(stored.parent_config)[2] if stored.parent_config else ""
        readable = dict(stored.metadata)
        seal = readable.pop(_SEAL, None)
        manifest = self._cipher.unseal_text(seal, "checkpoint", *place, parent_id, _readable(stored.checkpoint))
        if readable != _plain(_open(manifest["metadata"])):
            raise StorageError(f"the metadata of a checkpoint of thread {thread_id!r} was changed")
        versions = stored.checkpoint["channel_versions"]
        values = {
            name: self._cipher.unseal(sealed, "value", thread_id, namespace, name, versions.get(name))
            for name, sealed in stored.checkpoint["channel_values"].items()
        }
        if missing := set(manifest["values"]) - set(values):
            raise StorageError(f"thread {thread_id!r}: the values of {sorted(missing)} are missing")
        writes = self._unseal_writes(place, stored.pending_writes or [])
        if stored.parent_config:
            self._vouched[thread_id, namespace, parent_id] = {tuple(key) for key in manifest["writes"]}
        return stored._replace(
            checkpoint={**stored.checkpoint, "channel_values": values},
            metadata=manifest["metadata"],
            pending_writes=writes,
        )

    def _unseal_writes(self, place: Place, stored: Sequence[PendingWrite]) -> list[PendingWrite]:
        writes: list[PendingWrite] = []
        order: list[tuple[str, str, int]] = []
        expected = self._vouched.pop(place, set())
        for task_id, channel, sealed in stored:
            path, index, following, value = self._cipher.unseal(sealed, "write", *place, task_id, channel)
            writes.append((task_id, channel, value))
            order.append((path, task_id, index))
            expected.add((task_id, following))
        present = {(task_id, index) for _, task_id, index in order}
        if order != sorted(set(order)) or not expected <= present:
            raise StorageError(f"thread {place[0]!r}: stored writes are missing or in another order")
        self._stored[place] = present
        return writes


def _place(config: RunnableConfig) -> Place:
    configurable = config.get("configurable", {})
    return (
        str(configurable["thread_id"]),
        configurable.get("checkpoint_ns", ""),
        get_checkpoint_id(config) or "",
    )


def _parents(checkpoints: Iterable[CheckpointTuple]) -> set[Place]:
    return {_place(opened.parent_config) for opened in checkpoints if opened.parent_config}


def _config(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    configurable = {"thread_id": thread_id, "checkpoint_ns": namespace}
    return {"configurable": configurable | ({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}


def _readable(checkpoint: Checkpoint) -> dict[str, Any]:
    return {name: value for name, value in checkpoint.items() if name != "channel_values"}


def _open(metadata: dict[str, Any]) -> dict[str, Any]:
    return {name: metadata[name] for name in _OPEN if name in metadata}


def _plain(value: Any) -> Any:
    """Return `value` as JSON would return it: lists for tuples."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


@contextmanager
def _raise_for_damaged_checkpoints() -> Iterator[None]:
    """Raise StorageError for what a damaged row makes of LangGraph's saver and of our own reading."""
    try:
        yield
    except _DAMAGE as error:
        raise StorageError(f"a stored checkpoint is damaged and cannot be read ({error})") from error
