"""deepagents as it comes: files, todos, sub-agents and summaries, with LangGraph's memory saver or SQLite saver."""

import asyncio
from typing import Any

from common import GOAL, look, main, put, rounds
from deepagents import create_deep_agent
from fake_chat import FakeChat, loop
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

TOOLS = [tool(look), tool(put)]


async def work_rounds(n: int, tool: str, file: str | None, **options: Any) -> None:
    async def go(saver: Any) -> None:
        agent = create_deep_agent(model=FakeChat(replies=loop(n, tool), **options), tools=TOOLS, checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 10_000}
        await agent.ainvoke({"messages": [("user", GOAL)]}, config)

    if file is None:
        await go(InMemorySaver())
        return
    async with AsyncSqliteSaver.from_conn_string(file) as saver:
        await go(saver)


def run(n: int, tool: str, file: str | None, **options: Any) -> None:
    asyncio.run(work_rounds(n, tool, file, **options))


if __name__ == "__main__":
    main(rounds(run))
