"""Budgets of steps and runs: kept exactly, asked about, extended without losing or repeating anything."""

from typing import Any

import pytest

from donewhen.state.language.texts import amount_name
from donewhen.testing import ScriptedModel, answer, audit, call, criterion, finish_step, reply, submit_plan
from tests.kit.desk import Desk
from tests.kit.flows import one_step, play, requests, steps


def limited(**settings: Any) -> dict[str, Any]:
    return {"confirm": "never", "on_failure": "deliver", **settings}


THREE = [call("look", what="a"), call("send", to="Ann"), finish_step("ok", "s1.2")]


async def test_an_extended_step_goes_on_in_its_own_conversation() -> None:
    """X08, C02: nothing is repeated, nothing is forgotten, and the last round's effect counted."""
    desk, model = Desk(), one_step(THREE, tools=["look", "send"])
    flow = await play(model, desk.tools(), settings=limited(step_limits={"rounds": 2}), answers=["extend rounds 3"])
    model.assert_exhausted()
    assert flow.status == "completed"
    pause = flow.pauses[0]
    assert (pause["kind"], pause["step"], pause["exhausted"]) == ("budget", "s1", "rounds")
    assert desk.calls == ["look a", "send Ann"]
    kinds = [m.type for m in requests(model, "s1")[-1].messages]
    assert kinds == ["system", "human", "ai", "tool", "ai", "tool", "human"]
    assert flow.step("s1")["rounds"] == flow.run.spent["rounds"] == 3


@pytest.mark.parametrize("where", ["limits", "step_limits"])
async def test_the_question_says_what_an_open_step_has_changed_already(where: str) -> None:
    """X08, X24: of two writes one took effect and of one nobody knows; the question and the ending say so alike."""

    def pay(order: str) -> str:
        """Pay an order."""
        if order == "18":
            raise RuntimeError("line dropped")
        return "paid"

    model = one_step([call("pay", order="17"), call("pay", order="18")], tools=["pay"])
    flow = await play(
        model,
        [pay],
        effects={"pay": "write"},
        settings=limited(**{where: {"rounds": 2}}),
        answers=["stop"],
        goal="Pay 17 and 18",
    )
    for text in (flow.pauses[0]["question"], flow.run.answer):
        assert '  - Already done in it: pay(order="17")' in text
        assert '- It is not known whether this took effect: pay(order="18")' in text


@pytest.mark.parametrize("where", ["limits", "step_limits"])
async def test_an_extension_of_another_limit_says_that_it_lifts_nothing(where: str) -> None:
    """D03, C02, Q84: the person reads what is used up and what would help, and nothing was granted meanwhile."""
    desk, model = Desk(), one_step(THREE, tools=["look", "send"])
    answers = ["extend $5", "extend rounds 3"]
    flow = await play(model, desk.tools(), settings=limited(**{where: {"rounds": 2}}), answers=answers)
    model.assert_exhausted()
    assert flow.status == "completed"
    first, again = flow.pauses
    assert (again["id"], again["meter"]) == (first["id"], first["meter"])
    assert again["problem"].startswith("$5 more does not lift the limit that is reached (2 rounds used)")
    assert "“extend rounds 1”" in again["problem"]


@pytest.mark.parametrize(
    ("answer", "status", "code"), [("deliver", "exhausted", "out_of_budget"), ("stop", "exhausted", "stopped")]
)
async def test_an_exhausted_run_is_delivered_or_stopped_on_request(answer: str, status: str, code: str) -> None:
    """X08, X09, D03: what was achieved is said, what was not is never called done."""
    model = steps(
        ["one", "two"], {"s1": [finish_step("FIRST", "s1.result")], "s2": ["Hm."]}, deliver=["First is done."]
    )
    flow = await play(model, settings=limited(limits={"rounds": 2}), answers=[answer])
    assert (flow.status, flow.run.outcome and flow.run.outcome["code"]) == (status, code)
    assert [flow.step(id)["status"] for id in ("s1", "s2")] == ["done", "exhausted"]
    assert "Not done (exhausted): two" in flow.run.answer


async def test_an_exhausted_run_can_be_replanned_cheaper() -> None:
    """X08, P17: what is finished stays."""
    plan = [{"content": "one", "id": "s1"}, {"content": "two", "id": "s2"}]
    model = steps(
        plan,
        {"s1": [finish_step("FIRST", "s1.result")], "s2": ["Hm."], "s3": [finish_step("quick", "s3.result")]},
        plan=[submit_plan([{"content": "two, but quick", "id": "s3"}])],
    )
    settings = limited(step_limits={"rounds": 1})
    flow = await play(model, settings=settings, answers=["replan"])
    model.assert_exhausted()
    assert flow.step("s3")["status"] == "done"
    assert len([r for r in model.requests if r.step == "s1"]) == 1


