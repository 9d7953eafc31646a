"""Approval holds for what was shown: which changes of a plan ask again, and what becomes of the run meanwhile."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from donewhen import Agent, Settings
from donewhen.agent.run import Run
from donewhen.state.plan.plan import Rules, read_plan
from donewhen.state.plan.revise import plan_changes
from donewhen.testing import ScriptedModel, ask_user, call, criterion, finish_step, give_up, submit_plan
from tests.kit.runs import Outbox, config, drawn, last_seen, said, step

RULES = Rules(tools=["look", "send", "write"], executors=["writer"], checks={"look": lambda arguments: []})
Plan = dict[str, Any]
Edit = Callable[[Plan, int], object]

words = st.text("abcd ", min_size=1, max_size=8).map(lambda text: f"w{text}")
criteria = st.lists(
    st.builds(
        lambda text, checked, judge: {
            "text": text,
            "check": {"tool": "look", "arguments": {}, "expect": "ok"} if checked else None,
            "judge": judge,
        },
        words,
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda criterion: " ".join(criterion["text"].split()),
)
steps = st.lists(
    st.fixed_dictionaries(
        {
            "content": words,
            "done_when": criteria,
            "tools": st.lists(st.sampled_from(["look", "send"]), unique=True, min_size=1),
            "depends_on": st.sampled_from([None, []]),
        }
    ),
    min_size=2,
    max_size=5,
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    plan = read_plan({"title": "A plan", "steps": draw(steps)}, RULES)
    assert isinstance(plan, dict)
    return plan


def _set(key: str, value: Any) -> Edit:
    return lambda plan, n: plan["steps"][n].update({key: value})


def _move(plan: Plan, n: int) -> None:
    """Put a step that declares nothing in front of what it waited for."""
    plan["steps"][n]["depends_on"] = None
    plan["steps"].insert(0, plan["steps"].pop(n))


NEUTRAL: dict[str, Edit] = {
    "title": lambda plan, n: plan.update(title="Other words"),
    "speech": lambda plan, n: plan.update(speak="Here you are.", complexity="complex", need_thinking=True),
    "order of tools": lambda plan, n: plan["steps"][n]["tools"].reverse(),
    "a tool less": lambda plan, n: plan["steps"][n]["tools"].pop(),
    "a criterion more": lambda plan, n: plan["steps"][n]["done_when"].append(
        {"text": "more", "check": None, "judge": False}
    ),
    "a judge more": lambda plan, n: plan["steps"][n]["done_when"][0].update(judge=True),
}
ASKING: dict[str, Edit] = {
    "content": _set("content", "something else"),
    "a tool more": lambda plan, n: plan["steps"][n]["tools"].append("write"),
    "executor": _set("executor", "writer"),
    "dependency": lambda plan, n: plan["steps"][n].update(
        depends_on=[plan["steps"][n - 1]["id"]] if plan["steps"][n]["depends_on"] is None else None
    ),
    "a criterion less": lambda plan, n: plan["steps"][n]["done_when"].pop(),
    "another criterion": lambda plan, n: plan["steps"][n]["done_when"][0].update(text="easier"),
    "another check": lambda plan, n: plan["steps"][n]["done_when"][0].update(
        check={"tool": "look", "arguments": {"at": "x"}, "expect": "ok"}
    ),
    "a step more": lambda plan, n: plan["steps"].insert(n, {**step("s9"), "depends_on": [], "executor": None}),
    "a step less": lambda plan, n: plan["steps"].pop(n),
    "schedule": lambda plan, n: plan.update(schedule={"every_minutes": 5, "at": None, "timezone": None}),
}


@given(plans(), st.lists(st.sampled_from(sorted(NEUTRAL)), max_size=4, unique=True), st.integers(0, 4))
def test_words_and_less_power_need_no_consent(plan: Plan, edits: list[str], n: int) -> None:
    """C04: a plan that says, may and must no other things is still the approved one."""
    changed = copy.deepcopy(plan)
    for name in edits:
        NEUTRAL[name](changed, n % len(changed["steps"]))
    assert plan_changes(plan, changed) == []


@given(
    plans(),
    st.sampled_from(sorted(ASKING)),
    st.lists(st.sampled_from(["title", "speech", "order of tools"]), unique=True),
    st.integers(0, 4),
)
def test_everything_else_asks(plan: Plan, edit: str, others: list[str], n: int) -> None:
    """C04: more, less, weaker, elsewhere, other: never silently, whatever else is changed beside it."""
    changed = copy.deepcopy(plan)
    for name in others:
        NEUTRAL[name](changed, n % len(changed["steps"]))
    ASKING[edit](changed, n % len(changed["steps"]))
    assert plan_changes(plan, changed)


@given(plans(), st.integers(1, 4))
def test_another_order_asks(plan: Plan, n: int) -> None:
    """C04: steps that declare nothing run in the order in which they were shown."""
    number = 1 + (n - 1) % (len(plan["steps"]) - 1)
    for each in plan["steps"]:
        each["depends_on"] = None
    changed = copy.deepcopy(plan)
    _move(changed, number)
    assert any("no longer waits for" in line for line in plan_changes(plan, changed))


@given(plans())
def test_a_judge_less_asks(plan: Plan) -> None:
    """C04: a criterion that nobody judges any more is easier to meet."""
    plan["steps"][0]["done_when"][0]["judge"] = True
    changed = copy.deepcopy(plan)
    for each in changed["steps"][0]["done_when"]:
        each["judge"] = False
    assert plan_changes(plan, changed) != []


# --- what becomes of the run


def replanned(then: Any, *more: Any) -> ScriptedModel:
    """s1 is done, s2 fails, and the planner submits `then` (and `more`)."""
    return ScriptedModel(
        roles={
            "triage": [submit_plan([step("s1"), step("s2"), step("s3", depends_on=["s1"])])],
            "plan": [then, *more],
            "execute": {"s1": [said("s1")], "s2": [give_up("locked")], "s3": [said("s3")], "s4": [said("s4")]},
            "deliver": lambda *_: "Done.",
        },
        strict=False,
    )


FAX = submit_plan([step("s4", "by fax"), step("s3", depends_on=["s1"])])


async def at_the_difference(model: ScriptedModel, **settings: Any) -> tuple[Agent, Run]:
    agent = Agent(model, storage="memory:", settings=settings)
    run = await agent.resume((await agent.start("do it")).thread_id, "approve")
    assert (run.status, run.pending[0]["kind"]) == ("waiting", "plan")
    await drawn(agent, run)
    return agent, run


async def test_a_step_that_changed_something_ends_with_what_it_did() -> None:
    """C04, N16: what took effect stays, so the step is not dropped; neither in the question nor in the answer."""
    model = ScriptedModel(
        roles={
            "triage": [submit_plan([step("s1", "send both", tools=["send"])])],
            "plan": [submit_plan([step("s2", "send the other")], drop=[{"what": "s1", "why": "one is out"}])],
            "execute": {"s1": [call("send", to="ann", text="hi"), give_up("no bob")], "s2": [give_up("no bob")]},
        },
        strict=False,
    )
    agent = Agent(model, [Outbox().tool()], storage="memory:", settings={"approvals": "plan", "limits": {"replans": 1}})
    run = await agent.resume(await agent.start("send to both"), "approve")
    done = 'Already done in it: send(to="ann", text="hi")'
    assert run.pending[0]["changes"][-1] == f"step 1 of the earlier plan ends here: send both (one is out) ({done})"
    run = await agent.resume(run, "approve")
    assert run.answer.count(f"  - {done}") == 1


async def test_only_the_difference_is_asked() -> None:
    """C04, P17: lines for what changed, the whole plan beside it; finished steps stay and do not run again."""
    model = replanned(FAX)
    agent, run = await at_the_difference(model)
    assert run.pending[0]["changes"] == ["new step 3: by fax", "step 2 of the earlier plan is dropped: work on s2"]
    ended = await agent.resume(run.thread_id, "approve")
    assert ended.status == "answered"
    assert [row["id"] for row in (ended.receipt or {})["steps"]] == ["s1", "s3", "s4"]
    assert [r.step for r in model.requests if r.role == "execute"].count("s1") == 1
    assert [row["decision"] for row in (ended.receipt or {})["approvals"]] == ["approve", "approve"]


async def test_the_difference_is_told_in_the_language_of_the_settings() -> None:
    """Q11, C04: and read in it."""
    agent = Agent(replanned(FAX), storage="memory:", settings={"language": "de"})
    run = await agent.start("Prüfe bitte die Rechnungen und melde mir das Ergebnis")
    run = await agent.resume(run.thread_id, "ja")
    assert run.pending[0]["changes"] == ["neuer Schritt 3: by fax", "Schritt 2 des früheren Plans entfällt: work on s2"]
    assert run.pending[0]["question"].startswith("Der Plan hat sich geändert.")


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("reject", "partial"),
        ({"type": "reject"}, "partial"),
        ("cancel", "cancelled"),
        ({"type": "cancel"}, "cancelled"),
    ],
)
async def test_a_refused_difference_leaves_the_approved_plan(value: Any, status: str) -> None:
    """C04, C02: refused, what was approved goes on and nothing of the new plan runs; cancelled, the run is over."""
    agent, run = await at_the_difference(replanned(FAX))
    ended = await agent.resume(run.thread_id, value)
    assert ended.status == status
    statuses = {row["id"]: row["status"] for row in (ended.receipt or {})["steps"]}
    assert statuses == {"s1": "done", "s2": "failed", "s3": "done"}
    assert (ended.receipt or {})["approvals"][-1]["decision"] == ("reject" if status == "partial" else "cancel")


async def test_a_difference_rejected_with_words_is_planned_again() -> None:
    """C02, C04: the feedback reaches the planner; the next difference is still against what was approved."""
    model = replanned(FAX, submit_plan([step("s4", "by pigeon"), step("s3", depends_on=["s1"])]))
    agent, run = await at_the_difference(model)
    again = await agent.resume(run.thread_id, "change: no fax, use a pigeon")
    assert "no fax, use a pigeon" in model.requests[-1].text
    assert "by fax" in model.requests[-1].text
    assert again.pending[0]["changes"] == ["new step 3: by pigeon", "step 2 of the earlier plan is dropped: work on s2"]
    ended = await agent.resume(run.thread_id, "yes")
    assert ended.status == "answered"
    assert [row["decision"] for row in (ended.receipt or {})["approvals"]] == ["approve", "say", "approve"]


async def test_a_finished_step_cannot_be_edited_away() -> None:
    """C03, P17: a person's edit of the difference keeps what is done as it was done."""
    agent, run = await at_the_difference(replanned(FAX))
    first, *rest = run.pending[0]["plan"]["steps"]
    for steps in (rest, [{**first, "content": "something that was never done"}, *rest]):
        again = await agent.resume(run.thread_id, {"type": "edit", "steps": steps})
        assert "finished steps stay" in again.problem
        assert again.plan == run.plan
    spoken, german = await at_the_difference(replanned(FAX), language="de")
    assert (await spoken.resume(german.thread_id, {"type": "edit", "steps": rest})).problem == (
        "fertige Schritte bleiben im Plan, wie sie sind: s1"  # Q27
    )
    by_hand = [{**step, "content": "by hand"} if step["id"] == "s4" else step for step in rest]
    ended = await agent.resume(run.thread_id, {"type": "edit", "steps": [first, *by_hand]})
    assert [row["content"] for row in (ended.receipt or {})["steps"]] == ["work on s1", "work on s3", "by hand"]


