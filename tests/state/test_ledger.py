"""One ledger: what was spent, what may be spent, and how what is left is shared out."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from donewhen.state.ledger import ESTIMATED, KEYS, UNPRICED, Limits, add, exhausted, meter, remaining, share, tightest
from donewhen.state.people.amounts import format_amount, format_count
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


@given(st.dictionaries(st.sampled_from(KEYS), WHOLE), st.integers(1, 64))
def test_nothing_whole_is_lost_in_sharing(left: Any, parts: int) -> None:
    for key, amount in left.items():
        amounts = [one[key] for one in share(left, parts, {})]
        assert sum(amounts) == amount
        assert max(amounts) - min(amounts) <= 1


@given(AMOUNTS)
def test_a_step_alone_gets_everything(left: Any) -> None:
    assert share(left, 1, {}) == [left]


def test_one_model_call_is_kept_back_for_the_delivery() -> None:
    """D03: the reserve is taken off before anything is shared."""
    assert share({"model_calls": 3, "rounds": 3}, 2, {"model_calls": 1}) == [
        {"model_calls": 1, "rounds": 2},
        {"model_calls": 1, "rounds": 1},
    ]
    assert share({"model_calls": 0}, 1, {"model_calls": 1}) == [{"model_calls": 0}]


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_adding_is_the_same_in_any_order(one: Any, two: Any, three: Any) -> None:
    """R05: parallel steps report what they spent in any order."""
    left, right = add(add(one, two), three), add(one, add(three, two))
    assert left.keys() == right.keys()
    assert all(left[key] == pytest.approx(right[key], abs=1e-8) for key in left)


def test_adding_takes_nothing_for_nothing() -> None:
    assert add(None, None) == {}
    assert add(None, {"rounds": 1}) == add({"rounds": 1}, None) == {"rounds": 1}
    assert isinstance(add({"rounds": 1}, {"rounds": 2})["rounds"], int)
    assert add({"cost_usd": 0.1}, {"cost_usd": 0.2}) == {"cost_usd": 0.3}


@given(AMOUNTS, AMOUNTS)
def test_what_is_left_is_never_below_zero_and_grows_with_what_is_granted(granted: Any, spent: Any) -> None:
    limits = Limits(rounds=5, cost_usd=1.5)
    left = remaining(limits, granted, spent)
    assert set(left) == {"rounds", "cost_usd"}
    assert all(amount >= 0 for amount in left.values())
    more = remaining(limits, add(granted, {"rounds": 1}), spent)
    assert more["rounds"] >= left["rounds"]


@pytest.mark.parametrize("key", ["input_tokens", "cached_tokens", "output_tokens", "cost_usd", "active_seconds"])
def test_what_nobody_can_know_beforehand_always_counts(key: str) -> None:
    """X08: at zero tokens, money or seconds nothing more is started, whatever it is."""
    assert exhausted({key: 0}, ()) == key
    assert exhausted({key: 0.01}, ()) is None


@pytest.mark.parametrize("key", ["rounds", "model_calls", "tool_calls", "questions", "replans"])
def test_what_is_taken_one_by_one_counts_where_it_is_needed(key: str) -> None:
    assert exhausted({key: 0}, (key,)) == key
    assert exhausted({key: 0}, ()) is None
    assert exhausted({key: 1}, (key,)) is None
    assert exhausted({}, (key,)) is None


@given(AMOUNTS, AMOUNTS)
def test_the_tightest_of_two_limits_holds(one: Any, two: Any) -> None:
    both = tightest(one, two)
    assert both.keys() == one.keys() | two.keys()
    assert all(both[key] <= of[key] for of in (one, two) for key in of)


@pytest.mark.parametrize(
    "wrong", [{"rounds": -1}, {"cost_usd": float("nan")}, {"cost_usd": float("inf")}, {"roundz": 1}]
)
def test_limits_that_mean_nothing_are_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError):
        Limits(**wrong)


def test_spent_and_limits_share_their_names() -> None:
    """R05: everything that is counted can be limited, and both are shown in one table."""
    rows = {row["key"]: row for row in meter({"rounds": 2, "cost_usd": 0.5}, Limits(rounds=3), {"rounds": 4})}
    assert rows["rounds"] == {"key": "rounds", "spent": 2, "limit": 7}
    assert rows["cost_usd"] == {"key": "cost_usd", "spent": 0.5, "limit": None}
    assert set(rows) == {"rounds", "cost_usd"}


@pytest.mark.parametrize(
    ("key", "amount", "text"),
    [
        ("model_calls", 1, "1 model call"),
        ("rounds", 5, "5 rounds"),
        ("input_tokens", 10000, "10,000 input tokens"),
        ("cost_usd", 0.5004, "$0.5004"),
        ("active_seconds", 0.5, "0.5 active seconds"),
    ],
)
def test_amounts_in_words(key: str, amount: float, text: str) -> None:
    assert format_amount(key, amount) == text


def test_one_thing_is_no_several() -> None:
    assert [format_amount("model_calls", n) for n in (1, 2)] == ["1 model call", "2 model calls"]
    assert [format_count(n, "unusable reply") for n in (1, 3)] == ["1 unusable reply", "3 unusable replies"]


def test_the_page_about_budgets_names_everything_that_is_counted() -> None:
    page = (ROOT / "docs" / "budgets.md").read_text("utf-8")
    assert [key for key in (*KEYS, ESTIMATED, UNPRICED) if f"`{key}`" not in page] == []