async def test_the_effect_of_the_last_round_counts() -> None:
    """X08: exhaustion is decided on entry to a round, never by skipping what the last one decided."""
    desk, model = Desk(), one_step([call("send", to="Ann")], tools=["send"], deliver=[])
    settings = limited(step_limits={"rounds": 1}, on_exhausted="deliver")
    flow = await play(model, desk.tools(), settings=settings)
    assert (desk.calls, flow.step("s1")["status"], flow.journal[0]["ok"]) == (["send Ann"], "exhausted", True)
    last = one_step([finish_step("ok", "s1.result")])
    assert (await play(last, settings=settings)).status == "answered"


async def test_a_reply_with_more_calls_than_are_left_makes_those_it_may() -> None:
    """X08: and the others, frozen, when there is more; the model is not asked again."""
    desk = Desk()
    model = one_step([[call("look", what=n) for n in "abcde"], finish_step("ok", "s1.5")], tools=["look"])
    settings = limited(step_limits={"tool_calls": 2})
    flow = await play(model, desk.tools(), settings=settings, answers=["extend tool_calls 1", "extend 2"])
    model.assert_exhausted()
    assert flow.status == "completed"
    assert sorted(desk.calls) == [f"look {n}" for n in "abcde"]
    assert flow.step("s1")["rounds"] == 2
    assert [p["exhausted"] for p in flow.pauses] == ["tool_calls", "tool_calls"]


CHECKED = [
    {"text": w, "check": {"tool": "holds", "arguments": {"what": w}, "expect": "ok"}} for w in ("one", "two", "three")
]


async def test_a_proof_cut_off_by_the_budget_goes_on_where_it_stopped() -> None:
    """X08: no check is made twice, no round is used, nothing counts as refused."""
    desk = Desk()
    model = one_step([finish_step("ok", goal_check=[criterion(n, "x") for n in (1, 2, 3)])], done_when=CHECKED)
    settings = limited(limits={"rounds": 9, "tool_calls": 2})
    flow = await play(model, desk.tools(), settings=settings, answers=["extend 1"])
    model.assert_exhausted()
    assert flow.status == "completed"
    assert [pause["exhausted"] for pause in flow.pauses] == ["tool_calls"]
    assert desk.calls == ["holds one", "holds two", "holds three"]
    assert [e["id"] for e in flow.journal] == ["s1.1", "s1.2", "s1.3", "s1.result"]
    assert (flow.step("s1")["rounds"], flow.step("s1")["refused"]) == (1, 0)


async def test_a_judge_that_has_to_wait_for_budget_refuses_nothing() -> None:
    """V07, X08: each new call goes to the judge, who is then asked about the claim as it was."""
    work = {"s1": [call("look", what="a"), finish_step("it is green", ("s1.1", "green"))]}
    model = steps([{"content": "look"}, {"content": "rest", "tools": []}], {**work, "s2": []}, judge=[audit()])
    settings = {"verification": "judged", "limits": {"model_calls": 4}}
    answers = ["extend model_calls 1", "stop"]
    flow = await play(model, Desk().tools(), settings=limited(**settings), answers=answers)
    model.assert_exhausted()
    assert (flow.step("s1")["status"], flow.step("s1")["refused"]) == ("done", 0)
    assert [pause["done"] for pause in flow.pauses] == [[], ["s1"]]
    assert flow.told("note")[0]["text"] == "Nobody audited the result of step s1: the limit of model calls was reached"


GREEN = [call("look", what="a"), finish_step("it is green", ("s1.1", "green"))]
DEAR = [GREEN[0], reply("", [GREEN[1]], usage={"output_tokens": 9_000})]
CHECKED_GOAL: Any = [{"text": "it holds", "check": {"tool": "holds", "arguments": {"what": "one"}}}]
SAID = [finish_step("ok", "s2.result")]
AT_THE_END: dict[str, Any] = {
    "audit": ([{"content": "look"}], {"s1": DEAR}, {"output_tokens": 2_000}, {}),
    "audit of a written answer": (["look", "rest"], {"s1": GREEN, "s2": SAID}, {"model_calls": 5}, {}),
    "check of the goal": (
        ["look", "rest"],
        {"s1": GREEN, "s2": SAID},
        {"tool_calls": 1},
        {"done_when": CHECKED_GOAL, "verification": "grounded"},
    ),
}
"""The steps, their replies, the limit that leaves nothing to prove the answer, and other settings."""