async def test_a_replan_without_a_difference_asks_nobody() -> None:
    """C04, M7: the same steps under another title go on if a person says so; a step that failed is tried anew."""
    model = replanned(submit_plan([step("s2"), step("s3", depends_on=["s1"])], title="Once more"))
    agent = Agent(model, storage="memory:", settings=Settings(on_failure="ask"))
    run = await agent.resume((await agent.start("do it")).thread_id, "approve")
    run = await agent.resume(run.thread_id, "the door is open now, try the same once more")
    assert [pause["id"].split(".")[0] for pause in run.pending] == ["failure"]
    assert run.steps["s2"]["attempt"] > 1
    ended = await agent.resume(run.thread_id, "deliver what there is")
    decided = [(row["kind"], row["decision"]) for row in (ended.receipt or {})["approvals"]]
    assert decided == [("plan", "approve"), ("question", "replan"), ("plan", "carried over"), ("question", "deliver")]


async def test_what_a_person_approved_is_not_changed_by_calling_it_simple() -> None:
    """C04, C01: under the policy `complex`, another plan in place of one that a person approved asks that person."""
    roles = {
        "triage": [submit_plan([step("s1"), step("s2")], complexity="complex")],
        "plan": [submit_plan([step("s4", "by fax")], complexity="simple")],
        "execute": {"s1": [said("s1")], "s2": [give_up("locked")]},
    }
    _, run = await at_the_difference(ScriptedModel(roles=roles), confirm="complex")
    assert "new step 2: by fax" in run.pending[0]["changes"]


