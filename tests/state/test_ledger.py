"""One ledger: what was spent, what may be spent, and how what is left is shared out."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from donewhen import ConfigError
from donewhen.state.ledger import ESTIMATED, KEYS, UNPRICED, Limits, meter, share
from donewhen.state.people.amounts import format_amount
from tests.kit.places import ROOT

WHOLE = st.integers(min_value=0, max_value=10**9)
MONEY = st.floats(min_value=0, max_value=1e6, allow_nan=False, allow_subnormal=True)
FRACTIONS = ("cost_usd", "active_seconds")
AMOUNTS = st.fixed_dictionaries({}, optional={key: MONEY if key in FRACTIONS else WHOLE for key in KEYS})


@given(AMOUNTS, st.integers(1, 64), AMOUNTS)
def test_shares_never_add_up_to_more_than_there_is(left: Any, parts: int, reserve: Any) -> None:
    """R05, X08: whatever is shared out, the limit holds, exactly, also for fractions of a cent."""
    shares = share(left, parts, reserve)
    assert len(shares) == parts
    for key, amount in left.items():
        free = max(0, amount - reserve.get(key, 0))
        assert sum((Fraction(one[key]) for one in shares), Fraction(0)) <= Fraction(free)
        assert all(one[key] >= 0 for one in shares)


@pytest.mark.parametrize(
    "wrong", [{"rounds": -1}, {"cost_usd": float("nan")}, {"cost_usd": float("inf")}, {"roundz": 1}]
)
def test_limits_that_mean_nothing_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        Limits(**wrong)


def test_spent_and_limits_share_their_names() -> None:
    """R05: everything that is counted can be limited, and both are shown in one table."""
    rows = {row["key"]: row for row in meter({"rounds": 2, "cost_usd": 0.5}, Limits(rounds=3), {"rounds": 4})}
    assert rows["rounds"] == {"key": "rounds", "spent": 2, "limit": 7}
    assert rows["cost_usd"] == {"key": "cost_usd", "spent": 0.5, "limit": None}
    assert set(rows) == {"rounds", "cost_usd"}


def test_the_table_says_what_is_estimated_and_what_has_no_price() -> None:
    """Q83: clients that are told the table know of both kinds of uncertain calls, and of neither if there are none."""
    rows = {row["key"]: row["spent"] for row in meter({"model_calls": 3, ESTIMATED: 2, UNPRICED: 1}, Limits(), {})}
    assert (rows[ESTIMATED], rows[UNPRICED]) == (2, 1)


@pytest.mark.parametrize(
    ("key", "amount", "language", "text"),
    [
        ("model_calls", 1, "en", "1 model call"),
        ("rounds", 5, "en", "5 rounds"),
        ("rounds", 5, "de", "5 Runden"),
        ("input_tokens", 10000, "en", "10,000 input tokens"),
        ("cost_usd", 0.5004, "en", "$0.5004"),
        ("cost_usd", 0.5, "ja", "$0.5"),
        ("active_seconds", 0.5, "en", "0.5 active seconds"),
    ],
)
def test_amounts_in_words(key: str, amount: float, language: str, text: str) -> None:
    """Q11."""
    assert format_amount(key, amount, language) == text


def test_the_page_about_budgets_names_everything_that_is_counted() -> None:
    page = (ROOT / "docs" / "concepts" / "budget.md").read_text("utf-8")
    assert [key for key in (*KEYS, ESTIMATED, UNPRICED) if f"`{key}`" not in page] == []
