"""Checks a call's arguments against the tool's JSON Schema and says what is wrong, for the model to mend."""

import functools
import itertools
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import regex
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from referencing import Registry

from donewhen.graph.tools.coercion import lossless
from donewhen.graph.tools.schemas import Schema, strict
from donewhen.state.values import similar

SECONDS = 2.0
"""Longest time one check may take; arguments that need longer are refused."""
PATTERN_SECONDS = 0.2
"""Longest time one regular expression may take on one value."""
MOST_PROBLEMS = 10

_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "list", dict: "object"}
_RULES = {
    "const": "exactly {}",
    "minimum": "at least {}", "maximum": "at most {}",
    "exclusiveMinimum": "more than {}", "exclusiveMaximum": "less than {}", "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters", "maxLength": "at most {} characters",
    "minItems": "at least {} items", "maxItems": "at most {} items",
    "pattern": "text that matches {}", "uniqueItems": "no item twice",
    "minProperties": "at least {} keys", "maxProperties": "at most {} keys",
}  # fmt: skip


class Arguments:
    """The compiled check of one tool's arguments. Raises ValueError for a schema that cannot be compiled.

    `closed`: a key that the schema does not name is wrong, unless it says what else it takes.
    """

    def __init__(self, schema: Schema, *, closed: bool = True) -> None:
        base = validators.validator_for(schema, default=Draft202012Validator)
        self._schema = strict(schema) if closed else schema
        self._validator: Validator = checker(base)(self._schema, registry=Registry())

    def read(self, arguments: Any) -> tuple[Any, list[str]]:
        """The arguments as the schema wants them, as far as nothing is lost by that, and what is still wrong."""
        arguments = self.coerced(arguments)
        return arguments, self.problems(arguments)

    def coerced(self, arguments: Any) -> Any:
        """The arguments as the schema wants them, as far as nothing is lost by that; what does not fit stays."""
        try:
            with within(SECONDS):
                return lossless(arguments, self._schema, self._schema, self._fits)
        except Exception:  # a schema may be hostile; the check says what is wrong
            return arguments

    def _fits(self, schema: Schema, value: Any) -> bool:
        return bool(self._validator.evolve(schema=schema).is_valid(value))

    def problems(self, arguments: Any) -> list[str]:
        """What is wrong with the arguments, one line each, at most ten and a count; empty if nothing is."""
        if not isinstance(arguments, dict):
            return [f"the arguments must be a JSON object, got {_shown(arguments)}"]
        try:
            with within(SECONDS):
                errors = itertools.islice(self._validator.iter_errors(arguments), 100)
                lines = list(dict.fromkeys(itertools.chain.from_iterable(_lines(error) for error in errors)))
        except TimeoutError:
            return ["the arguments took too long to check; send fewer or simpler values"]
        except RecursionError:
            return ["the arguments are nested too deeply; send a flatter structure"]
        except Exception as error:  # a schema may be hostile: what cannot be checked is refused
            return [f"the arguments cannot be checked against the tool's schema ({type(error).__name__})"]
        more = len(lines) - MOST_PROBLEMS
        return [*lines[:MOST_PROBLEMS], f"and {more} more problems"] if more > 0 else lines


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """TimeoutError for a `checker` that takes longer inside."""
    token = _deadline.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


@functools.lru_cache
def checker(base: Any) -> Any:
    """A validator class that keeps to the clock, compares in linear time, refuses NaN and slow patterns."""
    ours = {"pattern": _pattern, "patternProperties": _pattern_properties, "uniqueItems": _unique_items}
    ours["additionalProperties"] = _additional_properties
    checks = {keyword: _timed(check) for keyword, check in {**base.VALIDATORS, **ours}.items()}
    types = base.TYPE_CHECKER
    finite = types.redefine("number", lambda _, value: types.is_type(value, "number") and math.isfinite(value))
    extend: Any = validators.extend
    return extend(base, checks, type_checker=finite)