async def test_a_plan_changed_from_outside_asks() -> None:
    """C04: whoever edits the plan in state (Studio does) is asked before anything of it runs."""
    finish = lambda messages, _: finish_step("handled", evidence=last_seen(messages))  # noqa: E731
    model = ScriptedModel(
        roles={
            "triage": [submit_plan([step("s1"), step("s2")])],
            "execute": {"s1": [ask_user("Which?"), said("s1")], "s2": [call("send", to="ann", text="hi"), finish]},
            "deliver": lambda *_: "Done.",
        }
    )
    outbox = Outbox()
    agent = Agent(model, [outbox.tool()], storage="memory:")
    run = await agent.resume((await agent.start("do it")).thread_id, "approve")
    plan = copy.deepcopy(run.plan or {})
    plan["steps"][1]["tools"] = ["send"]
    await agent.graph.aupdate_state(config(run.thread_id), {"plan": plan}, as_node="advance")
    asked = await agent.resume(run.thread_id)
    assert asked.pending[0]["id"] == "s1.q1"
    run = await agent.resume(run.thread_id, {"s1.q1": "this"})
    assert run.pending[0]["kind"] == "plan"
    await drawn(agent, run)
    assert run.pending[0]["changes"] == ["step 2 also needs: send"]
    assert outbox.sent == []
    run = await agent.resume(run.thread_id, {"type": "reject"})
    assert (run.status, run.pending[0]["kind"]) == ("waiting", "tool")
    assert outbox.sent == []


