"""A plan's shape: what is taken from what a model or a person wrote, what is refused, and under which ids it stands."""

import json
import math
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from donewhen.state.plan.order import needs_of
from donewhen.state.plan.plan import read_plan
from donewhen.state.plan.rules import Rules
from donewhen.testing import finish_step, submit_plan
from tests.kit.flows import play, steps

WIDE = Rules(tools={"read", "write"}, max_steps=200)


def plan(*written: Any, **more: Any) -> Any:
    return read_plan({"title": "Plan", "steps": list(written), **more}, WIDE)


def problems(*written: Any, **more: Any) -> str:
    found = plan(*written, **more)
    assert isinstance(found, list), found
    return "\n".join(found)


@pytest.mark.parametrize("none", [[], None, "do it", {"content": "a"}])
def test_a_plan_has_a_step(none: Any) -> None:
    """P07: a plan has at least one step."""
    assert isinstance(read_plan({"title": "t", "steps": none}, WIDE), list)


@pytest.mark.parametrize("blank", ["", "   ", "\n\t", "\u3000", None, 5])
def test_content_is_not_blank(blank: Any) -> None:
    """P07: a step has content that is not blank after trimming; the correction says where."""
    assert "steps[1].content" in problems("a", {"content": blank})


def test_content_is_trimmed() -> None:
    """P07: white space around the content is no part of it."""
    assert plan("  count 文件 😀 \n")["steps"][0]["content"] == "count 文件 😀"


@pytest.mark.parametrize(
    ("written", "texts"),
    [
        (None, []),
        ("one", ["one"]),
        (["one", "two"], ["one", "two"]),
        ({"text": "one"}, ["one"]),
        (["one", {"text": "two", "judge": True}], ["one", "two"]),
        ("", []),
        ("  ", []),
        (["", None, "one"], ["one"]),
    ],
)
def test_criteria_are_optional_one_or_several(written: Any, texts: list[str]) -> None:
    """P07, Q08: `done_when` is optional, one criterion or several; an empty one is none."""
    made = plan({"content": "a", "done_when": written})["steps"][0]["done_when"]
    assert [criterion["text"] for criterion in made] == texts


@pytest.mark.parametrize("written", [[5], [{"check": None}], {"text": " "}, [{"text": "a", "c": {}}], {"a": "b"}])
def test_a_criterion_says_something(written: Any) -> None:
    """P07: a misshapen criterion, or a record with blank words, is refused, with its place."""
    assert "steps[0].done_when[" in problems({"content": "a", "done_when": written})


def test_ids_are_assigned_where_there_are_none() -> None:
    """P07: ids are stable and unique; the runtime assigns those the model does not give, around those it does."""
    made = plan("a", {"content": "b", "id": "s1"}, {"content": "c", "id": ""}, "d")
    assert [step["id"] for step in made["steps"]] == ["s2", "s1", "s3", "s4"]


def test_a_plan_without_a_title_is_called_like_its_first_step() -> None:
    """P07: models that give no title lose no round over it; a blank one is refused like any blank text."""
    made = read_plan({"steps": ["Count the files\nand more"]}, WIDE)
    assert isinstance(made, dict)
    assert made["title"] == "Count the files"
    assert "title" in "".join(problems("a", title="  "))


def test_a_key_that_is_nearly_right_is_pointed_out() -> None:
    """P08: dependencies under a misspelled key are never dropped silently."""
    said = problems("a", {"content": "b", "dependencies": ["s1"]}, {"content": "c", "doneWhen": "x"})
    assert "step 2: there is no key 'dependencies'; did you mean depends_on?" in said
    assert "step 3: there is no key 'doneWhen'; did you mean done_when?" in said


async def test_a_step_that_comes_as_done_is_worked_on() -> None:
    """F10: a run works on a step that its plan calls done."""
    model = steps([{"content": "write", "status": "done", "result": "42"}], {"s1": [finish_step("5", "s1.result")]})
    flow = await play(model)
    model.assert_exhausted()
    assert flow.run.steps["s1"]["result"] == "5"


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (math.nan, "no JSON number"),
        (-math.inf, "no JSON number"),
        ("half \ud83d", "half a character"),
        (b"bytes", "bytes"),
        ({1, 2}, "set"),
    ],
)
def test_values_that_are_no_json_are_refused(bad: Any, said: str) -> None:
    """F10: NaN, infinity, half characters and foreign objects never get into state."""
    check = {"tool": "read", "arguments": {"x": [bad]}}
    assert said in problems({"content": "a", "done_when": [{"text": "t", "check": check}]})
    assert said in problems("a", speak=bad)


