"""The spend meter, live and in `donewhen show`: spent of how much, for everything the ledger counts."""

import pytest

from donewhen.agent.cli.screen.meter import MeterText
from donewhen.state.ledger import KEYS

SPENT = {
    "rounds": 4, "model_calls": 5, "tool_calls": 3, "input_tokens": 2000, "cached_tokens": 500, "output_tokens": 100,
    "cost_usd": 0.0625, "active_seconds": 7.5, "questions": 1, "replans": 1,
}  # fmt: skip


def test_the_table_has_everything_with_its_limit() -> None:
    """R05: all that can be limited is shown with what is spent of it."""
    rows = [(row.name, row.text) for row in MeterText(SPENT, dict.fromkeys(KEYS, 10000)).rows()]
    assert rows == [
        ("rounds", "4 of 10,000"),
        ("model calls", "5 of 10,000"),
        ("tool calls", "3 of 10,000"),
        ("tokens in", "2,000 of 10,000 (25% cached)"),
        ("tokens from cache", "500 of 10,000"),
        ("tokens out", "100 of 10,000"),
        ("money", "$0.0625 of $10,000.00"),
        ("time", "7.5 of 10000 s, without waiting for people"),
        ("questions", "1 of 10000"),
        ("replans", "1 of 10000"),
    ]


@pytest.mark.parametrize("key", KEYS)
def test_what_is_limited_is_shown_before_anything_is_spent(key: str) -> None:
    assert len(MeterText({}, {key: 3}).rows()) == 1
    assert len(list(MeterText({}, {key: 3}).parts())) == (0 if key in ("questions", "replans") else 1)


def test_the_one_line_says_what_matters() -> None:
    assert MeterText(SPENT, {"rounds": 5, "cost_usd": 1}).line() == (
        "4/5 rounds · 5 model calls · 3 tool calls · 2.1k tokens (25% cached) · $0.0625/$1 · 7.5 s · 1 question · "
        "1 replan"
    )
    assert MeterText({"model_calls": 1, "tool_calls": 1}, {}).line() == "1 model call · 1 tool call"


def test_what_is_not_really_known_says_so() -> None:
    """R05: estimated tokens and unknown prices are never shown as if they were facts."""
    guessed = {"model_calls": 3, "input_tokens": 100, "estimated_calls": 1, "unpriced_calls": 2}
    assert MeterText(guessed, {}).line() == "3 model calls · ~100 tokens · price unknown"
    rows = {row.name: row.text for row in MeterText(guessed, {}).rows()}
    assert rows["tokens in"] == "100, of 1 model call estimated"
    assert rows["money"] == "price unknown"
    paid = {row.name: row.text for row in MeterText({**guessed, "cost_usd": 0.5}, {"cost_usd": 1.0}).rows()}
    assert paid["money"] == "$0.5000 of $1.00, and 2 model calls of unknown price"


@pytest.mark.parametrize(("spent", "style"), [(0.5, ""), (0.8, "yellow"), (1.0, "red"), (1.2, "red")])
def test_limits_that_are_near_stand_out(spent: float, style: str) -> None:
    (part,) = MeterText({"cost_usd": spent}, {"cost_usd": 1.0}).parts()
    assert part.style == style