async def test_calls_that_an_edit_drops_are_named() -> None:
    """C12, C14: whoever gives a step new words is told which of its planned calls are gone, also of two steps, in what
    they watch and in the receipt; calls that stay are not named."""

    def planned(name: str, *others: str) -> Plan:
        calls = [{"tool": "send", "arguments": {"to": each, "text": "Hi"}} for each in (name, *others)]
        return {"content": f"write to {name}", "tools": ["send"], "calls": calls, "done_when": [f"{name} has it"]}

    outbox = Outbox()
    written = finish_step("not needed", goal_check=[criterion(1)], unchanged="nobody waits for it")
    model = ScriptedModel(
        roles={
            "triage": [submit_plan([planned("dora", "bob"), planned("eve"), planned("joe")])],
            "execute": {"s1": [written], "s2": [written], "s3": [finish_step("sent", "s3.1")]},
            "deliver": ["Done."],
        }
    )
    settings = Settings(approvals="never", verification="claimed")
    agent = Agent(model, [outbox.tool()], storage="memory:", settings=settings)
    run = await agent.start("write to all")
    words = "steps:\n- {id: s1, content: greet dora}\n- {id: s2, content: greet eve}\n- {id: s3}"
    events = [event async for event in agent.stream_resume(run, words)]
    (note,) = [event["text"] for event in events if event["type"] == "note"]
    receipt = await agent.receipt(run)
    assert receipt is not None
    assert note == f"The plan was changed: {'; '.join(receipt['approvals'][0]['changes'])}"
    gone = [line for line in receipt["approvals"][0]["changes"] if "planned call" in line]
    assert [line[:7] for line in gone] == ["step s1", "step s2"]
    assert [name in gone[0] for name in ("dora", "bob", "eve", "joe")] == [True, True, False, False]
    assert [name in gone[1] for name in ("dora", "bob", "eve", "joe")] == [False, False, True, False]
    assert [each["to"] for each in outbox.sent] == ["joe"]


async def test_what_a_person_changed_is_told_in_the_language_of_the_run() -> None:
    """P07: the note to people and the row of the receipt, as the plan itself."""
    plan = submit_plan([{"content": "lies es", "done_when": ["gelesen"], "tools": []}], language="de")
    model = ScriptedModel(
        roles={"triage": [plan], "execute": [finish_step("gelesen", goal_check=[criterion(1)])]}, strict=False
    )
    agent = Agent(model, storage="memory:", settings=Settings(verification="claimed"))
    run = await agent.start("Lies es bitte")
    events = [event async for event in agent.stream_resume(run, "steps:\n- {id: s1, content: lies es laut}")]
    (note,) = [event["text"] for event in events if event["type"] == "note"][:1]
    assert note == "Der Plan wurde geändert: Schritt s1 lautet jetzt: lies es laut"
