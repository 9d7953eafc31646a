"""What happens while a server's question waits for a person: other words, other plans, an end, a SIGKILL."""

import asyncio
import json
import os
import sys
import textwrap
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, McpServers, ResumeError, StaleAnswer
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from tests.agent.mcp.test_mcp_asking import BEFORE, SETTINGS, TODAY, shop
from tests.kit.flows import one_step

ERAS = pytest.mark.parametrize("code", [TODAY, BEFORE], ids=["2026-07-28", "2025-06-18"])


def sold(folder: Path) -> list[str]:
    """What the shop really sold."""
    return (folder / "sold.txt").read_text().split() if (folder / "sold.txt").exists() else []


def order(what: str) -> Any:
    """The plan of one order."""
    return submit_plan([{"content": f"order a {what}", "tools": ["order"]}])


@ERAS
async def test_another_request_or_a_cancel_closes_the_question(code: str, tmp_path: Path) -> None:
    """N42, X26: the answer to the question that was closed orders nothing; what is asked anew is answered anew."""
    script = [call("order", what="shirt"), call("order", what="hat"), finish_step("ordered", "s1.2")]
    model = ScriptedModel(roles={"triage": [order("shirt"), order("hat")], "execute": script})
    async with McpServers(shop(code, tmp_path)) as servers, Agent(model, [servers], storage="memory:") as agent:
        first = await agent.start("Order a shirt", settings=SETTINGS)
        with pytest.raises(ResumeError, match="nothing works on thread"):
            await agent.tell(first.thread_id, "a large one")
        with pytest.raises(StaleAnswer, match="was not stopped"):
            await agent.resume(first.thread_id, steer="a hat instead")
        again = await agent.start("Order a hat", thread_id=first.thread_id, restart=True, settings=SETTINGS)
        with pytest.raises(StaleAnswer):
            await agent.resume(first, {"size": "S"})
        assert again.pending[0]["question"] == "shop asks: Which hat?"
        assert (await agent.cancel(again.thread_id)).status == "cancelled"
        with pytest.raises(StaleAnswer):
            await agent.resume(again, {"size": "S"})
    assert sold(tmp_path) == []


@ERAS
async def test_a_new_plan_waits_for_the_answer(code: str, tmp_path: Path) -> None:
    """N42: another step wants a new plan meanwhile: the order is made once, with its answer, and then replanned."""
    at_work, told = asyncio.Event(), asyncio.Event()

    async def look() -> str:
        """Look."""
        at_work.set()
        await told.wait()
        return "hats are better"

    steps = [{"content": "order", "tools": ["order"]}, {"content": "look", "tools": ["look"]}]
    both = submit_plan([{**step, "depends_on": []} for step in steps])
    rounds = {
        "s1": [call("order", what="shirt"), finish_step("ordered", "s1.2")],
        "s2": [call("look"), call("give_up", kind="replan", reason="hats are better")],
        "s3": [call("order", what="hat"), finish_step("ordered", "s3.2")],
    }
    model = ScriptedModel(roles={"triage": [both], "plan": [order("hat")], "execute": rounds, "deliver": ["Done."]})
    async with (
        McpServers(shop(code, tmp_path)) as servers,
        Agent(model, [servers, look], storage="memory:", effects={"look": "read"}) as agent,
    ):
        work = agent.stream("Order", settings={**SETTINGS, "when_busy": "next_round"})
        working = asyncio.ensure_future(work.result())
        await at_work.wait()
        await agent.tell(work.thread_id, "in a large size")
        told.set()
        run = await working
        assert run.pending[0]["question"] == "shop asks: Which shirt?"
        run = await agent.resume(run, {"size": "L"})
        assert sold(tmp_path) == ["shirt"]
        assert run.pending[0]["question"] == "shop asks: Which hat?"
        run = await agent.resume(run, {"size": "L"})
        assert run.status == "completed"
    assert sold(tmp_path) == ["shirt", "hat"]


CHILD = """
    import asyncio, json, signal, sys
    from donewhen import Agent, McpServers
    from donewhen.testing import call, finish_step
    from tests.kit.flows import one_step

    async def main(servers, storage, thread):
        script = [call("order", what="shirt"), finish_step("ordered", "s1.2")]
        model = one_step(script if not thread else script[1:])
        async with McpServers(json.loads(servers)) as shop, Agent(model, [shop], storage=storage) as agent:
            if thread:
                await agent.resume(thread, {"size": "L"})
            run = await agent.start("Order a shirt", settings={"confirm": "never", "approvals": "never"})
            print(run.thread_id, run.pending[0]["question"], flush=True)
            signal.pause()

    asyncio.run(main(*sys.argv[1:]))
"""


async def start_child(folder: Path, config: dict[str, Any], thread: str = "") -> asyncio.subprocess.Process:
    """A process that starts the order, or answers its question."""
    arguments = [json.dumps(config), f"sqlite:///{folder}/runs.db", thread]
    code = textwrap.dedent(CHILD)
    return await asyncio.create_subprocess_exec(sys.executable, "-c", code, *arguments, stdout=PIPE)


HANGS = BEFORE.replace(
    '                with open(sys.argv[1], "a") as log:\n',
    '                open(sys.argv[1] + ".pipe", "w").close()\n'
    "                sys.stdin.read()\n"
    "                break\n"
    '                with open(sys.argv[1], "a") as log:\n',
)
"""Takes the answer, and is never heard of again."""


async def test_killed_while_the_question_waits_and_again_when_it_was_answered(tmp_path: Path) -> None:
    """N42, R01: after the first SIGKILL the question stands; after the second nobody knows, so a person is asked."""
    asking = await start_child(tmp_path, shop(BEFORE, tmp_path))
    assert asking.stdout
    thread, question = (await asking.stdout.readline()).decode().strip().split(" ", 1)
    assert question == "shop asks: Which shirt?"
    asking.kill()
    await asking.wait()

    os.mkfifo(tmp_path / "sold.txt.pipe")
    answering = await start_child(tmp_path, shop(HANGS, tmp_path), thread)
    await asyncio.to_thread((tmp_path / "sold.txt.pipe").read_text)
    answering.kill()
    await answering.wait()

    later = one_step([finish_step("ordered", "s1.2")])
    storage = f"sqlite:///{tmp_path}/runs.db"
    async with McpServers(shop(BEFORE, tmp_path)) as servers, Agent(later, [servers], storage=storage) as agent:
        run = await agent.resume(thread)
        assert (run.status, run.pending[0]["kind"]) == ("waiting", "effect")
        assert sold(tmp_path) == []
        run = await agent.resume(run, "it did not happen")
        assert run.status == "completed"
    assert sold(tmp_path) == ["shirt"]
