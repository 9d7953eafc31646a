"""Every private name of LangGraph that this project uses. No other file imports one, and pyproject.toml allows only the
versions of LangGraph that it was tested with."""

import itertools
from collections.abc import Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph._internal._config import DEFAULT_RECURSION_LIMIT
from langgraph._internal._constants import CONFIG_KEY_SCRATCHPAD as SCRATCHPAD_KEY
from langgraph._internal._constants import CONFIG_KEY_SEND, INTERRUPT, NULL_TASK_ID, RESUME
from langgraph._internal._scratchpad import PregelScratchpad
from langgraph._internal._serde import collect_allowlist_from_schemas
from langgraph.checkpoint.base import id as checkpoint_ids
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.jsonplus import _msgpack_ext_hook as revive
from langgraph.checkpoint.serde.types import _DeltaSnapshot as DeltaSnapshot
from langgraph.graph import StateGraph
from langgraph.graph.message import _messages_delta_reducer as messages_delta_reducer
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel._messages import StreamMessagesHandler, StreamMessagesHandlerV2, graph_namespace

__all__ = [
    "INTERRUPT",
    "NULL_TASK_ID",
    "RESUME",
    "SCRATCHPAD_KEY",
    "DeltaSnapshot",
    "StreamMessagesHandler",
    "StreamMessagesHandlerV2",
    "goes_on_with",
    "graph_namespace",
    "let_ids_follow",
    "messages_delta_reducer",
    "named_types",
    "revive",
    "with_resume_values",
]

READ_KEY = "__pregel_read"
"""Key of a task's configuration: reads the state of the task's graph. Nested graphs see it too."""
CHECKPOINTER_KEY = "__pregel_checkpointer"
"""Key of a task's configuration: the checkpointer of the task's graph."""
RESUME_MAP_KEY = "__pregel_resume_map"
"""Key of a task's configuration: the answers that a call gives by the ids of interrupts. Nested graphs see it too."""
STRICT_RESUME_KEY = "__pregel_strict_resume"
"""Key of a call's configuration: answering an interrupt that is not open is an error."""
_BEFORE_1970 = 0x01B21DD213814000
"""From the beginning of the calendar to that of Unix time, in the units of a checkpoint's id: 100 nanoseconds."""


def goes_on_with(config: RunnableConfig) -> bool:
    """Return whether a call of a graph goes on with the task that has this configuration, after it was cut off."""
    scratchpad = config["configurable"][SCRATCHPAD_KEY]
    steps_left: int = scratchpad.stop - scratchpad.step - 1
    return steps_left == config.get("recursion_limit", DEFAULT_RECURSION_LIMIT)


def let_ids_follow(id: str) -> int | None:
    """Let the ids of this process's later checkpoints sort after this one, whatever its clock says: the latest
    checkpoint of a thread is the one with the highest id. Return the time in the id in nanoseconds, if it has one.
    """
    try:
        read = checkpoint_ids.UUID(id)
    except ValueError:
        return None
    if read.version != 6:
        return None
    ids: Any = checkpoint_ids
    ids._last_v6_timestamp = max(ids._last_v6_timestamp or 0, read.time)
    return (read.time - _BEFORE_1970) * 100


def named_types(graph: CompiledStateGraph[Any, Any, Any, Any]) -> frozenset[tuple[str, ...]]:
    """Return module and name of each dataclass, enum and Pydantic model that is named in the schemas of a graph or of a
    graph within it, as LangGraph collects them; types that are revived everywhere are left out.
    """
    named = set[tuple[str, ...]]()
    for each in (graph, *(inner for _, inner in graph.get_subgraphs(recurse=True))):
        if isinstance(builder := getattr(each, "builder", None), StateGraph):
            schemas = [builder.state_schema, builder.input_schema, builder.output_schema]
            schemas += [node.input_schema for node in builder.nodes.values()]
            named |= collect_allowlist_from_schemas(schemas=schemas, channels=builder.channels)
    return frozenset(named - SAFE_MSGPACK_TYPES)


class _ResumeValues:
    """The resume values of one call. `interrupt` takes them by number, and a graph that the call runs one by one."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = list(values)
        self._next = 0

    def count(self) -> int:
        """Return the number of this interrupt of the call itself, from 0."""
        self._next += 1
        return self._next - 1

    def take(self, consume: bool) -> Any:
        """Return the next value for an interrupt of a graph within; None if there is none."""
        if self._next >= len(self.values):
            return None
        self._next += consume
        return self.values[self._next - consume]


def with_resume_values(config: RunnableConfig, values: Sequence[Any]) -> RunnableConfig:
    """Return a configuration in which `interrupt` returns these values, one after the other, and raises after them."""
    resume_values = _ResumeValues(values)
    scratchpad = PregelScratchpad(
        step=0,
        stop=0,
        call_counter=itertools.count().__next__,
        interrupt_counter=resume_values.count,
        get_null_resume=resume_values.take,
        resume=resume_values.values,
        subgraph_counter=itertools.count().__next__,
    )
    own = {SCRATCHPAD_KEY: scratchpad, CONFIG_KEY_SEND: lambda writes: None}
    return {**config, "configurable": {**(config.get("configurable") or {}), **own}}
