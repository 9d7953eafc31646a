"""Values of delivered data: which observation says them."""

import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from donewhen.state.language.quantities import read_date, says_date
from donewhen.state.proof.output import Form, SourceText, leaf_values, trace_values
from donewhen.state.proof.quotes import COMMA, PIECE, POINT, pieces_of, read_plainly, tokens

OFFERS = SourceText("s1.1", 'vendor,price,until\nAcme,18.40,2026-11-30\nBolt,"1,020.15",2026-12-24\nstock: 7\n')
MAIL = SourceText("s1.2", '{"from": "Mira M\\u00fcller", "note": "Acme delivers on 30 November 2026, at 18.40"}')
RESULT = SourceText("s1.result", "Acme 18.40, Bolt 1,020.15, total 1,038.55", firsthand=False)


def rows(data: Any, *sources: SourceText) -> dict[str, str]:
    """Path → the observation that says the value, or ""."""
    found = trace_values(data, sources or (OFFERS, MAIL, RESULT))["fields"]
    return {row["path"]: row["evidence"][0]["observation"] if row["evidence"] else "" for row in found}


def test_values_are_found_by_their_words_and_numbers() -> None:
    """V01, A1: numbers by their value, whatever the case, first hand before the agent's own words."""
    found = rows({"vendor": "ACME", "price": 18.4, "until": "2026-11-30", "total": 1038.55, "big": 1020.15})
    assert found == {"vendor": "s1.1", "price": "s1.1", "until": "s1.1", "total": "s1.result", "big": "s1.1"}


def test_what_stands_nowhere_has_no_evidence_and_no_verdict() -> None:
    """N07: a sum, a rating or something made up; code cannot tell which, and says nothing of it."""
    data = {"price": 17.95, "sum": 37, "rating": "good", "ok": True, "rows": [101, 102], "nothing": None}
    assert rows(data) == {"price": "", "sum": "", "rating": "", "ok": "", "rows[0]": "", "rows[1]": ""}
    assert [set(row) for row in trace_values({"a": 1}, [OFFERS])["fields"]] == [{"path", "evidence"}]


def test_figures_in_no_observation_are_named() -> None:
    """N07: numbers, dates and ids that nobody said but the agent; its own words are no observation."""
    data = {"price": 17.95, "total": 1038.55, "id": "K9999", "until": "2026-12-25", "stock": 7, "year": 2027, "n": 12}
    row = trace_values({**data, "rating": "good", "ok": True}, [OFFERS, RESULT], [SourceText("", "in 2027?")])
    assert row.get("unsourced") == ["price", "total", "id", "until", "n"]
    assert trace_values(5.5, [OFFERS]).get("unsourced") == ["output"]
    assert trace_values(data, [RESULT]).get("unsourced") == []


@pytest.mark.parametrize(
    ("written", "day"),
    [
        ("am 12.10.2026 fällig", "2026-10-12"),
        ("2.1.26;offen", "2026-01-02"),
        ("due 10/12/2026", "2026-10-12"),
        ("12/10/2026", "2026-10-12T00:00:00"),
        ("2026-10-12", "2026-10-12T00:00:00Z"),
        ("2026\u201310\u201312", "2026-10-12T00:00:00"),
        ("２０２６/１０/１２", "2026-10-12"),
        ("12．10．2026", "2026-10-12"),
        ("١٢.١٠.٢٠٢٦", "2026-10-12"),
        ("&#49;2.10.2026", "2026-10-12"),
        ("\x1b[1m12\x1b[0m.10.2026", "2026-10-12"),
        ("Nr.12.10.2026", "2026-10-12"),
        ("2026/10/3", "2026-10-03"),
        ("bis 2026-1-2", "2026-01-02"),
        ("12 October 2026", "2026-10-12"),
        ("2026年10月3日", "2026-10-03"),
    ],
)
def test_a_day_is_found_as_its_country_writes_it(written: str, day: str) -> None:
    """A1: JSON has days as 2026-10-12, files in their own order; after dots no other day is meant. Templates and
    consent read it as the same day."""
    assert says_date(read_plainly(written), read_date(day[:10])[0])
    assert rows({"day": day}, SourceText("s1.1", written)) == {"day": "s1.1"}
    assert rows({"day": "2026-12-10"}, SourceText("s1.1", "12.10.2026")) == {"day": ""}
    for other in ("version 3.12.10.2026", "2026.10.12", "12.10.", "10-12-2026", "12-10-26"):
        assert rows({"day": day}, SourceText("s1.1", other)) == {"day": ""}


