"""Reads words: the tokens of almost-JSON as a model writes it (Python literals, single quotes, comments, bare keys).

What cannot be read as it stands (a variable, an expression, a string cut in the middle) becomes a hole: the place is
kept, the result is marked as not faithful, and nobody may act on it.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from donewhen.state.reading.json_strings import end_of_string, swallowed, unescape
from donewhen.state.reading.work import Work

MAX_DEPTH = 64
_CLOSER = {"{": "}", "[": "]"}
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_SKIP = re.compile(r"(?:\s++|//[^\n]*+|\#[^\n]*+)*+")
_COLON = re.compile(r"\s*+[:：]")
_TOKEN = re.compile(
    r"""(?P<open>[{\[])|(?P<close>[}\]])|(?P<comma>[,，])|(?P<colon>[:：])
    |(?P<string>\"{3}|'{3}|["'“])
    |(?P<number>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)(?![\w.+*/%-])
    |(?P<word>[^\W\d][\w-]*+)
    |(?P<stop>```|</)
    |(?P<hole>[^\s{}\[\],:，："'“`<]++|.)""",
    re.VERBOSE | re.DOTALL,
)
_END = re.compile(r"\s*+(?:\Z|```|<)|[ \t]*+\n\s*+\w")


@dataclass(slots=True)
class Tokens:
    """The tokens of one candidate, from its opening bracket to `end`."""

    end: int
    marks: list[str] = field(default_factory=list)
    """Brackets, `,` and `:` as they stand; a scalar as its index in `scalars`, in double quotes."""
    scalars: list[Any] = field(default_factory=list)
    faithful: bool = True
    """Every scalar was read as written; False as soon as there is one hole."""
    closed: bool = False
    """The first bracket was closed in the text."""
    complete: bool = True
    """No closing bracket was missing."""
    is_json: bool = True
    """False when this turned out to be prose or code with a bracket; read on at `end`."""


def read_tokens(text: str, start: int, work: Work) -> Tokens:
    """Reads from the bracket at `start` until it is closed, or the text, the fence or the tag around it ends.

    Linear in what it reads, and bounded by `work` (raises WorkExhausted).
    """
    lexer = _Lexer(text, work, Tokens(end=start))
    while lexer.step():
        work.charge(1)
    return lexer.tokens


class _Lexer:
    def __init__(self, text: str, work: Work, tokens: Tokens) -> None:
        self.text, self.work, self.tokens = text, work, tokens
        self.start = tokens.end
        self.open: list[str] = []
        self.gap = ""

    @property
    def last(self) -> str:
        return self.tokens.marks[-1] if self.tokens.marks else ""

    def step(self) -> bool:
        """Reads one token; False at the end."""
        tokens, text = self.tokens, self.text
        position = self._skip(tokens.end)
        self.gap = text[tokens.end : position]
        match = _TOKEN.match(text, position)
        if match is None or self._is_over(str(match.lastgroup)):
            tokens.complete = False
            tokens.faithful &= self.last not in ("", *"{[,:") and not self.gap.lstrip()
            return False
        if self.gap.count('"') % 2 or (self.gap[:1] in ("#", "/") and self.last.startswith('"')):
            # Half a string in a comment, or one that touches a value: it was no comment.
            tokens.faithful = False
        kind, lexeme = str(match.lastgroup), match.group()
        tokens.end = match.end()
        if not tokens.complete and kind != "close":
            # A closing bracket was missing: anything but more of them could belong inside or outside.
            tokens.faithful = False
        match kind:
            case "open":
                return self._opened(lexeme)
            case "close":
                return self._closed(lexeme)
            case "comma" | "colon":
                return self._separated("," if kind == "comma" else ":")
            case "string":
                return self._string(lexeme)
            case "number":
                return self._number(lexeme)
            case "word":
                return self._word(lexeme)
        return self._hole()

    def _is_over(self, kind: str) -> bool:
        """The fence or the tag ends here, or prose begins, though brackets are open."""
        closed = self.last in ("}", "]")
        if kind == "stop":
            return closed or "\n" in self.gap
        return kind == "word" and closed and self.gap.endswith("\n")

    def _skip(self, position: int) -> int:
        """Behind white space and comments."""
        start = position
        while True:
            skipped = _SKIP.match(self.text, position)
            position = skipped.end() if skipped else position
            self.work.charge((position - start) // 64)
            if not self.text.startswith("/*", position):
                return position
            close = self.text.find("*/", position + 2)
            if close < 0:
                self.work.charge((len(self.text) - position) // 256)
                return position
            self.work.charge(1)
            position = close + 2

    def _opened(self, bracket: str) -> bool:
        last = self.last
        if last.startswith('"') or last == "]" or (last == "}" and bracket == "["):
            self.tokens.faithful = False
        self.open.append(bracket)
        self.tokens.marks.append(bracket)
        self.tokens.is_json = len(self.open) <= MAX_DEPTH
        return self.tokens.is_json

    def _closed(self, bracket: str) -> bool:
        if bracket not in map(_CLOSER.__getitem__, self.open):
            return self._hole()
        while _CLOSER[self.open.pop()] != bracket:
            self.tokens.complete = False
            self.tokens.faithful &= self.last not in ("{", "[", ",")
        self.tokens.marks.append(bracket)
        self.tokens.closed = not self.open
        if self.tokens.closed and not self.tokens.complete and not _END.match(self.text, self.tokens.end):
            self.tokens.faithful = False
        return bool(self.open)

    def _separated(self, separator: str) -> bool:
        if self.last in ("", "{", "[", ",", ":"):
            self.tokens.faithful = False
        self.tokens.marks.append(separator)
        return True

    def _string(self, quote: str) -> bool:
        start, text = self.tokens.end, self.text
        close = end_of_string(text, start, quote, self.work)
        if close < 0:
            self.tokens.end = len(text)
            return self._hole()
        self.tokens.end = close + len(quote)
        if len(quote) == 1 and swallowed(text[start:close], self.open[-1] == "["):
            return self._hole()
        try:
            value = unescape(text[start:close], quote, self.work)
        except ValueError:
            return self._hole()
        return self._scalar(value)

    def _number(self, lexeme: str) -> bool:
        if self.tokens.end == len(self.text):
            return self._hole()
        try:
            value = json.loads(lexeme)
        except ValueError:
            return self._hole()
        return self._hole() if value in (float("inf"), float("-inf")) else self._scalar(value)

    def _word(self, lexeme: str) -> bool:
        if self.last in ("{", ",") and self.open[-1] == "{" and _COLON.match(self.text, self.tokens.end):
            return self._scalar(lexeme)
        return self._scalar(_WORDS[lexeme]) if lexeme in _WORDS else self._hole()

    def _scalar(self, value: Any) -> bool:
        """Two scalars side by side are a missing comma only if the second is a key; else they are an expression."""
        if self.last.startswith(('"', "}", "]")) and not _COLON.match(self.text, self.tokens.end):
            return self._hole()
        self.tokens.marks.append(f'"{len(self.tokens.scalars)}"')
        self.tokens.scalars.append(value)
        return True

    def _hole(self) -> bool:
        """Keeps the place of what cannot be read; gives up where nothing before it says that this is JSON."""
        tokens, marks = self.tokens, self.tokens.marks
        tokens.faithful = False
        in_list = marks[0] == "[" and (marks[1:2] != ["{"] or len(marks) < 3)
        if in_list or (len(marks) == 1 and self.text[tokens.end : tokens.end + 1] not in ('"', "'", "”")):
            tokens.is_json, tokens.end = False, self.start + 1
            return False
        if not self.last.startswith('"'):
            tokens.marks.append('"?"')
        return True
