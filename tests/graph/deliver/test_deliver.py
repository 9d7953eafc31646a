"""Delivering: one outcome, an answer from results and observations, and honest words where no model writes them."""

from typing import Any

import pytest

from donewhen import Agent, Executor, Limits, Models, Settings
from donewhen.state.errors import ModelError
from donewhen.testing import ScriptedModel, audit, call, finish_step, give_up, reply
from tests.kit.flows import FREE, Flow, one_step, play, steps

TWO = [{"content": "look", "tools": ["look"]}, {"content": "write", "tools": None}]
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
    "error": [ModelError("the key is wrong", code="auth")],
    "timeout": [TimeoutError()],
    "nothing": [""] * 3,
    "only a thought": ["<think>what to say?</think>"] * 3,
}


@pytest.mark.parametrize("kind", FAILING)
async def test_without_a_written_answer_code_writes_one(kind: str) -> None:
    """D02: if the call fails, or three replies hold no answer, a mechanical summary is delivered that counts only
    finished steps as finished."""
    model = half(*FAILING[kind])
    flow = await run(model, on_failure="deliver", model_retries=0)
    model.assert_exhausted()
    assert flow.status == "partial"
    assert "1 of 2 steps done." in flow.run.answer
    assert "- Done: look — three apples" in flow.run.answer
    assert "- Not done (failed): write — no paper" in flow.run.answer
    assert any("summary by the runtime" in note["text"] for note in flow.told("note"))
    assert "".join(e["text"] for e in flow.told("speech") if e["step"] is None) == flow.run.answer


PRINTED = ('{"action": "deliver", "text": "There it is."}', "There it is.")
WHOLE = [
    'Put this into the file:\n```json\n{"action": "answer", "text": "x"}\n```\nThen start it.',
    'The call was {"name": "send", "arguments": {"to": "b"}} and it worked.',
    '{"action": "deploy", "when": now}\nis what the file holds.',
]


@pytest.mark.parametrize(("written", "answer"), [PRINTED, *zip(WHOLE, WHOLE, strict=True)])
async def test_an_answer_printed_as_a_decision_is_unpacked_and_any_other_is_whole(written: str, answer: str) -> None:
    """D02, B6: models used to printing JSON print their answer so; no other answer is cut at an object in it."""
    rounds = {"s1": [finish_step("x", "s1.result")], "s2": [finish_step("y", "s2.result")]}
    flow = await run(steps(["a", "b"], rounds, deliver=[written]))
    assert flow.run.answer == answer
    assert "".join(e["text"] for e in flow.told("speech") if e["step"] is None) == answer


async def test_an_answer_that_is_too_long_is_never_cut_without_a_word() -> None:
    """D03: it goes back once; the next one is cut between two words, with a mark, and people are told how much, in
    their language."""
    long, done = "apple " * 10_000, {"s1": LOOKED, "s2": [finish_step("ok", "s2.result")]}
    model = steps(TWO, done, deliver=[long, "Three apples."])
    assert (await run(model, verification="grounded")).run.answer == "Three apples."
    assert "it has 59,999 characters, and at most 50,000 are delivered" in model.requests[-1].text
    flow = await run(steps(TWO, done, deliver=[long, long]), verification="grounded")
    assert flow.run.answer.endswith("apple apple […]")
    assert len(flow.run.answer) <= 50_010
    assert "The answer had 59,999 characters and was cut." in [event["text"] for event in flow.told("note")]
    german = {"profile": {"name": "Amt", "language": "de"}, "verification": "grounded"}
    flow = await run(steps(TWO, done, deliver=[long, long]), **german)
    assert "Die Antwort hatte 59999 Zeichen und wurde gekürzt." in [event["text"] for event in flow.told("note")]


async def test_an_answer_at_a_limit_is_audited_while_calls_are_left() -> None:
    """D03, V03, V07: of an exhausted run too, the answer says what of it is doubted, or that nobody audited it."""
    for limits, judge, said in (
        ({"rounds": 3}, [audit((1, "no", "no pear was cut"))] * 2, "Not shown: “The pear is cut.” — no pear was cut"),
        ({"model_calls": 5}, [], "Nobody audited this answer (the limit of model calls was reached)"),
    ):
        model = steps(TWO, {"s1": LOOKED, "s2": [call("look")]}, deliver=["The pear is cut."] * 2, judge=judge)
        flow = await run(model, limits=Limits(**limits), on_exhausted="deliver")
        assert flow.status == "exhausted"
        assert said in flow.run.answer


@pytest.mark.parametrize("key", ["output_tokens", "input_tokens", "cost_usd"])
async def test_a_limit_of_tokens_or_money_is_not_broken_for_words(key: str) -> None:
    """D03: when tokens or money are used up, no more are bought for the answer; code writes it."""
    done = reply("", [finish_step("three apples", "s1.1")], usage={"input_tokens": 9000, "output_tokens": 9000})
    model = steps(TWO, {"s1": [call("look"), done]}, deliver=[])
    limits = Limits(**{key: {"cost_usd": 0.005}.get(key, 8000)})
    prices = {"scripted": {"input": 0.3, "output": 0.3}}
    settings = Settings(confirm="never", limits=limits, on_exhausted="deliver")
    flow = await play(Models(model, prices=prices), [look], effects={"look": "read"}, settings=settings)
    model.assert_exhausted()
    assert flow.status == "exhausted"
    assert flow.run.answer.startswith("The budget is used up: ")
    assert "- Done: look — three apples" in flow.run.answer
    assert "Next would be: write" in flow.run.answer


async def test_an_outcome_is_never_overwritten() -> None:
    """D01: delivering again changes nothing, and asks no model."""
    model = half("Half.")
    agent = Agent(
        model, [look], storage="memory:", effects={"look": "read"}, settings={**FREE, "on_failure": "deliver"}
    )
    config: Any = {"configurable": {"thread_id": "t"}}
    outcome = (await agent.start("go", thread_id="t")).outcome
    await agent.graph.aupdate_state(config, {"language": "en"}, as_node="advance")
    assert (await agent.graph.aget_state(config)).next == ("deliver",)
    assert (await agent.graph.ainvoke(None, config))["outcome"] == outcome
    model.assert_exhausted()


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
    assert (await agent.start("go")).status == "answered"
    assert len(model.requests[-1].text) < 50_000
    assert all(f">\npart {n} " in model.requests[-1].text for n in range(1, 21))


@pytest.mark.parametrize("made_by", ["a tool", "an executor"])
async def test_what_may_have_happened_is_named_by_who_made_it(made_by: str) -> None:
    """Q85, D04: a tool's call with its arguments, even one named `brief`; a hand-over by its step."""

    def order(brief: str) -> str:
        """Order what the brief says."""
        raise RuntimeError("no answer")

    alone = made_by == "an executor"
    replies = [give_up("nobody answered")] if alone else [call("order", brief="milk"), give_up("nobody answered")]
    given: Any = {"executors": {"order": Executor("orders", work=order)}} if alone else {"tools": [order]}
    model = one_step(replies, **({"executor": "order"} if alone else {"tools": ["order"]}))
    flow = await play(model, settings={**FREE, "on_failure": "deliver"}, **given)
    (row,) = flow.run.receipt["effects"]
    assert (row["unknown"], row.get("delegated", False)) == (True, alone)
    named = "order (s1.1)" if alone else 'order(brief="milk")'
    assert named in str(flow.run.answer)
