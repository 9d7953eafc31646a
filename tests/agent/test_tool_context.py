"""`context=` of a run: what its tools read as `ToolRuntime.context`, in whatever process, and nobody else (Q25)."""

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain.tools import ToolRuntime
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from pydantic import BaseModel

from donewhen import Agent, ConfigError, Executor, Settings, build_graph
from donewhen.state.settings import confine_settings, merge_settings
from donewhen.testing import ScriptedModel, audit, call, finish_step, submit_plan
from tests.kit.runs import said

CUSTOMER = "ann-4711"


@dataclass
class Shop:
    """A context as LangGraph's users write it."""

    customer: str
    tags: tuple[str, ...] = ()


class ShopModel(BaseModel):
    """The same, validated."""

    customer: str


def look(at: str, runtime: ToolRuntime) -> str:
    """Look somewhere."""
    seen = runtime.context
    return f"{at} is fine" if seen is None else f"{at} is fine: {len(seen['customer'])} letters"


def look_then_finish(messages: Any, tools: Any) -> Any:
    """Look, and then be done; as a function, because runs may ask side by side."""
    return finish_step("ok", ("s1.1", "8 letters")) if "[s1.1]" in str(messages[-1].content) else call("look", at="s1")


def work(times: int = 1) -> ScriptedModel:
    """Return a model for this many runs of one step that looks once."""
    plan = submit_plan([{"content": "Look", "done_when": "seen", "tools": ["look"]}])
    return ScriptedModel(roles={"triage": [plan] * times, "execute": [look_then_finish] * 2 * times}, strict=False)


async def test_every_tool_gets_it_and_no_model(tmp_path: Path) -> None:
    """Q25: in planning, two steps at once, a check, a judge's look-up and a graph as executor; after a pause elsewhere.

    The second process is another agent on the same file; it is given nothing again.
    """
    seen: dict[str, Any] = {}

    def look(at: str, runtime: ToolRuntime) -> str:
        """Look somewhere."""
        seen[at] = runtime.context
        runtime.context["customer"] = "changed by the tool"  # it is this call's alone
        return f"{at} is fine: 8 letters"

    def node(state: MessagesState, runtime: Runtime[Shop]) -> Any:
        seen["executor"] = runtime.context
        return {"messages": [("ai", "done")]}

    graph = StateGraph(MessagesState, context_schema=Shop).add_node("node", node)
    graph.add_edge(START, "node").add_edge("node", END)
    check = {"text": "it is there", "check": {"tool": "look", "arguments": {"at": "check"}, "expect": "ok"}}
    steps: list[dict[str, Any]] = [
        {"content": "Look", "done_when": [check], "tools": ["look"], "depends_on": []},
        {"content": "Look", "done_when": "seen", "tools": ["look"], "depends_on": []},
        {"content": "Look", "done_when": "seen", "executor": "graph", "depends_on": []},
    ]
    model = ScriptedModel(
        roles={
            "triage": [call("look", at="planning"), submit_plan(steps)],
            "execute": {
                "s1": [call("look", at="s1"), finish_step("ok", "s1.1")],
                "s2": [call("look", at="s2"), finish_step("ok", "s2.1")],
                "s3": [said("s3")],
            },
            "judge": [call("look", at="judge"), audit(count=4)],
        },
        strict=False,
    )

    def agent() -> Agent:
        executors = {"graph": Executor("a graph", graph=graph.compile())}
        return Agent(model, [look], storage=f"sqlite:///{tmp_path}/r.db", effects={"look": "read"}, executors=executors)

    async with agent() as first:
        run = await first.start("Look around", context=Shop(CUSTOMER))
        assert run.status == "waiting"
    async with agent() as second:
        run = await second.resume(run.thread_id, "approve")
        assert run.status == "completed", run.outcome
        info = await second.info(run.thread_id)
    executor = seen.pop("executor")
    assert (executor.customer, list(executor.tags)) == (CUSTOMER, [])
    assert seen.keys() == {"planning", "s1", "s2", "check", "judge"}
    assert all(each["customer"] == "changed by the tool" and each["tags"] == [] for each in seen.values())
    assert not any(CUSTOMER in request.text for request in model.requests)
    assert CUSTOMER not in json.dumps([run.receipt, run.outcome, run.steps, repr(info)], default=str)


