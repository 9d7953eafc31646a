"""The cost of calls in US dollars, by the user's own prices or the list of genai_prices."""

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from donewhen.agent.models import Price, is_provider
from donewhen.state.errors import ConfigError
from donewhen.state.ledger import CACHE_WRITES

if TYPE_CHECKING:
    from genai_prices import Usage

_MILLION = 1_000_000
_FREE = frozenset({"demo", "DemoModel"})
_DATE = re.compile(r"-20\d\d-?\d\d-?\d\d$")
_BEDROCK = re.compile(r"-v\d+:\d+$")
_RATES = frozenset({"input", "cached", "cache_write", "output"})
_CACHE_WRITE = 1.25
"""The usual price of cache writes, relative to input."""
# LangChain's names of providers, where the price list calls them otherwise.
_PROVIDERS = {
    "azure_openai": "azure",
    "azure_ai": "azure",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "google_genai": "google",
    "google_vertexai": "google",
    "google_anthropic_vertex": "google",
    "mistralai": "mistral",
    "xai": "x-ai",
}


class Prices:
    """Prices of models. `own` maps a model's name to its Price.

    A name may have its provider (`openai:gpt-5-mini`) or a date; an own price for the bare name covers these too.
    Never uses the network. Raises ConfigError for an invalid rate.
    """

    def __init__(self, own: Mapping[str, Price] | None = None) -> None:
        checked = {name: _check_price(name, rates) for name, rates in (own or {}).items()}
        # Models report their names without the provider: `openai:gpt-5-mini` reports `gpt-5-mini`.
        bare = {name.partition(":")[2]: rates for name, rates in checked.items() if is_provider(name.partition(":")[0])}
        self._own = {**bare, **checked}

    def cost(self, model: str, usage: Mapping[str, float]) -> float | None:
        """Return US dollars for `usage` (ledger keys), or None if the price is unknown; the demo model costs 0.0."""
        tokens_in = max(0.0, usage.get("input_tokens", 0))
        cache_reads = min(max(0.0, usage.get("cached_tokens", 0)), tokens_in)
        cache_writes = min(max(0.0, usage.get(CACHE_WRITES, 0)), tokens_in - cache_reads)
        tokens_out = max(0.0, usage.get("output_tokens", 0))
        model = model.removeprefix("models/")  # Google's own way of writing names
        provider, _, bare = model.rpartition(":")
        undated = _DATE.sub("", bare)
        if rates := self._own.get(model) or self._own.get(bare) or self._own.get(undated):
            fresh = rates["input"]
            cost = (tokens_in - cache_reads - cache_writes) * fresh + tokens_out * rates["output"]
            cost += cache_reads * rates.get("cached", fresh)
            cost += cache_writes * rates.get("cache_write", fresh * _CACHE_WRITE)
            return cost / _MILLION
        if bare in _FREE:
            return 0.0
        from genai_prices import Usage

        names = [(bare, provider), (model, "")] + ([(model, "aws")] if _BEDROCK.search(model) else [])
        listed_usage = Usage(
            input_tokens=int(tokens_in),
            cache_read_tokens=int(cache_reads),
            cache_write_tokens=int(cache_writes),
            output_tokens=int(tokens_out),
        )
        costs = (_listed_cost(name, whose, listed_usage) for name, whose in dict.fromkeys(names))
        return next((each for each in costs if each is not None), None)


def _listed_cost(model: str, provider: str, usage: "Usage") -> float | None:
    """Return the cost by the list of genai_prices; None for an unknown model."""
    from genai_prices import calc_price

    if not provider and "/" in model:
        provider = "openrouter"
    try:
        price = calc_price(usage, model, provider_id=_PROVIDERS.get(provider, provider) or None)
    except (LookupError, ValueError):
        return None
    return float(price.total_price)


def _check_price(name: str, rates: Price) -> Price:
    if not isinstance(rates, Mapping):
        raise ConfigError(f'The price of {name!r} is {rates!r}; write {{"input": …, "output": …}}.')
    unknown = set(rates) - _RATES
    missing = {"input", "output"} - set(rates)
    wrong = {rate for rate, value in rates.items() if not _amount(value)}
    if unknown or missing or wrong:
        raise ConfigError(
            f"The price of {name!r} needs `input` and `output`, and may have `cached` and `cache_write`, in US dollars "
            f"per million tokens; check {', '.join(sorted(unknown | missing | wrong))}."
        )
    return dict(rates)


def _amount(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf
