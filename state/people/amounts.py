"""Amounts of the ledger in the forms people read and write: “2 model calls”, `rounds 5`, `{"rounds": 5}`, `5`."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from donewhen.state.language.texts import LANGUAGES, Unclear, catalogue, options_of, say, unclear
from donewhen.state.ledger import KEYS, MeterRow
from donewhen.state.pattern import pattern

MOST = 2**53
"""Amounts are less than this, so that they are whole numbers in JSON, and fit into a checkpoint."""
FRACTIONS = ("cost_usd", "active_seconds")
NUMBER = pattern(r"[0-9]+|0\.[0-9]+|[0-9]+\.[0-9]{1,2}")
"""A number with the same value in every country; in “1.000” the point may separate thousands."""
MONEY = pattern(r"\A(?:\$\s*(\S+)|(\S+?)\s*\$)")
PAIR = pattern(
    r"\A(?:(?P<name>\S.*?)\s*[=:\s]\s*(?P<amount>[0-9]\S*)|(?P<first>[0-9][0-9.]*)\s*(?P<second>[^\s0-9.%].*))"
)


def format_count(number: float, noun: str) -> str:
    """Return a number of things in words: `1 round`, `2 unusable replies`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("ply") else f"{noun}s"
    return f"{format_number(number)} {noun if number == 1 else plural}"


def format_amount(key: str, amount: float, language: str = "en") -> str:
    """Return an amount of the ledger in words: `$0.5`, `1 model call`, `5 rounds`."""
    if key == "cost_usd":
        return f"${format_number(amount)}"
    if language == "en":
        return format_count(amount, key.removesuffix("s").replace("_", " "))
    return f"{format_number(amount)} {say(language, 'amounts', key)}"


def format_number(amount: float) -> str:
    """Return a number without exponent and superfluous digits."""
    return f"{amount:,.4f}".rstrip("0").rstrip(".")


def example_amount(key: str, amount: float, language: str = "en") -> str:
    """Return an amount as a person may write it, which is without separators: `rounds 1500`, `$0.5`."""
    number = format_number(amount).replace(",", "")
    return f"${number}" if key == "cost_usd" else f"{say(language, 'amounts', key)} {number}"


def read_amounts(value: Any, suggested: Mapping[str, float], exhausted: Sequence[str]) -> dict[str, float] | Unclear:
    """Return positive amounts by ledger key, or why they are invalid.

    A bare number is for the only exhausted key. True agrees to what was `suggested`.
    """
    if value is True:
        return dict(suggested) or unclear("how_much")
    if isinstance(value, Mapping):
        return _check_amounts(list(value.items()))
    pairs = _split_amounts(str(value), exhausted[0] if len(exhausted) == 1 else None)
    return pairs if isinstance(pairs, Unclear) else _check_amounts(pairs)


def lifts_limit(
    amounts: Mapping[str, float], meter: Iterable[MeterRow], exhausted: Sequence[str], reserve: Mapping[str, float]
) -> bool:
    """Return whether an extension by these amounts lifts one of the exhausted limits. The `reserve` cannot be used."""
    over = {row["key"]: row["spent"] + reserve.get(row["key"], 0) - (row["limit"] or 0) for row in meter}
    return not exhausted or any(amounts.get(key, 0) > max(over.get(key, 0), 0) for key in exhausted)


def _split_amounts(text: str, default: str | None) -> list[tuple[str, Any]] | Unclear:
    """Return (name, number) for each part between commas, written in either order; a bare number is for `default`."""
    folded = _strip_extend(unicodedata.normalize("NFKC", text).casefold().strip())
    if NUMBER.fullmatch(folded):
        return [(default, float(folded))] if default else unclear("of_what", keys=", ".join(KEYS))
    pairs = []
    for part in re.split(r"[,;\n]", folded):
        money, pair = MONEY.fullmatch(part.strip()), PAIR.fullmatch(part.strip())
        name = "cost_usd" if money else (pair["name"] or pair["second"]) if pair else ""
        amount = (money[1] or money[2]) if money else (pair["amount"] or pair["first"]) if pair else ""
        if not name or not NUMBER.fullmatch(amount):
            return unclear("no_amount", text)
        pairs.append((name.strip(), float(amount)))
    return pairs


def _strip_extend(text: str) -> str:
    """Return the text without the option's word at its beginning."""
    words = (word for word, key in options_of("budget").items() if key == "extend")
    prefix = next((word for word in words if text.startswith(f"{word} ")), "")
    return text.removeprefix(prefix).strip()


@cache
def _ledger_names() -> dict[str, str]:
    """Return the ledger keys by the names of amounts in every language."""
    shown = [catalogue(language)["amounts"].items() for language in LANGUAGES]
    by_name = {name.casefold(): key for names in shown for key, name in names}
    singular = {key.removesuffix("s").replace("_", " "): key for key in KEYS}
    return {**by_name, **singular, **{key.replace("_", " "): key for key in KEYS}, **{key: key for key in KEYS}}


def _check_amounts(pairs: list[tuple[Any, Any]], positive: bool = True) -> dict[str, float] | Unclear:
    amounts: dict[str, float] = {}
    for name, amount in pairs:
        key = _ledger_names().get(name.casefold(), name) if isinstance(name, str) else None
        if key not in KEYS:
            return unclear("no_limit", str(name), keys=", ".join(KEYS))
        number = isinstance(amount, int | float) and not isinstance(amount, bool) and 0 <= amount < MOST
        if not number or (positive and not amount):
            return unclear("positive" if positive else "number", limit=key)
        if key not in FRACTIONS and amount != int(amount):
            return unclear("whole", limit=key)
        amounts[key] = amount if key in FRACTIONS else int(amount)
    return amounts or unclear("none_given")


def read_limits(value: Any) -> dict[str, float] | Unclear:
    """Return limits by ledger key from a mapping, or why they are invalid."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        return unclear("none_given")
    set_limits = [(key, amount) for key, amount in value.items() if amount is not None]
    return _check_amounts(set_limits, positive=False) if set_limits else {}
