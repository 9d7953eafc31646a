"""Test your agents as we test ours: a model and a server that answer from a script, and crashes on demand."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from donewhen.agent.testing.calls import (
    answer,
    ask_user,
    broken_call,
    call,
    criterion,
    decline,
    finish_step,
    finish_task,
    give_up,
    observed,
    recall,
    reply,
    submit_plan,
)
from donewhen.agent.testing.faults import Fault, fault
from donewhen.agent.testing.request import Request
from donewhen.agent.testing.script import Policy, Reply, ScriptError, ScriptExhausted, ScriptUnfinished
from donewhen.agent.testing.scripted import ScriptedModel
from donewhen.agent.testing.wire import WireServer
from donewhen.agent.testing.wire_handler import WireRequest

if TYPE_CHECKING:
    from donewhen.agent.testing.comparing import asked_again as asked_again
    from donewhen.agent.testing.comparing import effects_at_most_once as effects_at_most_once
    from donewhen.agent.testing.comparing import ending as ending
    from donewhen.agent.testing.comparing import nothing_lost as nothing_lost
    from donewhen.agent.testing.comparing import resume_equals_uninterrupted as resume_equals_uninterrupted
    from donewhen.agent.testing.crash import Crash as Crash
    from donewhen.agent.testing.crash import Crashed as Crashed
    from donewhen.agent.testing.crash import crashing_tool as crashing_tool
    from donewhen.agent.testing.crash import midway as midway
    from donewhen.agent.testing.crash_storage import CrashingSaver as CrashingSaver
    from donewhen.agent.testing.crash_storage import CrashingStore as CrashingStore
    from donewhen.agent.testing.crash_storage import crashing as crashing
    from donewhen.agent.testing.driving import drive as drive
    from donewhen.agent.testing.driving import playing as playing
    from donewhen.agent.testing.effects import EffectLedger as EffectLedger
    from donewhen.agent.testing.everywhere import Trial as Trial
    from donewhen.agent.testing.everywhere import kill_everywhere as kill_everywhere

_LATER = {
    **dict.fromkeys(
        ("asked_again", "effects_at_most_once", "ending", "nothing_lost", "resume_equals_uninterrupted"),
        "donewhen.agent.testing.comparing",
    ),
    **dict.fromkeys(("Crash", "Crashed", "crashing_tool", "midway"), "donewhen.agent.testing.crash"),
    **dict.fromkeys(("CrashingSaver", "CrashingStore", "crashing"), "donewhen.agent.testing.crash_storage"),
    **dict.fromkeys(("drive", "playing"), "donewhen.agent.testing.driving"),
    "EffectLedger": "donewhen.agent.testing.effects",
    **dict.fromkeys(("Trial", "kill_everywhere"), "donewhen.agent.testing.everywhere"),
}
"""The kit for crashes brings the whole runtime along, so it is imported when it is used."""

__all__ = [
    "Crash",
    "Crashed",
    "CrashingSaver",
    "CrashingStore",
    "EffectLedger",
    "Fault",
    "Policy",
    "Reply",
    "Request",
    "ScriptError",
    "ScriptExhausted",
    "ScriptUnfinished",
    "ScriptedModel",
    "Trial",
    "WireRequest",
    "WireServer",
    "answer",
    "ask_user",
    "asked_again",
    "broken_call",
    "call",
    "crashing",
    "crashing_tool",
    "criterion",
    "decline",
    "drive",
    "effects_at_most_once",
    "ending",
    "fault",
    "finish_step",
    "finish_task",
    "give_up",
    "kill_everywhere",
    "midway",
    "nothing_lost",
    "observed",
    "playing",
    "recall",
    "reply",
    "resume_equals_uninterrupted",
    "submit_plan",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'donewhen.agent.testing' has no attribute {name!r}")
