"""LangChain's create_agent, with its memory saver; on SQLite as it is by default, and durable."""

import asyncio
import time
from contextlib import suppress
from typing import Any

from common import GOAL, in_folder, look, main, put, rounds, settled, stored
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


def durable(n: int) -> dict[str, Any]:
    def one(folder: str) -> dict[str, Any]:
        started = time.process_time()
        asyncio.run(work_rounds(n, "look", f"{folder}/x.db", "sync"))
        return {"ms": 1000 * (time.process_time() - started) / n, "mb": stored(folder)}

    run(3, "look", None)
    return in_folder(one)


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
    """Return the delay of an answer's piece after the model, in ms."""
    given: list[Any] = []
    words = " ".join(f"word{k}" for k in range(40))

    async def go() -> float:
        agent = agent_of(FakeChat(replies=[("look", {"what": "x"}), (None, words)], pieces=40, moments=given), None)
        seen: list[Any] = []
        async for part, _ in agent.astream({"messages": [("user", GOAL)]}, stream_mode="messages"):
            if part.type == "AIMessageChunk" and part.text:
                seen.append((part.text, time.perf_counter()))
        pieces = [each for each in given if not each[0].startswith("{") and "what" not in each[0]][-len(seen) :]
        return min(1000 * (there - at) for (_, there), (_, at) in zip(seen, pieces, strict=False))

    return {"plain": asyncio.run(go())}


if __name__ == "__main__":
    more = {"durable": durable, "resumed": resumed, "token": token}
    main({**rounds(run), **more})
