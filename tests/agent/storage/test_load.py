"""Many runs at once on one database: they wait for each other, and none fails for the number of others."""

import asyncio
from pathlib import Path

import pytest

from benchmarks.load import ours
from donewhen import Agent, wait
from donewhen.agent.storage import open_storage
from donewhen.testing import ScriptedModel, answer, call
from tests.runs import sending
from tests.storage_cases import DATABASES, fresh_url


@pytest.mark.parametrize("kind", DATABASES)
async def test_fifty_runs_at_once(kind: str, tmp_path: Path) -> None:
    """R07, L12: all end as if alone; a run costs a descriptor, its lock or one of 16 connections, and no thread."""
    count = 50
    _, descriptors, threads, statuses = await ours(fresh_url(kind, tmp_path), count)
    assert statuses == ["completed"] * count
    assert descriptors <= count + 8
    assert threads <= 8


@pytest.mark.parametrize("kind", DATABASES)
async def test_a_run_inside_a_run_does_not_wait_for_it(kind: str, tmp_path: Path) -> None:
    """R07: a tool that starts a run has a connection while everybody else waits for the one its caller holds."""
    url = fresh_url(kind, tmp_path)
    inner = Agent(ScriptedModel(roles={"triage": lambda *_: answer("Hello.")}), storage=url)

    async def send(to: str, text: str) -> str:
        """Send."""
        return (await inner.start("within", thread_id=f"inner {text}")).status

    scripts = [sending(call("send", to="ann", text=str(n)), tools=["send"]) for n in range(20)]
    agents = [Agent(model, [send], storage=url, settings={"confirm": "never"}) for model in scripts]
    runs = await asyncio.wait_for(asyncio.gather(*(agent.start("do it") for agent in agents)), 90)
    assert {run.status for run in runs} == {"completed"}


def test_loops_and_threads_share_one_file(tmp_path: Path) -> None:
    """R07: whichever loop a session belongs to, the file has one connection in this process."""
    url = f"sqlite:///{tmp_path}/runs.db"

    async def both() -> None:
        async with open_storage(url).session("a") as (saver, _):
            other = await asyncio.to_thread(lambda: wait(_file_of(url)))
            assert other is saver.file  # type: ignore[attr-defined]

    asyncio.run(both())


async def _file_of(url: str) -> object:
    async with open_storage(url).session("b") as (saver, _):
        return saver.file  # type: ignore[attr-defined]
