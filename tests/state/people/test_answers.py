"""Answers to questions, tool calls, budgets and unknown effects, in every shape of every client."""

import json
from typing import Any

import pytest

from donewhen.state.people.answers import Answer, answers_by_id, read_answer
from tests.kit.pauses import hitl, pending


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
        ("stop the clock", "stop the clock"),
        ("leave it", "leave it"),
        ("yes, please", "yes, please"),
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
    """C02, X16: options by text or number; a rejection with words is the answer."""
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
    offered = pending("question", options=["No", "Yes"])
    assert read_answer({"decisions": [{"type": "approve"}]}, offered) == Answer("answer", "Yes")
    approved = read_answer({"decisions": [{"type": "approve"}]}, pending("question"))
    assert isinstance(approved, Answer)
    assert approved.kind == "answer"


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ({"arguments": {"path": "b.txt"}}, Answer("edit", arguments={"path": "b.txt", "content": "7"})),
        (
            hitl("tool", tool="write_file", arguments='{"path": "b.txt"}'),
            Answer("edit", arguments={"path": "b.txt", "content": "7"}),
        ),
        (
            {"type": "edit", "edited_action": {"name": "write_file", "args": {"path": "b.txt"}}},
            Answer("edit", arguments={"path": "b.txt", "content": "7"}),
        ),
        (
            hitl("tool", tool="write_file", arguments=json.dumps(pending("tool")["arguments"])),
            Answer("approve"),
        ),
        ({"type": "reject", "message": "wrong file"}, Answer("reject", "wrong file")),
        ("no", Answer("reject")),
        (False, Answer("reject")),
        ("stop", Answer("cancel")),
        ({"type": "respond", "message": "it is done already"}, Answer("respond", "it is done already")),
        ({"type": "cancel"}, Answer("cancel")),
        ([{"type": "ignore", "args": None}], Answer("reject")),
    ],
    ids=repr,
)
def test_answers_to_a_tool_call(value: Any, answer: Answer) -> None:
    """C02, X15, N49: approve, edit the arguments (those not named stay), reject with a reason, answer instead."""
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
        ("5", Answer("extend", amounts={"rounds": 5})),
        ("extend 5 rounds", Answer("extend", amounts={"rounds": 5})),
        ("model calls: 3; 2 replans", Answer("extend", amounts={"model_calls": 3, "replans": 2})),
        ("5 Runden", Answer("extend", amounts={"rounds": 5})),
        ("$0.50", Answer("extend", amounts={"cost_usd": 0.5})),
        ("1 model call", Answer("extend", amounts={"model_calls": 1})),
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
        ({"type": "cancel"}, Answer("cancel")),
        ({"type": "reject"}, Answer("stop")),
        ({"type": "reject", "message": "deliver"}, Answer("deliver")),
        ("取消", Answer("cancel")),
        ("extend $5", Answer("extend", amounts={"cost_usd": 5})),
        ("5$", Answer("extend", amounts={"cost_usd": 5})),
        ("erweitern 5", Answer("extend", amounts={"rounds": 5})),
    ],
    ids=repr,
)
def test_answers_to_a_budget(value: Any, answer: Answer) -> None:
    """C02, D03, Q6: extend by so much (a dollar sign is money), deliver what there is, replan, stop."""
    assert read_answer(value, pending("budget")) == answer


@pytest.mark.parametrize(
    "value",
    [
        "extend bananas 5",
        "extend model 5",
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
        "extend 1.000",
        "1,000",
        "1.000 rounds",
        "rounds 1,500",
        "extend by 5 rounds",
        "20k input tokens",
        "10%",
        "yes, 50",
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
    "value", ["perhaps it did", {"type": "approve"}, "", 9, "no", False, {"happened": "?"}], ids=repr
)
def test_an_effect_is_not_guessed(value: Any) -> None:
    """C02: a button that does not say whether it happened decides nothing."""
    assert isinstance(read_answer(value, pending("effect")), str)


def test_several_questions_answered_at_once() -> None:
    """C07: by id, in either form, in any order."""
    others = [{"id": "s3.q1", "kind": "question"}]
    answers = {"s3.q1": "why not", "s2.q1": 2}
    for value in (answers, {"answers": answers}, json.dumps({"answers": answers})):
        assert answers_by_id(value, ["s2.q1", "s3.q1"]) == answers
    assert isinstance(read_answer({"s9.q1": "x"}, pending("question", others=others)), str)
