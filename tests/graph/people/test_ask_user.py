"""Questions to a person: shown, answered in any shape, answered by policy when nobody is there."""

from typing import Any

import pytest

from donewhen import Agent, Settings
from donewhen.testing import ScriptedModel, ask_user, give_up, submit_plan
from tests.kit.runs import asking, config, drawn, paused, said, scripted, step

ALONE = Settings(confirm="never")


async def test_a_replanner_asks_with_finished_steps_around() -> None:
    """X16, P17: a question while replanning keeps what is finished."""
    model = ScriptedModel(
        roles={
            "triage": [submit_plan([step("s1"), step("s2")])],
            "plan": [ask_user("How else?"), submit_plan([step("s3", "the other way")])],
            "execute": {"s1": [said("s1")], "s2": [give_up("it is locked")], "s3": [said("s3")]},
            "deliver": lambda *_: "Done.",
        }
    )
    agent = Agent(model, storage="memory:", settings=ALONE)
    run = await paused(agent)
    assert run.pending[0]["question"] == "How else?"
    ended = await agent.resume(run.thread_id, "the other way")
    assert ended.status == "completed"
    assert [row["id"] for row in (ended.receipt or {})["steps"]] == ["s1", "s3"]
    model.assert_exhausted()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2023, "2023"), ('{"answer": "blue"}', '{"answer"'), ([{"type": "response", "args": "blue"}], "blue"),
        ({"decisions": [{"type": "edit", "edited_action": {"name": "ask_user", "args": {"answer": "blue"}}}]}, "blue"),
    ],
    ids=repr,
)  # fmt: skip
async def test_answers_in_every_shape(value: Any, text: str) -> None:
    """X16, C02: what clients send is the answer."""
    agent = Agent(asking(), storage="memory:", settings=ALONE)
    run = await agent.resume((await paused(agent)).thread_id, value)
    assert run.status == "completed"
    assert (run.receipt or {})["questions"][0]["answer"].startswith(text)


async def test_cancel_and_later_mean_what_they_mean_everywhere() -> None:
    """C09, Q3: “later” leaves the question open without a complaint; “cancel” ends the run."""
    agent = Agent(asking(), storage="memory:", settings=ALONE)
    run = await paused(agent)
    left = await agent.resume(run.thread_id, "later")
    assert (left.status, left.problem, left.pending[0]["id"]) == ("waiting", "", run.pending[0]["id"])
    ended = await agent.resume(run.thread_id, "Cancel.")
    assert (ended.status, ended.steps["s1"]["status"]) == ("cancelled", "skipped")


async def test_no_answer_is_no_evidence() -> None:
    """X16: a question turned down comes back as an error; the step goes on without."""
    model = scripted(submit_plan([step("s1")]), {"s1": [ask_user("Which colour?"), said("s1", "any colour")]})
    agent = Agent(model, storage="memory:", settings=ALONE)
    run = await agent.resume((await paused(agent)).thread_id, {"type": "reject"})
    assert run.status == "completed"
    assert "[s1.1] user error" in model.requests[2].text


async def test_an_empty_answer_keeps_the_question() -> None:
    """C02: nothing is no answer; the question stays, under its id, and says why."""
    agent = Agent(asking(), storage="memory:", settings=ALONE)
    first = await paused(agent)
    for nothing in ("", "   ", None, {}, []):
        run = await agent.resume(first.thread_id, nothing)
        assert run.status == "waiting"
        assert run.problem
        assert run.pending[0]["id"] == first.pending[0]["id"]
        await drawn(agent, run)
    assert (await agent.resume(first.thread_id, "blue")).status == "completed"


async def test_cancel_at_a_question_ends_the_run() -> None:
    """C02: the explicit decision ends the run, and what was open is closed in the conversation."""
    model = scripted(submit_plan([step("s1")]), {"s1": [ask_user("Which colour?")]}, deliver=())
    agent = Agent(model, storage="memory:", settings=ALONE)
    run = await agent.resume((await paused(agent)).thread_id, {"type": "cancel"})
    assert run.status == "cancelled"
    assert (run.receipt or {})["approvals"][-1]["decision"] == "cancel"
    messages = (await agent.graph.aget_state(config(run.thread_id))).values["messages"]
    assert [m.type for m in messages] == ["human", "ai", "ai", "tool", "tool", "ai"]
    model.assert_exhausted()
