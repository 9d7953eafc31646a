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
    from donewhen.agent.a2a.remote import RemoteAgent
    from donewhen.agent.agent import Agent
    from donewhen.agent.mcp.client import McpServers
    from donewhen.agent.plans.plan_tools import plan_tools
    from donewhen.agent.plans.store import PlanStore
    from donewhen.agent.run import Run
    from donewhen.agent.stream import RunStream
    from donewhen.agent.tracing import Tracing
    from donewhen.agent.work.news import Webhook
    from donewhen.agent.work.thread_rows import ThreadInfo
    from donewhen.graph.build import build_graph
    from donewhen.graph.executors.executor import Executor, Executors
    from donewhen.graph.sync import wait
    from donewhen.state.errors import (
        ConfigError,
        DoneWhenError,
        GoalError,
        ModelError,
        PlanError,
        ResumeError,
        ScheduleError,
        StaleAnswer,
        StorageError,
        ThreadBusy,
        ThreadWaiting,
        ToolError,
        ToolMissing,
        UnknownThread,
    )
    from donewhen.state.events import Event, event_schema
    from donewhen.state.ledger import Limits
    from donewhen.state.plan.plan import PlanJson
    from donewhen.state.proof.receipt import Outcome, Receipt
    from donewhen.state.records import Pause, StepRecord
    from donewhen.state.settings import Profile, Settings

__all__ = [
    "Agent", "ConfigError", "DoneWhenError", "Event", "Executor", "Executors", "GoalError", "Limits",
    "McpServers", "ModelError", "Outcome", "Pause", "PlanError", "PlanJson", "PlanStore", "Profile", "Receipt",
    "RemoteAgent", "ResumeError", "Run", "RunStream", "ScheduleError", "Settings", "StaleAnswer", "StepRecord",
    "StorageError", "ThreadBusy", "ThreadInfo", "ThreadWaiting", "ToolError", "ToolMissing", "Tracing", "UnknownThread",
    "Webhook", "build_graph", "event_schema", "plan_tools", "wait",
]  # fmt: skip

_HOME = {
    "Agent": "agent.agent",
    "RemoteAgent": "agent.a2a.remote",
    "McpServers": "agent.mcp.client",
    "Run": "agent.run",
    "PlanStore": "agent.plans.store",
    "plan_tools": "agent.plans.plan_tools",
    "ThreadInfo": "agent.work.thread_rows",
    "Tracing": "agent.tracing",
    "Webhook": "agent.work.news",
    "RunStream": "agent.stream",
    **dict.fromkeys(("Executor", "Executors"), "graph.executors.executor"),
    **dict.fromkeys(("Event", "event_schema"), "state.events"),
    "build_graph": "graph.build",
    "wait": "graph.sync",
    "Limits": "state.ledger",
    "PlanJson": "state.plan.plan",
    **dict.fromkeys(("Outcome", "Receipt"), "state.proof.receipt"),
    **dict.fromkeys(("Pause", "StepRecord"), "state.records"),
    **dict.fromkeys(("Profile", "Settings"), "state.settings"),
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        with import_module("donewhen.agent.imports").pause_collection():
            return getattr(import_module(f"donewhen.{_HOME.get(name, 'state.errors')}"), name)
    raise AttributeError(f"module 'donewhen' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
