"""Test your agents as we test ours: a model that answers from a script, and a server that does."""

from agent.testing.calls import (
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
from agent.testing.faults import Fault, fault
from agent.testing.request import Request
from agent.testing.script import Policy, Reply, ScriptError, ScriptExhausted, ScriptUnfinished
from agent.testing.scripted import ScriptedModel
from agent.testing.wire import WireServer
from agent.testing.wire_handler import WireRequest

__all__ = [
    "Fault",
    "Policy",
    "Reply",
    "Request",
    "ScriptError",
    "ScriptExhausted",
    "ScriptUnfinished",
    "ScriptedModel",
    "WireRequest",
    "WireServer",
    "answer",
    "ask_user",
    "broken_call",
    "call",
    "criterion",
    "decline",
    "fault",
    "finish_step",
    "finish_task",
    "give_up",
    "observed",
    "recall",
    "reply",
    "submit_plan",
]
