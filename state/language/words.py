"""Words by which people say yes, no, cancel and later, in the languages they write (`words.toml`).

A text counts only if all of it is such words and courtesy: “Yes, please” consents, “I know” and “Yes, but …” do not.
"""

import re
import unicodedata
from functools import cache
from importlib.resources import files
from typing import Literal, cast

from donewhen.state.pattern import pattern

Word = Literal["yes", "no", "cancel", "enough", "later", "unsure"]

LONGEST_PHRASE = 20
LONGEST = 60
"""Tokens of a text that may be nothing but such words."""
_PARTS = pattern(r"[,.;:!…،؛।。、，！；：|\n]+|(?<=\s)[-–—]+(?=\s)|\s*[–—]+\s*")
_ASKED = pattern(r"[?？؟]")
_SPACELESS = pattern(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_TOKEN = pattern(rf"{_SPACELESS.pattern}|(?:(?!{_SPACELESS.pattern})\S)+")
_UNSEEN = pattern("[\u200b-\u200f\u202a-\u202e\u2060\ufe0e\ufe0f\ufeff\U0001f3fb-\U0001f3ff]")


def plain(text: str) -> str:
    """Text folded for comparing with a word: width, case, outer blanks, quotes and full stops. Never "?"."""
    folded = " ".join(unicodedata.normalize("NFKC", text).replace("’", "'").casefold().split())
    return folded.strip(" .!,;:。、\"'`*_“”‘")


def word(text: str) -> Word | None:
    """What a text says if it says nothing but that; None for every other text, a question, or both yes and no."""
    if _ASKED.search(text):
        return None
    said = {_meaning(part) for part in _parts(text)} - {"polite"}
    if len(said) > 1 and said <= {"no", "enough", "cancel", "later"}:
        said = {next(each for each in ("cancel", "later", "enough") if each in said)}
    return cast("Word", said.pop()) if len(said) == 1 and None not in said else None


def opening(text: str) -> Word | None:
    """What a longer text begins with, set off from the rest: “No, use the other file” begins with no."""
    parts = _parts(text)
    said = _meaning(parts[0]) if len(parts) > 1 else None
    return None if said == "polite" else cast("Word | None", said)


def only_words(text: str) -> bool:
    """Whether a text is made of such words alone, though they may contradict each other: “yes no”, “don't stop”."""
    return all(_covered(part) is not None for part in _parts(text))


def begins_with_no(text: str) -> bool:
    """Whether a text begins by refusing, set off or not: “no, use b.txt”, “don't send that”, “不要发”."""
    parts = _parts(text)
    return bool(parts) and _first(_tokens(parts[0])) == "no"


def refuses(text: str) -> bool:
    """Whether any word of a text refuses something, so that nobody should take it for an order."""
    folded = _folded(text)
    tokens = re.split(r"[^\w'\-\u0300-\u036f\u0900-\u0dff]+", folded)
    refusing = _data()["refusing"]
    return not set(refusing["words"]).isdisjoint(tokens) or any(sign in folded for sign in refusing["signs"])


def substance(text: str) -> bool:
    """Whether a text says enough to plan by: two words, or three signs where signs are words; courtesy aside."""
    tokens = [token for part in _parts(text) for token in _tokens(part) if any(c.isalnum() for c in token)]
    said = [token for token in tokens if _lexicon().get((token,)) != "polite"]
    spaceless = sum(bool(_SPACELESS.match(token)) for token in said)
    return len(said) - spaceless + spaceless / 1.5 >= 2


def _folded(text: str) -> str:
    return _UNSEEN.sub("", unicodedata.normalize("NFKC", text).replace("’", "'").replace("‘", "'").casefold())


def _parts(text: str) -> list[str]:
    parts = (part.strip(" \t\"'`*_“”()[]/<>~") for part in _PARTS.split(_folded(text)))
    return [part for part in parts if part]


def _tokens(text: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(text))


@cache
def _data() -> dict[str, dict[str, list[str]]]:
    """Language → what is said → phrases; under `refusing`, words and signs."""
    import tomllib

    read = tomllib.loads((files("donewhen.state.language") / "words.toml").read_text("utf-8"))
    return {
        name: {
            group: [_folded(" ".join(phrase.split())) for phrase in text.split("|")] for group, text in groups.items()
        }
        for name, groups in read.items()
    }


@cache
def _lexicon() -> dict[tuple[str, ...], str]:
    """Phrase → what it says. What is courtesy in one language and a word in another is the word."""
    found: dict[tuple[str, ...], str] = {}
    for group in ("polite", "unsure", "yes", "later", "enough", "cancel", "no"):
        for groups in _data().values():
            found.update((_tokens(phrase), group) for phrase in groups.get(group, ()))
    return found


def _meaning(part: str) -> str | None:
    """What the known phrases say that make up all of a part, the longest first; None if they do not, or not one thing.

    “don't stop” is made of a no and a cancel, and means neither.
    """
    if (found := _covered(part)) is None:
        return None
    said = found - {"polite"}
    return said.pop() if len(said) == 1 else None if said else "polite"


def _covered(part: str) -> set[str] | None:
    tokens, found = _tokens(part), set[str]()
    if len(tokens) > LONGEST:
        return None
    while tokens:
        if not (length := _length(tokens)):
            return None
        found.add(_lexicon()[tokens[:length]])
        tokens = tokens[length:]
    return found


def _first(tokens: tuple[str, ...]) -> str | None:
    """What the first known phrase says that is more than courtesy."""
    while tokens and (length := _length(tokens)):
        if (said := _lexicon()[tokens[:length]]) != "polite":
            return said
        tokens = tokens[length:]
    return None


def _length(tokens: tuple[str, ...]) -> int:
    return next((n for n in range(min(len(tokens), LONGEST_PHRASE), 0, -1) if tokens[:n] in _lexicon()), 0)
