"""The goal has a `done_when` of its own: what the user holds in hand is proven when the answer is delivered (D06)."""

import json
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from donewhen.state.errors import ModelError
from donewhen.testing import ScriptedModel, audit, call, criterion, finish_step, finish_task, submit_plan
from tests.kit.flows import FREE, play, requests, steps
from tests.kit.pauses import message_text, payload

TWO = [{"content": "look", "done_when": ["it was seen"]}, {"content": "say it", "tools": []}]
GOAL = ["the time in Tokyo is stated"]


def clock() -> str:
    """The time in Tokyo."""
    return "14:05 in Asia/Tokyo"


def planned(*deliver: Any, done_when: Any = GOAL, judge: Any = None, **rounds: Any) -> Any:
    replies = {
        "s1": [call("clock"), finish_step("seen", ("s1.1", "Asia/Tokyo"))],
        "s2": [finish_step("said", "s2.result")],
    }
    roles = {"triage": [submit_plan(TWO, done_when=done_when)], **({"judge": judge} if judge else {})}
    return steps([], {**replies, **rounds}, deliver=list(deliver), **roles)


def delivered(text: str, *evidence: Any, met: bool = True) -> Any:
    return call("deliver", text=text, goal_check=[criterion(1, *evidence, met=met)])


async def test_the_goal_is_proven_in_the_call_that_writes_the_answer() -> None:
    """D06, B3: no further call of a model; the receipt has the goal's own criteria with their evidence."""
    model = planned(delivered("It is 14:05 in Tokyo.", ("s1.1", "14:05")))
    flow = await play(model, [clock], effects={"clock": "read"})
    model.assert_exhausted()
    delivering = next(request for request in model.requests if request.role == "deliver")
    assert "[s1.1] Asia/Tokyo" in delivering.text, "what it is asked to cite"
    assert (flow.status, flow.run.answer) == ("completed", "It is 14:05 in Tokyo.")
    (row,) = (flow.run.receipt or {})["criteria"]
    assert (row["text"], row["verdict"], row["evidence"]) == (
        GOAL[0],
        "cited",
        [{"observation": "s1.1", "quote": "14:05"}],
    )
    assert flow.run.spent["model_calls"] == 6


async def test_an_answer_that_proves_nothing_is_sent_back_once() -> None:
    """D06: one correction; what was said of the first answer is taken back."""
    good = delivered("It is 14:05.", ("s1.1", "14:05"))
    model = planned(delivered("It is noon.", ("s1.1", "12:00")), good)
    flow = await play(model, [clock], effects={"clock": "read"})
    model.assert_exhausted()
    assert (flow.status, flow.run.answer) == ("completed", "It is 14:05.")
    assert "its goal_check does not hold" in model.requests[-1].text


async def test_an_answer_is_proven_by_its_own_goal_check() -> None:
    """D06: what was cited for the answer that was sent back proves nothing of the next one, which cites nothing."""
    first, second = delivered("It is 14:05 on a Friday.", ("s1.1", "14:05")), call("deliver", text="I cannot say.")
    model = planned(first, second, judge=[audit((1, "no", "no day was seen")), audit()])
    flow = await play(model, [clock], effects={"clock": "read"})
    assert (flow.status, flow.run.receipt["criteria"][0]["verdict"]) == ("partial", "unverified")


async def test_what_was_read_before_a_change_can_be_cited_as_it_was() -> None:
    """D06, H4, V06: the brief marks it, `deliver` takes `before`; what still stands there is read again and counts."""
    content = {"a": "v1\nkept"}

    def read(path: str) -> str:
        """Read a file."""
        return content[path]

    def write(path: str, text: str) -> str:
        """Write a file."""
        content[path] = text
        return "written"

    tools = [
        StructuredTool.from_function(each, metadata={"effect": effect, "targets": ["path"]})
        for each, effect in ((read, "read"), (write, "write"))
    ]
    plan = [{"content": "read a", "tools": ["read"]}, {"content": "write a", "tools": ["write"]}]
    work = {
        "s1": [call("read", path="a"), finish_step("v1", ("s1.1", "v1"))],
        "s2": [call("write", path="a", text="v2\nkept"), finish_step("v2", ("s2.1", "v2"))],
    }
    was = {"observation": "s1.1", "quote": "v1", "before": True}
    proof = [{"criterion": 1, "met": True, "evidence": [was]}, criterion(2, ("s1.1", "kept"))]
    planned = submit_plan(plan, done_when=["the old version is named", "the rest is kept"])
    model = steps([], work, triage=[planned], deliver=[call("deliver", text="It was v1.", goal_check=proof)])
    flow = await play(model, tools, settings=FREE)
    model.assert_exhausted()
    assert (flow.status, [entry["id"] for entry in flow.journal][-1]) == ("completed", "goal.1")
    asked = model.requests[-1]
    assert "[s1.1, as it was before a change] v1" in asked.text
    assert "before" in json.dumps(asked.tools)


async def test_an_unproven_answer_is_never_shown_without_its_notes() -> None:
    """Q71, D01, D06: also where the model that should deliver it again cannot be reached."""

    def unreachable(*_: Any) -> Any:
        raise ModelError("401 invalid api key")

    bad = delivered("It is noon.", met=False)
    texts = [
        (await play(planned(bad, again), [clock], effects={"clock": "read"})).run.answer for again in (bad, unreachable)
    ]
    assert texts[0] == texts[1] != "It is noon."
    assert texts[0].startswith("It is noon.\n")


