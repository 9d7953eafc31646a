"""Many runs at once on one database, beside a plain LangGraph loop on the same saver: `make load`."""

import asyncio
import os
import sys
import tempfile
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

ROUNDS = 5


def look(x: str = "") -> str:
    """Look."""
    return f"seen {x}"


def _execute(messages: list[Any], tools: list[Any]) -> Any:
    made = sum(message.type == "tool" for message in messages)
    return call("look", x=str(made)) if made < ROUNDS else finish_step("seen", evidence=("s1.1", "seen 0"))


async def ours(url: str, count: int) -> tuple[float, int, int, list[str]]:
    """Seconds, the most file descriptors and threads above those before, and the statuses of `count` runs at once."""
    plan = submit_plan([{"content": "look", "done_when": ["it is seen"], "tools": ["look"]}])
    model = ScriptedModel(roles={"triage": lambda *_: plan, "execute": _execute, "deliver": lambda *_: "Done."})
    agent = Agent(model, [look], storage=url, effects={"look": "read"}, settings={"confirm": "never"})
    await agent.start("warm up")
    held, most = (_descriptors(), threading.active_count()), [0, 0]

    async def watch() -> None:
        while True:
            most[:] = max(most[0], _descriptors() - held[0]), max(most[1], threading.active_count() - held[1])
            await asyncio.sleep(0.05)

    watcher, begun = asyncio.create_task(watch()), perf_counter()
    runs = await asyncio.gather(*(agent.start(f"look {n}") for n in range(count)), return_exceptions=True)
    seconds = perf_counter() - begun
    watcher.cancel()
    return seconds, *most, [getattr(run, "status", str(run)) for run in runs]  # type: ignore[return-value]


async def plain(saver: BaseCheckpointSaver[Any], count: int) -> float:
    """Seconds for as many threads of a graph of two nodes, a model's and a tool's, that goes round as often."""
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [AIMessage(f"call {len(state['messages'])}")]})
    builder.add_node("tool", lambda state: {"messages": [AIMessage("seen")]})
    builder.add_edge(START, "model")
    builder.add_edge("tool", "model")
    builder.add_conditional_edges("model", lambda state: "tool" if len(state["messages"]) < 2 * ROUNDS else END)
    graph = builder.compile(checkpointer=saver)
    begun = perf_counter()
    given: Any = {"messages": [("user", "look")]}
    runs = (graph.ainvoke(given, {"configurable": {"thread_id": str(n)}}, durability="sync") for n in range(count))
    await asyncio.gather(*runs)
    return perf_counter() - begun


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def main(count: int) -> int:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    from tests.kit.storage.servers import fresh_postgres_url

    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, url in (("SQLite", f"sqlite:///{Path(folder)}/runs.db"), ("PostgreSQL", fresh_postgres_url())):
            seconds, descriptors, threads, statuses = await ours(url, count)
            bad = [status for status in statuses if status != "completed"]
            failed += len(bad)
            async with AsyncExitStack() as stack:
                if name == "SQLite":
                    saver: Any = await stack.enter_async_context(
                        AsyncSqliteSaver.from_conn_string(f"{folder}/plain.db")
                    )
                else:
                    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
                    pool: Any = AsyncConnectionPool(fresh_postgres_url(), max_size=20, kwargs=options, open=False)
                    saver = AsyncPostgresSaver(await stack.enter_async_context(pool))
                await saver.setup()
                other = await plain(saver, count)
            # A run of ours has six rounds, and the model's and the tool's turn of the plain loop make five.
            rate, theirs = count * (ROUNDS + 1) / seconds, count * ROUNDS / other
            print(
                f"{name}: {count} at once, {len(bad)} failed, {rate:.0f} rounds/s, a plain loop {theirs:.0f}"
                f" ({rate / theirs:.2f}); {descriptors} descriptors, {threads} threads more; {bad[:2]}"
            )
    return failed


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)) > 0)
