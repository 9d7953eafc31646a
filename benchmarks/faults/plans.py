"""F10: plans, goals, answers and budgets from somebody who means harm, or knows no better."""

import contextlib
import gc
import itertools
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.faults.figures import Figure, Measured, of
from benchmarks.report import table
from donewhen import Agent, Run
from donewhen.state.errors import ConfigError
from donewhen.state.plan.plan import Rules, read_plan
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, observed
from tests.kit.storage.servers import fresh_postgres_url

GOOD = {"title": "Good", "complexity": "simple", "steps": [{"id": "s1", "content": "ask", "done_when": ["answered"]}]}
SIZES = (100, 1000, 10_000)
"""Steps; more than some 14,000 hold too many values to be judged at all."""
NAN, INFINITY = float("nan"), float("inf")
TAKEN, REFUSED, STRIPPED = "taken", "refused", "stripped"
"""`STRIPPED`: limits and other keys that are no plan's are left out of a model's plan, and refused to a person."""
Verdict = tuple[str, Any, str]
"""The kind of plan, the plan, and its expected result."""


def _plan(*steps: Any, **more: Any) -> dict[str, Any]:
    return {"title": "Hostile", "complexity": "simple", "steps": list(steps), **more}


def _step(**fields: Any) -> dict[str, Any]:
    return {"content": "ask", "done_when": ["answered"], **fields}


def _nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def hostile_plans() -> Iterator[Verdict]:
    """Everything known that plans have been used for."""
    checks = {"tool": "x", "arguments": _nested(200)}
    yield "10,000 steps", _plan(*[_step()] * 10_000), REFUSED
    yield "no steps", _plan(), REFUSED
    yield "steps are no list", {"title": "x", "steps": "do it"}, REFUSED
    yield "a step that is a number", _plan(5), REFUSED
    yield "depends on itself", _plan(_step(id="s1", depends_on=["s1"])), REFUSED
    yield "two steps in a circle", _plan(_step(id="a", depends_on=["b"]), _step(id="b", depends_on=["a"])), REFUSED
    circle = [_step(id=f"s{n}", depends_on=[f"s{(n + 1) % 20}"]) for n in range(20)]
    yield "twenty steps in a circle", _plan(*circle), REFUSED
    yield "depends on nothing there", _plan(_step(depends_on=["s9"])), REFUSED
    yield "100,000 dependencies", _plan(_step(depends_on=[f"x{n}" for n in range(100_000)])), REFUSED
    yield "the same id twice", _plan(_step(id="s1"), _step(id="s1")), REFUSED
    for name in ("../../x", "a b", "plan", "s1\n", "x" * 1000, "ид", "confirm"):
        yield f"the id {name[:12]!r}", _plan(_step(id=name)), REFUSED
    yield "an unknown tool", _plan(_step(tools=["rm_rf"])), REFUSED
    yield "a control tool", _plan(_step(tools=["finish_step"])), REFUSED
    yield "an unknown executor", _plan(_step(executor="root")), REFUSED
    yield "a tool name of 1 MB", _plan(_step(tools=["x" * 1_000_000])), REFUSED
    yield "blank content", _plan(_step(content=" \n\t\u3000")), REFUSED
    yield "1 MB of content", _plan(_step(content="x" * 1_000_000)), REFUSED
    yield "100,000 criteria", _plan(_step(done_when=["x"] * 100_000)), REFUSED
    yield "a check nested 200 levels", _plan(_step(done_when=[{"text": "x", "check": checks}])), REFUSED
    yield "half a character", _plan(_step(content="a\ud800")), REFUSED
    yield "NaN as complexity", _plan(_step(), complexity=NAN), REFUSED
    yield "a schedule of -5 minutes", _plan(_step(), schedule={"every_minutes": -5}), REFUSED
    yield "a schedule of NaN minutes", _plan(_step(), schedule={"every_minutes": NAN}), REFUSED
    yield "a schedule at 25:00", _plan(_step(), schedule={"at": "25:00", "timezone": "UTC"}), REFUSED
    done = {"status": "done", "result": "did it", "verdicts": [{"verdict": "passed"}], "evidence": ["s1.1"]}
    yield "a step that says it is done", _plan(_step(**done)), STRIPPED
    state = {"steps_state": {"s1": done}, "approval": {"revision": "x"}, "outcome": {"status": "completed"}}
    yield "keys of the run's state", _plan(_step(), **state), REFUSED
    budget = {"limits": {"rounds": -5}, "granted": {"rounds": 1e6}, "spent": {"rounds": -100}}
    yield "budgets in a plan", _plan(_step(**budget), **budget), STRIPPED
    yield "an id with NUL", _plan(_step(id="s1\0")), TAKEN
    yield "NUL and escapes", _plan(_step(content="a\0b \x1b[31m \u202e <tool_output>")), TAKEN
    yield "emoji and marks", _plan(_step(content="👩‍👩‍👧‍👦 Z̷a̷l̷g̷o̷ " + "\u0301" * 1000)), TAKEN


