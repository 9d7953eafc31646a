"""How much is made of a request: an answer, one step or a plan; who chose it, and one step that becomes a plan."""

import re
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


LATER: Any = {"id": "s2", "content": "tell what was seen", "tools": [], "depends_on": ["s1"]}
TOLD: Any = {"s2": [finish_step("told", "s1.result")]}


async def test_a_step_that_takes_many_rounds_goes_on_and_the_plan_grows_behind_it() -> None:
    """Q74, P21, M7: after k rounds more is planned once; the step keeps its rounds and nothing of it is not done."""
    model = promoted(
        [call("look", x="a"), call("look", x="b"), finish_step("a, b", "s1.2")], submit_plan([LATER]), **TOLD
    )
    flow = await play(model, TOOLS, effects=EFFECTS, settings=Settings(promote_rounds=2, confirm="never"))
    model.assert_exhausted()
    assert flow.status == "completed"
    assert modes(flow) == [("step", "triage"), ("plan", "promotion")]
    assert "not done after 2 rounds" in flow.told("mode")[1]["reason"]
    (planner,) = [request for request in model.requests if request.role == "plan"]
    assert "s1: not done after 2 rounds" in planner.text
    assert '[s1.2] look {"x": "b"} ok: seen b' in unfenced(planner.text)
    assert len(requests(model, "s1")[2].messages) == len(requests(model, "s1")[1].messages) + 2
    assert (flow.step("s1")["attempt"], flow.step("s1")["rounds"]) == (1, 3)
    assert [event["step"] for event in flow.told("step_finished")] == ["s1", "s2"]
    assert "Not done" not in flow.run.answer
    assert flow.run.spent["replans"] == 1


GROWN: list[tuple[str, list[Any], list[Any]]] = [
    ("as it is", [submit_plan([{"id": "s1"}])], []),
    ("no more steps", [decline("one step is enough", "Nothing more.")], []),
    ("no usable plan", [submit_plan([{**LATER, "depends_on": ["s9"]}])] * 3, []),
    ("approved", [submit_plan([LATER])], ["approve"]),
    ("not so", [submit_plan([LATER]), submit_plan([{"id": "s1"}])], ["Go on without it"]),
]


@pytest.mark.parametrize(("_", "plans", "answers"), GROWN, ids=[row[0] for row in GROWN])
async def test_what_is_approved_is_not_approved_again(_: str, plans: list[Any], answers: list[Any]) -> None:
    """Q74, C04: the step goes on whatever becomes of the larger plan; only steps that are new are asked about, once."""
    model = promoted(
        [call("look", x="a"), finish_step("a", "s1.1")], *plans, **(TOLD if answers == ["approve"] else {})
    )
    settings = Settings(promote_rounds=1)
    flow = await play(model, TOOLS, effects=EFFECTS, settings=settings, answers=["approve", *answers])
    model.assert_exhausted()
    assert flow.status == "completed"
    assert [pause["kind"] for pause in flow.pauses] == ["plan", *("plan" for _ in answers)]
    for pause in flow.pauses[1:]:
        assert len(pause["changes"]) == 1
        assert "tell what was seen" in pause["changes"][0]
    assert flow.step("s1")["attempt"] == 1
    assert "Not done" not in flow.run.answer


async def test_a_run_without_people_does_not_stop_for_a_larger_plan() -> None:
    """Q74: whoever answers no questions is not asked about a larger plan; the approved step goes on."""
    model = promoted([call("look", x="a"), finish_step("a", "s1.1")], submit_plan([LATER]))
    settings = Settings(promote_rounds=1, on_question="default")
    flow = await play(model, TOOLS, effects=EFFECTS, settings=settings, answers=["approve"])
    assert (flow.status, len(flow.pauses)) == ("completed", 1)
    assert modes(flow) == [("step", "triage")]


