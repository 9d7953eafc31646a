"""Tools to test agents: a model and a server that answer from a script, recordings, and crashes on demand."""

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
from donewhen.agent.testing.wire import WireRequest, WireServer
from donewhen.agent.testing.wire_format import Fault, fault

if TYPE_CHECKING:
    from donewhen.agent.testing.comparing import (
        EffectLedger,
        asked_again,
        drive,
        effects_at_most_once,
        ending,
        nothing_lost,
        resume_equals_uninterrupted,
    )
    from donewhen.agent.testing.crash import (
        Crash,
        Crashed,
        CrashingStore,
        crashing,
        crashing_saver,
        crashing_tool,
        midway,
    )
    from donewhen.agent.testing.everywhere import Trial, kill_everywhere
    from donewhen.agent.testing.recording import Recording, ReplayDifference

_HOMES = {
    "comparing": "EffectLedger asked_again drive effects_at_most_once ending nothing_lost resume_equals_uninterrupted",
    "crash": "Crash Crashed CrashingStore crashing crashing_saver crashing_tool midway",
    "everywhere": "Trial kill_everywhere",
    "recording": "Recording ReplayDifference",
}
_LATER = {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names.split()}
"""Imported on first use, because the crash kit imports the whole runtime."""

__all__ = [
    "Crash",
    "Crashed",
    "CrashingStore",
    "EffectLedger",
    "Fault",
    "Policy",
    "Recording",
    "ReplayDifference",
    "Reply",
    "Request",
    "ScriptError",
    "ScriptExhausted",
    "ScriptUnfinished",
    "ScriptedModel",
    "Trial",
    "WireRequest",
    "WireServer",
    "accept_plan",
    "answer",
    "ask_user",
    "asked_again",
    "audit",
    "broken_call",
    "call",
    "consent",
    "crashing",
    "crashing_saver",
    "crashing_tool",
    "criterion",
    "decline",
    "deliver",
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
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'donewhen.agent.testing' has no attribute {name!r}")
