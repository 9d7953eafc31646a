"""Checks a call's arguments against the tool's JSON Schema and says what is wrong, for the model to mend."""

import functools
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import regex
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from referencing import Registry

from donewhen.graph.tools.coercion import lossless
from donewhen.graph.tools.schemas import MOST_PROBLEMS, Schema, strict
from donewhen.state.values import similar

SECONDS = 2.0
"""Longest time one check may take; arguments that need longer are refused."""
PATTERN_SECONDS = 0.2
"""Longest time one regular expression may take on one value."""

_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)


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
            return [f"the arguments must be a JSON object, not a {type(arguments).__name__}"]
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
    """What is wrong, and where: unknown keys with what may have been meant, else in jsonschema's words."""
    where = f"{at}: " if (at := error.json_path.removeprefix("$").removeprefix(".")[:200]) else ""
    given: Any = error.instance
    if error.validator == "additionalProperties" and isinstance(given, dict) and isinstance(error.schema, dict):
        known = list(error.schema.get("properties", {}))
        for name in _unknown(given, error.schema)[: MOST_PROBLEMS + 1]:
            meant = similar(name, [each for each in known if each not in given])
            hint = f"did you mean {meant[0]!r}?" if meant else f"allowed: {', '.join(known[:30]) or 'none'}"
            yield f"{where}unknown argument {name[:60]!r}; {hint}"
    elif meant_alternative := _meant(error):
        for below in meant_alternative:
            yield from _lines(below)
    elif error.context:
        firsts = {below.relative_schema_path[0]: below for below in reversed(error.context)}
        yield f"{where}{'; or '.join([_short(below.message) for below in reversed(firsts.values())][:3])}"
    else:
        yield f"{where}{_short(error.message)}"


def _meant(error: ValidationError) -> list[ValidationError]:
    """The errors of the alternative that was clearly meant, of several the one with the fewest; [] if none was."""
    branches: dict[Any, list[ValidationError]] = {}
    for below in error.context or ():
        branches.setdefault(below.relative_schema_path[0], []).append(below)
    depth = len(error.absolute_path)
    meant = [each for each in branches.values() if not any(_is_other_kind(below, depth) for below in each)]
    return min(meant, key=len, default=[])


def _is_other_kind(error: ValidationError, depth: int) -> bool:
    at = len(error.absolute_path)
    return (at == depth and error.validator in ("type", "enum")) or (at <= depth + 1 and error.validator == "const")


def _short(message: str) -> str:
    """What was given stands at its beginning, what is expected at its end."""
    return message if len(message) <= 300 else f"{message[:120]} … {message[-170:]}"
