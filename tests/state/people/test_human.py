"""What people are shown, and what they may say to a plan: every client's shape, and nothing but consent."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from donewhen.state.language.short_replies import read_word
from donewhen.state.people.answers import Answer
from donewhen.state.people.payload import text_changes
from tests.kit.pauses import KINDS, PLAN, payload, pending, question_text, read_answer, stale_reason

# --- what is shown


@pytest.mark.parametrize(("apart", "hunks"), [(1, 0), (20, 1)])
def test_a_replaced_passage_has_no_line_numbers(apart: int, hunks: int) -> None:
    """C02: where the passage of a call stands in its file is not known; several places in it are told apart."""
    between = [f"line {n}" for n in range(apart)]
    old, new = ("\n".join([each, *between, each]) for each in ("a", "b"))
    (change,) = text_changes({"tool": "edit_file", "arguments": {"path": "a.txt", "old": old, "new": new}})
    lines = change.text.split("\n")
    assert (lines[0], lines.count("@@"), lines.count("+b")) == ("-a", hunks, 2)
    assert "@@ -" not in change.text


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


def test_a_fence_in_the_arguments_cannot_close_the_block() -> None:
    text = question_text(pending("tool", arguments={"content": "```\nrm"}))
    assert text.count("````") == 2


# --- every shape of every client (CLIENTS 1.2)

AT_A_PLAN: list[tuple[Answer, list[Any]]] = [
    (
        Answer("approve"),
        [
            {"decisions": [{"type": "approve"}]}, {"type": "approve"}, [{"type": "accept", "args": None}],
            [{"type": "accept", "args": {"action": "confirm_plan", "args": {}}}], {"approved": True}, True,
            "yes", "Y", "OK!", "Approve", "approved.", "LGTM", "同意", "可以", "批准。", "好", " Yes ", "true", '"yes"',
            '{"approved": true}', '```json\n{"type": "approve"}\n```', {"resume": "yes"}, {"action": "approve"},
            {"decision": "approved"}, {"type": "respond", "message": "yes"}, [{"type": "text", "text": "yes"}],
            {"type": "approve", "id": "confirm.abc123", "revision": "abc123"}, {"approve": True, "message": "ok"},
        ],
    ),
    (
        Answer("reject"),
        [
            {"decisions": [{"type": "reject"}]}, {"type": "reject"}, [{"type": "ignore", "args": None}],
            {"approved": False}, "reject", "拒绝", {"decisions": [{"type": "reject", "message": "no"}]},
        ],
    ),
    (
        Answer("cancel"),
        [
            "cancel", "stop", "Abort!", "取消", "停止", {"type": "cancel"}, {"cancel": True},
            {"__agui_cancelled__": True, "interrupt_id": "f00"}, {"type": "reject", "message": "stop"},
        ],
    ),
    (
        Answer("reject", "shorter"),
        [
            {"decisions": [{"type": "reject", "message": "shorter"}]}, {"approved": False, "reason": "shorter"},
            {"decisions": [{"type": "reject", "feedback": "shorter"}]},
        ],
    ),
    (
        Answer("say", "shorter"),
        [
            [{"type": "response", "args": "shorter"}], {"type": "respond", "message": "shorter"}, "shorter",
            {"type": "approve", "message": "shorter"}, {"text": "shorter"},
        ],
    ),
]  # fmt: skip


def test_answers_to_a_plan_in_every_shape_of_every_client() -> None:
    """C02: strings, booleans, dicts and JSON strings; cancelling is not rejecting; a word inside another word or
    sentence is never consent and never cancels."""
    for answer, values in AT_A_PLAN:
        assert [value for value in values if read_answer(value, pending("plan")) != answer] == []


UNREADABLE: list[Any] = [
    None, "", "  ", float("nan"), [], {}, "{broken", '{"a": 1}', {"type": "edit"},
    ["yes"], {"yes": True}, {"decisions": []}, {"decisions": "approve"}, {"decisions": ["approve"]},
    {"decisions": [{"type": "approve"}, {"type": "approve"}]}, {"decisions": [{"type": "frobnicate"}]},
    {"type": "frobnicate"}, {"approved": "maybe"}, {"approved": 1}, {"type": "approve", "approved": False},
    {"plan": {}}, {"plan": 5}, {"plan": " "}, {"steps": {}}, {"steps": {"s9": {"content": "x"}}},
    {"steps": {"s1": "by id"}}, object(), [{"op": "replace", "path": "/steps/0/content", "value": "a patch"}],
]  # fmt: skip


@pytest.mark.parametrize("kind", ["plan", "tool"])
def test_what_a_program_sent_wrongly_says_why(kind: str) -> None:
    """C02, C11: the pause stays; one text says what is wrong, without a list of what would be accepted."""
    said = [read_answer(value, pending(kind)) for value in UNREADABLE]
    assert [text for text in said if not isinstance(text, str) or not text or "Accepted" in text] == []


WORDS: list[Any] = ["I know", "ok?", "hm", "stop, take the other one", 1, 0, 3.5, "?", "thanks", "approve nothing"]


@pytest.mark.parametrize("value", WORDS)
def test_words_are_said(value: Any) -> None:
    """C11: to the planner at a plan; at a call they reject it, and the model reads why."""
    assert read_answer(value, pending("plan")) == Answer("say", str(value))
    assert read_answer(value, pending("tool")) == Answer("reject", str(value))


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_to_something_else_is_stale(kind: str) -> None:
    """C04: another id or another revision changes nothing and is reported."""
    other = {"type": "approve", "id": "confirm.old"}, {"type": "reject", "revision": "old", "id": "x"}
    for value in (*other, {"answers": {"zz": "y"}}):
        assert str(stale_reason(value, pending(kind))).startswith("stale")


def test_a_stale_revision_never_approves() -> None:
    """C04: approval binds to the revision that was shown, in an approval, a plan and an edit."""
    old = {**PLAN, "revision": "old"}
    for value in ({"approved": True, "revision": "old"}, old, {"plan": old}):
        assert str(read_answer(value, pending("plan"))).startswith("stale")


# --- whatever comes

KEYS = st.sampled_from([
    "type", "decisions", "action", "decision", "args", "arguments", "edited_action", "plan", "steps", "patch",
    "op", "path", "value", "remove", "add", "answer", "answers", "message", "feedback", "approved", "id",
    "revision", "extend", "rounds", "name", "resume", "text", "s1", "content", "__agui_cancelled__",
])  # fmt: skip
WORDS = st.sampled_from([
    "edit", "reject", "respond", "response", "replace", "/steps/0/content", "s1", "no", "know", "# x", "1. a",
])  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | WORDS
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def says_yes(value: Any) -> bool:
    """Whether `value` holds True or words of consent anywhere."""
    if isinstance(value, dict):
        return any(says_yes(part) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return any(says_yes(part) for part in value)
    return value is True or (
        isinstance(value, str) and (read_word(value) == "yes" or "appro" in value or "accept" in value)
    )


@given(value=ANYTHING, kind=st.sampled_from(KINDS), as_text=st.booleans())
def test_nothing_raises_and_nothing_but_consent_approves(value: Any, kind: str, as_text: bool) -> None:
    """C02: for any JSON, as value or as string: an answer or an error text, and never a guessed approval."""
    answer = read_answer(json.dumps(value) if as_text else value, pending(kind))
    assert isinstance(answer, Answer | str)
    if isinstance(answer, Answer) and answer.kind == "approve":
        assert says_yes(value)
    if isinstance(answer, str):
        assert answer


@given(words=st.lists(st.sampled_from(["yes", "no", "know", "please", "but", "stop", "step"]), min_size=1, max_size=9))
def test_only_words_of_one_list_decide(words: list[str]) -> None:
    """C11: “no” in “know” is no refusal, “yes but” no consent, and “please” alone is neither."""
    said, only = " ".join(words), set(words) - {"please"}
    meant = {"yes": Answer("approve"), "stop": Answer("cancel"), "no": "What should be different?"}
    decided = meant.get(*only) if len(only) == 1 else None
    assert read_answer(said, pending("plan")) == (decided or Answer("say", said))


def test_deep_nesting_and_size_do_not_raise() -> None:
    deep = "[" * 100_000
    assert isinstance(read_answer(deep, pending("plan")), str)
    assert read_answer(
        {"resume": {"resume": {"resume": {"resume": {"resume": {"resume": "yes"}}}}}}, pending("plan")
    ) != Answer("approve")
