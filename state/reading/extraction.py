"""Finds the JSON value in a model's raw text that fits what was asked for, and nothing else.

Made for models that print their decision instead of calling a tool. A wrong value is worse than none: whoever gets
None answers with a correction, and the model writes it again.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from jsonschema.validators import Draft202012Validator, validator_for

from donewhen.state.reading.candidates import Candidate, read_candidate
from donewhen.state.reading.work import Work, WorkExhausted

_TAG = r"(?:think|thinking|thought|reasoning|reflection|scratchpad)"
_CLOSE_THINKING = re.compile(rf"</{_TAG}>|\[/THINK\]")
_OPEN_THINKING = re.compile(rf"<{_TAG}>|\[THINK\]")
# Every branch begins with a literal, so that text without brackets is skipped at the speed of a search for characters.
_START = re.compile(
    rf"""<{_TAG}>
    |\[(?:THINK\]|\s*+(?:[{{\["'“\]0-9-]|//|/\*|\#|(?:true|false|null|True|False|None)\b))
    |\{{\s*+(?:[}}"'“]|[,:\[\]]\s*+["'“]|//|/\*|\#|[A-Za-z_$][\w$-]{{0,200}}+["'”]?\s*+[:：])""",
    re.VERBOSE,
)
_FENCE = re.compile(r"(?:(?:```|~~~)[\w+-]*[ \t]*\n?|`)\s*\Z")
_FENCE_END = re.compile(r"\s*+(?:```|~~~|`)")
_LABEL = re.compile(r"(?:\A|\n)\W*\w+(?: \w+)?\W*:\W*\Z|<[\w|]+>\s*\Z")


@dataclass(frozen=True, slots=True)
class Extracted:
    """A value found in a text, and where."""

    value: Any
    start: int
    """Index of the first character of the value, or of the fence around it."""
    end: int
    """Index behind the last character of the value, or of the fence around it."""
    repaired: bool
    """The syntax was not valid JSON and was mended; every string, number and word is still as written."""
    complete: bool = True
    """False when closing brackets were missing. If the model also stopped for length, there may have been more."""


def extract_json(text: str, schema: dict[str, Any] | None) -> Extracted | None:
    """The first JSON value in a model's text that is valid under a JSON Schema, or None.

    With schema None: the first object or list of objects; any list if the text begins with one. See `extract` for
    what counts as a value; its `keys` are those the schema requires. The schema must be valid (errors of `jsonschema`
    are raised as they are).
    """
    if schema is None:
        lists = text.lstrip().startswith("[")
        return extract(text, lambda value: isinstance(value, dict) or lists or _is_list_of_objects(value))
    kinds = schema.get("type") or ()
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    validator = validator_for(schema, default=Draft202012Validator)(schema)

    def accepts(value: Any) -> bool:
        kind = "object" if isinstance(value, dict) else "array"
        return (not kinds or kind in kinds) and bool(validator.is_valid(value))

    return extract(text, accepts, keys=_required(schema))


def extract(text: str, accepts: Callable[[Any], bool], keys: Collection[str] = ()) -> Extracted | None:
    """The first JSON object or list in `text` that `accepts` says yes to, or None.

    Read are: JSON alone, in prose and in fences; with comments, trailing or missing commas, single or typographic
    quotes, bare keys, Python's None/True/False, line breaks in strings, missing brackets at the end. Not read, ever:
    anything between <think> and </think>; values inside other values; variables, expressions and elisions
    (`"id": customer_id`); a string or number cut in the middle; brackets missing where a value could have moved.

    The first value that was meant to fit decides: if it does not fit or cannot be read for certain, the answer is
    None even if another one follows, for what follows was written as if the first had been carried out. Meant to fit
    is what has one of `keys`; without `keys`, every object that is written like JSON and cannot be read.
    Of a list that does not fit as a whole its first item is taken, if that is an object that does.

    Takes milliseconds for any text: reading stops, with None, when the text is too broken for its size.
    """
    work, position = Work(), 0
    try:
        while found := _START.search(text, position):
            start = found.start()
            if text[start] == "<" or text.startswith("[THINK]", start):
                position = _end_of_thinking(text, start)
                continue
            candidate = read_candidate(text, start, work)
            position = candidate.end
            fitting = _fitting(candidate.value, accepts)
            if fitting or _is_meant(candidate, keys):
                after = _orphan_close(text, position)
                if not after:
                    return _located(text, start, candidate, fitting[0]) if fitting else None
                position = after
            work.charge(8 + (position - start) // 64)
    except WorkExhausted:
        return None
    return None


def prose(text: str, extracted: Extracted | None) -> str:
    """What the model said before its decision, without its thinking: fit to be shown as speech, may be empty.

    What stands behind the decision is left out: it was written before anything was carried out, as made-up
    observations and false success are. With None: the whole text without its thinking.
    """
    said = _without_thinking(text if extracted is None else text[: extracted.start]).rstrip()
    return (said if extracted is None else _LABEL.sub("", said)).strip()


def _fitting(value: Any, accepts: Callable[[Any], bool]) -> list[Any]:
    """The value, or its first item, in a list; an empty list if neither is accepted."""
    offers = [] if value is None else [value]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        offers.append(value[0])
    return [offer for offer in offers if accepts(offer)][:1]


def _is_meant(candidate: Candidate, keys: Collection[str]) -> bool:
    if candidate.broken:
        return not keys or any(re.search(rf"(?<!\w){re.escape(key)}(?!\w)", candidate.broken) for key in keys)
    first = candidate.value[0] if isinstance(candidate.value, list) and candidate.value else candidate.value
    return isinstance(first, dict) and not {_plain(key) for key in keys}.isdisjoint(map(_plain, first))


def _plain(key: str) -> str:
    return re.sub(r"[\W_]", "", key).casefold()


def _required(schema: dict[str, Any]) -> set[str]:
    """The keys without which no object is valid, or that one of the alternatives requires."""
    keys = set(schema.get("required") or ())
    parts = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ()), schema.get("items")]
    return keys.union(*(_required(part) for part in parts if isinstance(part, dict)))


def _located(text: str, start: int, candidate: Candidate, value: Any) -> Extracted:
    end, margin = candidate.end, max(0, start - 100)
    if fence := _FENCE.search(text[margin:start]):
        start = margin + fence.start()
        closing = _FENCE_END.match(text, end)
        end = closing.end() if closing else end
    return Extracted(value, start, end, candidate.repaired, candidate.complete)


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _end_of_thinking(text: str, start: int) -> int:
    close = _CLOSE_THINKING.search(text, start)
    return close.end() if close else len(text)


def _orphan_close(text: str, position: int) -> int:
    """Behind a closing tag without its opening one: all before it was thinking (the prompt held the opening tag)."""
    close = _CLOSE_THINKING.search(text, position)
    if close is None or _OPEN_THINKING.search(text, position, close.start()):
        return 0
    return close.end()


def _without_thinking(text: str) -> str:
    kept, position = [], 0
    while opening := _OPEN_THINKING.search(text, position):
        kept.append(text[position : opening.start()])
        position = _end_of_thinking(text, opening.start())
    kept.append(text[position:])
    return _CLOSE_THINKING.split("".join(kept))[-1]
