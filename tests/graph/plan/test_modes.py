"""How much is made of a request: an answer, one step or a plan; who chose it, and one step that becomes a plan."""

from typing import Any

import pytest

from donewhen import Limits, Settings
from donewhen.testing import ScriptedModel, answer, call, decline, finish_step, give_up, observed, submit_plan
from tests.kit.flows import Flow, play, requests, steps, unfenced


def look(x: str = "") -> str:
    """Look at something."""
    return f"seen {x}"


def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


TOOLS = [look, send]
EFFECTS = {"look": "read", "send": "write"}
ONE = {"content": "look around", "tools": ["look"]}


def modes(flow: Flow) -> list[tuple[str, str]]:
    """What was chosen, by whom: the same in the receipt and as events."""
    assert flow.run.receipt is not None
    rows = flow.run.receipt["modes"]
    told = [{key: event[key] for key in ("mode", "by", "reason")} for event in flow.told("mode")]
    assert told == rows
    return [(row["mode"], row["by"]) for row in rows]


async def test_triage_chooses_and_says_why() -> None:
    """P21, M7: an answer, one step or a plan; with the planner's own reason, else with what the choice shows."""
    cited: Any = {"evidence": [{"observation": "p.1"}]}
    model = ScriptedModel(roles={"triage": [call("look", x="a"), call("answer", text="It is a.", **cited)]})
    flow = await play(model, TOOLS, effects=EFFECTS)
    assert modes(flow) == [("answer", "triage")]
    assert flow.run.receipt is not None
    assert flow.run.receipt["modes"][0]["reason"] == "what was read answers it: p.1"
    one = steps([ONE], {"s1": [call("look"), finish_step("x", "s1.1")]})
    assert modes(await play(one, TOOLS, effects=EFFECTS)) == [("step", "triage")]
    said = submit_plan(["a", "b"], reason="two parts that\nhave nothing in common")
    two = steps([], {id: [finish_step(id, f"{id}.result")] for id in ("s1", "s2")}, triage=[said])
    flow = await play(two)
    assert modes(flow) == [("plan", "triage")]
    assert flow.told("mode")[0]["reason"] == "two parts that have nothing in common"


FORCED = [
    ("answer", submit_plan(["a"]), answer("No."), "submit_plan is not legal here", "no plan"),
    ("step", submit_plan(["a", "b"]), submit_plan(["a"]), "at most 1 are allowed", "exactly one step"),
    ("plan", answer("Hi."), submit_plan(["a"]), "answer is not legal here", "wants a plan"),
]


@pytest.mark.parametrize(("mode", "wrong", "right", "correction", "told"), FORCED, ids=[row[0] for row in FORCED])
async def test_settings_force_a_mode(mode: Any, wrong: Any, right: Any, correction: str, told: str) -> None:
    """P21: `Settings.mode` leaves the planner no choice: it is told, offered nothing else, and corrected."""
    model = steps([], {"s1": [finish_step("x", "s1.result")]} if mode != "answer" else {}, triage=[wrong, right])
    flow = await play(model, settings=Settings(mode=mode, confirm="never"))
    model.assert_exhausted()
    assert flow.status == "answered"
    assert modes(flow)[0][1] == "settings"
    first, second = [request for request in model.requests if request.role == "triage"]
    assert told in first.text.split("<mode>")[1].split("</mode>")[0]
    assert correction in second.text
    gone = "submit_plan" if mode == "answer" else "answer"
    assert gone not in first.tool_names
    assert "decline" in first.tool_names


def promoted(first: list[Any], *plans: Any, **execute: Any) -> ScriptedModel:
    return steps([ONE], {"s1": first, **execute}, draft=list(plans))


THEN = submit_plan([{"id": "s2", "content": "look there"}, {"id": "s3", "content": "tell", "depends_on": ["s2"]}])
WORK: Any = {"s2": [finish_step("there", "s1.1")], "s3": [finish_step("told", "s3.result")]}


async def test_one_step_that_takes_too_many_rounds_becomes_a_plan() -> None:
    """P21, M7, P17: after k rounds the run gets a plan; its planner and its steps have what was seen so far."""
    then = submit_plan([{"id": "s2", "content": "look there", "done_when": ["b was seen"]}, "tell"])
    model = promoted([call("look", x="a"), call("look", x="b")], then,
                     s2=[finish_step("there", "s1.2")], s3=[finish_step("told", "s3.result")])  # fmt: skip
    flow = await play(model, TOOLS, effects=EFFECTS, settings=Settings(promote_rounds=2, confirm="never"))
    model.assert_exhausted()
    assert flow.status == "completed"
    assert modes(flow) == [("step", "triage"), ("plan", "promotion")]
    assert "not done after 2 rounds" in flow.told("mode")[1]["reason"]
    (planner,) = [request for request in model.requests if request.role == "plan"]
    assert "make a plan of several steps" in planner.text
    assert '[s1.2] look {"x": "b"} ok: seen b' in unfenced(planner.text)
    assert '[s1.2] look {"x": "b"} ok: seen b' in unfenced(requests(model, "s2")[0].text)
    assert flow.step("s2")["verdicts"][0]["evidence"][0]["observation"] == "s1.2"
    assert flow.run.spent["replans"] == 1


