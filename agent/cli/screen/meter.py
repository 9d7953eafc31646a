"""What was spent, in words: one line that is redrawn while a run works, and a table with everything."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from donewhen.state.language.texts import say
from donewhen.state.ledger import ESTIMATED, KEYS, UNPRICED

Spending = Mapping[str, float]
_TOKENS = ("input_tokens", "cached_tokens", "output_tokens")
_SELDOM = ("questions", "replans")
"""Always limited; on the one line only when there were any."""
NEAR = 0.8
"""The share of a limit from which on it is marked."""


@dataclass(frozen=True)
class Part:
    """One amount in words."""

    text: str
    share: float = 0.0
    """How much of its limit is spent."""
    name: str = ""
    """For the table."""

    @property
    def style(self) -> str:
        """Red when the limit is reached, yellow when it is near."""
        return "red" if self.share >= 1 else "yellow" if self.share >= NEAR else ""


def meter_text(spent: Spending, limits: Spending, dot: str = "·", language: str = "en") -> str:
    """What was spent in the end, and of how much where there is a limit, on one line; "" when nothing was."""
    parts = [part.text for part in meter_parts(spent, limits, language)]
    if spent.get(UNPRICED) and not spent.get("cost_usd") and "cost_usd" not in limits:
        parts.append(say(language, "meter", "no_price"))
    return f" {dot} ".join(parts)


def meter_parts(spent: Spending, limits: Spending, language: str = "en") -> Iterator[Part]:
    """The parts of the one line; tokens are one amount unless one of their kinds is limited.

    What a call cost is known after it, so only the end says that no price is known.
    """
    about = "~" if spent.get(ESTIMATED) else ""
    cached = f" ({_cached(spent)})" if spent.get("cached_tokens") and spent.get("input_tokens") else ""
    by_kind = any(key in limits for key in _TOKENS)
    for key in KEYS:
        amount, of = spent.get(key, 0), f"/{limits[key]:g}" if key in limits else ""
        if key in _TOKENS and not by_kind:
            total = spent.get("input_tokens", 0) + spent.get("output_tokens", 0)
            if key == "input_tokens" and total:
                yield Part(f"{about}{_short(total)} {_name('tokens', total, language)}{cached}")
        elif _shown(key, spent, limits) and (amount or key not in _SELDOM):
            name = _name(key, 2 if of else amount, language)
            text = f"{amount:g}{of} {name}"
            if key in _TOKENS:
                of = f"/{_short(limits[key])}" if of else ""
                text = f"{about}{_short(amount)}{of} {name}{cached if key == 'input_tokens' else ''}"
            elif key == "cost_usd":
                text = f"${amount:.4f}{'+?' if spent.get(UNPRICED) else ''}{of.replace('/', '/$')}"
            elif key == "active_seconds":
                text = f"{amount:.1f}{of} s"
            yield Part(text, _share(key, spent, limits))


def table(spent: Spending, limits: Spending) -> list[Part]:
    """Every amount that was spent or is limited, on a line of its own, with its name."""
    return [
        Part(_in_full(key, spent, limits), _share(key, spent, limits), _name(key, 2, "en"))
        for key in KEYS
        if _shown(key, spent, limits) or (key == "cost_usd" and spent.get(UNPRICED))
    ]


def _in_full(key: str, spent: Spending, limits: Spending) -> str:
    amount, limit = spent.get(key, 0), limits.get(key)
    if key == "cost_usd":
        if spent.get(UNPRICED) and not amount:
            return "price unknown"
        unknown = f", and {_calls(spent[UNPRICED])} of unknown price" if spent.get(UNPRICED) else ""
        return f"${amount:.4f}" + (f" of ${limit:,.2f}" if limit is not None else "") + unknown
    if key == "active_seconds":
        return f"{amount:.1f}" + (f" of {limit:g}" if limit is not None else "") + " s, without waiting for people"
    form = "g" if key in _SELDOM else ",.0f"
    text = f"{amount:{form}}" + (f" of {limit:{form}}" if limit is not None else "")
    if key != "input_tokens":
        return text
    text += f" ({_cached(spent)})" if spent.get("cached_tokens") else ""
    return text + (f", of {_calls(spent[ESTIMATED])} estimated" if spent.get(ESTIMATED) else "")


def _shown(key: str, spent: Spending, limits: Spending) -> bool:
    """Whether it has a place of its own; the cached part of the input only where it is limited."""
    return key in limits or (bool(spent.get(key)) and key != "cached_tokens")


def _name(key: str, amount: float, language: str) -> str:
    """What an amount is an amount of: one of it, or several."""
    one, _, several = say(language, "meter", key).partition("|")
    return one if amount == 1 else several or one


def _calls(count: float) -> str:
    return f"{count:g} call{'' if count == 1 else 's'}"


def _cached(spent: Spending) -> str:
    return f"{spent.get('cached_tokens', 0) / spent['input_tokens']:.0%} cached"


def _share(key: str, spent: Spending, limits: Spending) -> float:
    limit = limits.get(key)
    return 0.0 if limit is None else spent.get(key, 0) / limit if limit else 1.0


def _short(tokens: float) -> str:
    return f"{tokens / 1000:.1f}k" if tokens >= 1000 else f"{tokens:g}"
