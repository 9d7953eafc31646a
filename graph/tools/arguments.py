"""Coerce a call's arguments to the tool's JSON Schema, and describe what is wrong for the model to correct.

Lossless conversions are made: "71" to the integer 71, a single value to a list. Conversions that would be a guess
("7.5" to an integer, "yes" to a boolean) are refused.
"""

import functools
import itertools
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from typing import Any

import regex
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from referencing import Registry

from donewhen.graph.tools.schema import MOST_PROBLEMS, Schema, close_schema, resolve
from donewhen.state.values import as_whole, similar

SECONDS = 2.0
"""The time limit of one check; arguments that take longer are refused."""
PATTERN_SECONDS = 0.2
"""The time limit of one regular expression on one value."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})", re.ASCII)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?", re.ASCII)
_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "null": (type(None),),
    "integer": (int,), "number": (int, float),
}  # fmt: skip
Fits = Callable[[Schema, Any], bool]

_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)


class Arguments:
    """The compiled check of one tool's arguments. Raises ValueError for a schema that cannot be compiled.

    With `closed`, keys that the schema does not name are errors, unless it says what else it accepts.
    """

    def __init__(self, schema: Schema, *, closed: bool = True) -> None:
        base = validators.validator_for(schema, default=Draft202012Validator)
        self._schema = close_schema(schema) if closed else schema
        self._validator: Validator = validator_class(base, exact=True)(self._schema, registry=Registry())

    def read(self, arguments: Any) -> tuple[Any, list[str]]:
        """Return the arguments and their problems; what does not fit is coerced if nothing is lost by that."""
        if problems := self.problems(arguments):
            arguments = self.coerce_all(arguments)
            problems = self.problems(arguments)
        return arguments, problems

    def coerce_all(self, arguments: Any) -> Any:
        """Return the arguments, coerced where nothing is lost; values that do not fit are kept."""
        try:
            with time_limit(SECONDS):
                if self._validator.is_valid(arguments):
                    return arguments
                return coerce(arguments, self._schema, self._schema, self._fits)
        except Exception:  # the schema may be hostile; `problems` reports it
            return arguments

    def _fits(self, schema: Schema, value: Any) -> bool:
        return bool(self._validator.evolve(schema=schema).is_valid(value))

    def problems(self, arguments: Any) -> list[str]:
        """Return the problems of the arguments, one line each, at most ten and a count."""
        if not isinstance(arguments, dict):
            return [f"the arguments must be a JSON object, not a {type(arguments).__name__}"]
        try:
            with time_limit(SECONDS):
                errors = itertools.islice(self._validator.iter_errors(arguments), 100)
                lines = list(dict.fromkeys(itertools.chain.from_iterable(_lines(error) for error in errors)))
        except TimeoutError:
            return ["the arguments took too long to check; send fewer or simpler values"]
        except RecursionError:
            return ["the arguments are nested too deeply; send a flatter structure"]
        except Exception as error:  # the schema may be hostile, so refuse
            return [f"the arguments cannot be checked against the tool's schema ({type(error).__name__})"]
        more = len(lines) - MOST_PROBLEMS
        return [*lines[:MOST_PROBLEMS], f"and {more} more problems"] if more > 0 else lines


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError from a check inside that takes longer; `validator_class` makes validators that obey."""
    token = _deadline.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


