"""Who works on steps: profiles with models and tools, compiled graphs, and agents elsewhere."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from donewhen.agent.a2a.remote import RemoteAgent
    from donewhen.graph.executors.executor import Executor, Executors

__all__ = ["Executor", "Executors", "RemoteAgent"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        home = "agent.a2a.remote" if name == "RemoteAgent" else "graph.executors.executor"
        return getattr(import_module(f"donewhen.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
