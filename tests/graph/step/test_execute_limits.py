"""Limits hold whatever a model does, in whatever combination they are set, also for steps that run side by side."""

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from donewhen.testing import ScriptedModel, ask_user, call, finish_step, give_up, reply, submit_plan
from tests.kit.flows import play

EFFECTS: dict[str, Any] = {"look": "read", "send": "write", "holds": "read"}
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


def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


def holds(what: str) -> str:
    """Whether it holds."""
    return "yes"


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


@pytest.mark.parametrize("of", ["limits", "step_limits"])
@pytest.mark.parametrize("limit", LIMITED, ids=lambda limit: next(iter(limit)))
@pytest.mark.parametrize("calls", [0, 1, 4], ids="calls={}".format)
async def test_every_limit_stops_a_model_that_never_stops(of: str, limit: dict[str, Any], calls: int) -> None:
    """X08, R05: whatever limit is set; counted limits exactly, the others but for the calls in flight."""
    if calls == 0 and "tool_calls" in limit:
        pytest.skip("a model that only talks makes no tool calls")
    key, amount = next(iter(limit.items()))
    settings = {"confirm": "never", "on_exhausted": "deliver", of: limit}
    flow = await play(talker(calls), [look], effects=EFFECTS, settings=settings, prices=PRICES)
    assert flow.status == "exhausted"
    assert all(flow.step(id)["status"] == "exhausted" for id in ("s1", "s2"))
    # In flight when it ends: one call in each of two steps, and the delivery.
    flying = 0 if key in ("rounds", "model_calls", "tool_calls") else COST[key]
    for spent in [flow.run.spent] if of == "limits" else [flow.step(id)["spent"] for id in ("s1", "s2")]:
        assert spent[key] <= amount + (3 if of == "limits" else 1) * flying
    assert len([e for e in flow.journal if e["source"] == "tool"]) == flow.run.spent.get("tool_calls", 0)


class Whim:
    """A model that does anything legal and illegal, by chance, but plans sensibly."""

    def __init__(self, seed: int, steps: list[dict[str, Any]]) -> None:
        self.chance, self.steps = random.Random(seed), steps

    def triage(self, messages: list[Any], tools: list[Any]) -> Any:
        return said(submit_plan(self.steps))

    def draft(self, messages: list[Any], tools: list[Any]) -> Any:
        ids = [f"r{self.chance.randrange(10**6)}" for _ in self.steps]
        return said(submit_plan([{"id": id, "content": "again", "depends_on": []} for id in ids]))

    def execute(self, messages: list[Any], tools: list[Any]) -> Any:
        number = self.chance.randrange(10**6)
        looks = [call("look", what=str(number % 5)) for _ in range(self.chance.randrange(1, 5))]
        options: list[Any] = [
            said(*looks),
            said(*looks),
            said(call("send", to=str(number % 3))),
            said(call("send", to="granted"), *looks, call("send", to="b")),
            said(text="Hm."),
            said(call("nothing")),
            said(ask_user(f"Question {number}?")),
            said(finish_step("ok", "s1.1")),
            said(finish_step("ok", ["s1.result", "r1.1"])),
            said(give_up("enough", self.chance.choice(["failed", "blocked", "replan"]))),
        ]
        return self.chance.choice(options)

    def model(self) -> ScriptedModel:
        roles = {"triage": self.triage, "plan": self.draft, "execute": self.execute}
        verdict = call("verdict", met=self.chance.random() < 0.5, reason="seen")
        roles |= {"deliver": lambda m, t: said(text="So."), "judge": lambda m, t: said(verdict)}
        return ScriptedModel(roles=roles, model_name="m")


class People:
    """Somebody who answers everything, extends a few budgets, and then has had enough."""

    def __init__(self, seed: int) -> None:
        self.chance, self.extended = random.Random(seed), 0

    def answer(self, pause: dict[str, Any]) -> Any:
        if pause["kind"] == "tool":
            return self.chance.choice(["approve", "reject"])
        if pause["kind"] != "budget":
            return "stop" if pause.get("about") else "some answer"
        self.extended += 1
        choice = self.chance.choice(["extend", "extend", "deliver", "stop", "replan"]) if self.extended < 5 else "stop"
        return {"extend": pause["suggested"]} if choice == "extend" else choice


def small(**most: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={key: st.integers(0, of) for key, of in most.items()})


AMOUNTS = small(model_calls=25, tool_calls=12, input_tokens=2500, output_tokens=250, questions=3, cost_usd=3)
POLICY = st.fixed_dictionaries(
    {
        "on_exhausted": st.sampled_from(["ask", "deliver", "stop"]),
        "on_failure": st.sampled_from(["ask", "deliver", "replan"]),
        "verification": st.sampled_from(["claimed", "grounded", "judged"]),
        "max_parallel": st.integers(1, 3),
    }
)


@given(st.integers(0, 10**6), AMOUNTS, AMOUNTS, st.integers(1, 30), st.integers(1, 8), POLICY)
def test_any_run_ends_and_keeps_its_counted_limits(
    seed: int, run: Any, step: Any, rounds: int, step_rounds: int, policy: Any
) -> None:
    """X08, X10, R05: any limits, any decisions, any policy, any answers; nothing goes round for ever."""
    check = {"text": "checked", "check": {"tool": "holds", "arguments": {"what": "it"}, "expect": "ok"}}
    steps = [
        {"content": "one", "depends_on": [], "tools": ["look", "send"], "done_when": [check, "and seen"]},
        {"content": "two", "depends_on": [], "tools": ["look"]},
        {"content": "three", "depends_on": ["s1"]},
    ]
    limits = {"rounds": rounds, "replans": 2, **run}
    settings = {"confirm": "never", "limits": limits, "step_limits": {"rounds": step_rounds, **step}, **policy}
    people = People(seed)
    model = Whim(seed, steps).model()
    playing = play(
        model, [look, send, holds], effects=EFFECTS, settings=settings, prices=PRICES, answers=[people.answer], most=120
    )
    flow = asyncio.run(playing)
    assert flow.status in ("completed", "partial", "failed", "cancelled", "exhausted")
    granted = flow.values.get("granted") or {}
    for key in ("rounds", "model_calls", "tool_calls", "replans"):
        if key in limits:
            assert flow.run.spent.get(key, 0) <= limits[key] + granted.get(key, 0), key
    calls = [e for e in flow.journal if e["source"] in ("tool", "check") and e["effect"]]
    assert len(calls) == flow.run.spent.get("tool_calls", 0)
    assert len({e["id"] for e in flow.journal}) == len(flow.journal), "ids are unique in a run"
