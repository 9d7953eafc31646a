"""Short forms of `make scale`: workers that die or lose their connection double nothing; nothing reads all threads."""

from pathlib import Path

import pytest

from benchmarks.scale.__main__ import attack
from benchmarks.scale.cases import killed, restarted, restarting
from benchmarks.scale.growth import begun_seconds, database, look_seconds, multiply
from benchmarks.scale.world import agent_on, goal

pytestmark = pytest.mark.timeout(180)


def test_a_killed_worker_doubles_nothing() -> None:
    """R02, R03, R04: of two workers one is killed in the middle; the other finishes all; every charge is made once."""
    outcome = attack("PostgreSQL", 4, lambda _: killed)
    assert outcome.right, outcome


def test_workers_come_back_after_the_database() -> None:
    """R04, R07: the server restarts under load; nothing is lost, and nobody starts the workers again."""
    outcome = attack("PostgreSQL", 4, lambda url: restarted(restarting(url)))
    assert outcome.right, outcome


async def test_a_thread_is_read_alone(tmp_path: Path) -> None:
    """R09: among hundreds of threads the same statements are said for one, and copies of a thread are threads."""
    url, ledger = f"sqlite:///{tmp_path}/runs.db", tmp_path / "ledger.txt"
    ledger.touch()
    async with agent_on(url, ledger) as agent:
        await agent.start(goal(0), thread_id="seed")
        with database(url) as (execute, columns):
            multiply(execute, columns, "seed", range(1, 300))
        assert len(await agent.threads(1000)) == 300
        assert (await agent.get("seed-299")).status == "completed"


async def test_an_idle_worker_only_looks(tmp_path: Path) -> None:
    """R09: a poll of a worker without work begins nothing; what is submitted to another agent's worker begins."""
    url = f"sqlite:///{tmp_path}/runs.db"
    assert await look_seconds(url, 2) > 0
    assert await begun_seconds(url, 2) > 0
