"""DoneWhen: a plan → confirm → execute agent runtime on LangGraph. Public names are imported when they are used."""

import logging
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

for _folder in ("agent", "graph", "prompts", "state"):
    if find_spec(f"donewhen.{_folder}") is None:
        raise ImportError(
            f"donewhen/{_folder} is no folder: this copy was made without its symbolic links (a zip, or git with "
            "core.symlinks=false). Install it with `pip install` and its path, or make the links: "
            "git config core.symlinks true && git checkout -- donewhen"
        )

logging.getLogger("donewhen").addHandler(logging.NullHandler())  # silent, unless whoever uses it sets up logging

if TYPE_CHECKING:
    from donewhen.agent.agent import Agent
    from donewhen.agent.mcp.client import McpServers
    from donewhen.agent.models import Models
    from donewhen.agent.options import AgentOptions
    from donewhen.agent.run import Run
    from donewhen.agent.work.news import Webhook
    from donewhen.graph.build import build_graph
    from donewhen.graph.executors.executor import Executor
    from donewhen.graph.sync import wait
    from donewhen.state.errors import (
        ConfigError,
        DoneWhenError,
        GoalError,
        ModelError,
        ResumeError,
        StaleAnswer,
        StorageError,
        ThreadBusy,
        ThreadWaiting,
        ToolError,
        UnknownThread,
    )
    from donewhen.state.ledger import Limits
    from donewhen.state.settings import Profile, Settings

__all__ = [
    "Agent", "AgentOptions", "ConfigError", "DoneWhenError", "Executor", "GoalError", "Limits", "McpServers",
    "ModelError", "Models", "Profile", "ResumeError", "Run", "Settings", "StaleAnswer", "StorageError", "ThreadBusy",
    "ThreadWaiting", "ToolError", "UnknownThread", "Webhook", "build_graph", "wait",
]  # fmt: skip

_HOME = {
    "Agent": "agent.agent",
    "AgentOptions": "agent.options",
    "McpServers": "agent.mcp.client",
    "Models": "agent.models",
    "Run": "agent.run",
    "Webhook": "agent.work.news",
    "Executor": "graph.executors.executor",
    "build_graph": "graph.build",
    "wait": "graph.sync",
    "Limits": "state.ledger",
    **dict.fromkeys(("Profile", "Settings"), "state.settings"),
}
_MOVED = {
    **dict.fromkeys(("PlanError", "ScheduleError", "ToolMissing"), "errors"),
    **dict.fromkeys(("Executors", "RemoteAgent"), "executors"),
    **dict.fromkeys(("PlanStore", "plan_tools"), "plans"),
    "Tracing": "tracing",
    **dict.fromkeys(("Event", "Outcome", "Pause", "PlanJson", "Receipt", "RunStream", "StepRecord"), "types"),
    **dict.fromkeys(("ThreadInfo", "event_schema"), "types"),
}
"""Names that were here, by the module that has them now. They can still be imported from here."""


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        return getattr(import_module(f"donewhen.{_MOVED[name]}"), name)
    if name in __all__:
        return getattr(import_module(f"donewhen.{_HOME.get(name, 'state.errors')}"), name)
    raise AttributeError(f"module 'donewhen' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
