"""Spending in words: one line that is redrawn while a run works, and a table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from donewhen.clients import ESTIMATED, KEYS, UNPRICED, say

Spending = Mapping[str, float]
_TOKENS = ("input_tokens", "cached_tokens", "output_tokens")
_SELDOM = ("questions", "replans")
"""Amounts that always have a limit; the line shows them only if there are any."""
_FORMS = {
    "cost_usd": ("${:.4f}", "${:,.2f}"),
    "active_seconds": ("{:.1f}", "{:g}"),
    **dict.fromkeys(_SELDOM, ("{:g}",) * 2),
}
"""The formats of amounts and of their limits in the table."""
_WHOLE = ("{:,.0f}",) * 2
"""The format of the others, which are whole numbers."""
NEAR = 0.8
"""The share of its limit from which an amount is yellow: there is still time to raise the limit."""


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


@dataclass(frozen=True)
class MeterText:
    """The spending of a run, beside its limits."""

    spent: Spending
    limits: Spending
    language: str = "en"

    def line(self, dot: str = "·") -> str:
        """Return the spending with the limits on one line; "" if nothing was spent."""
        texts = [part.text for part in self.parts()]
        if self.spent.get(UNPRICED) and not self.spent.get("cost_usd") and "cost_usd" not in self.limits:
            texts.append(say(self.language, "meter", "no_price"))
        return f" {dot} ".join(texts)

    def parts(self) -> Iterator[Part]:
        """Yield the parts of the line; tokens are one amount unless one of their kinds has a limit.

        The cost of a call is known after it, so only the end says that a price is unknown.
        """
        by_kind = any(key in self.limits for key in _TOKENS)
        for key in KEYS:
            if key in _TOKENS and not by_kind:
                total = self.spent.get("input_tokens", 0) + self.spent.get("output_tokens", 0)
                if key == "input_tokens" and total:
                    unit = self._unit("tokens", total)
                    yield Part(f"{self._about()}{_short_tokens(total)} {unit}{self._cached()}")
            elif self._is_shown(key) and (self.spent.get(key) or key not in _SELDOM):
                yield Part(self._in_short(key), self._share(key))

    def rows(self) -> list[Part]:
        """Return every amount that was spent or has a limit, one per line, with its name."""
        return [
            Part(self._in_full(key), self._share(key), self._unit(key, 2))
            for key in KEYS
            if self._is_shown(key) or (key == "cost_usd" and self.spent.get(UNPRICED))
        ]

    def _in_short(self, key: str) -> str:
        amount, limit = self.spent.get(key, 0), self.limits.get(key)
        of = "" if limit is None else f"/{limit:g}"
        unit = self._unit(key, amount if limit is None else 2)
        if key in _TOKENS:
            of = "" if limit is None else f"/{_short_tokens(limit)}"
            cached = self._cached() if key == "input_tokens" else ""
            return f"{self._about()}{_short_tokens(amount)}{of} {unit}{cached}"
        if key == "cost_usd":
            return f"${amount:.4f}{'+?' if self.spent.get(UNPRICED) else ''}{of.replace('/', '/$')}"
        if key == "active_seconds":
            return f"{amount:.1f}{of} s"
        return f"{amount:g}{of} {unit}"

    def _in_full(self, key: str) -> str:
        amount, limit = self.spent.get(key, 0), self.limits.get(key)
        form, form_of_limit = _FORMS.get(key, _WHOLE)
        text = form.format(amount)
        if limit is not None:
            if key == "cost_usd" and round(limit, 2) != limit:
                form_of_limit = form
            text = say(self.language, "budget", "of", spent=text, total=form_of_limit.format(limit))
        if key == "cost_usd" and self.spent.get(UNPRICED):
            unpriced = self._say("unpriced", calls=self._calls(self.spent[UNPRICED]))
            return f"{text}, {unpriced}" if amount else say(self.language, "meter", "no_price")
        if key == "active_seconds":
            return self._say("seconds", amount=text)
        if key != "input_tokens":
            return text
        estimated = self.spent.get(ESTIMATED)
        guess = f", {self._say('estimated', calls=self._calls(estimated))}" if estimated else ""
        return f"{text}{self._cached()}{guess}"

    def _is_shown(self, key: str) -> bool:
        """Return whether an amount is shown; cached input only if it has a limit."""
        return key in self.limits or (bool(self.spent.get(key)) and key != "cached_tokens")

    def _share(self, key: str) -> float:
        limit = self.limits.get(key)
        return 0.0 if limit is None else self.spent.get(key, 0) / limit if limit else 1.0

    def _unit(self, key: str, amount: float) -> str:
        """Return the unit of an amount, in singular or plural."""
        one, _, several = say(self.language, "meter", key).partition("|")
        return one if amount == 1 else several or one

    def _calls(self, count: float) -> str:
        return f"{count:g} {self._unit('model_calls', count)}"

    def _cached(self) -> str:
        """Return in brackets how much of the input was cached; "" if nothing was."""
        cached, total = self.spent.get("cached_tokens"), self.spent.get("input_tokens")
        return f" ({self._say('cached', share=f'{cached / total:.0%}')})" if cached and total else ""

    def _about(self) -> str:
        return "~" if self.spent.get(ESTIMATED) else ""

    def _say(self, key: str, **values: str) -> str:
        return say(self.language, "show", key, **values)


def _short_tokens(tokens: float) -> str:
    return f"{tokens / 1000:.1f}k" if tokens >= 1000 else f"{tokens:g}"
