"""What a plan may refer to: unknown names, circles, forbidden tools, paths out of bounds, executors without a tool."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.tools import StructuredTool

from donewhen import Profile, Settings
from donewhen.state.plan.plan import read_plan
from donewhen.state.plan.rules import Rules
from donewhen.testing import ScriptedModel, finish_step, submit_plan
from tests.kit.flows import play, steps

RULES = Rules(
    tools={"read_file", "write_file", "count_rows"},
    effect=lambda name: "write" if name == "write_file" else "read",
    executors={"writer": None, "reader": None},
    executor_tools={"reader": ["read_file"]},
    checks={"read_file": lambda arguments: [] if "path" in arguments else ["path is missing"]},
)


def problems(*written: Any, rules: Rules = RULES) -> list[str]:
    found = read_plan({"title": "t", "steps": list(written)}, rules)
    return found if isinstance(found, list) else []


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"depends_on": ["s9"]}, "step s2 depends on 's9', which is not a step; did you mean s2, s1?"),
        ({"depends_on": ["s2"]}, "step s2 depends on itself"),
        ({"executor": "Writer"}, "names the executor 'Writer', which does not exist; did you mean writer, reader?"),
        ({"executor": "x"}, "'x', which does not exist; there are: reader, writer"),
        ({"tools": ["readfile"]}, "lists the tool 'readfile', which does not exist; did you mean read_file"),
        ({"executor": "reader", "tools": ["write_file"]}, "which its executor 'reader' does not have; did you mean"),
        ({"id": "s 2"}, "the step id 's 2' is not allowed"),
        ({"id": "plan"}, "no step may have the id 'plan', which has a meaning of its own"),
        ({"id": "s1"}, "two steps have the id 's1'"),
        ({"done_when": [{"text": "t", "check": {"tool": "reed_file"}}]}, "'reed_file' does not exist; did you mean r"),
        ({"done_when": [{"text": "t", "check": {"tool": "write_file"}}]}, "'write_file' is not read-only, so it"),
        ({"done_when": [{"text": "t", "check": {"tool": "read_file"}}]}, "criterion 1: the check's arguments: path is"),
        ({"depends_on": {"s1": 1}}, "steps[1].depends_on: Input should be a valid list"),
        ({"tools": [1]}, "steps[1].tools[0]: Input should be a valid string"),
    ],
)  # fmt: skip
def test_a_name_that_means_nothing_is_named(step: Mapping[str, Any], said: str) -> None:
    """P08: unknown id, self-dependency, executor, tool: the correction names the offender and the near matches."""
    (found,) = problems({"content": "a", "id": "s1"}, {"content": "b", "id": "s2", **step})
    assert said in found


@pytest.mark.parametrize(
    ("needs", "circle"),
    [
        ({"s1": ["s2"], "s2": ["s1"]}, "s1 → s2 → s1"),
        ({"s1": [], "s2": ["s4"], "s3": ["s2"], "s4": ["s3"], "s5": ["s4"]}, "s2 → s4 → s3 → s2"),
        ({"s1": ["s2"], "s2": ["s3"], "s3": ["s1"], "s4": None}, "s1 → s2 → s3 → s1"),
    ],
)
def test_a_circle_is_named_and_no_edge_is_cut(needs: Mapping[str, list[str] | None], circle: str) -> None:
    """P08: a cycle is a correction that names exactly the steps in it. ✗ Never repaired by deleting an edge."""
    found = problems(*({"content": "x", "id": id, "depends_on": others} for id, others in needs.items()))
    assert found == [f"the steps {circle} depend on each other"]


NEEDS = st.lists(st.none() | st.lists(st.integers(0, 7), max_size=4), min_size=1, max_size=8)


def _goes_in_a_circle(needs: Sequence[list[int] | None]) -> bool:
    done: set[int] = set()
    for _ in needs:
        done |= {n for n, others in enumerate(needs) if done.issuperset(others or ())}
    return len(done) < len(needs)


@given(NEEDS)
def test_circles_are_found_exactly_where_there_are_any(needs: list[list[int] | None]) -> None:
    """P08, H14: a plan is refused for a circle if and only if what its steps declare cannot be put in an order."""
    known = [None if others is None else [o % len(needs) for o in others] for others in needs]
    written = [
        {"content": "x", "id": f"s{n}", "depends_on": None if others is None else [f"s{o}" for o in others]}
        for n, others in enumerate(known)
    ]
    found = problems(*written, rules=Rules())
    itself = any(others is not None and n in others for n, others in enumerate(known))
    assert bool(found) == _goes_in_a_circle(known)
    if found and not itself:
        assert "depend on each other" in found[0]


def test_everything_wrong_is_said_at_once() -> None:
    """P08: one correction lists all offenders, so that one more reply can mend them."""
    found = problems({"content": "a", "tools": ["x", "y"], "executor": "z"}, {"content": "b", "depends_on": ["q"]})
    assert len(found) == 4


def _tool(name: str, effect: str) -> StructuredTool:
    def run(path: str) -> str:
        return f"{name} {path}"

    return StructuredTool.from_function(run, name=name, description=f"{name} a file.", metadata={"effect": effect})


async def _corrected(first: Any, second: Any, **more: Any) -> ScriptedModel:
    """A run whose first plan is refused, and which ends well with the second."""
    model = steps([], {"s1": [finish_step("x", "s1.result")]}, triage=[submit_plan([first]), submit_plan([second])])
    flow = await play(model, [_tool("peek", "read"), _tool("save", "write")], **more)
    model.assert_exhausted()
    assert flow.status == "answered"
    return model


async def test_a_check_outside_of_the_allowed_paths_is_corrected() -> None:
    """P14: the runtime's own checks keep to the allowed paths too."""
    outside = {"content": "a", "done_when": [{"text": "t", "check": {"tool": "peek", "arguments": {"path": "/etc"}}}]}
    settings = Settings(confirm="never", profile=Profile(allowed_paths=["data"]))
    model = await _corrected(outside, "a", settings=settings)
    assert "the check's arguments: /etc lies outside of data" in model.requests[1].text


async def test_a_forbidden_tool_is_neither_shown_nor_taken() -> None:
    """P14: a forbidden tool is not offered to the planner; a plan with it, in a step or a check, is corrected."""
    settings = Settings(confirm="never", profile=Profile(forbidden_tools=["save", "peek"]))
    check = {"text": "t", "check": {"tool": "peek", "arguments": {"path": "a"}}}
    model = await _corrected({"content": "a", "tools": ["save"], "done_when": [check]}, "a", settings=settings)
    assert "- save" not in model.requests[0].text
    assert "lists the tool 'save', which the profile forbids" in model.requests[1].text
    assert "the check's tool 'peek' is forbidden by the profile" in model.requests[1].text
    assert "save" not in next(r for r in model.requests if r.role == "execute").tool_names
