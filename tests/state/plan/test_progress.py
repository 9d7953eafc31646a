"""What runs next: for any plan, any way the steps end and any budget, nothing twice, nothing early, and an end."""

from cProfile import Profile
from fractions import Fraction
from pstats import Stats
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from donewhen.state.ledger import Limits, add, first_exhausted, remaining
from donewhen.state.plan.next import RESERVE, block_unreachable, next_move
from donewhen.state.plan.order import ancestors, needs_of
from donewhen.state.plan.steps import fresh_records, next_needs
from donewhen.state.settings import Settings
from donewhen.state.statuses import FINAL, fresh_record

ENDS = ("done", "done", "done", "failed", "blocked", "exhausted", "waiting", "ready", "calls", "claim", "finished")


@st.composite
def plans(draw: st.DrawFn, most: int = 7) -> dict[str, Any]:
    """Any shape: chains, fans, needs of later steps, circles and steps that do not exist."""
    ids = [f"s{n}" for n in range(1, draw(st.integers(1, most)) + 1)]
    needs = st.none() | st.lists(st.sampled_from([*ids, "gone"]), unique=True, max_size=3)
    return {"steps": [{"id": id, "content": id, "depends_on": draw(needs)} for id in ids]}


def sensible(plan: dict[str, Any]) -> bool:
    """Whether every step could ever run: no circle, no step that does not exist, none needing itself."""
    left = {step["id"]: set(needs_of(plan)[step["id"]]) for step in plan["steps"]}
    while ready := [id for id, needs in left.items() if not needs]:
        for id in ready:
            del left[id]
        for needs in left.values():
            needs.difference_update(ready)
    return not left


LIMITS = st.builds(
    Limits,
    rounds=st.none() | st.integers(0, 12),
    model_calls=st.none() | st.integers(0, 12),
    tool_calls=st.none() | st.integers(0, 6),
    cost_usd=st.none() | st.floats(0, 2),
    input_tokens=st.none() | st.integers(0, 5000),
)


class World:
    """Steps that do as they are told by the draw, and a person who answers everything."""

    def __init__(self, data: st.DataObject, plan: dict[str, Any], settings: Settings, writers: set[str]) -> None:
        self.data, self.plan, self.settings, self.writers = data, plan, settings, writers
        self.records: dict[str, Any] = fresh_records(plan, {}, None)
        self.spent: dict[str, float] = {}
        self.granted: dict[str, float] = {}
        self.extensions = 0

    def run(self) -> str:
        for _ in range(3000):
            run = {"plan": self.plan, "steps": self.records, "spent": self.spent, "granted": self.granted}
            move = next_move(run, self.settings, self.writers)
            for id, change in move.changes.items():
                assert self.records[id]["status"] not in FINAL, f"{id} had ended"
                self.records[id] |= change
            if move.kind == "end":
                return move.key
            if move.kind == "budget" and not self.budget(move):
                return move.key
            if move.kind == "dispatch":
                self.dispatch(move)
            elif move.kind == "ask":
                assert move.steps
                self.records[move.steps[0]] |= {"status": "ready"}
            elif move.kind == "failed":
                for id in move.steps:
                    self.records[id]["handled"] = True
        raise AssertionError("it never ends")

    def dispatch(self, move: Any) -> None:
        assert 1 <= len(move.steps) <= self.settings.max_parallel
        assert tuple(move.allowances) == move.steps
        self.check_shares(move)
        for id, allowance in move.allowances.items():
            record = self.records[id]
            assert record["status"] in ("pending", "ready"), f"{id} runs again after it was {record['status']}"
            for other in needs_of(self.plan)[id]:
                assert self.records[other]["status"] == "done", f"{id} runs before {other}"
            assert first_exhausted(allowance, next_needs(record)) is None, "sent off without anything to spend"
        for id, allowance in move.allowances.items():
            self.work(id, allowance)

    def check_shares(self, move: Any) -> None:
        left = remaining(self.settings.limits, self.granted, self.spent)
        for key, amount in left.items():
            free = max(0, amount - RESERVE.get(key, 0))
            assert sum(Fraction(one[key]) for one in move.allowances.values()) <= Fraction(free)

    def work(self, id: str, allowance: dict[str, float]) -> None:
        record, end = self.records[id], self.data.draw(st.sampled_from(ENDS))
        cost: dict[str, float] = dict.fromkeys(next_needs(record), 1)
        cost |= {"cost_usd": self.data.draw(st.sampled_from([0.0, 0.01, 0.5])), "input_tokens": 700}
        self.spent = add(self.spent, cost)
        record["spent"] = add(record["spent"], cost)
        record |= {"calls": [], "claim": None, "status": end}
        if end == "calls":
            record |= {"status": "ready", "calls": [{"name": "tool", "args": {}}]}
        elif end == "claim":
            record |= {
                "status": "ready",
                "claim": {"needs": self.data.draw(st.sampled_from(["tool_calls", "model_calls"]))},
            }
        elif end == "finished":
            record |= {"status": "done", "finished_task": "enough is known"}

    def budget(self, move: Any) -> bool:
        """A person extends a few times, then ends the step or the run."""
        assert move.key
        self.extensions += 1
        if move.scope:
            record = self.records[move.scope]
            if self.extensions > 8:
                record |= {"status": "exhausted", "handled": True}
            else:
                record |= {"status": "ready", "granted": add(record["granted"], {move.key: 2})}
            return True
        if self.extensions <= 8:
            self.granted = add(self.granted, {move.key: 2})
        return self.extensions <= 8


