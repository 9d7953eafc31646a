"""What a run tells while it works: typed events, in order, exactly one terminal one at the end."""

import json
import sys
from typing import Any

import pytest
from pydantic import TypeAdapter

from donewhen import Agent, Event, Limits, Settings, event_schema
from donewhen.state.errors import ModelError
from donewhen.testing import ScriptedModel, answer, ask_user, call, decline, finish_step, give_up, submit_plan
from tests.flows import FREE, Flow, one_step, play, steps

SHAPE: TypeAdapter[Any] = TypeAdapter(Event)
TERMINAL = ("waiting", "outcome", "error")


def look(x: str = "") -> str:
    """Look."""
    return f"seen {x}"


def well_formed(events: list[dict[str, Any]], starts: int = 1) -> None:
    """Every event is of its type and dumps to JSON; each stream begins once and ends once."""
    for event in events:
        SHAPE.validate_python(event, strict=True, extra="forbid")
        assert json.loads(json.dumps(event)) == event
    assert [e["type"] for e in events].count("started") == starts
    assert len([e for e in events if e["type"] in TERMINAL]) == starts
    assert events[0]["type"] == "started"
    assert events[-1]["type"] in TERMINAL


async def _whole_run() -> Flow:
    plan = [{"content": "look", "tools": ["look"]}, {"content": "write"}]
    rounds = {
        "s1": ["Looking closely at it now.", call("look", x="there"), call("nothing"), finish_step("seen", "s1.1")],
        "s2": [finish_step("written", "s2.result")],
    }
    return await play(steps(plan, rounds), [look], effects={"look": "read"})


async def test_a_run_is_told_in_order() -> None:
    """S01: events are typed and in the order in which things happened; the last one is the outcome."""
    flow = await _whole_run()
    well_formed(flow.events)
    kinds = [e["type"] for e in flow.events if e["type"] not in ("todos", "charged", "spent", "speech")]
    assert kinds == [
        "started",
        "goal",
        "mode",
        "plan",
        "step_started",
        "tool_started",
        "observation",
        "correction",
        "step_finished",
        "step_started",
        "step_finished",
        "outcome",
    ]
    assert flow.told("observation")[0]["id"] == "s1.1"
    assert [(e["step"], e["status"]) for e in flow.told("step_finished")] == [("s1", "done"), ("s2", "done")]
    assert (flow.events[-1]["status"], flow.events[-1]["text"]) == ("completed", "Done.")


async def test_the_checklist_follows_the_steps() -> None:
    """S01, U6: the todos told are those of the state, from pending to completed; the last one is the answer."""
    flow = await _whole_run()
    rows = [[todo["status"] for todo in event["todos"]] for event in flow.told("todos")]
    assert rows[0] == ["in_progress", "pending", "pending"]
    assert rows[-2] == ["completed", "completed", "pending"]
    assert rows[-1] == ["completed", "completed", "completed"]
    assert flow.told("todos")[-1]["todos"] == flow.values["todos"]


def test_events_have_a_schema() -> None:
    """A1, S01: one union told apart by `type`, for programs in any language."""
    schema = event_schema()
    assert schema["discriminator"]["propertyName"] == "type"
    assert {"started", "speech", "observation", "waiting", "outcome", "error"} <= set(
        schema["discriminator"]["mapping"]
    )


ENDS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "answered": (lambda: ScriptedModel([answer("Hi.")]), {}, "outcome"),
    "declined": (lambda: ScriptedModel([decline("r", "g")]), {}, "outcome"),
    "no plan": (lambda: ScriptedModel(["a", "b", "c"]), {}, "outcome"),
    "model error": (lambda: ScriptedModel([ModelError("no key", code="auth")]), {}, "outcome"),
    "step failed": (lambda: one_step([give_up("no")], deliver=[]), {"on_failure": "deliver"}, "outcome"),
    "out of budget": (
        lambda: one_step([], deliver=[]),
        {"limits": Limits(rounds=0), "on_exhausted": "stop"},
        "outcome",
    ),
    "asks": (lambda: ScriptedModel([ask_user("Which?")]), {}, "waiting"),
    "confirms": (lambda: ScriptedModel([submit_plan(["a"])]), {"confirm": "always"}, "waiting"),
    "bug": (lambda: one_step([[call("look")]]), {}, "error"),
}


@pytest.mark.parametrize("end", ENDS)
async def test_every_end_is_one_event(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S01: however a stream ends, failures included, exactly one terminal event is the last."""
    build, settings, last = ENDS[end]
    if end == "bug":
        monkeypatch.setattr(sys.modules["donewhen.graph.execute.act"], "observed", lambda *_: 1 / 0)
    agent = Agent(
        build(), [look], storage="memory:", effects={"look": "read"}, settings=Settings(**{**FREE, **settings})
    )
    events = [dict(event) async for event in agent.stream("go")]
    well_formed(events)
    assert events[-1]["type"] == last


async def test_a_resumed_stream_begins_and_ends_too() -> None:
    """S01: each stream of a thread begins with `started` and has one terminal event; nothing is told twice."""
    model = one_step([ask_user("Which?"), finish_step("x", "s1.1")])
    flow = await play(model, settings=Settings(), answers=["approve", "this"])
    model.assert_exhausted()
    well_formed(flow.events, starts=3)
    assert [e["type"] for e in flow.events if e["type"] in TERMINAL] == ["waiting", "waiting", "outcome"]
    assert len(flow.told("plan")) == len(flow.told("step_started")) == len(flow.told("step_finished")) == 1


async def test_long_texts_are_cut_by_characters() -> None:
    """S03: what an event shows of a long result is cut between characters, never inside one."""

    def big() -> str:
        """Give much."""
        return "字😀" * 5000

    model = one_step([call("big"), finish_step("x" * 10, "s1.1")])
    flow = await play(model, [big], effects={"big": "read"})
    model.assert_exhausted()
    (event,) = flow.told("observation")
    assert event["text"] == ("字😀" * 5000)[:300]
    event["text"].encode()
