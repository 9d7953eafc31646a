"""Edited plans: as JSON, and as the text that was shown with lines changed."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from donewhen.state.people.answers import Answer, draft_of, read_answer
from donewhen.state.plan.plan import Rules, read_plan
from donewhen.state.plan.text import plan_text
from donewhen.state.plan.written import visible
from tests.pauses import LIMITS, PLAN, edited_text, hitl, pending, with_step

CHANGED = with_step(1, content="Write the sum to out.txt")


@pytest.mark.parametrize(
    "value",
    [
        {"type": "edit", "plan": CHANGED},
        {"plan": CHANGED},
        CHANGED,
        json.dumps(CHANGED),
        {"plan": json.dumps(CHANGED)},
        {"type": "approve", "plan": CHANGED},
        edited_text("Write the total - to", "Write the sum to"),
        hitl("plan", plan=json.dumps(CHANGED)),
        hitl("plan", plan=edited_text("Write the total - to", "Write the sum to")),
        {"decisions": [{"type": "edit", "editedAction": {"name": "confirm_plan", "args": {"plan": CHANGED}}}]},
        {"decisions": [{"type": "edit", "edited_action": {"name": "confirm_plan", "arguments": {"plan": CHANGED}}}]},
        [{"type": "edit", "args": {"action": "confirm_plan", "args": {"plan": json.dumps(CHANGED)}}}],
        {
            "type": "edit",
            "edited_action": {
                "name": "confirm_plan",
                "args": {"plan": f"```json\n{json.dumps(CHANGED)}\n```"},
            },
        },
    ],
    ids=lambda value: str(value)[:60],
)
def test_an_edited_plan_in_every_shape(value: Any) -> None:
    """C02, C03: the whole edited plan comes out, without a revision, to be validated like a planned one."""
    assert read_answer(value, pending("plan")) == Answer("edit", plan=CHANGED)


def test_an_edit_that_changes_nothing_is_an_approval() -> None:
    """C02: agent-chat-ui sends the unedited text back when "edit" is submitted as it is."""
    for value in (PLAN, {"plan": PLAN}, hitl("plan", plan=plan_text(PLAN, limits=LIMITS))):
        assert read_answer(value, pending("plan")) == Answer("approve")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("# Total the sales", "# Total", {**with_step(1), "title": "Total"}),
        (
            "   - tools: write_file\n",
            "   - tools: write_file, read_file\n",
            with_step(1, tools=["write_file", "read_file"]),
        ),
        ("   - tools: write_file\n", "", with_step(1, tools=None)),
        ("   - after: s1\n", "   - after: nothing\n", with_step(1, depends_on=[])),
        ("   - after: s1\n", "", with_step(1, depends_on=None)),
        ("executor: reader", "executor: writer", with_step(0, executor="writer")),
        (
            "There are three",
            "There are 3",
            with_step(
                0,
                done_when=[
                    PLAN["steps"][0]["done_when"][0],
                    {**PLAN["steps"][0]["done_when"][1], "text": "There are 3"},
                ],
            ),
        ),
        (
            'expects {"contains": "3"}',
            'expects "ok"',
            with_step(
                0,
                done_when=[
                    PLAN["steps"][0]["done_when"][0],
                    {
                        **PLAN["steps"][0]["done_when"][1],
                        "check": {"tool": "list_files", "arguments": {"path": "."}, "expect": "ok"},
                    },
                ],
            ),
        ),
        ("3. [s3] Tell the user\n", "", {**with_step(1), "steps": PLAN["steps"][:2]}),
        (
            "3. [s3] Tell the user",
            "3. [s3] Tell the user\n   - done when: they know",
            with_step(2, done_when=[{"text": "they know", "check": None, "judge": False}]),
        ),
        ("3. [s3] Tell the user", "3. [s3] Tell\n     everyone", with_step(2, content="Tell\neveryone")),
    ],
    ids=lambda value: str(value)[:30],
)
def test_one_edited_line_of_the_shown_text(before: str, after: str, expected: dict[str, Any]) -> None:
    """C02: what was not touched keeps its value, checks included."""
    assert read_answer(hitl("plan", plan=edited_text(before, after)), pending("plan")) == Answer("edit", plan=expected)


def test_a_step_written_by_hand_is_new() -> None:
    text = edited_text("3. [s3] Tell the user\n", "3. [s3] Tell the user\n4. Mail it\n   - done when: it was sent\n")
    answer = read_answer(hitl("plan", plan=text), pending("plan"))
    assert isinstance(answer, Answer)
    assert answer.plan is not None
    assert answer.plan["steps"][:3] == PLAN["steps"]
    assert answer.plan["steps"][3]["content"] == "Mail it"
    assert "id" not in answer.plan["steps"][3]


def edited(text: str) -> Any:
    return read_answer(hitl("plan", plan=text), pending("plan"))


SHOWN = plan_text(PLAN, limits=LIMITS)
DAILY = "**Schedule:** every day at 08:30 (Europe/Berlin)\n"
SAME = {key: item for key, item in PLAN.items() if key != "revision"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Please make it shorter", Answer("reject", "Please make it shorter")),
        (
            f"Please skip the drafts.\n\n{edited_text('# Total', '# Total')}",
            Answer("reject", "Please skip the drafts."),
        ),
        (edited_text("cost_usd 0.5", "cost_usd 0.5\n\nAnd mail it to Ann."), Answer("reject", "And mail it to Ann.")),
        (
            edited_text("Write the total - to", "Write the sum to") + "Mail it as well.",
            Answer("reject", "Mail it as well.", plan=CHANGED),
        ),
        (f"Looks good!\n\n{SHOWN}", Answer("approve")),
        (edited_text("# Total the sales", "## Total the sales"), Answer("approve")),
        (edited_text("# Total the sales", "Total the sales"), Answer("approve")),
        (edited_text("**Limits:** rounds 40, cost_usd 0.5\n", ""), Answer("approve")),
        (edited_text("   - tools: write_file", "- tools: write_file"), Answer("approve")),
        (edited_text("rounds 40", "rounds 10"), Answer("edit", plan=SAME, amounts={"rounds": 10})),
        (edited_text("rounds 40, cost_usd 0.5", "cost_usd $1"), Answer("edit", plan=SAME, amounts={"cost_usd": 1})),
        (
            edited_text("08:30", "09:30"),
            Answer("edit", plan={**SAME, "schedule": {"at": "09:30", "timezone": "Europe/Berlin"}}),
        ),
        (
            edited_text("**Schedule:** every day at 08:30 (Europe/Berlin)\n", ""),
            Answer("edit", plan={**SAME, "schedule": None}),
        ),
    ],
)
def test_natural_edits_in_a_text_box(text: str, expected: Answer) -> None:
    """Q2, U3, C03: sentences around a plan are feedback beside the edit; limits are changed as the line says."""
    assert edited(text) == expected


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (edited_text("3. [s3]", "and then\n3. [s3]"), "line 20 “and then”"),
        (edited_text("3. [s3] Tell the user", "3. [s3] Tell the user\n- mail it"), "line 21 “- mail it”"),
        (edited_text('list_files {"path": "."} expects', "list_files everything"), "line 11 “list_files everything"),
        (edited_text("rounds 40", "rouns 40"), "line 23: “rouns” is no limit"),
        (edited_text("rounds 40", "model_calls 40"), "no limit of model_calls to change"),
        (edited_text("every day at 08:30 (Europe/Berlin)", "now and then"), "line 22 “now and then” is no schedule"),
        (f"Hm\n\n{SHOWN}", "line 1 “Hm”"),
        ('{"title": "x", "steps": [}', "line 1 column 26"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text: str, named: str) -> None:
    """Q2, C03: the pause is kept, no planner is paid, and the text is there to be given back."""
    problem = edited(text)
    assert isinstance(problem, str)
    assert named in problem
    assert draft_of(hitl("plan", plan=text)) == text


TEXT = st.text(min_size=1, max_size=60).filter(lambda text: visible(text).strip() == text.strip() != "")
STEP = st.fixed_dictionaries(
    {
        "content": TEXT
        | st.sampled_from(["a\n- done when: b", "x\n2. [s1] y", "a\n# b", "_3 steps_", "[s1] c", "**Limits:** 1"]),
        "done_when": st.lists(TEXT | st.fixed_dictionaries({"text": TEXT, "judge": st.booleans()}), max_size=2),
        "tools": st.none() | st.lists(st.sampled_from(["a", "b-c"]), min_size=1, max_size=2),
    }
)


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(STEP, min_size=1, max_size=4), title=TEXT)
def test_any_plan_survives_its_own_text(steps: list[dict[str, Any]], title: str) -> None:
    """C02: sent back unchanged is an approval; one more criterion on the last step changes only that."""
    plan = read_plan({"title": title, "steps": steps}, Rules(tools=["a", "b-c"]))
    assert isinstance(plan, dict), plan
    waiting = pending("plan", plan=plan, revision=plan["revision"], limits=None)
    text = plan_text(plan)
    assert read_answer(hitl("plan", plan=text), waiting) == Answer("approve")
    assert read_answer(hitl("plan", plan=text.replace("\n", "\r\n")), waiting) == Answer("approve")
    answer = read_answer(hitl("plan", plan=text.rstrip() + "\n   - done when: it is blue\n"), waiting)
    assert isinstance(answer, Answer)
    assert answer.plan is not None, answer
    assert answer.plan["steps"][:-1] == plan["steps"][:-1]
    assert answer.plan["steps"][-1]["done_when"][-1]["text"] == "it is blue"
    assert answer.plan["steps"][-1]["content"] == plan["steps"][-1]["content"]