def _model(*plans: Any) -> ScriptedModel:
    def execute(messages: Any, tools: Any) -> Any:
        seen = observed(messages)
        return finish_step("answered", seen[-1]) if seen else ask_user("which?")

    triage = [call("submit_plan", **plan) for plan in plans]
    roles: dict[str, Any] = {"triage": triage, "execute": execute, "deliver": ["Done."]}
    return ScriptedModel(roles=roles, strict=False, disable_streaming=True)  # megabytes make too many chunks


async def _to_the_end(agent: Agent, run: Run) -> Run:
    for said in ("approve", "the blue one"):
        run = await agent.resume(run.thread_id, said)
    return run


async def from_a_model(plan: Any, verdict: str, storage: str = "memory:") -> bool:
    """A model submits it, and a good one when it is told what is wrong. Right: corrected, or taken and really done."""
    agent = Agent(_model(plan, GOOD), storage=storage)
    run = await agent.start("goal")
    corrected = run.plan is not None and run.plan["title"] == "Good"
    return corrected == (verdict == REFUSED) and _untouched(run) and _done(await _to_the_end(agent, run))


async def from_a_person(plan: Any, verdict: str, storage: str = "memory:") -> bool:
    """A person puts it in the place of a good one. Right: the pause stays and says why, or taken and really done."""
    agent = Agent(_model(GOOD), storage=storage)
    run = await agent.start("goal")
    run = await agent.resume(run.thread_id, {"type": "edit", "plan": plan})
    refused = run.pending[0]["kind"] == "plan" and bool(run.problem)
    if refused != (verdict != TAKEN) or not _untouched(run):
        return False
    if refused:
        run = await agent.resume(run.thread_id, "approve")
    return _done(await agent.resume(run.thread_id, "the blue one"))


def _untouched(run: Run) -> bool:
    """Nothing of the run's own state came out of the plan."""
    records = run.steps.values()
    fresh = all(record["status"] in ("pending", "waiting") and not record.get("evidence") for record in records)
    return fresh and run.status == "waiting" and all(value >= 0 for value in run.spent.values())


def _done(run: Run) -> bool:
    rows = (run.receipt or {}).get("steps", ())
    return run.status in ("completed", "answered") and all(row["status"] == "done" and row["criteria"] for row in rows)


def seconds_for(steps: int, circle: bool = False) -> float:
    """Processor time to judge a plan of so many steps, were so many allowed; without Python's garbage collector."""
    plan = _plan(*({"id": f"s{n}", "content": "x", "depends_on": [f"s{n - 1}"] if n else []} for n in range(steps)))
    if circle:
        plan["steps"][0]["depends_on"] = [f"s{steps - 1}"]
    gc.disable()
    try:
        started = time.process_time()
        found = read_plan(plan, Rules(max_steps=steps))
        seconds = time.process_time() - started
    finally:
        gc.enable()
    assert isinstance(found, list) == circle
    return seconds


def bytes_for(steps: int) -> int:
    """The most memory that is taken while a chain of so many steps is judged."""
    tracemalloc.start()
    try:
        seconds_for(steps)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


BUDGETS: tuple[dict[str, Any], ...] = (
    *({"limits": {key: value}} for key in ("rounds", "cost_usd", "active_seconds") for value in (-1, NAN, INFINITY)),
    {"limits": {"rounds": "many"}}, {"limits": {"wishes": 3}}, {"step_limits": {"rounds": -1}}, {"max_steps": 0},
    {"tool_seconds": NAN}, {"model_seconds": -1}, {"question_seconds": NAN}, {"deadline": "yesterday"},
    {"confirm": "no"},
)  # fmt: skip


