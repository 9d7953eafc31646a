"""Delivering: one outcome, an answer from results and observations, and honest words where no model writes them."""

from typing import Any

import pytest
from langgraph.runtime import Runtime

from donewhen import Agent, Limits, Settings
from donewhen.graph.context import Deps
from donewhen.graph.deliver import deliver
from donewhen.state.errors import ModelError
from donewhen.testing import ScriptedModel, call, finish_step, give_up, reply
from tests.kit.flows import FREE, Flow, play, steps

TWO = [{"content": "look", "tools": ["look"]}, {"content": "write"}]
LOOKED = [call("look"), finish_step("three apples", "s1.1")]


def look() -> str:
    """Look."""
    return "On the table there are three apples, and one pear."


async def run(model: ScriptedModel, **settings: Any) -> Flow:
    return await play(model, [look], effects={"look": "read"}, settings=Settings(**{**FREE, **settings}))


def half(*deliver: Any) -> ScriptedModel:
    """Step 1 is done, step 2 fails."""
    return steps(TWO, {"s1": LOOKED, "s2": [give_up("no paper")]}, deliver=list(deliver))


async def test_the_answer_is_written_from_results_and_observations() -> None:
    """D02: the model that writes the answer sees goal, results, verdicts and the words observed; no transcripts."""
    rounds = {"s1": ["secret musing", *LOOKED], "s2": [finish_step("written", "s2.result")]}
    model = steps(TWO, rounds, deliver=["There are three apples."])
    flow = await run(model)
    model.assert_exhausted()
    text = model.requests[-1].text
    assert model.requests[-1].role == "deliver"
    assert model.requests[-1].tool_names == ["deliver"]
    assert ">\nthree apples\n</result" in text
    assert ">\nOn the table there are three apples, and one pear.\n</proof" in text
    assert "secret musing" not in text
    assert flow.run.answer == "There are three apples."
    assert flow.values["messages"][-1].text == flow.run.answer


async def test_what_is_not_done_is_listed_whatever_the_model_writes() -> None:
    """D02, X04, X09: a model that calls it all done is completed by what is not."""
    flow = await run(half("Everything is done!"), on_failure="deliver")
    assert flow.status == "partial"
    assert flow.run.answer.splitlines() == [
        "Everything is done!",
        "",
        "- Not done (failed): write — no paper",
        "",
        "Next would be: write",
    ]


FAILING: dict[str, Any] = {
    "error": ModelError("the key is wrong", code="auth"),
    "timeout": TimeoutError(),
    "nothing": "",
    "only a thought": "<think>what to say?</think>",
}


@pytest.mark.parametrize("kind", FAILING)
async def test_without_a_written_answer_code_writes_one(kind: str) -> None:
    """D02: if the call fails, a mechanical summary is delivered that counts only finished steps as finished."""
    model = half(FAILING[kind])
    flow = await run(model, on_failure="deliver", model_retries=0)
    model.assert_exhausted()
    assert flow.status == "partial"
    assert "1 of 2 steps done." in flow.run.answer
    assert "- Done: look — three apples" in flow.run.answer
    assert "- Not done (failed): write — no paper" in flow.run.answer
    assert any("summary by the runtime" in note["text"] for note in flow.told("note"))
    assert "".join(e["text"] for e in flow.told("speech") if e["step"] is None) == flow.run.answer


async def test_an_answer_printed_as_a_decision_is_unpacked() -> None:
    """D02: models used to printing JSON print their answer so; the user reads words."""
    model = steps(
        ["a", "b"],
        {"s1": [finish_step("x", "s1.result")], "s2": [finish_step("y", "s2.result")]},
        deliver=['{"action": "deliver", "text": "There it is."}'],
    )
    flow = await run(model)
    assert flow.run.answer == "There it is."
    assert "".join(e["text"] for e in flow.told("speech") if e["step"] is None) == flow.run.answer


@pytest.mark.parametrize(
    "text",
    [
        'Put this into the file:\n```json\n{"action": "answer", "text": "x"}\n```\nThen start it.',
        'The call was {"name": "send", "arguments": {"to": "b"}} and it worked.',
        '{"action": "deploy", "when": now}\nis what the file holds.',
    ],
)
async def test_an_answer_that_holds_json_is_delivered_whole(text: str) -> None:
    """B6: an answer is not cut at an object in it."""
    rounds = {"s1": [finish_step("x", "s1.result")], "s2": [finish_step("y", "s2.result")]}
    flow = await run(steps(["a", "b"], rounds, deliver=[text]))
    assert flow.run.answer == text
    assert "".join(e["text"] for e in flow.told("speech") if e["step"] is None) == flow.run.answer


