"""Models that tools and executors call by themselves: charged to the run, and stopped at its limits."""

import asyncio
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda

from donewhen import Executor
from donewhen.graph.llm.cost import Meter
from donewhen.state.errors import ModelError
from donewhen.testing import ScriptedModel, call, criterion, finish_step, reply
from tests.kit.flows import FREE, one_step, play

USAGE = {"input_tokens": 1000, "output_tokens": 50}


def helper(*texts: str) -> ScriptedModel:
    """The model that an executor or a tool calls by itself."""
    return ScriptedModel([reply(text, usage=USAGE) for text in texts], model_name="helper")


async def test_models_inside_of_tools_are_charged() -> None:
    """R05: whoever made the call; the runtime's own call of a tool, in a check, costs what the tool costs."""
    inner = helper("green", "blue", "green")

    async def look(what: str) -> str:
        """Ask a model to look."""
        return (await inner.ainvoke(what)).text

    def look_too(what: str) -> str:
        """Ask a model to look, in a thread."""
        return str(inner.invoke(what).text)

    check = {"tool": "look", "arguments": {"what": "a"}, "expect": {"contains": "green"}}
    claim = finish_step("ok", goal_check=[criterion(1, "s1.1")])
    rounds = [[call("look", what="b"), call("look_too", what="c")], claim]
    model = one_step(rounds, done_when=[{"text": "it is green", "check": check}])
    flow = await play(model, [look, look_too], effects={"look": "read", "look_too": "read"})
    inner.assert_exhausted()
    assert flow.status == "completed"
    assert (flow.run.spent["model_calls"], flow.run.spent["tool_calls"]) == (4 + 3, 3)
    assert flow.run.spent["input_tokens"] >= 3000


@pytest.mark.parametrize("limit", [{"model_calls": 4}, {"input_tokens": 2500}])
async def test_models_of_an_executor_stop_at_the_budget(limit: dict[str, int]) -> None:
    """X08, R05: before the next call, not after the work; what is left over is for proving and delivering."""
    inner = helper(*["more"] * 6)

    async def endless(brief: str) -> str:
        for _ in range(99):
            await inner.ainvoke(brief)
        return "never"

    model = one_step([], executor="endless", deliver=[])
    settings = {**FREE, "on_exhausted": "deliver", "step_limits": limit}
    flow = await play(model, executors={"endless": Executor("works", work=endless)}, settings=settings)
    assert flow.status == "exhausted"
    assert not flow.journal[0]["ok"]
    assert f"The limit of {next(iter(limit))} is reached" in flow.journal[0]["text"]
    assert len(inner.requests) <= 4


def price(name: str, usage: Any) -> float | None:
    return usage["input_tokens"] / 1000 if name == "helper" else None


async def test_every_way_of_calling_a_model_is_counted() -> None:
    """R05: awaited, streamed, in a batch, through a chain, from another thread, and one that fails."""
    model = ScriptedModel([*[reply("a", usage=USAGE)] * 6, ValueError("down")], model_name="helper")
    meter = Meter(dict, price)

    async def work(text: str) -> str:
        await model.ainvoke(text)
        _ = [chunk async for chunk in model.astream(text)]
        await model.abatch([text, text])
        await (RunnableLambda(lambda x: x) | model).ainvoke(text)
        await asyncio.to_thread(model.invoke, text)
        with pytest.raises(ValueError, match="down"):
            await model.ainvoke(text)
        return "done"

    assert await RunnableLambda(work).ainvoke("go", {"callbacks": [meter]}) == "done"
    assert meter.spent["model_calls"] == 7
    assert meter.spent["input_tokens"] == 6000
    assert meter.spent["cost_usd"] == pytest.approx(6.0)


async def test_a_call_in_flight_counts_with_its_prompt_for_the_one_beside_it() -> None:
    """DESIGN 6: at a limit of tokens or money, calls side by side do not all take what only one may."""
    model = ScriptedModel([reply("a", usage=USAGE)], model_name="helper")
    meter = Meter(lambda: {"input_tokens": 900 - meter.least_spent.get("input_tokens", 0), "cost_usd": 5.0}, price)
    model_of = RunnableLambda(model.ainvoke)
    asked = [model_of.ainvoke("x" * 4000, {"callbacks": [meter]}) for _ in range(3)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["AIMessage", "ModelError", "ModelError"]
    assert meter.spent == meter.least_spent
    assert (meter.spent["model_calls"], meter.spent["input_tokens"], meter.spent["cost_usd"]) == (1, 1000, 1.0)


async def test_after_a_call_is_over_its_thread_calls_no_model_any_more() -> None:
    """R05: what a tool that took too long does later could be charged to nobody; what was in flight is, estimated."""

    def too_late(messages: list[Any], tools: list[Any]) -> Any:
        meter.close()
        return reply("too late", usage=USAGE)

    model = ScriptedModel([too_late], model_name="helper")
    meter = Meter(dict, price)
    await model.ainvoke("x" * 400, {"callbacks": [meter]})
    with pytest.raises(ModelError, match="is over"):
        await model.ainvoke("again", {"callbacks": [meter]})
    model.assert_exhausted()
    spent = {key: amount for key, amount in meter.spent.items() if amount}
    assert spent == {"model_calls": 1, "input_tokens": 100, "cost_usd": 0.1, "estimated_calls": 1}


async def test_a_limit_in_dollars_refuses_a_model_without_a_price_before_it_is_called() -> None:
    """DESIGN 6"""
    model = ScriptedModel([], model_name="unknown")
    meter = Meter(lambda: {"cost_usd": 1.0}, price)
    with pytest.raises(ModelError, match="no price is known"):
        await model.ainvoke("go", {"callbacks": [meter]})
    assert not model.requests
    assert meter.spent == {}
