"""Killed anywhere, a run goes on as if nothing had happened: a sample of the points that the benchmark tries all."""

from pathlib import Path

import pytest

from benchmarks.matrix import OPERATIONS, TOOLS, Figures, in_a_row, killed
from benchmarks.scenario import APART
from benchmarks.workers import MOMENTS, race, undisturbed
from tests.kit.storage.cases import DATABASES, fresh_url

pytestmark = pytest.mark.timeout(240)


def _storage(kind: str, folder: Path) -> str:
    """A server's database is shared by all runs, a file is one run's own."""
    return "" if kind == "sqlite" else fresh_url(kind, folder) + "&options=-csynchronous_commit%3Doff"


def _assert_unharmed(figures: Figures) -> None:
    assert figures.problems == ()
    assert figures.silent == 0


@pytest.mark.parametrize("kind", DATABASES)
def test_killed_around_a_tool_or_a_model_call(kind: str, folder: Path) -> None:
    """F1, F2, R02, R03, X15: before, inside and after tools of every kind, and while a model is asked.

    A person is asked about the writes that neither a key nor a probe decides, and about nothing else.
    """
    only = [*TOOLS, "model"]
    points = [3, 17, 31, 38] if kind == "sqlite" else [5, 38]
    figures = killed(folder, _storage(kind, folder), points=points, only=only)
    _assert_unharmed(figures)
    assert figures.trials == figures.deaths == len(points)
    assert figures.asked > 0


@pytest.mark.parametrize("kind", DATABASES)
def test_killed_around_a_storage_operation(kind: str, folder: Path) -> None:
    """F1, R02, R05: before and after checkpoints, writes and store entries; nothing is lost, nobody asked twice."""
    points = [7, 110, 205] if kind == "sqlite" else [139]
    figures = killed(folder, _storage(kind, folder), points=points, only=OPERATIONS)
    _assert_unharmed(figures)


def test_killed_again_while_it_recovers(folder: Path) -> None:
    """F1, R03: what a person said of the first attempt is not taken for the second one."""
    figures = killed(
        folder,
        points=[(1, 1, 2), (2, 2)],
        only=["send.before", "send.inside", "send.after"],
    )
    assert figures.problems == ()
    assert figures.asked == 4
    _assert_unharmed(killed(folder / "drawn", points=in_a_row(2, 2)))


@pytest.mark.parametrize("kind", DATABASES)
def test_killed_where_clocks_are_an_hour_apart(kind: str, folder: Path) -> None:
    """Q14, R16: each process goes on with what the one before did, whose clock is an hour ahead, or behind."""
    storage = APART + _storage(kind, folder)
    if kind == "sqlite":
        _assert_unharmed(killed(folder, storage, points=[60]))
        return
    found = race(folder / "race", MOMENTS[3], 2, undisturbed(folder / "like", storage), storage)
    assert (found.worked, found.problems) == (1, ())


def test_killed_in_a_back_off(folder: Path) -> None:
    """F2, R01: a model that fails for the moment is asked again by the next process."""
    figures = killed(folder, points=[1], only=["back-off"], flaky="s3")
    assert figures.problems == ()
    assert figures.deaths == 1


def test_an_operation_that_fails(folder: Path) -> None:
    """F5, R02: a checkpoint, write or store entry that fails is a StorageError; with a healthy storage it goes on."""
    figures = killed(folder, points=range(5, 240, 117), only=OPERATIONS, mode="raise")
    _assert_unharmed(figures)
    assert figures.deaths == figures.trials
