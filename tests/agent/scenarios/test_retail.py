"""Real tasks with real, countable effects, recorded by others; the model that works on them knows the solution."""

from pathlib import Path

import pytest

from benchmarks.retail import Score, Way, score
from benchmarks.retail_world import FULL, SAMPLE, RetailWorld, tasks

pytestmark = pytest.mark.timeout(240)
recorded = pytest.mark.skipif(not FULL.exists(), reason="the recorded retail tasks are not in ../shared/evals")


def _assert_right(found: Score, runs: int, deaths: int) -> None:
    assert found.problems == ()
    assert (found.runs, found.right, found.deaths) == (runs, runs, deaths)
    assert (found.doubled, found.missing, found.asked_twice) == (0, 0, 0)


def test_two_tasks_killed_at_two_points_each(folder: Path) -> None:
    """F1, R02, R03: the database has the right hash, no write happened twice, no question was asked twice."""
    _assert_right(score(folder, Way(full=False), deaths=2), runs=6, deaths=4)


def test_two_tasks_with_keys_and_tools_that_fail(folder: Path) -> None:
    """F1, X07: a third of the calls fail before they reach the shop. About tools that take a key nobody is asked."""
    found = score(folder, Way(keyed=True, errors=0.3, full=False), deaths=1)
    _assert_right(found, runs=4, deaths=2)
    assert found.asked == 0


@recorded
def test_all_recorded_tasks(folder: Path) -> None:
    """The 20 tasks end with the right database; the data's own scorer agrees. The benchmark kills each of them."""
    _assert_right(score(folder, Way()), runs=20, deaths=0)


def test_the_recorded_world_says_what_was_recorded(tmp_path: Path) -> None:
    """The sample names its source; the world moves along recorded edges, counts doubles, and honours keys."""
    assert "tau-bench" in SAMPLE.read_text("utf-8")
    task = tasks(full=False)[0]
    action = task["actions"][0]
    world = RetailWorld(task, tmp_path / "world.jsonl")
    assert world.score() == {"goal_match": False, "dup_writes": 0, "missing": 1, "off_graph": 0}
    first = world.call(action["name"], action["args"], "key")
    assert '"status": "cancelled"' in first
    assert world.call(action["name"], action["args"], "key") == first
    assert world.score() == {"goal_match": True, "dup_writes": 0, "missing": 0, "off_graph": 0}
    assert world.call(action["name"], action["args"]) == "Error: non-pending order cannot be cancelled"
    assert world.call("get_order_details", {"order_id": "#W0"}) == "Error: this was never recorded"
    assert world.score() == {"goal_match": True, "dup_writes": 1, "missing": 0, "off_graph": 1}
