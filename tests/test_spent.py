"""One ledger: every model call of every role is charged, and what was spent survives pauses, crashes and processes."""

from pathlib import Path
from typing import Any

import pytest

from agent import Agent, Limits, Settings
from agent.testing import ScriptedModel, ask_user, call, finish_step, give_up, reply, submit_plan

UNIT = {"triage": 1, "plan": 10, "execute": 100, "judge": 1000, "deliver": 10_000}
"""Input tokens of one call, by role: each digit of the sum counts the calls of a role."""


def charged(role: str, *calls: Any, text: str = "") -> Any:
    return reply(text, calls, usage={"input_tokens": UNIT[role], "output_tokens": 1})


def model() -> ScriptedModel:
    """Two triage calls, two of planning (one a replan), six rounds, one judge, one delivery."""
    verdict = call("verdict", met=True, reason="it shows")
    sketch = submit_plan(["a"], need_thinking=True)
    first = submit_plan([{"content": "look", "done_when": [{"text": "seen", "judge": True}]}, "write"])
    second = submit_plan([{"content": "tell", "id": "s3"}])
    look, seen = call("look"), finish_step("seen", "s1.1")
    return ScriptedModel(
        roles={
            "triage": [charged("triage", ask_user("Which?")), charged("triage", sketch)],
            "plan": [charged("plan", first), charged("plan", second)],
            "execute": {
                "s1": [charged("execute", text="Looking."), charged("execute", look), charged("execute", seen)],
                "s2": [charged("execute", ask_user("How?")), charged("execute", give_up("cannot"))],
                "s3": [charged("execute", finish_step("told", "s3.result"))],
            },
            "judge": [charged("judge", verdict)],
            "deliver": [charged("deliver", text="Told.")],
        }
    )


def look() -> str:
    """Look."""
    return "seen"


async def test_every_call_is_charged_and_survives(tmp_path: Path) -> None:
    """R05, P12: the counters live in the checkpoint: after every pause another agent goes on, on the same file, and in
    the end triage, planning, rounds, judge and delivery all stand in one ledger."""
    scripted, storage = model(), f"sqlite:///{tmp_path}/runs.db"

    def fresh() -> Agent:
        return Agent(scripted, [look], storage=storage, effects={"look": "read"}, settings=Settings())

    run = await fresh().start("go", thread_id="t")
    for answer, tokens in (("this", 1), ("approve", 12), ("so", 1412), ("approve", 1522)):
        assert (await fresh().get("t")).spent["input_tokens"] == tokens == run.spent["input_tokens"]
        run = await fresh().resume("t", answer)
    scripted.assert_exhausted()
    assert run.status == "completed"
    assert run.spent["input_tokens"] == 2 * 1 + 2 * 10 + 6 * 100 + 1 * 1000 + 1 * 10_000
    assert run.spent["model_calls"] == run.spent["output_tokens"] == 12
    assert (run.spent["rounds"], run.spent["tool_calls"]) == (6, 1)
    assert (run.spent["questions"], run.spent["replans"]) == (2, 1)
    assert run.receipt is not None
    assert run.receipt["spent"] == run.spent


@pytest.mark.parametrize("limit", range(1, 13))
async def test_no_limit_of_calls_is_ever_exceeded(limit: int) -> None:
    """R05, D03: whatever the limit of model calls, wherever it is met, no more are made, and the run ends honestly."""
    scripted = model()
    settings = Settings(limits=Limits(model_calls=limit, rounds=100), on_exhausted="deliver", confirm="never")
    agent = Agent(scripted, [look], storage="memory:", effects={"look": "read"}, settings=settings)
    run = await agent.start("go")
    while run.status == "waiting":
        run = await agent.resume(run.thread_id, "this")
    assert len(scripted.requests) == run.spent["model_calls"] <= limit
    assert scripted.failures == []
    assert run.status == ("completed" if limit == 12 else "exhausted")
    assert run.answer
