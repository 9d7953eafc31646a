"""Replanning: what the planner learns about the failure, what stays, what is asked, and how often it is tried."""

import json
import re
from typing import Any

import pytest

from donewhen import Agent, Settings
from donewhen.state.errors import ModelError
from donewhen.testing import ScriptedModel, ask_user, call, decline, finish_step, give_up, observed, submit_plan
from tests.kit.flows import FREE, Json, play, requests, steps, unfenced


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
    assert "the disk is full" not in failure
    assert "the disk is full" in request.text  # under <seen>, once
    plan = json.loads(re.findall(r"<approved_plan>\n(.*)\n</approved_plan>", unfenced(request.text))[0])
    assert plan["steps"] == [
        {"id": "s1", "status": "done", "content": "look", "result": "it is there"},
        {"id": "s2", "status": "failed", "content": "write", "done_when": [], "tools": [], "depends_on": ["s1"]},
    ]
    assert flow.status == "completed"
    assert flow.run.outcome is not None
    assert "no disk" not in flow.run.outcome["reason"]


def requests_of_planner(model: ScriptedModel) -> list[Any]:
    return [request for request in model.requests if request.role == "plan"]


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
    """P17: the same work may be tried again under its id; its observations count on, so no id is ever used twice."""
    policy = lambda messages, _: finish_step("done", observed(messages)[-1])  # noqa: E731
    again = submit_plan([{"content": "Write", "id": "s2", "tools": ["look"]}])
    model = replanned(again, s2=[call("look", x="again"), policy])
    flow = await play(model, TOOLS, effects=EFFECTS)
    model.assert_exhausted()
    assert [e["id"] for e in flow.journal if e["step"] == "s2" and e["source"] == "tool"] == ["s2.1", "s2.2"]
    assert flow.status == "completed"


async def test_new_steps_cite_what_the_failed_one_saw() -> None:
    """M7: what a failed step observed is listed to the planner and to new steps, and proves their criteria."""
    first = [call("look", x="the disk"), give_up("the disk is slow")]
    new = submit_plan([{"content": "tell", "id": "s3", "done_when": ["the disk was seen"], "tools": ["look"]}])
    model = steps(
        FIRST, {"s1": LOOKED, "s2": first, "s3": [finish_step("seen", [("s2.1", "seen the disk")])]}, draft=[new]
    )
    flow = await play(model, TOOLS, effects=EFFECTS)
    model.assert_exhausted()
    assert "[s2.1] look" in requests_of_planner(model)[0].text
    assert "[s2.1] look" in requests(model, "s3")[0].text
    assert flow.step("s3")["verdicts"][0]["verdict"] == "cited"


@pytest.mark.parametrize(("written", "named"), [(None, ["s4", "s5"]), ("s2", ["s2b", "s4"])])
async def test_a_step_that_a_person_adds_is_not_taken_for_the_one_that_failed(
    written: str | None, named: list[str]
) -> None:
    """P17, M7: a new step of an edited plan has no id of this request, also if the person writes that of the failed
    one: that stays in the receipt, with what it did."""
    print_it = submit_plan([{"content": "print it", "id": "s3", "replaces": ["s2"]}])
    told = {id: [finish_step("told", f"{id}.result")] for id in named}
    model = replanned(print_it, s3=[finish_step("printed", "s3.result")], **told)
    more = [{"content": "call Eve", **({"id": written} if written else {})}, {"content": "call Fay"}]
    flow = await play(
        model,
        TOOLS,
        effects=EFFECTS,
        settings={"approvals": "plan"},
        answers=["approve", lambda pause: {**pause["plan"], "steps": [*pause["plan"]["steps"], *more]}],
    )
    model.assert_exhausted()
    assert [(row["id"], row["content"], row["instead"]) for row in flow.run.receipt["replaced"]] == [
        ("s2", "write", ["s3"])
    ]
    assert [step["id"] for step in flow.run.receipt["steps"]] == ["s1", "s3", *named]
    assert [step["attempt"] for step in flow.run.steps.values()] == [1] * 5


