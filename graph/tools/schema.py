"""JSON Schemas of tools: the form shown to models, and the stricter form that checks their calls."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.pydantic import model_json_schema

Schema = dict[str, Any]

LARGEST = 200_000
"""The most characters of a schema; a larger one fits into no model's context."""
MOST_PROBLEMS = 10
"""The most problems of a call's arguments that a model is told."""
RUNTIME_ARGUMENT = "idempotency_key"
"""The argument that the runtime fills; models do not see it."""

_IN_PLACE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas")
_WITHIN = ("properties", "patternProperties", "additionalProperties", "unevaluatedProperties")
_ITEMS = ("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains")
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_SAYS_MORE = ("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames")
_MOST_NODES = 3_000


def parameters_of(tool: BaseTool) -> Schema:
    """Return the JSON Schema of the arguments for models: plain JSON, without injected arguments.

    Raises ValueError with the reason if the schema cannot be used.
    """
    raw: Any = tool.args_schema if isinstance(tool.args_schema, dict) else _schema_of_model(tool)
    try:
        text = json.dumps(raw, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"its schema is not plain JSON ({error})") from error
    if len(text) > LARGEST:
        raise ValueError(f"its schema has {len(text):,} characters; {LARGEST:,} are the most")
    schema: Schema = json.loads(text)
    if schema.setdefault("type", "object") != "object" or not isinstance(schema.setdefault("properties", {}), dict):
        raise ValueError("its schema must describe an object whose properties are the arguments")
    schema.pop("title", None)
    schema.pop("description", None)
    if isinstance(tool.args_schema, dict):
        check_schema(schema)
    schema["properties"].pop(RUNTIME_ARGUMENT, None)
    if RUNTIME_ARGUMENT in schema.get("required", ()):
        schema["required"].remove(RUNTIME_ARGUMENT)
    return schema


def _schema_of_model(tool: BaseTool) -> Any:
    try:
        model: Any = tool.tool_call_schema
        return model_json_schema(model)
    except Exception as error:  # Pydantic raises many errors for types without a schema
        reason = str(error).partition("\n")[0]
        raise ValueError(f"its arguments have no JSON Schema ({reason})") from error


_SIMPLE: Mapping[str, Callable[[Any], bool]] = {
    "type": ("string", "integer", "number", "boolean", "array", "object", "null").__contains__,
    "title": lambda text: isinstance(text, str),
    "description": lambda text: isinstance(text, str),
    "default": lambda _: True,
    "enum": lambda values: isinstance(values, list),
    "required": lambda names: isinstance(names, list) and all(isinstance(name, str) for name in names),
    "properties": lambda schemas: isinstance(schemas, dict) and all(map(_is_simple, schemas.values())),
    "items": lambda schema: _is_simple(schema),
    "additionalProperties": lambda schema: isinstance(schema, bool) or _is_simple(schema),
}
"""The keywords of most tools' schemas, with the types of their values."""


def _is_simple(schema: Any) -> bool:
    """Return whether a JSON Schema is sound, and so simple that this can be seen without a library."""
    return isinstance(schema, dict) and all(key in _SIMPLE and _SIMPLE[key](value) for key, value in schema.items())


def check_schema(schema: Schema) -> None:
    """Raise ValueError, with the place, for an invalid JSON Schema."""
    try:
        if not _is_simple(schema):
            _check_by_library(schema)
    except RecursionError as error:
        raise ValueError("its schema is nested too deeply") from error


def _check_by_library(schema: Schema) -> None:
    # Imported here: it takes 30 ms.
    from jsonschema import Draft202012Validator, FormatChecker, SchemaError
    from jsonschema.validators import validator_for

    try:
        dialect: Any = validator_for(schema, default=Draft202012Validator)
        dialect.check_schema(schema, format_checker=FormatChecker(formats=()))  # patterns may be of another dialect
    except SchemaError as error:
        at = "/".join(str(part) for part in error.absolute_path) or "the top"
        raise ValueError(f"its schema is no JSON Schema: at {at}: {error.message[:200]}") from error


def close_schema(schema: Schema) -> Schema:
    """Return the schema with all objects that list properties closed, unless they say what else they accept.

    Alternatives and compositions are closed as a whole: a key is known if any part knows it. Raises ValueError for a
    reference that leads out of the schema.
    """
    schema = json.loads(json.dumps(schema))
    places = list(_places(schema))
    shared = {id(part) for _, parts in places for part, whole in parts if not whole}
    for node, parts in places:
        if id(node) not in shared or node is schema:
            _close(node, [part for part, _ in parts], top=node is schema)
    return schema


def _places(schema: Schema) -> Iterator[tuple[Schema, list[tuple[Schema, bool]]]]:
    """Yield every subschema that describes a whole value, with its parts."""
    stack: list[Any] = [schema]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if not isinstance(node, dict) or id(node) in seen:
            continue
        seen.add(id(node))
        parts = _parts(node, schema)
        for part, _ in parts:
            for key in (*_WITHIN, *_ITEMS):
                stack.extend(_below(part, key))
        yield node, parts


