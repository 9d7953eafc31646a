"""Replanning: what the planner learns about the failure, what stays, what is asked, and how often it is tried."""

import json
import re
from typing import Any

import pytest

from donewhen import Settings
from donewhen.state.errors import ModelError
from donewhen.testing import ScriptedModel, call, decline, finish_step, give_up, observed, submit_plan
from tests.flows import play, requests, steps, unfenced


def look(x: str = "") -> str:
    """Look at something."""
    return f"seen {x}"


def fail() -> str:
    """Fail."""
    raise ValueError("the disk is full")


TOOLS = [look, fail]
EFFECTS = {"look": "read", "fail": "read"}
FIRST = [{"content": "look", "tools": ["look"]}, {"content": "write", "depends_on": ["s1"]}]
LOOKED = [call("look", x="there"), finish_step("it is there", "s1.1")]


def replanned(*plans: Any, s2: Any = (), **execute: Any) -> ScriptedModel:
    stuck = [call("fail"), give_up("no disk")]
    return steps(FIRST, {"s1": LOOKED, "s2": [*stuck, *s2], **execute}, draft=list(plans))


async def test_a_replan_sees_the_failure_and_its_evidence() -> None:
    """P17: replanning takes the failure and the evidence as input, and the finished steps with their results."""
    model = replanned(submit_plan([{"content": "print it", "id": "s3", "depends_on": ["s1"]}]), s3=[
        finish_step("printed", "s3.result")])  # fmt: skip
    flow = await play(model, TOOLS, effects=EFFECTS)
    model.assert_exhausted()
    (request,) = requests_of_planner(model)
    failure = re.findall(r"<failure>\n(.*)\n</failure>", unfenced(request.text), re.DOTALL)[0]
    assert "s2" in failure
    assert "no disk" in failure
    assert "the disk is full" in failure
    finished = json.loads(re.findall(r"<finished>\n(.*)\n</finished>", unfenced(request.text))[0])
    assert finished == {"s1": {"content": "look", "result": "it is there"}}
    assert flow.status == "completed"
    assert flow.run.outcome is not None
    assert "no disk" not in flow.run.outcome["reason"]


def requests_of_planner(model: ScriptedModel) -> list[Any]:
    return [request for request in model.requests if request.role == "plan"]


async def test_nothing_finished_runs_again() -> None:
    """P17: finished steps are kept by id with their results, in front; new steps get ids of their own."""
    plan = submit_plan(["tidy up", {"content": "print it", "id": "s4", "depends_on": ["s1"]}])
    said = {id: [finish_step(id, f"{id}.result")] for id in ("s3", "s4")}
    model = replanned(plan, **said)
    flow = await play(model, TOOLS, effects=EFFECTS)
    model.assert_exhausted()
    assert flow.run.plan is not None
    assert [step["id"] for step in flow.run.plan["steps"]] == ["s1", "s3", "s4"]
    assert flow.step("s1")["result"] == "it is there"
    assert len(requests(model, "s1")) == 2
    assert flow.run.spent["replans"] == 1


async def test_finished_steps_named_again_stay_as_they_are() -> None:
    """P17: a replan that lists a finished step keeps it; one that gives its id to other work is corrected."""
    stolen = submit_plan([{"content": "format the disk", "id": "s1"}])
    kept = submit_plan([{"content": "look", "id": "s1"}, {"content": "print", "id": "s3", "depends_on": ["s1"]}])
    model = replanned(stolen, kept, s3=[finish_step("printed", "s3.result")])
    flow = await play(model, TOOLS, effects=EFFECTS)
    model.assert_exhausted()
    assert "'s1' is the id of a finished step" in requests_of_planner(model)[1].text
    assert flow.run.plan is not None
    assert [(s["id"], s["content"]) for s in flow.run.plan["steps"]] == [("s1", "look"), ("s3", "print")]
    assert flow.run.plan["steps"][0]["tools"] == ["look"]


async def test_a_step_planned_again_under_its_id_starts_anew() -> None:
    """P17: the failed step's id may be used again; its observations count on, so no id is ever used twice."""
    policy = lambda messages, _: finish_step("done", observed(messages)[-1])  # noqa: E731
    again = submit_plan([{"content": "write differently", "id": "s2", "tools": ["look"]}])
    model = replanned(again, s2=[call("look", x="again"), policy])
    flow = await play(model, TOOLS, effects=EFFECTS)
    model.assert_exhausted()
    assert [e["id"] for e in flow.journal if e["step"] == "s2" and e["source"] == "tool"] == ["s2.1", "s2.2"]
    assert flow.status == "completed"


async def test_replanning_is_capped() -> None:
    """P17, X10: after so many replans the run ends with what it has, honestly."""
    again = lambda number: submit_plan([{"content": f"way {number}", "id": f"w{number}"}])  # noqa: E731
    model = replanned(again(1), again(2), w1=[give_up("no")], w2=[give_up("no again")])
    flow = await play(model, TOOLS, effects=EFFECTS)
    model.assert_exhausted()
    assert flow.run.spent["replans"] == 2
    assert flow.status == "partial"


REFUSALS = {
    "declined": [decline("no disk left", "I need more disk.")],
    "unusable": ["hm", "hm", "hm"],
    "error": [ModelError("the key is wrong", code="auth")],
}


@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_failed_replan_keeps_what_was_done(kind: str) -> None:
    """P17, D02: when no new plan comes out, the finished steps are still delivered, as a partial result."""
    model = steps(
        FIRST, {"s1": LOOKED, "s2": [give_up("no disk")]}, draft=REFUSALS[kind], deliver=lambda *_: "It is there."
    )
    flow = await play(model, TOOLS, effects=EFFECTS)
    assert flow.status == "partial"
    assert flow.run.receipt is not None
    assert [(row["id"], row["status"]) for row in flow.run.receipt["steps"]] == [("s1", "done"), ("s2", "failed")]
    assert "it is there" in flow.run.answer.lower()
    assert "write" in flow.run.answer
    if kind == "declined":
        assert flow.run.answer.startswith("I need more disk.")


async def test_only_the_difference_of_a_replan_asks() -> None:
    """C04, P17: a replan that adds a step waits for consent to the difference."""
    model = replanned(submit_plan([{"content": "print it", "id": "s3"}]), s3=[finish_step("printed", "s3.result")])
    flow = await play(model, TOOLS, effects=EFFECTS, settings=Settings(), answers=["approve", "approve"])
    model.assert_exhausted()
    assert [pause["kind"] for pause in flow.pauses] == ["plan", "plan"]
    assert flow.pauses[1]["changes"] == ["new step s3: print it", "step s2 is dropped: write"]
    assert flow.status == "completed"


async def test_a_refused_replan_is_not_what_is_fallen_back_on() -> None:
    """P04: after "no" to a new plan, a draft that fails does not bring it again; what was done is delivered."""
    model = replanned(submit_plan([{"content": "sell the disk", "id": "s3"}]), "hm", "hm", "hm")
    answers = ["approve", "reject: never sell it"]
    flow = await play(model, TOOLS, effects=EFFECTS, settings=Settings(), answers=answers)
    model.assert_exhausted()
    assert "never sell it" in requests_of_planner(model)[1].text
    assert flow.status == "partial"
    assert "sell the disk" not in flow.run.answer
