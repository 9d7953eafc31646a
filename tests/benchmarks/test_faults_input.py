"""Hostile plans, goals, answers, budgets, thread ids, filters and paths: each gets the right verdict, none gets out."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults import escapes, plans
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
    for text in plans.TEXTS if kind == "sqlite" else plans.TEXTS[:4]:
        assert await plans.survives(text, url_of(kind, tmp_path)), repr(text[:20])


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_nul_in_what_a_model_writes_ends_no_run(kind: str, tmp_path: Path) -> None:
    """F10: a result with NUL goes into the brief of the next step, which PostgreSQL's saver keeps as plain JSON."""
    plan = submit_plan([{"content": "a\0b", "done_when": ["c\0d"]}, {"content": "two", "done_when": ["e"]}])
    execute = {"s1": [finish_step("f\0g", "s1.result")], "s2": [finish_step("h", "s2.result")]}
    with ScriptedModel(roles={"triage": [plan], "execute": execute, "deliver": ["i\0j"]}) as model:
        run = await Agent(model, storage=url_of(kind, tmp_path), settings={"confirm": "never"}).start("goal")
    assert (run.status, run.answer) == ("completed", "i\0j")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_thread_ids_reach_no_other_thread_and_no_file(kind: str, tmp_path: Path) -> None:
    """F12: paths, SQL, dots and wildcards are names like any other; what no database can hold is refused."""
    ids = escapes.THREAD_IDS if kind == "sqlite" else escapes.THREAD_IDS[7:13]
    assert await escapes.thread_escapes(url_of(kind, tmp_path), tmp_path, ids) == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_filter_keys_are_no_sql(kind: str, tmp_path: Path) -> None:
    """F12 (CVE-2025-67644): a key with SQL in it finds nothing and changes nothing."""
    made, escaped = await escapes.filter_escapes(url_of(kind, tmp_path))
    assert made == len(escapes.FILTER_KEYS) * 5
    assert escaped == []


async def test_no_workspace_tool_leaves_its_root(tmp_path: Path) -> None:
    """F12: dots, absolute paths, links, NUL, in every tool that takes a path."""
    made, escaped = await escapes.path_escapes(tmp_path)
    assert made >= 10 * len(escapes.PATHS)
    assert escaped == []


async def test_a_goal_of_a_megabyte_is_refused_before_anything_is_stored() -> None:
    """F10: with what to do instead."""
    agent = Agent(ScriptedModel([answer("hi")], strict=False), storage="memory:")
    with pytest.raises(Exception, match="Put long material into a file"):
        await agent.start("x" * 1_000_000)
    assert await agent.threads() == []
