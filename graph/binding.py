"""A node as LangGraph takes it: dependencies bound, runtime given, callable from `ainvoke` and from `invoke`."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.runtime import get_runtime

from graph.context import Deps
from graph.sync import wait
from state.settings import Settings


def bound(node: Callable[..., Awaitable[Any]], deps: Deps) -> Runnable[Any, Any]:
    """The node `async (state, runtime, [config], *, deps)` as a runnable of the state alone."""
    takes_config = "config" in inspect.signature(node).parameters

    async def call(state: Any, config: RunnableConfig) -> Any:
        runtime = get_runtime(Settings)
        return await (node(state, runtime, config, deps=deps) if takes_config else node(state, runtime, deps=deps))

    def call_sync(state: Any, config: RunnableConfig) -> Any:
        return wait(call(state, config))

    return RunnableLambda(call_sync, afunc=call, name=node.__name__)
