"""A server that closes connections under runs, as by a restart: each goes on, and writes down what it knows."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from donewhen import Agent, StorageError
from donewhen.agent.run import Run
from donewhen.agent.work.thread_rows import update_row
from donewhen.agent.work.watch import POLL
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from tests.kit.runs import last_seen, step
from tests.kit.storage.cases import Storage, open_storage
from tests.kit.storage.servers import fresh_postgres_url, pooled, stopped

MOMENTS = ["while it plans", "before a payment", "in a payment", "after a payment", "between two steps", "at the end"]
FREE: dict[str, Any] = {"confirm": "never", "approvals": "never", "verification": "grounded"}


def cut(url: str) -> None:
    """End every connection to the database, as a restart of the server does."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )


class Shop:
    """An agent that pays in three steps, the first two side by side, and a server that cuts it off at a moment."""

    def __init__(self, url: str, moment: str, direct: str = "") -> None:
        self.paid: list[str] = []
        self.begun = asyncio.Event()
        self._direct, self._moment = direct or url, moment
        steps = [step(id, tools=["pay"], depends_on=[]) for id in ("s1", "s2")]
        steps.append(step("s3", tools=["pay"], depends_on=["s1", "s2"]))
        plan = submit_plan(steps)
        model = ScriptedModel(
            roles={
                "triage": self._at("while it plans", lambda *_: self.begun.set() or plan),
                "execute": {
                    "s1": [call("pay", to="ann"), self._done],
                    "s2": [call("pay", to="bob"), self._done],
                    "s3": [self._at("between two steps", lambda *_: call("pay", to="cid")), self._done],
                },
                "deliver": self._at("at the end", lambda *_: "Paid."),
            }
        )
        self.agent = Agent(model, [self.pay], storage=url, settings=FREE)

    async def pay(self, to: str) -> str:
        """Pay somebody."""
        self._cut("before a payment" if to == "bob" else "")
        self.paid.append(to)
        self._cut("in a payment" if to == "bob" else "")
        await asyncio.sleep(0)
        self._cut("after a payment" if to == "cid" else "")
        return f"paid {to}"

    def _cut(self, moment: str) -> None:
        if moment and moment == self._moment:
            self._moment = ""
            cut(self._direct)

    def _at(self, moment: str, reply: Any) -> Any:
        def policy(messages: Any, tools: Any) -> Any:
            self._cut(moment)
            return reply(messages, tools)

        return policy

    def _done(self, messages: Any, _: Any) -> Any:
        return finish_step("paid", evidence=last_seen(messages))


async def look(agent: Agent) -> None:
    """Look all the time at what runs there are, and who works on them; the server cuts that off too."""
    while True:
        with suppress(StorageError):
            await agent.threads()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("way", ["direct", "pooled"])
async def test_a_run_whose_connections_are_cut_goes_on(way: str, moment: str) -> None:
    """Q52, R02: wherever a worker's run is, it comes to its end, everything is paid once, and nobody is asked; while
    others look at it all the time, and another worker waits for what is left."""
    direct = fresh_postgres_url()
    url = pooled(direct) if way == "pooled" else direct
    shop, other = Shop(url, moment, direct), Shop(url, "")
    async with shop.agent, other.agent, shop.agent.worker():
        await shop.agent.submit("Pay all", thread_id="t")
        await shop.begun.wait()
        looking = asyncio.create_task(look(other.agent))
        async with other.agent.worker(), asyncio.timeout(40):
            run = await ended(shop.agent)
        looking.cancel()
    assert run.status == "completed", run.pending
    assert (sorted(shop.paid), other.paid) == (["ann", "bob", "cid"], [])


async def ended(agent: Agent, thread_id: str = "t") -> Run:
    """The run, when it has ended or asks."""
    while True:
        with suppress(StorageError):
            if (run := await agent.get(thread_id)).status not in ("running", "queued"):
                return run
        await asyncio.sleep(0.05)


async def test_nothing_is_printed_when_a_connection_is_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Q52: in a commit, of two sessions at once; an application without logging, as the command, draws on stderr."""
    url = fresh_postgres_url()
    storage = open_storage(url)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    async with storage.session("t") as (_, one), storage.session("u") as (_, other):
        cut(url)
        await asyncio.gather(*(each.aput(("a",), "k", {"v": 1}, index=False) for each in (one, other)))
        assert await other.aget(("a",), "k")
    assert capsys.readouterr().err == ""


async def lose_the_thread(storage: Storage, url: str) -> None:
    """Write three times in a session whose connection is cut twice; meanwhile another one writes."""
    async with storage.session("t") as (_, store):
        await update_row(store, "t", goal="first")
        cut(url)
        await update_row(store, "t", goal="second")
        cut(url)
        async with storage.session("t") as (_, other):
            await update_row(other, "t", goal="third")
        await update_row(store, "t", goal="fourth")


async def test_who_was_taken_over_writes_no_more() -> None:
    """Q52: a session that lost its connection goes on only where nobody else has changed the thread since."""
    storage = open_storage(url := fresh_postgres_url())
    with pytest.raises(StorageError, match="another worker took it over"):
        await lose_the_thread(storage, url)
    async with storage.reader() as (_, store):
        row = await store.threads.get("t")
    assert row is not None
    assert row["goal"] == "third"
    await storage.aclose()


async def test_a_server_that_is_stopped_and_started() -> None:
    """Q52, R02: while it is away, look-ups say so; then the run at work goes on and pays once, whoever watches it has
    every event once, and what waits is answered, by a worker that has waited since before.
    """
    url, entered, go, paid = fresh_postgres_url(), asyncio.Event(), asyncio.Event(), list[str]()

    async def pay(to: str) -> str:
        """Pay somebody."""
        paid.append(to)
        entered.set()
        await go.wait()
        return f"paid {to}"

    def model(to: str) -> ScriptedModel:
        work = [call("pay", to=to), lambda messages, _: finish_step("paid", evidence=last_seen(messages))]
        plan = submit_plan([step("s1", tools=["pay"])])
        return ScriptedModel(roles={"triage": [plan], "execute": work, "deliver": ["Paid."]})

    async with (
        Agent(model("ann"), [pay], storage=url, settings=FREE) as agent,
        Agent(model("bob"), [pay], storage=url, settings={**FREE, "confirm": "always"}) as other,
        other.worker(),
        asyncio.timeout(60),
    ):
        await other.submit("Pay bob", thread_id="asked")
        await ended(other, "asked")
        running = asyncio.create_task(agent.start("Pay ann", thread_id="t"))
        await entered.wait()
        events, seen = list[str](), asyncio.Event()

        async def watch() -> None:
            async for event, _ in other.watch("t"):
                events.append(event["type"])
                seen.set()

        watching = asyncio.create_task(watch())
        await seen.wait()
        with stopped(url):
            for look_up in (other.pending, other.threads, lambda: other.get("t")):
                with pytest.raises(StorageError):
                    await look_up()
            go.set()
            await asyncio.sleep(2 * POLL)  # the watcher looks in vain
        assert (await running).status == "completed"
        await watching
        assert [row["thread_id"] for row in await other.pending()] == ["asked"]
        await other.submit_answer("asked", "approve")
        assert [event async for event, _ in other.watch("asked")][-1]["status"] == "completed"
    assert paid == ["ann", "bob"]
    steps = ["started", "plan", "step_started", "observation", "step_finished", "outcome"]
    assert [each for each in events if each in steps] == steps
