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

from donewhen.graph.context import Deps, with_settings
from donewhen.graph.events import emit_question, set_turn, thread_of
from donewhen.graph.sync import awaitable_store, wait
from donewhen.state.private_langgraph import READ_KEY
from donewhen.state.run import Json, RunState
from donewhen.state.settings import Settings
from donewhen.state.updates import apply_update, as_stored, reduce_update, with_migration
from donewhen.state.versions import migrate

GIVEN = "__donewhen_given"
"""Key in the configuration of a subgraph's tasks for what the subgraph was given; it is not stored with them."""
DEPS = "__donewhen_deps"
"""Key for the dependencies of its nodes, so that all runs share one compiled subgraph."""
InputOf = Callable[[Json, Json, Settings, Deps], Json]
"""(state of the run, what was sent, settings, dependencies) → what a subgraph works on."""


class Update(dict[str, Any]):
    """The update of a node, and the state after it, from which the route goes on."""

    def __init__(self, written: Json, after: Json) -> None:
        super().__init__(written)
        self.after = after


class Node(Runnable[Any, Any]):
    """The node `async (state, runtime, [config], *, deps)` as a runnable of the state alone.

    The node sees the state as this version has it, however old the thread is; what a migration changed is written
    with the node's update. StorageError, and nothing is written, if the state is of a newer version. Without `deps` it
    is a node of a subgraph, and sees what the subgraph was given as well.
    It has no span of its own: LangGraph makes one for every node.
    """

    def __init__(self, node: Callable[..., Awaitable[Any]], deps: Deps | None = None) -> None:
        self.name: str | None = node.__name__
        self._node = node
        self._deps = deps
        self._takes_config = "config" in inspect.signature(node).parameters

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        inner, known = self._deps is None, (config or {}).get("configurable") or {}
        stored = (
            input if inner else migrate(input)
        )  # the state of a subgraph is as old as its run's, and has no version
        seen, deps = with_given(stored, known) if inner else stored, self._deps or known[DEPS]
        runtime = with_settings(get_runtime(), deps)
        if runtime.store is not None and (store := await awaitable_store(runtime.store)) is not runtime.store:
            runtime = runtime.override(store=store)
        set_turn(thread_of(runtime), seen.get("turn", 0) + (self.name == "receive"))
        update = await self._node(seen, runtime, *([config] if self._takes_config else []), deps=deps)
        if pending := (update or {}).get("pending"):
            emit_question(runtime, pending)
        written, after = reduce_update(seen, update, stored)
        return Update(as_stored(written if stored is input else with_migration(input, stored, written)), after)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        return wait(self.ainvoke(input, config))


def with_given(state: Json, configurable: Mapping[str, Any]) -> Json:
    """Return the state of a subgraph with what it was given."""
    given = configurable.get(GIVEN) or {}
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
        self.name: str | None = route.__name__
        self._route = route
        self._labels = labels
        self._keys = keys
        self._inside = inside

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        if isinstance(input, Update):
            values = input.after
        else:  # the start, or an update from outside of a node
            configurable = (config or {})["configurable"]
            values = configurable[READ_KEY](self._keys, True)
            values = with_given(values, configurable) if self._inside else values
        target = self._route(values)
        return self._labels[target] if isinstance(target, str) else target

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        return self.invoke(input, config)


class _BranchWithoutReader:
    """The edges of a node without LangGraph's reader, which would copy every channel for each round."""

    def __init__(self, branch: Any) -> None:
        self._branch = branch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._branch, name)

    def run(self, writer: Any, reader: Any = None) -> Any:
        return self._branch.run(writer)


def add_route(
    graph: StateGraph[Any, Any, Any, Any],
    source: str,
    route: Callable[..., Any],
    labels: Mapping[str, str],
    *,
    inside: bool = False,
) -> None:
    """Draw the edges from a node, target → label; the route, a function of the state, chooses a target or Sends."""
    edges: dict[Hashable, str] = {label: target for target, label in labels.items()}
    path = Route(route, labels, [*graph.schemas[graph.state_schema]], inside=inside)
    graph.add_conditional_edges(source, path, edges)
    branches = graph.branches[source]
    branches[route.__name__] = _BranchWithoutReader(branches[route.__name__])  # type: ignore[assignment]


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
        run, given = self._prepare(input, config)
        update = self._graph.invoke({"id": given["id"]}, self._configure(given, config), **options)
        return Update(update, apply_update(run, update))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:
        run, given = self._prepare(input, config)
        update = await self._graph.ainvoke({"id": given["id"]}, self._configure(given, config), **options)
        return Update(update, apply_update(run, update))

    def _prepare(self, sent: Json, config: RunnableConfig | None) -> tuple[Json, Json]:
        """Return the state of the run, and what the subgraph is given of it."""
        run = migrate((config or {})["configurable"][READ_KEY](list(RunState.__annotations__), False))
        return run, self._given(run, sent, with_settings(get_runtime(), self._deps).context, self._deps)

    def _configure(self, given: Json, config: RunnableConfig | None) -> RunnableConfig:
        configurable = {**(config or {})["configurable"], GIVEN: given, DEPS: self._deps}
        return {**(config or {}), "configurable": configurable}
