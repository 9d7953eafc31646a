"""The compiled graph on a storage: all of LangGraph's verbs, with one worker per thread and strict resume."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, Self, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, StateSnapshot, StateUpdate

from donewhen.agent.held import Compiled, Held, hold, on_saver, write_end
from donewhen.agent.resuming import answered, resume_command
from donewhen.agent.run import known, run_of
from donewhen.agent.storage import Storage
from donewhen.agent.storage.direct import direct, lent
from donewhen.agent.storage.storage import Worked
from donewhen.agent.work.engine import check_begun
from donewhen.agent.work.submitting import with_queued
from donewhen.agent.work.threads import note_thread, settings_of_row
from donewhen.graph.sync import opened, wait
from donewhen.state.errors import StorageError
from donewhen.state.settings import Settings
from donewhen.state.settings.studio import without_blanks
from donewhen.state.versions import migrated

NESTED = "__pregel_read"
"""In the configuration of a graph that runs inside another one, whose checkpointer it uses."""


async def seen(graph: Compiled, config: RunnableConfig) -> StateSnapshot:
    """How a run stands that others may work on, with its steps at work: not half of it from before and half from after.

    With the run's next checkpoint go the rounds of the steps that have ended: where that was meanwhile, it looks again.
    """
    tries = 3
    while True:
        tries -= 1
        try:
            snapshot = await graph.aget_state(config, subgraphs=True)
        except StorageError:  # with a key, a round that is not there any more
            if not tries:
                raise
            continue
        inside = any(isinstance(task.state, StateSnapshot) for task in snapshot.tasks)
        if not tries or not inside or (await graph.aget_state(config)).config == snapshot.config:
            return snapshot


async def found(graph: Compiled, config: RunnableConfig) -> StateSnapshot | None:
    """How a run stands; None after putting one back on its way that stood between two nodes.

    It does so where a node's update was stored and no route after it, as a Ctrl-C can leave it.
    """
    snapshot = await graph.aget_state(config, subgraphs=True)
    values = snapshot.values
    if snapshot.tasks or values.get("outcome") or not (values.get("planning") and values.get("goal")):
        return snapshot
    await graph.aupdate_state(config, {}, as_node="advance")
    return None


class ThreadGraph(CompiledStateGraph[Any, Settings, Any, Any]):
    """What a verb writes to a thread it writes as its only worker: while one runs, others get ThreadBusy.

    `Command(resume=…)` is taken as `Agent.resume` takes its answer: UnknownThread and StaleAnswer are raised before
    anything happens. Without `context` a run goes on with the settings it was started with, and a new one starts with
    those of the agent. Checkpoints are written before the next step starts, unless `durability` says otherwise.
    """

    def __init__(self, graph: Compiled, storage: Storage, settings: Settings) -> None:
        """`graph` on `storage`; opens nothing yet."""
        super().__init__(**vars(on_saver(graph, *direct(storage))))
        self.plain, self.storage, self.settings = graph, storage, settings

    def copy(self, update: dict[str, Any] | None = None) -> Self:
        return type(self)(self.plain.copy(update), self.storage, self.settings)

    async def astream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> AsyncIterator[Any]:
        if (thread := self._thread(config)) is None:
            async for part in super().astream(input, config, **options):
                yield part
            return
        async with self._working(thread, input, config, options) as (given, chosen, session):
            parts = on_saver(self.plain, *session).astream(given, config, **chosen)
            async with aclosing(cast(Any, parts)):
                async for part in parts:
                    yield part

    def stream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Iterator[Any]:
        if (thread := self._thread(config)) is None:
            yield from super().stream(input, config, **options)
            return
        with opened(self._working(thread, input, config, options)) as (given, chosen, session):
            yield from on_saver(self.plain, *lent(*session)).stream(given, config, **chosen)

    async def aget_state(self, config: RunnableConfig, *, subgraphs: bool = False) -> StateSnapshot:
        if self._thread(config) is None:
            return await super().aget_state(config, subgraphs=subgraphs)
        async with self.storage.reader() as session:
            return await on_saver(self.plain, *session).aget_state(config, subgraphs=subgraphs)

    def get_state(self, config: RunnableConfig, *, subgraphs: bool = False) -> StateSnapshot:
        return wait(self.aget_state(config, subgraphs=subgraphs))

    async def aget_state_history(self, config: RunnableConfig, **options: Any) -> AsyncIterator[StateSnapshot]:
        async with self.storage.reader() as session:
            async for snapshot in on_saver(self.plain, *session).aget_state_history(config, **options):
                yield snapshot

    def get_state_history(self, config: RunnableConfig, **options: Any) -> Iterator[StateSnapshot]:
        async def collect() -> list[StateSnapshot]:
            return [snapshot async for snapshot in self.aget_state_history(config, **options)]

        yield from wait(collect())

    async def abulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        if (thread := self._thread(config)) is None:
            return await super().abulk_update_state(config, supersteps)
        async with hold(self.storage, self.plain, thread) as held:
            migrated((await held.graph.aget_state(config)).values)
            await note_thread(held.store, thread, held.row)
            written = await held.graph.abulk_update_state(config, supersteps)
            await self._end(held)
            return written

    def bulk_update_state(self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]) -> RunnableConfig:
        return wait(self.abulk_update_state(config, supersteps))

    def _thread(self, config: RunnableConfig | None) -> str | None:
        """The thread it is about; None where LangGraph has to say that none is given, or where a parent runs us."""
        configurable = merge_configs(self.config, config).get("configurable") or {}
        thread = configurable.get("thread_id")
        return None if thread is None or NESTED in configurable else str(thread)

    @asynccontextmanager
    async def _working(
        self, thread: str, input: Any, config: RunnableConfig | None, options: Mapping[str, Any]
    ) -> AsyncIterator[tuple[Any, dict[str, Any], Worked]]:
        """Input and options as they may be given, and checkpointer and store to work on the thread with, alone."""
        async with hold(self.storage, self.plain, thread) as held:
            where = merge_configs(self.config, config)
            snapshot = await held.graph.aget_state(where)
            migrated(snapshot.values)
            given, said = _strict(held, snapshot, input, where)
            settings = self._settings(options.get("context"), held, snapshot)
            await note_thread(held.store, thread, held.row, settings=settings, answered=said)
            if input is None and not where["configurable"].get("checkpoint_id"):
                await found(held.graph, where)
            chosen = {**options, "context": settings, "durability": options.get("durability") or "sync"}
            yield given, chosen, (held.saver, held.store)
            await self._end(held)

    async def _end(self, held: Held) -> None:
        snapshot = await held.snapshot()
        try:
            run = run_of(held.thread_id, snapshot)
        except StorageError:  # what was written is of a version that this one cannot read: its row stays as it is
            return
        await write_end(held.store, run, snapshot.values, goal=run.goal)

    def _settings(self, context: Any, held: Held, snapshot: StateSnapshot) -> Settings:
        """What the caller gives; else what a run under way was started with; else the agent's."""
        if context is not None and (isinstance(context, Settings) or without_blanks(context)):
            return context if isinstance(context, Settings) else Settings.model_validate(context)
        return (settings_of_row(held.row) if snapshot.tasks else None) or self.settings


def _strict(
    held: Held, snapshot: StateSnapshot, input: Any, config: RunnableConfig
) -> tuple[Any, dict[str, Any] | None]:
    """The input, with an answer as `Agent.resume` would take it, and what to remember of that."""
    if not isinstance(input, Command) or input.resume is None or config["configurable"].get("checkpoint_id"):
        return input, None if input is None else {}
    run = run_of(held.thread_id, known(held.thread_id, snapshot))
    shown, row = config["configurable"]["thread_id"], held.row
    check_begun(held.thread_id, row, snapshot.values)
    answer = with_queued(run, row, input.resume, shown)
    given = resume_command(run, answer, shown, row.get("answered") or {})
    return replace(input, resume=given.resume), answered(run, answer)
