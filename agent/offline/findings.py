"""What a look-up found: a text made of tool output, and proofs: observations with words that stand in them."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from donewhen.agent.offline.reading import LEFT_OUT, Reply
from donewhen.agent.offline.words import pick, spaced

MOST_QUOTES = 5
QUOTE_CHARS = 300
Proof = dict[str, str]


@dataclass(frozen=True)
class Finding:
    """A result in words, and what proves it."""

    text: str
    proofs: tuple[Proof, ...]


def proofs(reply: Reply, quotes: Iterable[str]) -> list[Proof]:
    """Citations of an observation: with the quotes that stand in it, or bare if none does."""
    parts = LEFT_OUT.split(reply.text) if reply.bounded else [reply.text]
    good = [q.strip() for q in quotes if q.strip() and any(q.strip() in part for part in parts)]
    cited = list(dict.fromkeys(q for q in good if len(q) <= QUOTE_CHARS))[:MOST_QUOTES]
    return [{"observation": reply.id, "quote": quote} for quote in cited] or [{"observation": reply.id}]


def pair(text: str, key: str) -> str:
    """`"count": 4` as it is written in JSON text; "" where it is not there."""
    found = re.search(rf'"{key}"\s*:\s*("(?:[^"\\]|\\.)*"|[-\w.+]+)', text)
    return found[0] if found else ""


def value(text: str, key: str) -> str:
    """The value of the first such key in JSON text, as written."""
    found = pair(text, key).partition(":")[2].strip()
    return str(json.loads(found)) if found.startswith('"') else found


def objects(text: str, first_key: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The JSON objects that begin with this key, also of a text cut in the middle: with numbers as written, and raw."""
    decoder = json.JSONDecoder(parse_float=str, parse_int=str)
    for start in re.finditer(rf'\{{\s*"{first_key}"', text):
        try:
            found, end = decoder.raw_decode(text, start.start())
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found, text[start.start() : end]


def listing(items: Sequence[str], most: int, chinese: bool, total: int | None = None) -> str:
    """A list in Markdown: the first `most` items, and how many there are besides, of `total`."""
    lines = [f"- {item}" for item in items[:most]]
    if more := (len(items) if total is None else total) - len(lines):
        lines.append(pick(chinese, f"- and {more} more", f"- 以及另外 {more} 个"))
    return "\n".join(lines)


def sentence(chinese: bool, english: str, zh: str) -> str:
    """A line of a result in the user's language."""
    return "\n".join(map(spaced, zh.splitlines())) if chinese else english


def figure(number: str, *, exact: bool = False) -> str:
    """A number as a person writes it: without the `.0` of a float that is whole; four decimals unless `exact`."""
    if not exact and re.fullmatch(r"-?\d+\.\d{5,}", number):
        number = f"{float(number):.4f}".rstrip("0")
    return number.removesuffix(".0") if re.fullmatch(r"-?\d+\.0", number) else number.removesuffix(".")
