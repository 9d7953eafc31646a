"""Amounts of the ledger as people read and write them: “2 model calls”, “extend rounds 5”, `{"rounds": 5}`, `5`."""

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from donewhen.state.language.texts import LANGUAGES, Unclear, catalogue, say, unclear
from donewhen.state.ledger import KEYS
from donewhen.state.pattern import pattern
from donewhen.state.records import Pause

FRACTIONS = ("cost_usd", "active_seconds")
ALIASES = {"usd": "cost_usd", "dollars": "cost_usd", "costs": "cost_usd", "seconds": "active_seconds"}
FILLER = frozenset([
    "extend", "by", "with", "for", "more", "and", "of", "the", "to", "plus", "=", ":", ",", "und", "et", "y",
    "和", "と", "、", "：",
])  # fmt: skip
AT_MOST = pattern(
    r"\b(?:(?:no|not) more than|at most|up to|max(?:imum|imal)?\.?|only|höchstens|nicht mehr als|nur"
    r"|au (?:plus|maximum)|pas plus de|como máximo|no más de|solo)(?=\s|$)|最多|不超过|上限は?|最大"
)
"""Words of a limit that say no more than that it is one."""
THOUSANDS = pattern(r"(?<=\d),(?=\d{3}(?!\d))")
COMMA = pattern(r"(?<=\d),(?=\d{1,2}(?!\d))")
MONEY = pattern(r"(?:us)?\$\s*(\d+(?:\.\d+)?)|(\d+(?:\.\d+)?)\s*\$")
TWO_WORDS = pattern(rf"\b({'|'.join(key.split('_')[0] for key in KEYS if '_' in key)})[ _-](?=[a-z])")
TOKEN = pattern(r"[=:,]|\d+(?:\.\d+)?(?![\w.])|[^\s=:,]+")


def counted(number: float, noun: str) -> str:
    """A number of things in words: `1 round`, `2 unusable replies`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("ply") else f"{noun}s"
    return f"{figure(number)} {noun if number == 1 else plural}"


def amount_of(key: str, amount: float, language: str = "en") -> str:
    """An amount of the ledger in words: `$0.5`, `1 model call`, `5 rounds`."""
    if key == "cost_usd":
        return f"${figure(amount)}"
    if language == "en":
        return counted(amount, key.removesuffix("s").replace("_", " "))
    return f"{figure(amount)} {say(language, 'amounts', key)}"


def figure(amount: float) -> str:
    """A number as people write it: no exponent, no more digits than it has to have."""
    return f"{amount:,.4f}".rstrip("0").rstrip(".")


def read_amounts(value: Any, pending: Pause) -> dict[str, float] | Unclear:
    """Positive amounts by ledger key, or why there are none. A bare number is for the exhausted key."""
    if value is True:
        return dict(pending.get("suggested") or {}) or unclear("how_much")
    if isinstance(value, Mapping):
        return _checked(list(value.items()))
    exhausted = pending.get("exhausted") or []
    default = exhausted if isinstance(exhausted, str) else exhausted[0] if len(exhausted) == 1 else None
    pairs = _pairs(str(value), default)
    return pairs if isinstance(pairs, Unclear) else _checked(pairs)


def _pairs(text: str, default: str | None) -> list[tuple[str, Any]] | Unclear:
    """(key, number) in either order; a number alone belongs to the exhausted key."""
    folded = _in_english(AT_MOST.sub(" ", COMMA.sub(".", THOUSANDS.sub("", text.casefold()))))
    named = re.search("usd|dollar|cost", folded)
    money = MONEY.sub(lambda found: f" {found[1] or found[2]} {'' if named else 'cost_usd'} ", folded)
    plain = TWO_WORDS.sub(r"\1_", money)
    words = [word for word in TOKEN.findall(plain) if word not in FILLER]
    names = [word for word in words if not word[0].isdigit()]
    numbers = [float(word) for word in words if re.fullmatch(r"\d+(?:\.\d+)?", word)]
    if len(words) != len(names) + len(numbers) or not numbers:
        return unclear("no_amount", text)
    if not names and len(numbers) == 1:
        return [(default, numbers[0])] if default else unclear("of_what", keys=", ".join(KEYS))
    if len(names) != len(numbers):
        return unclear("unpaired", text)
    return list(zip(names, numbers, strict=True))


def _in_english(text: str) -> str:
    """The text with the names of amounts in any language as keys of the ledger."""
    for name, key in _named():
        text = re.sub(rf"(?<![a-zà-ÿ]){re.escape(name)}(?![a-zà-ÿ])", f" {key} ", text)
    return text


@cache
def _named() -> list[tuple[str, str]]:
    """Names of amounts in the other languages and their keys, the longest names first."""
    names = {
        name.casefold(): key
        for language in LANGUAGES
        if language != "en"
        for section in ("amounts", "meter")
        for key, said in catalogue(language)[section].items()
        if key in KEYS
        for name in said.split("|")
    }
    return sorted(names.items(), key=lambda pair: -len(pair[0]))


def _checked(pairs: list[tuple[Any, Any]], positive: bool = True) -> dict[str, float] | Unclear:
    amounts: dict[str, float] = {}
    for name, amount in pairs:
        key = _key(name) if isinstance(name, str) else None
        if key not in KEYS:
            return unclear("no_limit", str(name), keys=", ".join(KEYS))
        number = isinstance(amount, int | float) and not isinstance(amount, bool) and 0 <= amount < math.inf
        if not number or (positive and not amount):
            return unclear("positive" if positive else "number", limit=key)
        if key not in FRACTIONS and amount != int(amount):
            return unclear("whole", limit=key)
        amounts[key] = amount if key in FRACTIONS else int(amount)
    return amounts or unclear("none_given")


def _key(name: str) -> str:
    plural = name if name.endswith("s") or name in KEYS else f"{name}s"
    return ALIASES.get(name) or ALIASES.get(plural) or plural


def read_limits(value: Any) -> dict[str, float] | Unclear:
    """Limits by ledger key, from a mapping or from a text like “rounds 40, cost_usd 0.5”; or why there are none."""
    if not value:
        return {}
    pairs = list(value.items()) if isinstance(value, Mapping) else _pairs(str(value), None)
    if isinstance(pairs, Unclear):
        return pairs
    known = [(key, amount) for key, amount in pairs if amount is not None]
    return _checked(known, positive=False) if known else {}
