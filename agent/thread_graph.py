"""The compiled graph on a storage: all LangGraph verbs, with one worker per thread and strict resume."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
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

from donewhen.agent.request import MISSING, Continuation, Request
from donewhen.agent.run import Run, read_run
from donewhen.agent.runner import (
    Act,
    GraphCall,
    HeldThread,
    Runner,
    hold,
    make_config,
    on_saver,
    recorded_as,
    request_in,
)
from donewhen.agent.storage import Storage
from donewhen.agent.work.thread_rows import update_row
from donewhen.graph.sync import iterate, wait
from donewhen.state.channels import Json
from donewhen.state.errors import StorageError
from donewhen.state.private_langgraph import READ_KEY
from donewhen.state.settings import Settings, SettingsLike, merge_settings
from donewhen.state.versions import migrate


class ThreadGraph(CompiledStateGraph[Any, Settings, Any, Any]):
    """The compiled graph on a storage. A verb that writes to a thread is its only worker; others get ThreadBusy.

    `Command(resume=…)` behaves like `Agent.resume`: UnknownThread and StaleAnswer are raised before anything happens.
    A run keeps the settings it was started with, and a new one starts with those of the agent; `context`
    overrides both.
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
        control = options.pop("control", None) or RunControl()
        call = GraphCall(thread, config, options, control)
        async with aclosing(
            self.runner.carry_out(call, lambda held: self._decide(held, input, config, options))
        ) as parts:
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
            snapshot = await held.graph.aget_state(make_config(thread), subgraphs=True)
            try:
                run = read_run(thread, snapshot)
            except StorageError:  # of an unreadable version: it is left alone
                return written
            await self.runner.write_end(held, run, snapshot)
            return written

    def bulk_update_state(self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]) -> RunnableConfig:
        return wait(self.abulk_update_state(config, supersteps))

    def _thread(self, config: RunnableConfig | None) -> str | None:
        """Return the thread; None if LangGraph must report its absence, or if a parent graph runs this one."""
        configurable = merge_configs(self.config, config).get("configurable") or {}
        thread = configurable.get("thread_id")
        return None if thread is None or READ_KEY in configurable else str(thread)

    async def _decide(
        self, held: HeldThread, input: Any, config: RunnableConfig | None, options: dict[str, Any]
    ) -> Act | Run:
        """Return what an input of the graph does with the thread: the same as it would as an Agent's.

        Any other input than a request, an answer or None is the graph's own, and so is one from an older checkpoint.
        """
        runner, snapshot = self.runner, await held.read()
        given: SettingsLike = options.pop("context", None)
        settings = merge_settings(runner.settings_now(held.row), given)
        change: Json = {"settings": settings if given else None, "answered": {}}
        where = merge_configs(self.config, config)
        if where["configurable"].get("checkpoint_id"):
            migrate((await held.graph.aget_state(where)).values)
            return Act(input, settings, change=change, from_checkpoint=True)
        if input is None or (isinstance(input, Command) and input.resume is not None):
            act = await runner.go_on(held, Continuation(MISSING if input is None else input.resume, settings=given))
            if isinstance(act, Run):  # it waits, or has ended, and the graph says so
                return Act(None, settings)
            return act if input is None else replace(act, given=replace(input, resume=act.given.resume))
        run, messages = read_run(held.thread_id, snapshot), request_in(input)
        is_free = not snapshot.created_at or run.outcome is not None
        if held.row.get("status") == "queued" or (messages and is_free):
            runner.check_free(held, snapshot, restart=False)
            request = await runner.prepare_request(Request(messages, runner.merge(given)))
            return await runner.begin(held, request, snapshot, queue="")
        if not messages:
            return Act(input, settings, run.goal, change, fresh=isinstance(input, Mapping) and is_free)
        heard: Any = {"messages": messages} if run.status == "running" else Command(resume={"": messages[-1].text})
        return Act(input, settings, run.goal, change, before=recorded_as(heard, run))


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
