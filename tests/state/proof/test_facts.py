"""What a result states, looked up in what was seen: in order, and only as far as it takes."""

from collections.abc import Iterator

import pytest
from donewhen.state.proof.facts import unconfirmed


def texts(*said: str) -> Iterator[str]:
    """Texts of which none may be asked for after the last."""
    yield from said
    pytest.fail("read further than needed")


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("All is well.", ()),
        ("Counted 3 of them.", ()),
        ("The total is 18,402.35.", ("nothing", "total: 18402.35")),
        ("About 12.3 % on 2026-11-02.", ("a share of 0.1229", "dated 02.11.2026")),
        ("Written to report.md: 4711 rows.", ("4711 rows", "see REPORT.md")),
    ],
)
def test_nothing_is_read_beyond_what_supports_it(result: str, said: tuple[str, ...]) -> None:
    """V03, K8: a result without facts reads nothing, one with facts only up to the text that has the last of them."""
    assert unconfirmed(result, texts(*said)) == []


def test_all_is_read_before_something_is_called_unconfirmed() -> None:
    """V03: whatever the order of the texts."""
    assert unconfirmed("4711 and 815 and 96", iter(["815", "x", "4711"])) == ["96"]


@pytest.mark.parametrize(
    ("result", "seen", "open_facts"),
    [
        ("On 24 November 2026.", "2026-11-24", []),
        ("On 25 November 2026.", "2026-11-24", ["25"]),
        ("2026-12-03", "le 3 décembre 2026", []),
        ("2026-11-03", "le 3 décembre 2026", ["2026-11-03"]),
        ("9:30 am", "DTSTART:20261124T093000", []),
        ("10:30 am", "DTSTART:20261124T093000", ["10:30"]),
        ("numpy 1.10.1", "numpy 1.10.0", ["1.10.1"]),
        ("Python 3.12", "python 3.11.7", ["3.12"]),
        ("Node 20.11.1 is installed.", "v20.11.1", []),
        ("Node v20.11.1 is installed.", "node 20.11.1", []),
        ("Node 20.11.2 is installed.", "v20.11.1", ["20.11.2"]),
        ("It has 1.3 MB.", "1234567 bytes", ["1.3"]),
        ("约1.84万元", "18402.35", []),
        ("约1.94万元", "18402.35", ["1.94"]),
        ("预算为250万美元", "a budget of $2.5M", []),
        ("About 18.4 thousand.", "18402.35", []),
        ("That is 1,240 m.", "12.4 km", ["1240"]),
        ("It costs 249,500 EUR.", "249.50 EUR", ["249500"]),
        ("12.5 of them", "share 0.125", ["12.5"]),
        ("12.5 %", "share 0.125", []),
        ("Call +49 30 9018201.", "+49 (0)30 901820-0", ["9018201"]),
        ("Commit 3f9a2c2.", "3f9a2c1e8b7d6a5f4e3d2c1b0a9f8e7d", ["3f9a2c2"]),
        ("See b.py.", "a.py:10: TODO", ["b.py"]),
    ],
)
def test_what_is_written_otherwise_is_told_from_what_is_other(result: str, seen: str, open_facts: list[str]) -> None:
    """V03, B2: dates, times, versions, sizes, shares and hashes as people write them, and with a digit changed."""
    assert unconfirmed(result, [seen]) == open_facts