@given(st.data(), plans(), LIMITS, LIMITS, st.integers(1, 4), st.booleans())
def test_it_always_ends_and_never_runs_a_step_twice_or_early(
    data: st.DataObject, plan: Any, limits: Limits, step_limits: Limits, parallel: int, writing: bool
) -> None:
    """X04, X08, X09, R05: checked at every dispatch, over all ways in which steps can end or wait."""
    settings = Settings(limits=limits, step_limits=step_limits, max_parallel=parallel)
    world = World(data, plan, settings, {step["id"] for step in plan["steps"]} if writing else set())
    key = world.run()
    statuses = {id: record["status"] for id, record in world.records.items()}
    if key in ("worked", "finished_early"):
        assert all(status in FINAL for status in statuses.values()), statuses
    if key == "worked" and not sensible(plan):
        assert "blocked" in statuses.values() or any(r["finished_task"] for r in world.records.values())


@given(plans(), st.data())
def test_whatever_needs_a_step_that_ended_badly_is_blocked(plan: Any, data: st.DataObject) -> None:
    """X09: directly or through others, in whatever order the plan lists them."""
    ids = [step["id"] for step in plan["steps"]]
    records = {
        id: {"status": data.draw(st.sampled_from(["pending", "pending", "done", "failed", "ready"]))} for id in ids
    }
    after = {id: {**records[id], **change} for id, change in block_unreachable(plan, records).items()}
    after = {**records, **after}
    for id in ids:
        hopeless = any(
            after.get(other, {"status": "failed"})["status"] in ("failed", "blocked") for other in needs_of(plan)[id]
        )
        if records[id]["status"] in ("pending", "ready"):
            assert (after[id]["status"] == "blocked") == hopeless
            assert not hopeless or after[id]["reason"].startswith("needs ")
        else:
            assert after[id] == records[id]


def test_a_new_attempt_counts_on_and_forgets_no_rejection() -> None:
    """X15: ids and keys are never used twice, and what a person rejected stays rejected."""
    record = fresh_record({**fresh_record(), "observed": 7, "rejected": {"abc": "why"}, "rounds": 4})
    assert (record["attempt"], record["observed"], record["rejected"], record["rounds"]) == (2, 7, {"abc": "why"}, 0)


@pytest.mark.parametrize("needs", ["all before", "the one before", "the first"])
def test_a_move_in_a_long_plan_is_linear_work(needs: str) -> None:
    """P09, R09: to say what comes next, and on what a step builds, takes four times the work in a plan four times as
    long; counted in calls, not in seconds."""

    def calls(count: int) -> int:
        declared = {
            "all before": lambda n: None,
            "the one before": lambda n: [f"s{n - 1}"],
            "the first": lambda n: ["s0"],
        }
        steps = [{"id": f"s{n}", "content": "x", "depends_on": declared[needs](n) if n else []} for n in range(count)]
        run: Any = {"plan": {"steps": steps}, "steps": {step["id"]: fresh_record() for step in steps}}
        for n in range(count // 2):
            run["steps"][f"s{n}"]["status"] = "done"
        profile = Profile()
        profile.enable()
        move = next_move(run, Settings(max_parallel=1))
        built_on = ancestors(run["plan"], f"s{count - 1}")
        profile.disable()
        assert move.steps == (f"s{count // 2}",)
        assert len(built_on) == (1 if needs == "the first" else count - 1)
        return int(Stats(profile).total_calls)  # type: ignore[attr-defined]

    assert calls(400) < 5 * calls(100)
