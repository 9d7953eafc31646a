"""The control tools: names and arguments of a model's decisions. A public protocol, in addition to domain tools."""

import copy
from collections.abc import Collection, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_LANGUAGE = {**_TEXT, "description": "BCP 47"}
_UNCHANGED = {**_TEXT, "description": "why nothing had to be changed, if tools for that were granted"}
_CITED: dict[str, Any] = {"observation": _TEXT, "quote": _TEXT}
"""The instructions of the roles that cite show such an item; those for `answer` do not."""
_BEFORE = {
    "type": "boolean",
    "description": "true: as it was before a change",
}


def _evidence(**properties: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object", "properties": properties, "required": ["observation"]}}


_CLAIM = {
    "type": "object",
    "properties": {
        "criterion": {"type": "integer"},
        "met": {"type": "boolean"},
        "evidence": _evidence(**_CITED, before=_BEFORE),
    },
    "required": ["criterion", "met", "evidence"],
}
_GOAL_CHECK = {"type": "array", "items": _CLAIM}
_CRITERIA = {"type": "array", "items": {"anyOf": [_TEXT, {"type": "object"}]}}
_STEP = {
    "type": "object",
    "properties": {
        "content": _TEXT,
        "done_when": {
            **_CRITERIA,
            "description": 'text, {text, call} or {text, check: {tool, arguments, expect}}; expect: "ok", {contains}, '
            '{equals}, {matches: regex}, {number, tolerance} or {path: "$.n", op: ">=", value: 3}',
        },
        "tools": _TEXTS,
        "calls": {"type": "array", "items": {"type": "object"}, "description": "{tool, arguments}"},
        "message": _TEXT,
        "id": _TEXT,
        "depends_on": {
            **_TEXTS,
            "description": "steps (s1, s2) whose results it needs; [] for none; left out: all earlier",
        },
        "executor": _TEXT,
        "replaces": _TEXTS,
    },
    "required": ["content"],
}
_SCHEDULE = {
    "type": "object",
    "description": 'only to recur, at times that the user named: {every_minutes}, {at: "HH:MM", weekdays: ["mon"]} or '
    "{cron}, both with timezone (that of <today>, or ask); missed: skip, once or all",
}


def _tool(name: str, description: str, required: Collection[str], **properties: Any) -> dict[str, Any]:
    """Return a definition; the instructions of its role say more."""
    parameters = {"type": "object", "properties": properties, "required": sorted(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


_ALL = {
    tool["function"]["name"]: tool
    for tool in (
        _tool(
            "answer",
            "Answer the user.",
            ["text"],
            text=_TEXT,
            evidence={**_TEXTS, "description": "p.1: a quote, word for word, from it or its call"},
            language=_LANGUAGE,
        ),
        _tool("ask_user", "Ask the user.", ["question"], question=_TEXT, options=_TEXTS, language=_LANGUAGE),
        _tool(
            "submit_plan",
            "Submit the plan.",
            ["title", "steps"],
            title=_TEXT,
            complexity={"type": "string", "enum": ["simple", "moderate", "complex"]},
            steps={"type": "array", "items": _STEP},
            done_when={**_CRITERIA, "description": "as a step's"},
            schedule=_SCHEDULE,
            need_thinking={"type": "boolean"},
            reason={**_TEXT, "description": "for the log"},
            speak={**_TEXT, "description": "to the user, beside the plan"},
            language=_LANGUAGE,
            drop={
                "type": "array",
                "description": "of the approved plan: ids of open steps, or criteria of the goal in their words",
                "items": {"type": "object", "properties": {"what": _TEXT, "why": _TEXT}, "required": ["what", "why"]},
            },
        ),
        _tool(
            "decline",
            "It cannot be done here.",
            ["reason", "guidance"],
            reason={**_TEXT, "description": "for the log"},
            guidance={**_TEXT, "description": "for the user: what they can do"},
        ),
        _tool("accept_plan", "The user agrees to the plan exactly as it is shown.", []),
        _tool(
            "consent",
            "Say whether they agree.",
            ["agrees"],
            agrees={"type": "boolean"},
            why=_TEXT,
        ),
        _tool(
            "finish_step",
            "The step is done.",
            ["result", "goal_check"],
            result=_TEXT,
            goal_check=_GOAL_CHECK,
            unchanged=_UNCHANGED,
        ),
        _tool(
            "finish_task",
            "The whole goal is reached already; the steps left are not needed.",
            ["result", "goal_check", "reason"],
            result=_TEXT,
            goal_check={"type": "array", "items": {"type": "object"}, "description": "as in finish_step"},
            reason=_TEXT,
        ),
        _tool(
            "give_up",
            "The step cannot be done as planned.",
            ["reason", "kind"],
            reason=_TEXT,
            kind={"type": "string", "enum": ["blocked", "failed", "replan"]},
        ),
        _tool("deliver", "Deliver the answer.", ["text"], text=_TEXT, goal_check=_GOAL_CHECK, language=_LANGUAGE),
        _tool(
            "audit",
            "Say what is shown.",
            ["sentences", "goal"],
            sentences={
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "n": {"type": "integer"},
                        "shown": {"type": "string", "enum": ["yes", "no", "contradicted"]},
                        "by": {**_TEXTS, "description": "ids of what it rests on"},
                        "why": {**_TEXT, "description": "unless yes: short, in the user's language"},
                    },
                    "required": ["n", "shown"],
                },
            },
            goal={
                "type": "object",
                "properties": {
                    "met": {"type": "string", "enum": ["yes", "part", "no", "declined"]},
                    "missing": _TEXTS,
                },
                "required": ["met", "missing"],
            },
        ),
        _tool(
            "recall",
            "Read more of an observation.",
            ["observation"],
            observation=_TEXT,
            offset={"type": "integer", "description": "first character, from 0"},
        ),
        _tool(
            "find_tools",
            "Find more tools by what they should do. They are offered to you from then on.",
            ["query"],
            query=_TEXT,
        ),
        _tool(
            "run_program",
            "Run a Python program in which your tools are functions: `rows = tool_name(argument=value)`, without "
            "`await`. A call returns what the tool returned: objects and lists as such, all else as text; one that "
            "fails or is refused raises RuntimeError. You are shown what it prints and the ids of its calls, not their "
            "results: print what you need. Variables stay for your later programs in this step. There is no clock, no "
            "chance, no file; `json`, `math`, `re` can be imported. Use it for many calls, and for calls that need "
            "each other's results; a person who has to approve changes is shown them as one list before the first.",
            ["code"],
            code=_TEXT,
        ),
    )
}
PROGRAM = "run_program"
"""The control tool that makes calls of other tools."""
LOOKUPS = ("recall", "find_tools")
"""Control tools that only look something up."""
CLAIMS = ("finish_step", "finish_task")
TRIAGE = ("answer", "ask_user", "submit_plan", "decline")
ACCEPT = ("accept_plan",)
"""Added while a person speaks about a plan that waits for them."""
CONSENT = ("consent",)
DRAFT = ("submit_plan", "ask_user", "decline")
DELIVER = ("deliver",)
AUDIT = ("audit", "recall")
EXECUTE = ("ask_user", "finish_step", "finish_task", "give_up", "recall")
NAMES = frozenset(_ALL)


def control_tools(names: Collection[str], instead: Mapping[str, Any] = MappingProxyType({})) -> list[dict[str, Any]]:
    """Return the definitions for chat models in the given order; the same objects each time.

    `instead` replaces definitions by name.
    """
    return [instead.get(name) or _ALL[name] for name in names]


@cache
def settling_audit_tool() -> dict[str, Any]:
    """Return `audit` for a run with changes of unknown outcome, which it may settle; the same object each time."""
    tool: dict[str, Any] = copy.deepcopy(_ALL["audit"])
    row = {
        "change": {**_TEXT, "description": "its id"},
        "happened": {"type": "boolean"},
        "by": {**_TEXTS, "description": "ids of what was observed after it"},
    }
    tool["function"]["parameters"]["properties"]["settled"] = {
        "type": "array",
        "description": "of changes with an unknown outcome: those of which a later observation shows whether they took "
        "effect",
        "items": {"type": "object", "properties": row, "required": ["change", "happened", "by"]},
    }
    return tool


@cache
def answering_finish_tool() -> dict[str, Any]:
    """Return `finish_step` for a step whose result is the answer: with its language; the same object each time."""
    tool: dict[str, Any] = copy.deepcopy(_ALL["finish_step"])
    tool["function"]["parameters"]["properties"]["language"] = _LANGUAGE
    return tool


@cache
def plain_deliver_tool() -> dict[str, Any]:
    """Return `deliver` for a plan without criteria of its own; the same object each time."""
    tool: dict[str, Any] = copy.deepcopy(_ALL["deliver"])
    del tool["function"]["parameters"]["properties"]["goal_check"]
    return tool


@cache
def plan_tool(*unused: str) -> dict[str, Any]:
    """Return `submit_plan` without the fields that do not apply; the same object each time."""
    tool: dict[str, Any] = copy.deepcopy(_ALL["submit_plan"])
    fields = tool["function"]["parameters"]["properties"]
    for name in unused:
        fields.pop(name, None)
        fields["steps"]["items"]["properties"].pop(name, None)
    return tool


@cache
def arguments_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of everything that is read from a control tool's arguments; models are shown less."""
    schema: dict[str, Any] = copy.deepcopy(_ALL[name]["function"]["parameters"])
    properties = schema["properties"]
    if name == "ask_user":
        properties["reason"] = _TEXT
    if name == "recall":
        properties["offset"]["minimum"] = 0
    if "evidence" in properties:
        properties["evidence"] = _evidence(**_CITED)
    if "goal_check" in properties:
        properties["goal_check"] = copy.deepcopy(_GOAL_CHECK)
        properties["goal_check"]["items"]["properties"]["note"] = _TEXT
    if name == "finish_task":
        properties["unchanged"] = _TEXT
    return schema
