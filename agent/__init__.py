"""The world: models, tools, storage, people, CLI and server. Public names are imported when they are used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.agent import Agent as Agent
    from agent.run import Run as Run
    from agent.run import ThreadInfo as ThreadInfo
    from graph.context import Executor as Executor
    from graph.sync import wait as wait
    from state.errors import ConfigError as ConfigError
    from state.errors import DoneWhenError as DoneWhenError
    from state.errors import GoalError as GoalError
    from state.errors import ModelError as ModelError
    from state.errors import PlanError as PlanError
    from state.errors import ResumeError as ResumeError
    from state.errors import StaleAnswer as StaleAnswer
    from state.errors import StorageError as StorageError
    from state.errors import ThreadBusy as ThreadBusy
    from state.errors import ThreadWaiting as ThreadWaiting
    from state.errors import ToolError as ToolError
    from state.errors import UnknownThread as UnknownThread
    from state.ledger import Limits as Limits
    from state.settings import Profile as Profile
    from state.settings import Settings as Settings

_HOME = {
    "Agent": "agent.agent",
    "Run": "agent.run",
    "ThreadInfo": "agent.run",
    "Executor": "graph.context",
    "wait": "graph.sync",
    "Limits": "state.ledger",
    "Profile": "state.settings",
    "Settings": "state.settings",
    **dict.fromkeys(
        (
            "ConfigError",
            "DoneWhenError",
            "GoalError",
            "ModelError",
            "PlanError",
            "ResumeError",
            "StaleAnswer",
            "StorageError",
            "ThreadBusy",
            "ThreadWaiting",
            "ToolError",
            "UnknownThread",
        ),
        "state.errors",
    ),
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'agent' has no attribute {name!r}")
