"""Quotes: what a reader sees is found however it is written; a number is never cut into another."""

import json
import time
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from donewhen.state.proof.quotes import SearchedText, fold, tokens

TEXT = st.text(max_size=60)
NUMBER = (
    st.integers(-10_000, 10_000).map(str)
    | st.decimals(-999, 999, places=2).map(str)
    | st.integers(10_000).map("{:,}".format)
)


def occurs(quote: str, text: str) -> bool:
    """Whether a quote stands in a text."""
    return SearchedText(text).says(quote)


@given(TEXT, TEXT, TEXT)
def test_what_stands_in_a_text_can_be_quoted_from_it(before: str, quote: str, after: str) -> None:
    """V01: any passage, cut where the reader sees a word."""
    assert occurs(quote, f"{before}\n{quote}\n{after}") or not tokens(quote)


def test_a_date_behind_a_number_in_a_row_is_a_date() -> None:
    """H1: `18.40,2026-11-30` is an amount and a date, not one number."""
    for quote in ("2026-11-30", "18.40", "Acme,18.40", "18.4, 2026-11-30"):
        assert occurs(quote, "vendor,price,until\nAcme,18.40,2026-11-30\n")
    assert not occurs("18.40,2026", "Acme,18.40,2026-11-30")


@given(TEXT, st.sampled_from([str.upper, str.lower, str.title, str.swapcase]))
def test_case_does_not_matter_where_it_can_be_folded(text: str, change: Any) -> None:
    changed = change(text)
    if fold(changed) == fold(text):
        assert occurs(changed, f"a\n{text}\nb") or not tokens(text)


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
        ("&lt;goal>", "a <goal> b"),
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
        ("part-1.csv", "data/part-1.csv"),
        ("step_1_result", "in step_1_result"),
        ("of 42", "4 of 42, 7 of 420"),
        ("12:30:45", "2026-11-21T12:30:45Z"),
        ("42", "42%"),
    ],
)
def test_whole_numbers_can_be_quoted(quote: str, text: str) -> None:
    assert occurs(quote, f"so: {text} in all")


@given(NUMBER, NUMBER)
def test_a_number_stands_only_where_it_stands_whole(said: str, found: str) -> None:
    """F9: whatever two numbers, the one is not quoted from the other."""
    assume(float(said.replace(",", "")) != float(found.replace(",", "")))
    assert not occurs(said, f"total {found} pieces")
    assert occurs(found, f"total {found} pieces")


@pytest.mark.parametrize("text", ["row 12,345 ünï\n" * 5_000, "1" * 80_000, "1 " * 40_000, "\\" * 80_000])
def test_a_long_text_is_searched_in_a_moment(text: str) -> None:
    started = time.process_time()
    occurs("ROW 12,345 ÜNÏ", text)
    occurs("11 1", text)
    occurs("1" * 1000 + "2", text)
    assert time.process_time() - started < 5


