"""The spend meter: what was spent, of how much, as one line and as a table. Amounts in, words out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from donewhen.state.ledger import ESTIMATED, UNPRICED

Amounts = Mapping[str, float]
COUNTED = {"rounds": "rounds", "model_calls": "model calls", "tool_calls": "tool calls"}
SELDOM = {"questions": "questions", "replans": "replans"}
"""Always limited; on the one line only when there were any."""
TOKENS = {"input_tokens": "tokens in", "cached_tokens": "tokens from cache", "output_tokens": "tokens out"}
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


def meter_text(spent: Amounts, limits: Amounts, dot: str = "·") -> str:
    """What was spent, and of how much where there is a limit, on one line; "" when nothing was."""
    return f" {dot} ".join(part.text for part in meter_parts(spent, limits))


def meter_parts(spent: Amounts, limits: Amounts) -> Iterator[Part]:
    """The parts of the one line."""
    for key, name in COUNTED.items():
        if spent.get(key) or key in limits:
            yield Part(f"{_of(key, spent, limits)} {_named(key, name, spent, limits)}", _share(key, spent, limits))
    yield from _tokens(spent, limits)
    yield from _money(spent, limits)
    if spent.get("active_seconds") or "active_seconds" in limits:
        of = f"/{limits['active_seconds']:g}" if "active_seconds" in limits else ""
        text = f"{spent.get('active_seconds', 0):.1f}{of} s"
        yield Part(text, _share("active_seconds", spent, limits))
    for key, name in SELDOM.items():
        if spent.get(key):
            yield Part(f"{_of(key, spent, limits)} {_named(key, name, spent, limits)}", _share(key, spent, limits))


def _shown(key: str, spent: Amounts, limits: Amounts) -> bool:
    """Whether it has a place of its own; the cached part of the input only where it is limited."""
    return key in limits or (bool(spent.get(key)) and key != "cached_tokens")


def _named(key: str, name: str, spent: Amounts, limits: Amounts) -> str:
    return name[:-1] if spent.get(key) == 1 and key not in limits else name


def table(spent: Amounts, limits: Amounts) -> list[Part]:
    """Every amount that was spent or is limited, on a line of its own, with its name."""
    rows = []
    for key, name in {**COUNTED, **TOKENS}.items():
        if _shown(key, spent, limits):
            said = f"{spent.get(key, 0):,.0f}" + (f" of {limits[key]:,.0f}" if key in limits else "")
            rows.append(Part(said + _remark(key, spent), _share(key, spent, limits), name))
    if spent.get("cost_usd") or "cost_usd" in limits or spent.get(UNPRICED):
        said = f"${spent.get('cost_usd', 0):.4f}" + (f" of ${limits['cost_usd']:,.2f}" if "cost_usd" in limits else "")
        unknown = spent.get(UNPRICED, 0) and not spent.get("cost_usd")
        text = "price unknown" if unknown else said + _remark("cost_usd", spent)
        rows.append(Part(text, _share("cost_usd", spent, limits), "money"))
    if spent.get("active_seconds") or "active_seconds" in limits:
        of = f" of {limits['active_seconds']:g}" if "active_seconds" in limits else ""
        text = f"{spent.get('active_seconds', 0):.1f}{of} s, without waiting for people"
        rows.append(Part(text, _share("active_seconds", spent, limits), "time"))
    for key, name in SELDOM.items():
        if _shown(key, spent, limits):
            rows.append(Part(_of(key, spent, limits).replace("/", " of "), _share(key, spent, limits), name))
    return rows


def _remark(key: str, spent: Amounts) -> str:
    if key == "input_tokens" and spent.get("cached_tokens"):
        return f" ({_cached(spent)})" + _estimate(spent)
    if key == "input_tokens":
        return _estimate(spent)
    if key == "cost_usd" and spent.get(UNPRICED):
        return f", and {_calls(spent[UNPRICED])} of unknown price"
    return ""


def _estimate(spent: Amounts) -> str:
    return f", of {_calls(spent[ESTIMATED])} estimated" if spent.get(ESTIMATED) else ""


def _calls(count: float) -> str:
    return f"{count:g} call{'' if count == 1 else 's'}"


def _cached(spent: Amounts) -> str:
    return f"{spent.get('cached_tokens', 0) / spent['input_tokens']:.0%} cached"


def _tokens(spent: Amounts, limits: Amounts) -> Iterator[Part]:
    about = "~" if spent.get(ESTIMATED) else ""
    cached = f" ({_cached(spent)})" if spent.get("cached_tokens") and spent.get("input_tokens") else ""
    if any(key in limits for key in TOKENS):
        for key in TOKENS:
            if _shown(key, spent, limits):
                of = f"/{_short(limits[key])}" if key in limits else ""
                text = f"{about}{_short(spent.get(key, 0))}{of} {TOKENS[key]}"
                yield Part(text + (cached if key == "input_tokens" else ""), _share(key, spent, limits))
    elif total := spent.get("input_tokens", 0) + spent.get("output_tokens", 0):
        yield Part(f"{about}{_short(total)} token{'' if total == 1 else 's'}{cached}")


def _money(spent: Amounts, limits: Amounts) -> Iterator[Part]:
    if spent.get(UNPRICED) and not spent.get("cost_usd") and "cost_usd" not in limits:
        yield Part("price unknown")
    elif spent.get("cost_usd") or "cost_usd" in limits:
        of = f"/${limits['cost_usd']:g}" if "cost_usd" in limits else ""
        more = "+?" if spent.get(UNPRICED) else ""
        yield Part(f"${spent.get('cost_usd', 0):.4f}{more}{of}", _share("cost_usd", spent, limits))


def _of(key: str, spent: Amounts, limits: Amounts) -> str:
    return f"{spent.get(key, 0):g}" + (f"/{limits[key]:g}" if key in limits else "")


def _share(key: str, spent: Amounts, limits: Amounts) -> float:
    limit = limits.get(key)
    return 0.0 if limit is None else spent.get(key, 0) / limit if limit else 1.0


def _short(tokens: float) -> str:
    return f"{tokens / 1000:.1f}k" if tokens >= 1000 else f"{tokens:g}"