async def test_a_worker_has_it_and_two_runs_have_their_own(tmp_path: Path) -> None:
    """Q25: submitted runs, carried out at once by another agent; one without a context has none."""
    seen = list[Any]()

    def look(at: str, runtime: ToolRuntime) -> str:
        """Look somewhere."""
        seen.append(runtime.context)
        return f"{at} is fine: 8 letters"

    def agent(model: ScriptedModel) -> Agent:
        return Agent(
            model,
            [look],
            storage=f"sqlite:///{tmp_path}/r.db",
            effects={"look": "read"},
            settings={"confirm": "never", "verification": "grounded"},
        )

    async with agent(ScriptedModel([])) as client:
        given = ({"customer": "ann"}, {"customer": "bob", "blank": ""}, None)
        ids = [await client.submit("Look", thread_id=f"t{n}", context=each) for n, each in enumerate(given)]
    model = work(times=3)
    async with agent(model) as elsewhere:
        for run in await asyncio.gather(*map(elsewhere.run_submitted, ids)):
            assert run.status == "completed", run.outcome
    assert sorted(map(str, seen)) == sorted(map(str, given))


@pytest.mark.parametrize("kind", [Shop, ShopModel])
async def test_a_tool_names_its_class(kind: Any) -> None:
    """Q25: `ToolRuntime[Class]` gets an instance, as in LangGraph; what does not fit is that call's error."""
    seen = list[Any]()

    def look(at: str, runtime: ToolRuntime[kind]) -> str:
        """Look somewhere."""
        seen.append(runtime.context)
        return f"{at} is fine: 8 letters"

    look.__annotations__["runtime"] = ToolRuntime[kind]
    settings = {"confirm": "never", "verification": "grounded"}
    for given, wanted in (({"customer": "ann"}, [kind(customer="ann")]), ({"user": "ann"}, [])):
        model = work()
        async with Agent(model, [look], storage="memory:", effects={"look": "read"}, settings=settings) as agent:
            run = await agent.start("Look", context=given)
        assert seen == wanted
        assert (run.status == "completed") == bool(wanted)
        assert (f"the run's context is no {kind.__name__}" in model.requests[-1].text) != bool(wanted)
        seen.clear()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"db": object()}, "Object of type object is not JSON serializable"),
        ({"at": datetime.now(UTC)}, "datetime is not JSON serializable"),
        ({"n": float("nan")}, "Out of range float"),
        ({"ids": {1: "a"}}, "a key that is no text"),
        ({"text": "half \ud83d"}, "holds half a character"),
        ({"text": "nul \0"}, "a character that cannot be stored"),
        ({"text": "x" * 50_001}, "at most 50,000"),
        (["ann"], "dictionary"),
        ("ann", "dictionary"),
    ],
)
async def test_what_cannot_be_stored_is_refused(given: Any, says: str) -> None:
    """Q25: by all three verbs, before anything begins; the error says what and what to do."""
    model = ScriptedModel([])
    async with Agent(model, storage="memory:") as agent:
        for begin in (agent.start, agent.submit):
            with pytest.raises(ConfigError, match="tool_context") as refused:
                await begin("Look", context=given)
            assert says in str(refused.value)
        with pytest.raises(ConfigError, match="tool_context"):
            agent.stream("Look", context=given)
        assert await agent.threads() == []
    endless: dict[str, Any] = {}
    endless["self"] = endless
    with pytest.raises(ConfigError, match="tool_context"):
        merge_settings(Settings(), {"tool_context": endless})


async def test_a_graph_of_ones_own_hands_it_on() -> None:
    """Q25, P14: `build_graph` with settings, and as an executor of an agent whose run has a context."""
    model = work()
    graph = build_graph(model, [look], effects={"look": "read"}, settings={"confirm": "never"}).compile()
    outer = ScriptedModel(
        roles={
            "triage": [submit_plan([{"content": "Look", "done_when": "seen", "executor": "inner"}])],
            "execute": [finish_step("ok", "s1.1")],
        },
        strict=False,
    )
    executors = {"inner": Executor("looks", graph=graph)}
    settings = {"confirm": "never", "verification": "grounded"}
    async with Agent(outer, storage="memory:", executors=executors, settings=settings) as agent:
        run = await agent.start("Look", context={"customer": CUSTOMER})
    assert run.status == "completed", run.outcome
    assert "s1 is fine: 8 letters" in model.requests[-1].text


def test_a_client_of_the_server_cannot_set_it() -> None:
    """Q25, U8: who the customer is says whoever runs the server; settings join key by key."""
    pinned = Settings(tool_context={"tenant": "north"})
    for operator in (pinned, Settings()):
        kept, refused = confine_settings(operator, {"tool_context": {"customer": "bob"}}, models=True)
        assert (kept.tool_context, refused) == (operator.tool_context, ["tool_context"])
    both = merge_settings(pinned, {"tool_context": {"customer": "ann", "note": ""}})
    assert both.tool_context == {"tenant": "north", "customer": "ann", "note": ""}