@given(
    st.text(alphabet="059aé_ .,'-:e^$/\n５，⅕", max_size=30)
    | st.lists(st.sampled_from(["-$1.50e5", "09:30:05.50", "0.50", ".5", "1'204,50", "a'1_", "x-1.50", " ", ","])).map(
        "".join
    )
)
@example("-$1.50e5 10.00^3 09:30:05.50 O'Neil's a_1-2")
def test_a_text_has_each_of_its_words_and_numbers(text: str) -> None:
    """A1: what is searched before a text is read word by word excludes nothing that stands in it."""
    source = SourceText("", text)
    for marks, turned in source.readings:
        words = tokens(text, marks=marks, turned=turned)
        forms = [Form.of(f" {each} ") for each in [*words, " ".join(words)] if each]
        assert [form for form in forms if not source.says({POINT: [], COMMA: [], marks: [form]})] == []


def test_megabytes_without_a_figure_are_searched_in_a_moment() -> None:
    """N07: all that was observed is searched for a figure that stands nowhere, at each audit and each end."""
    rows = (f"2026-11-08;A-{n},{n * 7919 % 10_000 / 100:.2f} EUR,{n},Mira;12.10.2026\n" for n in range(40_000))
    known = SourceText("1:s1.1", "".join(rows))
    start = time.process_time()
    row = trace_values({"sum": 123456.78, "until": "2026-12-24"}, [OFFERS], [known])
    assert row.get("unsourced") == ["sum"]
    assert time.process_time() - start < 2


