"""A compiled graph as an executor. It runs apart from the run and keeps its conversation in the run's checkpoints.

A handoff interrupted by a crash continues from its last checkpoint; a finished one is not repeated.
"""

import copy
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
    DeltaChannelHistory,
    PendingWrite,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.errors import GraphBubbleUp
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, StateSnapshot
from pydantic import ValidationError

from donewhen.graph.executors.executor import Handoff, Report, Unfinished
from donewhen.graph.executors.relay import interrupt_value
from donewhen.graph.tools.call import RunError
from donewhen.graph.tools.effects import WITHIN
from donewhen.graph.tools.rendering import describe_error
from donewhen.state.private_langgraph import DeltaSnapshot, named_types
from donewhen.state.settings import Settings

HANDOFF = "donewhen_handoff"
"""Metadata key of a sub-agent's checkpoints; the value is the handoff that made them."""

_PACKED = "donewhen_packed"


def is_durable(graph: Runnable[Any, Any], saver: BaseCheckpointSaver[Any] | None) -> bool:
    """Return whether the graph's checkpoints survive a crash for as long as the run's own."""
    if not isinstance(graph, CompiledStateGraph) or graph.checkpointer is False:
        return False
    own = graph.checkpointer
    return not isinstance(own, InMemorySaver) if isinstance(own, BaseCheckpointSaver) else saver is not None


async def work(graph: Runnable[Any, Any], handoff: Handoff) -> Report:
    """Run the graph on the brief, or continue it with answers, until it ends or asks.

    Raises Unfinished if it fails after it has done something.
    """
    if not isinstance(graph, CompiledStateGraph):
        output = await graph.ainvoke({"messages": [handoff.message]}, _config(handoff))
        return _report(output, handoff)
    return await _call_nested(graph, handoff, _run_or_continue)


async def lookup(graph: Runnable[Any, Any], handoff: Handoff) -> Report | None:
    """Return the report of an earlier handoff; None if it never began. Raises Unfinished if it has not ended."""
    if not isinstance(graph, CompiledStateGraph):
        raise Unfinished("Nothing is kept of what it did.")
    return await _call_nested(graph, handoff, _find_report)


Found = TypeVar("Found", bound=Report | None)


async def _call_nested(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    handoff: Handoff,
    call: Callable[[CompiledStateGraph[Any, Any, Any, Any], RunnableConfig, Handoff], Coroutine[Any, Any, Found]],
) -> Found:
    nested = _with_checkpointer(graph, handoff)
    config = _config(handoff, inside=isinstance(nested.checkpointer, NestedSaver))
    if isinstance(nested.checkpointer, NestedSaver):
        return await nested.checkpointer.guard(call(nested, config, handoff))
    return await call(nested, config, handoff)


async def _run_or_continue(
    nested: CompiledStateGraph[Any, Any, Any, Any], config: RunnableConfig, handoff: Handoff
) -> Report:
    if not nested.checkpointer:
        output = await nested.ainvoke({"messages": [handoff.message]}, config, context=_context_for(nested, handoff))
        return _report(output, handoff)
    graph_input: Any = Command(resume=dict(handoff.answers)) if handoff.answers else {"messages": [handoff.message]}
    before = await nested.aget_state(config)
    started = (before.metadata or {}).get(HANDOFF) == handoff.key
    if started and _is_over(before):
        return _report({**before.values, "__interrupt__": before.interrupts}, handoff)
    try:
        start, context = None if started and before.next else graph_input, _context_for(nested, handoff)
        control = handoff.control if is_durable(nested, None) else None  # what a drain leaves is found again
        options: Any = {"context": context, "control": control, "durability": "sync"}
        output = await nested.ainvoke(start, config, **options)
    except GraphBubbleUp:
        raise
    except Exception as error:
        if handoff.answers or started or await _has_worked(nested, config, handoff):
            raise Unfinished(describe_error(error)) from None
        raise
    return _report(output, handoff)


async def _find_report(
    nested: CompiledStateGraph[Any, Any, Any, Any], config: RunnableConfig, handoff: Handoff
) -> Report | None:
    if not nested.checkpointer:
        raise Unfinished("Nothing is kept of what it did.")
    async for last in nested.aget_state_history(config, filter={HANDOFF: handoff.key}, limit=1):
        if last.interrupts or not _is_over(last):
            raise Unfinished("It is not at its end.")
        return _report(last.values, handoff)
    return None


