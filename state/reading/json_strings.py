"""Strings as models write them: where one ends although its quotes were not escaped, and what it stands for."""

import json
import re
from typing import Any

from donewhen.state.reading.work import Work

# Up to the next quote that no backslash protects; possessive, so that no input makes it go back and forth.
_TO_QUOTE = {quote: re.compile(rf"[^{quote}\\]*+(?:\\.[^{quote}\\]*+)*+", re.DOTALL) for quote in "\"'”"}
_NEXT = re.compile(r"\s*+(.|\Z)", re.DOTALL)
_COMMA_AND_BREAK = re.compile(r",[ \t]*+\r?\n")
_COMMA_LAST = re.compile(r",[ \t]*+\r?\n\s*+\Z")
_ESCAPE = re.compile(r'\\(x[0-9a-fA-F]{2}|.)|"', re.DOTALL)


def end_of_string(text: str, start: int, quote: str, work: Work) -> int:
    """Index of the quote that closes the string whose text begins at `start`; -1 if it does not close.

    `quote` is what opened it: a single, double, typographic or (as in Python) tripled quotation mark.
    """
    if len(quote) == 3:
        close = text.find(quote, start)
        work.charge(((close if close > 0 else len(text)) - start) // 2048)
        return close
    quote, position = "”" if quote == "“" else quote, start
    while True:
        found = _TO_QUOTE[quote].match(text, position)
        close = found.end() if found else len(text)
        work.charge(1 + (close - position) // 512)
        if close >= len(text) or text[close] != quote:
            return -1
        if quote == "'" and text[close - 1].isalnum() and text[close + 1 : close + 2].isalnum() and close > start:
            position = close + 1
        elif quote == '"' and (quoted := _quotation(text, start, close)):
            position = quoted
        else:
            return close


def _quotation(text: str, start: int, opening: int) -> int:
    """The end of a quotation inside a string whose quotes were not escaped (`"He said "hi" to me"`), or 0.

    Only what typography makes certain: a space before, letters at both inner edges, a space or a mark behind.
    """
    before, after = text[opening - 1 : opening], text[opening + 1 : opening + 2]
    if opening == start or before not in (" ", "(") or not after.isalnum():
        return 0
    closing = text.find('"', opening + 1, opening + 200)
    if closing < 0 or "\n" in text[opening:closing] or not (text[closing - 1].isalnum() or text[closing - 1] in ".!?"):
        return 0
    follows = text[closing + 1 : closing + 2]
    lead = text[max(start, opening - 64) : opening].rstrip(" ")
    if lead.endswith("\n") or (lead.endswith(",") and follows == '"'):
        return 0  # the next item of a list after one whose closing quote was lost looks the same
    behind = _NEXT.match(text, closing + 1)
    if follows not in (" ", ",", ".", ";", "!", "?", ")", '"') or (behind and behind.group(1) == ":"):
        return 0
    return closing + 1


def swallowed(body: str, in_list: bool) -> bool:
    """Whether a string may have taken in its neighbour, whose quotes were lost or doubled: `"a,⏎ b"`, `"a,⏎ ""key"`.

    In a list a comma before a line break says so, elsewhere only one at the end: texts of several lines are common.
    """
    return bool((_COMMA_AND_BREAK if in_list else _COMMA_LAST).search(body))


def unescape(body: str, quote: str, work: Work) -> str:
    """The text that a string stands for. Raises ValueError for an escape that means nothing, or not one thing."""
    if "\\" not in body:
        return _encodable(body)
    if quote == '"':
        try:
            return _encodable(json.loads(f'"{body}"', strict=False))
        except ValueError:
            pass
    work.charge(body.count("\\"))
    return _encodable(json.loads(f'"{_ESCAPE.sub(_as_json, body)}"', strict=False))


def _as_json(match: re.Match[str]) -> str:
    escape = match.group(1)
    if escape is None:
        return '\\"'
    if escape.startswith("x") and len(escape) == 3:
        return f"\\u00{escape[1:]}"
    return escape if escape in "'_`" else f"\\{escape}"


def _encodable(value: Any) -> str:
    """The string itself. Raises ValueError for half characters (`\\ud83d` alone), which UTF-8 cannot write."""
    text = str(value)
    text.encode()
    return text
