"""Short forms of `make scale`: workers that die or lose their connection double nothing; nothing reads all threads."""

import sqlite3
from pathlib import Path

import pytest

from benchmarks.scale.__main__ import on_postgres, on_sqlite, restarting, terminating
from benchmarks.scale.cases import cut_off, killed, multiply, restarted
from benchmarks.scale.world import CHARGES, agent_on, goal
from donewhen.agent.storage import open_storage
from donewhen.agent.work.engine import QUEUE

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("place", [on_sqlite(killed), on_postgres(lambda url: killed)], ids=["sqlite", "postgres"])
def test_a_killed_worker_doubles_nothing(place: object) -> None:
    """R02, R03, R04: of two workers one is killed in the middle; the other finishes all; every charge is made once."""
    assert callable(place)
    outcome = place(6)
    assert outcome.right, outcome


def test_a_worker_that_was_cut_off_and_thawed_makes_no_new_call() -> None:
    """R04: frozen, its connections ended, another takes over; thawed, it cannot write any more. What it does is the
    call that was on its way to the tool in each of its runs, at most; `test_workers` shows that a key stops that one.
    """
    runs = 6
    outcome = on_postgres(lambda url: cut_off(terminating(url)))(runs)
    assert (outcome.completed, outcome.charged) == (runs, runs * CHARGES)
    assert outcome.doubled <= runs // 2, outcome


def test_workers_come_back_after_the_database() -> None:
    """R04, R07: the server restarts under load; nothing is lost, and nobody starts the workers again."""
    outcome = on_postgres(lambda url: restarted(restarting(url)))(6)
    assert outcome.right, outcome


async def test_lists_and_queues_read_an_index(tmp_path: Path) -> None:
    """R09, M11: what lists, queues and sweeps ask for is found, not searched for."""
    path = tmp_path / "runs.db"
    async with open_storage(str(path)) as storage, storage.unlocked() as (_, store):
        asked: list[str] = []
        execute = store.threads.execute

        async def heard(sql: str, values: object) -> object:
            asked.append(sql)
            return await execute(sql, values)  # type: ignore[arg-type]

        store.threads.execute = heard  # type: ignore[assignment]
        await store.threads.find(10)
        await store.threads.find(10, owner="ann", before="2026")
        await store.threads.find(10, status=["waiting"])
        await store.threads.find(10, status=["running"], queue=QUEUE, due="2026")
        await store.threads.find(10, prefix="ab")
        await store.threads.line(QUEUE, "2026", 10)
    with sqlite3.connect(path) as file:
        for sql in asked:
            plan = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {sql}", ["x"] * sql.count("?"))]
            reads = [line for line in plan if "donewhen_threads" in line]
            assert reads
            assert all("USING INDEX" in line or "USING COVERING INDEX" in line for line in reads), (sql, plan)


async def test_a_thread_is_read_alone(tmp_path: Path) -> None:
    """R09: among hundreds of threads the same statements are said for one, and copies of a thread are threads."""
    url, ledger = f"sqlite:///{tmp_path}/runs.db", tmp_path / "ledger.txt"
    ledger.touch()
    async with agent_on(url, ledger) as agent:
        await agent.start(goal(0), thread_id="seed")
        with sqlite3.connect(tmp_path / "runs.db") as file:
            multiply(
                lambda sql: file.execute(sql).fetchall(),
                lambda table: [row[1] for row in file.execute(f"PRAGMA table_info({table})")],
                1,
                300,
            )
        assert len(await agent.threads(1000)) == 300
        assert (await agent.get("copy-299")).status == "completed"
