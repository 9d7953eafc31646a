"""Hostile plans, goals, answers, budgets, thread ids, filters and paths: each gets the right verdict, none gets out."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults import plans
from donewhen import Agent
from donewhen.state.errors import ConfigError
from donewhen.testing import ScriptedModel, answer, finish_step, submit_plan
from tests.kit.storage.servers import fresh_postgres_url

PLANS = list(plans.hostile_plans())


def url_of(kind: str, folder: Path) -> str:
    return fresh_postgres_url() if kind == "postgres" else f"sqlite:///{folder}/runs.db"


@pytest.mark.parametrize(("plan", "verdict"), [row[1:] for row in PLANS], ids=[row[0] for row in PLANS])
async def test_a_hostile_plan_is_corrected_or_does_no_harm(plan: Any, verdict: str) -> None:
    """F10, P07, P08, P09, C03: from a model it is corrected, from a person refused; what is taken starts at nothing."""
    assert await plans.from_a_model(plan, verdict)
    assert await plans.from_a_person(plan, verdict)


async def test_a_client_cannot_hand_in_the_state_of_a_run() -> None:
    """F10, C01: beside `messages`, what a client puts into the graph's input is ignored, and the plan is confirmed."""
    assert await plans.from_a_client()


@pytest.mark.parametrize("circle", [False, True])
def test_judging_a_plan_takes_linear_time(circle: bool) -> None:
    """F10: ten times the steps take about ten times as long; the least of three, as others use the processor too."""
    small, large = (min(plans.seconds_for(steps, circle) for _ in range(3)) for steps in (400, 4000))
    assert large < max(40 * small, 0.4)


def test_budgets_that_cannot_be_are_refused_by_name() -> None:
    """F10: negative, NaN, infinite and unknown ones, before anything starts."""
    assert plans.refused_settings() == len(plans.BUDGETS)
    with pytest.raises(ConfigError, match=r"limits\.rounds: .*greater than or equal to 0.*-5"):
        Agent("demo", storage="memory:", settings={"limits": {"rounds": -5}})


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_any_text_can_be_goal_feedback_and_answer(kind: str, tmp_path: Path) -> None:
    """F10: NUL and half characters too, which PostgreSQL and UTF-8 cannot hold."""
    for text in plans.TEXTS if kind == "sqlite" else plans.TEXTS[:2]:
        assert await plans.survives(text, url_of(kind, tmp_path)), repr(text[:20])


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_nul_in_what_a_model_writes_ends_no_run(kind: str, tmp_path: Path) -> None:
    """F10: a result with NUL goes into the brief of the next step, which PostgreSQL's saver keeps as plain JSON."""
    plan = submit_plan([{"content": "a\0b", "done_when": ["c\0d"]}, {"content": "two", "done_when": ["e"]}])
    execute = {"s1": [finish_step("f\0g", "s1.result")], "s2": [finish_step("h", "s2.result")]}
    with ScriptedModel(roles={"triage": [plan], "execute": execute, "deliver": ["i\0j"]}) as model:
        run = await Agent(model, storage=url_of(kind, tmp_path), settings={"confirm": "never"}).start("goal")
    assert (run.status, run.answer) == ("answered", "i\0j")


async def test_a_goal_of_a_megabyte_is_refused_before_anything_is_stored() -> None:
    """F10: with what to do instead."""
    agent = Agent(ScriptedModel([answer("hi")], strict=False), storage="memory:")
    with pytest.raises(Exception, match="Put long material into a file"):
        await agent.start("x" * 1_000_000)
    assert await agent.threads() == []
