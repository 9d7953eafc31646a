"""Edited plans: as data, written as YAML or JSON."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from donewhen.state.people.answers import Answer, read_draft
from donewhen.state.people.edit import PlanEdit, edit_plan, plan_document
from donewhen.state.plan.plan import Rules, read_plan
from donewhen.state.plan.written import strip_invisible
from tests.kit.pauses import LIMITS, PLAN, edited_text, hitl, pending, read_answer, with_step


def test_an_edit_that_changes_nothing_is_an_approval() -> None:
    """C02: agent-chat-ui sends the unedited text back when "edit" is submitted as it is."""
    for value in (PLAN, {"plan": PLAN}, hitl("plan", plan=SHOWN), hitl("plan", plan=f"# fine\n{SHOWN}\n# thanks")):
        assert read_answer(value, pending("plan")) == Answer("approve")


SHOWN = plan_document({"plan": PLAN, "limits": LIMITS})
SAME = {key: item for key, item in PLAN.items() if key != "revision"}
CRITERIA = PLAN["steps"][0]["done_when"]


def edited(text: str) -> Any:
    return read_answer(hitl("plan", plan=text), pending("plan"))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("title: Total the sales", "title: Total", {**SAME, "title": "Total"}),
        ("  tools:\n  - write_file", "  tools: [write_file, look]", with_step(1, tools=["write_file", "look"])),
        ("  depends_on:\n  - s1\n", "  depends_on: []\n", with_step(1, depends_on=[])),
        ("executor: reader", "executor: writer", with_step(0, executor="writer")),
        ("There are three", "Three", with_step(0, done_when=[CRITERIA[0], {**CRITERIA[1], "text": "Three"}])),
        (
            "      expect:\n        contains: '3'",
            "      expect: ok",
            with_step(0, done_when=[CRITERIA[0], {**CRITERIA[1], "check": {**CRITERIA[1]["check"], "expect": "ok"}}]),
        ),
        ("- id: s3\n  content: Tell the user\n", "", {**SAME, "steps": PLAN["steps"][:2]}),
        (
            "  content: Tell the user\n",
            "  content: Tell the user\n  done_when: they know\n",
            with_step(2, done_when=[{"text": "they know", "check": None, "judge": False}]),
        ),
        ("content: Tell the user", "content: no", with_step(2, content="no")),
        ("content: Tell the user", "content: 2026-01-01", with_step(2, content="2026-01-01")),
        ("at: 08:30", "at: 9:30", {**SAME, "schedule": {"at": "9:30", "timezone": "Europe/Berlin"}}),
        ("schedule:\n  at: 08:30\n  timezone: Europe/Berlin\n", "schedule:\n", {**SAME, "schedule": None}),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_one_edited_part_of_the_shown_text(before: str, after: str, expected: dict[str, Any]) -> None:
    """C02, C12, N18: what was not touched keeps its value, checks included; a plain text is the text that it reads."""
    assert edited(edited_text(before, after)) == Answer("edit", plan=expected)


def test_limits_are_changed_as_they_are_written() -> None:
    """U3, C12: a limit or the whole key that is left out stays."""
    assert edited(edited_text("rounds: 40", "rounds: 10")) == Answer("edit", plan=SAME, amounts={"rounds": 10})
    assert edited(edited_text("limits:\n  rounds: 40\n  cost_usd: 0.5\n", "")) == Answer("approve")


def test_a_step_written_by_hand_is_new() -> None:
    text = edited_text("schedule:\n", "- content: Mail it\n  done_when: it was sent\nschedule:\n")
    answer = edited(text)
    assert isinstance(answer, Answer)
    assert answer.plan is not None
    assert answer.plan["steps"][:3] == PLAN["steps"]
    assert answer.plan["steps"][3]["content"] == "Mail it"
    assert "id" not in answer.plan["steps"][3]


def test_calls_go_with_the_words_that_stood_for_them() -> None:
    """C12: a step that says something else does not begin with the calls of before."""
    calls = [{"tool": "read_file", "arguments": {"path": "a"}}]
    plan = {**PLAN, "steps": [{**PLAN["steps"][2], "calls": calls}]}
    for text, kept in (("Tell the user", [calls]), ("Tell nobody", [])):
        written = plan_document({"plan": {**plan, "title": "Other"}}).replace("Tell the user", text)
        answer = read_answer(hitl("plan", plan=written), pending("plan", plan=plan))
        assert [step["calls"] for step in answer.plan["steps"] if "calls" in step] == kept  # type: ignore[union-attr,index]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (edited_text("schedule:", "schedul:"), "line 36: a plan has no field 'schedul' (did you mean schedule?)"),
        (
            edited_text("  content: Tell", "  contnt: Tell"),
            "line 35: step s3 has no field 'contnt' (did you mean content?)",
        ),
        (edited_text("content: Tell the user", "content: Tell: the user"), "line 35"),
        (edited_text("content: Tell the user", "content: [Tell"), "line 36"),
        (edited_text("title:", "title: A\ntitle:"), "line 4: the key 'title' stands here twice"),
        (edited_text("content: Tell the user", "content: &a Tell"), "line 35: anchors"),
        (edited_text("content: Tell the user", "content: !!python/object:os.system x"), "line 35: anchors"),
        (edited_text("content: Tell the user", "content: a\x00b"), "special characters are not allowed"),
        (edited_text("rounds: 40", "model_calls: 40"), "no limit of model_calls to change"),
        (edited_text("rounds: 40", "rounds: 4O"), "rounds must be a number"),
        (edited_text("schedule:\n  at: 08:30\n  timezone: Europe/Berlin\n", ""), "`schedule: none`"),
        ("use EUR", "cannot be a text"),
        ("steps: none", "needs `steps`"),
        ("", "cannot be a NoneType"),
        ('{"title": "x", "steps": [}', "line 1"),
        ("steps: " + "[" * 50_000, "more than a plan can hold"),
        ("steps:\n" + "- a\n" * 20_000, "more than a plan can hold"),
        ("steps:\n" + "- a\n" * 200_000, "at most 200,000"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, named: str) -> None:
    """C12, C03, N18, N80: the pause is kept, no planner is paid, and the text is there to be given back."""
    problem = edited(text)
    assert isinstance(problem, str)
    assert named in problem
    assert read_draft(hitl("plan", plan=text)) == text


TEXT = st.text(min_size=1, max_size=60).filter(lambda text: strip_invisible(text).strip() == text.strip() != "")
DATA = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(
        ["1e5", "-2E3", "1234e56", "-0", "one\x85two", "one\x85two\nthree", "\n ", "no", "~", "0o7", "1_0"]
    ),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner, max_size=2),
    max_leaves=4,
)


@given(arguments=st.dictionaries(st.text(max_size=8), DATA, max_size=3))
@example(arguments={"commit": "1234e56", "count": "-2E3", "1e5": 1e5})
@example(arguments={"line": "one\x85two", "lines": "one\x85two\nthree", "a\x85b": "\x85"})
def test_the_arguments_of_any_check_survive_their_own_text(arguments: dict[str, Any]) -> None:
    """C02: texts stay texts, whatever they look like, and keep each character; an approval was an edit."""
    check = {"tool": "a", "arguments": arguments, "expect": "ok"}
    step = {**PLAN["steps"][0], "done_when": [{"text": "It is there", "check": check, "judge": False}]}
    plan = {**PLAN, "steps": [step]}
    edit = edit_plan({"plan": plan_document({"plan": plan})}, plan)
    assert isinstance(edit, PlanEdit), edit
    assert (edit.plan["steps"], edit.changed) == (plan["steps"], False)


STEP = st.fixed_dictionaries(
    {
        "content": TEXT | st.sampled_from(["a\n- b: c", "no", "1.0", "~", "08:30", "# a", "a: b", " - x\n\n\ty ", "'"]),
        "done_when": st.lists(TEXT | st.fixed_dictionaries({"text": TEXT, "judge": st.booleans()}), max_size=2),
        "tools": st.none() | st.lists(st.sampled_from(["a", "b-c"]), min_size=1, max_size=2),
    }
)


@given(steps=st.lists(STEP, min_size=1, max_size=4), title=TEXT)
def test_any_plan_survives_its_own_text(steps: list[dict[str, Any]], title: str) -> None:
    """C02, C12: sent back unchanged is an approval; one more criterion on the last step changes only that."""
    plan = read_plan({"title": title, "steps": steps}, Rules(tools=["a", "b-c"]))
    assert isinstance(plan, dict), plan
    waiting = pending("plan", plan=plan, revision=plan["revision"], limits={})
    text = plan_document({"plan": plan})
    assert read_answer(hitl("plan", plan=text), waiting) == Answer("approve")
    assert read_answer(hitl("plan", plan=text.replace("\n", "\r\n")), waiting) == Answer("approve")
    answer = read_answer(hitl("plan", plan=f"{text}- content: it is blue\n"), waiting)
    assert isinstance(answer, Answer)
    assert answer.plan is not None, answer
    assert answer.plan["steps"][:-1] == plan["steps"]
    assert answer.plan["steps"][-1]["content"] == "it is blue"