ROW = "R0045,O99999,2025-09-15,125.02,damaged"
MAIL = "Dear Mira,\n\nwe refunded these orders:\n- A-101: 49.90 EUR (RF-1)\nTotal: 379.40 EUR. Kind regards"


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("2025-09-15", ROW),
        ("125.02", ROW),
        ("R0045,O99999", ROW),
        ("2025-09-15, 125.02, damaged", ROW),
        ("lamp,2", "O1,C7,2025-07-09,lamp,2,125.02"),
        ("125.02", "O1,C7,2025-07-09,lamp,2,125.02"),
        ("1,204.50", 'O99,lamp,2,"1,204.50"'),
        ("1", "[1,2,3]"),
        ("2", "[1,200,2,3]"),
    ],
)
def test_cells_of_rows_and_lists_are_whole_values(quote: str, text: str) -> None:
    """H1, V01: a comma between two digits is no thousands separator where cells stand in a row."""
    assert occurs(quote, text)


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("18,402.35", "18402.35"),
        ("10371.30", "10371.3"),
        ('"refunded": 49.90', '{"refund_id": "RF-1", "refunded": 49.9}'),
        ("49,90 EUR", '{"text": "49.9 EUR"}'),
        ("18.402,35", "net 18402.35"),
        ("18402.35", "18\u202f402,35 €"),
        ("1'204.50", "total 1,204.5"),
        ("1,20,450", "₹1,20,450"),
        ("٣٤ ملف", "34 ملف"),
        ("5 mg", "dose: 5mg"),
        ("12%", "grew by 12 %"),
        ("promised: 2026-11-02", '{"promised": "2026-11-02"}'),
        ("status: done", '{"status":"done"}'),
        ('{"a": 1, "b": [2, 3]}', '{"a":1,"b":[2,3]}'),
        ("**Total**: 5", "Total: 5"),
        ("Total: 5", "**Total:** `5`"),
        ("| South | 22,181.51 |", "South  22181.51"),
        ("South 22,181.51", "| South | 22,181.51 |"),
        ("- first item\n- second item", "first item\nsecond item"),
        ("def f():\n    return 1", "12\tdef f():\n13\t    return 1"),
        ("3 failed", "\x1b[31m3 failed\x1b[0m"),
        ("Smith &amp; Sons", "Smith & Sons"),
        ("Smith & Sons", "<name>Smith &amp; Sons</name>"),
        ("Total 12", "<tr><td>Total</td><td>12</td></tr>"),
        ("> Delivered 2026-11-08", "delivered 2026-11-08T10:00:00Z"),
        ("Dear Mira, … Total: 379.40 EUR", MAIL),
        ("we refunded these orders [...] EUR (RF-1)", MAIL),
        ("Loading... done", "Loading... done"),
        ("合計：四千円", "合計 四千円です"),
        ("die verspätete Lieferung", "entschuldigen Sie die verspätete\nLieferung"),
    ],
)
def test_markup_and_the_formatting_of_numbers_do_not_matter(quote: str, text: str) -> None:
    """H2, H15, V01: facts are compared, not characters."""
    assert occurs(quote, text)


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("the pump is safe", "the pump is not safe"),
        ("total due … Dear Mira", "Dear Mira, the total due"),
        ("Mira total", MAIL),
        ("1,204", "sum: 1,204,500"),
        ("49", "49,90 EUR"),
        ("$500", "€500"),
        ("x > 5", "x < 5"),
        ("✅ deploy", "❌ deploy"),
        ("found: 5", "not_found: 5"),
        ("2026-11", "2026-11-21"),
        ("103", "A-103"),
        ("9999", "O99999"),
        ("5 mg", "5 g"),
    ],
)
def test_facts_that_differ_do_not_match(quote: str, text: str) -> None:
    """V01: contiguous, whole, with its sign and its denial."""
    assert not occurs(quote, text)


@pytest.mark.parametrize(
    ("quote", "text", "stands"),
    [
        ("完成", "未完成", False),
        ("完成", "状态: 完成", True),
        ("完成", "状态：完成。", True),
        ("已完成", "订单已完成", False),
        ("订单已完成", "订单已完成了", True),
        ("ลบ", "ไม่ลบ", False),
        ("approved", "unapproved", False),
        ("Müller", "Müllerin", False),
        ("approved", "not approved", True),
    ],
)
def test_a_quote_begins_and_ends_with_whole_words(quote: str, text: str, stands: bool) -> None:
    """N35: in scripts without spaces a short quote stands only by itself; a denial before it is for the audit."""
    assert occurs(quote, text) is stands


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("1234,56 EUR", "1.234,56 €"),
        ("Dear Mira … regards", MAIL),
        ("write to a@b.example", "write to [a@b.example](mailto:a@b.example)"),
        ("[a@b.example](mailto:a@b.example)", "a@b.example"),
    ],
)
def test_honest_forms_of_the_same_stand(quote: str, text: str) -> None:
    """N35: a currency by its code or its sign, a passage of one word after a skip, a link by what is seen of it."""
    assert occurs(quote, text)


def test_what_a_skip_leaves_out_is_for_the_audit() -> None:
    """V10: `…` skips whatever stands there, in its order; no list of words says which of them deny."""
    assert occurs("the pump is … safe to use", "the pump is not safe to use")
    assert occurs("泵是…全的，请", "泵是不安全的，请")
    assert not occurs("safe to use … the pump", "the pump is safe to use")


@pytest.mark.parametrize(
    ("quote", "text", "stands"),
    [
        ("[]", "[]", True),
        ("[ ]", "[]\n", True),
        ("{}", "{}", True),
        ("[]", "{}", False),
        ("[]", '{"items": []}', True),
        ("[]", '{"items": [1]}', False),
        ("[]", "", False),
        ("", "", False),
        ("...", "12 orders", False),
    ],
)
def test_a_quote_without_words_stands_by_its_characters(quote: str, text: str, stands: bool) -> None:
    """H2: "there are no invoices" by the empty list that came; it was refused, and the step with it."""
    assert SearchedText(text).says(quote) is stands


def test_the_nearest_passage_is_shown() -> None:
    """V01: so that the model sees what it should have quoted."""
    text = "\n".join([f"row {n}: nothing of note" for n in range(500)] + ["order A-103 was delivered on 2026-11-08"])
    assert SearchedText(text).nearest("A-103 delivered on 2026-11-07") == "order A-103 was delivered on 2026-11-08"
    assert len(SearchedText("word " * 1000).nearest("a word")) <= 200
    assert SearchedText("abc").nearest("xyz") == ""
