"""What people are shown and what their answers mean: every client's shape, and nothing that is no consent."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.human import Answer, Bundle, payload, plan_text, question_text, read_answer
from state.plan import Rules, read_plan

PLAN: dict[str, Any] = {
    "title": "Total the sales",
    "complexity": "moderate",
    "need_thinking": False,
    "steps": [
        {
            "id": "s1",
            "content": "Read every CSV file.\nSkip\n\nthe drafts.",
            "done_when": [
                {"text": "Every file was read", "check": None, "judge": False},
                {
                    "text": "There are three",
                    "check": {"tool": "list_files", "arguments": {"path": "."}, "expect": {"contains": "3"}},
                    "judge": True,
                },
            ],
            "depends_on": [],
            "executor": "reader",
            "tools": ["list_files", "read_file"],
        },
        {
            "id": "s2",
            "content": "Write the total - to out.txt",
            "done_when": [{"text": "out.txt holds the total", "check": None, "judge": False}],
            "depends_on": ["s1"],
            "executor": None,
            "tools": ["write_file"],
        },
        {
            "id": "s3",
            "content": "Tell the user",
            "done_when": [],
            "depends_on": None,
            "executor": None,
            "tools": None,
        },
    ],
    "schedule": {"every_minutes": None, "at": "08:30", "timezone": "Europe/Berlin"},
    "speak": None,
    "revision": "abc123",
}
LIMITS = {"rounds": 40, "cost_usd": 0.5, "model_calls": None}


def pending(kind: str, **more: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "plan": {"id": "confirm.abc123", "plan": PLAN, "revision": "abc123", "limits": LIMITS},
        "question": {"id": "s2.q1", "question": "Which year?", "options": ["2022", "2023"], "step": "s2"},
        "tool": {
            "id": "s2.t1",
            "tool": "write_file",
            "arguments": {"path": "out.txt", "content": "7"},
            "step": "s2",
        },
        "budget": {"id": "run.b1", "exhausted": ["rounds"], "suggested": {"rounds": 20}},
        "effect": {"id": "s2.e1", "tool": "send_mail", "arguments": {"to": "a@b.c"}, "step": "s2"},
    }[kind]
    return {"kind": kind, "tool_call_id": "call_1", "options": [], "step": None, **own, **more}


KINDS = ("plan", "question", "tool", "budget", "effect")


def hitl(kind: str, **args: Any) -> dict[str, Any]:
    name = payload(pending(kind))["action_requests"][0]["name"]
    return {"decisions": [{"type": "edit", "edited_action": {"name": name, "args": args}}]}


def edited_text(before: str, after: str) -> str:
    text = plan_text(PLAN, limits=LIMITS)
    assert before in text
    return text.replace(before, after)


def with_step(index: int, **change: Any) -> dict[str, Any]:
    plan = copy.deepcopy(PLAN)
    plan["steps"][index].update(change)
    del plan["revision"]
    return plan


# --- what is shown


@pytest.mark.parametrize("kind", KINDS)
def test_payload_is_what_every_client_can_draw(kind: str) -> None:
    """C01, C07: one action, string arguments under both names, JSON throughout, and our own keys."""
    others = [{"id": "s3.q1", "kind": "question", "question": "Why?", "options": ["a"], "step": "s3", "x": 1}]
    value = payload(pending(kind, problem="not a number", others=others))
    assert json.loads(json.dumps(value)) == value
    (action,) = value["action_requests"]
    (review,) = value["review_configs"]
    assert action["args"] == action["arguments"]
    assert all(isinstance(text, str) for text in action["args"].values())
    assert review["action_name"] == action["name"]
    assert value["reason"] in ("tool_call", "input_required")
    assert value["message"]
    assert value["tool_call_id"] == "call_1"
    assert value["response_schema"]["required"] == ["decisions"]
    assert value["id"] == pending(kind)["id"]
    assert value["kind"] == kind
    assert "not a number" in action["description"]
    assert "s3.q1" in action["description"]
    assert value["others"] == [{key: item for key, item in others[0].items() if key != "x"}]


def test_a_question_has_an_empty_answer_to_edit() -> None:
    """C01: without an `edit` and an empty `answer`, agent-chat-ui draws no input field."""
    value = payload(pending("question"))
    assert value["action_requests"][0]["args"]["answer"] == ""
    assert value["review_configs"][0]["allowed_decisions"] == ["edit", "respond", "reject"]
    assert "1. 2022\n2. 2023" in value["action_requests"][0]["description"]


def test_a_plan_is_shown_whole() -> None:
    """C01: steps, criteria, checks, executors, tools granted, dependencies, schedule, limits."""
    text = plan_text(PLAN, limits=LIMITS)
    for part in (
        "Total the sales",
        "[s1]",
        "Skip",
        "the drafts.",
        "Every file was read",
        'list_files {"path": "."}',
        '{"contains": "3"}',
        "a second model",
        "executor: reader",
        "tools: write_file",
        "after: s1",
        "after: nothing",
        "08:30",
        "Europe/Berlin",
        "rounds 40",
        "cost_usd 0.5",
    ):
        assert part in text
    assert payload(pending("plan"))["action_requests"][0]["args"]["plan"] == text
    assert payload(pending("plan"))["plan"] == PLAN


def test_the_call_to_approve_is_shown_as_it_will_run() -> None:
    args = payload(pending("tool"))["action_requests"][0]["args"]
    assert args["tool"] == "write_file"
    assert json.loads(args["arguments"]) == pending("tool")["arguments"]
    assert '"path": "out.txt"' in question_text(pending("tool"))


def test_a_fence_in_the_arguments_cannot_close_the_block() -> None:
    text = question_text(pending("tool", arguments={"content": "```\nrm"}))
    assert text.count("````") == 2


# --- every shape of every client (CLIENTS 1.2)

APPROVALS: list[Any] = [
    {"decisions": [{"type": "approve"}]},
    {"type": "approve"},
    [{"type": "accept", "args": None}],
    [{"type": "accept", "args": {"action": "confirm_plan", "args": {}}}],
    {"approved": True},
    True,
    "yes",
    "Y",
    "OK!",
    "Approve",
    "approved.",
    "LGTM",
    "同意",
    "可以",
    "批准。",
    "好",
    " Yes ",
    "true",
    '"yes"',
    '{"approved": true}',
    '```json\n{"type": "approve"}\n```',
    {"resume": "yes"},
    {"action": "approve"},
    {"decision": "approved"},
    {"type": "respond", "message": "yes"},
    [{"type": "text", "text": "yes"}],
    {"type": "approve", "id": "confirm.abc123", "revision": "abc123"},
    {"approve": True, "message": "ok"},
]


@pytest.mark.parametrize("value", APPROVALS, ids=repr)
def test_approvals(value: Any) -> None:
    """C02: strings, booleans, dicts and JSON strings; accept and approve of every client."""
    assert read_answer(value, pending("plan")) == Answer("approve")
    if "confirm_plan" not in repr(value) and "confirm." not in repr(value) and "respond" not in repr(value):
        assert read_answer(value, pending("tool")) == Answer("approve")


@pytest.mark.parametrize(
    "value",
    [
        {"decisions": [{"type": "reject"}]},
        {"type": "reject"},
        [{"type": "ignore", "args": None}],
        {"approved": False},
        False,
        "no",
        "N",
        "reject",
        "不",
        "拒绝",
        "cancel",
        "stop",
        "Abort!",
        "取消",
        "停止",
        {"type": "cancel"},
        {"__agui_cancelled__": True, "interrupt_id": "f00"},
        {"cancel": True},
        {"type": "reject", "message": "stop"},
        {"decisions": [{"type": "reject", "message": "no"}]},
    ],
    ids=repr,
)
def test_a_bare_reject_of_a_plan_is_cancel(value: Any) -> None:
    """C02: rejecting without a word of what should be different stops the run; nothing is executed."""
    assert read_answer(value, pending("plan")) == Answer("cancel")


@pytest.mark.parametrize(
    ("value", "feedback"),
    [
        ({"decisions": [{"type": "reject", "message": "shorter"}]}, "shorter"),
        ({"decisions": [{"type": "reject", "feedback": "shorter"}]}, "shorter"),
        ([{"type": "response", "args": "shorter"}], "shorter"),
        ({"type": "respond", "message": "shorter"}, "shorter"),
        ({"approved": False, "reason": "shorter"}, "shorter"),
        ({"feedback": "yes"}, "yes"),
        ("yes but change step 2", "yes but change step 2"),
        ("I know", "I know"),
        ("ok?", "ok?"),
        ("不太好", "不太好"),
        ("also write a summary", "also write a summary"),
        ({"type": "reject", "message": "yes"}, "yes"),
        ({"text": "no way, use the other file"}, "no way, use the other file"),
    ],
    ids=repr,
)
def test_words_at_a_plan_are_feedback(value: Any, feedback: str) -> None:
    """C02: a word inside another word or sentence is never consent and never cancels."""
    assert read_answer(value, pending("plan")) == Answer("reject", feedback)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "  ",
        1,
        0,
        3.5,
        float("nan"),
        [],
        {},
        {"decisions": []},
        {"decisions": "approve"},
        "?",
        "{broken",
        {"decisions": [{"type": "approve"}, {"type": "approve"}]},
        {"decisions": [{"type": "frobnicate"}]},
        {"decisions": ["approve"]},
        {"type": "frobnicate"},
        {"approved": "maybe"},
        {"approved": 1},
        ["yes"],
        {"yes": True},
        {"type": "approve", "message": "but change step 2"},
        {"type": "approve", "approved": False},
        {"plan": {}},
        {"type": "edit"},
        {"steps": {}},
        {"steps": {"s9": {"content": "x"}}},
        {"plan": 5},
        {"steps": {"s1": 5}},
        [{"op": "replace", "path": "/steps/9/content", "value": "x"}],
        [{"op": "explode"}],
        {"plan": " "},
        [{"op": "test", "path": "/title", "value": "Total the sales"}],
        [{"op": "remove", "path": "/steps"}],
        object(),
    ],
    ids=repr,
)
def test_what_is_not_understood_says_why(value: Any) -> None:
    """C02: the pause stays; the text names what is accepted."""
    for kind in ("plan", "tool"):
        problem = read_answer(value, pending(kind))
        assert isinstance(problem, str)
        assert "Accepted:" in problem


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "value",
    [
        {"type": "approve", "id": "confirm.old"},
        {"type": "reject", "revision": "old", "id": "x"},
        {"answers": {"zz": "y"}},
    ],
    ids=repr,
)
def test_an_answer_to_something_else_is_stale(kind: str, value: Any) -> None:
    """C04: another id or another revision changes nothing and is reported."""
    problem = read_answer(value, pending(kind))
    assert isinstance(problem, str)
    assert problem.startswith("stale")


@pytest.mark.parametrize(
    "value",
    [
        {"approved": True, "revision": "old"},
        {**PLAN, "revision": "old"},
        {"plan": {**PLAN, "revision": "old"}},
    ],
    ids=["approval", "plan", "wrapped"],
)
def test_a_stale_revision_never_approves(value: Any) -> None:
    """C04: approval binds to the revision that was shown."""
    problem = read_answer(value, pending("plan"))
    assert isinstance(problem, str)
    assert problem.startswith("stale")


# --- edited plans

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
        {"type": "edit", "steps": {"s2": {"content": "Write the sum to out.txt"}}},
        {"steps": {"s2": "Write the sum to out.txt"}},
        [{"op": "replace", "path": "/steps/1/content", "value": "Write the sum to out.txt"}],
        {"patch": [{"op": "replace", "path": "/steps/1/content", "value": "Write the sum to out.txt"}]},
        hitl("plan", plan=json.dumps(CHANGED)),
        hitl("plan", plan=edited_text("Write the total - to", "Write the sum to")),
        {
            "decisions": [
                {"type": "edit", "editedAction": {"name": "confirm_plan", "args": {"plan": CHANGED}}}
            ]
        },
        {
            "decisions": [
                {"type": "edit", "edited_action": {"name": "confirm_plan", "arguments": {"plan": CHANGED}}}
            ]
        },
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
    """C02, C03: the whole edited plan comes out, without a revision, ready for the same validation as a planned one."""
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
    assert read_answer(hitl("plan", plan=edited_text(before, after)), pending("plan")) == Answer(
        "edit", plan=expected
    )


def test_a_step_written_by_hand_is_new() -> None:
    text = edited_text(
        "3. [s3] Tell the user\n", "3. [s3] Tell the user\n4. Mail it\n   - done when: it was sent\n"
    )
    answer = read_answer(hitl("plan", plan=text), pending("plan"))
    assert isinstance(answer, Answer)
    assert answer.plan is not None
    assert answer.plan["steps"][:3] == PLAN["steps"]
    assert answer.plan["steps"][3]["content"] == "Mail it"
    assert "id" not in answer.plan["steps"][3]


@pytest.mark.parametrize(
    "text",
    [
        "Please make it shorter",
        edited_text("rounds 40", "rounds 400"),
        edited_text("08:30", "09:30"),
        edited_text("3. [s3]", "and then\n3. [s3]"),
        edited_text('list_files {"path": "."} expects', "list_files everything"),
    ],
)
def test_text_that_is_no_plan_is_feedback(text: str) -> None:
    """C02: a limit or schedule changed in the text is never taken for an approval."""
    assert read_answer(hitl("plan", plan=text), pending("plan")) == Answer("reject", text.strip())


def test_changes_by_id() -> None:
    value = {
        "steps": {"s1": None, "s2": {"depends_on": []}},
        "remove": ["s3"],
        "add": ["Mail it"],
        "title": "Less",
    }
    answer = read_answer(value, pending("plan"))
    assert isinstance(answer, Answer)
    assert answer.plan is not None
    assert answer.plan["title"] == "Less"
    assert answer.plan["steps"] == [{**PLAN["steps"][1], "depends_on": []}, {"content": "Mail it"}]


# --- questions, tools, budgets, effects


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("2022", "2022"),
        (2023, "2023"),
        ("1", "2022"),
        (2, "2023"),
        ("#2", "2023"),
        ("neither", "neither"),
        (7, "7"),
        (hitl("question", question="Which year?", answer="2022"), "2022"),
        ({"answer": 2023}, "2023"),
        ({"decisions": [{"type": "respond", "message": "2"}]}, "2023"),
        ([{"type": "response", "args": "2022"}], "2022"),
        ({"decisions": [{"type": "reject", "message": "2022"}]}, "2022"),
        ({"type": "reject", "feedback": "both"}, "both"),
        ([{"type": "edit", "args": {"action": "ask_user", "args": {"question": "?", "answer": "x"}}}], "x"),
        (True, "yes"),
        ("no", "no"),
        ("cancel", "cancel"),
        ("stop it", "stop it"),
        ({"resume": "2022"}, "2022"),
        ([1, 2], "2022, 2023"),
        ('{"type": "object"}', '{"type": "object"}'),
        ('{"a": 1', '{"a": 1'),
        ("[1, 2]", "[1, 2]"),
        ('"quoted"', '"quoted"'),
        ('{"decisions": [{"type": "respond", "message": "2"}]}', "2023"),
        ({"text": "x"}, "x"),
        ([{"type": "text", "text": "2022"}], "2022"),
    ],
    ids=repr,
)
def test_answers_to_a_question(value: Any, text: str) -> None:
    """C02, X16: options by text or number; a rejection with words is the answer; typed words never cancel."""
    assert read_answer(value, pending("question")) == Answer("answer", text)


def test_a_number_that_is_an_option_itself_is_that_option() -> None:
    assert read_answer("2", pending("question", options=["3", "2", "1"])) == Answer("answer", "2")


def test_declined_cancelled_and_empty_questions() -> None:
    for value in (
        {"type": "reject"},
        [{"type": "ignore", "args": None}],
        {"decisions": [{"type": "reject"}]},
    ):
        assert read_answer(value, pending("question")) == Answer("declined")
    for value in ({"type": "cancel"}, {"__agui_cancelled__": True, "interrupt_id": "1"}):
        assert read_answer(value, pending("question")) == Answer("cancel")
    for value in ("", None, {}, hitl("question", answer=""), {"a": 1}, {"type": "respond"}):
        assert isinstance(read_answer(value, pending("question")), str)
    approved = read_answer({"decisions": [{"type": "approve"}]}, pending("question"))
    assert isinstance(approved, Answer)
    assert approved.kind == "answer"


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ({"arguments": {"path": "b.txt"}}, Answer("edit", arguments={"path": "b.txt"})),
        (
            hitl("tool", tool="write_file", arguments='{"path": "b.txt"}'),
            Answer("edit", arguments={"path": "b.txt"}),
        ),
        (
            {"type": "edit", "edited_action": {"name": "write_file", "args": {"path": "b.txt"}}},
            Answer("edit", arguments={"path": "b.txt"}),
        ),
        (
            hitl("tool", tool="write_file", arguments=json.dumps(pending("tool")["arguments"])),
            Answer("approve"),
        ),
        ({"type": "reject", "message": "wrong file"}, Answer("reject", "wrong file")),
        ("use another file", Answer("reject", "use another file")),
        ("no", Answer("reject")),
        (False, Answer("reject")),
        ("stop", Answer("reject", "stop")),
        ({"type": "respond", "message": "it is done already"}, Answer("respond", "it is done already")),
        ({"type": "cancel"}, Answer("cancel")),
        ([{"type": "ignore", "args": None}], Answer("reject")),
    ],
    ids=repr,
)
def test_answers_to_a_tool_call(value: Any, answer: Answer) -> None:
    """C02, X15: approve, edit the arguments, reject with a reason, answer in its place."""
    assert read_answer(value, pending("tool")) == answer


@pytest.mark.parametrize(
    "value",
    [
        hitl("tool", tool="delete_all", arguments="{}"),
        hitl("tool", tool="write_file", arguments="not json"),
        hitl("tool", tool="write_file", arguments="[1]"),
        {"type": "edit", "edited_action": {"name": "delete_all", "args": {"path": "x"}}},
        {"type": "respond"},
        5,
    ],
    ids=repr,
)
def test_a_tool_call_cannot_become_another(value: Any) -> None:
    """C02, X15: an edit names the same tool and gives an object."""
    assert isinstance(read_answer(value, pending("tool")), str)


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("extend", Answer("extend", amounts={"rounds": 20})),
        ("yes", Answer("extend", amounts={"rounds": 20})),
        (True, Answer("extend", amounts={"rounds": 20})),
        ({"type": "approve"}, Answer("extend", amounts={"rounds": 20})),
        ("extend rounds 5", Answer("extend", amounts={"rounds": 5})),
        ("extend by 5 rounds", Answer("extend", amounts={"rounds": 5})),
        ("5", Answer("extend", amounts={"rounds": 5})),
        (5, Answer("extend", amounts={"rounds": 5})),
        ("rounds=5, cost_usd=0.25", Answer("extend", amounts={"rounds": 5, "cost_usd": 0.25})),
        ({"extend": {"rounds": 5}}, Answer("extend", amounts={"rounds": 5})),
        ({"extend": True}, Answer("extend", amounts={"rounds": 20})),
        ({"extend": 7}, Answer("extend", amounts={"rounds": 7})),
        ({"rounds": 5}, Answer("extend", amounts={"rounds": 5})),
        ({"type": "extend", "amounts": {"rounds": 5}}, Answer("extend", amounts={"rounds": 5})),
        ({"type": "extend"}, Answer("extend", amounts={"rounds": 20})),
        (hitl("budget", answer="extend rounds 5"), Answer("extend", amounts={"rounds": 5})),
        ("deliver", Answer("deliver")),
        ("Deliver what there is.", Answer("deliver")),
        ({"type": "deliver"}, Answer("deliver")),
        ("replan cheaper", Answer("replan")),
        ("replan: only the first file", Answer("replan", "only the first file")),
        ("stop", Answer("stop")),
        ("no", Answer("stop")),
        (False, Answer("stop")),
        ({"type": "cancel"}, Answer("stop")),
        ({"type": "reject"}, Answer("stop")),
        ({"type": "reject", "message": "deliver"}, Answer("deliver")),
        ("取消", Answer("stop")),
    ],
    ids=repr,
)
def test_answers_to_a_budget(value: Any, answer: Answer) -> None:
    """C02, D03: extend by so much, deliver what there is, replan, stop."""
    assert read_answer(value, pending("budget")) == answer


@pytest.mark.parametrize(
    "value",
    [
        "extend bananas 5",
        "0",
        -5,
        "lots",
        "extend rounds -5",
        {"rounds": 0},
        {"rounds": True},
        {"rounds": 1.5},
        {"rounds": float("inf")},
        "extend rounds",
        "1 2",
        None,
        {"extend": {}},
        {"extend": False},
        {"type": "approve", "message": "but less"},
    ],
    ids=repr,
)
def test_a_budget_is_never_extended_by_what_is_not_understood(value: Any) -> None:
    """C02: fail closed, where money is concerned too."""
    assert isinstance(read_answer(value, pending("budget")), str)


def test_extend_without_a_suggestion_needs_an_amount() -> None:
    for value in ("extend", True, {"extend": True}, {"type": "extend"}):
        assert isinstance(read_answer(value, pending("budget", suggested=None)), str)
    assert isinstance(read_answer("5", pending("budget", exhausted=["rounds", "cost_usd"])), str)


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("it happened", Answer("happened")),
        ("1", Answer("happened")),
        ("yes", Answer("happened")),
        (True, Answer("happened")),
        ("It did not.", Answer("not_happened")),
        (2, Answer("not_happened")),
        ("no", Answer("not_happened")),
        ("it didn’t", Answer("not_happened")),
        ("skip", Answer("skip")),
        (3, Answer("skip")),
        ({"type": "reject"}, Answer("skip")),
        ([{"type": "ignore"}], Answer("skip")),
        (hitl("effect", answer="it happened"), Answer("happened")),
        ({"type": "not_happened"}, Answer("not_happened")),
        ({"type": "cancel"}, Answer("cancel")),
    ],
    ids=repr,
)
def test_answers_to_an_unknown_effect(value: Any, answer: Answer) -> None:
    assert read_answer(value, pending("effect")) == answer


@pytest.mark.parametrize(
    "value", ["maybe it happened", {"type": "approve"}, "", 9, {"happened": "perhaps"}], ids=repr
)
def test_an_effect_is_not_guessed(value: Any) -> None:
    """C02: a button that does not say whether it happened decides nothing."""
    assert isinstance(read_answer(value, pending("effect")), str)


def test_several_questions_answered_at_once() -> None:
    """C07: by id, in either form, in any order."""
    others = [{"id": "s3.q1", "kind": "question"}]
    answers = {"s3.q1": "why not", "s2.q1": 2}
    for value in (answers, {"answers": answers}, json.dumps({"answers": answers})):
        assert read_answer(value, pending("question", others=others)) == Bundle(answers)
    assert isinstance(read_answer({"s9.q1": "x"}, pending("question", others=others)), str)


# --- whatever comes

KEYS = st.sampled_from(
    [
        "type",
        "decisions",
        "action",
        "decision",
        "args",
        "arguments",
        "edited_action",
        "plan",
        "steps",
        "patch",
        "op",
        "path",
        "value",
        "remove",
        "add",
        "answer",
        "answers",
        "message",
        "feedback",
        "approved",
        "id",
        "revision",
        "extend",
        "rounds",
        "name",
        "resume",
        "text",
        "s1",
        "content",
        "__agui_cancelled__",
    ]
)
WORDS = st.sampled_from(
    [
        "edit",
        "reject",
        "respond",
        "response",
        "replace",
        "/steps/0/content",
        "s1",
        "no",
        "know",
        "# x",
        "1. a",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | WORDS
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
CONSENT = {
    "y",
    "yes",
    "true",
    "ok",
    "okay",
    "approve",
    "approved",
    "accept",
    "accepted",
    "confirm",
    "confirmed",
    "lgtm",
}


def says_yes(value: Any) -> bool:
    """Whether `value` holds True or a word of consent anywhere."""
    if isinstance(value, dict):
        return any(says_yes(part) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return any(says_yes(part) for part in value)
    folded = value.casefold() if isinstance(value, str) else ""
    return (
        value is True or any(word in folded for word in CONSENT) or any(c in folded for c in "同可批好是确行")
    )


@settings(max_examples=600, deadline=None)
@given(value=ANYTHING, kind=st.sampled_from(KINDS), as_text=st.booleans())
def test_nothing_raises_and_nothing_but_consent_approves(value: Any, kind: str, as_text: bool) -> None:
    """C02: for any JSON, as value or as string: an answer or an error text, and never a guessed approval."""
    answer = read_answer(json.dumps(value) if as_text else value, pending(kind))
    assert isinstance(answer, Answer | Bundle | str)
    if isinstance(answer, Answer) and answer.kind == "approve":
        assert says_yes(value)
    if isinstance(answer, str):
        assert answer


@settings(max_examples=200, deadline=None)
@given(
    words=st.lists(
        st.sampled_from(["yes", "no", "ok", "know", "notes", "but", "stop", "step"]), min_size=2, max_size=5
    )
)
def test_a_sentence_is_feedback(words: list[str]) -> None:
    """C02: words of consent inside a sentence are no consent, and "no" in "know" is no refusal."""
    assert read_answer(" ".join(words), pending("plan")) == Answer("reject", " ".join(words))


def test_deep_nesting_and_size_do_not_raise() -> None:
    deep = "[" * 100_000
    assert isinstance(read_answer(deep, pending("plan")), str)
    assert read_answer(
        {"resume": {"resume": {"resume": {"resume": {"resume": {"resume": "yes"}}}}}}, pending("plan")
    ) != Answer("approve")


TEXT = st.text(min_size=1, max_size=60).filter(lambda text: text.strip())
STEP = st.fixed_dictionaries(
    {
        "content": TEXT
        | st.sampled_from(
            ["a\n- done when: b", "x\n2. [s1] y", "a\n# b", "_3 steps_", "[s1] c", "**Limits:** 1"]
        ),
        "done_when": st.lists(
            TEXT | st.fixed_dictionaries({"text": TEXT, "judge": st.booleans()}), max_size=2
        ),
        "tools": st.none() | st.lists(st.sampled_from(["a", "b-c"]), min_size=1, max_size=2),
    }
)


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(STEP, min_size=1, max_size=4), title=TEXT)
def test_any_plan_survives_its_own_text(steps: list[dict[str, Any]], title: str) -> None:
    """C02: shown and sent back unchanged is an approval; one more criterion on the last step changes only that."""
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
