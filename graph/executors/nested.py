"""A compiled graph as an executor: it runs apart from the run, and keeps its conversation among the run's checkpoints.

A leg that a crash cut off goes on from its last checkpoint; one that was finished is not made again.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphBubbleUp
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, StateSnapshot
from pydantic import ValidationError

from donewhen.graph.executors.leg import Leg, Report, Unfinished
from donewhen.graph.tools.call import NotTheTools
from donewhen.graph.tools.effects import WITHIN
from donewhen.graph.tools.rendering import describe_error

LEG = "donewhen_leg"
"""In the metadata of a sub-agent's checkpoints: the leg that made them."""


def remembers(graph: Runnable[Any, Any], saver: BaseCheckpointSaver[Any] | None) -> bool:
    """Whether the graph's checkpoints outlive a crash of the run as long as the run's own do."""
    if not isinstance(graph, CompiledStateGraph) or graph.checkpointer is False:
        return False
    own = graph.checkpointer
    return not isinstance(own, InMemorySaver) if isinstance(own, BaseCheckpointSaver) else saver is not None


async def work(graph: Runnable[Any, Any], leg: Leg) -> Report:
    """Run the graph on the brief, or on with the answers, until it ends or asks.

    Raises Unfinished if it failed when it had done something already.
    """
    if not isinstance(graph, CompiledStateGraph):
        output = await graph.ainvoke({"messages": [leg.message]}, _config(leg))
        return _report(output, leg)
    return await _in_corner(graph, leg, _worked)


async def lookup(graph: Runnable[Any, Any], leg: Leg) -> Report | None:
    """Return what became of a leg from before, None if it never began. Raises Unfinished if it is not at its end."""
    if not isinstance(graph, CompiledStateGraph):
        raise Unfinished("Nothing is kept of what it did.")
    return await _in_corner(graph, leg, _found)


Found = TypeVar("Found", bound=Report | None)


async def _in_corner(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    leg: Leg,
    does: Callable[[CompiledStateGraph[Any, Any, Any, Any], RunnableConfig, Leg], Coroutine[Any, Any, Found]],
) -> Found:
    apart = _apart(graph, leg)
    config = _config(leg, corner=isinstance(apart.checkpointer, Corner))
    if isinstance(apart.checkpointer, Corner):
        return await apart.checkpointer.held(does(apart, config, leg))
    return await does(apart, config, leg)


async def _worked(apart: CompiledStateGraph[Any, Any, Any, Any], config: RunnableConfig, leg: Leg) -> Report:
    if not apart.checkpointer:
        return _report(await apart.ainvoke({"messages": [leg.message]}, config), leg)
    given: Any = Command(resume=dict(leg.answers)) if leg.answers else {"messages": [leg.message]}
    before = await apart.aget_state(config)
    begun = _leg_of(before) == leg.key
    if begun and _is_over(before):
        return _report({**before.values, "__interrupt__": before.interrupts}, leg)
    try:
        output = await apart.ainvoke(None if begun and before.next else given, config, durability="sync")
    except GraphBubbleUp:
        raise
    except Exception as error:
        if leg.answers or begun or await _has_worked(apart, config, leg):
            raise Unfinished(describe_error(error)) from None
        raise
    return _report(output, leg)


async def _found(apart: CompiledStateGraph[Any, Any, Any, Any], config: RunnableConfig, leg: Leg) -> Report | None:
    if not apart.checkpointer:
        raise Unfinished("Nothing is kept of what it did.")
    async for last in apart.aget_state_history(config, filter={LEG: leg.key}, limit=1):
        if last.interrupts or not _is_over(last):
            raise Unfinished("It is not at its end.")
        return _report(last.values, leg)
    return None


async def _has_worked(apart: CompiledStateGraph[Any, Any, Any, Any], config: RunnableConfig, leg: Leg) -> bool:
    """Return whether a node of the graph has ended since the leg began, whose first two checkpoints are its input."""
    states = [state async for state in apart.aget_state_history(config, filter={LEG: leg.key}, limit=3)]
    return len(states) > 2 or any(task.result for state in states[:-1] for task in state.tasks)


def _leg_of(state: StateSnapshot) -> Any:
    return (state.metadata or {}).get(LEG)


def _is_over(state: StateSnapshot) -> bool:
    """Return whether the graph asks, or is at its end."""
    return bool(state.interrupts) or (not state.next and (state.metadata or {}).get("source") == "loop")


def _apart(graph: CompiledStateGraph[Any, Any, Any, Any], leg: Leg) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The graph with a checkpointer: its own, else a corner of the run's."""
    change: dict[str, Any] = {"store": graph.store or leg.store}
    if graph.checkpointer in (None, True):
        corner = f"executor {leg.name} {leg.conversation}".replace("|", "/").strip()
        change["checkpointer"] = Corner(leg.saver, corner) if leg.saver else None
    return graph.copy(change)


