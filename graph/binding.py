"""Nodes, routes and subgraphs as LangGraph takes them: dependencies bound, callable from `ainvoke` and from `invoke`.

A subgraph is given what it works on by reference: its nodes see it beside what the subgraph stores itself.
"""

import inspect
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import get_runtime

from donewhen.graph.context import Deps, settled
from donewhen.graph.events import asked, at_turn, thread_of
from donewhen.graph.sync import awaitable_store, wait
from donewhen.state.graph_state import Json, RunState
from donewhen.state.settings import Settings
from donewhen.state.updates import applied, as_stored, effective, persisting
from donewhen.state.versions import migrated

READ = "__pregel_read"
"""In a task's configuration: LangGraph's reader of the state of the graph that the task belongs to."""
GIVEN = "__donewhen_given"
"""In the configuration of a subgraph's tasks: what the subgraph was given. It is not stored with them."""
DEPS = "__donewhen_deps"
"""The same of the dependencies of its nodes, so that all runs share one compiled subgraph."""
InputOf = Callable[[Json, Json, Settings, Deps], Json]
"""(state of the run, what was sent, settings, dependencies) → what a subgraph works on."""


class Update(dict[str, Any]):
    """What a node writes, and the state that it leaves behind, from which the run goes on."""

    after: Json


class Node(Runnable[Any, Any]):
    """The node `async (state, runtime, [config], *, deps)` as a runnable of the state alone.

    The node sees the state as this version has it, however old the thread is; what a migration changed is written
    with the node's update. StorageError, and nothing is written, if the state is of a newer version.
    It has no span of its own: LangGraph makes one for every node.
    """

    def __init__(self, node: Callable[..., Awaitable[Any]], deps: Deps | None = None) -> None:
        self.name = node.__name__
        self._node = node
        self._deps = deps
        self._takes_config = "config" in inspect.signature(node).parameters

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        values = migrated(input)
        update = effective(values, await self._called(values, config))
        return _led(values, update, update if values is input else persisting(input, values, update))

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        return wait(self.ainvoke(input, config))

    async def _called(self, values: Json, config: RunnableConfig | None) -> Any:
        """What the node does. A pause that it leaves is told, wherever it is opened."""
        more, deps = (config,) if self._takes_config else (), self._deps or (config or {})["configurable"][DEPS]
        runtime = settled(get_runtime(), deps)
        if runtime.store is not None and (store := await awaitable_store(runtime.store)) is not runtime.store:
            runtime = runtime.override(store=store)
        at_turn(thread_of(runtime), values.get("turn", 0) + (self.name == "receive"))
        update = await self._node(values, runtime, *more, deps=deps)
        if pending := (update or {}).get("pending"):
            asked(runtime, pending)
        return update


class InnerNode(Node):
    """A node of a subgraph, which sees what the subgraph was given as well.

    Its own state has a version only if it was stored before it was given anything.
    """

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        own = migrated(input) if "version" in input else input
        seen = _with_given(own, config)
        update = effective(own, await self._called(seen, config))
        return _led(seen, update, as_stored(update if own is input else persisting(input, own, update)))


def _with_given(state: Json, config: RunnableConfig | None) -> Json:
    given = ((config or {}).get("configurable") or {}).get(GIVEN, {})
    # What is merged begins empty; until something is stored, what was given holds.
    return {**given, **{key: value for key, value in state.items() if value or key not in given}}


class Route(Runnable[Any, Any]):
    """A route that LangGraph calls without suspending in between; in a subgraph it sees what that was given, too.

    It is no function, of which LangGraph would read all type hints, and make channels of them.

    A run that is cancelled between a node's update and the route after it is stored without a next step, and would
    end there silently when it is resumed (langgraph #8834).
    """

    def __init__(
        self, route: Callable[..., Any], labels: Mapping[str, str], keys: list[str], *, inside: bool = False
    ) -> None:
        self.name = route.__name__
        self._route = route
        self._labels = labels
        self._keys = keys
        self._inside = inside

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        if isinstance(input, Update):
            return self._of(input.after)
        # The start, or an update from outside of a node.
        values = (config or {})["configurable"][READ](self._keys, True)
        return self._of(_with_given(values, config) if self._inside else values)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        return self.invoke(input, config)

    def _of(self, values: Json) -> Any:
        """The way from this state: a label, or what is sent."""
        found = self._route(values)
        return self._labels[found] if isinstance(found, str) else found


class _Unread:
    """The ways from a node, which LangGraph takes without a reader: it would copy every channel for each round."""

    def __init__(self, ways: Any) -> None:
        self._ways = ways

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ways, name)

    def run(self, writer: Any, reader: Any = None) -> Any:
        return self._ways.run(writer)


def _led(values: Json, update: Json, written: Json) -> Update:
    """What is written, with the state after the update."""
    led = Update(written)
    led.after = applied(values, update)
    return led


def lead(
    graph: StateGraph[Any, Any, Any, Any],
    source: str,
    route: Callable[..., Any],
    labels: Mapping[str, str],
    *,
    inside: bool = False,
) -> None:
    """Draw the ways from a node, target → label, which the route, a function to a target or to Sends, takes."""
    ways: dict[Hashable, str] = {label: target for target, label in labels.items()}
    path = Route(route, labels, [*graph.schemas[graph.state_schema]], inside=inside)
    graph.add_conditional_edges(source, path, ways)
    drawn = graph.branches[source]
    drawn[route.__name__] = _Unread(drawn[route.__name__])  # type: ignore[assignment]


class Subgraph(RunnableLambda[Any, Any]):
    """A subgraph as a node: of what it is sent, only the id is stored with it; the rest is read from the run (K7).

    While it is at work the run's state does not change, and after a crash it is what it was: so what is given is the
    same in every round.
    """

    stream, astream = Runnable.stream, Runnable.astream
    transform, atransform = Runnable.transform, Runnable.atransform
    """So LangGraph calls nodes under a stream of events; they come whole, which RunnableLambda's own do not."""

    def __init__(self, graph: CompiledStateGraph[Any, Settings, Any, Any], given: InputOf, deps: Deps) -> None:
        super().__init__(graph.invoke, name=given.__name__)
        self.deps = [graph]
        """Where LangGraph finds the subgraph; it would parse the source of a function for it."""
        self._graph = graph
        self._given = given
        self._deps = deps

    def invoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:
        run, sent, inside = self._opened(input, config)
        left = self._graph.invoke(sent, inside, **options)
        return _led(run, left, left)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:
        run, sent, inside = self._opened(input, config)
        left = await self._graph.ainvoke(sent, inside, **options)
        return _led(run, left, left)

    def _opened(self, sent: Json, config: RunnableConfig | None) -> tuple[Json, Json, RunnableConfig]:
        """The state of the run, and with which input and configuration the subgraph is opened."""
        configurable = (config or {})["configurable"]
        run = migrated(configurable[READ](list(RunState.__annotations__), False))
        given = self._given(run, sent, settled(get_runtime(), self._deps).context, self._deps)
        known = {**configurable, GIVEN: given, DEPS: self._deps}
        return run, {"id": given["id"]}, {**(config or {}), "configurable": known}