async def test_a_step_is_taken_over_from_where_it_is() -> None:
    """Q74, P17: the steps that take over cite what was seen; what they do in its place is not reported as not done."""
    then = submit_plan([{"id": "s2", "content": "look there", "done_when": ["b was seen"], "replaces": ["s1"]}])
    model = promoted([call("look", x="a"), call("look", x="b")], then, s2=[finish_step("there", "s1.2")])
    flow = await play(model, TOOLS, effects=EFFECTS, settings=Settings(promote_rounds=2, confirm="never"))
    model.assert_exhausted()
    assert flow.status == "completed"
    assert '[s1.2] look {"x": "b"} ok: seen b' in unfenced(requests(model, "s2")[0].text)
    assert flow.step("s2")["verdicts"][0]["evidence"][0]["observation"] == "s1.2"
    assert "Not done" not in flow.run.answer


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


@pytest.mark.parametrize(("limits", "planned"), [({}, 1), ({"step_limits": {"rounds": 40}}, 0)])
async def test_one_step_has_rounds_enough_by_default(limits: Any, planned: int) -> None:
    """P21, Q74: 25 rounds, unless somebody said how many a step may take; the rounds left that it is told are true."""
    looks = [call("look", x=str(number)) for number in range(26)]
    plans = [submit_plan([{"id": "s1"}])][:planned]
    model = promoted([*looks, finish_step("x", "s1.1")], *plans)
    flow = await play(model, TOOLS, effects=EFFECTS, settings={"confirm": "never", **limits})
    model.assert_exhausted()
    assert (flow.status, len(modes(flow))) == ("completed", 1)
    told = [int(left) for request in requests(model, "s1") for left in re.findall(r"included: (\d+)", request.text)]
    assert told == [20]
    assert "included: 20" in requests(model, "s1")[20].text


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


SEND: Any = {"content": "send it to ann", "tools": ["send"], "done_when": ["sent"]}
WANTED: list[tuple[str, Any, list[Any], Any, list[str], str]] = [
    (
        "its own call",
        {"id": "s1", "tools": ["look", "send"]},
        [finish_step("sent", "s1.2")],
        {},
        ["plan", "tool"],
        "s1.2",
    ),
    ("a later step", {"id": "s2", **SEND}, [finish_step("seen", "s1.1")], {"s2": True}, ["plan"], "s2.1"),
    ("another step", {"id": "s2", **SEND, "replaces": ["s1"]}, [], {"s2": True}, ["plan"], "s2.1"),
    ("as it is", {"id": "s1"}, [finish_step("sent", "s1.2")], {}, ["tool"], "s1.2"),
]


@pytest.mark.parametrize("confirm", ["writes", "complex"])
@pytest.mark.parametrize(("_", "step", "rest", "then", "asked", "made"), WANTED, ids=[row[0] for row in WANTED])
async def test_a_write_that_nobody_was_shown_makes_a_plan_to_approve(
    confirm: Any, _: str, step: Any, rest: list[Any], then: Any, asked: list[str], made: str
) -> None:
    """P21, C04, Q74: a step that started without a person wants a write: a plan with it is shown first, and the step
    goes on with its call, or leaves it to the step that was planned for it. It is made once.
    """
    then = then and {"s2": [call("send", to="ann"), finish_step("sent to ann", "s2.1")]}
    plan = submit_plan([step], complexity="simple")
    model = promoted([[call("look", x="a"), call("send", to="ann")], *rest], plan, **then)
    flow = await play(model, TOOLS, effects=EFFECTS, settings=Settings(confirm=confirm), answers=["approve"] * 2)
    model.assert_exhausted()
    assert [pause["kind"] for pause in flow.pauses] == asked
    assert 'send({"to":"ann"})' in next(request for request in model.requests if request.role == "plan").text
    assert [entry["id"] for entry in flow.journal if entry["tool"] == "send" and entry["ok"]] == [made]
    assert (flow.status, "Not done" in flow.run.answer) == ("completed", False)


async def test_few_rounds_left_are_said() -> None:
    """P12, P20: whoever looks too long is told how many rounds are left to decide."""
    model = ScriptedModel(roles={"triage": [call("look", x="a"), call("look", x="b"), answer("a and b")]})
    flow = await play(model, TOOLS, effects=EFFECTS, settings=Settings(plan_rounds=3))
    assert flow.status == "completed"
    assert ["Rounds left to decide" in request.text for request in model.requests] == [False, True, True]
