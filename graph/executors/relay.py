"""Turn interrupts of a sub-agent or a tool into questions and approvals of the run, and answers into resume values.

An interrupt's value may be a text, a mapping with a question, a request to review calls (`action_requests`), or the
payload of a DoneWhen run. A question with a `schema`, or an interrupt with a `response_schema`, is a form.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Literal, NotRequired

import yaml
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt
from typing_extensions import TypedDict

from donewhen.graph.tools.schema import resolve
from donewhen.state.channels import Json
from donewhen.state.language.short_replies import read_word
from donewhen.state.people.answers import (
    JUDGEMENT,
    Answer,
    AnswerShape,
    decode_json,
    fills_form,
    read_shape,
    scalar_text,
)
from donewhen.state.records import Ask, Call
from donewhen.state.secrets import conceal
from donewhen.state.values import json_problem, map_texts

QUESTION_KEYS = ("question", "message", "query", "text", "prompt", "description")
QUESTION_CHARS = 20_000
FieldKind = Literal["text", "integer", "number", "boolean", "choice", "choices", "json"]
DEEPEST = 8
"""References and alternatives that are followed for one field."""
LIMITS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "format")


def asks_of(pauses: Sequence[tuple[str, Any]]) -> list[Ask]:
    """Return one row per question: `{id, kind, question, options}`; for a call to review `tool` and `arguments` too."""
    return [ask for id, value in pauses for ask in _asks(str(id), value)]


answered_asks: ContextVar[Sequence[Ask]] = ContextVar("answered_asks", default=())
"""The answered questions of the current call, in order. A tool compares its next question with them by `ask_again`."""


def ask_again(number: int, value: Json, schema: Json | None) -> None:
    """Raise GraphInterrupt if question `number`, from 0, differs from the one that was answered in its place.

    It is then asked again, and later answers are dropped. LangGraph's `interrupt` alone would give it the old answer.
    """
    asked = answered_asks.get()
    if number < len(asked) and asked[number].get("digest") != _digest(one := Interrupt(value, response_schema=schema)):
        raise GraphInterrupt((replace(one, id=str(number)),))


def _digest(interrupt: Any) -> str:
    value = interrupt_value(interrupt)
    try:
        asked = json.dumps(value, sort_keys=True, default=str)
    except RecursionError:  # of a schema that nobody can fill: it is asked in words
        asked = str(_asks("", value)[0]["question"])
    return hashlib.sha256(asked.encode()).hexdigest()[:16]


def questions_of(call: Call, interrupts: Sequence[Any]) -> Json:
    """Return the questions and answers of a call whose tool asks: the earlier ones and the new ones."""
    answers, number = [*(call.get("answers") or ())], len(resume_values(call))
    if (first := str(interrupts[0].id)).isdecimal() and len(first) < 5:  # of `ask_again`, which voids later answers
        answers, number = answers[: int(first)], int(first)
    asks = [*(call.get("asks") or ())][: len(answers)]
    for at, one in enumerate(interrupts, number):
        asks += [{**ask, "digest": _digest(one)} for ask in asks_of([(str(at), interrupt_value(one))])]
    return {"asks": asks, "answers": answers}


def asks_in_vain(call: Call, asked: Json) -> bool:
    """Return whether a tool asks its last question again although it was answered with None.

    In a graph within the tool, LangGraph takes None for no answer.
    """
    before, answers = [*(call.get("asks") or ())], [*(call.get("answers") or ())]
    again = asked["asks"][len(asked["answers"]) :]
    return bool(answers and again) and answers[-1] is None and before[-1].get("digest") == again[0].get("digest")


def interrupt_value(interrupt: Any) -> Any:
    """Return what an interrupt asks, with its `response_schema` as the `schema` of a mapping."""
    value, schema = getattr(interrupt, "value", interrupt), getattr(interrupt, "response_schema", None)
    if not isinstance(schema, Mapping):
        return value
    return {**(value if isinstance(value, Mapping) else {"question": value}), "schema": dict(schema)}


def _asks(id: str, value: Any) -> list[Ask]:
    if not isinstance(value, Mapping):
        return [_question(id, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))]
    actions = value.get("action_requests")
    if "kind" not in value and isinstance(actions, list) and actions and all(map(_is_action, actions)):
        return [_review(id, action) for action in actions]
    texts = (value.get(key) for key in QUESTION_KEYS)
    described = next((text for text in texts if isinstance(text, str) and text.strip()), "")
    if isinstance(actions, list) and actions and isinstance(actions[0], Mapping):
        described = str(actions[0].get("description") or described)
        plan = str((actions[0].get("args") or {}).get("plan") or "")
        described = described if plan.strip() in described else f"{described}\n\n{plan}"
    options, schema = value.get("options"), value.get("schema")
    given = [str(each) for each in options] if isinstance(options, list) else []
    question = _question(id, described or json.dumps(dict(value), ensure_ascii=False, default=str), given)
    return [{**question, "schema": dict(schema)} if isinstance(schema, Mapping) and is_form(schema) else question]


def conceal_ask(ask: Ask, secrets: Sequence[str]) -> Ask:
    """Return a question without credentials in its words, options, form and arguments. Keys of a form are kept."""
    shown = {key: ask[key] for key in ("question", "options", "schema", "arguments") if key in ask}
    return {**ask, **map_texts(shown, lambda text: conceal(text, secrets))}


def _is_action(action: Any) -> bool:
    return isinstance(action, Mapping) and isinstance(action.get("name") or action.get("action"), str)


def _question(id: str, text: str, options: Sequence[str] = ()) -> Ask:
    return {"id": id, "kind": "question", "question": text.strip()[:QUESTION_CHARS], "options": list(options)}


def _review(id: str, action: Mapping[str, Any]) -> Ask:
    """Return the approval of a call that the sub-agent wants to make."""
    arguments = action.get("args", action.get("arguments"))
    return {
        "id": id,
        "kind": "tool",
        "question": str(action.get("description") or "")[:QUESTION_CHARS],
        "options": ["approve", "edit", "reject"],
        "tool": str(action.get("name") or action.get("action")),
        "arguments": dict(arguments) if isinstance(arguments, Mapping) else {},
    }


def review_decision(kind: str, text: str, tool: str, arguments: Json | None) -> Json:
    """Return a person's answer to a review in the form that LangChain's agents expect."""
    if kind == "approve":
        return {"type": "approve"}
    if kind == "edit":
        return {"type": "edit", "edited_action": {"name": tool, "args": arguments or {}}}
    return {"type": "respond" if kind == "respond" else "reject", "message": text}


def relayed_answer(calls: Sequence[Call], answer: Any) -> list[Call]:
    """Add an answer for the executor or tool that asked; it gets all of them once every question is answered."""
    first, *rest = calls
    return [{**first, "answers": [*(first.get("answers") or ()), answer]}, *rest]


def resume_values(call: Call) -> dict[str, Any]:
    """Return the value to resume each interrupt with, by interrupt id."""
    values: dict[str, Any] = {}
    for ask, answer in zip(call.get("asks") or (), call.get("answers") or (), strict=False):
        if ask["kind"] == "tool":
            values.setdefault(ask["id"], {"decisions": []})["decisions"].append(answer)
        else:
            values[ask["id"]] = answer
    return values


# Forms: JSON Schemas, their fields as people are shown them, and what people fill in


class Option(TypedDict):
    """One of the values to choose from, with its title."""

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


def is_form(schema: Mapping[str, Any]) -> bool:
    """Return whether a person can be asked to fill it: an object with properties, of a size that can be shown."""
    from jsonschema import Draft202012Validator, SchemaError  # which few runs need

    from donewhen.graph.tools.arguments import Arguments

    properties = schema.get("properties")
    if (
        not isinstance(properties, Mapping)
        or not properties
        or any(not isinstance(field, Mapping) for field in properties.values())
    ):
        return False
    try:
        if json_problem(schema):
            return False
        Draft202012Validator.check_schema(schema)
        Arguments(dict(schema))
        return len(json.dumps(schema)) <= QUESTION_CHARS
    except (TypeError, ValueError, RecursionError, SchemaError):
        return False


def form_fields(schema: Mapping[str, Any]) -> list[FormField]:
    """Return the fields of a form in their order."""
    required = schema.get("required") or ()
    return [_field(name, field, name in required, schema) for name, field in schema["properties"].items()]


def read_form(value: Any, schema: Json, read_answer: Callable[[Any], Answer | str]) -> Answer | str:
    """Return the filled form as `arguments` of an answer, or its problems.

    A form may be an object or JSON, whose values must fit as they are, or typed lines `field: value`; with a single
    field the value alone suffices. Leaving it open, declining and cancelling work as for any other question, which
    `read_answer` reads.
    """
    from donewhen.graph.tools.arguments import Arguments  # imports jsonschema, which few runs need

    if value is None:
        return Answer("declined")
    properties = schema["properties"]
    filled = decode_json(value) if fills_form(value, schema) else _read_other_fields(value)
    if filled is None:
        answer = read_answer(value)
        if isinstance(answer, str) or answer.kind != "answer":
            return answer
        filled = {} if answer.text == JUDGEMENT else _read_lines(answer.text, list(properties))
        if not isinstance(filled, dict):
            return f"write a line for each field, such as {next(iter(properties))}: …; {_say_fields(properties)}"
        filled = coerce_typed(filled, schema)
    check = Arguments(schema)
    defaults = check.coerce_all({name: field["default"] for name, field in properties.items() if "default" in field})
    values = {**defaults, **filled}
    coerced = check.coerce_all(values)  # of which only 5 for 5.0 is taken, and nothing for an optional null
    fields = {
        name: coerced[name] if coerced[name] == item else item for name, item in values.items() if name in coerced
    }
    if problems := check.problems(fields):
        unknown = [name for name in fields if name not in properties]
        if unknown:
            own_fields = {name: item for name, item in fields.items() if name in properties}
            named = ", ".join(name[:60] for name in unknown[:10])
            problems = [f"unknown field {named}; {_say_fields(properties)}", *check.problems(own_fields)]
        return "; ".join(problems)
    return Answer("answer", json.dumps(fields, ensure_ascii=False), arguments=fields)


def _say_fields(properties: Mapping[str, Any]) -> str:
    return f"the fields are {', '.join(properties)}"


def _read_other_fields(value: Any) -> Json | None:
    """Return an object in no shape of an answer: a form with a field that it does not have; None for all else."""
    shape = read_shape(value) if isinstance(decode_json(value), Mapping) else ""
    return shape.fields if isinstance(shape, AnswerShape) and shape.verb == "other" else None


def _brackets_deep(text: str) -> int:
    """Return how deep brackets are nested in a text."""
    steps = (1 if each in "[{" else -1 for each in re.findall(r"[\[\]{}]", text))
    return max(itertools.accumulate(steps), default=0)


def _read_lines(text: str, names: Sequence[str]) -> Json | None:
    """Return the typed text by field, with every value as a text; None if it names no fields."""
    try:  # YAML takes a time for nested brackets that grows with their square
        typed = text if _brackets_deep(text) > DEEPEST else yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError):
        typed = text
    if isinstance(typed, Mapping) and (len(names) > 1 or names[0] in typed):
        return {str(name): value for name, value in typed.items()}
    return {names[0]: text} if len(names) == 1 else None


def coerce_typed(typed: Json, schema: Json) -> Json:
    """Return typed texts by field as the values that they say: 7 for "7", and true or false for a yes or no."""
    from donewhen.graph.tools.arguments import Arguments

    booleans = {field["name"] for field in form_fields(schema) if field["kind"] == "boolean"}
    words = {name: read_word(text) for name, text in typed.items() if name in booleans and isinstance(text, str)}
    read = {name: word == "yes" for name, word in words.items() if word in ("yes", "no")}
    coerced: Json = Arguments(schema).coerce_all({**typed, **read})
    return coerced


def field_problem(schema: Mapping[str, Any], name: str, value: Any) -> str:
    """Return what is wrong with a value for one field; "" if it fits."""
    required = [each for each in schema.get("required") or () if each == name]
    alone = {**schema, "properties": {name: schema["properties"][name]}, "required": required}
    answer = read_form({} if value is None else {name: value}, alone, lambda _: "")
    return answer if isinstance(answer, str) else ""


def filled_lines(answer: Answer | Mapping[str, Any]) -> str:
    """Return a filled form as people read it: a line for each field."""
    filled = answer if isinstance(answer, Mapping) else answer.arguments or {}
    return "\n".join(f"{name}: {_said(value)}" for name, value in filled.items())


def _said(value: Any) -> str:
    return ", ".join(map(_said, value)) if isinstance(value, list) else scalar_text(value) or str(value)


def _field(name: str, declared: Mapping[str, Any], required: bool, root: Mapping[str, Any]) -> FormField:
    field = _plain(declared, root)
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
