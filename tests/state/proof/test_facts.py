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