def test_nesting_without_end_is_refused() -> None:
    """F10: a structure nested 10,000 deep is refused, and quickly."""
    deep: Any = "x"
    for _ in range(10_000):
        deep = [deep]
    assert "nested deeper" in problems({"content": "a", "done_when": [{"text": "t", "check": {"arguments": deep}}]})


async def test_hundreds_of_steps_are_one_correction() -> None:
    """F10, P09: a plan of hundreds of steps in a run is refused in one sentence, and not kept in the prompt."""
    huge = submit_plan([{"content": f"step {n}", "status": "done"} for n in range(300)])
    model = steps([], {"s1": [finish_step("x", "s1.result")]}, triage=[huge, submit_plan(["a"])])
    flow = await play(model)
    model.assert_exhausted()
    assert "the plan has 300 steps; at most 20 are allowed" in model.requests[1].text
    assert len(model.requests[1].text) < 5_000
    assert flow.status == "answered"


@pytest.mark.parametrize(
    "hostile",
    [
        {"steps": [{"content": f"step {n}"} for n in range(10_000)]},
        {"steps": [{"content": "a", "depends_on": [f"x{n}" for n in range(20_000)]}]},
        {"steps": [{"content": "a", "depends_on": ["s1"] * 50_000}]},
        {"steps": [{"content": "a", "tools": [f"unknown_tool_{n}" for n in range(20_000)]}]},
        {"steps": [{"content": "a", "done_when": ["c"] * 50_000}]},
        {"steps": [{"content": "字" * 3_000_000}]},
        {"steps": [{"content": "a", "id": "s" * 1_000_000}]},
        {"steps": [{"content": "a", "executor": "e" * 1_000_000}]},
        {"steps": [{f"key{n}": n for n in range(50_000)}]},
        {"steps": [None] * 150},
    ],
    ids=["steps", "needs", "itself", "tools", "criteria", "text", "id", "executor", "keys", "nulls"],
)
def test_hostile_plans_get_a_verdict_quickly(hostile: dict[str, Any]) -> None:
    """F10: whatever the size, a plan is refused with few words and in linear time."""
    began = process_time()
    found = read_plan({"title": "t", **hostile}, WIDE)
    assert process_time() - began < 5
    assert isinstance(found, list)
    assert len(found) <= 20
    assert len("\n".join(found)) < 20_000


def test_revision_is_the_content_that_consent_is_about() -> None:
    """C04: other words about the plan keep its revision, another plan has another."""
    first, same = plan("a", "b"), plan("a", "b", title="Other", complexity="complex", speak="Hi")
    assert first["revision"] == same["revision"]
    others = [
        plan("a"),
        plan("b", "a"),
        plan("a", {"content": "b", "tools": ["read"]}),
        plan("a", {"content": "b", "done_when": "x"}),
        plan("a", {"content": "b", "depends_on": []}),
        plan("a", "b", schedule={"every_minutes": 5}),
    ]
    assert len({first["revision"], *(other["revision"] for other in others)}) == 7


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)
KEYS = st.sampled_from(["title", "complexity", "need_thinking", "steps", "schedule", "speak", "revision"])
STEP = st.dictionaries(
    st.sampled_from(["content", "done_when", "id", "depends_on", "executor", "tools", "status"]), JSON, max_size=7
)


@given(st.dictionaries(KEYS, JSON, max_size=7), st.lists(STEP | st.text(max_size=5), max_size=4) | JSON)
def test_any_value_is_a_plan_or_a_list_of_problems(value: dict[str, Any], written: Any) -> None:
    """F10: nothing a model can write raises; what passes can be stored, hashed and read back as the same plan."""
    found = read_plan({**value, "steps": written}, WIDE)
    if isinstance(found, list):
        assert found
        return
    assert read_plan(json.loads(json.dumps(found)), WIDE) == found
    assert len({step["id"] for step in found["steps"]}) == len(found["steps"])


