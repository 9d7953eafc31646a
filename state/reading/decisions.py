"""The control tools: names and arguments by which a model decides. A public protocol, beside the domain tools."""

import copy
from collections.abc import Collection, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

_TEXT: dict[str, Any] = {"type": "string"}
_EVIDENCE = {
    "type": "array",
    "description": "observations that prove it, by the id in brackets at the start of each tool result",
    "items": {
        "type": "object",
        "properties": {
            "observation": _TEXT,
            "quote": {**_TEXT, "description": "the words or numbers in it that prove it"},
        },
        "required": ["observation"],
    },
}
_GOAL_CHECK = {
    "type": "array",
    "description": "one item for every criterion of the step",
    "items": {
        "type": "object",
        "properties": {
            "criterion": {"type": "integer", "description": "number of the criterion, from 1"},
            "met": {"type": "boolean"},
            "evidence": _EVIDENCE,
            "note": _TEXT,
        },
        "required": ["criterion", "met", "evidence"],
    },
}
_CHECK = {
    "type": "object",
    "description": "a read-only tool call by which the runtime itself decides the criterion",
    "properties": {
        "tool": _TEXT,
        "arguments": {"type": "object"},
        "expect": {
            "description": '"ok": the call succeeds; or of its result {"contains": text}, {"matches": regex}, '
            '{"equals": whole text or JSON}, {"number": 3.5, "tolerance": 0.1}, '
            '{"path": "$.rows", "op": ">=", "value": 3} with op ==, !=, >, >=, <, <=, contains or exists'
        },
    },
    "required": ["tool", "arguments"],
}
_CRITERIA = {
    "type": "array",
    "description": "observable criteria: texts, or objects with text and check",
    "items": {
        "anyOf": [
            _TEXT,
            {"type": "object", "properties": {"text": _TEXT, "check": _CHECK}, "required": ["text"]},
        ]
    },
}
_STEP = {
    "type": "object",
    "properties": {
        "content": {**_TEXT, "description": "what to do, one sentence"},
        "done_when": {
            "type": "array",
            "items": {"anyOf": [_TEXT, {"type": "object"}]},
            "description": "what can be observed when the step is done; items as in the plan's done_when",
        },
        "id": {**_TEXT, "description": "s1, s2, …"},
        "depends_on": {
            "type": "array",
            "items": _TEXT,
            "description": "ids whose results it needs; [] if independent; left out: all earlier ones",
        },
        "executor": _TEXT,
        "tools": {"type": "array", "items": _TEXT, "description": "those by which it changes anything"},
        "replaces": {"type": "array", "items": _TEXT},
    },
    "required": ["content"],
}
_SCHEDULE = {
    "type": "object",
    "description": "only for a recurring request whose time the user named: every_minutes, or at, or cron",
    "properties": {
        "every_minutes": {"type": "integer"},
        "at": {**_TEXT, "description": "HH:MM"},
        "weekdays": {"type": "array", "items": _TEXT, "description": "with at: mon … sun; left out: every day"},
        "cron": {**_TEXT, "description": "minute hour day month weekday, for what at cannot say"},
        "timezone": {**_TEXT, "description": "such as Europe/Berlin; with at and cron"},
        "missed": {"enum": ["skip", "once", "all"], "description": "what becomes of runs that were missed; once"},
    },
}


def _tool(name: str, description: str, required: Collection[str], **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": sorted(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


_ALL = {
    tool["function"]["name"]: tool
    for tool in (
        _tool(
            "answer",
            "Answer the user right away; no plan is needed.",
            ["text"],
            text=_TEXT,
            evidence={**_EVIDENCE, "description": "observations that the answer rests on, if you looked anything up"},
        ),
        _tool(
            "ask_user",
            "Ask the user, when going on without the answer would be a guess.",
            ["question"],
            question=_TEXT,
            options={"type": "array", "items": _TEXT},
            reason=_TEXT,
        ),
        _tool(
            "submit_plan",
            "Submit the plan.",
            ["title", "steps"],
            title=_TEXT,
            complexity={"type": "string", "enum": ["simple", "moderate", "complex"]},
            need_thinking={"type": "boolean", "description": "true if a careful second pass would pay off"},
            done_when={
                **_CRITERIA,
                "description": "what the user holds in hand at the end, in the goal's own words; "
                "for plans of several steps. Items: texts, or objects with text and check",
            },
            steps={"type": "array", "items": _STEP, "minItems": 1},
            schedule=_SCHEDULE,
            reason={**_TEXT, "description": "why so many steps"},
            speak={**_TEXT, "description": "one sentence to the user"},
        ),
        _tool(
            "decline",
            "Say that this cannot be done here, and what would be needed.",
            ["reason", "guidance"],
            reason={**_TEXT, "description": "for the log"},
            guidance={**_TEXT, "description": "for the user: what you need or what they can do"},
        ),
        _tool(
            "finish_step",
            "The step is done. Every criterion needs proof.",
            ["result", "goal_check"],
            result={**_TEXT, "description": "what the step found or made; later steps see only this"},
            goal_check=_GOAL_CHECK,
        ),
        _tool(
            "finish_task",
            "The whole goal is reached already; the steps left are not needed.",
            ["result", "goal_check", "reason"],
            result=_TEXT,
            goal_check={"type": "array", "items": {"type": "object"}, "description": "as in finish_step"},
            reason={**_TEXT, "description": "why the steps left are not needed"},
        ),
        _tool(
            "give_up",
            "The step cannot be done as planned.",
            ["reason", "kind"],
            reason=_TEXT,
            kind={"type": "string", "enum": ["blocked", "failed", "replan"]},
        ),
        _tool(
            "deliver",
            "Deliver the answer to the user, and prove the goal's criteria.",
            ["text"],
            text={**_TEXT, "description": "the answer, as the user reads it"},
            goal_check={**_GOAL_CHECK, "description": "one item for every criterion of the goal"},
        ),
        _tool(
            "recall",
            "Read more of a long observation.",
            ["observation"],
            observation={**_TEXT, "description": "its id, such as s2.3"},
            offset={"type": "integer", "description": "first character to read, from 0", "minimum": 0},
        ),
        _tool(
            "find_tools",
            "There are more tools: find some by what they should do. They are offered to you from then on.",
            ["query"],
            query=_TEXT,
        ),
    )
}
LOOKUPS = ("recall", "find_tools")
"""Control tools that look something up and decide nothing."""
TRIAGE = ("answer", "ask_user", "submit_plan", "decline")
DRAFT = ("submit_plan", "ask_user", "decline")
DELIVER = ("deliver",)
EXECUTE = ("ask_user", "finish_step", "finish_task", "give_up", "recall")
NAMES = frozenset(_ALL)


def control_tools(names: Collection[str], instead: Mapping[str, Any] = MappingProxyType({})) -> list[dict[str, Any]]:
    """The definitions as chat models bind them, in the order given; the same objects each time, not to be changed.

    `instead`: definitions that take the place of ours, by name.
    """
    return [instead.get(name) or _ALL[name] for name in names]


@cache
def arguments_schema(name: str) -> dict[str, Any]:
    """JSON Schema of a control tool's arguments, whole where a model is only told that it is as in another tool."""
    schema = copy.deepcopy(_ALL[name]["function"]["parameters"])
    if "goal_check" in schema["properties"]:
        schema["properties"]["goal_check"] = _GOAL_CHECK
    return dict(schema)
