"""Many runs at once on one database: they wait for each other, and none fails for the number of others."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from donewhen import Agent
from donewhen.graph.sync import MOST_IDLE
from donewhen.testing import ScriptedModel, answer, call, finish_step, submit_plan
from tests.kit.runs import sending
from tests.kit.storage.cases import DATABASES, fresh_url


async def look(x: str = "") -> str:
    """Look."""
    return f"seen {x}"


def _execute(messages: list[Any], tools: list[Any]) -> Any:
    made = sum(message.type == "tool" for message in messages)
    return call("look", x=str(made)) if made < 5 else finish_step("seen", evidence=("s1.1", "seen 0"))


async def many(url: str, count: int) -> tuple[int, int, list[str]]:
    """The most file descriptors and threads above those before, and the statuses of `count` runs at once."""
    plan = submit_plan([{"content": "look", "done_when": ["it is seen"], "tools": ["look"]}])
    model = ScriptedModel(roles={"triage": lambda *_: plan, "execute": _execute, "deliver": lambda *_: "Done."})
    agent = Agent(model, [look], storage=url, effects={"look": "read"}, settings={"confirm": "never"})
    await agent.start("warm up")
    held, most = (len(os.listdir("/proc/self/fd")), threading.active_count()), [0, 0]

    async def watch() -> None:
        while True:
            most[:] = (
                max(most[0], len(os.listdir("/proc/self/fd")) - held[0]),
                max(most[1], threading.active_count() - held[1]),
            )
            await asyncio.sleep(0.05)

    watcher = asyncio.create_task(watch())
    runs = await asyncio.gather(*(agent.start(f"look {n}") for n in range(count)), return_exceptions=True)
    watcher.cancel()
    return *most, [getattr(run, "status", str(run)) for run in runs]  # type: ignore[return-value]


@pytest.mark.parametrize("kind", DATABASES)
async def test_thirty_runs_at_once(kind: str, tmp_path: Path) -> None:
    """R07, L12: all end as if alone; a run costs a descriptor, its lock or one of 16 connections, no thread."""
    count = 30
    descriptors, threads, statuses = await many(fresh_url(kind, tmp_path), count)
    assert statuses == ["completed"] * count
    assert descriptors <= count + 8
    assert threads < MOST_IDLE + count / 4  # those of the process, which all share; a few more where it is slow


@pytest.mark.parametrize("kind", DATABASES)
async def test_what_a_run_at_work_holds(kind: str, tmp_path: Path) -> None:
    """L12, N29: at most 3 descriptors each and one thread in all, beside those that all runs share for their tools; on
    Postgres a connection each of one pool; a pause holds nothing, and nothing is left when the last agent is closed."""
    url, open_doors, inside = fresh_url(kind, tmp_path), asyncio.Event(), asyncio.Semaphore(0)

    async def send(to: str, text: str) -> str:
        """Send."""
        inside.release()
        await open_doors.wait()
        return "sent"

    def agent(confirm: str) -> Agent:
        scripts = sending(call("send", to="ann", text="x"), tools=["send"])
        return Agent(scripts, [send], storage=url, settings={"confirm": confirm}, effects={"send": "write"})

    for n in range(3):
        async with agent("always") as one:
            assert (await one.start("do it", thread_id=f"waits {n}")).status == "waiting"
    assert left(url) == 0
    descriptors, threads = len(os.listdir("/proc/self/fd")), own_threads()
    agents = [agent("never") for _ in range(5)]
    runs = [asyncio.create_task(each.start("Write to ann", thread_id=f"works {n}")) for n, each in enumerate(agents)]
    for _ in runs:
        await inside.acquire()
    held = len(os.listdir("/proc/self/fd")) - descriptors, own_threads() - threads
    assert held[0] <= 3 * len(runs)
    assert held[1] <= (1 if kind == "sqlite" else len(runs))
    assert connections(url) == (len(runs) if kind == "postgres" else 0)
    open_doors.set()
    assert {run.status for run in await asyncio.gather(*runs)} == {"completed"}
    for each in agents:
        await each.aclose()
    assert left(url) == 0


def own_threads() -> int:
    """How many threads there are that runs do not share."""
    return sum(each.name != "donewhen tools" for each in threading.enumerate())


def left(url: str) -> int:
    """How many connections stay; the server notices a moment later that one is closed."""
    for _ in range(200):
        if not connections(url):
            return 0
    return connections(url)


def connections(url: str) -> int:
    """How many a database of PostgreSQL has, beside the one that asks."""
    if not url.startswith("postgres"):
        return 0
    with psycopg.connect(url) as asking:
        query = "SELECT count(*) - 1 FROM pg_stat_activity WHERE datname = current_database()"
        return int((asking.execute(query).fetchone() or (0,))[0])


async def test_a_worker_of_one_run_at_once_keeps_its_connection(tmp_path: Path) -> None:
    """L12: one run after the other works on the same one; when the worker is gone, none is left."""
    url, used = fresh_url("postgres", tmp_path), list[int]()

    def holder(*_: Any) -> Any:
        with psycopg.connect(url) as asking:
            used.extend(pid for (pid,) in asking.execute("SELECT pid FROM pg_locks WHERE locktype = 'advisory'"))
        return answer("Hello.")

    async with Agent(ScriptedModel(roles={"triage": holder}), storage=url) as agent:
        threads = [await agent.submit(f"greet {n}") for n in range(4)]
        async with agent.worker(concurrency=1):
            for thread in threads:
                assert [event["type"] async for event, _ in agent.watch(thread)][-1] == "outcome"
    assert len(set(used)) < len(used) == 4  # every five seconds it begins anew
    assert left(url) == 0


async def test_a_run_inside_a_run_does_not_wait_for_it(tmp_path: Path) -> None:
    """R07: a tool that starts a run has a connection while everybody else waits for the one its caller holds."""
    url = fresh_url("postgres", tmp_path)
    inner = Agent(ScriptedModel(roles={"triage": lambda *_: answer("Hello.")}), storage=url)

    async def send(to: str, text: str) -> str:
        """Send."""
        return (await inner.start("within", thread_id=f"inner {text}")).status

    scripts = [sending(call("send", to="ann", text=str(n)), tools=["send"]) for n in range(20)]
    settings = {"confirm": "never", "approvals": "plan"}
    agents = [Agent(model, [send], storage=url, settings=settings) for model in scripts]
    runs = await asyncio.wait_for(asyncio.gather(*(agent.start("Write to ann") for agent in agents)), 90)
    assert {run.status for run in runs} == {"completed"}
