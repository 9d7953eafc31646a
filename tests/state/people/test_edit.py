"""Edited plans: as JSON, and as the text that was shown with lines changed."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from donewhen.state.language.texts import LANGUAGES, catalogue
from donewhen.state.people.answers import Answer, draft_of, read_answer
from donewhen.state.plan.plan import Rules, read_plan
from donewhen.state.plan.text import plan_text
from donewhen.state.plan.written import visible
from tests.kit.pauses import LIMITS, PLAN, edited_text, hitl, pending, with_step

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


GERMAN, CHINESE, FRENCH, SPANISH, JAPANESE = (
    plan_text(PLAN, limits=LIMITS, language=language) for language in ("de", "zh", "fr", "es", "ja")
)
TEN = Answer("edit", plan=SAME, amounts={"rounds": 10})
CHEAP = Answer("edit", plan=SAME, amounts={"rounds": 10, "cost_usd": 0.2})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # what an editor or a client makes of the text
        (edited_text("_3 steps, moderate_", "*3 steps, moderate*"), Answer("approve")),
        (edited_text("_3 steps, moderate_", "3 steps, moderate"), Answer("approve")),
        (f"```markdown\n{SHOWN}```", Answer("approve")),
        (edited_text("1. [s1] Read", "**1. [s1]** Read"), Answer("approve")),
        (edited_text("1. [s1] Read", "1\\. \\[s1\\] Read"), Answer("approve")),
        (SHOWN.replace("[s1] ", "").replace("[s2] ", "").replace("[s3] ", ""), Answer("approve")),
        (f"{SHOWN}\n---\n", Answer("approve")),
        (GERMAN.replace("# Total", "## Total"), Answer("approve")),
        # courtesy beside the plan is neither feedback nor a problem
        (f"{SHOWN}\nThanks!", Answer("approve")),
        (f"Passt so, danke.\n\n{GERMAN}", Answer("approve")),
        (f"Me parece bien\n\n{SPANISH}", Answer("approve")),
        # limits, as people write them
        (FRENCH.split("**Limites")[0], Answer("approve")),
        (edited_text("rounds 40", "max 10 rounds"), TEN),
        (edited_text("rounds 40, cost_usd 0.5", "at most 10 rounds and $0.20"), CHEAP),
        (edited_text("rounds 40, cost_usd 0.5", "rounds: 10, cost: $0.20"), CHEAP),
        (GERMAN.replace("rounds 40, cost_usd 0.5", "höchstens 10 Runden und 0,20 $"), CHEAP),
        (CHINESE.replace("rounds 40", "最多 10 轮"), TEN),
        (edited_text("**Limits:** rounds 40, cost_usd 0.5", "no more than 10 rounds"), TEN),
        # what is crossed out is not there, with all that belongs to it
        (edited_text("3. [s3] Tell the user", "~~3. [s3] Tell the user~~"), [PLAN["steps"][0], PLAN["steps"][1]]),
        (
            edited_text("2. [s2] Write the total - to out.txt", "~~2. [s2] Write the total - to out.txt~~"),
            [PLAN["steps"][0], PLAN["steps"][2]],
        ),
        # feedback beside the plan, with what was changed in it
        (f"请不要读草稿。\n\n{CHINESE}", Answer("reject", "请不要读草稿。")),
        (f"{JAPANESE}\n下書きは読まないでください。", Answer("reject", "下書きは読まないでください。")),
        (
            edited_text("rounds 40", "rounds 10") + "\nKeep it short please.",
            Answer("reject", "Keep it short please.", amounts={"rounds": 10}),
        ),
        (
            edited_text("out.txt holds the total", "out.txt holds the total\n   - done when it is one line"),
            with_step(
                1,
                done_when=[PLAN["steps"][1]["done_when"][0], {"text": "it is one line", "check": None, "judge": False}],
            ),
        ),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_what_a_stranger_makes_of_a_plan_in_a_text_box(text: str, expected: Any) -> None:
    """U3, Q2, C03: nothing that was written vanishes: it is the edit, feedback beside it, or named."""
    if isinstance(expected, list):
        expected = {**SAME, "steps": expected}
    if isinstance(expected, dict):
        expected = Answer("edit", plan=expected)
    shown = [each for each in LANGUAGES if f"- {catalogue(each)['plan']['done_when']}: Every file was read" in text]
    assert read_answer(hitl("plan", plan=text), pending("plan", language=shown[0])) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Please make it shorter",
        "No, don't touch sales.csv",
        "no, use EUR",
        "Step 2 should use EUR",
        "s2: use EUR",
        "2. [s2] Write the sum to out.md instead",
        "1. use EUR\n2. skip the drafts",
        "- use EUR\n- skip the drafts",
        "Nein, erst die Entwürfe löschen",
        "Non, utilise plutôt l'autre fichier",
        "No, usa el otro archivo",
        "不要，先读草稿",
        "いいえ、先に下書きを読んでください",
    ],
)
def test_a_rejection_with_its_reason_stays_one(text: str) -> None:
    """U3, C02: words about a plan or one of its steps, typed or sent with the button, are never taken for an edit."""
    assert read_answer(text, pending("plan")) == Answer("reject", text)
    assert read_answer({"type": "reject", "message": text}, pending("plan")) == Answer("reject", text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (edited_text("3. [s3]", "> use EUR here\n3. [s3]"), "line 20 “> use EUR here”"),
        (edited_text("3. [s3]", "   - mail it\n3. [s3]"), "line 20 “- mail it”"),
        (edited_text("1. [s1] Read", "[s1] Read"), "line 5 “[s1] Read every CSV file.”"),
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