async def test_other_work_does_not_get_the_id_of_a_finished_step_that_is_done_again() -> None:
    """P17: what was done under it stays in the receipt as replaced."""
    redone = [{"content": "look twice", "id": "s3", "replaces": ["s1"]}, {"content": "print", "id": "s2"}]
    told = {id: [finish_step("told", f"{id}.result")] for id in ("s3", "s2b", "s1b")}
    model = replanned(submit_plan(redone), **told)
    more = {"content": "call Eve", "id": "s1"}
    flow = await play(
        model,
        TOOLS,
        effects=EFFECTS,
        settings={"approvals": "plan"},
        answers=["approve", lambda pause: {**pause["plan"], "steps": [*pause["plan"]["steps"], more]}],
    )
    model.assert_exhausted()
    assert [(row["id"], row["status"]) for row in flow.run.receipt["replaced"]] == [("s1", "stale"), ("s2", "failed")]
    assert {step["id"]: step["status"] for step in flow.run.receipt["steps"]} == dict.fromkeys(told, "done")


@pytest.mark.parametrize("before", [(), ("count the shelves",)])
async def test_the_same_step_with_another_check_is_another_way(before: tuple[str, ...]) -> None:
    """M7, P17: a wrong check is mended where nobody is asked; the same check once more is what failed."""

    def stock(item: str) -> dict[str, int]:
        """Count what is in stock."""
        return {"count": 12}

    def plan(path: str) -> list[Json]:
        expect = {"path": path, "op": ">=", "value": 10}
        check = {"tool": "stock", "arguments": {"item": "lamp"}, "expect": expect}
        last = {
            "content": "count the lamps",
            "tools": ["stock"],
            "done_when": [{"text": "there are ten", "check": check}],
        }
        return [*({"content": each, "tools": []} for each in before), last]

    id, first = ("s2", {"s1": [finish_step("two", "s1.result")]}) if before else ("s1", {})
    claim = finish_step("12", f"{id}.1")
    new = submit_plan([{**plan("$.count")[-1], "id": id}])
    model = steps(plan("$.total"), {**first, id: [call("stock", item="lamp"), claim, claim, claim, claim]}, plan=[new])
    settings = {**FREE, "on_question": "assume", "verification": "grounded"}
    flow = await play(model, [stock], effects={"stock": "read"}, settings=settings)
    model.assert_exhausted()
    assert (flow.status, flow.step(id)["verdicts"][0]["verdict"]) == ("completed", "proven")


async def test_retry_wakes_only_steps_of_the_plan() -> None:
    """P17, X09: one that an earlier plan left blocked, and that was dropped, stays as it is, in the receipt too."""
    first = [
        {"id": "s1", "content": "look at A", "tools": ["look"], "depends_on": []},
        {"id": "s2", "content": "write about A", "tools": [], "depends_on": ["s1"]},
        {"id": "s4", "content": "say hello", "tools": [], "depends_on": []},
        {"id": "s5", "content": "write about B", "tools": [], "depends_on": ["s1"]},
    ]
    look_at_b = {"id": "s3", "content": "look at B", "tools": ["look"], "depends_on": [], "replaces": ["s1"]}
    new = submit_plan([look_at_b], drop=[{"what": "s2", "why": "not needed"}])
    work = {
        "s1": [give_up("no A", "replan")],
        "s3": [give_up("no B", "blocked"), call("look", x="B"), finish_step("B", "s3.1")],
        "s4": [finish_step("hello", "s4.result")],
        "s5": [finish_step("B is there", "s5.result")],
    }
    flow = await play(steps(first, work, draft=[new]), TOOLS, effects=EFFECTS, answers=["retry"])
    statuses = {id: record["status"] for id, record in flow.run.steps.items()}
    assert statuses == {"s1": "failed", "s2": "blocked", "s3": "done", "s4": "done", "s5": "done"}


