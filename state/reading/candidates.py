"""Reads one candidate: the JSON value that begins at a bracket, strictly if possible, else with its syntax repaired.

The repair never sees a value. The tokens are read here; `json-repair` mends their skeleton, in which every scalar is
only a number; then the scalars are put back. What it added, dropped or moved shows, and makes the result inexact.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

import json_repair

from donewhen.state.reading.json_strings import swallowed
from donewhen.state.reading.json_tokens import MAX_DEPTH, read_tokens
from donewhen.state.reading.work import Work, WorkExhausted

_LONG = 1_000_000
_GOES_ON = re.compile(r"""\s*+[,，]?\s*+["'“][^"'”\n]{0,200}+["'”]\s*+[:：]""")
_RUN = re.compile(r"[{\[\s]*+")


@dataclass(frozen=True, slots=True)
class Candidate:
    """What was read at a bracket."""

    value: Any
    """The object or list, exactly as it was written; None if that is not certain."""
    end: int
    """Where to read on."""
    repaired: bool = False
    complete: bool = True
    """False when closing brackets were missing."""
    broken: str = ""
    """The text of what looks like JSON and is none that can be read, or its first 300 characters."""


def read_candidate(text: str, start: int, work: Work) -> Candidate:
    """Reads the value that begins with the bracket at `start`. Raises WorkExhausted."""
    if len(text) - start > _LONG:
        _refuse_bulk(text, start, work)
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        work.charge(1_000)
        run = _RUN.match(text, start)
        return Candidate(None, run.end() if run else start + 1)
    except json.JSONDecodeError as error:
        # The decoder counts the lines before an error, which is why a late one costs more than an early one.
        work.charge(4 + (error.pos - start) // 64 + error.pos // 8192)
        return _repair(text, start, work)
    except ValueError:
        work.charge(50)
        return _repair(text, start, work)
    if "\n" in text[start:end] and _has_swallowed(value) and not _is_strict(text, start):
        return _repair(text, start, work)
    if text.count("{", start, end) + text.count("[", start, end) > MAX_DEPTH and not _is_shallow(value):
        return Candidate(None, end, broken=text[start : start + 300] if text[start] == "{" else "")
    if (rest := _rest(text, start, end)) or not _is_storable(text, start, end, value):
        return Candidate(None, rest or end, broken=text[start : rest or end])
    return Candidate(value, end)


def _refuse_bulk(text: str, start: int, work: Work) -> None:
    """Parsing megabytes of small values takes a tenth of a second, even where the parser is C; no decision has them."""
    work.charge(20)
    sample = 65_536
    if text.count(",", start, start + sample) * (len(text) - start) // sample > _LONG // 10:
        raise WorkExhausted


def _repair(text: str, start: int, work: Work) -> Candidate:
    tokens = read_tokens(text, start, work)
    if not tokens.is_json:
        return Candidate(None, tokens.end)
    rest = _rest(text, start, tokens.end)
    if tokens.faithful and not rest:
        shape: list[str] = []
        value, exact = _restore(_mend(tokens.marks, work), tokens.scalars, shape)
        if exact and _core(shape) == _core(tokens.marks):
            return Candidate(value, tokens.end, repaired=True, complete=tokens.complete)
    if tokens.closed:
        return Candidate(None, rest or tokens.end, broken=text[start : rest or tokens.end])
    return Candidate(None, start + 1, broken=text[start : min(tokens.end, start + 300)])


def _mend(marks: list[str], work: Work) -> Any:
    skeleton = "".join(marks)
    try:
        return json.loads(skeleton)
    except ValueError:
        work.charge(6 * len(marks))
        return json_repair.loads(skeleton, skip_json_loads=True)


def _restore(node: Any, scalars: list[Any], shape: list[str]) -> tuple[Any, bool]:
    """Puts the scalars back, and writes down the shape in which they came back."""
    if isinstance(node, dict):
        shape.append("{")
        items: dict[str, Any] = {}
        exact = True
        for mark, child in node.items():
            key, known = _restore(mark, scalars, shape)
            shape.append(":")
            value, faithful = _restore(child, scalars, shape)
            exact = exact and known and faithful and isinstance(key, str) and key not in items
            items[str(key)] = value
        shape.append("}")
        return items, exact
    if isinstance(node, list):
        shape.append("[")
        pairs = [_restore(child, scalars, shape) for child in node]
        shape.append("]")
        return [value for value, _ in pairs], all(exact for _, exact in pairs)
    shape.append(f'"{node}"')
    known = isinstance(node, str) and node.isdecimal() and int(node) < len(scalars)
    return (scalars[int(node)], True) if known else ("", False)


def _core(marks: list[str]) -> list[str]:
    """What a repair must not change: brackets, colons and scalars in their order, up to the last closing brackets."""
    end = len(marks)
    while end and marks[end - 1] in ("}", "]", ","):
        end -= 1
    return [mark for mark in marks[:end] if mark != ","]


def _rest(text: str, start: int, end: int) -> int:
    """The end of what follows, if the object goes on behind its closing bracket (`}, "key": …`); else 0."""
    match = _GOES_ON.match(text, end) if text[start] == "{" else None
    return match.end() if match else 0


def _has_swallowed(value: Any) -> bool:
    """Whether a string in the value may be two, if its line break was not escaped."""
    stack = [value]
    while stack:
        current = stack.pop()
        if isinstance(current, dict):
            children, in_list = [*current, *current.values()], False
        else:
            children, in_list = current, True
        if any(swallowed(child, in_list) for child in children if isinstance(child, str)):
            return True
        stack += [child for child in children if isinstance(child, dict | list)]
    return False


def _is_strict(text: str, start: int) -> bool:
    """Every line break in a string is escaped."""
    try:
        json.JSONDecoder().raw_decode(text, start)
    except ValueError:
        return False
    return True


def _is_storable(text: str, start: int, end: int, value: Any) -> bool:
    """Free of half characters (`\\ud83d` alone), which UTF-8 cannot write."""
    escaped = text.find("\\ud", start, end) >= 0 or text.find("\\uD", start, end) >= 0
    try:
        (json.dumps(value, ensure_ascii=False) if escaped else text[start:end]).encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_shallow(value: Any) -> bool:
    """Not nested too deep for those who walk it."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
        if not level:
            return True
    return False


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if number - number == 0 else _refuse(digits)


_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse, parse_float=_finite)
