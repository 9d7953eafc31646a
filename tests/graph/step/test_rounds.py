"""One round, one checkpoint: the reply and what came of it, nothing asked or done again after a crash between them."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from donewhen import Agent, Settings
from donewhen.agent.storage import open_storage
from donewhen.testing import ScriptedModel, answer, audit, call, finish_step, submit_plan
from tests.kit.runs import config, last_seen, say_done, step
from tests.kit.storage.cases import DATABASES, OWN_SAVERS, fresh_url, key_of

ALONE = Settings(confirm="never")


def looking(rounds: int, asked: list[Any]) -> ScriptedModel:
    """One step that looks so often, and then finishes; `asked` grows with every question to the step's model."""

    def execute(messages: list[Any], tools: list[Any]) -> Any:
        asked.append(messages)
        seen = sum(message.type == "tool" for message in messages)
        if seen == rounds:
            return finish_step("seen", evidence=last_seen(messages))
        return call("look", what=f"part {seen}")

    return ScriptedModel(roles={"triage": lambda *_: submit_plan([step("s1")]), "execute": execute})


@pytest.mark.parametrize("kind", ["memory", *DATABASES])
async def test_a_reply_that_was_cut_off_is_not_asked_for_again(kind: str, tmp_path: Path) -> None:
    """F1, R02: between a reply and the result of its call; what only reads is read again."""
    looked, begun, asked = list[str](), asyncio.Event(), list[Any]()

    async def look(what: str) -> str:
        """Look something up."""
        looked.append(what)
        if len(looked) == 2:
            begun.set()
            await asyncio.Event().wait()
        return f"all about {what}"

    agent = Agent(
        looking(3, asked), [look], effects={"look": "read"}, storage=fresh_url(kind, tmp_path), settings=ALONE
    )
    task = asyncio.create_task(agent.start("do it", thread_id="t"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run = await agent.resume("t")
    assert (run.status, looked) == ("completed", ["part 0", "part 1", "part 1", "part 2"])
    assert len(asked) == 4
    assert run.receipt is not None
    assert run.receipt["spent"]["rounds"] == 4


@pytest.mark.parametrize("then", ["resume", "cancel", "steer"])
@pytest.mark.parametrize("at", ["goal_check", "deliver"])
@pytest.mark.parametrize("kind", DATABASES)
async def test_what_a_judge_replied_before_it_was_cut_off_counts_and_is_not_asked_again(
    kind: str, at: str, then: str, tmp_path: Path
) -> None:
    """X: in a step's proof and at the delivery, whatever comes next; only the request in flight counts nowhere."""
    reached, open_gate, looked, cut = asyncio.Event(), asyncio.Event(), list[str](), list[Any]()

    def look(what: str) -> str:
        """Look something up."""
        looked.append(what)
        return f"all about {what}: 1250"

    async def judge(messages: list[Any], tools: list[Any]) -> Any:
        if messages[-1].type != "tool":
            return call("look", what="lamps")
        if not open_gate.is_set():
            cut.append(messages)
            reached.set()
            await asyncio.Event().wait()
        return audit()

    count = 1 if at == "goal_check" else 2
    steps = [{"content": f"Count {n}", "done_when": ["counted"], "tools": ["look"]} for n in range(count)]
    work = {
        f"s{n}": [call("look", what="lamps"), finish_step("1250", (f"s{n}.1", "1250")), finish_step("again")]
        for n in range(1, count + 1)
    }
    roles = {"triage": [submit_plan(steps), answer("Hello."), answer("Hi.")], "execute": work, "judge": [judge] * 9}
    model = ScriptedModel(roles={**roles, "deliver": ["1250", "1250"], "plan": [answer("Well.")]}, strict=False)
    agent = Agent(model, [look], effects={"look": "read"}, storage=fresh_url(kind, tmp_path), settings=ALONE)
    task = asyncio.create_task(agent.start("How many lamps?", thread_id="t"))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    open_gate.set()
    if then == "steer":
        run = await agent.resume("t", steer="Say hello instead.")
    else:
        run = await (agent.cancel("t") if then == "cancel" else agent.resume("t"))
    spent = (run.receipt or {})["spent"]
    assert spent["model_calls"] == len(model.requests) - len(cut)
    assert spent["tool_calls"] == len(looked)
    if then == "resume":
        assert run.status == "completed"
        assert sum(request.role == "judge" for request in model.requests) == 3
        assert sum(request.role == "deliver" for request in model.requests) == count - 1


@pytest.mark.parametrize("kind", ["memory", *DATABASES])
async def test_steps_that_were_cut_off_side_by_side_go_on_one_after_the_other(kind: str, tmp_path: Path) -> None:
    """F1, R02: each with the rounds that it had, though the other writes before it is read again."""
    looked, begun, asked = list[str](), asyncio.Event(), list[str]()

    async def look(what: str) -> str:
        """Look something up."""
        looked.append(what)
        if looked[2:] and not begun.is_set():
            if looked[3:]:
                begun.set()
            await asyncio.Event().wait()
        return f"all about {what}"

    def execute(id: str) -> Any:
        def reply(messages: list[Any], tools: list[Any]) -> Any:
            asked.append(id)
            seen = sum(message.type == "tool" for message in messages)
            return finish_step("seen", evidence=last_seen(messages)) if seen == 2 else call("look", what=f"{id} {seen}")

        return reply

    plan = submit_plan([step(id, depends_on=[]) for id in ("s1", "s2")])
    roles = {"triage": lambda *_: plan, "execute": {id: execute(id) for id in ("s1", "s2")}, "deliver": say_done}
    url = fresh_url(kind, tmp_path)
    agent = Agent(ScriptedModel(roles=roles), [look], effects={"look": "read"}, storage=url, settings=ALONE)
    task = asyncio.create_task(agent.start("do it", thread_id="t"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run = await agent.resume("t", config={"max_concurrency": 1})
    assert (run.status, sorted(looked[:2])) == ("completed", ["s1 0", "s2 0"])
    assert sorted(looked[2:]) == ["s1 1", "s1 1", "s2 1", "s2 1"]
    assert sorted(asked) == ["s1"] * 3 + ["s2"] * 3
    assert run.receipt is not None
    assert run.receipt["spent"]["rounds"] == 6


@pytest.mark.parametrize("kind", OWN_SAVERS)
async def test_a_round_is_one_checkpoint_until_its_step_is_finished(kind: str, tmp_path: Path) -> None:
    """T: a reply and its results are one. What a step came to is in the run; its rounds, most of what is stored, go in
    the same commit (in memory LangGraph's own saver keeps them)."""
    spaces, text = list[list[str]](), "all about it " * 40

    async def found() -> list[str]:
        async with storage.reader() as (saver, _):
            return [each.config["configurable"]["checkpoint_ns"] async for each in saver.alist(config("t"))]

    async def look(what: str) -> str:
        """Look something up."""
        spaces.append(await found())
        return f"{what}: {text}"

    storage = open_storage(fresh_url(kind, tmp_path), key=key_of(kind))
    agent = Agent(looking(8, []), [look], effects={"look": "read"}, storage=storage, settings=ALONE)
    assert (await agent.start("do it", thread_id="t")).status == "completed"
    assert len(spaces[-1]) - len(spaces[0]) == len(spaces) - 1 == 7
    assert {space.partition(":")[0] for space in spaces[-1]} == {"", "execute"}
    assert set(await found()) == {""}


async def test_nothing_of_a_finished_step_is_left(tmp_path: Path) -> None:
    """T: no values and no writes of its rounds either; a file gives back what is free."""

    def look(what: str) -> str:
        """Look something up."""
        return f"{what}: " + "all about it " * 40

    for kind in DATABASES:
        url = fresh_url(kind, tmp_path)
        agent = Agent(looking(20, []), [look], effects={"look": "read"}, storage=url, settings=ALONE)
        assert (await agent.start("do it", thread_id="t")).status == "completed"
        if kind == "sqlite":
            with closing(sqlite3.connect(tmp_path / "runs.db")) as file:
                assert file.execute("SELECT DISTINCT checkpoint_ns FROM writes").fetchall() == [("",)]
                assert file.execute("PRAGMA freelist_count").fetchone()[0] < 10
        else:
            with psycopg.connect(url) as database:
                for table in ("checkpoint_writes", "checkpoint_blobs"):
                    query = f"SELECT DISTINCT checkpoint_ns FROM {table}"
                    assert database.execute(query.encode()).fetchall() == [("",)]
