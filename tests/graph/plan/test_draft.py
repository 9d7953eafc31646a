"""Phase 2 of planning, which thinks: when it runs, what it builds on, what happens when it fails; and replanning."""

import json
import re
from typing import Any

import pytest

from donewhen import Limits, Settings
from donewhen.state.errors import ModelError
from donewhen.testing import ScriptedModel, ask_user, finish_step, submit_plan
from tests.kit.flows import play, steps, unfenced

SKETCH = submit_plan(["quick way"], title="Sketch", complexity="complex", need_thinking=True)
DONE = [finish_step("x", "s1.result")]


def look(x: str = "") -> str:
    """Look at something."""
    return f"seen {x}"


def fail() -> str:
    """Fail."""
    raise ValueError("the disk is full")


TOOLS = [look, fail]
EFFECTS = {"look": "read", "fail": "read"}


def model_of(*draft: Any, sketch: Any = SKETCH, execute: Any = None) -> ScriptedModel:
    return steps([], execute or {"s1": DONE}, triage=[sketch], draft=list(draft))


@pytest.mark.parametrize(("complexity", "need_thinking"), [("simple", True), ("complex", True), ("complex", False)])
async def test_the_draft_runs_exactly_when_triage_wants_it(complexity: str, need_thinking: bool) -> None:
    """P03: phase 2 runs exactly when triage says need_thinking and proposes to plan. ✗ Not by complexity alone."""
    sketch = submit_plan(["quick way"], complexity=complexity, need_thinking=need_thinking)
    model = model_of(*([submit_plan(["careful way"])] if need_thinking else []), sketch=sketch)
    flow = await play(model)
    model.assert_exhausted()
    assert flow.run.plan is not None
    assert flow.run.plan["steps"][0]["content"] == ("careful way" if need_thinking else "quick way")


async def test_the_draft_sees_the_sketch_and_more_of_the_tools() -> None:
    """P03: the draft builds on the sketch; it sees arguments of tools and what can check, and cannot just answer."""
    model = model_of(submit_plan(["careful way"]))
    await play(model, TOOLS, effects=EFFECTS)
    draft = model.requests[1]
    assert draft.role == "plan"
    assert draft.tool_names[:3] == ["submit_plan", "ask_user", "decline"]
    sketch = json.loads(re.findall(r"<proposal>\n(.*)\n</proposal>", unfenced(draft.text))[0])
    assert sketch["steps"] == [{"id": "s1", "content": "quick way", "done_when": [], "tools": []}]
    assert {"look", "fail"} <= set(draft.tool_names)


async def test_a_draft_that_asks_goes_on_as_a_draft() -> None:
    """P03: a question of phase 2 is answered to phase 2; the triage is not asked again."""
    model = model_of(ask_user("Which way?"), submit_plan(["careful way"]))
    flow = await play(model, answers=["left"])
    model.assert_exhausted()
    assert [request.role for request in model.requests[:3]] == ["triage", "plan", "plan"]
    assert model.requests[2].messages[:2] == model.requests[1].messages[:2]
    assert "left" in model.requests[2].messages[-1].text
    assert flow.status == "answered"


FAILURES = {
    "error": [ModelError("the key is wrong", code="auth")],
    "timeout": [TimeoutError()],
    "malformed": ["hm", "still thinking", '{"action": "submit_plan", "steps": [{'],
    "bad plans": [submit_plan([]), submit_plan([{"content": "a", "tools": ["x"]}]), submit_plan([" "])],
}


@pytest.mark.parametrize("kind", FAILURES)
async def test_a_failing_draft_keeps_the_quick_plan(kind: str) -> None:
    """P04: error, timeout, malformed three times: phase 1's plan is kept, and an event says so."""
    model = model_of(*FAILURES[kind])
    flow = await play(model, settings=Settings(confirm="always", model_retries=0), answers=["approve"])
    model.assert_exhausted()
    assert flow.pauses[0]["plan"]["title"] == "Sketch"
    notes = [event["text"] for event in flow.told("note")]
    assert any(text.startswith("Careful planning failed (") and "quick plan" in text for text in notes)
    assert flow.status == "answered"


async def test_a_draft_out_of_rounds_or_budget_keeps_the_quick_plan() -> None:
    """P04, P12: what planning may spend is used up: the quick plan is kept all the same."""
    model = model_of("hm")
    flow = await play(model, settings=Settings(plan_rounds=2), answers=["approve"])
    model.assert_exhausted()
    assert flow.pauses[0]["plan"]["title"] == "Sketch"
    model = ScriptedModel(roles={"triage": [SKETCH]})
    flow = await play(model, settings=Settings(limits=Limits(model_calls=1)))
    model.assert_exhausted()
    assert flow.run.pending[0]["kind"] == "plan"
    assert any("model calls was reached" in event["text"] for event in flow.told("note"))
