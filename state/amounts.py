"""Amounts of the ledger as people write them: “extend rounds 5”, “cost_usd=0.5”, `{"rounds": 5}`, `5`."""

import math
import re
from collections.abc import Mapping
from typing import Any

from state.ledger import KEYS

FRACTIONS = ("cost_usd", "active_seconds")
ALIASES = {"round": "rounds", "usd": "cost_usd", "seconds": "active_seconds"}
FILLER = frozenset(["extend", "by", "with", "for", "more", "and", "of", "the", "to", "plus", "=", ":", ","])
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
TOKEN = re.compile(r"[=:,]|\d+(?:\.\d+)?(?![\w.])|[^\s=:,]+")


def read_amounts(value: Any, pending: Mapping[str, Any]) -> dict[str, float] | str:
    """Positive amounts by ledger key, or a sentence why not. A bare number is for the exhausted key."""
    if value is True:
        return dict(pending.get("suggested") or {}) or "no amount is suggested: say how much"
    if isinstance(value, Mapping):
        return _checked(list(value.items()))
    exhausted = pending.get("exhausted") or []
    default = exhausted if isinstance(exhausted, str) else exhausted[0] if len(exhausted) == 1 else None
    pairs = _pairs(str(value), default)
    return pairs if isinstance(pairs, str) else _checked(pairs)


def _pairs(text: str, default: str | None) -> list[tuple[str, Any]] | str:
    """(key, number) in either order; a number alone belongs to the exhausted key."""
    plain = THOUSANDS.sub("", text.casefold().replace("$", " "))
    words = [word for word in TOKEN.findall(plain) if word not in FILLER]
    names = [word for word in words if not word[0].isdigit()]
    numbers = [float(word) for word in words if re.fullmatch(r"\d+(?:\.\d+)?", word)]
    if len(words) != len(names) + len(numbers) or not numbers:
        return f"“{text[:80]}” says no amount"
    if not names and len(numbers) == 1:
        return [(default, numbers[0])] if default else f"say of what: {', '.join(KEYS)}"
    if len(names) != len(numbers):
        return f"“{text[:80]}” does not pair names with amounts"
    return list(zip(names, numbers, strict=True))


def _checked(pairs: list[tuple[Any, Any]]) -> dict[str, float] | str:
    amounts: dict[str, float] = {}
    for name, amount in pairs:
        key = ALIASES.get(name, name) if isinstance(name, str) else None
        if key not in KEYS:
            return f"“{str(name)[:80]}” is no limit; there are {', '.join(KEYS)}"
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount < math.inf:
            return f"{key} must be extended by a positive number"
        if key not in FRACTIONS and amount != int(amount):
            return f"{key} must be extended by a whole number"
        amounts[key] = amount if key in FRACTIONS else int(amount)
    return amounts or "no amount was given"
