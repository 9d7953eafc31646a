"""Criteria: their form, the expectations of their checks, and how a tool's result is compared with one.

`graph` runs the tools. Regular expressions and JSON paths of models that would exhaust memory or never end are refused:
counted repeats are expanded when a pattern is compiled, so nested ones multiply; every group keeps all its matches; and
regular expressions within a path cannot be stopped.
"""

import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from donewhen.state.language.texts import say
from donewhen.state.pattern import pattern
from donewhen.state.values import Json, fold_text, split_kept

PATTERN_CHARS = 500
PATTERN_SIZE = 10_000
"""The most elements of a pattern with its counted repeats expanded; about 300 bytes each."""
PATTERN_GROUPS = 5
PATH_CHARS = 500

_TOKEN = pattern(
    r"(?P<comment>\(\?\#[^)]*\))|\\.|\[\^?\]?(?:\\.|[^\]\\]){0,500}\]|\{(?P<least>[0-9]*)(?:,[0-9]*)?\}|.", re.DOTALL
)
_VERBOSE = pattern(r"\(\?[a-zA-Z0-9]*x")
_GROUP = pattern(r"\((?!\?)|\(\?P?<(?![=!])")

Operator = Literal["==", "!=", ">", ">=", "<", "<=", "contains", "exists"]
ORDER = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
NUMBER = pattern(r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|(?<![\w.])\.\d+)(?:[eE][-+]?\d{1,3})?")
_MINUS = str.maketrans("\u2212\ufe63\uff0d", "---")
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


def _not_blank(text: str) -> str:
    if not (trimmed := text.strip()):
        raise ValueError("is blank")
    return trimmed


NotBlank = Annotated[str, AfterValidator(_not_blank)]


class Criterion(BaseModel):
    """One thing that must hold when the step is done, and optionally the check that decides it."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)

    text: NotBlank
    check: Check | None = Field(
        default=None, description="read-only tool call that the runtime makes to decide this criterion"
    )
    judge: bool = Field(default=False, description="let a second model decide this criterion from the evidence")
    call: int | None = Field(
        default=None, ge=1, description="number of the planned call whose success is all that this criterion says"
    )

    @model_serializer(mode="wrap")
    def _without_no_call(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if key != "call" or value is not None}


def _criteria(value: Any) -> Any:
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    return [{"text": item} if isinstance(item, str) else item for item in items if not is_blank(item)]


def is_blank(criterion: Any) -> bool:
    """Return whether a written criterion is empty, or a text without words."""
    return criterion is None or (isinstance(criterion, str) and not criterion.strip())


Criteria = Annotated[list[Criterion], BeforeValidator(_criteria)]


def criteria_of(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the step's criteria; without any, its content is the criterion."""
    return list(step.get("done_when") or []) or [{"text": f"Done: {step['content']}", "check": None, "judge": False}]


def is_plain(criterion: Mapping[str, Any]) -> bool:
    """Return whether neither a check nor a judge decides a criterion."""
    return not (criterion.get("check") or criterion.get("judge"))


