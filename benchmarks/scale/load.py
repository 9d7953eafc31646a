"""Many runs at once in one process, and as many threads of a plain LangGraph loop on its own saver, taking turns."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

LOOKS, TURNS = 5, 3
Row = dict[str, str]
Took = tuple[float, float]
"""Seconds, and seconds of CPU."""


def measure_load(url: str, folder: Path, runs: int) -> Row:
    """A row of the table: the median of the turns."""
    return asyncio.run(_loaded(url, folder, runs))


async def _loaded(url: str, folder: Path, runs: int) -> Row:
    statuses, ours, plain = list[str](), list[Took](), list[Took]()
    async with _agent(url) as agent, _plain(url, folder) as loop:

        async def run() -> None:
            statuses.append((await agent.start("look")).status)

        async def go_round() -> None:
            where = {"configurable": {"thread_id": uuid4().hex}}
            await loop.ainvoke({"messages": []}, where, durability="sync")

        await asyncio.gather(run(), go_round())
        for _ in range(TURNS):
            ours.append(await _took(run, runs, LOOKS + 1))
            plain.append(await _took(go_round, runs, LOOKS))
    seconds, cpu = (median(b[part] / a[part] for a, b in zip(ours, plain, strict=True)) for part in (0, 1))
    return {
        "completed": f"{statuses.count('completed') - 1} of {TURNS * runs}",
        "rounds a second": f"{median(1 / each[0] for each in ours):.0f}",
        "of a plain loop": f"{median(1 / each[0] for each in plain):.0f}",
        "ours ÷ plain": f"{seconds:.2f}",
        "CPU of a round": f"{median(1000 * each[1] for each in ours):.1f} ms",
        "CPU of a plain loop's": f"{median(1000 * each[1] for each in plain):.1f} ms",
        "CPU, plain ÷ ours": f"{cpu:.2f}",
    }


async def _took(begin: Callable[[], Awaitable[None]], runs: int, rounds: int) -> Took:
    """Return the time of a round among this many concurrent runs."""
    clock, cpu = perf_counter(), process_time()
    await asyncio.gather(*(begin() for _ in range(runs)))
    return (perf_counter() - clock) / (runs * rounds), (process_time() - cpu) / (runs * rounds)


def _agent(url: str) -> Agent:
    """Its runs look five times: six rounds, of which the last finishes the step."""

    async def look(x: str = "") -> str:
        """Look."""
        return f"seen {x}"

    def execute(messages: list[Any], _: list[Any]) -> Any:
        made = sum(message.type == "tool" for message in messages)
        return call("look", x=str(made)) if made < LOOKS else finish_step("seen", evidence=("s1.1", "seen 0"))

    plan = submit_plan([{"content": "look", "done_when": ["it is seen"], "tools": ["look"]}])
    model = ScriptedModel(roles={"triage": lambda *_: plan, "execute": execute, "deliver": lambda *_: "Done."})
    return Agent(model, [look], storage=url, effects={"look": "read"}, settings={"confirm": "never"})


@asynccontextmanager
async def _plain(url: str, folder: Path) -> AsyncIterator[Any]:
    """A graph of two nodes, as it were the model's and the tool's, that goes round five times."""
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [AIMessage(f"call {len(state['messages'])}")]})
    builder.add_node("tool", lambda state: {"messages": [AIMessage("seen")]})
    builder.add_edge(START, "model")
    builder.add_edge("tool", "model")
    builder.add_conditional_edges("model", lambda state: "tool" if len(state["messages"]) < 2 * LOOKS else END)
    async with _saver(url, folder) as saver:
        yield builder.compile(checkpointer=saver)


@asynccontextmanager
async def _saver(url: str, folder: Path) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """LangGraph's, in a file of its own or in the same database, with a pool of 20 connections."""
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    if url.startswith("sqlite"):
        async with AsyncSqliteSaver.from_conn_string(f"{folder}/plain.db") as saver:
            await saver.setup()
            yield saver
        return
    options: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    pool: Any = AsyncConnectionPool(url, max_size=20, kwargs=options, open=False)
    async with pool:
        made = AsyncPostgresSaver(pool)
        await made.setup()
        yield made
