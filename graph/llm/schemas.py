"""Make the schemas of tools fit for the provider that is sent them, so that one odd tool does not disable all others.

Each provider takes another part of JSON Schema, and refuses the whole request for one tool. What it does not take is
left out of what it is shown and said in the description; calls are checked against the tool's own schema all the same.
Names that it does not take are replaced, and put back in the calls.
"""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage

from donewhen.state.pattern import pattern

Schema = dict[str, Any]


@dataclass(frozen=True)
class Dialect:
    """What a provider takes, beyond what every provider here is sent: arrays with `items`, plain objects at the top."""

    tools: re.Pattern[str]
    """Names of tools."""
    keys: re.Pattern[str] | None = None
    """Names of properties; None: any."""
    typed: bool = False
    """True if every schema has to have one type, only texts in enums, no references, and few other keywords."""
    chars: int | None = None
    """The most characters of a tool's description; None: any number."""
    most: int | None = 128
    """The most tools of one request; None: any number. A server that takes fewer says so, and that is remembered."""


_PLAIN, _LETTER_FIRST = pattern(r"[A-Za-z0-9_-]{1,64}"), pattern(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_SHORT_KEYS = pattern(r"[A-Za-z0-9_.-]{1,64}")
OPENAI = Dialect(_PLAIN)
"""Also for every provider that is not in the table."""
CLAUDE = Dialect(_PLAIN, keys=_SHORT_KEYS, most=None)
GEMINI = Dialect(_LETTER_FIRST, typed=True)
STRICTEST = Dialect(_LETTER_FIRST, keys=_SHORT_KEYS, typed=True, chars=1_000)
"""For a server that refused a schema in the dialect that it should know."""
_DIALECTS = {
    "ChatAnthropic": CLAUDE,
    "ChatAnthropicVertex": CLAUDE,
    "ChatBedrock": CLAUDE,
    "ChatBedrockConverse": CLAUDE,
    "ChatGoogleGenerativeAI": GEMINI,
    "ChatVertexAI": GEMINI,
}
"""By LangChain class, subclasses included."""
_BEHIND_GATEWAYS = {"anthropic/": CLAUDE, "claude": CLAUDE, "google/": GEMINI, "gemini": GEMINI}
"""By a part of the model's name: gateways of OpenAI's protocol hand the schemas on."""
_TYPED_KEYWORDS = (
    "type", "description", "enum", "items", "properties", "required", "minimum", "maximum", "minItems", "maxItems",
    "minLength", "maxLength", "pattern", "default",
)  # fmt: skip
_COMBINED = ("allOf", "anyOf", "oneOf")
_NOT_AT_TOP = (*_COMBINED, "not", "enum", "const", "if", "then", "else")
_LISTS = (*_COMBINED, "prefixItems")
_MAPPINGS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_SINGLE = ("items", "contains", "not", "if", "then", "else", "propertyNames", "additionalProperties")
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_NOTE_CHARS = 1_000
"""The most characters of a schema's part that a description has instead."""


def dialect_of(model: BaseChatModel, name: str) -> Dialect:
    """Return what the provider of a model takes; `name` is the model's."""
    own_dialects = (_DIALECTS[each.__name__] for each in type(model).__mro__ if each.__name__ in _DIALECTS)
    behind = (dialect for part, dialect in _BEHIND_GATEWAYS.items() if part in name.lower())
    return next(own_dialects, None) or next(behind, OPENAI)


@dataclass(frozen=True)
class Renamed:
    """The names that a provider is shown in place of others."""

    tools: Mapping[str, str] = field(default_factory=dict)
    """The tool's own name by the one that is shown."""
    keys: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The same for properties, by the tool's own name. A shown name ends in a hash, so it can mean nothing else."""

    def put_back(self, message: AIMessage) -> AIMessage:
        """Return a reply whose calls have the tools' own names."""
        if not (self.tools or self.keys):
            return message
        calls = []
        for call in message.tool_calls:
            name = self.tools.get(call["name"], call["name"])
            calls.append({**call, "name": name, "args": _rename_keys(call["args"], self.keys.get(name, {}))})
        broken = [{**c, "name": self.tools.get(c["name"] or "", c["name"])} for c in message.invalid_tool_calls]
        return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": broken})

    def show(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return the messages with the names that the provider is shown in their calls."""
        if not (self.tools or self.keys):
            return list(messages)
        tools = {own: shown for shown, own in self.tools.items()}
        keys = {tool: {own: shown for shown, own in names.items()} for tool, names in self.keys.items()}
        sent = list(messages)
        for place, message in enumerate(messages):
            if isinstance(message, AIMessage) and any(c["name"] in {*tools, *keys} for c in message.tool_calls):
                calls = [
                    {
                        **c,
                        "name": tools.get(c["name"], c["name"]),
                        "args": _rename_keys(c["args"], keys.get(c["name"], {})),
                    }
                    for c in message.tool_calls
                ]
                sent[place] = message.model_copy(update={"tool_calls": calls})
        return sent


def _rename_keys(value: Any, names: Mapping[str, str]) -> Any:
    if not names:
        return value
    if isinstance(value, list):
        return [_rename_keys(each, names) for each in value]
    if isinstance(value, dict):
        return {names.get(key, key): _rename_keys(each, names) for key, each in value.items()}
    return value


def fit_tools(tools: Sequence[Mapping[str, Any]], dialect: Dialect) -> tuple[list[dict[str, Any]], Renamed]:
    """Return the definitions of tools as the provider takes them, and the names that changed."""
    fitted, names, keys = list[dict[str, Any]](), dict[str, str](), dict[str, Mapping[str, str]]()
    taken = {tool["function"]["name"] for tool in tools}
    for tool in tools:
        function = tool["function"]
        own = shown = function["name"]
        if not dialect.tools.fullmatch(own):
            shown = _other_name(own, taken, start="t_")
            taken.add(shown)
            names[shown] = own
        fitting = _Fitting(dialect, function.get("parameters") or {})
        parameters = fitting.top()
        described = "\n".join([str(function.get("description") or own), *fitting.notes])
        changed = {"name": shown, "description": described[: dialect.chars], "parameters": parameters}
        fitted.append({**tool, "function": {**function, **changed}})
        if fitting.keys:
            keys[own] = fitting.keys
    return fitted, Renamed(names, keys)


def _other_name(name: str, taken: Any, start: str = "") -> str:
    """Return a name of letters, digits and underscores that nothing else has."""
    plain = start + re.sub(r"[^A-Za-z0-9_]+", "_", name)[:40].strip("_")
    digest, size = sha256(name.encode()).hexdigest(), 6
    while (made := f"{plain}_{digest[:size]}".lstrip("_")) in taken:
        size += 2
    return made


class _Fitting:
    """The change of one tool's schema."""

    def __init__(self, dialect: Dialect, schema: Schema) -> None:
        self._dialect, self._root = dialect, copy.deepcopy(schema)
        self._shown: dict[str, str] = {}
        self.notes: list[str] = []
        """What the description says instead of the top of the schema."""

    @property
    def keys(self) -> dict[str, str]:
        """The properties' own names by those that are shown."""
        return {shown: own for own, shown in self._shown.items() if shown != own}

    def top(self) -> Schema:
        """Return the schema of the arguments."""
        plain = self._merge(self._root, ())
        lost = {key: self._root[key] for key in _NOT_AT_TOP if key in self._root}
        if lost and len(text := json.dumps(lost, ensure_ascii=False)) <= _NOTE_CHARS:
            self.notes.append(f"The arguments also have to fit: {text}")
        for name in plain.get("required", ()):
            plain["properties"].setdefault(name, {})
        fitted: Schema = self._fit(plain)
        if self._dialect.typed and not fitted.get("properties"):
            fitted = {"type": "object", "additionalProperties": True}
        return fitted

    def _merge(self, node: Schema, within: tuple[str, ...]) -> Schema:
        """Return the schema of an object without combinations: all properties of its parts.

        A property is required if every alternative, or any part of `allOf`, requires it.
        """
        plain = {key: value for key, value in node.items() if key not in (*_NOT_AT_TOP, "$ref")}
        properties, required = dict(node.get("properties") or {}), list(node.get("required") or ())
        reference = node.get("$ref")
        parts = {key: [each for each in node.get(key) or () if isinstance(each, dict)] for key in _COMBINED}
        if isinstance(reference, str) and reference not in within:
            parts["allOf"] = [*parts["allOf"], _part_at(reference, self._root)]
            within = (*within, reference)
        for kind, each in parts.items():
            merged = [self._merge(part, within) for part in each]
            for part in merged:
                for name, schema in part["properties"].items():
                    before = properties.get(name)
                    same = before is None or before == schema
                    properties[name] = schema if same else {"anyOf": [before, schema]}
            wanted = [set(part.get("required", ())) for part in merged] or [set()]
            shared = set.union(*wanted) if kind == "allOf" else set.intersection(*wanted)
            required += sorted(shared.difference(required))
        needs = {"required": required} if required or "required" in node else {}
        return {**plain, "type": "object", "properties": properties, **needs}

    def _key(self, name: str) -> str:
        if name not in self._shown:
            legal = self._dialect.keys is None or self._dialect.keys.fullmatch(name)
            self._shown[name] = name if legal else _other_name(name, {*self._shown, *self._shown.values()})
        return self._shown[name]

    def _fit(self, node: Any) -> Schema:
        """Return a schema as the provider takes it."""
        if not isinstance(node, Mapping):
            return self._typed({}) if self._dialect.typed else {}
        shown: Schema = {}
        for key, value in node.items():
            if key in _MAPPINGS and isinstance(value, Mapping):
                named = {self._key(name) if key == "properties" else name: each for name, each in value.items()}
                shown[key] = {name: self._fit(each) for name, each in named.items() if each is not False}
            elif key in _LISTS and isinstance(value, list):
                shown[key] = [self._fit(each) for each in value if each is not False]
            elif key == "items" and isinstance(value, list):  # a tuple, as drafts before 2020-12 write it
                shown["prefixItems"] = [self._fit(each) for each in value]
            elif key in ("items", *_SINGLE) and not isinstance(value, bool):
                shown[key] = self._fit(value)
            else:
                shown[key] = copy.deepcopy(value)
        if isinstance(node.get("properties"), Mapping):
            for own in node["properties"]:
                if (name := self._key(own)) != own and name in shown["properties"]:
                    _say(shown["properties"][name], f"(its name is {json.dumps(own, ensure_ascii=False)})")
            if "required" in shown:
                shown_names = [self._key(name) for name in shown["required"]]
                shown["required"] = [name for name in shown_names if name in shown["properties"]]
        self._mend(shown)
        return self._typed(shown) if self._dialect.typed else shown

    def _mend(self, shown: Schema) -> None:
        """Change in place what some provider refuses everywhere."""
        for key, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(shown.get(key), bool):  # as draft 4 has it
                exclusive = shown.pop(key)
                if exclusive and bound in shown:
                    shown[key] = shown.pop(bound)
        if shown.get("enum") == []:
            del shown["enum"]
        if isinstance(first := shown.pop("prefixItems", None), list):
            different = [each for number, each in enumerate(first) if each not in first[:number]]
            shown["items"] = different[0] if len(different) == 1 else {"anyOf": different} if different else {}
            if len(different) > 1:
                _say(shown, f"In this order: {json.dumps(first, ensure_ascii=False)[:_NOTE_CHARS]}")
        kinds = shown.get("type")
        if (kinds == "array" or (isinstance(kinds, list) and "array" in kinds)) and not isinstance(
            shown.get("items"), dict
        ):
            shown["items"] = self._typed({}) if self._dialect.typed else {}

    def _typed(self, shown: Schema) -> Schema:
        """Return a schema with one type, or with alternatives that have one each."""
        if isinstance(reference := shown.get("$ref"), str):  # it refers to itself, or it would have been inlined
            return {"type": "object", "additionalProperties": True, "description": f"as in {reference}"}
        about = {"description": shown["description"]} if "description" in shown else {}
        if isinstance(parts := shown.get("allOf"), list):
            joined = {key: value for part in [*parts, shown] for key, value in part.items() if key != "allOf"}
            return self._typed(joined)
        if alternatives := shown.get("anyOf") or shown.get("oneOf"):
            return {**about, "anyOf": alternatives}
        kinds = shown.get("type")
        if isinstance(kinds, list):
            each = [self._typed({**_of_type(shown, kind), "type": kind}) for kind in kinds]
            return {**about, "anyOf": each} if len(each) > 1 else {**each[0], **about}
        values = [shown["const"]] if "const" in shown else shown.get("enum") or []
        types = {_TYPES.get(type(value), "string") for value in values}
        guess = "object" if "properties" in shown else "array" if "items" in shown else ""
        kind = kinds or guess or (types.pop() if len(types) == 1 else "string")
        typed = {key: shown[key] for key in _TYPED_KEYWORDS if key in shown and key != "enum"} | {"type": kind}
        if values and kind == "string" and all(isinstance(value, str) and value for value in values):
            typed["enum"] = list(values)
        elif values:
            _say(typed, f"One of {json.dumps(values, ensure_ascii=False)[1:-1]}.")
        if kind == "object" and not typed.get("properties"):
            typed = {**about, "type": "object", "additionalProperties": True}
        if kind == "array" and not isinstance(typed.get("items"), dict):
            typed["items"] = {"type": "string"}
        if "properties" not in typed:
            typed.pop("required", None)
        return typed


_BELONGS = {"array": ("items", "minItems", "maxItems"), "object": ("properties", "required", "additionalProperties")}


def _of_type(shown: Schema, kind: str) -> Schema:
    """Return the part of a schema of several types that is about one of them, without its description."""
    others = {key for each, keys in _BELONGS.items() if each != kind for key in keys}
    return {key: value for key, value in shown.items() if key not in {*others, "description"}}


def _part_at(reference: str, root: Schema) -> Schema:
    """Return the part of a schema at a pointer, as tools that refer to themselves have it; empty if there is none."""
    part: Any = root
    for name in reference.removeprefix("#/").split("/"):
        part = part.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(part, Mapping) else None
    return part if isinstance(part, dict) else {}


def _say(shown: Schema, text: str) -> None:
    shown["description"] = f"{shown['description']} {text}" if shown.get("description") else text
