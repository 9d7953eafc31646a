"""Strings as models write them: their end, their value, and whether they include the next value."""

import json
import re
from dataclasses import dataclass

from donewhen.state.pattern import pattern

_TO_QUOTE = {quote: re.compile(rf"[^{quote}\\]*+(?:\\.[^{quote}\\]*+)*+", re.DOTALL) for quote in "\"'”"}
_ESCAPE = pattern(r'\\(x[0-9a-fA-F]{2}|.)|"', re.DOTALL)
_COMMA_AND_BREAK = pattern(r",[ \t]*+\r?\n")
_COMMA_LAST = pattern(r",[ \t]*+\r?\n\s*+\Z")


class EffortExhausted(Exception):
    """Reading the text would take too long; the model can write it again, shorter or valid."""


@dataclass(slots=True)
class Effort:
    """The remaining effort for one text, in steps of a microsecond or two, so that the result is deterministic."""

    left: int = 16_000

    def charge(self, steps: int) -> None:
        """Take off steps. Raises EffortExhausted when none are left."""
        self.left -= steps
        if self.left < 0:
            raise EffortExhausted


def has_swallowed(body: str, in_list: bool) -> bool:
    """Return whether a string may include the next value, because quotes are missing: `"a,⏎ b"`, `"a,⏎ ""key"`.

    In a list, a comma before a line break shows it; elsewhere only one at the end, because texts of several lines
    are common.
    """
    return bool((_COMMA_AND_BREAK if in_list else _COMMA_LAST).search(body))


def end_of_string(text: str, start: int, quote: str, effort: Effort) -> int:
    """Return the index of the quote that closes the string whose text begins at `start`; -1 if it does not close.

    `quote` is what opened it: a single, double, typographic or (as in Python) tripled quotation mark.
    """
    if len(quote) == 3:
        close = text.find(quote, start)
        effort.charge(((close if close > 0 else len(text)) - start) // 2048)
        return close
    quote, position = "”" if quote == "“" else quote, start
    while True:
        match = _TO_QUOTE[quote].match(text, position)
        close = match.end() if match else len(text)
        effort.charge(1 + (close - position) // 512)
        if close >= len(text) or text[close] != quote:
            return -1
        within = text[close - 1].isalnum() and text[close + 1 : close + 2].isalnum()
        if quote != "'" or not within:
            return close  # a single one between letters is an apostrophe
        position = close + 1


def unescape(body: str) -> str:
    """Return the value of a string. Raises ValueError for an ambiguous escape."""
    if "\\" not in body:
        return body
    return str(json.loads(f'"{_ESCAPE.sub(_as_json, body)}"', strict=False))


def _as_json(match: re.Match[str]) -> str:
    escape = match.group(1)
    if escape is None:
        return '\\"'
    if escape.startswith("x") and len(escape) == 3:
        return f"\\u00{escape[1:]}"
    return escape if escape in "'_`" else f"\\{escape}"
