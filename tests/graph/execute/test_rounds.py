"""One round, one checkpoint: the reply and what came of it, nothing asked or done again after a crash between them."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, Settings
from donewhen.agent.storage import open_storage
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from tests.kit.runs import config, last_seen, step
from tests.kit.storage.cases import KEY, fresh_url

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


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
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


async def test_a_round_is_one_checkpoint() -> None:
    """T: with a reply and its results in one, storage and time of a round are halved."""

    def look(what: str) -> str:
        """Look something up."""
        return f"all about {what}"

    async def checkpoints(rounds: int) -> int:
        agent = Agent(looking(rounds, []), [look], effects={"look": "read"}, storage="memory:", settings=ALONE)
        assert (await agent.start("do it", thread_id="t")).status == "completed"
        async with agent.storage.reader() as (saver, _):
            return len([found async for found in saver.alist(config("t"))])

    assert await checkpoints(9) - await checkpoints(2) == 7


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
async def test_the_rounds_of_a_finished_step_go_from_the_file(key: bytes | None, tmp_path: Path) -> None:
    """T: what a step came to is in the run; its rounds, most of what is stored, go in the same commit."""
    spaces, text = list[set[str]](), "all about it " * 40

    async def look(what: str) -> str:
        """Look something up."""
        async with storage.reader() as (saver, _):
            spaces.append({each.config["configurable"]["checkpoint_ns"] async for each in saver.alist(config("t"))})
        return f"{what}: {text}"

    storage = open_storage(fresh_url("sqlite", tmp_path), key=key)
    agent = Agent(looking(20, []), [look], effects={"look": "read"}, storage=storage, settings=ALONE)
    run = await agent.start("do it", thread_id="t")
    assert run.status == "completed"
    assert {space.partition(":")[0] for space in spaces[-1]} == {"", "execute"}
    async with storage.reader() as (saver, _):
        assert {each.config["configurable"]["checkpoint_ns"] async for each in saver.alist(config("t"))} == {""}
    with closing(sqlite3.connect(tmp_path / "runs.db")) as file:
        assert file.execute("PRAGMA freelist_count").fetchone()[0] < 10
