"""Look-ups while runs are at work: however many there are at once, each is answered, on every engine."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, StorageError, ThreadBusy
from donewhen.agent.storage.postgres import connections
from donewhen.agent.work import watch
from donewhen.testing import ScriptedModel, answer, ask_user, call, finish_step, submit_plan
from tests.kit.runs import config
from tests.kit.storage.cases import fresh_url, open_storage

AT_ONCE = 2 * connections.LOOKS
"""Twice as many look-ups as a process has connections for on PostgreSQL."""


async def first_event(agent: Agent, thread: str) -> Any:
    async for event, _ in agent.watch(thread):
        return event
    return None


async def history(agent: Agent, thread: str) -> Any:
    """Every state of a thread, with a look-up of the thread between two of them."""
    return [await agent.get(thread) async for _ in agent.graph.aget_state_history(config(thread))]


VERBS: dict[str, Callable[[Agent, int], Awaitable[Any]]] = {
    "get": lambda agent, n: agent.get(f"ended {n}"),
    "get at work": lambda agent, n: agent.get(f"work {n}"),
    "info": lambda agent, n: agent.info(f"ended {n}"),
    "receipt": lambda agent, n: agent.receipt(f"ended {n}"),
    "threads": lambda agent, n: agent.threads(),
    "pending": lambda agent, n: agent.pending(),
    "status": lambda agent, n: agent.status(),
    "watch": lambda agent, n: first_event(agent, f"work {n}"),
    "state": lambda agent, n: agent.graph.aget_state(config(f"ended {n}")),
    "history": lambda agent, n: history(agent, f"ended {n}"),
    "tell": lambda agent, n: agent.tell(f"work {n}", "faster"),
    "undo": lambda agent, n: agent.undo(f"ended {n}", dry_run=True),
    "submit": lambda agent, n: agent.submit("say hello", thread_id=f"new {n}"),
    "submit_answer": lambda agent, n: agent.submit_answer(f"waits {n}", "approve"),
    "cancel": lambda agent, n: agent.cancel(f"waits {n}"),
    "schedules": lambda agent, n: agent.schedules.list(),
    "templates": lambda agent, n: agent.templates.list(),
    "plans": lambda agent, n: agent.plans.list(),
    "delete": lambda agent, n: agent.delete(f"ended {n}"),
}


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_all_look_ups_are_answered_whatever_their_number(kind: str, tmp_path: Path) -> None:
    """Q01, R15: with a process full of runs at work, each verb is answered twice as often at once as there are
    connections, also where it completes what a dead worker left; a run at work looks up too, and a busy thread is
    refused without a turn."""
    inside, open_doors = asyncio.Semaphore(0), asyncio.Event()

    async def work() -> str:
        """Work for a while, then look up who else works."""
        inside.release()
        await open_doors.wait()
        return f"seen {len(await agent.threads(1))}"

    def execute(messages: list[Any], tools: list[Any]) -> Any:
        seen = any(message.type == "tool" for message in messages)
        return finish_step("seen", evidence=("s1.1", "seen 1")) if seen else call("work")

    plan = submit_plan([{"content": "work", "done_when": ["something is seen"], "tools": ["work"]}])
    model = ScriptedModel(
        roles={
            "triage": lambda messages, _: answer("Hello.") if "say hello" in messages[-1].text else plan,
            "execute": execute,
            "deliver": lambda *_: "Done.",
        }
    )
    settings = {"confirm": "never", "when_busy": "next_round", "verification": "grounded"}
    agent = Agent(model, [work], storage=fresh_url(kind, tmp_path), effects={"work": "read"}, settings=settings)
    async with agent:
        for n in range(AT_ONCE):
            await agent.start("say hello", thread_id=f"ended {n}")
            await agent.start("work", thread_id=f"waits {n}", settings={"confirm": "always"})
        at_work = connections.SESSIONS if kind == "postgres" else AT_ONCE
        runs = [asyncio.create_task(agent.start("work", thread_id=f"work {n}")) for n in range(at_work)]
        for _ in runs:
            await inside.acquire()
        for verb, look_up in VERBS.items():
            await leave_undone(agent, [f"ended {n}" for n in range(AT_ONCE)])
            async with asyncio.timeout(20):
                found = await asyncio.gather(*(look_up(agent, n) for n in range(AT_ONCE)), return_exceptions=True)
            assert not [each for each in found if isinstance(each, BaseException)], verb
        async with asyncio.timeout(20):
            with pytest.raises(ThreadBusy):
                await agent.resume("work 1")
        open_doors.set()
        assert {run.status for run in await asyncio.gather(*runs)} == {"completed"}


async def leave_undone(agent: Agent, thread_ids: list[str]) -> None:
    """Leave the rows of threads as a worker does that dies before it writes the end into them."""
    async with agent.storage.writer() as (_, store):
        for thread_id in thread_ids:
            row = await store.threads.get(thread_id)
            await store.threads.put(thread_id, {**(row or {}), "status": "running", "due": "2020"})


async def test_who_waits_too_long_for_a_connection_is_told_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q01, R15: the wait for a connection ends, with an error that names how many there are and how long it was."""
    monkeypatch.setattr(connections, "LOOK_PATIENCE", 0.2)
    storage, taken, done = open_storage(fresh_url("postgres", Path())), asyncio.Semaphore(0), asyncio.Event()

    async def keep() -> None:
        async with storage.reader():
            taken.release()
            await done.wait()

    keeping = [asyncio.create_task(keep()) for _ in range(connections.LOOKS)]
    for _ in keeping:
        await taken.acquire()
    with pytest.raises(StorageError, match=r"none of the 4 connections .* for 0\.2 seconds"):
        await storage.find_free(["t"])
    done.set()
    await asyncio.gather(*keeping)
    assert await storage.find_free(["t"]) == ["t"]
    await storage.aclose()


