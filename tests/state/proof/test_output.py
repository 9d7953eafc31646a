"""Values of delivered data: which observation says them."""

from typing import Any

from donewhen.state.proof.output import SourceText, leaf_values, trace_values

OFFERS = SourceText("s1.1", 'vendor,price,until\nAcme,18.40,2026-11-30\nBolt,"1,020.15",2026-12-24\nstock: 7\n')
MAIL = SourceText("s1.2", '{"from": "Mira M\\u00fcller", "note": "Acme delivers on 30 November 2026, at 18.40"}')
RESULT = SourceText("s1.result", "Acme 18.40, Bolt 1,020.15, total 1,038.55", firsthand=False)


def rows(data: Any, *sources: SourceText) -> dict[str, str]:
    """Path → the observation that says the value, or ""."""
    found, _ = trace_values(data, sources or (OFFERS, MAIL, RESULT))
    return {row["path"]: row["evidence"][0]["observation"] if row["evidence"] else "" for row in found}


def test_values_are_found_by_their_words_and_numbers() -> None:
    """V01, A1: numbers by their value, whatever the case, first hand before the agent's own words."""
    found = rows({"vendor": "ACME", "price": 18.4, "until": "2026-11-30", "total": 1038.55, "big": 1020.15})
    assert found == {"vendor": "s1.1", "price": "s1.1", "until": "s1.1", "total": "s1.result", "big": "s1.1"}


def test_what_stands_nowhere_has_no_evidence_and_no_verdict() -> None:
    """N07: a sum, a rating or something made up; code cannot tell which, and says nothing of it."""
    data = {"price": 17.95, "sum": 37, "rating": "good", "ok": True, "rows": [101, 102], "nothing": None}
    assert rows(data) == {"price": "", "sum": "", "rating": "", "ok": "", "rows[0]": "", "rows[1]": ""}
    assert [set(row) for row in trace_values({"a": 1}, [OFFERS])[0]] == [{"path", "evidence"}]


def test_a_small_number_stands_beside_its_name() -> None:
    """A1: 7 is somewhere in every listing; it is evidence as `stock: 7` only."""
    assert rows({"stock": 7, "left": 7}, OFFERS) == {"stock": "s1.1", "left": ""}


def test_of_several_the_one_that_says_most_is_named() -> None:
    """A1: `Acme` stands in two, and the listing says the rest too."""
    assert rows({"a": {"vendor": "Acme", "price": 18.4, "stock": 7}})["a.vendor"] == "s1.1"


def test_paths_and_bounds() -> None:
    """A1: paths as in JSON; a value by itself has none; beyond a thousand values are counted."""
    found, more = trace_values({"a": [{"b": 1}, {"c": {"d": "Acme"}}]}, [OFFERS])
    assert [row["path"] for row in found] == ["a[0].b", "a[1].c.d"]
    assert trace_values("Acme", [OFFERS])[0][0]["path"] == ""
    found, more = trace_values(list(range(1500)), [OFFERS])
    assert (len(found), more) == (1000, 500)
    assert [path for path, _, _ in leaf_values({"a": [None, {"b": ""}], "c": False})] == ["a[1].b", "c"]
