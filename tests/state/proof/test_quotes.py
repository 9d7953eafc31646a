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


def test_what_a_skip_leaves_out_is_for_the_audit() -> None:
    """V10: `…` skips whatever stands there, in its order; no list of words says which of them deny."""
    assert occurs("the pump is … safe to use", "the pump is not safe to use")
    assert occurs("泵是…全的，请", "泵是不安全的，请")
    assert not occurs("safe to use … the pump", "the pump is safe to use")


ROW = "R0045,O99999,2025-09-15,125.02,damaged"
MAIL = "Dear Mira,\n\nwe refunded these orders:\n- A-101: 49.90 EUR (RF-1)\nTotal: 379.40 EUR. Kind regards"


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        # typography, marks and wrapping
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
        # whole numbers
        ("42", "so: 42. in all"),
        ("is 42", "so: it is 42, and in all"),
        ("5 apples", "so: - 5 apples in all"),
        ("-57", "so: low:-57 in all"),
        ("part-1.csv", "so: data/part-1.csv in all"),
        ("step_1_result", "so: in step_1_result in all"),
        ("of 42", "so: 4 of 42, 7 of 420 in all"),
        ("12:30:45", "so: 2026-11-21T12:30:45Z in all"),
        ("42", "so: 42% in all"),
        # H1: cells of rows and lists are whole values; a comma between two digits separates no thousands there
        ("2025-09-15", ROW),
        ("125.02", ROW),
        ("R0045,O99999", ROW),
        ("2025-09-15, 125.02, damaged", ROW),
        ("lamp,2", "O1,C7,2025-07-09,lamp,2,125.02"),
        ("125.02", "O1,C7,2025-07-09,lamp,2,125.02"),
        ("1,204.50", 'O99,lamp,2,"1,204.50"'),
        ("1", "[1,2,3]"),
        ("2", "[1,200,2,3]"),
        # H2, H15: markup and the formatting of numbers
        ("18,402.35", "18402.35"),
        ("10371.30", "10371.3"),
        ('"refunded": 49.90', '{"refund_id": "RF-1", "refunded": 49.9}'),
        ("49,90 EUR", '{"text": "49.9 EUR"}'),
        ("18.402,35", "net 18402.35"),
        ("18402.35", "18\u202f402,35 €"),
        ("1'204.50", "total 1,204.5"),
        ("1,20,450", "₹1,20,450"),
        ("٣٤ ملف", "34 ملف"),
        ("2500", "2.500 und 12,5"),
        ("2.500", "2.500 und 12,5"),
        ("2,500", "2.500 und 12,5"),
        ("2500", "Bestand 2.500 Stück"),
        ("2.5", "Faktor 2.500"),
        ("EUR 2500", "Offen EUR 2.500 und EUR 12.345.678,90"),
        ("| 2500 |", "| Bestand | 2.500 | 12,5 |"),
        # a minus behind a number, ranges, hyphens and lists
        ("Saldo 30,00- EUR", "Saldo 30,00- EUR"),
        ("Saldo -30,00 EUR", "Saldo 30,00- EUR"),
        ("30,00- 15,00", "30,00- 15,00"),
        ("850,00-", "Miete Oktober 850,00- 1.204,33"),
        ("miete  Oktober 850,00-", '{"line": "Miete Oktober 850,00- 1.204,33"}'),
        ("Miete 850,00-\nStrom 61,20-", r'"Miete 850,00- 1.204,33\nStrom 61,20- 1.143,13"'),
        ("30-day", "a 30-day trial"),
        ("30- to 60-day", "30- to 60-day"),
        ("30 days", "30-\ndays"),
        ("10-20", "10-20 pieces"),
        ("10.50", "10.50-20.50 EUR"),
        ("10.50", "$10.50-$20.50"),
        ("30 lamps", "- 30 lamps"),
        ("CHF 30", "CHF 30.-"),
        ("0", "0,00-"),
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
        ("> 5 orders", "He wrote:\n> 5 orders"),
        ("> 3.5 EUR", "if it is > 3.5 EUR"),
        ("> 100 requests", "more: > 100 requests"),
        ("&gt; 100", "limit > 100"),
        (">= 100", "limit: ≥ 100"),
        # a line in Markdown's quotation marks
        ("> Q3 2026", "Q3 2026"),
        ("> 2026-11-28 10:00:01 ERROR disk full", "2026-11-28 10:00:01 ERROR disk full"),
        ("> 10:30 lunch", "10:30 lunch"),
        ("> 1. Buy milk\n> 2. Eggs", "1. Buy milk\n2. Eggs"),
        ("> Nov 28", "Nov 28, 2026"),
        ("> Mai 2026", "Umsatz Mai 2026"),
        ("> B12", "B12 and B13"),
        ("> KW 47", "KW 47: ok"),
        ("> PR 12", "merged PR 12"),
        ("> v2.1", "released v2.1"),
        ("&gt; Q3 2026", "Q3 2026"),
        ("> Dear Mira\n> 5 orders", "Dear Mira\n5 orders"),
        ("> 12 passed, 0 failed\n> in 3 s", "12 passed, 0 failed\nin 3 s"),
        ("He wrote:\n> hello", "He wrote:\nhello"),
        ("> []", "[]"),
        ("Dear Mira, … Total: 379.40 EUR", MAIL),
        ("we refunded these orders [...] EUR (RF-1)", MAIL),
        ("Loading... done", "Loading... done"),
        ("合計：四千円", "合計 四千円です"),
        ("die verspätete Lieferung", "entschuldigen Sie die verspätete\nLieferung"),
        # N35: a currency by its code or its sign, one word after a skip, a link by what is seen of it
        ("1234,56 EUR", "1.234,56 €"),
        ("Dear Mira … regards", MAIL),
        ("write to a@b.example", "write to [a@b.example](mailto:a@b.example)"),
        ("[a@b.example](mailto:a@b.example)", "a@b.example"),
        # N35: whole words; in scripts without spaces a short quote stands only by itself
        ("完成", "状态: 完成"),
        ("完成", "状态：完成。"),
        ("订单已完成", "订单已完成了"),
        ("approved", "not approved"),
        # H2: "there are no invoices" by the empty list that came
        ("[]", "[]"),
        ("[ ]", "[]\n"),
        ("{}", "{}"),
        ("[]", '{"items": []}'),
    ],
)
def test_facts_are_compared_and_not_characters(quote: str, text: str) -> None:
    """V01, H1, H2, H15, N35: what a reader sees stands there, however it is written."""
    assert occurs(quote, text)


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        # what does not stand there
        ("", "The sum is 5."),
        ("   ", "The sum is 5."),
        ("\n", "The sum is 5."),
        ("total 6", "The sum is 5."),
        ("sum is 55", "The sum is 5."),
        ('""', "The sum is 5."),
        ("…", "The sum is 5."),
        ("` `", "The sum is 5."),
        # F9: a number is never cut into another; the shortest lie is a quote with a digit less
        ("5 files", "so: 15 files in all"),
        ("files: 4", "so: files: 42 in all"),
        ("files: 42", "so: files: 42.5 in all"),
        ("42.", "so: 42.5 in all"),
        (".5", "so: 42.5 in all"),
        ("5%", "so: 42.5% in all"),
        ("1", "so: 1,204 in all"),
        ("204", "so: 1,204 in all"),
        ("57", "so: -57 in all"),
        ("57", "so: low:-57 in all"),
        ("102", "so: 10² in all"),
        ("10", "so: 10² in all"),
        ("x1", "so: x₁ in all"),
        ("11/2", "so: 1½ in all"),
        ("1", "so: 1½ in all"),
        ("12", "so: 1② in all"),
        ("2026-11-2", "so: 2026-11-21 in all"),
        ("1", "so: 1e5 in all"),
        ("“4”", "so: 42 in all"),
        # facts that differ: contiguous, whole, with its sign and its denial
        ("the pump is safe", "the pump is not safe"),
        ("total due … Dear Mira", "Dear Mira, the total due"),
        ("Mira total", MAIL),
        ("1,204", "sum: 1,204,500"),
        ("49", "49,90 EUR"),
        ("2.5", "2.500 und 12,5"),
        ("2,5", "2.500 und EUR 12.345.678,90"),
        ("CHF: 1.234", "Offen CHF: 1.234,56"),
        ("234.56", "Open CHF: 1,234.56"),
        ("Saldo 30,00 EUR", "Saldo 30,00- EUR"),
        ("30.00", "30.00-\t15.00"),
        ("30,00-", "Saldo 30,00 EUR"),
        ("Strom 61,20-\nMiete 850,00-", "Miete 850,00- 1.204,33\nStrom 61,20- 1.143,13"),
        ("ete 850,00-", "Miete 850,00- 1.204,33"),
        ("-30", "30-day"),
        ("-10", "10-20"),
        ("$500", "€500"),
        ("x > 5", "x < 5"),
        ("> 100", "errors: 100"),
        (" >= $100\n", "errors: $100"),
        ("> 5 %", "errors: 5 %"),
        ("> 3.5 EUR", "total: 3.5 EUR"),
        ("> EUR 3.5", "total: EUR 3.5"),
        ("> 100;", "limit: 100"),
        ("> 100 requests", "100 requests"),
        ("> 100 requests per second", "100 requests per second"),
        ("> 2 files changed", "2 files changed"),
        ("> 12 kg/m", "12 kg/m"),
        ("> 100\n> 200", "from 100 to 200"),
        ("> 100\n", "limit: 100"),
        ("> 100\n>", "limit: 100"),
        ("> 100\nrequests", "limit: 100 requests"),
        ("limit:\n> 100", "limit: 100"),
        ("> **100**", "limit: 100"),
        ("> ½", "1 ½"),
        ("&gt; 100", "limit: 100"),
        ("\\u003e 100", "limit: 100"),
        ("> 100", "limit >= 100"),
        ("✅ deploy", "❌ deploy"),
        ("found: 5", "not_found: 5"),
        ("2026-11", "2026-11-21"),
        ("103", "A-103"),
        ("9999", "O99999"),
        ("5 mg", "5 g"),
        # N35: whole words; in scripts without spaces a short quote stands only by itself
        ("完成", "未完成"),
        ("已完成", "订单已完成"),
        ("ลบ", "ไม่ลบ"),
        ("approved", "unapproved"),
        ("Müller", "Müllerin"),
        # H2: "there are no invoices" by the empty list that came
        ("[]", "{}"),
        ("[]", '{"items": [1]}'),
        ("[]", ""),
        ("", ""),
        ("...", "12 orders"),
    ],
)
def test_what_does_not_stand_there_does_not_occur(quote: str, text: str) -> None:
    """V01, F9, N35: no number cut into another, no fact that differs, no part of a word."""
    assert not occurs(quote, text)