def _config(leg: Leg, *, corner: bool = False) -> RunnableConfig:
    """In a corner of the run's own thread; with a checkpointer of its own, a thread of its own."""
    metadata = {**(leg.config.get("metadata") or {}), LEG: leg.key}
    thread = leg.thread_id if corner else "/".join(filter(None, (leg.thread_id, leg.name, leg.conversation)))
    within = "/".join(filter(None, (leg.name, leg.conversation)))
    return {**leg.config, "metadata": metadata, "configurable": {"thread_id": thread, WITHIN: within}}


def _report(output: Any, leg: Leg) -> Report:
    said = _messages(output)
    ours = [n for n, message in enumerate(said) if message.id == leg.first]
    said = said[ours[-1] + 1 :] if ours else said
    pauses = (output.get("__interrupt__") or ()) if isinstance(output, Mapping) else ()
    asks = [(str(getattr(one, "id", n)), getattr(one, "value", one)) for n, one in enumerate(pauses)]
    return Report(said_by(output, said), asks, said)


def _messages(output: Any) -> list[BaseMessage]:
    """The messages in it; those of a remote graph come as dicts."""
    given = output.get("messages") if isinstance(output, Mapping) else [output]
    return [made for one in given if (made := _message(one))] if isinstance(given, list) else []


def _message(one: Any) -> BaseMessage | None:
    if isinstance(one, Mapping) and one.get("type") == "ai":
        with suppress(ValidationError):
            return AIMessage.model_validate(dict(one))
    return one if isinstance(one, BaseMessage) else None


def said_by(output: Any, messages: Sequence[BaseMessage]) -> Any:
    """What it came to: the text of its last message, else everything else that it returned."""
    spoken = [message for message in messages if message.text.strip()]
    if spoken:
        return ([message for message in spoken if isinstance(message, AIMessage)] or spoken)[-1].text
    hidden = ("messages", "__interrupt__")
    return {k: v for k, v in output.items() if k not in hidden} if isinstance(output, Mapping) else output


class Corner(BaseCheckpointSaver[Any]):
    """A part of another checkpointer: the same threads, under a namespace of its own. Async, as our nodes are."""

    def __init__(self, whole: BaseCheckpointSaver[Any], namespace: str) -> None:
        super().__init__(serde=whole.serde)
        self._whole = whole
        self._namespace = namespace
        self._fault: Exception | None = None

    async def held(self, work: Coroutine[Any, Any, Found]) -> Found:
        """What the work comes to; where the run's own storage failed in it, that is an error of the run."""
        try:
            return await work
        except Exception as error:
            if self._fault is not None:
                raise NotTheTools(self._fault) from error
            raise

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except (TypeError, ValueError, NotImplementedError):  # what cannot be stored is the agent's own affair
            raise
        except Exception as error:
            self._fault = error
            raise

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._whole.get_next_version(current, channel)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        with self._watched():
            found = await self._whole.aget_tuple(self._in(config))
        return self._out(found) if found else None

    async def alist(
        self, config: RunnableConfig | None, *, before: RunnableConfig | None = None, **options: Any
    ) -> AsyncIterator[CheckpointTuple]:
        place, earlier = self._in(config or {}), self._in(before) if before else None
        async for found in self._whole.alist(place, before=earlier, **options):
            yield self._out(found)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        with self._watched():
            return self._back(await self._whole.aput(self._in(config), checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        with self._watched():
            await self._whole.aput_writes(self._in(config), writes, task_id, task_path)

    async def aget_delta_channel_history(self, *, config: RunnableConfig, **options: Any) -> Any:
        with self._watched():
            return await self._whole.aget_delta_channel_history(config=self._in(config), **options)

    def _in(self, config: RunnableConfig) -> RunnableConfig:
        configurable = config.get("configurable") or {}
        inner = configurable.get("checkpoint_ns", "")
        place = f"{self._namespace}|{inner}" if inner else self._namespace
        return {**config, "configurable": {**configurable, "checkpoint_ns": place}}

    def _back(self, config: RunnableConfig) -> RunnableConfig:
        configurable = config["configurable"]
        inner = str(configurable.get("checkpoint_ns", "")).removeprefix(self._namespace).removeprefix("|")
        return {**config, "configurable": {**configurable, "checkpoint_ns": inner}}

    def _out(self, found: CheckpointTuple) -> CheckpointTuple:
        parent = self._back(found.parent_config) if found.parent_config else None
        return found._replace(config=self._back(found.config), parent_config=parent)
