"""A recurring request: which times there are, that a person must have confirmed them, and where they end."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from donewhen import Agent, Settings
from donewhen.state.people.edit import PlanEdit, edit_plan
from donewhen.state.plan.plan import read_plan
from donewhen.state.plan.rules import Rules
from donewhen.state.plan.schedule import WAYS, Schedule, next_moments, occurrences
from donewhen.state.plan.text import schedule_text
from donewhen.testing import ScriptedModel, ask_user, submit_plan
from tests.kit.flows import play

DAILY = {"at": "08:30", "timezone": "Europe/Berlin"}
TWENTY = {"every_minutes": 20}
EMPTY = {"every_minutes": None, "at": None, "weekdays": None, "cron": None, "timezone": None, "missed": "once"}


GOOD: list[dict[str, Any]] = [
    DAILY, TWENTY, {"every_minutes": 1}, {**DAILY, "weekdays": ["mon", "fri"]}, {**DAILY, "missed": "skip"},
    {"cron": "0 9 1 * *", "timezone": "Asia/Tokyo"}, {"at": "00:00", "timezone": "UTC"},
    {"at": "23:59", "timezone": "UTC"},
]  # fmt: skip


def test_an_interval_or_a_time_of_day_with_its_zone() -> None:
    """P18: interval of at least a minute, or `HH:MM` with a time zone."""
    for good in GOOD:
        assert Schedule.model_validate(good).model_dump(exclude_none=True) == {"missed": "once", **good}


@pytest.mark.parametrize("time", [{"at": "08:00", "weekdays": "mon-fri"}, {"cron": "0 8 * * *", "timezone": ""}])
async def test_a_time_of_day_without_a_zone_is_in_that_of_the_user(time: dict[str, Any]) -> None:
    """P18: the zone of the settings is filled in, where a person sees it; one that was written stays."""
    plans = [submit_plan(["report"], schedule=time), submit_plan(["report"], schedule={**time, "timezone": "UTC"})]
    for plan, zone in zip(plans, ("Asia/Tokyo", "UTC"), strict=True):
        model = ScriptedModel(roles={"triage": [plan]})
        async with Agent(model, storage="memory:", settings={"timezone": "Asia/Tokyo"}) as agent:
            (asked,) = (await agent.start("report every morning")).pending
        assert asked["plan"]["schedule"]["timezone"] == zone
        assert asked["next_runs"][0].endswith("T08:00" + ("+09:00" if zone == "Asia/Tokyo" else "+00:00"))


NO_TIMES = ["25:00", "24:00", "8:30", "08:60", "08:30:00", "٠٨:٣٠"]
NO_INTERVALS: list[Any] = [0, -5, 0.5, True, float("nan"), 10**9, "often"]
NO_CRONS = ["* * * * * *", "61 * * * *", "0 0 31 2 *", "@daily"]
BAD: list[dict[str, Any]] = [
    *[{"at": at, "timezone": "UTC"} for at in NO_TIMES],
    *[{"every_minutes": minutes} for minutes in NO_INTERVALS],
    *[{"cron": cron, "timezone": "UTC"} for cron in NO_CRONS],
    {"at": "08:30"}, {"at": "08:30", "timezone": "Berlin"}, {"at": "08:30", "timezone": "../../etc/passwd"},
    {"at": "08:30", "timezone": ""}, {"timezone": "UTC"}, {**DAILY, **TWENTY}, {"cron": "* * * * *"},
    {"cron": "0 9 * * *", **DAILY}, {"weekdays": ["mon"], **TWENTY}, {"weekdays": ["someday"], **DAILY},
    {"missed": "maybe", **DAILY}, {"missed": ["once"], **DAILY}, {"missed": True, **DAILY},
    *[{"weekdays": days, **DAILY} for days in (5, True, 1.5, {"mon": True}, {"mon": False}, [5], [["mon"]], [None])],
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_anything_else_is_refused(bad: dict[str, Any]) -> None:
    """P18: ✗ `25:00`, `0`, `-5`, both set: refused, in a plan with the place."""
    with pytest.raises(ValidationError):
        Schedule.model_validate(bad)
    found = read_plan({"title": "t", "steps": ["a"], "schedule": bad}, Rules())
    assert isinstance(found, list)
    assert found[0].startswith(("schedule", "the plan holds nan"))


NEAR_VALUES = st.sampled_from(
    [
        "",
        "mon",
        "mon-fri",
        "weekdays",
        "08:30",
        "*",
        "0 9 * * 1-5",
        "*/0 * * * *",
        "0 9 L * *",
        "UTC",
        "Europe/Berlin",
        "once",
    ]
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | NEAR_VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | NEAR_VALUES, inner, max_size=3),
    max_leaves=5,
)


@given(
    schedule=st.dictionaries(st.sampled_from([*Schedule.model_fields]), JSON_VALUES), way=st.sampled_from([*WAYS, ""])
)
def test_whatever_stands_in_a_field_is_read_or_refused(schedule: dict[str, Any], way: str) -> None:
    """P18: ✗ no type of a value breaks the reader, be it a model's plan or a person's edit; what is read has times."""
    written = {**schedule, **{"every_minutes": TWENTY, "at": DAILY, "cron": {"cron": "0 9 * * *"}}.get(way, {})}
    found = read_plan({"title": "t", "steps": ["a"], "schedule": written}, Rules(zone="UTC"))
    edit = edit_plan({"plan": {"schedule": written}}, {"title": "t", "steps": [], "schedule": DAILY})
    for plan in (found, edit.plan if isinstance(edit, PlanEdit) else []):
        if isinstance(plan, dict) and plan["schedule"]:
            with suppress(ValidationError):
                read = Schedule.model_validate(plan["schedule"]).model_dump(mode="json")
                assert len(next_moments(read, datetime.now(UTC))) == 3
                assert schedule_text(read)


@pytest.mark.parametrize("none", [None, {}, {"every_minutes": None, "at": None, "timezone": ""}])
def test_a_schedule_of_nothing_is_none(none: Any) -> None:
    """P18: models that must fill every field write nulls; that is no schedule."""
    found = read_plan({"title": "t", "steps": ["a"], "schedule": none}, Rules())
    assert isinstance(found, dict)
    assert found["schedule"] is None


def _model(*triage: Any) -> ScriptedModel:
    return ScriptedModel(roles={"triage": list(triage)})


async def test_the_time_is_shown_and_confirmed_and_ends_in_the_receipt() -> None:
    """P18, M2: the user confirms the concrete next times and what that covers; the outcome says what will happen."""
    model = _model(submit_plan(["send the report"], schedule=DAILY))
    flow = await play(model, settings=Settings(), answers=["approve"])
    model.assert_exhausted()
    shown, asked = flow.values["messages"][1].text, flow.pauses[0]
    assert "every day at 08:30 (Europe/Berlin)" in shown
    assert len(asked["next_runs"]) == 3
    assert all(datetime.fromisoformat(moment).strftime("%H:%M") == "08:30" for moment in asked["next_runs"])
    assert asked["next_runs"][0][:16].replace("T", " ") in shown
    assert "**Approving it covers:** every later run" in shown
    assert flow.run.outcome is not None
    assert (flow.status, flow.run.outcome["code"]) == ("completed", "scheduled")
    assert flow.run.outcome["receipt"]["schedule"] == {**EMPTY, **DAILY}
    assert flow.run.outcome["receipt"]["steps"] == []
    assert "Scheduled: every day at 08:30 (Europe/Berlin)" in flow.run.answer
    assert "worker" not in flow.run.answer, "who reads it may know of none"


@pytest.mark.parametrize(
    ("policy", "said", "kept"),
    [("never", "approve", {**EMPTY, **TWENTY}), ("complex", "approve", {**EMPTY, **TWENTY}), ("never", "cancel", None)],
)
async def test_no_policy_confirms_a_time(policy: Any, said: str, kept: Any) -> None:
    """P18: a plan with a schedule waits for a person even where plans do not; a cancelled one leaves none behind."""
    model = _model(submit_plan(["send the report"], complexity="simple", schedule=TWENTY))
    flow = await play(model, settings=Settings(confirm=policy), answers=[said])
    model.assert_exhausted()
    assert [pause["kind"] for pause in flow.pauses] == ["plan"]
    assert flow.status == ("completed" if kept else "cancelled")
    assert flow.run.receipt is not None
    assert flow.run.receipt["schedule"] == kept


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


ZONES = st.sampled_from(sorted(available_timezones() - {"localtime", "Factory"}))
BEGIN, DAYS = datetime(2026, 1, 1, tzinfo=UTC), 730


@given(ZONES, st.integers(0, 1439), st.integers(0, DAYS * 24 * 60))
def test_a_time_of_day_comes_once_a_day_in_every_zone(zone: str, minute: int, offset: int) -> None:
    """P18: in all zones each of sixty local days has its moment once, at its time, or right after a gap."""
    at = f"{minute // 60:02}:{minute % 60:02}"
    after, known = BEGIN + timedelta(minutes=offset), ZoneInfo(zone)
    found = [*islice(occurrences({"at": at, "timezone": zone}, after, after), 60)]
    assert found[0] > after
    assert [moment.astimezone(UTC) for moment in found] == sorted({moment.astimezone(UTC) for moment in found})
    wanted = [datetime.combine(moment.date(), datetime.strptime(at, "%H:%M").time(), known) for moment in found]
    for moment, exact in zip(found, wanted, strict=True):
        there = exact.astimezone(UTC).astimezone(known).strftime("%H:%M") == at
        assert (
            (moment.strftime("%H:%M") == at)
            if there
            else timedelta(0) < moment.replace(tzinfo=None) - exact.replace(tzinfo=None) <= timedelta(hours=24)
        )
    days = [moment.date() for moment in found]
    assert abs((days[-1] - days[0]).days - len(days) + 1) <= 1


@given(ZONES, st.integers(1, 10_000), st.integers(0, DAYS * 24 * 60))
def test_an_interval_is_as_long_as_it_says(zone: str, minutes: int, offset: int) -> None:
    """P18: every so many minutes is that many minutes of real time, counted from when it was confirmed."""
    after = BEGIN + timedelta(minutes=offset)
    found = [*islice(occurrences({"every_minutes": minutes, "timezone": zone}, after, BEGIN), 50)]
    exact = [moment.astimezone(UTC) for moment in found]
    assert after < exact[0] <= after + timedelta(minutes=minutes)
    assert all((moment - BEGIN) % timedelta(minutes=minutes) == timedelta(0) for moment in exact)
    assert {later - earlier for earlier, later in pairwise(exact)} == {timedelta(minutes=minutes)}


@pytest.mark.parametrize(
    ("after", "times"),
    [
        ("2027-03-27T12:00+00:00", ["2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"]),
        ("2027-10-30T12:00+00:00", ["2027-10-31T02:30:00+02:00", "2027-11-01T02:30:00+01:00"]),
        ("2027-10-31T01:10+00:00", ["2027-11-01T02:30:00+01:00", "2027-11-02T02:30:00+01:00"]),
    ],
)
def test_where_the_clock_is_put_forward_and_back(after: str, times: list[str]) -> None:
    """P18: a time that is skipped comes right after the gap, one that is there twice comes once."""
    found = occurrences({"at": "02:30", "timezone": "Europe/Berlin"}, datetime.fromisoformat(after), BEGIN)
    assert [moment.isoformat() for moment in islice(found, 2)] == times
