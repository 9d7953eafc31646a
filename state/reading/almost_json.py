"""Read one JSON object or list as models write it: Python literals, other quotes, comments, missing brackets at the
end.

Only syntax is repaired. Variables, expressions, truncated strings or numbers, and missing brackets that could move a
value make the whole text unreadable, and no one acts on it.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from donewhen.state.pattern import pattern
from donewhen.state.reading.json_strings import Effort, end_of_string, has_swallowed, unescape
from donewhen.state.values import DEEPEST, json_problem

_SKIP = pattern(r"(?:\s++|//[^\n]*+|\#[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+")
_TOKEN = pattern(
    r"""(?P<open>[{\[])|(?P<close>[}\]])|(?P<comma>[,，])|(?P<colon>[:：])
    |(?P<string>\"{3}|'{3}|["'“])
    |(?P<number>-?(?:0|[1-9][0-9]{0,20}+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]{1,3}+)?)(?![\w.+*/%-])(?!\Z)
    |(?P<word>[^\W\d][\w-]*+)
    |(?P<stop>```|</|\Z)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_OVER = pattern(r"\s{0,99}+(?:\Z|```|<)|[ \t]{0,99}+\n\s{0,99}+\w")
_GOES_ON = pattern(r"""\s{0,99}+[,，]?\s{0,99}+["'“][^"'”\n]{0,200}+["'”]\s{0,99}+[:：]""")
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Candidate:
    """The result of reading at a bracket."""

    value: Any
    """The object or list exactly as written; None if that is uncertain."""
    end: int
    """The position after the value."""
    complete: bool = True
    """False if closing brackets were missing."""
    open_list: bool = False
    """True if an unclosed list may have had more items."""
    broken: str = ""
    """The unreadable text, or its first 300 characters."""


def read_candidate(text: str, start: int, effort: Effort) -> Candidate:
    """Read the value that begins with the bracket at `start`. Raises EffortExhausted."""
    reader = _Reader(text, start, effort)
    try:
        value, reader.at = _DECODER.raw_decode(text, start)
    except RecursionError:
        effort.charge(1_000)
        return Candidate(None, start + 1)
    except ValueError as error:
        # The decoder counts the lines before an error, which is why a late one costs more than an early one.
        at = getattr(error, "pos", start)
        effort.charge(4 + (at - start) // 64 + at // 8192)
        try:
            value = reader.value()
        except _Unsure:
            return reader.broken(start)
    if not reader.rest_is_sure(start) or json_problem(value):
        return reader.broken(start)
    return Candidate(value, reader.at, reader.complete, reader.open_list)


class _Unsure(Exception):
    """The text cannot be read with certainty."""


class _Reader:
    def __init__(self, text: str, start: int, effort: Effort) -> None:
        self.text, self.at, self.effort = text, start, effort
        self.complete, self.open_list = True, False
        self.depth = 0
        self.after = ""
        """The kind of the last token."""

    def value(self, in_list: bool = False) -> Any:
        kind, lexeme = self._next()
        if kind == "open":
            self.depth += 1
            if self.depth > DEEPEST:
                raise _Unsure
            value = self._object() if lexeme == "{" else self._list()
            self.depth -= 1
            return value
        if kind == "string":
            return self._string(lexeme, in_list)
        if kind == "number":
            return json.loads(lexeme)
        if lexeme in _WORDS:
            return _WORDS[lexeme]
        raise _Unsure

    def _object(self) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not self._is_closed("}"):
            if items:
                self._comma(key=True)
                if self._is_closed("}"):
                    break
            kind, lexeme = self._next()
            key = self._string(lexeme) if kind == "string" else lexeme
            if kind not in ("string", "word") or key in items or self._next()[0] != "colon":
                raise _Unsure
            items[key] = self.value()
        return items

    def _list(self) -> list[Any]:
        items: list[Any] = []
        while not self._is_closed("]"):
            if items:
                self._comma(key=False)
                if self._is_closed("]"):
                    break
            items.append(self.value(in_list=True))
        return items

    def _is_closed(self, bracket: str) -> bool:
        """Return whether the object or list ends here: by a bracket, or the end of text, fence or tag."""
        before, gap = self.at, self._skip()
        kind, lexeme = self._peek()
        if kind == "close" and lexeme == bracket:
            self._take(kind, lexeme)
            return True
        over = kind == "stop" and (self.after == "close" or "\n" in gap or self.at == len(self.text))
        over = over or (kind == "word" and self.after == "close" and gap.endswith("\n"))
        if kind == "close" or over:
            outermost = kind == "close" and self.depth < 2
            if self.after in ("open", "comma", "colon") or (over and gap.strip()) or outermost:
                raise _Unsure
            self.complete, self.open_list = False, self.open_list or bracket == "]"
            self.at = self.at if kind == "close" else before
            return True
        if not self.complete:
            raise _Unsure  # what follows could belong inside or outside
        return False

    def _comma(self, key: bool) -> None:
        """Read a comma, or accept a missing one where it is unambiguous: before a key, between two objects."""
        kind, lexeme = self._peek()
        if kind == "comma":
            self._take(kind, lexeme)
        elif not key and not (self.after == "close" and lexeme == "{"):
            raise _Unsure

    def _skip(self) -> str:
        """Skip white space and comments; return them."""
        match = _SKIP.match(self.text, self.at)
        end = match.end() if match else self.at
        gap, self.at = self.text[self.at : end], end
        self.effort.charge(len(gap) // 64)
        if gap.count('"') % 2 or gap[:1] in ("#", "/"):
            raise _Unsure  # half a string in a comment, or one that touches what is before it: it was no comment
        return gap

    def _peek(self) -> tuple[str, str]:
        match = _TOKEN.match(self.text, self.at)
        return (str(match.lastgroup), match.group()) if match else ("stop", "")

    def _take(self, kind: str, lexeme: str) -> None:
        self.effort.charge(1)
        self.after = kind
        self.at += len(lexeme)

    def _next(self) -> tuple[str, str]:
        self._skip()
        kind, lexeme = self._peek()
        self._take(kind, lexeme)
        return kind, lexeme

    def _string(self, quote: str, in_list: bool = False) -> str:
        """Read the text of the string whose opening quote was just read."""
        start, close = self.at, end_of_string(self.text, self.at, quote, self.effort)
        if close < 0:
            raise _Unsure
        self.at = close + len(quote)
        body = self.text[start:close]
        if len(quote) == 1 and has_swallowed(body, in_list):
            raise _Unsure
        try:
            self.effort.charge(body.count("\\"))
            return unescape(body)
        except ValueError as error:
            raise _Unsure from error

    def rest_is_sure(self, start: int) -> bool:
        """Return whether nothing after the value suggests that it was longer."""
        if self.text[start] == "{" and _GOES_ON.match(self.text, self.at):
            return False
        return self.complete or bool(_OVER.match(self.text, self.at))

    def broken(self, start: int) -> Candidate:
        """Return the unreadable text up to the bracket that closes it."""
        depth, at = 0, start
        while match := _TOKEN.match(self.text, at):
            self.effort.charge(1)
            at = match.end()
            kind = match.lastgroup
            if kind == "string":
                close = end_of_string(self.text, at, match.group(), self.effort)
                at = close + len(match.group()) if close >= 0 else at
            depth += (kind == "open") - (kind == "close")
            if not depth:
                rest = _GOES_ON.match(self.text, at)
                at = rest.end() if rest else at
                return Candidate(None, at, broken=self.text[start:at])
            if at == len(self.text):
                break
        return Candidate(None, start + 1, broken=self.text[start : start + 300])
