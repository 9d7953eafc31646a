"""Short forms of `make scale`: workers that die or lose their connection double nothing; nothing reads all threads."""

from pathlib import Path

import pytest

from benchmarks.scale.__main__ import KINDS, attack
from benchmarks.scale.cases import cut_off, killed, restarted, restarting, terminating
from benchmarks.scale.crowd import crowd
from benchmarks.scale.growth import database, multiply
from benchmarks.scale.load import TURNS, loaded
from benchmarks.scale.world import CHARGES, agent_on, goal
from tests.kit.storage.servers import fresh_postgres_url

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_worker_doubles_nothing(kind: str) -> None:
    """R02, R03, R04: of two workers one is killed in the middle; the other finishes all; every charge is made once."""
    outcome = attack(kind, 6, lambda _: killed)
    assert outcome.right, outcome


def test_a_worker_that_was_cut_off_and_thawed_makes_no_new_call() -> None:
    """R04: frozen, its connections ended, another takes over; thawed, it cannot write any more. What it does is the
    call that was on its way to the tool in each of its runs, at most; `test_workers` shows that a key stops that one.
    """
    runs = 6
    outcome = attack("PostgreSQL", runs, lambda url: cut_off(terminating(url)))
    assert (outcome.completed, outcome.charged) == (runs, runs * CHARGES)
    assert outcome.doubled <= runs // 2, outcome


def test_workers_come_back_after_the_database() -> None:
    """R04, R07: the server restarts under load; nothing is lost, and nobody starts the workers again."""
    outcome = attack("PostgreSQL", 6, lambda url: restarted(restarting(url)))
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_crowd(kind: str, tmp_path: Path) -> None:
    """R04, R07: many more runs than four workers take up at once all end, once."""
    url = f"sqlite:///{tmp_path}/runs.db" if kind == "SQLite" else fresh_postgres_url()
    row = crowd(url, tmp_path, 20, 2)
    assert (row["completed"], row["charges, doubled"]) == ("20 of 20", "60 of 60, 0")
    assert kind == "SQLite" or int(row["connections, most"]) <= 4 * (2 + 1 + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_beside_a_plain_loop(kind: str, tmp_path: Path) -> None:
    """R07: more runs at once than there are connections all end, and both sides are measured."""
    row = loaded(f"sqlite:///{tmp_path}/runs.db" if kind == "SQLite" else fresh_postgres_url(), tmp_path, 20)
    assert row["completed"] == f"{20 * TURNS} of {20 * TURNS}"
    assert min(float(row["ours ÷ plain"]), float(row["CPU, plain ÷ ours"])) > 0.1
