"""Tools to test agents: a model that answers from a script, recordings, and a run that fails wherever it can.

A room: the suite, the demo in docs and users' tests use it, the core does not. Without it, `donewhen.testing`,
`donewhen.pytest_plugin` and the command `record` go.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from donewhen.agent.testing.replies import (
    accept_plan,
    answer,
    ask_user,
    audit,
    broken_call,
    call,
    consent,
    criterion,
    decline,
    deliver,
    finish_step,
    finish_task,
    give_up,
    observed,
    recall,
    reply,
    submit_plan,
)
from donewhen.agent.testing.script import (
    Policy,
    Reply,
    Request,
    ScriptError,
    ScriptExhausted,
    ScriptUnfinished,
    playing,
)
from donewhen.agent.testing.scripted import ScriptedModel

if TYPE_CHECKING:
    from donewhen.agent.testing.crash import crash_points
    from donewhen.agent.testing.recording import Recording, ReplayDifference

_LATER = {"Recording": "recording", "ReplayDifference": "recording", "crash_points": "crash"}
"""Imported on first use, because they import the whole runtime."""

__all__ = [
    "Policy",
    "Recording",
    "ReplayDifference",
    "Reply",
    "Request",
    "ScriptError",
    "ScriptExhausted",
    "ScriptUnfinished",
    "ScriptedModel",
    "accept_plan",
    "answer",
    "ask_user",
    "audit",
    "broken_call",
    "call",
    "consent",
    "crash_points",
    "criterion",
    "decline",
    "deliver",
    "finish_step",
    "finish_task",
    "give_up",
    "observed",
    "playing",
    "recall",
    "reply",
    "submit_plan",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module 'donewhen.agent.testing' has no attribute {name!r}")
