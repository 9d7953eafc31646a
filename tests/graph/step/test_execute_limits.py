"""Limits hold whatever a model does, in whatever combination they are set, also for steps that run side by side."""

from typing import Any

import pytest

from donewhen import Models
from donewhen.testing import ScriptedModel, call, reply, submit_plan
from tests.kit.flows import play

EFFECTS: dict[str, Any] = {"look": "read"}
USAGE = {"input_tokens": 100, "output_tokens": 10}
PRICES = {"m": {"input": 1000.0, "output": 1000.0}}
COST = {
    "rounds": 1,
    "model_calls": 1,
    "input_tokens": 100,
    "output_tokens": 10,
    "cost_usd": 0.11,
    "active_seconds": 5.0,
}
"""Of one call of the model; how long it takes is up to the machine."""


def look(what: str) -> str:
    """Look at something."""
    return f"{what} is green"


def said(*calls: Any, text: str = "") -> Any:
    return reply(text, calls, usage=USAGE)


def talker(calls: int) -> ScriptedModel:
    """A model that never stops: it plans two parallel steps and calls tools, or only talks, in each for ever."""

    def work(messages: list[Any], tools: list[Any]) -> Any:
        return said(*(call("look", what=f"{len(messages)}.{n}") for n in range(calls)), text="Well.")

    plan = submit_plan([{"content": n, "depends_on": [], "tools": ["look"]} for n in ("one", "two")])
    roles = {"triage": lambda m, t: said(plan), "execute": work, "deliver": lambda m, t: said(text="Some.")}
    return ScriptedModel(roles=roles, model_name="m")


LIMITED = [
    {"rounds": 5},
    {"model_calls": 6},
    {"tool_calls": 5},
    {"input_tokens": 900},
    {"output_tokens": 90},
    {"cost_usd": 0.5},
    {"active_seconds": 0.2},
]


@pytest.mark.parametrize(("of", "calls"), [("limits", 4), ("step_limits", 4), ("limits", 0)])
@pytest.mark.parametrize("limit", LIMITED, ids=lambda limit: next(iter(limit)))
async def test_every_limit_stops_a_model_that_never_stops(of: str, limit: dict[str, Any], calls: int) -> None:
    """X08, R05: whatever limit is set; counted limits exactly, the others but for the calls in flight."""
    if calls == 0 and limit.keys() & {"tool_calls", "active_seconds"}:
        pytest.skip("a model that only talks makes no tool calls, and its steps fail before its time is over")
    key, amount = next(iter(limit.items()))
    settings = {"confirm": "never", "on_exhausted": "deliver", of: limit}
    flow = await play(Models(talker(calls), prices=PRICES), [look], effects=EFFECTS, settings=settings)
    assert flow.status == "exhausted"
    assert all(flow.step(id)["status"] == "exhausted" for id in ("s1", "s2"))
    # In flight when it ends: one call in each of two steps, and the delivery.
    flying = 0 if key in ("rounds", "model_calls", "tool_calls") else COST[key]
    for spent in [flow.run.spent] if of == "limits" else [flow.step(id)["spent"] for id in ("s1", "s2")]:
        assert spent[key] <= amount + (3 if of == "limits" else 1) * flying
    assert len([e for e in flow.journal if e["source"] == "tool"]) == flow.run.spent.get("tool_calls", 0)
