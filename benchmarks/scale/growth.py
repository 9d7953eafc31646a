"""Measure a growing database: copies of real threads, queries, and deletions."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import psycopg

from benchmarks.scale.world import agent_on, goal
from donewhen import Agent
from donewhen.agent.storage import open_storage
from donewhen.agent.work.thread_rows import QUEUE
from donewhen.agent.work.worker import Worker
from donewhen.testing import ScriptedModel, answer

OLD = 200
TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes", "writes", "store", "donewhen_threads")
VERBS = ("start", "resume", "get", "threads", "pending", "status", "look", "prune")


async def grown(url: str, folder: Path, sizes: list[int]) -> dict[str, list[float]]:
    """Milliseconds of each verb at each size."""
    ledger = folder / "ledger.txt"
    ledger.touch()
    async with agent_on(url, ledger) as agent:
        await agent.start(goal(0, 1), thread_id="seed", settings={"confirm": "always"})
        await agent.resume("seed", {"type": "cancel"})
    found: dict[str, list[float]] = {name: [] for name in VERBS}
    there = 1
    for size in sizes:
        await _old(url, ledger)
        with database(url) as (execute, columns):
            multiply(execute, columns, "seed", range(there, size - OLD))
            multiply(execute, columns, "old", range(1, OLD))
        there = size - OLD
        for name, took in (await _verbs(url, ledger)).items():
            found[name].append(took)
    return found


async def _old(url: str, ledger: Path) -> None:
    """A thread that has not changed for years."""
    async with agent_on(url, ledger) as agent:
        await agent.start(goal(1, 1), thread_id="old")
    async with open_storage(url).writer() as (_, store):
        row = await store.threads.get("old") or {}
        await store.threads.put("old", {**row, "updated": "2020-01-01T00:00:00.000+00:00"})


async def _verbs(url: str, ledger: Path) -> dict[str, float]:
    """The best of five; `prune` deletes 200 of so many, once."""
    async with agent_on(url, ledger) as agent:
        marks: list[str] = []

        async def start() -> None:
            marks.append((await agent.start(goal(1, 1), settings={"confirm": "always"})).thread_id)

        done: dict[str, Callable[[], Any]] = {
            "start": start,
            "resume": lambda: agent.resume(marks[-1], {"type": "cancel"}),
            "get": lambda: agent.get(marks[-1]),
            "threads": agent.threads,
            "pending": agent.pending,
            "status": agent.status,
        }
        found: dict[str, float] = {}
        for _ in range(5):
            for name, verb in done.items():
                begun = perf_counter()
                await verb()
                took = 1000 * (perf_counter() - begun)
                found[name] = min(found.get(name, took), took)
        found["look"] = 1000 * await look_seconds(url)
        begun = perf_counter()
        gone = await agent.prune(timedelta(days=365))
        assert len(gone) == OLD, len(gone)
        return {**found, "prune": 1000 * (perf_counter() - begun)}


async def look_seconds(url: str, times: int = 20) -> float:
    """Seconds that a look of an idle worker takes, on average."""

    def never(_: Any) -> Any:
        raise AssertionError("there is nothing to do")

    storage = open_storage(url)
    worker = Worker(storage, QUEUE, never, poll=0.0)
    async with storage.listen() as (store, _):
        await worker._take_work(store)
        begun = perf_counter()
        for _ in range(times):
            await worker._take_work(store)
        return (perf_counter() - begun) / times


async def begun_seconds(url: str, times: int = 10) -> float:
    """Median seconds from `submit` to the first request to the model, where the worker is another agent."""
    began, took = asyncio.Event(), list[float]()

    def triage(*_: Any) -> Any:
        began.set()
        return answer("Hello.")

    model = ScriptedModel(roles={"triage": triage}, strict=False)
    async with Agent(model, storage=url) as ours, Agent(model, storage=url) as other, other.worker():
        for number in range(times):
            await asyncio.sleep(1 + number / times)  # at any time between two looks
            await ours.submit("hello")
            submitted = perf_counter()
            await began.wait()
            took.append(perf_counter() - submitted)
            began.clear()
    return median(took)


async def with_waiting(url: str, count: int) -> None:
    """So many threads that wait for a person, as rows of the table that workers look at."""
    async with open_storage(url).writer() as (_, store):
        row = {"goal": "wait", "status": "waiting", "queue": QUEUE, "due": "never", "updated": store.threads.now()}
        for number in range(count):
            await store.threads.put(f"waits-{number}", row)


Execute = Callable[[str], None]


def multiply(execute: Execute, columns: Callable[[str], list[str]], seed: str, copies: range) -> None:
    """Copies of a thread in all tables, numbered: as many real threads as wanted, without running them."""
    if not copies:
        return
    for table in TABLES:
        names = columns(table)
        if not names:
            continue
        key = "prefix" if "prefix" in names else "thread_id"
        picked = ", ".join(f"replace({name}, '{seed}', '{seed}-' || n)" if name == key else name for name in names)
        numbers = f"WITH RECURSIVE k(n) AS (SELECT {copies[0]} UNION ALL SELECT n + 1 FROM k WHERE n < {copies[-1]})"
        where = f"{key} LIKE '%.{seed}'" if key == "prefix" else f"thread_id = '{seed}'"
        into = f"INSERT INTO {table} ({', '.join(names)})"
        execute(f"{into} {numbers} SELECT {picked} FROM {table}, k WHERE {where}")


@contextmanager
def database(url: str) -> Iterator[tuple[Execute, Callable[[str], list[str]]]]:
    """Execute a statement, and the columns of a table ([] for one that there is not)."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as file:
            file.execute("PRAGMA synchronous = OFF")
            file.execute("PRAGMA cache_size = -300000")
            yield (
                lambda sql: file.execute(sql).close(),
                lambda table: [row[1] for row in file.execute(f"PRAGMA table_info({table})")],
            )
        file.close()
        return
    with psycopg.connect(url, autocommit=True) as connection:
        listed = "SELECT column_name FROM information_schema.columns WHERE table_name = %s AND is_generated = 'NEVER'"
        yield (
            lambda sql: connection.execute(sql.encode()).close(),
            lambda table: [row[0] for row in connection.execute(listed, (table,))],
        )
        connection.execute("ANALYZE")
