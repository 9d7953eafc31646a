"""Reads a value as a JSON Schema wants it, where nothing is lost by that: "71" as the integer 71, one as a list of one.

What would need a guess ("7.5" for an integer, "yes" for a boolean) stays as it is, and the check refuses it.
"""

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from donewhen.graph.tools.schemas import Schema, resolve

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})", re.ASCII)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?", re.ASCII)
_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "null": (type(None),),
    "integer": (int,), "number": (int, float),
}  # fmt: skip
Fits = Callable[[Schema, Any], bool]


def lossless(value: Any, schema: Any, root: Schema, fits: Fits) -> Any:
    """The value in the form of the schema. `root` resolves references, `fits` says whether a value is valid.

    Strings become numbers, booleans, lists and objects; 71.0 becomes 71; a whole number becomes a text; what belongs
    into a list becomes a list of one; null for an optional argument that takes no null is left out. Nothing is
    changed in place.
    """
    if not isinstance(schema, dict):
        return value
    for part in _all_of(schema, root):
        value = lossless(value, part, root, fits)
    for branches in (schema.get("anyOf"), schema.get("oneOf")):
        value = _any_of(value, branches or (), root, fits)
    value = _as_kind(value, schema, root)
    if isinstance(value, dict):
        return _object(value, schema, root, fits)
    if isinstance(value, list) and (items := schema.get("items")):
        return [lossless(item, items, root, fits) for item in value]
    return value


def _all_of(schema: Schema, root: Schema) -> Iterator[Any]:
    if isinstance(reference := schema.get("$ref"), str):
        yield resolve(reference, root)
    yield from schema.get("allOf") or ()


def _any_of(value: Any, branches: Any, root: Schema, fits: Fits) -> Any:
    """As the branch it fits, else as the first branch that it can be made to fit."""
    if (found := next((branch for branch in branches if fits(branch, value)), None)) is not None:
        return lossless(value, found, root, fits)
    for branch in branches:
        read = lossless(value, branch, root, fits)
        if fits(branch, read):
            return read
    return value


def _object(value: dict[str, Any], schema: Schema, root: Schema, fits: Fits) -> dict[str, Any]:
    known, required = schema.get("properties") or {}, schema.get("required") or ()
    read = {}
    for name, item in value.items():
        rule: Any = known.get(name, schema.get("additionalProperties"))
        if item is None and name in known and name not in required and not fits(rule, None):
            continue
        read[name] = lossless(item, rule, root, fits)
    return read


def _as_kind(value: Any, schema: Schema, root: Schema) -> Any:
    kinds = schema.get("type") or ()
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if _is_of(value, kind):
            return value
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        read = _of_one(value, schema, root) if kind == "array" and not _is_json(value, list) else _read(value, kind)
        if read is not value:
            return read
    return value


def _is_of(value: Any, kind: str) -> bool:
    return isinstance(value, _KINDS.get(kind, ())) and (kind == "boolean" or not isinstance(value, bool))


def _read(value: Any, kind: str) -> Any:
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind == "string" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        return value
    text = value.strip()
    if kind == "integer" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "number" and _NUMBER.fullmatch(text):
        number = json.loads(text)
        return number if Decimal(text) == Decimal(str(number)) else value
    if kind == "boolean" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind in ("array", "object") and _is_json(text, *_KINDS[kind]):
        return json.loads(text)
    return value


def _is_json(text: Any, kind: type) -> bool:
    if not isinstance(text, str) or not text.strip().startswith(("[", "{")):
        return False
    try:
        return isinstance(json.loads(text), kind)
    except (ValueError, RecursionError):
        return False


def _of_one(value: Any, schema: Schema, root: Schema) -> Any:
    """A list of one, if a list may hold the value."""
    items = schema.get("items")
    read = _as_kind(value, items, root) if isinstance(items, dict) else value
    kinds = set(_kinds(items, root))
    return [read] if kinds and any(_is_of(read, kind) for kind in kinds) else value


def _kinds(schema: Any, root: Schema, depth: int = 0) -> Iterator[str]:
    """The types that a value may have, as far as the schema names them."""
    if not isinstance(schema, dict) or depth > 8:
        return
    kinds = schema.get("type") or ()
    yield from [kinds] if isinstance(kinds, str) else kinds
    for part in (*_all_of(schema, root), *(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())):
        yield from _kinds(part, root, depth + 1)
