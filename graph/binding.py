"""A node as LangGraph takes it: dependencies bound, runtime given, callable from `ainvoke` and from `invoke`."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.runtime import get_runtime

from donewhen.graph.context import Deps
from donewhen.graph.sync import wait
from donewhen.state.settings import Settings
from donewhen.state.updates import persisting
from donewhen.state.versions import migrated


def bound(node: Callable[..., Awaitable[Any]], deps: Deps) -> Runnable[Any, Any]:
    """The node `async (state, runtime, [config], *, deps)` as a runnable of the state alone.

    The node sees the state as this version has it, however old the thread is; what a migration changed is written
    with the node's update. StorageError, and nothing is written, if the state is of a newer version.
    """
    takes_config = "config" in inspect.signature(node).parameters

    async def call(state: Any, config: RunnableConfig) -> Any:
        runtime, values = get_runtime(Settings), migrated(state)
        update = await (node(values, runtime, config, deps=deps) if takes_config else node(values, runtime, deps=deps))
        return update if values is state else persisting(state, values, update)

    def call_sync(state: Any, config: RunnableConfig) -> Any:
        return wait(call(state, config))

    return RunnableLambda(call_sync, afunc=call, name=node.__name__)


class Route(RunnableLambda[Any, Any]):
    """A route that LangGraph calls without suspending in between.

    A run that is cancelled between a node's update and the route after it is stored without a next step, and would
    end there silently when it is resumed (langgraph #8834).
    """

    def __init__(self, route: Callable[..., Any]) -> None:
        super().__init__(route)
        self._route = route
        self._takes_config = "config" in inspect.signature(route).parameters

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        return self._route(input, config) if self._takes_config else self._route(input)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        return self.invoke(input, config)
