"""What no database or client takes is replaced or refused when it comes in; what is damaged hides nothing else."""

import asyncio
import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from donewhen import Agent, ConfigError, GoalError, StorageError
from donewhen.agent.page.conversations import Conversations
from donewhen.agent.plans.store import SPACE as PLANS
from donewhen.agent.plans.templates import SPACE as TEMPLATES
from donewhen.agent.storage.table import DAMAGED
from donewhen.agent.work.schedules import SPACE as SCHEDULES
from donewhen.agent.work.thread_rows import QUEUE
from donewhen.testing import ScriptedModel, answer, ask_user
from tests.kit.storage.cases import fresh_url, key_of, open_storage
from tests.kit.storage.raw import database

HALF = "half \ud83d and \0"
ITSELF: dict[str, Any] = {}
ITSELF["me"] = ITSELF


def deep(levels: int) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for _ in range(levels):
        nested = {"in": nested}
    return nested


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return open_storage(fresh_url(request.param, tmp_path))


def shown(value: Any) -> str:
    """The value as a page gets it: strict JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode().decode()


async def test_texts_that_are_no_unicode_are_replaced(anywhere: Any) -> None:
    """Q101, Q113: in the goal, metadata, settings, an answer, what is told, and a graph's input; all lists go on."""
    model = ScriptedModel(roles={"triage": [ask_user("Which?"), answer("one"), answer("two")]})
    async with Agent(model, storage=anywhere) as agent:
        given = {"metadata": {HALF: [HALF, 2**40]}, "settings": {"profile": {"instructions": HALF}}}
        run = await agent.start([{"type": "text", "text": HALF}], owner="ann", **given)
        page = Conversations(agent, {"dir": HALF})
        for value in (
            [info.to_dict() for info in await agent.threads(owner="ann")],
            [*await agent.pending()],
            await page.threads(),
            run.to_dict(),
        ):
            assert "half \ufffd and \ufffd" in shown(value)
        run = await agent.resume(run, f"the {HALF}")
        assert run.answer == "one"
        shown(run.to_dict())
        again = await agent.graph.ainvoke(
            {"messages": [HumanMessage(HALF)]}, {"configurable": {"thread_id": run.thread_id}}
        )
        shown([message.content for message in again["messages"]])
        assert (await agent.get(run.thread_id)).answer == "two"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"metadata": {"k": math.nan}}, "metadata cannot be stored"),
        ({"metadata": {"k": [-math.inf]}}, "metadata cannot be stored"),
        ({"metadata": ITSELF}, "metadata cannot be stored"),
        ({"metadata": deep(90)}, "nested deeper"),
        ({"metadata": deep(5000)}, "metadata cannot be stored"),
        ({"metadata": {(1, 2): 3}}, "metadata cannot be stored"),
        ({"metadata": {"d": {1, 2}}}, "metadata cannot be stored: .*set is not JSON"),
        ({"metadata": {"path": Path("a")}}, "metadata cannot be stored: .*Path is not JSON"),
        ({"metadata": {"d": {1: 2}}}, "metadata cannot be stored: .*a key that is no text"),
        ({"metadata": ["k"]}, "metadata is a dict, not list"),
        ({"owner": "o\ud83d"}, "owner 'o.*no database"),
        ({"owner": "o\0"}, "owner 'o.*no database"),
        ({"owner": 5}, "owner is a text"),
        ({"owner": "x" * 300}, "300 characters"),
        ({"request_id": "\ud83d", "thread_id": "t"}, "request_id .*no database"),
        ({"thread_id": "\ud83d"}, "thread id .*no database"),
        ({"thread_id": b"t"}, "not by a bytes"),
        ({"at": 5}, "'5' is no time"),
        ({"at": datetime.min}, "'0001-01-01 00:00:00' is no time"),
    ],
)
async def test_what_would_become_something_else_is_refused(given: dict[str, Any], says: str) -> None:
    """Q101, Q113: with the argument and the reason, and nothing is stored."""
    async with Agent(ScriptedModel(), storage="memory:") as agent:
        with pytest.raises(ConfigError, match=says):
            await agent.submit("hello", **given)
        assert await agent.threads() == []


