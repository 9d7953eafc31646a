"""The JSON Schema of decisions that a model prints, for servers that hold replies to one."""

from collections.abc import Mapping, Sequence
from typing import Any

from donewhen.state.reading.decisions import NAMES

MOST_ITEMS, ITEM_CHARS = 12, 400
"""Of a list in a printed decision, and of a text in it."""


def decision_schema(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The JSON Schema of the printed form: one object per tool, `{"action": its name, "arguments": {…}}`."""
    forms, shared = [], dict[str, Any]()
    for tool in tools:
        function = tool["function"]
        parameters = dict(function.get("parameters") or {"type": "object"})
        shared |= parameters.pop("$defs", {})  # references point to the top of the whole
        parameters = _bounded(parameters) if function["name"] in NAMES else parameters
        properties = {"action": {"const": function["name"]}, "arguments": parameters}
        form = {"type": "object", "properties": properties, "required": ["action", "arguments"]}
        forms.append({**form, "additionalProperties": False})
    return {"anyOf": forms, **({"$defs": shared} if shared else {})}


def _bounded(schema: Any, deep: bool = False) -> Any:
    """A schema of ours whose lists, and texts within lists, end: a weak model held to a form goes on in it for ever."""
    if isinstance(schema, list):
        return [_bounded(each, deep) for each in schema]
    if not isinstance(schema, dict):
        return schema
    listed, bounds = schema.get("type") == "array", dict[str, Any]()
    if listed:
        bounds = {"maxItems": MOST_ITEMS}
    elif deep and schema.get("type") == "string":
        bounds = {"maxLength": ITEM_CHARS}
    return {**{key: _bounded(each, deep or listed) for key, each in schema.items()}, **bounds}