@pytest.mark.parametrize("space", ["\u00a0", "\u2009", "\u202f", "&nbsp;", "&#8239;"])
def test_a_space_that_groups_digits_parts_no_number(space: str) -> None:
    """E10: a part of an amount is no quote, the whole is one, whatever space is typed in it."""
    text = SearchedText(f"Refund 12{space}500 €, due 850,00- 1{space}204,33")
    for part in ("500 €", "Refund 12", "204,33", "500 €, due 850,00- 1"):
        assert not text.says(part), part
    for between in (space, " ", ""):
        assert text.says(f"Refund 12{between}500 €"), between
    assert text.says(f"12{space}500 €, due 850,00-")
    assert text.says("12 500 €, due 850,00- 1 204,33")
    assert SearchedText(f"costs{space}5{space}€").says("5")
    year = SearchedText(f"in 2026{space}150 people paid 1{space}234{space}567 €")
    for part in ("2026", "150 people", "in 2026 150 people", "paid 1234567 €"):
        assert year.says(part), part


def test_the_nearest_passage_is_shown() -> None:
    """V01: so that the model sees what it should have quoted."""
    text = "\n".join([f"row {n}: nothing of note" for n in range(500)] + ["order A-103 was delivered on 2026-11-08"])
    assert SearchedText(text).nearest("A-103 delivered on 2026-11-07") == "order A-103 was delivered on 2026-11-08"
    assert len(SearchedText("word " * 1000).nearest("a word")) <= 200
    assert SearchedText("abc").nearest("xyz") == ""