def _below(node: Schema, key: str) -> list[Any]:
    value = node.get(key)
    if isinstance(value, list):
        return value
    if key in _NAMED:
        return list(value.values()) if isinstance(value, dict) else []
    return [value]


def _parts(node: Schema, root: Schema) -> list[tuple[Schema, bool]]:
    """Return the schemas that describe the same value as `node`; True if one describes it all by itself."""
    stack: list[tuple[Any, bool]] = [(node, True)]
    parts: dict[int, tuple[Schema, bool]] = {}
    while stack:
        part, whole = stack.pop()
        if not isinstance(part, dict):
            continue
        before = parts.get(id(part))
        if before and (before[1] == whole or whole):
            continue
        parts[id(part)] = (part, whole)
        whole = whole and not any(key in part for key in ("properties", "allOf", "if", "dependentSchemas"))
        stack.extend((below, whole) for key in _IN_PLACE for below in _below(part, key))
        if isinstance(reference := part.get("$ref"), str):
            stack.append((resolve(reference, root), whole))
    return list(parts.values())


def resolve(reference: str, root: Schema) -> Any:
    """Return the part of a schema that an internal reference names. Raises ValueError if there is none."""
    from referencing import Registry  # expensive, so only if there are references
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    try:
        return Registry().with_resource("", DRAFT202012.create_resource(root)).resolver().lookup(reference).contents
    except Unresolvable:
        raise ValueError(f"its schema refers to {reference[:100]!r}, which is not inside it") from None


def _close(node: Schema, parts: list[Schema], *, top: bool) -> None:
    properties: Schema = {name: {} for part in parts for name in part.get("properties", {})}
    if not (properties or top) or any(key in part for part in parts for key in _SAYS_MORE):
        return
    if any(_takes_any_object(part) for part in parts if part is not node):
        return
    if "$ref" in node:  # older drafts ignore everything beside a reference
        node["allOf"] = [*node.get("allOf", ()), {"$ref": node.pop("$ref")}]
    node["properties"] = {**properties, **node.get("properties", {})}
    node["additionalProperties"] = False


def _takes_any_object(part: Schema) -> bool:
    kinds = part.get("type")
    says_object = kinds == "object" or (isinstance(kinds, list) and "object" in kinds)
    return says_object and "properties" not in part and not any(key in part for key in (*_IN_PLACE, "$ref"))


def schema_for_model(schema: Schema) -> Schema:
    """Return the schema for models: references inlined, generated titles removed, and optional arguments without null.

    A recursive or very large schema keeps its references.
    """
    try:
        plain = _inline(schema, schema, (), [_MOST_NODES])
    except (RecursionError, OverflowError):
        return schema
    return {key: value for key, value in plain.items() if key not in ("$defs", "definitions", "$schema")}


def _inline(node: Any, root: Schema, within: tuple[str, ...], left: list[int]) -> Any:
    if not isinstance(node, dict):
        return node
    left[0] -= 1
    if left[0] < 0 or len(within) > 50:
        raise OverflowError
    reference = node.get("$ref")
    if isinstance(reference, str):
        if reference in within:
            raise OverflowError
        target = _inline(resolve(reference, root), root, (*within, reference), left)
        rest = _inline({key: value for key, value in node.items() if key != "$ref"}, root, within, left)
        return {**target, **rest} if isinstance(target, dict) else rest
    shown: Schema = {}
    for key, value in node.items():
        if (key == "title" and isinstance(value, str)) or (node is root and key in ("$defs", "definitions")):
            continue
        if key in _NAMED and isinstance(value, dict):
            shown[key] = {name: _inline(below, root, within, left) for name, below in value.items()}
            if key == "properties":
                needed = node.get("required") or ()
                shown[key] = {n: below if n in needed else _without_null(below) for n, below in shown[key].items()}
        elif key in (*_IN_PLACE, *_ITEMS, *_WITHIN, "not") and isinstance(value, list):
            shown[key] = [_inline(below, root, within, left) for below in value]
        elif key in (*_IN_PLACE, *_ITEMS, *_WITHIN, "not"):
            shown[key] = _inline(value, root, within, left)
        else:
            shown[key] = value
    return shown


def _without_null(shown: Any) -> Any:
    """Return the schema of an optional argument without null, if null is its default and so means leaving it out."""
    if not isinstance(shown, dict) or shown.get("default", 0) is not None:
        return shown
    rest = {key: value for key, value in shown.items() if key != "default"}
    if isinstance(kinds := rest.get("type"), list) and len(others := [kind for kind in kinds if kind != "null"]) == 1:
        return {**rest, "type": others[0]}
    others = [each for each in rest.get("anyOf") or () if each != {"type": "null"}]
    if len(others) != 1 or not isinstance(others[0], dict):
        return rest
    return {**others[0], **{key: value for key, value in rest.items() if key != "anyOf"}}
