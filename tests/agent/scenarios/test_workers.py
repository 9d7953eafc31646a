"""Many workers, many answers: one works, the others are refused in words, and nothing happens twice."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.answers import misuses
from benchmarks.frozen import freeze
from benchmarks.workers import MOMENTS, race, undisturbed
from tests.kit.storage.cases import DATABASES, fresh_url

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(params=DATABASES)
def storage(request: pytest.FixtureRequest, folder: Path) -> str:
    return "" if request.param == "sqlite" else fresh_url("postgres", folder) + "&options=-csynchronous_commit%3Doff"


@pytest.fixture(scope="module")
def like(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The run that all of these are to end like, whatever its storage."""
    return undisturbed(tmp_path_factory.mktemp("like"))


async def test_answers_that_come_twice_late_or_to_nobody_change_nothing(folder: Path, storage: str) -> None:
    """F3, C04, C06: at a pause of every kind and after the end; each is refused with a typed error."""
    found = await misuses(folder, storage)
    assert len(found) > 50
    assert {one.pause for one in found} == {"plan", "question", "effect", "tool", "end"}
    assert [one for one in found if one.changed or not one.refused] == []


def test_of_eight_workers_on_one_thread_one_works(folder: Path, storage: str, like: dict[str, Any]) -> None:
    """F4, R04: all give the same answer at once, and all go on with what a dead worker left in a write."""
    races = ((MOMENTS[1], 8), (MOMENTS[2], 2)) if storage else ((MOMENTS[1], 2), (MOMENTS[3], 8))
    for moment, workers in races:
        found = race(folder / moment.replace(" ", "-"), moment, workers, like, storage)
        assert found.problems == ()
        assert found.worked == 1
        assert set(found.ends) <= {"waiting", "ThreadBusy", "StaleAnswer"}


def test_a_frozen_worker_keeps_its_thread(folder: Path, storage: str, like: dict[str, Any]) -> None:
    """F4, R04: no lease runs out under it; thawed, it goes on, and nothing happened twice."""
    found = freeze(folder / "frozen", "put_writes.done" if storage else "charge.inside", like, storage)
    assert (found.second, found.thawed, found.problems) == ("ThreadBusy", "completed", ())


def test_a_frozen_worker_that_lost_its_connection_writes_no_more(folder: Path, like: dict[str, Any]) -> None:
    """F4: another worker brings the thread to its end, the thawed one is told; a tool's key keeps it to one effect."""
    storage = fresh_url("postgres", folder)
    found = freeze(folder / "frozen", "store.done", like, storage, cut=True)
    assert (found.second, found.thawed, found.problems) == ("completed", "StorageError", ())
