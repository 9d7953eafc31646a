"""A step says that the whole task is done; with approvals `each`, only a person lets go what a person approved."""

from typing import Any

import pytest

from donewhen.testing import finish_task
from tests.kit.flows import FREE, play, steps
from tests.kit.runs import said

PLAN = ["find it", "write it", "send it"]
EARLY = finish_task("found", "s1.result", reason="nothing else is needed")
REST = {"s2": [said("s2")], "s3": [said("s3")]}
ASKED: dict[str, Any] = {"confirm": "always", "approvals": "each"}


async def test_a_person_is_asked_before_approved_steps_are_left_out() -> None:
    """C04, X04: the question names what would be left out; the answer stands in the receipt."""
    model = steps(PLAN, {"s1": [EARLY]})
    flow = await play(model, settings=ASKED, answers=["approve", "leave it out"])
    model.assert_exhausted()
    asked = flow.pauses[1]
    assert asked["question"] == (
        "s1 says that the goal is reached: nothing else is needed\n\n"
        "Go on with the rest of the plan, or leave it out?\n\n- s2: write it\n- s3: send it"
    )
    assert asked["options"] == ["go on", "leave it out"]
    assert (flow.status, flow.run.outcome and flow.run.outcome["code"]) == ("partial", "finished_early")
    row = (flow.run.receipt or {})["approvals"][-1]
    assert (row["kind"], row["text"], row["by"]) == ("question", "leave it out", "user")


@pytest.mark.parametrize("answer", ["no", "yes", "whatever you think", {"type": "reject"}])
async def test_neither_is_guessed(answer: Any) -> None:
    """C09, F13: a "no" neither drops the rest nor starts it; the question stays."""
    model = steps(PLAN, {"s1": [EARLY]}, deliver=[])
    flow = await play(model, settings=ASKED, answers=["approve", answer])
    assert (flow.status, bool(flow.run.problem)) == ("waiting", True)


@pytest.mark.parametrize(
    ("answers", "settings"),
    [
        *(([word], {}) for word in ("go on", "1", "weitermachen", "继续")),
        *(([], {"on_question": policy, "default_answer": "leave it out"}) for policy in ("default", "assume", "abort")),
        ([], {"limits": {"questions": 0}}),
    ],
    ids=str,
)
async def test_the_approved_plan_goes_on(answers: list[str], settings: Any) -> None:
    """C04, D03: at a person's word, where nobody answers, and where nobody can be asked: no policy lets go of it."""
    model = steps(PLAN, {"s1": [EARLY], **REST})
    flow = await play(model, settings={**ASKED, **settings}, answers=["approve", *answers])
    model.assert_exhausted()
    assert (flow.status, len(flow.pauses)) == ("answered", 1 + len(answers))
    assert any("nobody can be asked" in event["text"] for event in flow.told("note")) == ("limits" in settings)


async def test_the_last_step_and_plans_nobody_approved_ask_nothing() -> None:
    """X04: to finish in the last step is simply to finish; with approvals by plan, the rest is skipped and said so."""
    last = steps(["find it"], {"s1": [EARLY]})
    assert (await play(last, settings=ASKED, answers=["approve"])).status == "answered"
    for settings, answers in ((FREE, []), ({"confirm": "always"}, ["approve"])):
        flow = await play(steps(PLAN, {"s1": [EARLY]}), settings=settings, answers=answers)
        assert [flow.step(id)["status"] for id in ("s1", "s2", "s3")] == ["done", "skipped", "skipped"]
        assert flow.status == "partial"
