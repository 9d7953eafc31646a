"""A tool loop on LangGraph: two nodes, the prebuilt ToolNode, its memory saver or its SQLite saver, durable."""

import asyncio
import time
from typing import Any

from common import GOAL, cold, look, main, put, rounds
from fake_chat import FakeChat, loop
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

TOOLS = [tool(look), tool(put)]


def built(model: Any, saver: Any) -> Any:
    bound = model.bind_tools(TOOLS)

    async def ask(state: MessagesState) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    def on(state: MessagesState) -> str:
        return "tools" if state["messages"][-1].tool_calls else END

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode(TOOLS))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", on, ["tools", END])
    graph.add_edge("tools", "ask")
    return graph.compile(checkpointer=saver)


async def work_rounds(n: int, tool: str, file: str | None, durability: Any = "sync", **options: Any) -> None:
    async def go(saver: Any) -> None:
        graph = built(FakeChat(replies=loop(n, tool), **options), saver)
        config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 10_000}
        await graph.ainvoke({"messages": [("user", GOAL)]}, config, durability=durability)

    if file is None:
        await go(InMemorySaver())
        return
    async with AsyncSqliteSaver.from_conn_string(file) as saver:
        await go(saver)


def run(n: int, tool: str, file: str | None, **options: Any) -> None:
    asyncio.run(work_rounds(n, tool, file, **options))


def sides(count: int) -> dict[str, Any]:
    """So many chains of work at once: two model calls of 0.2 s each."""

    async def go() -> float:
        started = time.perf_counter()
        await asyncio.gather(*(work_rounds(2, "look", None, seconds=0.2) for _ in range(count)))
        return time.perf_counter() - started

    asyncio.run(work_rounds(2, "look", None))
    return {"s": asyncio.run(go())}


if __name__ == "__main__":
    ordinary = rounds(run)  # on SQLite it is durable
    main({**ordinary, "durable": ordinary["sqlite"], "cold": cold(run), "sides": sides})
