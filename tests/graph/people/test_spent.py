"""One ledger: every model call of every role is charged, and what was spent survives pauses, crashes and processes."""

from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, Limits, Settings
from donewhen.testing import ScriptedModel, ask_user, audit, call, finish_step, give_up, reply, submit_plan

UNIT = {"triage": 1, "plan": 10, "execute": 100, "judge": 1000, "deliver": 10_000}
"""Input tokens of one call, by role: each digit of the sum counts the calls of a role."""


def charged(role: str, *calls: Any, text: str = "") -> Any:
    return reply(text, calls, usage={"input_tokens": UNIT[role], "output_tokens": 1})


def model() -> ScriptedModel:
    """Two triage calls, two of planning (one a replan), six rounds, a step's judge and the run's, one delivery."""
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
            "judge": [charged("judge", audit()), charged("judge", audit())],
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
    assert run.spent["input_tokens"] == 2 * 1 + 2 * 10 + 6 * 100 + 2 * 1000 + 1 * 10_000
    assert run.spent["model_calls"] == run.spent["output_tokens"] == 13
    assert (run.spent["rounds"], run.spent["tool_calls"]) == (6, 1)
    assert (run.spent["questions"], run.spent["replans"]) == (2, 1)
    assert run.receipt is not None
    assert run.receipt["spent"] == run.spent


@pytest.mark.parametrize("limit", range(1, 14))
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
    assert run.status == {13: "completed", 12: "partial"}.get(limit, "exhausted")
    assert run.answer


def working() -> ScriptedModel:
    """One step, answered by what is seen, however often and in whichever branch it is asked."""

    def execute(messages: list[Any], tools: list[Any]) -> Any:
        seen = any(message.text.startswith("[") for message in messages)
        return charged("execute", finish_step("seen", "s1.1") if seen else call("look"))

    plan = submit_plan([{"content": "look", "tools": ["look"]}])
    told: dict[str, Any] = {"triage": lambda *_: charged("triage", plan), "execute": execute}
    told["judge"] = lambda *_: charged("judge", audit())
    return ScriptedModel(roles={**told, "deliver": lambda *_: charged("deliver", text="Seen.")})


async def test_a_fork_counts_from_where_it_forked() -> None:
    """R05: what the other branch spent since is not this one's; both keep their own books."""
    agent = Agent(working(), [look], storage="memory:", effects={"look": "read"})
    run = await agent.start("go", thread_id="t")
    run = await agent.resume("t", "approve")
    assert run.spent["input_tokens"] == 1 + 2 * 100 + 1000
    history = [state async for state in agent.graph.aget_state_history({"configurable": {"thread_id": "t"}})]
    paused = next(state for state in history if state.next == ("confirm",))
    await agent.graph.ainvoke(None, paused.config)
    assert (await agent.get("t")).spent["input_tokens"] == 1
    again = await agent.resume("t", "approve")
    assert again.spent["input_tokens"] == run.spent["input_tokens"]
    ended = await agent.graph.aget_state(history[0].config)
    assert ended.values["spent"] == run.spent


async def test_what_was_granted_is_not_granted_to_the_next_request() -> None:
    """D04: fresh budgets: the limits are those of the settings again, and nothing is spent yet."""
    settings = Settings(limits=Limits(rounds=1), confirm="never")
    agent = Agent(working(), [look], storage="memory:", effects={"look": "read"}, settings=settings)
    for _ in range(2):
        run = await agent.start("go", thread_id="t")
        assert (run.status, run.pending[0]["kind"]) == ("waiting", "budget")
        assert (run.spent["rounds"], run.limits["rounds"]) == (1, 1)
        run = await agent.resume("t", "extend rounds 5")
        assert (run.status, run.limits["rounds"]) == ("completed", 6)


async def test_a_question_about_a_limit_names_the_others_that_would_not_last() -> None:
    """X08: who agrees to what is suggested is asked once, not about one limit after the other."""
    names = [f"s{number}" for number in range(1, 6)]
    plan = submit_plan([{"content": f"look at {name}", "done_when": ["seen"]} for name in names])
    rounds = {name: [call("look"), call("look"), finish_step("seen", f"{name}.1")] for name in names}
    scripted = ScriptedModel(roles={"triage": [plan], "execute": rounds, "deliver": ["Seen."]})
    settings = Settings(confirm="never", limits=Limits(rounds=7, model_calls=10, tool_calls=6))
    agent = Agent(scripted, [look], storage="memory:", effects={"look": "read"}, settings=settings)
    run = await agent.start("go")
    assert set(run.pending[0]["suggested"]) == {"rounds", "model_calls", "tool_calls"}
    run = await agent.resume(run, "extend")
    assert run.status == "completed"
