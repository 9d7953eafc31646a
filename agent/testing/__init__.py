"""Test your agents as we test ours: a model and a server that answer from a script, and crashes on demand."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from donewhen.agent.testing.replies import (
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
from donewhen.agent.testing.wire import WireRequest, WireServer
from donewhen.agent.testing.wire_format import Fault, fault

if TYPE_CHECKING:
    from donewhen.agent.testing.comparing import EffectLedger as EffectLedger
    from donewhen.agent.testing.comparing import asked_again as asked_again
    from donewhen.agent.testing.comparing import drive as drive
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
    from donewhen.agent.testing.everywhere import Trial as Trial
    from donewhen.agent.testing.everywhere import kill_everywhere as kill_everywhere

_HOMES = {
    "comparing": "EffectLedger asked_again drive effects_at_most_once ending nothing_lost resume_equals_uninterrupted",
    "crash": "Crash Crashed crashing_tool midway",
    "crash_storage": "CrashingSaver CrashingStore crashing",
    "everywhere": "Trial kill_everywhere",
}
_LATER = {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names.split()}
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
