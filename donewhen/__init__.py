"""DoneWhen: a plan → confirm → execute agent runtime on LangGraph. Public names are imported when they are used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from donewhen.agent.agent import Agent as Agent
    from donewhen.agent.run import Run as Run
    from donewhen.agent.run import ThreadInfo as ThreadInfo
    from donewhen.graph.build import build_graph as build_graph
    from donewhen.graph.context import Executor as Executor
    from donewhen.graph.sync import wait as wait
    from donewhen.state.errors import ConfigError as ConfigError
    from donewhen.state.errors import DoneWhenError as DoneWhenError
    from donewhen.state.errors import GoalError as GoalError
    from donewhen.state.errors import ModelError as ModelError
    from donewhen.state.errors import PlanError as PlanError
    from donewhen.state.errors import ResumeError as ResumeError
    from donewhen.state.errors import StaleAnswer as StaleAnswer
    from donewhen.state.errors import StorageError as StorageError
    from donewhen.state.errors import ThreadBusy as ThreadBusy
    from donewhen.state.errors import ThreadWaiting as ThreadWaiting
    from donewhen.state.errors import ToolError as ToolError
    from donewhen.state.errors import UnknownThread as UnknownThread
    from donewhen.state.ledger import Limits as Limits
    from donewhen.state.settings import Profile as Profile
    from donewhen.state.settings import Settings as Settings

_ERRORS = (
    "ConfigError", "DoneWhenError", "GoalError", "ModelError", "PlanError", "ResumeError", "StaleAnswer",
    "StorageError", "ThreadBusy", "ThreadWaiting", "ToolError", "UnknownThread",
)  # fmt: skip
_HOME = {
    "Agent": "donewhen.agent.agent",
    "Executor": "donewhen.graph.context",
    "Limits": "donewhen.state.ledger",
    "Profile": "donewhen.state.settings",
    "Run": "donewhen.agent.run",
    "Settings": "donewhen.state.settings",
    "ThreadInfo": "donewhen.agent.run",
    "build_graph": "donewhen.graph.build",
    "wait": "donewhen.graph.sync",
    **dict.fromkeys(_ERRORS, "donewhen.state.errors"),
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'donewhen' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
