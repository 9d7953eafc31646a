"""Compare a tool's result with the expectation of a check. Pure; `graph` runs the tool."""

import json
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from donewhen.state.criteria.patterns import PATTERN_CHARS, path_problem, pattern_problem
from donewhen.state.pattern import pattern

Operator = Literal["==", "!=", ">", ">=", "<", "<=", "contains", "exists"]
NUMBER = pattern(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,3})?")
PATTERN_SECONDS = 1.0


class Expectation(BaseModel):
    """Exactly one of: contains, matches, equals, path (with op and value), number (with tolerance)."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)

    contains: str | None = Field(default=None, min_length=1)
    matches: str | None = Field(default=None, min_length=1, max_length=PATTERN_CHARS, description="regular expression")
    equals: JsonValue = None
    path: str | None = Field(default=None, description="JSON path into the result, e.g. $.rows")
    op: Operator = "=="
    value: JsonValue = None
    number: FiniteFloat | None = None
    tolerance: FiniteFloat = Field(default=0.0, ge=0)

    @model_serializer(mode="wrap")
    def _set_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if key in self.model_fields_set}

    @model_validator(mode="after")
    def _check_fields(self) -> "Expectation":
        kinds = self.model_fields_set & {"contains", "matches", "equals", "path", "number"}
        if len(kinds) != 1:
            raise ValueError("an expectation is exactly one of contains, matches, equals, path, number")
        if self.matches is not None and (problem := pattern_problem(self.matches)):
            raise ValueError(problem)
        if self.path is not None:
            if problem := path_problem(self.path):
                raise ValueError(problem)
            if self.op != "exists" and "value" not in self.model_fields_set:
                raise ValueError(f"path with op {self.op} needs a value")
        return self


class Check(BaseModel):
    """A read-only tool call that decides a criterion."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)

    tool: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    expect: Literal["ok"] | Expectation = "ok"


def meets(expect: str | Mapping[str, Any], ok: bool, text: str) -> tuple[bool, str]:
    """Return whether a result meets the expectation, and why. A failed call meets nothing. Never raises."""
    if not ok:
        return False, f"the call failed: {text[:200]!r}"
    if expect == "ok":
        return True, "the call succeeded"
    assert isinstance(expect, Mapping)
    if (needle := expect.get("contains")) is not None:
        return needle in text, f"the result {'contains' if needle in text else 'does not contain'} {needle[:80]!r}"
    if (pattern := expect.get("matches")) is not None:
        return _matches(pattern, text)
    if expect.get("path") is not None:
        return _at_path(expect, text)
    if (number := expect.get("number")) is not None:
        return _number(number, expect.get("tolerance", 0.0), text)
    return _equals(expect.get("equals"), text)


def _matches(pattern: str, text: str) -> tuple[bool, str]:
    import regex  # only where a pattern is

    try:
        found = regex.search(pattern, text, timeout=PATTERN_SECONDS)
    except TimeoutError:
        return False, f"the pattern {pattern[:80]!r} took too long; write a simpler one"
    except MemoryError:
        return False, f"the pattern {pattern[:80]!r} took too much memory; write a simpler one"
    return found is not None, f"the result {'matches' if found else 'does not match'} {pattern[:80]!r}"


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()


def _equals(wanted: Any, text: str) -> tuple[bool, str]:
    found = _parse(text)
    same = _is_same(found, wanted) or (isinstance(wanted, str) and text.strip() == wanted.strip())
    return same, f"the result is {text.strip()[:120]!r}, expected {wanted!r}"


def _is_same(left: Any, right: Any) -> bool:
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _number(wanted: float, tolerance: float, text: str) -> tuple[bool, str]:
    found = [float(match.replace(",", "")) for match in NUMBER.findall(text[:100_000])]
    if len(found) != 1:
        return False, f"the result holds {len(found)} numbers where one was expected; use a path"
    return math.isclose(
        found[0], wanted, rel_tol=0, abs_tol=tolerance + 1e-12
    ), f"the result is {found[0]:g}, expected {wanted:g}"


def _at_path(expect: Mapping[str, Any], text: str) -> tuple[bool, str]:
    path, op, value = expect["path"], expect.get("op", "=="), expect.get("value")
    from jsonpath_ng.ext.parser import parse

    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False, "the result is not JSON, so it has no path"
    try:
        found = [match.value for match in parse(path).find(document)]
    except Exception as error:  # a filter that compares what cannot be compared raises whatever that raises
        return False, f"{path} cannot be read from the result: {type(error).__name__}"
    shown = json.dumps(found[0], ensure_ascii=False)[:120] if found else "not there"
    said = f"{path} is {shown}, expected {op} {value!r}"
    if op == "exists":
        return bool(found), said
    return bool(found) and all(_compares(item, op, value) for item in found), said


def _compares(found: Any, op: str, value: Any) -> bool:
    if op in ("==", "!="):
        return _is_same(found, value) == (op == "==")
    if op == "contains":
        return _contains(found, value)
    if not _is_number(found) or not _is_number(value):
        return False
    return bool({">": found > value, ">=": found >= value, "<": found < value, "<=": found <= value}[op])


def _contains(found: Any, value: Any) -> bool:
    if isinstance(found, (str, dict)):
        return isinstance(value, str) and value in found
    return isinstance(found, list) and any(_is_same(item, value) for item in found)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