async def test_what_is_asked_with_odd_values_is_an_error_in_words(anywhere: Any) -> None:
    """Q113, R17: ids, owners, times and limits that nothing can have; no error of Python or of a database."""
    async with Agent(ScriptedModel(), storage=anywhere) as agent:
        for asked in (
            *(verb(id) for id in ("\ud83d", "a\0", "", 0.5) for verb in (agent.get, agent.info, agent.cancel)),
            *(verb("\ud83d") for verb in (agent.delete, agent.audit, agent.undo, agent.resume, agent.receipt)),
            *(verb(owner="\ud83d") for verb in (agent.threads, agent.pending)),
            agent.threads(status=["\0"]),
            agent.threads(status=5),  # type: ignore[arg-type]
            agent.threads(0),
            agent.threads(before=datetime.min),
            agent.prune(timedelta.max),
            agent.prune(5),  # type: ignore[arg-type]
            anext(agent.watch("\ud83d")),
        ):
            with pytest.raises(ConfigError):
                await asked
        for goal in ([{"type": "text", "text": "hi", "x": ITSELF}], [{"type": "text", "text": "hi", "x": deep(9999)}]):
            with pytest.raises(GoalError, match="nested too deeply"):
                await agent.submit(goal)
        for text in (None, 5, " "):
            with pytest.raises(GoalError, match="nothing to tell"):
                await agent.tell("t", text)  # type: ignore[arg-type]


SICK = {"plan": {"steps": [], "revision": "x"}, "settings": {}, "metadata": {}, "owner": "", "last": None}
SICK |= {"confirmed": "2026-01-01T00:00:00+00:00", "seen": "2026-01-01T00:00:00+00:00", "title": "t", "goal": "g"}
SICK |= {"queue": QUEUE, "paused": False, "thread_id": "t"}
MARS = {**SICK, "id": "mars", "schedule": {"at": "03:00", "timezone": "Mars/Base"}}


@pytest.mark.parametrize("kind", ["sqlite", "sqlite-sealed", "postgres-sealed"])
async def test_what_is_damaged_hides_nothing_else(kind: str, tmp_path: Path) -> None:
    """Q35, Q36, R17: a row, a schedule, a kept plan and a template; each is shown with its id and problem, and the
    other threads are listed, worked on and counted. What is damaged can be deleted.
    """
    url = fresh_url(kind, tmp_path)
    model = ScriptedModel(roles={"triage": [ask_user("Which?"), answer("one"), answer("two")]}, strict=False)
    async with Agent(model, storage=open_storage(url, key=key_of(kind))) as agent:
        for id in ("asks", "first", "second"):
            await agent.submit("hello", thread_id=id, metadata={"k": "v"})
        await agent.run_submitted("asks")
        await agent.plans.create("good", "Good", ["one"])
        async with agent.storage.writer() as (_, store):
            for space in (SCHEDULES, PLANS, TEMPLATES):
                await store.aput(space, "cut", {"id": "cut"}, index=False)
            await store.aput(SCHEDULES, "mars", MARS, index=False)
            await store.aput(("donewhen", "title", "first"), "title", {"text": "Named"}, index=False)
        damage = "'{}'" if kind.startswith("postgres") else "'{cut'"  # a column of JSON takes no other text
        with database(url) as run:
            run(f"UPDATE store SET value = {damage} WHERE key = 'cut'", ())
            run("UPDATE donewhen_threads SET info = '{cut' WHERE thread_id IN ('asks', 'second')", ())
        threads = {info.thread_id: info for info in await agent.threads()}
        assert {id: info.status for id, info in threads.items()} == {
            "asks": DAMAGED, "second": DAMAGED, "first": "queued",
        }  # fmt: skip
        assert "thread 'asks'" in threads["asks"].problem
        assert threads["first"].metadata == {"k": "v"}
        waiting = await agent.pending()
        assert ([*waiting], [*waiting.damaged]) == ([], ["asks"])
        shown_threads = (await Conversations(agent, {}).threads())["threads"]
        assert sorted((row["title"], row["status"]) for row in shown_threads) == [
            ("", DAMAGED), ("", DAMAGED), ("Named", "queued"),
        ]  # fmt: skip
        async with agent.worker(), asyncio.timeout(20):
            assert [event["type"] async for event, _ in agent.watch("first")][-1] == "outcome"
            assert (await agent.status())["threads"] == {"answered": 1, "queued": 1, "waiting": 1}
            assert await agent.schedules.start_due(QUEUE) == []
        schedules = {each.id: each for each in await agent.schedules.list()}
        assert "Mars/Base" in schedules["mars"].problem
        assert schedules["cut"].problem
        assert [(each.id, bool(each.problem)) for each in await agent.plans.list()] == [("cut", True), ("good", False)]
        assert [(each.name, bool(each.problem)) for each in await agent.templates.list()] == [("cut", True)]
        for verb, id in ((agent.schedules.delete, "cut"), (agent.plans.delete, "cut"), (agent.templates.delete, "cut")):
            await verb(id)
        with pytest.raises(StorageError, match="'asks' is damaged"):
            await agent.get("asks")
        await agent.delete("asks")
        await agent.delete("second")
        assert [info.thread_id for info in await agent.threads()] == ["first"]
        assert [each.id for each in await agent.schedules.list()] == ["mars"]


