"""Two executors: a LangGraph graph that asks a question of its own, and a writer with a profile. Runs without a key.

What the graph asks is asked in the run. It remembers its first step in its second.
"""

import asyncio

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from donewhen import Agent, Executor
from donewhen.testing import ScriptedModel, finish_step, submit_plan

PLAN = submit_plan(
    [
        {"id": "find", "content": "Find papers on the topic", "executor": "librarian"},
        {"id": "more", "content": "Find one paper more", "executor": "librarian"},
        {"id": "write", "content": "Write two lines about them", "executor": "writer", "tools": []},
    ],
    title="A reading list",
)


def library(state: MessagesState) -> dict[str, list[AIMessage]]:
    """Asks once on a thread, then knows."""
    before = [message.text for message in state["messages"] if message.type == "ai"]
    topic = before[0].removeprefix("Three papers on ") if before else interrupt("Papers on which topic?")
    return {"messages": [AIMessage(f"One paper more on {topic}" if before else f"Three papers on {topic}")]}


def model() -> ScriptedModel:
    """Plans, proves what the librarian found, and writes as the writer."""
    work = {
        "find": [finish_step("Three papers on tides", ("find.2", "tides"))],
        "more": [finish_step("One paper more on tides", ("more.1", "tides"))],
        "write": [finish_step("Four papers. All of them are on tides.", "write.result")],
    }
    return ScriptedModel(roles={"triage": [PLAN], "execute": work, "deliver": lambda *_: "Four papers on tides."})


async def main() -> None:
    """Run it; the question comes from the librarian."""
    graph = StateGraph(MessagesState).add_node(library).add_edge(START, "library")
    executors = {
        "librarian": graph.compile(name="finds papers"),
        "writer": Executor("writes short texts", profile="You write two lines, never more.", skills=("summaries",)),
    }
    async with Agent(model(), executors=executors, storage="memory:", settings={"confirm": "never"}) as agent:
        run = await agent.start("Make a reading list")
        print(f"the librarian asks: {run.pending[0]['question']}")
        run = await agent.resume(run, "tides")
        assert run.receipt is not None
        for row in run.receipt["steps"]:
            print(f"{row['executor']:10} {row['result']}")
        print(run.answer)


if __name__ == "__main__":
    asyncio.run(main())
