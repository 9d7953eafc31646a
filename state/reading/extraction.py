"""Find the JSON value in a model's text that has the requested form.

For models that print their decision instead of calling a tool. A wrong value is worse than none: without one, the
model gets a correction and writes it again.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from donewhen.state.pattern import pattern
from donewhen.state.reading.almost_json import Candidate, read_candidate
from donewhen.state.reading.json_strings import Effort, EffortExhausted
from donewhen.state.reading.marks import CLOSE_THOUGHT, OPEN_THOUGHT, without_marks, without_thoughts

LONGEST = 1_000_000
"""The most characters of a text that are searched."""
_TAG = r"(?:think|thinking|thought|reasoning|reflection|scratchpad)"
# Every branch begins with a literal, so that text without brackets is skipped at the speed of a search for characters.
_START = pattern(
    rf"""<{_TAG}>
    |\[(?:THINK\]|\s*+(?:[{{\["'“\]0-9-]|//|/\*|\#|(?:true|false|null|True|False|None)\b))
    |\{{\s*+(?:[}}"'“]|[,:\[\]]\s*+["'“]|//|/\*|\#|[A-Za-z_$][\w$-]{{0,200}}+["'”]?\s*+[:：])""",
    re.VERBOSE,
)
_FENCE = pattern(r"(?:(?:```|~~~)[\w+-]*[ \t]*\n?|`)\s*\Z")
_FENCE_END = pattern(r"(?<!\s)\s*+(?:```|~~~|`)")
_LABEL = pattern(r"(?:\A|\n)\W{0,99}\w{1,99}(?: \w{1,99})?\W{0,99}[:：]\W{0,99}\Z|<[\w|]{1,99}>\s{0,99}\Z")
_LEAD = pattern(r"\A\W*(?:\w+(?: \w+)?\W*[:：]\W*|(?:```|~~~)[\w+-]*\s*|<[\w|]+>\s*)?")
_SENTENCE_END = pattern(r"[.!?。！？]\s*\Z")
_TAIL = pattern(r"[^\w\n<#/]{0,99}+(?:\n|\Z|```|~~~|<|\#|//)")


@dataclass(frozen=True, slots=True)
class Extracted:
    """A value found in a text, and its place."""

    value: Any
    """None if the text was meant as the value and does not fit, or cannot be read with certainty."""
    start: int
    """Index of the first character of the value, or of the fence around it."""
    end: int
    """Index behind the last character of the value, or of the fence around it."""
    complete: bool = True
    """False if closing brackets were missing. If the reply also hit the length limit, there may have been more."""
    open_list: bool = False
    """True if a list was not closed."""


def extract(
    text: str, accepts: Callable[[Any], bool], keys: Collection[str] = (), hints: Collection[str] = ()
) -> Extracted | None:
    """Return the first JSON object or list in `text` that `accepts` returns True for; None if there is none.

    Only objects and lists that stand apart are read: alone, in a fence, in a tag, behind a label or on lines of their
    own, not within a sentence. Their syntax may be any that `almost_json` reads. Nothing between <think> and </think>
    is read, and no value inside another one.

    A value was meant to fit if it has one of `keys` or, if it cannot be read, names one of `keys` or `hints`. The first
    such value decides: if it does not fit or cannot be read for certain, the extracted value is None, even if another
    one follows, because that was written as if the first had been carried out. Of a list that does not fit as a whole,
    the first item is taken if it is an object that fits.

    Takes milliseconds for any text: reading stops, with None, when the text is too broken for its size.
    """
    effort, position, plain_keys = Effort(), 0, {_plain(key) for key in keys}
    named = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, (*keys, *hints)))})(?!\w)")
    try:
        while len(text) <= LONGEST and (match := _START.search(text, position)):
            start = match.start()
            if text[start] == "<" or text.startswith("[THINK]", start):
                position = _end_of_thinking(text, start)
                continue
            candidate = read_candidate(text, start, effort)
            position = candidate.end
            effort.charge(8 + (position - start) // 64)
            if not _stands_apart(text, start, candidate):
                continue
            fitting = _accepted_part(candidate.value, accepts)
            meant = named.search(candidate.broken) if candidate.broken else _has(candidate.value, plain_keys)
            if fitting or ((keys or hints) and meant):
                if not (after := _end_of_orphan_close(text, position)):
                    return _locate(text, start, candidate, fitting[0] if fitting else None)
                position = after
    except EffortExhausted:
        return None
    return None


def prose(text: str, extracted: Extracted | None) -> str:
    """Return the model's speech before its decision, without its thinking; without a decision, the whole text.

    Text after the decision is left out: the model wrote it before anything was carried out, so it may be made up.
    """
    if extracted is not None:
        text = text[: extracted.start]
    rest = without_marks(without_thoughts(text)).rstrip()
    return (rest if extracted is None else _LABEL.sub("", rest)).strip()


def _accepted_part(value: Any, accepts: Callable[[Any], bool]) -> list[Any]:
    """Return the value, or its first item, in a list; [] if neither is accepted."""
    offers = [] if value is None else [value]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        offers.append(value[0])
    return [offer for offer in offers if accepts(offer)][:1]


def _has(value: Any, plain_keys: Collection[str]) -> bool:
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and any(_plain(key) in plain_keys for key in first)


def _plain(key: str) -> str:
    return re.sub(r"[\W_]", "", key).casefold()


def _stands_apart(text: str, start: int, candidate: Candidate) -> bool:
    """Return whether no sentence continues before or after the value on its line; half an object ends with its text."""
    if not (candidate.broken or not candidate.complete or _TAIL.match(text, candidate.end)):
        return False
    line = max(text.rfind("\n", max(0, start - 200), start) + 1, start - 200, 0)
    closing = CLOSE_THOUGHT.search(text, line, start)
    before = text[closing.end() if closing else line : start]
    return bool(_LEAD.fullmatch(before) or _SENTENCE_END.search(before))


def _locate(text: str, start: int, candidate: Candidate, value: Any) -> Extracted:
    end, margin = candidate.end, max(0, start - 100)
    if fence := _FENCE.search(text[margin:start]):
        start = margin + fence.start()
        closing = _FENCE_END.match(text, end)
        end = closing.end() if closing else end
    return Extracted(value, start, end, candidate.complete, candidate.open_list)


def _end_of_thinking(text: str, start: int) -> int:
    close = CLOSE_THOUGHT.search(text, start)
    return close.end() if close else len(text)


def _end_of_orphan_close(text: str, position: int) -> int:
    """Return the position after a closing tag without its opening one: everything before it was thinking."""
    close = CLOSE_THOUGHT.search(text, position)
    if close is None or OPEN_THOUGHT.search(text, position, close.start()):
        return 0
    return close.end()