def test_a_value_that_a_long_text_has_across_two_pieces_is_found() -> None:
    """A1: long texts are searched in pieces, and a value of several words may stand in two of them."""
    text = "filler\n" * (PIECE // 7 - 1) + "Mira\nMiller 4711\n" + "filler\n" * PIECE
    assert len({*map(len, pieces_of(text))}) > 1
    data = {"name": "Mira Miller 4711", "other": "Mira filler 4711"}
    assert rows(data, SourceText("s1.1", text)) == {"name": "s1.1", "other": ""}


def test_a_small_number_stands_beside_its_name() -> None:
    """A1: 7 is somewhere in every listing; it is evidence as `stock: 7` only."""
    assert rows({"stock": 7, "left": 7}, OFFERS) == {"stock": "s1.1", "left": ""}


def test_of_several_the_one_that_says_most_is_named() -> None:
    """A1: `Acme` stands in two, and the listing says the rest too."""
    assert rows({"a": {"vendor": "Acme", "price": 18.4, "stock": 7}})["a.vendor"] == "s1.1"


def test_paths_and_bounds() -> None:
    """A1: paths as in JSON; a value by itself has none; beyond a thousand values are counted."""
    row = trace_values({"a": [{"b": 1}, {"c": {"d": "Acme"}}]}, [OFFERS])
    assert [field["path"] for field in row["fields"]] == ["a[0].b", "a[1].c.d"]
    assert trace_values("Acme", [OFFERS])["fields"][0]["path"] == ""
    row = trace_values(list(range(1500)), [OFFERS])
    assert (len(row["fields"]), row["more"]) == (1000, 500)
    assert [path for path, _, _ in leaf_values({"a": [None, {"b": ""}], "c": False})] == ["a[1].b", "c"]


HONEST = [
    # German
    ("Offen CHF: 1.234,56\n", 1234.56),
    ("Offen EUR: 12.345.678,90", 12345678.9),
    ("Offen EUR: 2.500 und 12,5", 2500),
    ("Offen EUR: 2.500 und 12.345.678,90", 2500),
    ("Bestand 1.234 Stück", 1234),
    ("Faktor 1.234", 1.234),
    ("Kurs 1,234 USD", 1.234),
    ("Summe (20,00)", 20),
    ("Betrag\n12,5\n", 12.5),
    ("Saldo 30,00- EUR", -30),
    ("Soll;Haben\n1.234,56-;0,50\n", -1234.56),
    ("Bestand 30-", -30),
    ("Spalten 30,00-  15,25", 15.25),
    ("Python 3.12, 2.500 Stück, 12,5 %", 2500),
    # English
    ("Open CHF: 1,234.56", 1234.56),
    ("Open EUR: 2,500 and 12.5", 2500),
    ("qty,price\n2,125.02\n", 125.02),
    ("lamp,20,125.02", 125.02),
    ("[1,200,25,3]", 200),
    ("orders 4711,4712", 4712),
    ("a 30-day trial", 30),
    ("30.50-40.75 EUR", 30.5),
    ("- 30 lamps", 30),
    ("balance -1,234.50", -1234.5),
    # French, Swiss, Japanese, Indian
    ("Total 1 234,56 €", 1234.56),
    ("Total 1\u202f234,56 €", 1234.56),
    ("GET /a 200 512", 512),
    ("Total CHF 1'234.56", 1234.56),
    ("Preis CHF 30.-", 30),
    ("合計１，２３４円", 1234),
    ("₹12,34,567", 1234567),
    ("₹1,20,450.50", 1204.5e2 + 0.5),
]
"""Figures that their texts have."""
WRONG = [
    # German
    ("Offen CHF: 1.234,56\n", 1.234),
    ("Offen CHF: 1.234,56\n", 56),
    ("Offen CHF: 1.234,56\n", 234.56),
    ("Offen CHF: 1.234,56\n", 1234),
    ("Offen CHF:\n1.234,56\n", 1.234),
    ("Offen EUR: 12.345.678,90", 12.345),
    ("Offen EUR: 12.345.678,90", 90),
    ("Offen EUR: 12.345.678,90", 12345678),
    ("Offen EUR: 2.500 und 12,5", 2.5),
    ("Offen EUR: 2.500 und 12.345.678,90", 2.5),
    ("Rabatt 17,25 %", 17),
    ("Rabatt 17,25 %", 25),
    ("Saldo 30,00- EUR", 30),
    ("1.234,56-;0,50\n", 1234.56),
    ("Saldo 30,00-\n", 30),
    ("Bestand 1.234 Stück", 234),
    # English
    ("Open CHF: 1,234.56", 234.56),
    ("Open CHF: 1,234.56", 1.234),
    ("Open CHF: 1234.56", 234.56),
    ("Open EUR: 2,500 and 12.5", 2.5),
    ("Open EUR: 2,500 and 12.5", 500),
    ("total 1,204,500", 1204),
    ("total 1,204,500", 500),
    ("lamp,20,125.02", 20125.02),
    ("balance -1,234.50", 1234.5),
    # French, Swiss, Japanese, Indian
    ("Total 1\u202f234,56 €", 234.56),
    ("Total CHF 1'234.56", 234.56),
    ("Total CHF 1'234.56", 1.234),
    ("合計１，２３４円", 234),
    ("₹12,34,567", 34),
    ("₹12,34,567", 34567),
    ("₹1,20,450.50", 450.5),
]
"""Parts of figures, other values and other signs."""


@pytest.mark.parametrize(("text", "figure"), HONEST)
def test_a_figure_is_found_however_its_country_writes_it(text: str, figure: float) -> None:
    """A1: thousands and decimals by either mark where the text does not show which; a minus behind the number."""
    row = trace_values({"sum": figure}, [SourceText("s1.1", text)])
    assert (row.get("unsourced"), row["fields"][0]["evidence"] != []) == ([], True)


@pytest.mark.parametrize(("text", "figure"), WRONG)
def test_a_figure_is_found_only_whole(text: str, figure: float) -> None:
    """A1, F9: no part of a number is a source, nor what its marks cannot mean in the text."""
    row = trace_values({"sum": figure}, [SourceText("s1.1", text)])
    assert (row.get("unsourced"), row["fields"][0]["evidence"]) == (["sum"], [])


@pytest.mark.parametrize(
    ("written", "value", "found"),
    [
        ("Summe im Oktober 2026", "2026-10", True),
        ("Okt. 2026", "2026-10", True),
        ("ventes d'octobre 2026", "2026-10", True),
        ("octubre de 2026", "2026-10", True),
        ("October, 2026", "2026-10", True),
        ("２０２６年１０月の合計", "2026-10", True),
        ("2026年10月", "2026-10", True),
        ("10/2026", "2026-10", True),
        ("10.2026", "2026-10", True),
        ("30 November 2026", "2026-11-30", True),
        ("le 1er décembre 2026", "2026-12-01", True),
        ("2026年10月5日", "2026-10-05", True),
        ("Oktober 2025", "2026-10", False),
        ("Oktober", "2026-10", False),
        ("30 November 2025", "2026-11-30", False),
        ("version 3.10.2026", "2026-10", False),
    ],
)
def test_a_date_in_words_is_found(written: str, value: str, found: bool) -> None:
    """A1: the goal says “Oktober 2026”, the result 2026-10."""
    row = trace_values({"when": value}, [SourceText("s1.1", "none")], [SourceText("", written)])
    assert row.get("unsourced") == ([] if found else ["when"])
