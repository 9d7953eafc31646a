"""docs/faults.md: every fault is measured, and a bar that is missed is said."""

from benchmarks.faults.__main__ import PAGE, PARTS
from benchmarks.faults.figures import NAMES, Measured, none, of, page, problems


def test_every_fault_is_measured_and_on_the_page() -> None:
    """F5–F8, F10–F14: no section without a module, none that was not measured."""
    text = PAGE.read_text(encoding="utf-8")
    assert sorted(PARTS) == sorted(NAMES)
    assert "Not measured yet" not in text
    assert [
        name for name in ("F5", "F6", "F7", "F8", "F10", "F11", "F12", "F13", "F14") if f"| {name} " not in text
    ] == []


def test_a_bar_that_is_missed_is_marked_and_fails() -> None:
    """The benchmark itself: shares and counts against their bars; nothing tried is nothing shown."""
    good = [of("F6", "right", 100, 98, 0.98), none("F8", "killed", 3, 0)]
    bad = [of("F6", "right", 100, 97, 0.98), none("F8", "killed", 3, 1), none("F8", "killed", 0, 0)]
    assert problems(good) == []
    assert problems(bad) == ["F6 right: 97 of 100 (97.0%), not ≥ 98%", "F8 killed: 1, not 0", "F8 killed: 0, not 0"]
    text = page({"models": Measured([*good, *bad], "told")})
    assert "| F6 right | 100 | 98 of 100 (98.0%) | ≥ 98% |" in text
    assert "| F6 right | 100 | **97 of 100 (97.0%)** (missed) | ≥ 98% |" in text
    assert text.count("Not measured yet.") == len(NAMES) - 1