@pytest.mark.parametrize("place", [0, 1])
async def test_a_finished_step_cannot_be_reworded_from_outside(place: int) -> None:
    """P17, X09: the receipt says of what is done what was approved; other words of an open step are asked about."""
    work = {"s1": LOOKED, "s2": [ask_user("Is it fine?"), finish_step("written", "s2.result")]}
    agent = Agent(steps(FIRST, work), TOOLS, effects=EFFECTS, storage="memory:", settings={"approvals": "plan"})
    run = await agent.resume(await agent.start("look", thread_id="t"), "approve")
    config: Any = {"configurable": {"thread_id": "t"}}
    plan = (await agent.graph.aget_state(config)).values["plan"]
    changed = [dict(step) for step in plan["steps"]]
    changed[place]["content"] = "format the disk"
    await agent.graph.aupdate_state(config, {"plan": {**plan, "steps": changed}})
    run = await agent.resume(await agent.resume("t"), "fine")
    if place == 0:
        assert run.status == "completed"
        assert [step["content"] for step in run.receipt["steps"]] == ["look", "write"]
    else:
        assert (run.status, run.pending[0]["kind"]) == ("waiting", "plan")


YEAR = [
    {"content": "find the total of the year", "tools": ["look"]},
    {"content": "write the report", "depends_on": ["s1"], "tools": ["send"]},
    {"content": "read the style guide", "depends_on": [], "tools": ["look"]},
    {"content": "check it with the user", "depends_on": ["s2", "s3"]},
]


def send(text: str) -> str:
    """Send something."""
    return f"sent {text}"


def corrected_year(*drafts: Any, **execute: Any) -> ScriptedModel:
    """The user says 2024 at first, and corrects it when the last step asks."""
    asked = [ask_user("Which year?"), call("look", x="2024"), lambda m, _: finish_step("10", observed(m)[-1])]
    checks = [ask_user("Is 2024 right?"), give_up("the user corrected the year", "replan"), *execute.pop("s4", ())]
    first = [call("send", text="report"), finish_step("sent", "s2.1"), *execute.pop("s2", ())]
    guide = [call("look", x="style"), finish_step("short", "s3.1")]
    return steps(YEAR, {"s1": asked, "s2": first, "s3": guide, "s4": checks, **execute}, draft=list(drafts))


async def test_an_answer_that_corrects_an_earlier_one_reopens_what_was_built_on_it() -> None:
    """M3, P17: s1 is done again as s1b; s2, built on it, is done again as it was planned, and s3, which was not, stays.
    A write that it makes again goes to a person first, and all of it is accounted for."""
    redo = submit_plan([
        {"id": "s1b", "content": "find the total of 2025", "depends_on": [], "tools": ["look"], "replaces": ["s1"]},
        {"id": "s4", "content": "check it with the user", "depends_on": ["s1", "s2", "s3"]},
    ])  # fmt: skip
    s1b = [call("look", x="2025"), finish_step("20", "s1b.1")]
    s2 = [call("send", text="report"), lambda m, _: finish_step("sent again", observed(m)[-1])]
    model = corrected_year(redo, s1b=s1b, s2=s2, s4=[finish_step("right", "s4.result")])
    tools, effects = [look, send], {"look": "read", "send": "write"}
    flow = await play(model, tools, effects=effects, answers=["2024", "No, 2025!", "yes"])
    model.assert_exhausted()
    assert [pause["kind"] for pause in flow.pauses] == ["question", "question", "tool"]
    assert flow.run.plan is not None
    order = [(step["id"], step["depends_on"]) for step in flow.run.plan["steps"]]
    assert order == [("s3", []), ("s1b", []), ("s2", ["s1b"]), ("s4", ["s1b", "s2", "s3"])]
    assert flow.status == "completed"
    assert (flow.step("s1")["status"], flow.step("s1")["result"]) == ("stale", "10")
    assert [entry["id"] for entry in flow.journal if entry["tool"] == "send"] == ["s2.1", "s2.2"]
    assert (flow.step("s2")["attempt"], flow.step("s3")["attempt"]) == (2, 1)
    assert "20" in requests(model, "s2")[-1].text
    assert flow.run.receipt is not None
    assert [(row["id"], row["status"], row["instead"]) for row in flow.run.receipt["replaced"]] == [
        ("s1", "stale", ["s1b"])
    ]
    assert [row["tool"] for row in flow.run.receipt["effects"]] == ["send", "send"]


