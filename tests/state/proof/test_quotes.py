"""Quotes: what a reader sees is found however it is written; a number is never cut into another."""

import json
import time
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from donewhen.state.proof.quotes import fold, occurs

TEXT = st.text(max_size=60)
NUMBER = (
    st.integers(-10_000, 10_000).map(str)
    | st.decimals(-999, 999, places=2).map(str)
    | st.integers(10_000).map("{:,}".format)
)


@given(TEXT, TEXT, TEXT)
def test_what_stands_in_a_text_can_be_quoted_from_it(before: str, quote: str, after: str) -> None:
    """DESIGN 5: any passage, cut where the reader sees a word."""
    whole = f"{before} {quote} {after}"
    assert occurs(quote, whole) == bool(fold(quote))


@given(TEXT, st.sampled_from([str.upper, str.lower, str.title, str.swapcase]))
def test_case_does_not_matter_where_it_can_be_folded(text: str, change: Any) -> None:
    changed = change(text)
    if fold(changed) == fold(text):
        assert occurs(changed, f"a {text} b") == bool(fold(text))


@given(TEXT)
def test_folding_twice_changes_nothing_more(text: str) -> None:
    once = fold(text)
    assert fold(f"  {once}\n") == fold(once)


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("The   sum\nis 5", "the sum is 5."),
        ("“quoted”", 'he said "quoted" twice'),
        ("it’s", "IT'S here"),
        ("3–4", "3-4"),
        ("ﬁle", "file"),
        ("５０％", "50%"),
        ("STRASSE", "straße"),
        ("<goal>", "a <goal> b"),
        ("[s1.1] tool ok", "[s1.1] tool ok"),
        ("“the sum is 5”", "the sum is 5"),
        ("…sum is 5...", "the sum is 5 or so"),
        ('he said "5"', '{"text": "he said \\"5\\""}'),
        ('he said \\"5\\"', 'he said "5"'),
        ("two\nlines", '"two\\nlines"'),
        ("订单：5 😀", json.dumps("订单：5 😀")),
        ("10² m", "area: 10² m"),
        ("1½", "1½ cups"),
    ],
)
def test_typography_marks_and_wrapping_do_not_matter(quote: str, text: str) -> None:
    assert occurs(quote, text)


@pytest.mark.parametrize("quote", ["", "   ", "\n", "total 6", "sum is 55", '""', "…", "` `"])
def test_what_does_not_stand_there_does_not_occur(quote: str) -> None:
    assert not occurs(quote, "The sum is 5.")


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("5 files", "15 files"),
        ("files: 4", "files: 42"),
        ("files: 42", "files: 42.5"),
        ("42.", "42.5"),
        (".5", "42.5"),
        ("5%", "42.5%"),
        ("1", "1,204"),
        ("204", "1,204"),
        ("57", "-57"),
        ("57", "low:-57"),
        ("102", "10²"),
        ("10", "10²"),
        ("x1", "x₁"),
        ("11/2", "1½"),
        ("1", "1½"),
        ("12", "1②"),
        ("2026-11-2", "2026-11-21"),
        ("1", "1e5"),
        ("“4”", "42"),
    ],
)
def test_a_number_is_never_cut_into_another(quote: str, text: str) -> None:
    """F9: the shortest lie is a quote with a digit less."""
    assert not occurs(quote, f"so: {text} in all")


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("42", "42."),
        ("is 42", "it is 42, and"),
        ("5 apples", "- 5 apples"),
        ("-57", "low:-57"),
        ("11-21", "2026-11-21"),
        ("1.csv", "data/part-1.csv"),
        ("step_1", "step_1_result"),
        ("of 42", "4 of 42, 7 of 420"),
        ("12:30", "12:30:45"),
        ("42", "42%"),
    ],
)
def test_whole_numbers_can_be_quoted(quote: str, text: str) -> None:
    assert occurs(quote, f"so: {text} in all")


@given(NUMBER, NUMBER)
def test_a_number_stands_only_where_it_stands_whole(said: str, found: str) -> None:
    """F9: whatever two numbers, the one is not quoted from the other."""
    assume(said != found)
    assert not occurs(said, f"total {found} pieces")
    assert occurs(found, f"total {found} pieces")


@pytest.mark.parametrize("text", ["row 12,345 ünï\n" * 70_000, "1" * 1_000_000, "1 " * 500_000, "\\" * 1_000_000])
def test_a_megabyte_is_searched_in_a_moment(text: str) -> None:
    started = time.process_time()
    occurs("ROW 12,345 ÜNÏ", text)
    occurs("11 1", text)
    occurs("1" * 1000 + "2", text)
    assert time.process_time() - started < 5
