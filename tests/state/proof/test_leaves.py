"""Values of delivered data: which observation says them, and which state what nothing says."""

from typing import Any

from donewhen.state.proof.leaves import SourceText, traced

OFFERS = SourceText("s1.1", 'vendor,price,until\nAcme,18.40,2026-11-30\nBolt,"1,020.15",2026-12-24\nstock: 7\n')
MAIL = SourceText("s1.2", '{"from": "Mira M\\u00fcller", "note": "Acme delivers on 30 November 2026, at 18.40"}')
RESULT = SourceText("s1.result", "Acme 18.40, Bolt 1,020.15, total 1,038.55", firsthand=False)


def rows(data: Any, *sources: SourceText, told: tuple[str, ...] = ()) -> dict[str, tuple[str, bool]]:
    """Path → the observation that says the value, and whether it is unconfirmed."""
    found, _ = traced(data, sources or (OFFERS, MAIL, RESULT), told)
    return {
        row["path"]: (row["evidence"][0]["observation"] if row["evidence"] else "", row["unconfirmed"]) for row in found
    }


def test_values_are_found_however_they_are_written() -> None:
    """V01, A1: numbers by their value, dates in another order, first hand before the agent's own words."""
    data = {"vendor": "ACME", "price": 18.4, "until": "30.11.2026", "total": 1038.55, "big": 1020.15}
    found = rows(data)
    assert found["vendor"] == ("s1.1", False)
    assert found["price"] == ("s1.1", False)
    assert found["until"] == ("s1.1", False)
    assert found["total"] == ("s1.result", False)
    assert found["big"] == ("s1.1", False)


def test_what_nothing_says_is_unconfirmed_all_of_it() -> None:
    """V03, A1: numbers, dates, ids and files, however many; not judgements, small counts, or what the user said."""
    made_up = {
        "price": 17.95,
        "until": "2027-01-05",
        "order": "A-4711",
        "file": "report.pdf",
        "rows": [*range(101, 131)],
    }
    assert [path for path, row in rows(made_up).items() if row != ("", True)] == []
    honest = {
        "rating": "good",
        "ok": True,
        "count": 2,
        "nothing": None,
        "sum": 1038.55,
        "asked": 4711,
        "of": [18.4, 1020.15],
    }
    assert [path for path, (_, loose) in rows(honest, OFFERS, told=("order 4711",)).items() if loose] == []


def test_a_small_number_stands_beside_its_name() -> None:
    """A1: 7 is somewhere in every listing; it is evidence as `stock: 7` only."""
    assert rows({"stock": 7, "left": 7}, OFFERS) == {"stock": ("s1.1", False), "left": ("", False)}


def test_of_several_the_one_that_says_most_is_named() -> None:
    """A1: `Acme` stands in two, and the listing says the rest too."""
    assert rows({"a": {"vendor": "Acme", "price": 18.4, "stock": 7}})["a.vendor"] == ("s1.1", False)


def test_paths_and_bounds() -> None:
    """A1: paths as in JSON; a value by itself has none; beyond a thousand values are counted."""
    found, more = traced({"a": [{"b": 1}, {"c": {"d": "Acme"}}]}, [OFFERS])
    assert [row["path"] for row in found] == ["a[0].b", "a[1].c.d"]
    assert traced("Acme", [OFFERS])[0][0]["path"] == ""
    found, more = traced(list(range(1500)), [OFFERS])
    assert (len(found), more) == (1000, 500)
