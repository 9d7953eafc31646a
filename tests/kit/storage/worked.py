"""A thread whose process died while two steps were at work, as the present version stores it.

`python -m tests.kit.storage.worked` writes it to tests/data, once for each version of the state.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool

from donewhen import Agent, Run
from donewhen.agent.storage import open_storage
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.state.channels import VERSION
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from tests.kit.runs import config, last_seen, step
from tests.kit.storage.release import keep

THREAD = "worked"
ROUNDS = 3
"""The rounds of each step."""


def script() -> ScriptedModel:
    """Look twice in each step, and finish. Replies depend on the messages alone."""

    def work(messages: Sequence[Any], _: Any) -> Any:
        round = sum(isinstance(each, AIMessage) for each in messages)
        return call("look", at=round) if round < ROUNDS - 1 else finish_step("done", evidence=last_seen(messages))

    plan = submit_plan([step("s1", tools=["look"]), step("s2", tools=["look"], depends_on=[])], title="Two")
    roles: Any = {"triage": lambda *_: plan, "deliver": lambda *_: "Done.", "execute": {"s1": work, "s2": work}}
    return ScriptedModel(roles=roles, strict=False)


def opened(storage: Any, crash: Crash | None = None) -> Agent:
    """The agent of the thread."""

    def look(at: int) -> str:
        """Look."""
        return f"seen {at}"

    storage = open_storage(storage) if isinstance(storage, str) else storage
    storage = crashing(storage, crash) if crash else storage
    tool = StructuredTool.from_function(look, metadata={"effect": "read"})
    return Agent(script(), [tool], storage=storage, settings={"confirm": "never"})


async def worked(storage: Any, crash: Crash | None = None) -> Run:
    """Let a process do the work."""
    async with opened(storage, crash) as agent:
        return await agent.start("do the work", thread_id=THREAD)


async def finished(storage: Any, crash: Crash | None = None) -> Run:
    """The run at its end, in another process."""
    async with opened(storage, crash) as agent:
        run = await agent.get(THREAD)
        return run if run.outcome else await agent.resume(THREAD)


async def stored_rounds(storage: Any) -> list[int]:
    """The rounds that each step at work has stored."""
    async with opened(storage) as agent:
        snapshot = await agent.graph.aget_state(config(THREAD), subgraphs=True)
    inner = [task.state.values for task in snapshot.tasks if task.name == "execute" and task.state]
    return [values["record"]["rounds"] for values in inner if values.get("record")]


async def died(engine: Any) -> Any:
    """A storage of `engine`, a function of a number, in which the process died after the first round of both steps."""
    for number in range(1, 120):
        storage = engine(number)
        with suppress(Exception):
            await worked(storage, Crash(number, only=["put", "put_writes"]))
        if await stored_rounds(storage) == [1, 1]:
            return storage
    raise AssertionError("it never died while both steps worked")


async def write(folder: Path) -> Path:
    """Store the thread."""
    path = await died(lambda number: f"sqlite:///{folder / f'{number}.sqlite'}")
    return Path(path.removeprefix("sqlite:///"))


if __name__ == "__main__":
    asyncio.run(keep(write, f"worked-{VERSION}"))
