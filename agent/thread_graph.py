"""The compiled graph on a storage: all LangGraph verbs, with one worker per thread and strict resume."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.base import BaseStore, Op, Result
from langgraph.types import Command, StateSnapshot, StateUpdate

from donewhen.agent.gate import admit, digests, resume_command
from donewhen.agent.request import check_begun
from donewhen.agent.run import read_run, require_thread
from donewhen.agent.runner import Compiled, HeldThread, hold, on_saver, route_if_stopped, traced, write_end
from donewhen.agent.storage import Storage
from donewhen.agent.storage.storage import SaverAndStore
from donewhen.agent.work.thread_rows import settings_in, update_row
from donewhen.graph.executors.executor import Executors
from donewhen.graph.sync import iterate, wait
from donewhen.state.errors import StorageError
from donewhen.state.private_langgraph import READ_KEY
from donewhen.state.settings import Settings
from donewhen.state.settings.studio import without_blanks
from donewhen.state.versions import migrate

if TYPE_CHECKING:
    from donewhen.agent.tracing import Tracing


class ThreadGraph(CompiledStateGraph[Any, Settings, Any, Any]):
    """The compiled graph on a storage. A verb that writes to a thread is its only worker; others get ThreadBusy.

    `Command(resume=…)` behaves like `Agent.resume`: UnknownThread and StaleAnswer are raised before anything happens.
    Without `context` a run keeps the settings it was started with, and a new one starts with those of the agent.
    Checkpoints are written before the next step starts, unless `durability` says otherwise.
    """

    def __init__(
        self,
        graph: Compiled,
        storage: Storage,
        settings: Settings,
        executors: Executors,
        tracing: "Tracing | None" = None,
    ) -> None:
        """Put `graph`, with these `executors`, on `storage`, without opening it."""
        super().__init__(**vars(on_saver(graph, DirectSaver(storage), DirectStore(storage))))
        self.plain: Compiled = graph
        self.storage: Storage = storage
        self.settings: Settings = settings
        self.executors: Executors = executors
        self.tracing: Tracing | None = tracing

    def copy(self, update: dict[str, Any] | None = None) -> Self:
        return type(self)(self.plain.copy(update), self.storage, self.settings, self.executors, self.tracing)

    async def astream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> AsyncGenerator[Any]:
        if (thread := self._thread(config)) is None:
            async for part in super().astream(input, config, **options):
                yield part
            return
        async with self._work(thread, input, config, options) as (given, where, chosen, session):
            parts = on_saver(self.plain, *session).astream(given, where, **chosen)
            async with aclosing(cast(Any, parts)):
                async for part in parts:
                    yield part

    def stream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Iterator[Any]:
        yield from iterate(self.astream(input, config, **options))

    async def aget_state(self, config: RunnableConfig, *, subgraphs: bool = False) -> StateSnapshot:
        if self._thread(config) is None:
            return await super().aget_state(config, subgraphs=subgraphs)
        async with self.storage.reader() as session:
            return await on_saver(self.plain, *session).aget_state(config, subgraphs=subgraphs)

    def get_state(self, config: RunnableConfig, *, subgraphs: bool = False) -> StateSnapshot:
        return wait(self.aget_state(config, subgraphs=subgraphs))

    async def aget_state_history(self, config: RunnableConfig, **options: Any) -> AsyncGenerator[StateSnapshot]:
        async with self.storage.reader() as session:
            async for snapshot in on_saver(self.plain, *session).aget_state_history(config, **options):
                yield snapshot

    def get_state_history(self, config: RunnableConfig, **options: Any) -> Iterator[StateSnapshot]:
        yield from iterate(self.aget_state_history(config, **options))

    async def abulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        if (thread := self._thread(config)) is None:
            return await super().abulk_update_state(config, supersteps)
        async with hold(self.storage, self.plain, thread) as held:
            await held.read()  # what is written now comes after the latest state, whichever this one is
            migrate((await held.graph.aget_state(config)).values)
            await update_row(held.store, thread, held.row)
            written = await held.graph.abulk_update_state(config, supersteps)
            await _end(held)
            return written

    def bulk_update_state(self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]) -> RunnableConfig:
        return wait(self.abulk_update_state(config, supersteps))

    def _thread(self, config: RunnableConfig | None) -> str | None:
        """Return the thread; None if LangGraph must report its absence, or if a parent graph runs this one."""
        configurable = merge_configs(self.config, config).get("configurable") or {}
        thread = configurable.get("thread_id")
        return None if thread is None or READ_KEY in configurable else str(thread)

    @asynccontextmanager
    async def _work(
        self, thread: str, input: Any, config: RunnableConfig | None, options: Mapping[str, Any]
    ) -> AsyncIterator[tuple[Any, RunnableConfig | None, dict[str, Any], SaverAndStore]]:
        """Hold the thread; yield the checked input, its configuration and options, and what to save it in."""
        async with hold(self.storage, self.plain, thread, working=True) as held:
            where = merge_configs(self.config, config)
            travels = bool(where["configurable"].get("checkpoint_id"))
            if travels:
                await held.read()  # what is written now comes after the latest state, not only after this one
            snapshot = await held.graph.aget_state(where)
            migrate(snapshot.values)
            settings = self._settings(options.get("context"), held, snapshot)
            answered: dict[str, Any] | None = None if input is None else {}
            if isinstance(input, Command) and input.resume is not None and not travels:
                run = read_run(thread, require_thread(thread, snapshot))
                check_begun(thread, held.row, snapshot.values)
                answers = admit(run, held.row, input.resume, where["configurable"]["thread_id"])
                command = resume_command(run, answers, snapshot.values, self.executors, settings)
                input, answered = replace(input, resume=command and command.resume), digests(answers)
            chosen = {**options, "context": settings, "durability": options.get("durability") or "sync"}
            fresh = isinstance(input, Mapping) and not snapshot.tasks
            with traced(self.tracing, held, config or {}, fresh=fresh, current=False) as (given, trace):
                change = {"settings": settings, "answered": answered, "trace": trace or None}
                await update_row(held.store, thread, held.row, **change)
                if input is None and not travels:
                    await route_if_stopped(held.graph, where)
                yield input, given, chosen, (held.saver, held.store)
            await _end(held)

    def _settings(self, context: Any, held: HeldThread, snapshot: StateSnapshot) -> Settings:
        """Return the caller's settings; else those of the working run; else the agent's."""
        if context is not None and (isinstance(context, Settings) or without_blanks(context)):
            return context if isinstance(context, Settings) else Settings.model_validate(context)
        return (settings_in(held.row) if snapshot.tasks else None) or self.settings


async def _end(held: HeldThread) -> None:
    """Write the state of the thread into its row; a row of an unreadable version is left alone."""
    snapshot = await held.read()
    try:
        run = read_run(held.thread_id, snapshot)
    except StorageError:
        return
    await write_end(held.store, run, snapshot.values, goal=run.goal)


# Checkpointer and store for verbs that are not overridden: each operation opens a session of its own, so nothing has to
# be closed.

PATIENCE = 10.0
"""Seconds that a write waits for its turn; a run holds its thread for longer, and then it raises ThreadBusy."""


class DirectSaver(BaseCheckpointSaver[Any]):
    """The checkpointer."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self._storage = storage

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        async with self._storage.reader() as (saver, _):
            return await saver.aget_tuple(config)

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        async with self._storage.reader() as (saver, _):
            async for found in saver.alist(config, **options):
                yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        async with self._storage.session(str(config["configurable"]["thread_id"]), patience=PATIENCE) as (saver, _):
            return await saver.aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        async with self._storage.session(str(config["configurable"]["thread_id"]), patience=PATIENCE) as (saver, _):
            await saver.aput_writes(config, writes, task_id, task_path)

    async def aget_delta_channel_history(self, *args: Any, **options: Any) -> Any:
        async with self._storage.reader() as (saver, _):
            return await saver.aget_delta_channel_history(*args, **options)

    async def adelete_thread(self, thread_id: str) -> None:
        async with self._storage.session(thread_id, patience=PATIENCE) as (saver, _):
            await saver.adelete_thread(thread_id)

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._storage.next_version(current)


class DirectStore(BaseStore):
    """The store. Its entries are not under a thread's lock; each batch is its own transaction."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        async with self._storage.writer() as (_, store):
            return await store.abatch(list(ops))

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return wait(self.abatch(ops))