LAMP = call("send", text="lamp")
AGAIN = submit_plan([{"id": "s7", "content": "Write", "depends_on": ["s1"]}])
OTHER = submit_plan([{"id": "s3", "content": "print it", "depends_on": ["s1"]}])


BY_ID = submit_plan([{"id": "s2", "depends_on": ["s1"]}])


@pytest.mark.parametrize(("again", "id"), [(AGAIN, "s7"), (BY_ID, "s2")], ids=["other id", "only its id"])
async def test_a_plan_proposed_again_and_again_goes_to_a_person(again: Any, id: str) -> None:
    """M7: the same work under other ids, or an id alone, is pointed out to the planner; proposed again, a person says
    how to go on, and what they say holds."""
    model = replanned(again, again, again, **{id: [finish_step("written", f"{id}.result")]})
    flow = await play(model, TOOLS, effects=EFFECTS, answers=["the disk is there now, try it"])
    model.assert_exhausted()
    assert "this is step for step the plan that failed" in requests_of_planner(model)[1].text
    assert "proposes again what failed already: write" in flow.pauses[0]["question"].lower()
    assert "the disk is there now" in requests_of_planner(model)[2].text
    assert flow.status == "completed"


async def test_a_plan_that_failed_again_is_asked_about_again() -> None:
    """M7, X26: what a person said before the work failed once more is no answer to whether it is tried yet again."""
    plans, answers = [AGAIN, AGAIN, AGAIN, AGAIN, AGAIN, OTHER], ["the disk is there now, try it", "then print it"]
    model = replanned(*plans, s7=[give_up("still no disk")], s3=[finish_step("printed", "s3.result")])
    flow = await play(model, TOOLS, effects=EFFECTS, answers=answers)
    model.assert_exhausted()
    assert ["failed already" in pause["question"] for pause in flow.pauses] == [True, True]
    assert flow.status == "completed"


async def test_back_and_forth_between_two_plans_ends_where_nobody_is_asked() -> None:
    """M7: a plan that failed two plans ago is noticed like the last one; without a person the run ends honestly."""
    model = replanned(OTHER, AGAIN, AGAIN, s3=[give_up("no printer")])
    flow = await play(model, TOOLS, effects=EFFECTS, settings={"confirm": "never", "on_question": "assume"})
    model.assert_exhausted()
    assert flow.status == "partial"
    assert flow.run.outcome is not None
    assert "what failed already was planned again" in flow.run.outcome["reason"]


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


async def test_a_refused_replan_is_not_what_is_fallen_back_on() -> None:
    """P04, C11: after words about a new plan, a draft that fails leaves the plan open, and says so; nothing of it runs,
    and cancelled, what was done is delivered."""
    bad = submit_plan([])
    model = replanned(submit_plan([{"content": "sell the disk", "id": "s3"}]), bad, bad, bad)
    answers: list[Any] = ["approve", {"type": "reject", "message": "never sell it"}, "cancel"]
    flow = await play(model, TOOLS, effects=EFFECTS, settings=Settings(), answers=answers)
    model.assert_exhausted()
    assert "never sell it" in requests_of_planner(model)[1].text
    assert "The plan is as it was" in flow.pauses[-1]["problem"]
    assert flow.status == "cancelled"
    assert "sell the disk" not in flow.run.answer


# What was approved stays ---------------------------------------------------------------------------------------------

