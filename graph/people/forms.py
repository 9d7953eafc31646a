"""The fields of a form as people are shown them, read from its JSON Schema.

`graph/executors/relay.py` reads and checks what they fill in.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from donewhen.graph.executors.relay import read_form
from donewhen.graph.tools.schema import resolve
from donewhen.state.people.answers import Answer
from donewhen.state.run import Json

FieldKind = Literal["text", "integer", "number", "boolean", "choice", "choices", "json"]
DEEPEST = 8
"""References and alternatives that are followed for one field."""
LIMITS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "format")


class Option(TypedDict):
    """One of the values to choose from, and how it is called."""

    value: Any
    label: str


class FormField(TypedDict):
    """One field of a form."""

    name: str
    kind: FieldKind
    title: str
    about: str
    required: bool
    options: list[Option]
    limits: Json
    """The schema's own limits on the value, such as `minimum`."""
    default: NotRequired[Any]


def form_fields(schema: Mapping[str, Any]) -> list[FormField]:
    """Return the fields of a form in their order."""
    required = schema.get("required") or ()
    return [_field(name, field, name in required, schema) for name, field in schema["properties"].items()]


def field_problem(schema: Mapping[str, Any], name: str, value: Any) -> str:
    """Return what is wrong with a value for one field; "" if it fits."""
    required = [each for each in schema.get("required") or () if each == name]
    alone = {**schema, "properties": {name: schema["properties"][name]}, "required": required}
    found = read_form({} if value is None else {name: value}, {"schema": alone})
    return found if isinstance(found, str) else ""


def filled_lines(answer: Answer | Mapping[str, Any]) -> str:
    """Return a filled form as people read it: a line for each field."""
    filled = answer if isinstance(answer, Mapping) else answer.arguments or {}
    return "\n".join(f"{name}: {_said(value)}" for name, value in filled.items())


def _said(value: Any) -> str:
    return ", ".join(map(_said, value)) if isinstance(value, list) else str(value)


def _field(name: str, given: Mapping[str, Any], required: bool, root: Mapping[str, Any]) -> FormField:
    field = _plain(given, root)
    items = _plain(field.get("items") or {}, root) if field.get("type") == "array" else {}
    options = _options(items) or _options(field)
    made: FormField = {
        "name": name,
        "kind": _kind(field, bool(_options(items)), bool(options)),
        "title": str(field.get("title") or name),
        "about": " ".join(str(field.get("description") or "").split()),
        "required": required and "default" not in field,
        "options": options,
        "limits": {key: field[key] for key in LIMITS if key in field},
    }
    return {**made, "default": field["default"]} if field.get("default") is not None else made


def _kind(field: Mapping[str, Any], several: bool, chosen: bool) -> FieldKind:
    if chosen:
        return "choices" if several else "choice"
    kinds: dict[Any, FieldKind] = {"string": "text", "boolean": "boolean", "integer": "integer", "number": "number"}
    kind = field.get("type")
    return kinds.get(kind, "json") if isinstance(kind, str) else "json"


def _plain(field: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field without references, and without the alternative that it is null."""
    plain = dict(field)
    for _ in range(DEEPEST):
        branches = [
            each for each in plain.get("anyOf") or () if isinstance(each, Mapping) and each.get("type") != "null"
        ]
        more: Any = branches[0] if len(branches) == 1 else None
        if isinstance(reference := plain.get("$ref"), str):
            with suppress(ValueError):
                more = resolve(reference, dict(root))
        if not isinstance(more, Mapping):
            break
        plain = {**more, **{name: value for name, value in plain.items() if name not in ("$ref", "anyOf")}}
    return plain


def _options(field: Mapping[str, Any]) -> list[Option]:
    if isinstance(values := field.get("enum"), list):
        names = field.get("enumNames")
        labels = names if isinstance(names, list) and len(names) == len(values) else values
        return [{"value": value, "label": str(label)} for value, label in zip(values, labels, strict=True)]
    branches = field.get("oneOf") or field.get("anyOf") or ()
    if branches and all(isinstance(each, Mapping) and "const" in each for each in branches):
        return [{"value": each["const"], "label": str(each.get("title") or each["const"])} for each in branches]
    return []
