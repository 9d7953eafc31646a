"""Tools that do what none should, in whole runs: every run ends right, storages stay small, no secret is kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.faults import tools
from benchmarks.faults.tools import RELEASE, SECRETS, Case, cases
from donewhen.graph.tools.call import LIMIT

CASES = [(case, bool(number % 2)) for number, case in enumerate(cases()) if number % 4 in (0, 3)]
"""Every other one, plain and as a coroutine by turns; `make faults` has all of them both ways."""


@pytest.fixture(autouse=True)
def let_go() -> Iterator[None]:
    """Threads that hang end with the test."""
    RELEASE.clear()
    yield
    RELEASE.set()


@pytest.mark.parametrize("kind", ["raises", "returns", "hangs"])
async def test_no_tool_kills_a_run(kind: str, tmp_path: Path) -> None:
    """F8, X07: whatever a tool raises or returns is an observation; a result beyond the cap is stored once, cut."""
    tally = await tools.misbehave(tmp_path, [each for each in CASES if each[0].kind == kind])
    assert (tally.killed, tally.misread, tally.leaks) == ([], [], [])
    assert tally.right == tally.runs > 0
    assert all(size < 2 * LIMIT for size in tally.sizes.values()), tally.sizes


async def test_a_secret_that_is_kept_would_be_found(tmp_path: Path) -> None:
    """F8: the search through the database's bytes finds what nothing conceals: here a bare word of a private key."""
    tally = await tools.misbehave(tmp_path, [(Case("bare", "returns", lambda: SECRETS[3]), False)])
    assert tally.leaks == [f"bare, sync: {SECRETS[3]}"]