@pytest.mark.parametrize("lacks", AT_THE_END)
@pytest.mark.parametrize("answers", [["extend"], ["deliver"], []], ids=["extended", "delivered", "unattended"])
async def test_finished_work_is_not_left_unproven_without_a_question(lacks: str, answers: list[str]) -> None:
    """X08, D03, D07: at the limit a person is asked before the proof; what is delivered without it says why."""
    planned, work, limits, more = AT_THE_END[lacks]
    model = steps(planned, work, judge=[audit()], deliver=[call("deliver", text="it is green")])
    settings = limited(limits=limits, on_exhausted="ask" if answers else "deliver", **more)
    flow = await play(model, Desk().tools(), settings=settings, answers=answers)
    assert len(flow.pauses) == len(answers)
    if answers:
        assert "All steps are done; only the answer is not checked yet." in flow.pauses[0]["question"]
        assert [option.split()[0] for option in flow.pauses[0]["options"]] == ["extend", "deliver", "stop"]
    if answers == ["extend"]:
        assert (flow.status, flow.run.answer) == ("completed", "it is green")
    else:
        assert (flow.status, flow.run.answer.splitlines()[0]) == ("partial", "it is green")
        assert f"the limit of {amount_name('en', next(iter(limits)))} was reached" in flow.run.answer


LOOKS = [call("look", what="b"), *SAID]
TWO_CHECKS: Any = {
    "done_when": [{"text": text, "check": CHECKED_GOAL[0]["check"]} for text in ("it holds", "it still holds")],
    "verification": "grounded",
}


@pytest.mark.parametrize(
    ("key", "limit", "rest", "more"),
    [
        ("model_calls", 3, SAID, {}),
        ("model_calls", 4, LOOKS, {}),
        ("model_calls", 4, LOOKS, {"judges": False}),
        ("tool_calls", 1, LOOKS, TWO_CHECKS),
    ],
    ids=["a guess", "known", "nobody judges", "checks of the goal"],
)
async def test_what_is_suggested_lasts_for_the_end(key: str, limit: int, rest: list[Any], more: Any) -> None:
    """X08, D03: who agrees to it is asked once, while the first step is at work and after it, and all of it is used:
    for the answer, its checks, and its audit if somebody judges."""
    model = steps(["look", "rest"], {"s1": GREEN, "s2": rest}, judge=[audit()])
    model.judges = more.get("judges", True)
    chosen = {name: value for name, value in more.items() if name != "judges"}
    settings = limited(limits={key: limit}, **chosen)
    flow = await play(model, Desk().tools(), settings=settings, answers=["extend", "extend"])
    assert (flow.status, [pause["id"] for pause in flow.pauses]) == ("completed", [f"budget.run.{key}.{limit}"])
    assert flow.run.spent[key] == limit + flow.pauses[0]["suggested"][key]


async def test_the_call_kept_for_the_end_may_be_the_judges() -> None:
    """X08, D03, D07: of one step, whose result is the answer; where none is left, nobody audited it, and it says so."""
    for limit in (4, 5):
        model = one_step([call("look", what="a"), finish_step("it is green", ("s1.1", "green"))])
        flow = await play(model, Desk().tools(), settings=limited(limits={"model_calls": limit}))
        assert (flow.status, flow.run.spent["model_calls"]) == ("completed", 4), limit


@pytest.mark.parametrize(
    "replies", [[call("look", what="b")] * 5, [reply("hm"), reply("hm")]], ids=["looks", "unusable"]
)
async def test_the_judge_uses_that_call_once(replies: list[Any]) -> None:
    """X08: whatever it does with it, no request follows the last one that the limit allows."""
    work = {"s1": [call("look", what="a"), finish_step("it is green", ("s1.1", "green"))]}
    model = steps([{"content": "look"}], work, judge=[*replies, audit()])
    settings = limited(limits={"model_calls": 4}, on_exhausted="deliver")
    flow = await play(model, Desk().tools(), settings=settings)
    assert (flow.status, flow.run.spent["model_calls"], len(model.requests)) == ("partial", 4, 4)


async def test_while_nothing_is_planned_nothing_is_planned_anew() -> None:
    """D03: the question does not offer it, and asking for it anyway counts no replan and grants nothing."""
    model = ScriptedModel(roles={"triage": [call("nothing"), answer("ok")]})
    flow = await play(model, settings=limited(limits={"model_calls": 1}), answers=["replan", "extend 1"])
    model.assert_exhausted()
    assert (flow.run.answer, flow.run.spent["model_calls"], "replans" in flow.run.spent) == ("ok", 2, False)
    assert flow.pauses[0]["options"] == ["extend", "deliver what there is", "stop"]
    assert not any(words in flow.pauses[0]["question"] for words in ("replan", "kept for the answer"))
    assert "nothing is planned yet" in flow.pauses[1]["problem"]
    assert "replan" not in flow.pauses[1]["problem"]