def _timed(check: Callable[..., Any]) -> Callable[..., Iterator[ValidationError]]:
    def timed(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if time.monotonic() > _deadline.get():
            raise TimeoutError
        yield from check(validator, value, instance, schema) or ()

    return timed


@functools.lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> Any:
    try:
        return regex.compile(pattern)
    except regex.error:
        return None  # another dialect of regular expressions: not ours to judge


def _matches(pattern: str, text: str) -> bool:
    compiled = _compiled(pattern)
    return compiled is None or compiled.search(text, timeout=PATTERN_SECONDS) is not None


def _pattern(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _matches(value, instance):
        yield ValidationError(f"{instance[:100]!r} does not match {value[:100]!r}")


def _pattern_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    for pattern, below in value.items() if isinstance(instance, dict) else ():
        for key in instance:
            if _matches(pattern, key):
                yield from validator.descend(instance[key], below, path=key, schema_path=pattern)


def _additional_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    extra = _unknown(instance, schema) if isinstance(instance, dict) else []
    if isinstance(value, dict):
        for key in extra:
            yield from validator.descend(instance[key], value, path=key)
    elif not value and extra:
        yield ValidationError(f"unknown keys: {', '.join(extra[:MOST_PROBLEMS])}")


def _unknown(instance: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    patterns = schema.get("patternProperties", {})
    known = schema.get("properties", {})
    return [key for key in instance if key not in known and not any(_matches(each, key) for each in patterns)]


def _unique_items(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """The check of `uniqueItems` in linear time; that of jsonschema compares objects each with each."""
    if value and isinstance(instance, list):
        seen: set[str] = set()
        for place, item in enumerate(instance):
            seen.add(json.dumps(item, sort_keys=True))
            if len(seen) <= place:
                yield ValidationError(f"item {place} is there twice")
                return


def _lines(error: ValidationError) -> Iterator[str]:
    """One error of the validator in words: where, what is expected, what was given."""
    rule: Any = error.validator
    value: Any = error.validator_value
    given: Any = error.instance
    at = _path(error.absolute_path)
    where = f"{at}: " if at else ""
    schema = error.schema if isinstance(error.schema, dict) else {}
    if rule == "required" and isinstance(given, dict):
        for name in (name for name in value if name not in given):
            yield f"{where}missing required argument {_quoted(name)}{_meaning(schema, name)}"
    elif rule == "additionalProperties" and isinstance(given, dict):
        yield from _unknown_lines(where, given, schema)
    elif rule == "type":
        yield f"{at or 'the arguments'}: expected {_either(value)}, got {_shown(given)}"
    elif rule == "enum":
        allowed = ", ".join(_shown(each, False) for each in value[:30])
        yield f"{where}expected one of {allowed}, got {_shown(given)}"
    elif rule in ("anyOf", "oneOf"):
        yield from _alternatives(error, where)
    elif rule in _RULES:
        yield f"{where}expected {_RULES[rule].format(_shown(value, False))}, got {_shown(given)}"
    else:
        yield f"{where}does not fit the schema's {rule!r}, got {_shown(given)}"


def _unknown_lines(where: str, given: Mapping[str, Any], schema: Schema) -> Iterator[str]:
    known = list(schema.get("properties", {}))
    for name in _unknown(given, schema)[: MOST_PROBLEMS + 1]:
        meant = similar(name, [each for each in known if each not in given])
        if meant:
            hint = f"did you mean {_quoted(meant[0])}?"
        else:
            hint = f"allowed: {', '.join(known[:30])}" if known else "none are allowed"
        yield f"{where}unknown argument {_quoted(name)}; {hint}"


def _alternatives(error: ValidationError, where: str) -> Iterator[str]:
    """If one alternative was clearly meant: what it lacks. Else what the alternatives are."""
    branches: dict[Any, list[ValidationError]] = {}
    for below in error.context or ():
        branches.setdefault(below.relative_schema_path[0], []).append(below)
    if not branches:
        yield f"{where}fits more than one of the alternatives, got {_shown(error.instance)}"
        return
    depth = len(error.absolute_path)
    meant = [each for each in branches.values() if not any(_is_other_kind(below, depth) for below in each)]
    if meant:
        yield from itertools.chain.from_iterable(_lines(below) for below in min(meant, key=len))
        return
    failed = [below for each in branches.values() for below in each]
    kinds: list[Any] = [below.validator_value for below in failed if below.validator == "type"]
    if len(kinds) == len(branches):
        flat = [kind for each in kinds for kind in ([each] if isinstance(each, str) else each)]
        yield f"{where}expected {_either(flat)}, got {_shown(error.instance)}"
        return
    first = [next(_lines(each[0]), "") for each in list(branches.values())[:3]]
    yield f"{where}fits none of the alternatives: {'; or '.join(first)}"


def _is_other_kind(error: ValidationError, depth: int) -> bool:
    at = len(error.absolute_path)
    return (at == depth and error.validator in ("type", "enum")) or (at <= depth + 1 and error.validator == "const")


def _meaning(schema: Schema, name: str) -> str:
    about = schema.get("properties", {}).get(name)
    if not isinstance(about, dict):
        return ""
    said = [_either(about["type"]) if "type" in about else "", str(about.get("description", ""))[:80]]
    return f" ({': '.join(each for each in said if each)})" if any(said) else ""


def _either(kinds: Any) -> str:
    return " or ".join(dict.fromkeys(map(str, kinds))) if isinstance(kinds, list) else str(kinds)


def _path(parts: Iterable[Any]) -> str:
    path = ""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if str(part).isidentifier() else f"[{_quoted(part)}]"
    return path.removeprefix(".")[:200]


def _quoted(text: Any) -> str:
    text = str(text)
    return json.dumps(text if len(text) <= 60 else text[:60] + "…", ensure_ascii=False)


def _shown(value: Any, kind: bool = True) -> str:
    """A value in a few words: scalars as JSON with their type, structures by their size."""
    if value is None:
        return "null"
    name = _TYPES.get(type(value), type(value).__name__)
    if isinstance(value, (list, dict)):
        small = json.dumps(value, ensure_ascii=False, default=str) if len(value) < 10 and not kind else ""
        size = f"{'an object with' if isinstance(value, dict) else 'a list of'} {len(value)}"
        return small if small and len(small) <= 60 else f"{size} {'keys' if isinstance(value, dict) else 'items'}"
    text = _quoted(value) if isinstance(value, str) else json.dumps(value, default=repr)[:60]
    return f"{text} ({name})" if kind else text