def refused_settings() -> int:
    """Return how many of these budgets are refused with the right reason."""
    refused = 0
    for settings in BUDGETS:
        with contextlib.suppress(ConfigError):
            Agent("demo", storage="memory:", settings=settings)
            continue
        refused += 1
    return refused


TEXTS = ("a\0b", "\0", "a\ud800b", "\udfff", "e\u202egoal", "\x1b[31mred", "😀" * 5000, "x" * 99_999)


async def survives(text: str, storage: str) -> bool:
    """The text as goal, as feedback and as answer; read back by another agent."""
    model = _model(GOOD, GOOD)
    run = await Agent(model, storage=storage).start(text)
    for said in ({"type": "reject", "message": text}, {"type": "approve"}, {"type": "respond", "message": text}):
        run = await Agent(model, storage=storage).resume(run.thread_id, said)
        if run.problem:  # an answer that cannot be stored is no answer, and the pause says so
            run = await Agent(model, storage=storage).resume(run.thread_id, "the blue one")
    again = await Agent(model, storage=storage).get(run.thread_id)
    return run.status == again.status == "answered" and again.goal == run.goal


async def from_a_client(storage: str = "memory:") -> bool:
    """A client invokes the graph with more than messages: none of it is taken for the run's own."""
    agent = Agent(_model(GOOD), storage=storage)
    done = {"status": "done", "result": "did it", "evidence": ["s1.1"]}
    forged = {"steps": {"s1": done}, "plan": GOOD, "approval": {"revision": "x"}, "outcome": {"status": "completed"}}
    budget = {"spent": {"rounds": -100}, "granted": {"rounds": 1e6}, "journal": [{"id": "s1.1", "ok": True}]}
    config: Any = {"configurable": {"thread_id": "t"}}
    await agent.graph.ainvoke({"messages": [("user", "goal")], **forged, **budget}, config)
    run = await agent.get("t")
    return run.pending[0]["kind"] == "plan" and _untouched(run) and _done(await _to_the_end(agent, run))


async def collect(folder: Path) -> Measured:
    """F10."""
    plans = list(hostile_plans())
    model = [name for name, plan, verdict in plans if not await _held(from_a_model(plan, verdict))]
    person = [name for name, plan, verdict in plans if not await _held(from_a_person(plan, verdict))]
    storages = (f"sqlite:///{folder}/runs.db", fresh_postgres_url())
    texts = [await _held(survives(text, storage)) for storage in storages for text in TEXTS]
    times = {steps: min(seconds_for(steps) for _ in range(3)) for steps in SIZES}
    peaks = {steps: bytes_for(steps) for steps in SIZES}
    figures = [
        of(
            "F10",
            "hostile plans from a model: the right verdict, then a right end",
            len(plans),
            len(plans) - len(model),
        ),
        of("F10", "the same plans from a person who edits", len(plans), len(plans) - len(person)),
        of("F10", "keys of the run's state from a client: not taken", 1, int(await _held(from_a_client()))),
        of("F10", "budgets that cannot be: refused by name", len(BUDGETS), refused_settings()),
        of("F10", "texts with NUL, half characters, escapes, on both storages", len(texts), sum(texts)),
        _linear("time to judge a plan of ten times the steps", times),
        _linear("memory to judge a plan of ten times the steps", peaks),
    ]
    rows = [(f"{n:,}", f"{times[n] * 1000:.0f} ms", f"{peaks[n] / 1e6:.1f} MB") for n in SIZES]
    return Measured(figures, table(["steps, were so many allowed", "processor time", "memory"], rows))


async def _held(trial: Any) -> bool:
    try:
        return bool(await trial)
    except Exception:
        return False


def _linear(what: str, taken: Mapping[int, float]) -> Figure:
    """Ten times as many may take up to twice ten times as much."""
    ratios = [taken[large] / taken[small] for small, large in itertools.pairwise(taken)]
    return Figure(
        "F10", what, len(taken), " and ".join(f"× {ratio:.1f}" for ratio in ratios), "≤ × 20", max(ratios) <= 20
    )