async def _has_worked(nested: CompiledStateGraph[Any, Any, Any, Any], config: RunnableConfig, handoff: Handoff) -> bool:
    """Return whether a node of the graph has finished in this handoff; its first two checkpoints are the input."""
    states = [state async for state in nested.aget_state_history(config, filter={HANDOFF: handoff.key}, limit=3)]
    return len(states) > 2 or any(task.result for state in states[:-1] for task in state.tasks)


def _is_over(state: StateSnapshot) -> bool:
    """Return whether the graph asks or has ended."""
    return bool(state.interrupts) or (not state.next and (state.metadata or {}).get("source") == "loop")


def _with_checkpointer(
    graph: CompiledStateGraph[Any, Any, Any, Any], handoff: Handoff
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return the graph with a checkpointer: its own, else a namespace of the run's."""
    change: dict[str, Any] = {"store": graph.store or handoff.store}
    if graph.checkpointer in (None, True):
        inside = f"executor {handoff.name} {handoff.conversation}".replace("|", "/").strip()
        change["checkpointer"] = NestedSaver(handoff.saver, inside, graph) if handoff.saver else None
    return graph.copy(change)


def _context_for(graph: CompiledStateGraph[Any, Any, Any, Any], handoff: Handoff) -> Any:
    """Return the run's context for a graph; a graph of ours hands it on to its tools."""
    if handoff.context is None or graph.context_schema is not Settings:
        return copy.deepcopy(handoff.context)
    return Settings(tool_context=dict(handoff.context))


def _config(handoff: Handoff, *, inside: bool = False) -> RunnableConfig:
    """Return the configuration: a namespace of the run's thread, or a separate thread for the
    graph's own checkpointer.
    """
    metadata = {**(handoff.config.get("metadata") or {}), HANDOFF: handoff.key}
    thread = (
        handoff.thread_id if inside else "/".join(filter(None, (handoff.thread_id, handoff.name, handoff.conversation)))
    )
    within = "/".join(filter(None, (handoff.name, handoff.conversation)))
    return {**handoff.config, "metadata": metadata, "configurable": {"thread_id": thread, WITHIN: within}}


def _report(output: Any, handoff: Handoff) -> Report:
    messages = _messages(output)
    ours = [n for n, message in enumerate(messages) if message.id == handoff.first]
    messages = messages[ours[-1] + 1 :] if ours else messages
    pauses = (output.get("__interrupt__") or ()) if isinstance(output, Mapping) else ()
    asks = [(str(getattr(one, "id", n)), interrupt_value(one)) for n, one in enumerate(pauses)]
    return Report(output_of(output, messages), asks, messages)


def _messages(output: Any) -> list[BaseMessage]:
    """Return the messages in an output; a remote graph returns them as dicts."""
    messages = output.get("messages") if isinstance(output, Mapping) else [output]
    return [made for one in messages if (made := _message(one))] if isinstance(messages, list) else []


def _message(one: Any) -> BaseMessage | None:
    if isinstance(one, Mapping) and one.get("type") == "ai":
        with suppress(ValidationError):
            return AIMessage.model_validate(dict(one))
    return one if isinstance(one, BaseMessage) else None


def output_of(output: Any, messages: Sequence[BaseMessage]) -> Any:
    """Return the text of the last message, else everything else that the graph returned."""
    spoken = [message for message in messages if message.text.strip()]
    if spoken:
        return ([message for message in spoken if isinstance(message, AIMessage)] or spoken)[-1].text
    hidden = ("messages", "__interrupt__")
    return {k: v for k, v in output.items() if k not in hidden} if isinstance(output, Mapping) else output


class OwnTypes:
    """Keeps the objects of a graph's state in checkpoints that return plain data.

    A value that holds an object of a type which the schemas of the graph name is stored as bytes, and only these types
    are revived. Where the checkpointer revives every type, values are stored as they are.
    """

    def __init__(self, graph: CompiledStateGraph[Any, Any, Any, Any], serde: SerializerProtocol) -> None:
        named = named_types(graph)
        widen: Any = getattr(serde, "with_msgpack_allowlist", None)
        self._serde: SerializerProtocol = widen(named) if widen else serde
        self._names = [name[-1].encode() for name in named] if self._serde is not serde else []

    def pack(self, value: Any) -> Any:
        """Return what is stored of a value."""
        if isinstance(value, DeltaSnapshot):
            return DeltaSnapshot(self.pack(value.value))
        if not self._names and not _is_packed(value):
            return value
        kind, data = self._serde.dumps_typed(value)
        holds_own = any(name in data for name in self._names)  # or something that is spelled so, which does no harm
        return {_PACKED: [kind, data]} if holds_own or _is_packed(value) else value

    def unpack(self, stored: Any) -> Any:
        """Return the value."""
        if isinstance(stored, DeltaSnapshot):
            return DeltaSnapshot(self.unpack(stored.value))
        return self._serde.loads_typed(tuple(stored[_PACKED])) if _is_packed(stored) else stored


def _is_packed(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {_PACKED}


class NestedSaver(BaseCheckpointSaver[Any]):
    """A namespace of another checkpointer, with the same threads. Async only, like our nodes."""

    def __init__(
        self, whole: BaseCheckpointSaver[Any], namespace: str, graph: CompiledStateGraph[Any, Any, Any, Any]
    ) -> None:
        super().__init__(serde=whole.serde)
        self._types = OwnTypes(graph, whole.serde)
        self._whole = whole
        self._namespace = namespace
        self._fault: Exception | None = None

    async def guard(self, work: Coroutine[Any, Any, Found]) -> Found:
        """Await the work. A failure of the run's own storage is raised as an error of the run, not of the sub-agent."""
        try:
            return await work
        except Exception as error:
            if self._fault is not None:
                raise RunError(self._fault) from error
            raise

    @contextmanager
    def _note_faults(self) -> Iterator[None]:
        try:
            yield
        except (TypeError, ValueError, NotImplementedError):  # unstorable values are the agent's own error
            raise
        except Exception as error:
            self._fault = error
            raise

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._whole.get_next_version(current, channel)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        with self._note_faults():
            checkpoint = await self._whole.aget_tuple(self._inner_config(config))
        return self._outer_tuple(checkpoint) if checkpoint else None

    async def alist(
        self, config: RunnableConfig | None, *, before: RunnableConfig | None = None, **options: Any
    ) -> AsyncIterator[CheckpointTuple]:
        place, earlier = self._inner_config(config or {}), self._inner_config(before) if before else None
        async for checkpoint in self._whole.alist(place, before=earlier, **options):
            yield self._outer_tuple(checkpoint)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        with self._note_faults():
            values = {name: self._types.pack(value) for name, value in checkpoint["channel_values"].items()}
            packed: Checkpoint = {**checkpoint, "channel_values": values}
            return self._outer_config(
                await self._whole.aput(self._inner_config(config), packed, metadata, new_versions)
            )

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        with self._note_faults():
            packed = [(channel, self._types.pack(value)) for channel, value in writes]
            await self._whole.aput_writes(self._inner_config(config), packed, task_id, task_path)

    async def aget_delta_channel_history(self, *, config: RunnableConfig, **options: Any) -> Any:
        with self._note_faults():
            history = await self._whole.aget_delta_channel_history(config=self._inner_config(config), **options)
        return {name: self._unpack_history(history) for name, history in history.items()}

    def _inner_config(self, config: RunnableConfig) -> RunnableConfig:
        configurable = config.get("configurable") or {}
        inner = configurable.get("checkpoint_ns", "")
        place = f"{self._namespace}|{inner}" if inner else self._namespace
        return {**config, "configurable": {**configurable, "checkpoint_ns": place}}

    def _outer_config(self, config: RunnableConfig) -> RunnableConfig:
        configurable = config["configurable"]
        inner = str(configurable.get("checkpoint_ns", "")).removeprefix(self._namespace).removeprefix("|")
        return {**config, "configurable": {**configurable, "checkpoint_ns": inner}}

    def _outer_tuple(self, found: CheckpointTuple) -> CheckpointTuple:
        parent = self._outer_config(found.parent_config) if found.parent_config else None
        values = {name: self._types.unpack(value) for name, value in found.checkpoint["channel_values"].items()}
        checkpoint: Checkpoint = {**found.checkpoint, "channel_values": values}
        writes = self._unpack_writes(found.pending_writes or ())
        return CheckpointTuple(self._outer_config(found.config), checkpoint, found.metadata, parent, writes)

    def _unpack_history(self, history: DeltaChannelHistory) -> DeltaChannelHistory:
        unpacked: DeltaChannelHistory = {"writes": self._unpack_writes(history["writes"])}
        if "seed" in history:
            unpacked["seed"] = self._types.unpack(history["seed"])
        return unpacked

    def _unpack_writes(self, writes: Sequence[PendingWrite]) -> list[PendingWrite]:
        return [(task, channel, self._types.unpack(value)) for task, channel, value in writes]