REPORT = [
    {"id": "s1", "content": "read the sales", "tools": ["look"], "depends_on": []},
    {"id": "s2", "content": "read the weather", "tools": ["look"], "depends_on": ["s1"]},
    {"id": "s3", "content": "write report.md", "done_when": ["report.md is written"], "tools": ["send"]},
]
GOAL = "report.md holds sales and weather"
ELSEWHERE = submit_plan([{"content": "read the weather elsewhere", "done_when": ["weather known"]}])


def reporting(*drafts: Any, done_when: Any = GOAL, deliver: Any = (), **execute: Any) -> ScriptedModel:
    """Sales are read, the weather cannot be; the report is to be written from both."""
    plan = submit_plan(REPORT, done_when=done_when)
    rounds = {"s1": LOOKED, "s2": [give_up("the site is down", "replan")], **execute}
    roles = {"triage": [plan], "plan": list(drafts), "execute": rounds, "deliver": list(deliver)}
    return ScriptedModel(roles=roles)


SENT = [call("send", text="report"), finish_step("sent", "s3.1")]
PROVEN = call(
    "deliver", text="Here.", goal_check=[{"criterion": 1, "met": True, "evidence": [{"observation": "s3.1"}]}]
)
REPLANNED: Any = {"effects": {"look": "read", "send": "write"}, "tools": [look, send]}


@pytest.mark.parametrize("confirm", ["always", "writes", "complex", "never"])
async def test_what_a_replan_does_not_name_stays(confirm: str) -> None:
    """N16, P22: the step after the failed one is still done, and the goal's criterion is still to be proven."""
    model = reporting(ELSEWHERE, deliver=[PROVEN], s4=[finish_step("fine", "s4.result")], s3=SENT)
    settings = {"confirm": confirm, "approvals": "plan"}
    flow = await play(model, answers=[lambda _: "approve"], settings=settings, **REPLANNED)
    model.assert_exhausted()
    (request,) = requests_of_planner(model)
    assert "write report.md" in request.text
    assert GOAL in request.text
    assert flow.status == "completed"
    receipt = flow.run.receipt or {}
    assert [(row["id"], row["status"]) for row in receipt["steps"]] == [("s1", "done"), ("s4", "done"), ("s3", "done")]
    assert [row["text"] for row in receipt["criteria"]] == [GOAL]
    assert [entry["tool"] for entry in flow.journal if entry["source"] == "tool"] == ["look", "send"]


async def test_a_criterion_goes_only_by_a_person() -> None:
    """N16, P22: `drop` asks under every policy; where nobody is asked it is a correction, unless a person spoke."""
    drop = [{"what": GOAL, "why": "nobody reads it"}, {"what": "s3", "why": "nobody reads it"}]
    dropping = submit_plan([{"content": "read the weather elsewhere"}], drop=drop)
    ended: Any = {"deliver": ["Sunny."], "s4": [finish_step("sunny", "s4.result")]}
    flow = await play(reporting(dropping, **ended), answers=["approve", "approve"], settings={}, **REPLANNED)
    assert f"the goal no longer has to prove: {GOAL} (nobody reads it)" in flow.pauses[1]["changes"]
    assert "step 3 of the earlier plan is dropped: write report.md (nobody reads it)" in flow.pauses[1]["changes"]
    assert (flow.status, (flow.run.receipt or {})["criteria"]) == ("completed", [])
    for policy, before in {"writes": ["approve"], "complex": []}.items():
        flow = await play(reporting(dropping, **ended), answers=before, settings={"confirm": policy}, **REPLANNED)
        assert flow.status == "waiting"
        assert any("no longer has to prove" in line for line in flow.run.pending[0]["changes"])
    model = reporting(dropping, dropping, dropping, deliver=["Sales only."])
    flow = await play(model, settings=Settings(confirm="never"), **REPLANNED)
    assert flow.status == "partial"
    assert f"only the user can let “{GOAL}” go" in requests_of_planner(model)[1].text
    model = reporting(dropping, **ended)
    settings = Settings(confirm="never", on_failure="ask")
    flow = await play(model, answers=["tell me only the weather at the airport"], settings=settings, **REPLANNED)
    model.assert_exhausted()
    assert (flow.run.receipt or {})["criteria"] == []