async def test_an_answer_that_breaks_off_is_taken_back() -> None:
    """D02, S02: half an answer that was streamed is retracted before the summary is said."""
    policy = lambda *_: ModelError("broken", code="connection")  # noqa: E731
    flow = await run(half(policy), on_failure="deliver", model_retries=0)
    assert flow.run.answer.startswith("Step s2 (write) failed: no paper")


async def test_one_call_is_kept_for_the_delivery() -> None:
    """D03: out of budget, the user gets what was achieved, what not and what would come next, written with the last
    call, which no step can use up."""
    model = steps(TWO, {"s1": LOOKED}, deliver=["Three apples were found."])
    flow = await run(model, limits=Limits(model_calls=4), on_exhausted="deliver")
    model.assert_exhausted()
    assert flow.status == "exhausted"
    assert flow.run.spent["model_calls"] == 4
    assert flow.run.answer.splitlines() == [
        "Three apples were found.",
        "",
        "- Not done (exhausted): write — the limit of model_calls for the run was reached",
        "",
        "Next would be: write",
    ]


@pytest.mark.parametrize("key", ["output_tokens", "input_tokens", "cost_usd"])
async def test_a_limit_of_tokens_or_money_is_not_broken_for_words(key: str) -> None:
    """D03: when tokens or money are used up, no more are bought for the answer; code writes it."""
    done = reply("", [finish_step("three apples", "s1.1")], usage={"input_tokens": 9000, "output_tokens": 9000})
    model = steps(TWO, {"s1": [call("look"), done]}, deliver=[])
    limits = Limits(**{key: {"cost_usd": 0.005}.get(key, 8000)})
    prices = {"scripted": {"input": 0.3, "output": 0.3}}
    settings = Settings(confirm="never", limits=limits, on_exhausted="deliver")
    flow = await play(model, [look], effects={"look": "read"}, settings=settings, prices=prices)
    model.assert_exhausted()
    assert flow.status == "exhausted"
    assert flow.run.answer.startswith("The budget is used up: ")
    assert "- Done: look — three apples" in flow.run.answer
    assert "Next would be: write" in flow.run.answer


async def test_an_outcome_is_never_overwritten() -> None:
    """D01: delivering again changes nothing."""
    runtime: Runtime[Settings] = Runtime(context=Settings())
    deps = Deps(lambda *_: ScriptedModel())
    outcome = {"status": "completed", "code": "answered", "text": "x", "reason": "", "receipt": {}}
    assert await deliver({"outcome": outcome, "goal": "g"}, runtime, {}, deps=deps) == {}


async def test_the_outcome_has_words_for_users_and_for_logs() -> None:
    """D01, P15: status, code, user text and internal reason are four fields; the receipt says why."""
    flow = await run(half("Half."), on_failure="deliver")
    assert flow.run.outcome is not None
    assert set(flow.run.outcome) == {
        "status", "code", "text", "reason", "missing", "looked", "changed", "receipt",
    }  # fmt: skip
    assert flow.run.outcome["code"] == "worked"
    assert "no paper" in flow.run.outcome["reason"]
    receipt = flow.run.outcome["receipt"]
    assert [(row["id"], row["status"]) for row in receipt["steps"]] == [("s1", "done"), ("s2", "failed")]
    assert receipt["spent"] == flow.run.spent


async def test_many_long_results_fit_into_one_brief() -> None:
    """D02: however much was found, what the delivery is told stays bounded."""
    many = [{"content": f"part {n}", "depends_on": []} for n in range(1, 21)]
    long = {f"s{n}": [finish_step(f"part {n} " + "x" * 3_000, f"s{n}.result")] for n in range(1, 21)}
    model = steps(many, long, deliver=["All parts."])
    model.disable_streaming = True  # in small pieces, twenty long results take their time
    agent = Agent(model, storage="memory:", settings=Settings(confirm="never"))
    assert (await agent.start("go")).status == "completed"
    assert len(model.requests[-1].text) < 50_000
    assert all(f">\npart {n} " in model.requests[-1].text for n in range(1, 21))