@functools.lru_cache
def validator_class(base: Any, *, exact: bool = False) -> Any:
    """Return a validator class that obeys the time limit, runs in linear time, and refuses NaN and slow patterns.

    With `exact`, 71.0 is no integer, although JSON Schema says so.
    """
    own_checks = {"pattern": _pattern, "patternProperties": _pattern_properties, "uniqueItems": _unique_items}
    own_checks["additionalProperties"] = _additional_properties
    checks = {keyword: _with_deadline(check) for keyword, check in {**base.VALIDATORS, **own_checks}.items()}
    types = base.TYPE_CHECKER
    finite = types.redefine("number", lambda _, value: types.is_type(value, "number") and math.isfinite(value))
    if exact:
        finite = finite.redefine("integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool))
    extend: Any = validators.extend
    return extend(base, checks, type_checker=finite)


def _with_deadline(check: Callable[..., Any]) -> Callable[..., Iterator[ValidationError]]:
    def check_in_time(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if time.monotonic() > _deadline.get():
            raise TimeoutError
        yield from check(validator, value, instance, schema) or ()

    return check_in_time


@functools.lru_cache(maxsize=1_000)
def _compile(pattern: str) -> Any:
    try:
        return regex.compile(pattern)
    except regex.error:
        return None  # another regex dialect


def _matches(pattern: str, text: str) -> bool:
    compiled = _compile(pattern)
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
    properties = schema.get("properties", {})
    return [key for key in instance if key not in properties and not any(_matches(each, key) for each in patterns)]


def _unique_items(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Check `uniqueItems` in linear time; jsonschema's own check is quadratic for objects."""
    if value and isinstance(instance, list):
        seen: set[str] = set()
        for place, item in enumerate(instance):
            seen.add(json.dumps(item, sort_keys=True))
            if len(seen) <= place:
                yield ValidationError(f"item {place} is there twice")
                return


def _lines(error: ValidationError) -> Iterator[str]:
    """Yield the problems with their place: for unknown keys the likely name, otherwise jsonschema's message."""
    where = f"{at}: " if (at := error.json_path.removeprefix("$").removeprefix(".")[:200]) else ""
    instance: Any = error.instance
    if error.validator == "additionalProperties" and isinstance(instance, dict) and isinstance(error.schema, dict):
        names = list(error.schema.get("properties", {}))
        for name in _unknown(instance, error.schema)[: MOST_PROBLEMS + 1]:
            likely = similar(name, [each for each in names if each not in instance])
            hint = f"did you mean {likely[0]!r}?" if likely else f"allowed: {', '.join(names[:30]) or 'none'}"
            yield f"{where}unknown argument {name[:60]!r}; {hint}"
    elif alternative := _intended_errors(error):
        for below in alternative:
            yield from _lines(below)
    elif error.context:
        firsts = {below.relative_schema_path[0]: below for below in reversed(error.context)}
        yield f"{where}{'; or '.join([_short(below.message) for below in reversed(firsts.values())][:3])}"
    else:
        yield f"{where}{_short(error.message)}"


def _intended_errors(error: ValidationError) -> list[ValidationError]:
    """Return the errors of the alternative that was clearly intended, of several the one with the fewest; else []."""
    branches: dict[Any, list[ValidationError]] = {}
    for below in error.context or ():
        branches.setdefault(below.relative_schema_path[0], []).append(below)
    depth = len(error.absolute_path)
    candidates = [each for each in branches.values() if not any(_is_other_kind(below, depth) for below in each)]
    return min(candidates, key=len, default=[])


def _is_other_kind(error: ValidationError, depth: int) -> bool:
    at = len(error.absolute_path)
    return (at == depth and error.validator in ("type", "enum")) or (at <= depth + 1 and error.validator == "const")


def _short(message: str) -> str:
    """Return the beginning of a message, which has the value, and its end, which has the expectation."""
    return message if len(message) <= 300 else f"{message[:120]} … {message[-170:]}"


def coerce(value: Any, schema: Any, root: Schema, fits: Fits) -> Any:
    """Return the value coerced to the schema. `root` resolves references, `fits` says whether a value is valid.

    Strings become numbers, booleans, lists and objects; 71.0 becomes 71; a whole number becomes a text; a single
    value becomes a list; null is dropped for an optional argument that does not accept it. Nothing is changed in place.
    """
    if not isinstance(schema, dict):
        return value
    for part in _all_of(schema, root):
        value = coerce(value, part, root, fits)
    for branches in (schema.get("anyOf"), schema.get("oneOf")):
        value = _any_of(value, branches or (), root, fits)
    value = _as_kind(value, schema, root)
    if isinstance(value, dict):
        return _object(value, schema, root, fits)
    if isinstance(value, list) and (items := schema.get("items")):
        return [coerce(item, items, root, fits) for item in value]
    return value


def _all_of(schema: Schema, root: Schema) -> Iterator[Any]:
    if isinstance(reference := schema.get("$ref"), str):
        yield resolve(reference, root)
    yield from schema.get("allOf") or ()


def _any_of(value: Any, branches: Any, root: Schema, fits: Fits) -> Any:
    """Return the value coerced to the branch it fits, else to the first branch that it can be coerced to."""
    if (fitting := next((branch for branch in branches if fits(branch, value)), None)) is not None:
        return coerce(value, fitting, root, fits)
    for branch in branches:
        read = coerce(value, branch, root, fits)
        if fits(branch, read):
            return read
    return value


def _object(value: dict[str, Any], schema: Schema, root: Schema, fits: Fits) -> dict[str, Any]:
    properties, required = schema.get("properties") or {}, schema.get("required") or ()
    read = {}
    for name, item in value.items():
        rule: Any = properties.get(name, schema.get("additionalProperties"))
        if item is None and name in properties and name not in required and not fits(rule, None):
            continue
        read[name] = coerce(item, rule, root, fits)
    return read


def _as_kind(value: Any, schema: Schema, root: Schema) -> Any:
    kinds = schema.get("type") or ()
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if _is_of(value, kind):
            return value
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        read = _as_list(value, schema, root) if kind == "array" and not _is_json(value, list) else _as_type(value, kind)
        if read is not value:
            return read
    return value


def _is_of(value: Any, kind: str) -> bool:
    return isinstance(value, _KINDS.get(kind, ())) and (kind == "boolean" or not isinstance(value, bool))


def _as_type(value: Any, kind: str) -> Any:
    if kind == "integer" and isinstance(value, float):
        return value if (number := as_whole(value)) is None else number
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


def _as_list(value: Any, schema: Schema, root: Schema) -> Any:
    """Return the value as a list of one, if a list may contain it."""
    items = schema.get("items")
    read = _as_kind(value, items, root) if isinstance(items, dict) else value
    kinds = set(kinds_of(items, root))
    return [read] if kinds and any(_is_of(read, kind) for kind in kinds) else value


def kinds_of(schema: Any, root: Schema, depth: int = 0) -> Iterator[str]:
    """Yield the types that the schema names for a value."""
    if not isinstance(schema, dict) or depth > 8:
        return
    kinds = schema.get("type") or ()
    yield from [kinds] if isinstance(kinds, str) else kinds
    for part in (*_all_of(schema, root), *(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())):
        yield from kinds_of(part, root, depth + 1)
