"""The claims of a delivery: what a judge gets to prove one by one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from donewhen.state.proof.claims import MOST_CLAIMS, split_claims

BLOCKS = Path(__file__).with_name("claims.txt").read_text(encoding="utf-8").split("=== ")[1:]
NEED_THEIR_LANGUAGE = {"de an ordinal before a noun", "es company and United States"}


@pytest.mark.parametrize("block", BLOCKS, ids=[block.split("\n", 1)[0] for block in BLOCKS])
def test_dates_rows_items_and_abbreviations_are_whole(block: str) -> None:
    """Q26, V07: a row is claimed under its header, headers and rules are no claims; also in a language nobody named."""
    name, *lines = block.splitlines()
    text = "\n".join(line for line in lines if not line.startswith("=> "))
    claims = [line.removeprefix("=> ") for line in lines if line.startswith("=> ")]
    assert split_claims(text, None, name[:2]) == claims
    if name not in NEED_THEIR_LANGUAGE:
        assert split_claims(text) == split_claims(text, None, "en") == claims


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("| a | b |\n|---|---|\n| 1 | 2 | 3 |\n| | x\\|y |\nAll.", ["a: 1; b: 2; 3", "b: x|y", "All."]),
        ("> | a | b |\n> |:-:|---|\n> | 1 | 2 |", ["a: 1; b: 2"]),
        ("a | b\n-|-\n1 | 2\n\n| c |\n|---|\n| 3 |", ["a: 1; b: 2", "c: 3"]),
        ("| no rows | yet |\n|---|---|", ["no rows; yet"]),
        ("| n | All is paid |\n|---|---|\n| 1 |", ["All is paid", "n: 1"]),
        ("| a | b |\n|---|\n| 1 | 2 |", ["| a | b |", "| 1 | 2 |"]),
        ("# A\n## B\n| n |\n|---|\n| 1 |\n| 2 |\n# All is paid", ["A B: n: 1", "n: 2", "All is paid"]),
        ("```\nAll is paid", ["All is paid"]),
        ("~~~py\na. B\n```\n~~~~\nAll is paid", ["py a. B", "All is paid"]),
    ],
)
def test_tables_headings_and_code_hide_nothing(text: str, claims: list[str]) -> None:
    """Q26, V07: two tables, rows that are longer than their header, what is unfinished; nothing escapes the judge."""
    assert split_claims(text) == claims


@pytest.mark.parametrize(
    ("text", "language", "claims"),
    [
        ("The total is 5 kg. Ann was told.", "en", ["The total is 5 kg.", "Ann was told."]),
        ("Dr. Smith paid $3.50 at 9 a.m. today. It was late.", "en", 2),
        ("Die Summe ist 1.234,56 €. Frau Dr. Maier weiß davon.", "de", 2),
        ("Le total est de 5 kg. Anne le sait déjà.", "fr", 2),
        ("¿Cuánto es el total? El total es 5 kg.", "es", 2),
        ("合計は五千円でした。アンさんには伝えました。", "ja", 2),
        ("完了。合計は五千円でした。", "ja", ["完了。 合計は五千円でした。"]),
        ("第三季度的总收入为一万八千元整。所有相关的客户都已经收到了邮件通知。", "zh", 2),
        ("कुल योग पाँच किलो है। ऐन को बता दिया गया है।", "hi", 2),
        ("المجموع خمسة كيلوغرامات. تم إبلاغ آن بذلك.", "ar", 2),
        ("# Report\n\n- read: 3 files\n- deleted: none", "en", ["Report: read: 3 files", "deleted: none"]),
        ("| North | 5 |\n|---|---|\n| South | 7 |", "en", ["North: South; 5: 7"]),
        ("", "en", []),
        ("\n \n---\n", "", []),
        ("Whatever it is. It has no such language.", "xx-none", 2),
    ],
)
def test_a_text_is_cut_into_its_sentences_in_any_script(text: str, language: str, claims: list[str] | int) -> None:
    """V07: by a library's segmentation; what has neither letter nor digit claims nothing."""
    found = split_claims(text, None, language)
    assert (found if isinstance(claims, list) else len(found)) == claims, found


@given(st.text(max_size=400), st.sampled_from(["", "en", "de", "ja", "zh", "ar", "und", "x"]))
def test_nothing_that_is_said_is_left_out_of_the_claims(text: str, language: str) -> None:
    """V07: whatever the text, every letter and digit of it stands in a claim, in order; none is empty."""
    claims = split_claims(text, None, language)
    assert all(claim.strip() for claim in claims)
    wanted = [character for character in text if character.isalnum()]
    assert [character for claim in claims for character in claim if character.isalnum()] == wanted


def test_a_long_delivery_has_several_sentences_in_a_claim() -> None:
    """V07: a bound on what a judge must answer, and still nothing left out."""
    claims = split_claims("\n".join(f"Row number {n} was checked." for n in range(1000)))
    assert len(claims) <= MOST_CLAIMS
    assert all(f"number {n} " in " ".join(claims) for n in range(1000))


def test_data_is_a_set_of_claims_as_well() -> None:
    """N06, V07: every value by its path."""
    claims = split_claims("Acme is the cheapest.", {"vendor": "Acme", "offers": [{"price": 18.4}], "note": None})
    assert claims == ["Acme is the cheapest.", "vendor = Acme", "offers[0].price = 18.4"]
    assert split_claims("", "Acme") == ["output = Acme"]
    said_once = split_claims('{"vendor": "Acme", "price": 18.4}', {"vendor": "Acme", "price": 18.4})
    assert said_once == ["vendor = Acme", "price = 18.4"]
