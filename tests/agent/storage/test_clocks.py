"""Machines whose clocks differ by an hour, on one storage: nothing is ordered by them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import id as ids

from donewhen import Agent
from donewhen.workspace import workspace_tools
from tests.kit.clocks import FREE, HOUR, elsewhere, working, wrong_by
from tests.kit.runs import config
from tests.kit.storage.cases import fresh_url, open_storage

AHEAD, BEHIND = HOUR / 2, -HOUR / 2
KINDS = ["memory", "sqlite", "postgres"]


@pytest.fixture(autouse=True)
def own_time_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """LangGraph's ids of checkpoints never go back in a process; after a clock that was ahead they would stay there."""
    monkeypatch.setattr(ids, "_last_v6_timestamp", ids._last_v6_timestamp)


def storage_of(kind: str, folder: Path) -> Any:
    """A URL for several processes; memory is one object."""
    (folder / "work").mkdir()
    url = fresh_url(kind, folder)
    return open_storage(url) if kind == "memory" else url


@pytest.mark.parametrize("kind", KINDS)
async def test_the_latest_is_what_was_written_last(kind: str, tmp_path: Path) -> None:
    """Q14, R16: a run begun by a machine that is ahead and ended by one that is behind has ended for all others; its
    changes are undone in the order in which they were made, threads are listed so, and an old state that is continued
    is the latest."""
    storage, note = storage_of(kind, tmp_path), tmp_path / "work" / "note.txt"
    note.write_text("zero")
    assert await elsewhere(storage, tmp_path, AHEAD, "start", "Write", thread_id="t") == "waiting"
    await elsewhere(storage, tmp_path, AHEAD, "submit", "Write later", thread_id="u")
    assert await elsewhere(storage, tmp_path, BEHIND, "resume", "t", "yes") == "completed"
    async with Agent("demo", workspace_tools(tmp_path / "work"), storage=storage) as agent:
        assert (await agent.get("t")).status == (await agent.cancel("t")).status == "completed"
        assert [info.thread_id for info in await agent.threads()] == ["t", "u"]
        assert await elsewhere(storage, tmp_path, BEHIND, "cancel", "u") == "cancelled"
        assert [info.thread_id for info in await agent.threads()] == ["u", "t"]
        assert note.read_text() == "two"
        assert (await agent.undo("t")).status == "undone"
        assert note.read_text() == "zero"
        first = [state async for state in agent.graph.aget_state_history(config("t"))][-1]
        with wrong_by(BEHIND):
            changed = await agent.graph.aupdate_state(first.config, {"goal": "Another"}, as_node="deliver")
        assert (await agent.graph.aget_state(config("t"))).config == changed


@pytest.mark.parametrize("kind", KINDS)
async def test_work_is_taken_at_once_whatever_the_clock_of_who_left_it(kind: str, tmp_path: Path) -> None:
    """Q14, R16: what a machine submits whose clock is ahead, and what it leaves by dying, a worker here takes up."""
    storage = storage_of(kind, tmp_path)
    await elsewhere(storage, tmp_path, AHEAD, "submit", "Work", thread_id="left")
    if kind != "memory":
        await elsewhere(storage, tmp_path, AHEAD, "die", thread_id="died")

    def work(part: str) -> str:
        """Work."""
        return "worked"

    model = working()
    async with Agent(model, [work], storage=storage, effects={"work": "read"}, settings=FREE) as agent, agent.worker():
        async with asyncio.timeout(15):
            for thread in ["left"] if kind == "memory" else ["left", "died"]:
                assert [event["type"] async for event, _ in agent.watch(thread)][-1] == "outcome"
                assert (await agent.get(thread)).status == "completed"


@pytest.mark.parametrize("kind", KINDS)
async def test_everything_that_is_said_is_heard(kind: str, tmp_path: Path) -> None:
    """Q14, R16: two machines say something to a run at work, first the one that is ahead, then many at once; the run
    hears each word once, in order."""
    storage, agents = storage_of(kind, tmp_path), list[Agent]()

    async def work(part: str) -> str:
        """Work, while somebody says something."""
        if (told := len(calls)) < 2:
            calls.append(told)
            await elsewhere(storage, tmp_path, [AHEAD, BEHIND][told], "tell", "t", f"word {told}")
        else:
            await asyncio.gather(*(agents[0].tell("t", f"word {n}") for n in range(2, 8)))
        return "worked"

    calls: list[int] = []
    model = working(calls=3)
    async with Agent(model, [work], storage=storage, effects={"work": "read"}, settings=FREE) as agent:
        agents.append(agent)
        run = await agent.start("Work", thread_id="t")
    assert run.status == "completed"
    assert run.receipt
    heard = [row["text"] for row in run.receipt["heard"]]
    assert heard[:2] == ["word 0", "word 1"]
    assert sorted(heard) == [f"word {n}" for n in range(8)]