async def test_a_step_that_nobody_agreed_to_drop_makes_it_partial() -> None:
    """N16, P22: where nobody is asked, `drop` of a step is in the answer, with the reason of the planner."""
    drop = submit_plan([{"content": "look elsewhere"}], drop=[{"what": "s3", "why": "there is nothing to write"}])
    model = reporting(drop, done_when=None, deliver=["Sunny."], s4=[finish_step("sunny", "s4.result")])
    flow = await play(model, **REPLANNED)
    assert flow.status == "partial"
    assert "write report.md" in flow.run.answer
    (row,) = [row for row in (flow.run.receipt or {})["replaced"] if row["id"] == "s3"]
    assert row["instead"] == []


async def test_what_one_step_was_to_reach_is_asked_about_once() -> None:
    """P22: criteria of a plan's only step are the goal's; a plan that says nothing about them is sent back once."""
    other = submit_plan([{"content": "print it", "done_when": ["printed"]}])
    script: Any = {"s1": [give_up("no disk")], "s2": [finish_step("printed", "s2.result")]}
    model = steps([{"content": "save it", "done_when": ["saved"]}], script, draft=[other, other])
    flow = await play(model)
    model.assert_exhausted()
    first, second = requests_of_planner(model)
    assert "Its only step has the criteria of the goal: name them again" in first.text
    assert first.text.count('"saved"') == 1
    assert "to be reached were “saved”: name each" in second.text
    assert flow.status == "partial"
    assert [(row["text"], row["verdict"]) for row in (flow.run.receipt or {})["criteria"]] == [("saved", "unverified")]
    assert flow.run.answer.startswith("Done.")


async def test_a_steered_planner_sees_the_plan_as_it_was_edited() -> None:
    """N16, P22: stopped and steered, the planner is shown what a person wrote into the plan, and that they did."""
    model = ScriptedModel(
        roles={
            "triage": [submit_plan(REPORT), submit_plan([{"id": "s3", "content": "write report.md, bold"}])],
            "execute": {"s1": LOOKED, "s2": lambda *_: call("look", x="sky")},
        }
    )
    agent = Agent(model, [look, send], effects=REPLANNED["effects"], storage="memory:")
    run = await agent.start("sales and weather")
    plan = dict(run.pending[0]["plan"])
    plan["steps"] = [*plan["steps"][:2], {**plan["steps"][2], "content": "write report.md, never mention Bob"}]
    async with agent.stream_resume(run, {"plan": plan}) as stream:
        async for event in stream:
            if event["type"] == "step_finished":
                break
    run = await agent.resume(run.thread_id, steer="make it bold")
    text = model.requests[-1].text
    assert "never mention Bob" in text
    assert "The user edited this plan" in text
    assert run.pending[0]["changes"] == ["step 3 now says: write report.md, bold"]
    assert [step["id"] for step in run.pending[0]["plan"]["steps"]] == ["s1", "s2", "s3"]
    await agent.aclose()


