"""Locks against real processes: killed, frozen, and racing."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from donewhen import ThreadBusy
from donewhen.agent.storage.sqlite import FileLock
from tests.kit.storage.cases import DATABASES, fresh_url, open_storage
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


async def test_setting_up_is_done_once_by_many(url: str) -> None:
    """Workers on different threads of a new database do not disturb each other."""
    with working(url, "a", count=3) as first, working(url, "b", count=3) as second:
        for _, pipe in [*first, *second]:
            pipe.send("go")
        answers = [pipe.recv() for _, pipe in [*first, *second]]
    assert sorted(answers) == ["busy"] * 4 + ["works"] * 2


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


def test_looking_disturbs_nobody(tmp_path: Path) -> None:
    """R04: who takes a lock that is free has it, however many look at it; of several that try, one has it."""
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            FileLock(tmp_path, "t").is_held()

    def take(lock: FileLock) -> bool:
        start.wait()
        return lock.take()

    lookers, start = [threading.Thread(target=look) for _ in range(2)], threading.Barrier(4)
    try:
        for looker in lookers:
            looker.start()
        for _ in range(500):
            lock = FileLock(tmp_path, "t")
            assert lock.take()
            lock.release()
        rivals = [FileLock(tmp_path, "t") for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(take, rivals)) == [False, False, False, True]
        for lock in rivals:
            lock.release()
    finally:
        stop.set()
        for looker in lookers:
            looker.join()
