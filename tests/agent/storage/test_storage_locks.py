"""Locks against real processes: killed, frozen, and racing."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from donewhen.agent.storage import open_storage
from donewhen.agent.storage.sqlite import FileLock
from donewhen.state.errors import ThreadBusy
from tests.kit.storage.cases import DATABASES, fresh_url
from tests.kit.storage.workers import working


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


async def _works_on(url: str, thread_id: str) -> bool:
    try:
        async with open_storage(url).session(thread_id) as (_, store):
            return await store.aget(("worker",), "last") is not None
    except ThreadBusy:
        return False


async def test_a_killed_holder_leaves_the_thread_free(url: str) -> None:
    """R02, R04: no lease to wait for, no lock to clear by hand."""
    with working(url, "t/1") as [(process, pipe)]:
        pipe.send("go")
        assert pipe.recv() == "works"
        assert not await _works_on(url, "t/1")
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        tries = 0  # PostgreSQL notices a closed connection a moment after the kernel does
        while not await _works_on(url, "t/1"):
            tries += 1
            assert tries < 100
        assert tries == 0 or url.startswith("postgresql")


async def test_a_child_of_a_killed_holder_does_not_keep_the_thread(url: str) -> None:
    """R02, R04: a tool's process pool may outlive its worker; it has no part in the lock."""
    with working(url, "t") as [(process, pipe)]:
        pipe.send("go")
        assert pipe.recv() == "works"
        pipe.send("fork")
        child = pipe.recv()
        assert not await _works_on(url, "t")
        process.kill()
        process.join()
        try:
            async with open_storage(url).session("t", patience=10.0) as (_, store):
                assert await store.aget(("worker",), "last") is not None
        finally:
            os.kill(child, signal.SIGKILL)


async def test_a_frozen_holder_keeps_the_thread(url: str) -> None:
    """F4: nobody takes over from a worker that may be thawed, so nothing runs twice."""
    with working(url, "t") as [(process, pipe)]:
        pipe.send("go")
        assert pipe.recv() == "works"
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        assert not any([await _works_on(url, "t") for _ in range(5)])
        os.kill(process.pid, signal.SIGCONT)
        pipe.send("stop")
        assert pipe.recv() == "left"
    assert await _works_on(url, "t")


async def test_of_eight_workers_one_works(url: str) -> None:
    """F4, R04: also when all of them find the database empty and have to set it up."""
    with working(url, "t", count=8) as workers:
        for _, pipe in workers:
            pipe.send("go")
        answers = [pipe.recv() for _, pipe in workers]
        assert sorted(answers) == ["busy"] * 7 + ["works"]
        workers[answers.index("works")][1].send("stop")
        assert workers[answers.index("works")][1].recv() == "left"
    assert await _works_on(url, "t")


async def test_setting_up_is_done_once_by_many(url: str) -> None:
    """Workers on different threads of a new database do not disturb each other."""
    with working(url, "a", count=3) as first, working(url, "b", count=3) as second:
        for _, pipe in [*first, *second]:
            pipe.send("go")
        answers = [pipe.recv() for _, pipe in [*first, *second]]
    assert sorted(answers) == ["busy"] * 4 + ["works"] * 2


async def test_a_session_that_lost_its_lock_cannot_write() -> None:
    """F4: the lock lives on the connection that writes, so losing one is losing the other (a fence)."""
    import psycopg

    from tests.kit.storage.servers import fresh_postgres_url

    url = fresh_postgres_url()
    async with open_storage(url).session("t") as (_, store):
        await store.aput(("a",), "k", {"v": 1})
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'donewhen' AND datname = current_database()"
            )
        async with open_storage(url).session("t") as (_, new):
            await new.aput(("a",), "k", {"v": 2})
        with pytest.raises(psycopg.OperationalError):
            await store.aput(("a",), "k", {"v": 3})
    async with open_storage(url).reader() as (_, store):
        item = await store.aget(("a",), "k")
    assert item is not None
    assert item.value == {"v": 2}


def test_lock_files_go_and_names_stay_inside_the_folder(tmp_path: Path) -> None:
    """F12: a name is hashed, so it reaches no other path; a released lock leaves no file behind."""
    folder = tmp_path / "locks"
    locks = [FileLock(folder, name) for name in ("../escape", "a\0b", "x" * 1000, "🚀")]
    assert all(lock.take() for lock in locks)
    assert not FileLock(folder, "../escape").take()
    assert len(list(folder.iterdir())) == 4
    assert list(tmp_path.iterdir()) == [folder]
    for lock in locks:
        lock.release()
    assert list(folder.iterdir()) == []
    assert locks[0].take()
    locks[0].release()


async def test_a_connection_serves_session_after_session() -> None:
    """R07: while one is at work, the others come and go on one connection; a lock goes with its session, and what the
    server has closed meanwhile is not used."""
    import psycopg

    from tests.kit.storage.servers import fresh_postgres_url

    url, used = fresh_postgres_url(), list[int]()
    storage = open_storage(url)
    idle = (
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'donewhen' AND datname = current_database()"
        " AND query LIKE '%unlock%'"
    )
    begun, ends = asyncio.Event(), asyncio.Event()

    async def works() -> None:
        async with storage.session("open"):
            begun.set()
            await ends.wait()

    working = asyncio.create_task(works())
    await begun.wait()
    with psycopg.connect(url, autocommit=True) as other:
        for thread_id in ("a", "b", "c"):
            async with storage.session(thread_id) as (_, store):
                await store.aput(("worker",), "last", {"thread": thread_id})
            used += [row[0] for row in other.execute(idle)]
            assert await _works_on(url, thread_id)
        assert (len(used), len(set(used))) == (3, 1)
        other.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM ({idle}) AS idle".encode())
        async with storage.session("a") as (_, store):
            assert await store.aget(("worker",), "last") is not None
    ends.set()
    await working
