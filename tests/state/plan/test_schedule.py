"""A recurring request: which times there are, that a person must have confirmed them, and where they end."""

from typing import Any

import pytest
from pydantic import ValidationError

from donewhen import Settings
from donewhen.state.plan.plan import read_plan
from donewhen.state.plan.rules import Rules
from donewhen.state.plan.schedule import Schedule
from donewhen.testing import ScriptedModel, ask_user, finish_step, submit_plan
from tests.flows import play, steps

DAILY = {"at": "08:30", "timezone": "Europe/Berlin"}
TWENTY = {"every_minutes": 20}


@pytest.mark.parametrize(
    "good",
    [DAILY, TWENTY, {"every_minutes": 1}, {"at": "00:00", "timezone": "UTC"}, {"at": "23:59", "timezone": "UTC"}],
)
def test_an_interval_or_a_time_of_day_with_its_zone(good: dict[str, Any]) -> None:
    """P18: interval of at least a minute, or `HH:MM` with a time zone."""
    assert Schedule.model_validate(good).model_dump(exclude_none=True) == good


@pytest.mark.parametrize(
    "bad",
    [
        {"at": "25:00", "timezone": "UTC"},
        {"at": "24:00", "timezone": "UTC"},
        {"at": "8:30", "timezone": "UTC"},
        {"at": "08:60", "timezone": "UTC"},
        {"at": "08:30:00", "timezone": "UTC"},
        {"at": "٠٨:٣٠", "timezone": "UTC"},
        {"at": "08:30"},
        {"at": "08:30", "timezone": "Berlin"},
        {"at": "08:30", "timezone": "../../etc/passwd"},
        {"at": "08:30", "timezone": ""},
        {"timezone": "UTC"},
        {"every_minutes": 0},
        {"every_minutes": -5},
        {"every_minutes": 0.5},
        {"every_minutes": True},
        {"every_minutes": float("nan")},
        {"every_minutes": 10**9},
        {"every_minutes": "often"},
        {**DAILY, **TWENTY},
        {"cron": "* * * * *"},
    ],
)
def test_anything_else_is_refused(bad: dict[str, Any]) -> None:
    """P18: ✗ `25:00`, `0`, `-5`, both set: refused, in a plan with the place."""
    with pytest.raises(ValidationError):
        Schedule.model_validate(bad)
    found = read_plan({"title": "t", "steps": ["a"], "schedule": bad}, Rules())
    assert isinstance(found, list)
    assert found[0].startswith(("schedule", "the plan holds nan"))


@pytest.mark.parametrize("none", [None, {}, {"every_minutes": None, "at": None, "timezone": ""}])
def test_a_schedule_of_nothing_is_none(none: Any) -> None:
    """P18: models that must fill every field write nulls; that is no schedule."""
    found = read_plan({"title": "t", "steps": ["a"], "schedule": none}, Rules())
    assert isinstance(found, dict)
    assert found["schedule"] is None


def _model(*triage: Any) -> ScriptedModel:
    return steps([], {"s1": [finish_step("x", "s1.result")]}, triage=list(triage))


async def test_the_time_is_shown_and_confirmed_and_ends_in_the_receipt() -> None:
    """P18: the user sees the concrete time with the plan; once confirmed it stands in `outcome.receipt["schedule"]`."""
    model = _model(submit_plan(["send the report"], schedule=DAILY))
    flow = await play(model, settings=Settings(), answers=["approve"])
    model.assert_exhausted()
    assert "every day at 08:30 (Europe/Berlin)" in flow.values["messages"][1].text
    assert flow.run.outcome is not None
    assert flow.run.outcome["receipt"]["schedule"] == {"every_minutes": None, **DAILY}


@pytest.mark.parametrize("policy", ["never", "complex"])
async def test_no_policy_confirms_a_time(policy: Any) -> None:
    """P18: a plan with a schedule waits for a person even where plans do not."""
    model = _model(submit_plan(["send the report"], complexity="simple", schedule=TWENTY))
    flow = await play(model, settings=Settings(confirm=policy), answers=["approve"])
    model.assert_exhausted()
    assert [pause["kind"] for pause in flow.pauses] == ["plan"]
    assert flow.run.receipt is not None
    assert flow.run.receipt["schedule"] == {"every_minutes": 20, "at": None, "timezone": None}


async def test_a_time_that_was_not_confirmed_is_no_schedule() -> None:
    """P18: a cancelled plan leaves no schedule behind."""
    model = ScriptedModel(roles={"triage": [submit_plan(["send the report"], schedule=DAILY)]})
    flow = await play(model, settings=Settings(), answers=["cancel"])
    assert flow.status == "cancelled"
    assert flow.run.receipt is not None
    assert flow.run.receipt["schedule"] is None


async def test_an_unknown_time_is_asked_for() -> None:
    """P18: an impossible time is a correction; the planner asks, and the answered time is what is confirmed."""
    model = _model(
        submit_plan(["send the report"], schedule={"at": "25:00", "timezone": "UTC"}),
        ask_user("At what time, and in which time zone?"),
        submit_plan(["send the report"], schedule=DAILY),
    )
    flow = await play(model, settings=Settings(), answers=["08:30 in Berlin", "approve"])
    model.assert_exhausted()
    assert "'25:00' is not a time of day HH:MM between 00:00 and 23:59" in model.requests[1].text
    assert "08:30 in Berlin" in model.requests[2].text
    assert flow.run.receipt is not None
    assert flow.run.receipt["schedule"]["at"] == "08:30"
