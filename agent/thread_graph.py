"""The compiled graph on a storage: all LangGraph verbs, with one worker per thread and strict resume."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

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
from langgraph.runtime import RunControl
from langgraph.store.base import BaseStore, Op, Result
from langgraph.types import Command, StateSnapshot, StateUpdate

from donewhen.agent.gate import admit, resume_command
from donewhen.agent.request import check_begun
from donewhen.agent.run import read_run, require_thread
from donewhen.agent.runner import HeldThread, RunCancelled, Runner, hold, on_saver, request_in, route_if_stopped, traced
from donewhen.agent.storage import Storage
from donewhen.agent.work.thread_rows import update_row
from donewhen.graph.executors.executor import CANCEL
from donewhen.graph.sync import iterate, wait
from donewhen.state.private_langgraph import READ_KEY
from donewhen.state.settings import Settings
from donewhen.state.settings.studio import without_blanks
from donewhen.state.versions import migrate


class ThreadGraph(CompiledStateGraph[Any, Settings, Any, Any]):
    """The compiled graph on a storage. A verb that writes to a thread is its only worker; others get ThreadBusy.

    `Command(resume=…)` behaves like `Agent.resume`: UnknownThread and StaleAnswer are raised before anything happens.
    Without `context` a run keeps the settings it was started with, and a new one starts with those of the agent.
    Checkpoints are written before the next step starts, unless `durability` says otherwise.
    """

    def __init__(self, runner: Runner) -> None:
        """Put the graph of `runner` on its storage, without opening that."""
        storage = runner.storage
        super().__init__(**vars(on_saver(runner.graph, DirectSaver(storage), DirectStore(storage))))
        self.runner: Runner = runner
        self.storage: Storage = storage

    def copy(self, update: dict[str, Any] | None = None) -> Self:
        return type(self)(replace(self.runner, graph=self.runner.graph.copy(update)))

    async def astream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> AsyncGenerator[Any]:
        if (thread := self._thread(config)) is None:
            async for part in super().astream(input, config, **options):
                yield part
            return
        async with self._work(thread, input, config, options) as work:
            parts: Any = work.held.graph.astream(work.input, work.config, **work.options)
            try:
                async with aclosing(self.runner.until_cancelled(work.held, parts, work.cancel, work.place)) as followed:
                    async for part in followed:
                        yield part
            except RunCancelled as cancelled:
                await self.runner.end_cancelled(work.held, cancelled.reason)
                parts = work.held.graph.astream(None, work.config, **work.options)  # how it ended
                async with aclosing(parts):
                    async for part in parts:
                        yield part

    def stream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Iterator[Any]:
        yield from iterate(self.astream(input, config, **options))

    async def aget_state(self, config: RunnableConfig, *, subgraphs: bool = False) -> StateSnapshot:
        if self._thread(config) is None:
            return await super().aget_state(config, subgraphs=subgraphs)
        async with self.storage.reader() as session:
            return await on_saver(self.runner.graph, *session).aget_state(config, subgraphs=subgraphs)

    def get_state(self, config: RunnableConfig, *, subgraphs: bool = False) -> StateSnapshot:
        return wait(self.aget_state(config, subgraphs=subgraphs))

    async def aget_state_history(self, config: RunnableConfig, **options: Any) -> AsyncGenerator[StateSnapshot]:
        async with self.storage.reader() as session:
            async for snapshot in on_saver(self.runner.graph, *session).aget_state_history(config, **options):
                yield snapshot

    def get_state_history(self, config: RunnableConfig, **options: Any) -> Iterator[StateSnapshot]:
        yield from iterate(self.aget_state_history(config, **options))

    async def abulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        if (thread := self._thread(config)) is None:
            return await super().abulk_update_state(config, supersteps)
        async with hold(self.storage, self.runner.graph, thread) as held:
            await held.read()  # what is written now comes after the latest state, whichever this one is
            migrate((await held.graph.aget_state(config)).values)
            await update_row(held.store, thread, held.row)
            written = await held.graph.abulk_update_state(config, supersteps)
            await self.runner.write_state(held)
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
    ) -> AsyncIterator["_Work"]:
        """Hold the thread; yield the checked input, and what else the graph is called with."""
        runner = self.runner
        async with hold(self.storage, runner.graph, thread, working=True) as held:
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
                answers = admit(run, held.row, input.resume)
                command = resume_command(run, answers, snapshot.values, runner.executors, settings)
                input, answered = replace(input, resume=command and command.resume), dict.fromkeys(answers, "")
            control = options.get("control") or RunControl()
            chosen = {**options, "context": settings, "durability": options.get("durability") or "sync"}
            chosen["control"] = control
            fresh = isinstance(input, Mapping) and not snapshot.tasks
            with traced(runner.tracing, held, config or {}, fresh=fresh, current=False) as (given, trace):
                place = copy_context()
                change: dict[str, Any] = {
                    "settings": settings,
                    "answered": answered,
                    "trace": trace or None,
                    **runner.ownership(),
                }
                if fresh and not travels and (messages := request_in(input)):
                    change["goal"] = messages[-1].text
                await update_row(held.store, thread, held.row, **change)
                if not travels:
                    given = await runner.record_input(held, snapshot, input, settings, given, place)
                if input is None and not travels:
                    await route_if_stopped(held.graph, where)
                yield _Work(held, input, given, chosen, partial(control.request_drain, CANCEL), place)
            await runner.write_state(held)

    def _settings(self, context: Any, held: HeldThread, snapshot: StateSnapshot) -> Settings:
        """Return the caller's settings; else those of the working run; else the agent's."""
        if context is not None and (isinstance(context, Settings) or without_blanks(context)):
            return context if isinstance(context, Settings) else Settings.model_validate(context)
        return self.runner.settings_now(held.row if snapshot.tasks else {})


@dataclass(frozen=True)
class _Work:
    """A call of the graph on a held thread."""

    held: HeldThread
    input: Any
    config: RunnableConfig | None
    options: dict[str, Any]
    cancel: Callable[[], None]
    place: Context


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
