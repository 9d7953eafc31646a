"""Killed while a gate decides about a call, a run goes on as if nothing had happened."""

from pathlib import Path

import pytest

from benchmarks.matrix import killed
from tests.kit.gates import BOUNDARIES

pytestmark = pytest.mark.timeout(240)


def test_killed_at_each_gate(folder: Path) -> None:
    """F1, X15, X24, Q85: whatever a person, a hook or a limit decided counts once, and nobody is asked it again."""
    figures = killed(folder, target="tests.kit.gates:gates", only=BOUNDARIES, points=[2, 6, 9, 10, 13], side_by_side=2)
    assert figures.problems == ()
    assert (figures.silent, figures.deaths) == (0, 5)
    assert figures.asked == 1, "about the write that nobody can look up"