@pytest.mark.parametrize(
    ("words", "confirm", "shown"),
    [
        ("leave out the sending", "always", True),
        ("leave out the sending", "writes", True),
        ("leave out the sending", "never", False),
        ("continue", "always", False),
    ],
)
async def test_a_plan_that_stays_after_what_a_person_said_is_shown_again(words: str, confirm: Any, shown: bool) -> None:
    """C04: what was said to a stopped run and is not in its plan: the approved one is shown again, as before."""
    plan = submit_plan([{"id": "s1", "content": "look"}, {"id": "s2", "content": "send", "tools": ["send"]}])

    def work_on_s1(messages: Any, _: Any) -> Any:
        if seen := observed(messages):
            return finish_step("blue", seen[-1])
        if [each.role for each in model.requests].count("execute") == 1:
            agent.drain()
        return call("look", x="sky")

    s2 = [call("send", text="blue"), finish_step("sent", "s2.1")]
    model = ScriptedModel(roles={"triage": [plan, plan], "execute": {"s1": work_on_s1, "s2": s2}}, strict=False)
    agent = Agent(
        model, [look, send], effects=REPLANNED["effects"], storage="memory:",
        settings={"confirm": confirm, "approvals": "plan"},
    )  # fmt: skip
    async with agent:
        run = await agent.start("the sky, sent")
        if confirm != "never":
            run = await agent.resume(run, "approve")
        assert run.status == "running"
        run = await agent.resume(run.thread_id, steer=words)
        if shown:
            assert run.pending[0]["kind"] == "plan"
            assert run.pending[0]["text"].count("(as before)") == 2
            run = await agent.resume(run, "approve")
        assert run.status == "completed"


@pytest.mark.parametrize("way", ["told", "told between steps", "answered", "rejected"])
@pytest.mark.parametrize("kind", ["replan", "failed"])
async def test_words_about_the_work_change_the_plan_where_failures_are_delivered(way: str, kind: Any) -> None:
    """P17, X15: `on_failure` decides about failures; words since the plan was approved that need another are none."""

    async def tells(messages: Any, tools: Any) -> Any:
        await agent.tell("t", "The cable too")
        return LAMP

    first = {"told": tells, "told between steps": tells, "answered": ask_user("More?"), "rejected": LAMP}[way]
    gives_up = give_up("the cable is wanted too", kind)
    s1 = [first, finish_step("sent", "s1.1") if way == "told between steps" else gives_up]
    again = submit_plan([{"id": "s3", "content": "send the cable too"}])
    execute = {"s1": s1, "s2": [gives_up], "s3": [finish_step("sent", "s3.result")]}
    steps = [{"content": "send the lamp", "tools": ["send"]}, "look"]
    model = ScriptedModel(roles={"triage": [submit_plan(steps)], "plan": [again], "execute": execute}, strict=False)
    settings = {"on_failure": "deliver", "when_busy": "next_round", "confirm": "never", "approvals": "each"}
    agent = Agent(model, [send], storage="memory:", settings=settings)
    run = await agent.start("send me the lamp", thread_id="t")
    while run.pending:
        said = {"answered": "The cable too", "rejected": {"type": "reject", "message": "the cable too"}}
        run = await agent.resume(run, said.get(way, "approve"))
    assert [row["id"] for row in (run.receipt or {})["steps"] if row["id"] == "s3"] == ["s3"] * (kind == "replan")


@pytest.mark.parametrize("limit", [0, 2])
async def test_a_step_that_nobody_spoke_to_asks_for_no_plan_where_failures_are_delivered(limit: int) -> None:
    """P17: words before the plan are in it already, and another plan counts against the limit of replans."""

    async def tells(messages: Any, tools: Any) -> Any:
        if not limit:
            await agent.tell("t", "The cable too")
        return call("look", x="here")

    plan, gives_up = submit_plan([{"content": "look"}]), give_up("the site is down", "replan")
    roles: Any = {"triage": [plan, submit_plan([{"content": "look here"}])], "execute": [tells, gives_up]}
    settings = {"on_failure": "deliver", "when_busy": "next_round", "confirm": "always", "limits": {"replans": limit}}
    model = ScriptedModel(roles=roles, strict=False)
    agent = Agent(model, [look], effects={"look": "read"}, storage="memory:", settings=settings)
    run = await agent.resume(await agent.start("look", thread_id="t"), "look here instead")
    run = await agent.resume(run, "yes")
    assert run.status == "failed"
    assert [request.role for request in model.requests] == ["triage", "triage", "execute", "execute"]
