"""Tokens and their price: what is reported is kept, what is not is estimated and says so."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from donewhen.agent.prices import Prices
from donewhen.graph.llm.cost import usage_of
from donewhen.state.errors import ConfigError

MILLION = {"input_tokens": 1_000_000, "cached_tokens": 500_000, "output_tokens": 100_000}


def test_odd_usage_never_breaks_the_ledger() -> None:
    """R05: negative or missing counts of a broken server."""
    message = AIMessage("text", usage_metadata={"input_tokens": -5, "output_tokens": 0, "total_tokens": -5})
    used = usage_of(message, 2)
    assert used == {"input_tokens": 2, "cached_tokens": 0, "output_tokens": 1, "estimated": True}


def test_own_prices_come_first() -> None:
    """R05"""
    prices = Prices({"gpt-5-mini": {"input": 1, "cached": 0.1, "output": 10}, "free": {"input": 0, "output": 0}})
    expected = pytest.approx(0.5 + 0.05 + 1.0)
    for name in ("gpt-5-mini", "openai:gpt-5-mini", "gpt-5-mini-2025-08-07"):
        assert prices.cost(name, MILLION) == expected
    assert prices.cost("free", MILLION) == 0.0
    assert Prices({"m": {"input": 2, "output": 0}}).cost("m", MILLION) == 2.0


def test_listed_prices_without_a_network() -> None:
    """R05: sockets are off in this suite; the list is part of the package."""
    prices = Prices()
    cost = prices.cost("openai:gpt-5.4-mini", MILLION)
    assert cost is not None
    assert 0 < cost < 10
    assert prices.cost("gpt-5.4-mini", MILLION) == cost
    assert prices.cost("openai:gpt-5.4-mini", {}) == 0.0
    more_cached = prices.cost("gpt-5.4-mini", {**MILLION, "cached_tokens": 1_000_000})
    assert more_cached is not None
    assert more_cached < cost
    assert prices.cost("gpt-5.4-mini", {**MILLION, "cached_tokens": 9e9}) == more_cached
    assert prices.cost("anthropic:claude-sonnet-4-5", MILLION)
    assert prices.cost("google_genai:gemini-2.5-pro", MILLION) == prices.cost("models/gemini-2.5-pro", MILLION)
    for bedrock in ("anthropic.claude-3-5-sonnet-20240620-v1:0", "us.anthropic.claude-sonnet-4-20250514-v1:0"):
        assert prices.cost(bedrock, MILLION)


def test_what_has_no_price_says_so() -> None:
    prices = Prices()
    for name in ("scripted", "qwen3:8b", "ollama:qwen3:8b", "local-model", ""):
        assert prices.cost(name, MILLION) is None
    assert prices.cost("demo", MILLION) == 0.0


@pytest.mark.parametrize("rates", [{"input": 1}, {"input": -1, "output": 1}, {"input": "1", "output": 1}, {"in": 1}])
def test_a_wrong_price_is_told(rates: Any) -> None:
    with pytest.raises(ConfigError, match="'m'"):
        Prices({"m": rates})
