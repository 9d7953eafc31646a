"""Adapt the settings to LangGraph Studio: fields at their nodes, prompts in an editor, blanks as unset."""

from collections.abc import Mapping
from typing import Any

NODES: dict[str, tuple[str, ...]] = {
    "receive": ("mode", "executor", "output_schema", "timezone", "deadline"),
    "plan": ("plan_rounds", "max_steps", "max_corrections", "tool_selection", "profile", "language"),
    "confirm": ("confirm",),
    "advance": ("limits", "max_parallel", "on_failure", "on_exhausted", "promote_rounds"),
    "execute": (
        *("profile", "approvals", "verification", "step_limits", "max_refusals", "max_corrections"),
        *("tool_seconds", "observation_chars", "transcript_chars"),
    ),
    "ask_user": ("on_question", "default_answer", "question_seconds"),
    "deliver": ("profile", "language"),
}
"""Node → its settings; settings of all models belong to no node."""
PLACES = ("thread_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map")
"""Some clients (AG-UI) send all of `configurable` as context."""
PROMPTS = ("instructions", "role", "backstory")
"""Texts of the profile that are copied into prompts."""


def with_nodes(schema: dict[str, Any]) -> None:
    """Add each field's nodes to the schema of the settings."""
    for name, field in schema["properties"].items():
        if nodes := [node for node, names in NODES.items() if name in names]:
            field["langgraph_nodes"] = nodes


def with_prompts(schema: dict[str, Any]) -> None:
    """Mark the prompts in the schema of the profile."""
    for name in PROMPTS:
        schema["properties"][name] |= {"langgraph_type": "prompt", "langgraph_nodes": ["plan", "execute", "deliver"]}


def without_blanks(given: Any) -> Any:
    """Return the given fields without empty ones that a form sends, and without LangGraph's own."""
    if not isinstance(given, Mapping):
        return given
    return {key: without_blanks(value) for key, value in given.items() if value != "" and key not in PLACES}
