"""Databases that fail in the middle of a run, and databases that somebody changed."""

from pathlib import Path

from benchmarks.faults import storage


async def test_a_write_that_fails_surfaces_and_the_run_recovers(tmp_path: Path) -> None:
    """F5, R02: an error before or after it, a full disk, a lock; nothing is done twice."""
    tally = await storage.sqlite_faults(tmp_path, [0], 18)
    assert tally.strange == []
    assert sum(tally.kinds.values()) == tally.fired >= tally.runs - 1, (
        "what fits into the last page of a full disk fits"
    )
    assert tally.recovered == tally.runs > 10
    assert (tally.silent, tally.doubled) == (0, 0)
    assert set(tally.kinds) == set(storage.SQLITE_KINDS)


async def test_a_run_whose_connection_is_lost_goes_on() -> None:
    """F5, R02, Q52: the server ends it before a write."""
    tally = await storage.postgres_faults([0], 25)
    assert tally.strange == []
    assert tally.went_on == tally.fired == tally.recovered == tally.runs >= 2
    assert (tally.silent, tally.doubled) == (0, 0)