async def test_a_row_of_an_older_version_with_half_a_character_is_shown(tmp_path: Path) -> None:
    """Q101: what came in before it was replaced there no longer breaks the lists."""
    url = fresh_url("sqlite", tmp_path)
    async with Agent(ScriptedModel(), storage=url) as agent:
        await agent.submit("hello", thread_id="t", metadata={"k": "v"})
        with database(url) as run:
            run("UPDATE donewhen_threads SET info = replace(info, '\"v\"', '[\"\\ud83d\", NaN]')", ())
        (info,) = await agent.threads()
        assert info.metadata == {"k": ["\ufffd", None]}


async def test_a_tick_reads_what_is_due_and_nothing_else(storage: Any) -> None:
    """Q35: the cost of a look does not grow with the schedules; one due among hundreds runs, and only that."""
    now = datetime.now(UTC)
    async with Agent(ScriptedModel(), storage=storage) as agent, storage.writer() as (_, store):
        for number in range(300):
            id, at = f"{number:04}", (now - timedelta(hours=5) if number == 7 else now).isoformat()
            kept = {**SICK, "id": id, "schedule": {"every_minutes": 240}, "confirmed": at, "seen": at}
            await store.aput(SCHEDULES, id, kept, index=False)
        (thread,) = await agent.schedules.start_due(QUEUE)  # it takes up what an older version kept
        assert thread.startswith("0007-")
        assert await store.threads.find_due_schedules(QUEUE, (now + timedelta(hours=3)).isoformat(), 9) == ["0007"]
        assert len(await store.threads.find_due_schedules(QUEUE, (now + timedelta(hours=5)).isoformat(), 2000)) == 300


async def test_a_users_thread_takes_no_schedules_place(storage: Any) -> None:
    """Q111: a thread that somebody named like a scheduled run does not keep that from running."""
    at = "2026-01-01T00:00:00+00:00"
    async with Agent(ScriptedModel(), storage=storage) as agent:
        async with storage.writer() as (_, store):
            kept = {**SICK, "id": "5eed", "schedule": {"every_minutes": 60}, "confirmed": at, "seen": at}
            await store.aput(SCHEDULES, "5eed", kept, index=False)
        name = "5eed-20260101T010000Z"
        await agent.submit("mine", thread_id=name, metadata={"schedule": "5eed"})
        assert await agent.schedules.start_due(QUEUE, datetime(2026, 1, 1, 1, 0, 1, tzinfo=UTC)) == [f"{name}-2"]
        assert (await agent.info(name)).goal == "mine"
