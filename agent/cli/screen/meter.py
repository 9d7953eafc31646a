"""Spending in words: one line that is redrawn while a run works, and a table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from donewhen.state.language.texts import say
from donewhen.state.ledger import ESTIMATED, KEYS, UNPRICED

Spending = Mapping[str, float]
_TOKENS = ("input_tokens", "cached_tokens", "output_tokens")
_SELDOM = ("questions", "replans")
"""Amounts that always have a limit; the line shows them only if there are any."""
_FORMS = {
    "cost_usd": ("${:.4f}", "${:,.2f}"),
    "active_seconds": ("{:.1f}", "{:g}"),
    **dict.fromkeys(_SELDOM, ("{:g}",) * 2),
}
"""The formats of amounts in the table; the others are whole numbers."""
NEAR = 0.8
"""From this share of its limit on, an amount is yellow: a fifth is left, so there is still time to raise the limit."""


@dataclass(frozen=True)
class Part:
    """One amount in words."""

    text: str
    share: float = 0.0
    """The share of its limit that is spent."""
    name: str = ""
    """For the table."""

    @property
    def style(self) -> str:
        """Return red when the limit is reached, yellow when it is near."""
        return "red" if self.share >= 1 else "yellow" if self.share >= NEAR else ""


def meter_text(spent: Spending, limits: Spending, dot: str = "·", language: str = "en") -> str:
    """Return the spending with the limits on one line; "" if nothing was spent."""
    parts = [part.text for part in meter_parts(spent, limits, language)]
    if spent.get(UNPRICED) and not spent.get("cost_usd") and "cost_usd" not in limits:
        parts.append(say(language, "meter", "no_price"))
    return f" {dot} ".join(parts)


def meter_parts(spent: Spending, limits: Spending, language: str = "en") -> Iterator[Part]:
    """Yield the parts of the line; tokens are one amount unless one of their kinds has a limit.

    The cost of a call is known after it, so only the end says that a price is unknown.
    """
    about = "~" if spent.get(ESTIMATED) else ""
    cached = f" ({_cached_text(spent, language)})" if spent.get("cached_tokens") and spent.get("input_tokens") else ""
    by_kind = any(key in limits for key in _TOKENS)
    for key in KEYS:
        amount, of = spent.get(key, 0), f"/{limits[key]:g}" if key in limits else ""
        if key in _TOKENS and not by_kind:
            total = spent.get("input_tokens", 0) + spent.get("output_tokens", 0)
            if key == "input_tokens" and total:
                yield Part(f"{about}{_short_tokens(total)} {_unit('tokens', total, language)}{cached}")
        elif _is_shown(key, spent, limits) and (amount or key not in _SELDOM):
            name = _unit(key, 2 if of else amount, language)
            text = f"{amount:g}{of} {name}"
            if key in _TOKENS:
                of = f"/{_short_tokens(limits[key])}" if of else ""
                text = f"{about}{_short_tokens(amount)}{of} {name}{cached if key == 'input_tokens' else ''}"
            elif key == "cost_usd":
                text = f"${amount:.4f}{'+?' if spent.get(UNPRICED) else ''}{of.replace('/', '/$')}"
            elif key == "active_seconds":
                text = f"{amount:.1f}{of} s"
            yield Part(text, _share(key, spent, limits))


def table(spent: Spending, limits: Spending, language: str = "en") -> list[Part]:
    """Return every amount that was spent or has a limit, one per line, with its name."""
    return [
        Part(_in_full(key, spent, limits, language), _share(key, spent, limits), _unit(key, 2, language))
        for key in KEYS
        if _is_shown(key, spent, limits) or (key == "cost_usd" and spent.get(UNPRICED))
    ]


def _in_full(key: str, spent: Spending, limits: Spending, language: str) -> str:
    amount, show = spent.get(key, 0), partial(say, language, "show")
    form, form_of_limit = _FORMS.get(key, ("{:g}",) * 2 if key in _SELDOM else ("{:,.0f}",) * 2)
    text = form.format(amount)
    if key in limits:
        if key == "cost_usd" and round(limits[key], 2) != limits[key]:
            form_of_limit = form
        text = say(language, "budget", "of", spent=text, total=form_of_limit.format(limits[key]))
    if key == "cost_usd" and spent.get(UNPRICED):
        unpriced = show("unpriced", calls=_calls(spent[UNPRICED], language))
        return f"{text}, {unpriced}" if amount else say(language, "meter", "no_price")
    if key == "active_seconds":
        return show("seconds", amount=text)
    if key != "input_tokens":
        return text
    text += f" ({_cached_text(spent, language)})" if spent.get("cached_tokens") else ""
    calls = _calls(spent.get(ESTIMATED, 0), language)
    return text + (f", {show('estimated', calls=calls)}" if spent.get(ESTIMATED) else "")


def _is_shown(key: str, spent: Spending, limits: Spending) -> bool:
    """Return whether an amount is shown; cached input only if it has a limit."""
    return key in limits or (bool(spent.get(key)) and key != "cached_tokens")


def _unit(key: str, amount: float, language: str) -> str:
    """Return the unit of an amount, in singular or plural."""
    one, _, several = say(language, "meter", key).partition("|")
    return one if amount == 1 else several or one


def _calls(count: float, language: str) -> str:
    return f"{count:g} {_unit('model_calls', count, language)}"


def _cached_text(spent: Spending, language: str) -> str:
    return say(language, "show", "cached", share=f"{spent.get('cached_tokens', 0) / spent['input_tokens']:.0%}")


def _share(key: str, spent: Spending, limits: Spending) -> float:
    limit = limits.get(key)
    return 0.0 if limit is None else spent.get(key, 0) / limit if limit else 1.0


def _short_tokens(tokens: float) -> str:
    return f"{tokens / 1000:.1f}k" if tokens >= 1000 else f"{tokens:g}"