@pytest.mark.parametrize(
    ("written", "ids", "needs"),
    [
        ([{"id": 1, "content": "a"}, {"id": 2, "content": "b", "depends_on": [1]}], ["s1", "s2"], ["s1"]),
        ([{"id": "1", "content": "a"}, {"id": "2", "content": "b", "depends_on": "1"}], ["s1", "s2"], ["s1"]),
        ([{"id": "x", "content": "a"}, {"id": "y", "content": "b", "depends_on": "x"}], ["x", "y"], ["x"]),
        ([{"content": "a"}, {"content": "b", "depends_on": 1}], ["s1", "s2"], ["s1"]),
        ([{"content": "a"}, {"content": "b", "depends_on": ["s1"]}], ["s1", "s2"], ["s1"]),
    ],
)
def test_ids_may_be_numbers_and_one_need_a_text(written: Any, ids: list[str], needs: list[str]) -> None:
    """H14, X18: 1 is s1; what one step depends on need not be a list."""
    made = plan(*written)["steps"]
    assert [step["id"] for step in made] == ids
    assert made[1]["depends_on"] == needs


def test_numbers_are_places_where_steps_have_no_ids() -> None:
    """H14, P17: in a replan "1" is its own first step, not the finished s1."""
    rules = Rules(finished={"s1": {"content": "old"}})
    made = read_plan({"steps": ["new", {"content": "newer", "depends_on": [1]}]}, rules)
    assert isinstance(made, dict)
    assert [step["depends_on"] for step in made["steps"]] == [None, ["s2"]]


def test_a_forward_dependency_is_no_circle_by_itself() -> None:
    """H14: a later step that declares nothing does not wait for an earlier one that waits for it."""
    made = plan({"content": "a", "depends_on": ["s3"]}, "b", "c")
    assert [step["depends_on"] for step in made["steps"]] == [["s3"], None, []]
    assert needs_of(made)["s2"] == ["s1"]


def test_a_plan_may_be_a_bare_array() -> None:
    """M4: of contents, of steps, or of concrete calls, each a step that says the call and has its tool."""
    for written in (["a", "b"], [{"content": "a"}, {"content": "b"}], {"plan_steps": ["a", "b"]}):
        made = read_plan(written, WIDE)
        assert isinstance(made, dict)
        assert [step["content"] for step in made["steps"]] == ["a", "b"]
        assert (made["complexity"], made["need_thinking"]) == ("moderate", False)
    calls = [{"tool": "read", "arguments": {"path": "ü"}}, {"content": "save", "name": "write", "args": {}}]
    made = read_plan(calls, WIDE)
    assert isinstance(made, dict)
    assert [(step["content"], step["tools"]) for step in made["steps"]] == [
        ('Call read with {"path": "ü"}', ["read"]),
        ("save (write)", ["write"]),
    ]


def test_steps_within_steps_are_refused() -> None:
    """H14: nested steps are a correction that says how to flatten them, not dropped."""
    said = problems("a", {"content": "b", "substeps": ["c"]})
    assert said.startswith("step 2: holds steps of its own under 'substeps'; a plan is flat")


def test_what_nobody_sees_never_gets_into_a_plan() -> None:
    """H14: escape sequences, NUL and text that runs backwards are not shown at confirm and not given to executors."""
    written = {"content": "\x1b[31mread\x00 \u202efile\u2066", "done_when": [{"text": "o\x07k"}], "tools": ["re\x00ad"]}
    made = plan(written, title="T\x1b]\x9b", speak="\u202dhi")
    assert (made["steps"][0]["content"], made["steps"][0]["tools"]) == ("read file", ["read"])
    assert (made["steps"][0]["done_when"][0]["text"], made["title"], made["speak"]) == ("ok", "T]", "hi")


def test_the_only_possible_executor_is_assigned() -> None:
    """X18, M4: a step whose tools one executor alone has goes to that one; otherwise nothing is guessed."""
    hands = {"": ["read"], "writer": ["write"], "both": ["read", "write", "send"]}
    rules = Rules(tools={"read", "write", "send"}, executors=["writer", "both"], executor_tools=hands)
    made = read_plan({"steps": [{"content": "a", "tools": ["send"]}, {"content": "b", "tools": ["read"]}, "c"]}, rules)
    assert isinstance(made, dict)
    assert [step["executor"] for step in made["steps"]] == ["both", None, None]
    (said,) = read_plan({"steps": [{"content": "a", "tools": ["write"]}]}, rules)
    assert "give the step the executor 'writer' or 'both'" in said
