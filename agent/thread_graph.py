"""The compiled graph on a storage: all LangGraph verbs, with one worker per thread and strict resume."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Self

from langchain_core.messages import convert_to_messages
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
from langgraph.types import Command, Overwrite, StateSnapshot, StateUpdate

from donewhen.agent.gate import to_stopped
from donewhen.agent.request import MISSING, Continuation, Request, is_not_begun
from donewhen.agent.run import Run, read_run
from donewhen.agent.runner import (
    Act,
    GraphCall,
    HeldThread,
    Runner,
    make_config,
    on_saver,
    request_in,
)
from donewhen.agent.storage import Storage
from donewhen.agent.storage.storage import LOCK_PATIENCE
from donewhen.agent.work.thread_rows import check_free, update_row
from donewhen.graph.people.answers import AUTHENTICATED
from donewhen.graph.sync import iterate, wait
from donewhen.state.channels import Json
from donewhen.state.errors import GoalError, StorageError
from donewhen.state.private_langgraph import CHECKPOINTER_KEY, READ_KEY
from donewhen.state.settings import Settings, SettingsLike, merge_settings
from donewhen.state.statuses import record_of
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
        if (thread_id := self._thread(config)) is None:
            self.runner.use_settings()
            async for part in super().astream(input, config, **options):
                yield part
            return
        options = {name: value for name, value in options.items() if value is not None}  # `ainvoke` passes all
        control = options.pop("control", None) or RunControl()
        call = GraphCall(thread_id, config, options, control)
        async with aclosing(
            self.runner.carry_out(call, lambda thread: self._decide(thread, input, config, options))
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
        if self._thread(config) is None:
            return super().get_state(config, subgraphs=subgraphs)
        return wait(self.aget_state(config, subgraphs=subgraphs))

    async def aget_state_history(self, config: RunnableConfig, **options: Any) -> AsyncGenerator[StateSnapshot]:
        if self._thread(config) is None:
            async for snapshot in super().aget_state_history(config, **options):
                yield snapshot
            return
        async with self.storage.reader() as session:
            async for snapshot in on_saver(self.runner.graph, *session).aget_state_history(config, **options):
                yield snapshot

    def get_state_history(self, config: RunnableConfig, **options: Any) -> Iterator[StateSnapshot]:
        if self._thread(config) is None:
            yield from super().get_state_history(config, **options)
            return
        yield from iterate(self.aget_state_history(config, **options))

    async def abulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        if (thread_id := self._thread(config)) is None:
            return await super().abulk_update_state(config, supersteps)
        async with self.runner.hold(thread_id) as thread:
            # Once it is read, ids written from now on sort after the thread's latest state, not after `config`'s.
            _check_begun(thread, await thread.read())
            known = migrate((await thread.graph.aget_state(config)).values).get("steps") or {}
            supersteps = [[each._replace(values=_whole(each.values, known)) for each in step] for step in supersteps]
            await update_row(thread.store, thread_id, thread.row)
            written = await thread.graph.abulk_update_state(config, supersteps)
            snapshot = await thread.graph.aget_state(make_config(thread_id), subgraphs=True)
            try:
                run = read_run(thread_id, snapshot)
            except StorageError:  # of an unreadable version: it is left alone
                return written
            await self.runner.record_rest(thread, run, snapshot)
            return written

    def bulk_update_state(self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]) -> RunnableConfig:
        if self._thread(config) is None:
            return super().bulk_update_state(config, supersteps)
        return wait(self.abulk_update_state(config, supersteps))

    def _thread(self, config: RunnableConfig | None) -> str | None:
        """Return the thread's id; None without one, which LangGraph reports, or inside another graph, which has its own
        checkpointer."""
        configurable = merge_configs(self.config, config).get("configurable") or {}
        thread_id = configurable.get("thread_id")
        inside = READ_KEY in configurable or CHECKPOINTER_KEY in configurable
        return None if thread_id is None or inside else str(thread_id)

    async def _decide(
        self, thread: HeldThread, input: Any, config: RunnableConfig | None, options: dict[str, Any]
    ) -> Act | Run:
        """Return the act for an input of the graph: a request, an answer and None mean what they mean to an Agent.

        Any other input, and any input to an older checkpoint, goes to the graph unchanged.
        """
        if input is not None and not isinstance(input, Command | Mapping):
            raise GoalError(f"the graph takes a mapping with `messages`, a Command, or None, not {input!r:.60}")
        check_input(input.update if isinstance(input, Command) else input)
        runner, snapshot = self.runner, await thread.read()
        new_settings: SettingsLike = options.pop("context", None)
        settings = merge_settings(runner.settings_now(thread.row), new_settings)
        change: Json = {"settings": settings if new_settings else None, "answered": {}}
        where = merge_configs(self.config, config)
        if where["configurable"].get("checkpoint_id"):
            _check_begun(thread, snapshot)
            migrate((await thread.graph.aget_state(where)).values)
            return Act(input, settings, change=change, from_checkpoint=True)
        if input is None or (isinstance(input, Command) and input.resume is not None):
            answer, user = (MISSING, "") if input is None else (input.resume, where["configurable"].get(AUTHENTICATED))
            act = await runner.go_on(thread, Continuation(answer, by=str(user or ""), settings=new_settings))
            if isinstance(act, Run):  # it waits, or has ended, and the graph says so
                return Act(None, settings)
            return act if input is None else replace(act, input=replace(input, resume=act.input.resume))
        run = read_run(thread.thread_id, snapshot)
        messages = request_in(input, strict=run.status == "running" and bool(snapshot.created_at))
        is_free = not snapshot.created_at or run.outcome is not None
        if thread.row.get("status") == "queued":
            check_free(thread.thread_id, thread.row, snapshot)
        _check_begun(thread, snapshot)
        if messages and is_free:
            request = await runner.prepare_request(Request(messages, runner.merge(new_settings)))
            return await runner.begin(thread, request, snapshot, queue="")
        if not messages:
            return Act(input, settings, run.goal, change, fresh=isinstance(input, Mapping) and is_free)
        recorded_input: Any = Command(resume={"": messages[-1].text})
        if run.status == "running":
            input = recorded_input = to_stopped(messages)
        return Act(input, settings, run.goal, change, before=runner.before_input(recorded_input, run))


def _check_begun(thread: HeldThread, snapshot: StateSnapshot) -> None:
    """Raise ThreadWaiting if the thread has a request that has not begun: what is written now would displace it."""
    if is_not_begun(thread.row, snapshot.values):
        check_free(thread.thread_id, thread.row, snapshot)


def check_input(values: Any) -> None:
    """Raise GoalError for messages that are none: once they are stored, nobody can read the thread any more."""
    messages = values.get("messages") if isinstance(values, Mapping) else None
    messages = messages.value if isinstance(messages, Overwrite) else messages
    if messages is not None:
        try:
            convert_to_messages(messages if isinstance(messages, list) else [messages])
        except (ValueError, NotImplementedError, TypeError, KeyError) as error:
            raise GoalError(f"the messages for the graph are none: {str(error).splitlines()[0]}") from None


def _whole(values: Any, known: Mapping[str, Any]) -> Any:
    """Return an update of the state, checked, in which a step that has no record yet gets a whole one."""
    check_input(values)
    steps = values.get("steps") if isinstance(values, Mapping) else None
    if not isinstance(steps, Mapping):
        return values
    return {**values, "steps": {id: {**record_of(known, id), **record} for id, record in steps.items()}}


# Checkpointer and store for verbs that are not overridden: each operation opens a session of its own, so nothing has to
# be closed.


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
            async for checkpoint in saver.alist(config, **options):
                yield checkpoint

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        async with self._storage.session(str(config["configurable"]["thread_id"]), patience=LOCK_PATIENCE) as (
            saver,
            _,
        ):
            return await saver.aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        async with self._storage.session(str(config["configurable"]["thread_id"]), patience=LOCK_PATIENCE) as (
            saver,
            _,
        ):
            await saver.aput_writes(config, writes, task_id, task_path)

    async def aget_delta_channel_history(self, *args: Any, **options: Any) -> Any:
        async with self._storage.reader() as (saver, _):
            return await saver.aget_delta_channel_history(*args, **options)

    async def adelete_thread(self, thread_id: str) -> None:
        async with self._storage.session(thread_id, patience=LOCK_PATIENCE) as (saver, _):
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
