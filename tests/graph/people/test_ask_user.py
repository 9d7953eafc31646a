"""Questions to a person: shown, answered in any shape, answered by policy when nobody is there."""

from typing import Any

import pytest

from donewhen import Agent, Settings
from donewhen.testing import ask_user, submit_plan
from tests.kit.runs import config, paused, scripted, step

ALONE = Settings(confirm="never")


@pytest.mark.parametrize("end", ["Cancel.", {"type": "cancel"}], ids=str)
async def test_cancel_and_later_mean_what_they_mean_everywhere(end: Any) -> None:
    """C02, C09, Q3: “later” leaves the question open without a complaint; to cancel ends the run with its call."""
    model = scripted(submit_plan([step("s1")]), {"s1": [ask_user("Which colour?")]}, deliver=())
    agent = Agent(model, storage="memory:", settings=ALONE)
    run = await paused(agent)
    left = await agent.resume(run.thread_id, "later")
    assert (left.status, left.problem, left.pending[0]["id"]) == ("waiting", "", run.pending[0]["id"])
    ended = await agent.resume(run.thread_id, end)
    assert (ended.status, ended.steps["s1"]["status"]) == ("cancelled", "skipped")
    assert (ended.receipt or {})["approvals"][-1]["decision"] == "cancel"
    messages = (await agent.graph.aget_state(config(run.thread_id))).values["messages"]
    assert [m.type for m in messages] == ["human", "ai", "ai", "tool", "tool", "ai"]
    model.assert_exhausted()
