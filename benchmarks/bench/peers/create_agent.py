"""LangChain's create_agent, with its memory saver; on SQLite as it is by default, and durable."""

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import Any

from common import ASKED, GOAL, SAID, in_folder, look, main, of_turns, per_round, put, rounds, settled
from fake_chat import FakeChat, loop
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

TOOLS = [tool(look), tool(put)]


def agent_of(model: Any, saver: Any) -> Any:
    return create_agent(model, TOOLS, checkpointer=saver)


async def work_rounds(n: int, tool: str, file: str | None, durability: Any = None, **options: Any) -> None:
    async def go(saver: Any) -> None:
        agent = agent_of(FakeChat(replies=loop(n, tool), **options), saver)
        config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 10_000}
        await agent.ainvoke({"messages": [("user", GOAL)]}, config, durability=durability)

    if file is None:
        await go(InMemorySaver())
        return
    async with AsyncSqliteSaver.from_conn_string(file) as saver:
        await go(saver)


def run(n: int, tool: str, file: str | None, **options: Any) -> None:
    asyncio.run(work_rounds(n, tool, file, **options))


def durable(n: int, tool: str = "look") -> dict[str, Any]:
    in_folder(lambda folder: {"warm": run(3, tool, f"{folder}/x.db")})
    return per_round(lambda folder: asyncio.run(work_rounds(n, tool, f"{folder}/x.db", "sync")), n)


def unsaved(n: int) -> dict[str, Any]:
    """N rounds without any saver: nothing is kept, and nothing can go on."""

    async def go(count: int) -> None:
        agent = agent_of(FakeChat(replies=loop(count, "look")), None)
        await agent.ainvoke({"messages": [("user", GOAL)]}, {"recursion_limit": 10_000})

    asyncio.run(go(3))
    return per_round(lambda _: asyncio.run(go(n)), n)


def talk(turns: int, *, memory: bool = False) -> dict[str, Any]:
    """So many questions on one thread, each answered at once, durably on SQLite or in memory."""

    async def go(file: str) -> list[float]:
        costs = []
        async with AsyncSqliteSaver.from_conn_string(file) as on_disk:
            agent = agent_of(FakeChat(replies=[(None, SAID)] * turns), InMemorySaver() if memory else on_disk)
            for k in range(turns):
                started, config = time.process_time(), {"configurable": {"thread_id": "t"}}
                await agent.ainvoke({"messages": [("user", f"{k}: {ASKED}")]}, config, durability="sync")
                costs.append(1000 * (time.process_time() - started))
        return costs

    return in_folder(lambda folder: of_turns(asyncio.run(go(f"{folder}/x.db")), folder))


def resumed(n: int) -> dict[str, Any]:
    """From opening the file to the first request, after so many rounds that were broken off."""

    async def go(file: str, replies: list[Any], given: Any, first: Any = None) -> None:
        async with AsyncSqliteSaver.from_conn_string(file) as saver:
            agent = agent_of(FakeChat(replies=replies, first=first), saver)
            config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 10_000}
            await agent.ainvoke(given, config, durability="sync")

    def one(folder: str) -> dict[str, Any]:
        file, found = f"{folder}/x.db", list[float]()
        with suppress(IndexError):
            asyncio.run(go(file, loop(n + 1, "look")[:-1], {"messages": [("user", GOAL)]}))
        settled()
        started = time.process_time()
        done = [(None, "done")]
        asyncio.run(go(file, done, None, lambda: found.append(time.process_time())))
        return {"ms": 1000 * (found[0] - started)}

    return in_folder(one)


def token(_: int) -> dict[str, Any]:
    """Return the delay of the first piece of an answer after the model, in ms."""
    given: list[Any] = []
    words = " ".join(f"word{k}" for k in range(40))

    async def go() -> float:
        agent = agent_of(FakeChat(replies=[("look", {"what": "x"}), (None, words)], pieces=40, moments=given), None)
        seen: list[Any] = []
        async for part, _ in agent.astream({"messages": [("user", GOAL)]}, stream_mode="messages"):
            if part.type == "AIMessageChunk" and part.text:
                seen.append((part.text, time.perf_counter()))
        first = next(at for part, at in given if part.startswith("word0"))
        return 1000 * (seen[0][1] - first)

    return {"plain": asyncio.run(go())}


if __name__ == "__main__":
    more = {"durable": durable, "resumed": resumed, "token": token, "unsaved": unsaved, "talk": talk}
    more["talk_memory"] = partial(talk, memory=True)
    more["durable_writes"] = lambda n: durable(n, "put")
    main({**rounds(run), **more})
