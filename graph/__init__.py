"""Control flow: nodes, routes and their wiring. `build_graph` gives the runtime as an uncompiled StateGraph."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graph.build import build_graph as build_graph
    from graph.context import Executor as Executor

__all__ = ["Executor", "build_graph"]


def __getattr__(name: str) -> Any:
    # Imported when used: LangGraph takes a second, and `graph.sync` or `graph.failures` do not need it.
    if name == "build_graph":
        from graph.build import build_graph

        return build_graph
    if name == "Executor":
        from graph.context import Executor

        return Executor
    raise AttributeError(f"module 'graph' has no attribute {name!r}")