async def test_a_plan_of_several_steps_is_not_promoted() -> None:
    """P21: only a run of one step becomes a plan; nor one whose mode the settings say, nor one told never to."""
    looks = [call("look", x="a"), call("look", x="b"), lambda m, _: finish_step("x", observed(m)[-1])]
    planned = [ONE, {"content": "tell", "tools": []}]
    two = steps(planned, {"s1": list(looks), "s2": [finish_step("y", "s2.result")]})
    assert modes(await play(two, TOOLS, effects=EFFECTS, settings=Settings(promote_rounds=1, confirm="never"))) == [
        ("plan", "triage")
    ]
    for settings in (Settings(mode="step", promote_rounds=1), Settings(step_limits=Limits(rounds=40))):
        free = settings.model_copy(update={"confirm": "never"})
        one = await play(steps([ONE], {"s1": list(looks)}), TOOLS, effects=EFFECTS, settings=free)
        assert one.status == "completed"
        assert len(modes(one)) == 1


@pytest.mark.parametrize(("limits", "modes_of_it"), [({}, 2), ({"step_limits": {"rounds": 30}}, 1)])
async def test_one_step_has_rounds_enough_by_default(limits: Any, modes_of_it: int) -> None:
    """P21: 25 rounds, unless somebody said how many a step may take."""
    looks = [call("look", x=str(number)) for number in range(25 if not limits else 26)]
    model = promoted([*looks, *([finish_step("x", "s1.1")] if limits else [])], *([] if limits else [THEN]), **WORK)
    flow = await play(model, TOOLS, effects=EFFECTS, settings={"confirm": "never", **limits})
    assert (flow.status, len(modes(flow))) == ("completed", modes_of_it)


async def test_one_step_that_fails_twice_becomes_a_plan() -> None:
    """P21: the first failure is planned anew, the second gets a plan of several steps."""
    again = submit_plan([{"id": "s2", "content": "look otherwise"}])
    last = submit_plan([{"id": "s3", "content": "a"}, {"id": "s4", "content": "b"}])
    finish = {id: [finish_step(id, f"{id}.result")] for id in ("s3", "s4")}
    model = promoted([give_up("no")], again, last, s2=[give_up("no again")], **finish)
    flow = await play(model, TOOLS, effects=EFFECTS)
    model.assert_exhausted()
    assert modes(flow) == [("step", "triage"), ("plan", "promotion")]
    assert "failed twice: no again" in flow.told("mode")[1]["reason"]
    first, second = [request for request in model.requests if request.role == "plan"]
    assert "<mode>" not in first.text
    assert "<mode>" in second.text
    assert flow.status == "answered"


@pytest.mark.parametrize("confirm", ["writes", "complex"])
async def test_a_write_that_nobody_was_shown_makes_a_plan_to_approve(confirm: Any) -> None:
    """P21, C04: what started without a person wants a write: a plan with it is shown first."""
    then = submit_plan(
        [{"id": "s2", "content": "send it to ann", "tools": ["send"], "done_when": ["sent"]}], complexity="simple"
    )
    work = [call("send", to="ann"), finish_step("sent to ann", "s2.1")]
    model = promoted([[call("look", x="a"), call("send", to="ann")]], then, s2=work)
    flow = await play(model, TOOLS, effects=EFFECTS, settings=Settings(confirm=confirm), answers=["approve"])
    model.assert_exhausted()
    assert [pause["kind"] for pause in flow.pauses] == ["plan"]
    assert modes(flow) == [("step", "triage"), ("plan", "promotion")]
    assert 'send({"to":"ann"})' in next(request for request in model.requests if request.role == "plan").text
    assert [entry["id"] for entry in flow.journal if entry["tool"] == "send"] == ["s2.1"]
    assert flow.status == "completed"


async def test_a_promotion_that_brings_no_plan_ends_honestly() -> None:
    """P21, P15: the planner of the promotion declines: what was seen stays, nothing is said to be done."""
    model = promoted([call("look", x="a")], decline("no way", "Say what to look for."))
    flow = await play(model, TOOLS, effects=EFFECTS, settings=Settings(promote_rounds=1, confirm="never"))
    assert (flow.status, flow.run.answer.splitlines()[0]) == ("failed", "Say what to look for.")


async def test_few_rounds_left_are_said() -> None:
    """P12, P20: whoever looks too long is told how many rounds are left to decide."""
    model = ScriptedModel(roles={"triage": [call("look", x="a"), call("look", x="b"), answer("a and b")]})
    flow = await play(model, TOOLS, effects=EFFECTS, settings=Settings(plan_rounds=3))
    assert flow.status == "completed"
    assert ["Rounds left to decide" in request.text for request in model.requests] == [False, True, True]