async def test_a_check_of_the_goal_is_run_by_the_runtime() -> None:
    """D06: its observation is `goal.1`; the model's word plays no part."""
    check = {"tool": "clock", "arguments": {}, "expect": {"contains": "Tokyo"}}
    model = planned(call("deliver", text="It is 14:05."), done_when=[{"text": "the clock runs", "check": check}])
    flow = await play(model, [clock], effects={"clock": "read"})
    assert flow.status == "completed"
    assert (flow.run.receipt or {})["criteria"][0]["evidence"][0]["observation"] == "goal.1"
    assert flow.journal[-1]["id"] == "goal.1"


async def test_a_task_finished_early_is_completed_if_the_goal_is_proven() -> None:
    """Q9, X04: the steps left are skipped and said so; what the user wanted is there."""
    early = [call("clock"), finish_task("14:05", ("s1.1", "14:05"), reason="that is all")]
    model = planned(delivered("It is 14:05.", ("s1.1", "14:05")), s1=early, s2=[])
    flow = await play(model, [clock], effects={"clock": "read"})
    assert flow.status == "completed"
    assert "say it" in flow.run.answer


async def test_a_plan_of_one_step_proves_the_goal_in_it() -> None:
    """D06: its criteria are the step's; delivery costs no call."""
    plan = submit_plan([{"content": "look"}], done_when=GOAL)
    model = steps([], {"s1": [call("clock"), finish_step("14:05", ("s1.1", "14:05"))]}, triage=[plan], deliver=[])
    flow = await play(model, [clock], effects={"clock": "read"})
    model.assert_exhausted()
    assert flow.status == "completed"
    assert [row["text"] for row in (flow.run.receipt or {})["steps"][0]["criteria"]] == GOAL


async def test_a_person_sees_and_edits_the_goal_s_criteria() -> None:
    """D06, C01, C03: they stand above the steps, in the text that is shown and read back."""
    check = {"tool": "clock", "arguments": {}, "expect": "ok"}
    criteria = ["the time is stated", {"text": "it is right", "check": check}]
    model = planned(call("deliver", text="It is 14:05."), done_when=criteria)
    shown = lambda pause: payload(pause)["action_requests"][0]["args"]["plan"]  # noqa: E731
    edit = lambda pause: {"plan": shown(pause).replace("- the time is stated\n", "")}  # noqa: E731
    flow = await play(model, [clock], effects={"clock": "read"}, settings={}, answers=[edit])
    text = message_text(flow.pauses[0])
    assert "- done when: the time is stated\n- done when: it is right (checked automatically)\n" in text
    assert [row["text"] for row in (flow.run.receipt or {})["criteria"]] == ["it is right"]


def look() -> str:
    """Look."""
    return "3 orders"


JOINED: Any = [
    {"content": "count the north", "tools": ["look"], "depends_on": []},
    {"content": "count the south", "tools": ["look"], "depends_on": []},
    {"content": "tell both", "tools": [], "done_when": ["Both counts are told"]},
]
BOTH = "3 orders each."


@pytest.mark.parametrize("more", [None, ["both counts are told"], ["both counts are told", "their sum is told"]])
async def test_a_last_step_that_words_what_the_others_did_is_the_answer(more: list[str] | None) -> None:
    """Q76, D05, D06: it is audited as the answer of the run, a doubt goes back to it, and no model words it again.
    Where the goal demands more than the step, a delivery proves it.
    """
    seen = [{"observation": f"s{n}.1", "quote": "3 orders"} for n in (1, 2)]
    items = [{"criterion": n, "met": True, "evidence": seen} for n in range(1, 1 + len(more or [1]))]
    own = [finish_step(text, goal_check=items[:1]) for text in ("4 orders each.", BOTH)]
    found = {f"s{n}": [call("look"), finish_step("3", (f"s{n}.1", "3 orders"))] for n in (1, 2)}
    demands = len(more or ()) > 1
    roles: Any = {
        "triage": [submit_plan(JOINED, **({"done_when": more} if more else {}))],
        "execute": {**found, "s3": own[1:] if demands else own},
        "judge": [audit()] if demands else [audit((1, "contradicted", "there are 3")), audit()],
    }
    if demands:
        roles["deliver"] = [call("deliver", text=BOTH, goal_check=items)]
    model = ScriptedModel(roles=roles)
    flow = await play(model, [look], effects={"look": "read"}, settings=FREE)
    model.assert_exhausted()
    assert (flow.status, flow.run.answer) == ("completed", BOTH)
    assert [row["verdict"] for row in flow.run.receipt["criteria"]] == ["cited"] * len(more or ())
    assert ("delivered to the user as the answer" in requests(model, "s3")[0].text) == (not demands)
    audited = [request.text for request in model.requests if request.role == "judge"]
    assert all("s1 (done)" in text and "s3 (done)" in text and "3 orders" in text for text in audited)
    spoken = [event for event in flow.told("speech") if event.get("answer")]
    assert "".join(event["text"] for event in spoken if event["id"] == spoken[-1]["id"]) == BOTH
