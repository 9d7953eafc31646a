"""What tools, checks and executors get in their configuration: their call, and nothing of the run (R18, Q55)."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.pregel.remote import RemoteGraph
from pydantic import BaseModel

from donewhen import Agent, AgentOptions, Executor, build_graph
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from tests.kit.runs import config as config_of
from tests.kit.runs import said

GOAL, MEMORY, PLAN = "compare payroll-2026.xlsx", "the user is ill-9", "weigh the salaries-77"
SECRET = "hunter2-very-9Xk"


class Answer(BaseModel):
    """A structured result."""

    text: str


def values_in(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yield everything that is reachable in a configuration by keys, places and attributes of our own classes."""
    if depth > 8:
        return
    yield value
    if isinstance(value, Mapping):
        inner = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set):
        inner = list(value)
    else:
        inner = list(vars(value).values()) if type(value).__module__.startswith("donewhen") else []
    for each in inner:
        yield from values_in(each, depth + 1)


def of_the_run(config: RunnableConfig) -> list[str]:
    """Return what of the run stands in `configurable`."""
    configurable = config.get("configurable") or {}
    found = [str(each) for each in values_in(configurable) if isinstance(each, str)]
    marks = [mark for mark in (GOAL, MEMORY, PLAN, SECRET) if any(mark in each for each in found)]
    ours = [
        key
        for key, each in configurable.items()
        if type(each).__module__.startswith("donewhen.") and not key.startswith("__pregel_")
    ]
    return [*marks, *ours]


class Server:
    """A LangGraph server that keeps what it is sent."""

    def __init__(self) -> None:
        self.runs, self.sent = self, list[Any]()

    async def stream(self, **sent: Any) -> Any:
        self.sent.append(sent)
        return
        yield


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_no_tool_check_or_executor_gets_the_run(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R18, Q55: in planning, in two steps at once, in a check, in a graph as executor, with a structured result."""
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    seen: dict[str, list[str]] = {}
    server = Server()

    def look(at: str, config: RunnableConfig) -> str:
        """Look somewhere."""
        seen.setdefault(at, []).extend(of_the_run(config))
        return f"seen {at}"

    async def alook(at: str, config: RunnableConfig) -> str:
        """Look somewhere."""
        remote = RemoteGraph("other", client=server)  # type: ignore[arg-type]
        try:
            async for _ in remote.astream({"messages": [("user", at)]}, config):
                pass
        except Exception:  # it answers nothing
            server.sent.append(None)
        return look(at, config)

    def node(state: MessagesState, config: RunnableConfig) -> Any:
        seen.setdefault("executor", []).extend(of_the_run(config))
        return {"messages": [("ai", "done")]}

    graph = StateGraph(MessagesState).add_node("node", node)
    graph.add_edge(START, "node").add_edge("node", END)
    check = {"text": "it is there", "check": {"tool": "look", "arguments": {"at": "check"}, "expect": "ok"}}
    steps = [
        {"id": "s1", "content": PLAN, "done_when": [check], "depends_on": []},
        {"id": "s2", "content": PLAN, "done_when": ["d"], "depends_on": []},
        {"id": "s3", "content": PLAN, "done_when": ["d"], "depends_on": [], "executor": "graph"},
    ]
    work = {
        "s1": [call("look", at="one"), finish_step("ok", evidence=("s1.1", "seen one"))],
        "s2": [call("look", at="two"), finish_step("ok", evidence=("s2.1", "seen two"))],
        "s3": [said("s3")],
    }
    plan = submit_plan(steps, title="t")
    model = ScriptedModel(
        roles={
            "triage": [call("look", at="planning"), plan],
            "execute": work,
            "deliver": ['{"output": {"text": "x"}}'] * 3,
        },
        strict=False,
    )
    tool = (
        StructuredTool.from_function(look)
        if kind == "sync"
        else StructuredTool.from_function(coroutine=alook, name="look")
    )
    agent = Agent(
        model,
        [tool],
        storage="memory:",
        effects={"look": "read"},
        options=AgentOptions(memory=MEMORY),
        executors={"graph": Executor("a graph", graph=graph.compile())},
        settings={"confirm": "never", "verification": "grounded"},
        output_type=Answer,
    )
    run = await agent.start(GOAL)
    assert run.status in ("completed", "partial"), run.outcome
    assert seen == {at: [] for at in ("planning", "one", "two", "check", "executor")}
    sent = json.dumps(server.sent, default=repr)
    assert [mark for mark in (GOAL, MEMORY, PLAN, SECRET) if mark in sent] == []
    assert bool(server.sent) == (kind == "async")
    await agent.aclose()


async def test_two_runs_at_once_work_on_their_own() -> None:
    """R18: a subgraph's inputs are of its own run, also in agents that share it, and one inside another's tool."""

    async def outer(goal: str) -> str:
        async def ask(question: str) -> str:
            """Ask another agent."""
            model = ScriptedModel(
                roles={"triage": [submit_plan([f"look for {question}"])], "execute": {"s1": [said("s1")]}}, strict=False
            )
            graph = build_graph(model, settings={"confirm": "never", "verification": "claimed"}).compile()
            state = await graph.ainvoke({"messages": [("user", question)]}, config_of(question))
            return str(state["plan"]["steps"][0]["content"])

        work = [call("ask", question=f"{goal}-inner"), finish_step("ok", evidence="s1.1")]
        model = ScriptedModel(roles={"triage": [submit_plan([goal])], "execute": {"s1": work}}, strict=False)
        settings = {"confirm": "never", "verification": "claimed"}
        async with Agent(model, [ask], storage="memory:", effects={"ask": "read"}, settings=settings) as agent:
            run = await agent.start(goal)
            assert model.requests[-1].text.count(f"look for {goal}-inner") >= 1
            return f"{run.goal}: {(run.plan or {})['steps'][0]['content']}"

    done = await asyncio.gather(*(outer(f"goal{number}") for number in range(3)))
    assert done == [f"goal{number}: goal{number}" for number in range(3)]