JOURNEYS: dict[str, tuple[Callable[[Agent], Awaitable[Any]], int]] = {
    "info": (lambda agent: agent.info("waits"), 1),
    "get": (lambda agent: agent.get("waits"), 5),  # the row, its state in three, and the row again
    "watch": (lambda agent: first_event(agent, "waits"), 7),
    "status": (lambda agent: agent.status(), 6),
    "threads": (lambda agent: agent.threads(), 2),
    "pending": (lambda agent: agent.pending(), 2),
}
"""Verb → what it does, and how often it goes to PostgreSQL at most."""


@pytest.fixture
def journeys(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[float]:
    """When something was sent to PostgreSQL whose answer was waited for."""
    sent, wait = asyncio.Queue[float](), connections.PgConnection.wait

    async def wait_counted(self: Any, generator: Any, *args: Any, **more: Any) -> Any:
        if not generator.__name__.startswith("_set"):  # the connection's own settings are not sent
            sent.put_nowait(time.monotonic())
        return await wait(self, generator, *args, **more)

    monkeypatch.setattr(connections.PgConnection, "wait", wait_counted)
    return sent


async def take(journeys: asyncio.Queue[float], number: int) -> float:
    """The time of the last of so many journeys."""
    async with asyncio.timeout(30):
        return [await journeys.get() for _ in range(number)][-1]


@pytest.mark.parametrize("kind", ["postgres", "postgres-pooled"])
async def test_a_look_up_is_few_journeys(
    kind: str, journeys: asyncio.Queue[float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Q01: each read is one journey to the server, and no row is read twice but to see that it has not changed; who
    watches a thread on which nothing happens reads its row alone."""
    monkeypatch.setattr(watch, "POLL", 0.05)
    model = ScriptedModel(roles={"triage": [ask_user("Which?")]})
    async with Agent(model, storage=fresh_url(kind, tmp_path)) as agent:
        await agent.start("ask", thread_id="waits")
        await agent.submit("ask", thread_id="queued")
        for verb, (look_up, most) in JOURNEYS.items():
            await look_up(agent)
            before = journeys.qsize()
            await look_up(agent)
            assert 0 < journeys.qsize() - before <= most, verb
        for thread in ("waits", "queued"):
            following = asyncio.create_task(follow(agent, thread))
            first = await take(journeys, journeys.qsize() + 12)  # the first look is more
            assert await take(journeys, 20) - first >= 19 * watch.POLL, thread
            following.cancel()
            await asyncio.wait({following})


async def follow(agent: Agent, thread: str) -> None:
    async for _ in agent.watch(thread):
        pass