def covers(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether a criterion asks for all that the other does: words, check, and a judge if it wants one."""
    same_words = fold_text(one["text"]) == fold_text(other["text"])
    return same_words and one.get("check") == other.get("check") and bool(one.get("judge") or not other.get("judge"))


def add_criteria(own: Iterable[Json], more: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Return these criteria, and those of `more` that none of them covers."""
    whole = list(own)
    for criterion in more:
        if not any(covers(each, criterion) for each in whole):
            whole.append(dict(criterion))
    return whole


# --- a result and an expectation


Say: TypeAlias = Callable[..., str]
"""Returns a text of the section `proof` by its key and values."""


def meets(expect: str | Mapping[str, Any], ok: bool, text: str, language: str = "en") -> tuple[bool | None, str]:
    """Return whether a result meets the expectation, and why. A failed call meets nothing. Never raises.

    None if only the beginning of the result was kept, and the rest could decide otherwise.
    """
    speak: Say = partial(say, language, "proof")
    if not ok:
        return False, speak("call_failed", said=repr(text[:200]))
    if expect == "ok":
        return True, speak("call_succeeded")
    assert isinstance(expect, Mapping)
    text, rest = split_kept(text)
    if (needle := expect.get("contains")) is not None and (needle in text or not rest):
        return needle in text, speak("contains" if needle in text else "contains_not", wanted=repr(needle[:80]))
    if rest:
        return None, speak("cut", read=f"{len(text):,}", said=rest)
    if (expression := expect.get("matches")) is not None:
        return _matches(expression, text, speak)
    if expect.get("path") is not None:
        return _at_path(expect, text, speak)
    if (number := expect.get("number")) is not None:
        return _number(number, expect.get("tolerance", 0.0), text, speak)
    return _equals(expect.get("equals"), text, speak)


def _matches(expression: str, text: str, speak: Say) -> tuple[bool, str]:
    import regex  # only where a pattern is

    wanted = repr(expression[:80])
    try:
        match = regex.search(expression, text, timeout=PATTERN_SECONDS, concurrent=True)
    except TimeoutError:
        return False, speak("pattern_time", wanted=wanted)
    except MemoryError:
        return False, speak("pattern_memory", wanted=wanted)
    return match is not None, speak("matches" if match else "matches_not", wanted=wanted)


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()


def _equals(wanted: Any, text: str, speak: Say) -> tuple[bool, str]:
    parsed = _parse(text)
    same = _is_same(parsed, wanted) or (isinstance(wanted, str) and text.strip() == wanted.strip())
    return same, speak("found", found=repr(text.strip()[:120]), wanted=repr(wanted))


def _is_same(left: Any, right: Any) -> bool:
    """Return whether two values are equal as JSON, where true is not 1, at any depth."""
    try:
        return bool(left == right) and _has_same_truths(left, right)
    except RecursionError:
        return False


def _has_same_truths(left: Any, right: Any) -> bool:
    """Return whether equal values have true and false in the same places."""
    if isinstance(left, Mapping):
        return all(_has_same_truths(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return all(map(_has_same_truths, left, right))
    return isinstance(left, bool) == isinstance(right, bool)


def _number(wanted: float, tolerance: float, text: str, speak: Say) -> tuple[bool, str]:
    numbers = [float(match.replace(",", "")) for match in NUMBER.findall(text.translate(_MINUS))]
    if len(numbers) != 1:
        return False, speak("numbers", count=len(numbers))
    is_close = math.isclose(numbers[0], wanted, rel_tol=0, abs_tol=tolerance + 1e-12)
    return is_close, speak("found", found=f"{numbers[0]:g}", wanted=f"{wanted:g}")


def _at_path(expect: Mapping[str, Any], text: str, speak: Say) -> tuple[bool, str]:
    path, op, value = expect["path"], expect.get("op", "=="), expect.get("value")
    from jsonpath_ng.ext.parser import parse

    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False, speak("no_json")
    try:
        values = [match.value for match in parse(path).find(document)]
    except Exception as error:  # a filter may compare values that cannot be compared, which raises anything
        return False, speak("path_unreadable", path=path, error=type(error).__name__)
    found = json.dumps(values[0], ensure_ascii=False)[:120] if values else ""
    sentence = speak("path_found" if values else "path_absent", path=path, found=found, wanted=f"{op} {value!r}")
    if op == "exists":
        return bool(values), sentence
    return bool(values) and all(_compares(item, op, value) for item in values), sentence


def _compares(actual: Any, op: str, value: Any) -> bool:
    if op in ("==", "!="):
        return _is_same(actual, value) == (op == "==")
    if op == "contains":
        return _contains(actual, value)
    if not _is_number(actual) or not _is_number(value):
        return False
    return bool(ORDER[op](actual, value))


def _contains(container: Any, value: Any) -> bool:
    if isinstance(container, (str, dict)):
        return isinstance(value, str) and value in container
    return isinstance(container, list) and any(_is_same(item, value) for item in container)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- patterns and paths of models


def pattern_problem(pattern: str, groups: int = PATTERN_GROUPS) -> str | None:
    """Return why this regular expression is refused, in words for its author; None if it is accepted.

    `groups` is the most capturing groups; more are harmless where texts are short.
    """
    if _VERBOSE.search(pattern):
        return f"{pattern[:80]!r} has the flag x; write the pattern without it"
    if count_elements(pattern) > PATTERN_SIZE:
        return (
            f"{pattern[:80]!r} repeats too much: with its counted repeats written out it has more than "
            f"{PATTERN_SIZE:,} elements; use smaller counts, or * and +"
        )
    if len(_GROUP.findall(pattern)) > groups:
        return f"{pattern[:80]!r} has more than {groups} groups that capture; write (?:…) where none is needed"
    import regex  # 8 ms, for the few plans that have a pattern

    try:
        regex.compile(pattern)
    except regex.error as error:
        return f"{pattern[:80]!r} is not a regular expression: {error}"
    return None


def count_elements(pattern: str) -> int:
    """Return the number of elements of a pattern with its counted repeats expanded; linear, without compiling."""
    open_groups, last = [0], 0
    for token in _TOKEN.finditer(pattern):
        text, least = token[0], token["least"]
        if least is not None:
            times = max(int(least or 0), 1)
            open_groups[-1] += last * (times - 1)
            last *= times
        elif text == "(":
            open_groups.append(1)
        elif text == ")":
            last = open_groups.pop()
            open_groups = open_groups or [0]
            open_groups[-1] += last
        elif not token["comment"]:
            open_groups[-1] += 1
            last = 1
    return sum(open_groups)


def path_problem(path: str) -> str | None:
    """Return why this JSON path is refused; None if it is accepted."""
    if len(path) > PATH_CHARS:
        return f"a path has at most {PATH_CHARS} characters; this one has {len(path):,}"
    if "=~" in path or "sub(" in path:
        return f"{path[:80]!r} holds a regular expression, which a path cannot; use matches"
    if path.count("..") > 1:
        return f"{path[:80]!r} is a path that descends with .. more than once; name the keys on the way"
    from jsonpath_ng.exceptions import JSONPathError  # 14 ms, for the few plans that have a path
    from jsonpath_ng.ext.parser import parse

    try:
        parse(path)
    except (JSONPathError, ValueError, AttributeError, TypeError) as error:
        return f"{path!r} is not a JSON path, such as $.rows or $[?(@.id=='a')].n: {error}"
    return None
