"""Plans that are kept: for code, for agents as tools, and for people by the command; on every storage."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent
from donewhen.errors import PlanError
from donewhen.plans import PlanStore, plan_tools
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from tests.kit.screens.shell import user_in
from tests.kit.storage.cases import Storage

STEPS = ["look", "write", "send"]


@pytest.fixture
def store(storage: Storage) -> PlanStore:
    return PlanStore(storage)


async def test_a_plan_is_kept_and_ticked_off(store: PlanStore) -> None:
    """Issue 12, plan store: statuses, notes, marks and percentages; numbers from 1, or ids."""
    plan = await store.create("trip", "A trip", STEPS)
    assert plan.active
    assert [step.id for step in plan.steps] == ["s1", "s2", "s3"]
    await store.mark_step(1, "completed")
    await store.mark_step("s2", "in_progress", "half of it\nis there")
    plan = await store.mark_step("3", "blocked", id="trip")
    assert plan.text == (
        "A trip (trip, active)\n"
        "1/3 steps completed (33%): 0 not started, 1 in progress, 1 completed, 1 blocked\n"
        "1. [✓] s1: look\n2. [→] s2: write\n   half of it\n   is there\n3. [!] s3: send"
    )


async def test_updates_keep_what_stays(store: PlanStore) -> None:
    """Issue 12, plan store: a step keeps status and notes by its id, or by saying the same; no id is given twice."""
    await store.create("trip", "A trip", STEPS)
    await store.mark_step(2, "completed", "done")
    plan = await store.update("trip", steps=["write", {"id": "s1", "content": "look again"}, "new"])
    assert [(step.id, step.content, step.status, step.notes) for step in plan.steps] == [
        ("s2", "write", "completed", "done"),
        ("s1", "look again", "not_started", ""),
        ("s4", "new", "not_started", ""),
    ]
    plan = await store.update("trip", title="Another", steps=["newer"])
    assert [(plan.title, step.id) for step in plan.steps] == [("Another", "s5")]


async def test_what_cannot_be_says_what_can(store: PlanStore) -> None:
    """Issue 12, plan store: clear errors for a bad index, status, duplicate, name; nothing changes then."""
    with pytest.raises(PlanError, match="no plan is active"):
        await store.get()
    await store.create("trip", "A trip", STEPS)
    for attempt, said in (
        (store.create("trip", "x", ["a"]), "there is a plan 'trip' already"),
        (store.create("a b", "x", ["a"]), "not a valid id of a plan"),
        (store.create("x", " ", ["a"]), "title is blank"),
        (store.create("x", "x", []), "1 to 500 steps"),
        (store.create("x", "x", ["a", ""]), "step 2 is blank"),
        (store.create("x", "x", [{"id": "s1", "content": "a"}, {"id": "s1", "content": "b"}]), "ids are unique"),
        (store.mark_step(0, "completed"), "its steps are 1 to 3"),
        (store.mark_step(4, "completed"), "its steps are 1 to 3"),
        (store.mark_step("s9", "completed"), "no step 's9': s1, s2, s3"),
        (store.mark_step(1, "finished"), "not_started, in_progress, completed, blocked"),
        (store.get("trib"), "there are: trip"),
        (store.delete("other"), "there is no plan 'other'"),
        (store.set_active("other"), "there is no plan"),
    ):
        with pytest.raises(PlanError, match=said):
            await attempt
    (plan,) = await store.list()
    assert [step.status for step in plan.steps] == ["not_started"] * 3


async def test_the_active_plan_is_the_one_that_is_meant(store: PlanStore) -> None:
    """Issue 12, plan store: set_active and delete."""
    await store.create("a", "A", ["one"])
    await store.create("b", "B", ["two"])
    assert (await store.get()).id == "a"
    assert (await store.set_active("b")).active
    assert [plan.active for plan in await store.list()] == [False, True]
    await store.delete("b")
    with pytest.raises(PlanError, match="no plan is active"):
        await store.get()


async def test_many_hands_lose_nothing(store: PlanStore) -> None:
    """Issue 12, plan store: marks made at once are all there."""
    await store.create("a", "A", [f"step {number}" for number in range(8)])
    await asyncio.gather(*(store.mark_step(number, "completed") for number in range(1, 9)))
    assert {step.status for step in (await store.get()).steps} == {"completed"}


async def test_agents_keep_plans_with_tools(tmp_path: Path) -> None:
    """Issue 12, plan store as tools: an agent makes a plan and ticks it off; what cannot be is told in words."""
    store = PlanStore(f"{tmp_path}/plans.db")
    step = {"content": "keep a plan", "tools": ["create_plan", "mark_plan_step"]}
    work: list[Any] = [
        call("create_plan", plan_id="trip", title="A trip", steps=["look"]),
        call("mark_plan_step", step="7", status="completed"),
        call("mark_plan_step", step="1", status="completed"),
        finish_step("kept", "s1.3"),
    ]
    model = ScriptedModel(roles={"triage": [submit_plan([step])], "execute": work})
    async with Agent(model, plan_tools(store), storage="memory:") as agent:
        run = await agent.start("keep a plan", settings={"confirm": "never", "approvals": "never"})
    assert run.status == "completed"
    assert "its steps are 1 to 1" in model.requests[-2].text
    assert (await store.get()).text.endswith("1. [✓] s1: look")


def test_people_keep_plans_by_the_command(tmp_path: Path) -> None:
    """Issue 12, plan store: `donewhen plans …`; what cannot be is one line and exit code 2."""
    shell = user_in(tmp_path)
    assert shell("plans", "list").exit_code == 0
    assert shell("plans", "create", "trip", "A trip", "look", "write").exit_code == 0
    assert "[✓] s1: look" in shell("plans", "mark", "1", "completed", "--notes", "well").stdout
    assert "1/2 steps completed (50%)" in shell("plans", "get").stdout
    refused = shell("plans", "mark", "9", "completed")
    assert (refused.exit_code, "its steps are 1 to 2" in refused.stderr) == (2, True)
    assert shell("plans", "update", "trip", "--step", "write", "--step", "send").exit_code == 0
    assert shell("plans", "delete", "trip").exit_code == 0
    assert shell("plans", "list").stdout == ""


async def test_the_statuses_of_steps_of_runs_are_understood() -> None:
    """Marking takes the words that runs and the plan's own text use, and stores the plan's statuses."""
    store = PlanStore("memory:")
    await store.create("trip", "Trip", ["book"])
    for word, stored in (("done", "completed"), ("running", "in_progress"), ("not started", "not_started")):
        assert (await store.mark_step(1, word)).steps[0].status == stored
