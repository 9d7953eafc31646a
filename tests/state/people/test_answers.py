"""Answers to questions, tool calls, budgets and unknown effects, in every shape of every client."""

import json
import re
from typing import Any

import pytest

from donewhen.state.language.texts import LANGUAGES, option_texts
from donewhen.state.ledger import KEYS
from donewhen.state.people.answers import Answer, answers_by_id
from tests.kit.pauses import hitl, options, pending, question_text, read_answer

QUESTION: list[tuple[str, list[Any]]] = [
    (
        "2022",
        [
            "2022", "1", hitl("question", question="Which year?", answer="2022"), {"resume": "2022"},
            [{"type": "response", "args": "2022"}], {"decisions": [{"type": "reject", "message": "2022"}]},
            [{"type": "text", "text": "2022"}],
        ],
    ),
    (
        "2023",
        [
            2023, 2, "#2", {"answer": 2023}, {"decisions": [{"type": "respond", "message": "2"}]},
            '{"decisions": [{"type": "respond", "message": "2"}]}',
        ],
    ),
    ("2022, 2023", [[1, 2]]),
    ("7", [7]),
    ("yes", [True]),
    ("both", [{"type": "reject", "feedback": "both"}]),
    ("x", [{"text": "x"}, [{"type": "edit", "args": {"action": "ask_user", "args": {"answer": "x"}}}]]),
]  # fmt: skip
AS_THEY_ARE = [
    "neither", "no", "stop the clock", "leave it", "yes, please", '{"type": "object"}', '{"a": 1', "[1, 2]", '"quoted"',
]  # fmt: skip


def test_a_number_names_an_option_of_ours_too() -> None:
    """Q30: “2” is the second option as if it were typed in full, and no words for the planner."""
    asked = [pending("effect")]  # at a limit, a number is an amount
    for about in ("failure", "early"):
        asked.append(pending("question", about=about, options=option_texts("en", about)))
    for pause in asked:
        for number, option in enumerate(options(pause), start=1):  # type: ignore[arg-type]
            assert read_answer(str(number), pause) == read_answer(option, pause), option


def test_answers_to_a_question() -> None:
    """C02, X16: options by text or number; a rejection with words is the answer."""
    for text, values in [*QUESTION, *[(text, [text]) for text in AS_THEY_ARE]]:
        assert [value for value in values if read_answer(value, pending("question")) != Answer("answer", text)] == []
    assert read_answer("2", pending("question", options=["3", "2", "1"])) == Answer("answer", "2"), "an option itself"


@pytest.mark.parametrize("more", [{}, {"relayed": True}])
def test_a_number_that_may_be_two_options_is_asked_back(more: dict[str, Any]) -> None:
    """C02, C09: “2” at “2 rooms” and “3 rooms” may be either; the sign of a number, and other numbers, are clear."""
    rooms = pending("question", options=["2 rooms", "3 rooms", "12 rooms"], **more)
    assert str(read_answer("2", rooms)) == "“2” may be one of these: 3 rooms / 2 rooms. Write out which one"
    assert isinstance(read_answer("3", rooms), str)
    if not more:
        assert str(read_answer(["1", "2"], rooms)) == "“2” may be one of these: 3 rooms / 2 rooms. Write out which one"
        assert read_answer(["1", "#2"], rooms) == Answer("answer", "2 rooms, 3 rooms")
    for said, option in (("#2", "3 rooms"), ("1", "2 rooms"), ("12", "12 rooms"), ("2 rooms", "2 rooms")):
        assert read_answer(said, rooms).text == option  # type: ignore[union-attr]
    same = pending("question", options=["1 room", "2 rooms"], **more)
    assert read_answer("2", same).text == "2 rooms"  # type: ignore[union-attr]


def test_declined_cancelled_and_empty_questions() -> None:
    for value in ({"type": "reject"}, [{"type": "ignore", "args": None}], {"decisions": [{"type": "reject"}]}):
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


EDITED = Answer("edit", arguments={"path": "b.txt", "content": "7"})
SAME_CALL = json.dumps(pending("tool")["arguments"])
TOOL: list[tuple[Answer, list[Any]]] = [
    (
        EDITED,
        [
            {"arguments": {"path": "b.txt"}}, hitl("tool", tool="write_file", arguments='{"path": "b.txt"}'),
            {"type": "edit", "edited_action": {"name": "write_file", "args": {"path": "b.txt"}}},
        ],
    ),
    (
        Answer("approve"),
        [
            hitl("tool", tool="write_file", arguments=SAME_CALL), {"decisions": [{"type": "approve"}]},
            [{"type": "accept", "args": None}], {"decision": "approve"}, {"approved": True}, True,
            {"type": "approve", "message": ""}, {"type": "approve", "message": None},
            {"approve": True, "message": "ok"},
        ],
    ),
    (Answer("reject"), ["no", False, [{"type": "ignore", "args": None}]]),
    (Answer("reject", "wrong file"), [{"type": "reject", "message": "wrong file"}, "wrong file"]),
    (Answer("respond", "it is done already"), [{"type": "respond", "message": "it is done already"}]),
    (Answer("cancel"), ["stop", {"type": "cancel"}]),
]  # fmt: skip


def test_answers_to_a_tool_call() -> None:
    """C02, X15, N49: approve, edit the arguments (those not named stay), reject with a reason, answer instead."""
    for answer, values in TOOL:
        assert [value for value in values if read_answer(value, pending("tool")) != answer] == []


NOT_THIS_TOOL: list[Any] = [
    hitl("tool", tool="delete_all", arguments="{}"), hitl("tool", tool="write_file", arguments="not json"),
    hitl("tool", tool="write_file", arguments="[1]"), {"type": "respond"},
    {"type": "edit", "edited_action": {"name": "delete_all", "args": {"path": "x"}}},
]  # fmt: skip


def test_a_tool_call_cannot_become_another() -> None:
    """C02, X15: an edit names the same tool and gives an object."""
    assert [value for value in NOT_THIS_TOOL if not isinstance(read_answer(value, pending("tool")), str)] == []


def test_words_with_an_approval_decide_nothing_at_a_call() -> None:
    """C02: they may be a condition, or mere words; what to send instead is said, and nothing counts as a rejection."""
    for key in ("message", "reason", "feedback", "args"):
        for value in ({"type": "approve", key: "not twice"}, {"decisions": [{"type": "accept", key: "not twice"}]}):
            read = str(read_answer(value, pending("tool")))
            assert read.startswith("approved, but with the words “not twice”: ")
            assert '({"type": "approve"})' in read


def test_a_comment_is_the_reason_of_a_no_and_nothing_else() -> None:
    """C02, X15: tools have arguments of that name, and clients send one with a yes; a yes stays one."""
    for kind in ("tool", "plan"):
        asked = pending(kind)
        assert read_answer({"type": "approve", "comment": "fine"}, asked) == Answer("approve")
        assert read_answer({"type": "reject", "comment": "wrong file"}, asked) == Answer("reject", "wrong file")
        assert read_answer({"type": "cancel", "comment": "no use"}, asked) == Answer("cancel", "no use")
        assert isinstance(read_answer({"comment": "bye"}, asked), str)


AS_SUGGESTED = {"rounds": 20}
AMOUNTS: list[tuple[dict[str, float], list[Any]]] = [
    (AS_SUGGESTED, ["extend", "yes", True, {"type": "approve"}, {"extend": True}, {"type": "extend"}]),
    (
        {"rounds": 5},
        [
            "extend rounds 5", "5", "extend 5 rounds", "5 Runden", "erweitern 5", 5, {"extend": {"rounds": 5}},
            {"rounds": 5}, {"type": "extend", "amounts": {"rounds": 5}}, hitl("budget", answer="extend rounds 5"),
        ],
    ),
    ({"rounds": 7}, [{"extend": 7}]),
    ({"model_calls": 3, "replans": 2}, ["model calls: 3; 2 replans"]),
    ({"model_calls": 1}, ["1 model call"]),
    ({"cost_usd": 0.5}, ["$0.50"]),
    ({"cost_usd": 5}, ["extend $5", "5$"]),
    ({"rounds": 5, "cost_usd": 0.25}, ["rounds=5, cost_usd=0.25"]),
]  # fmt: skip
BUDGET: list[tuple[Answer, list[Any]]] = [
    (Answer("deliver"), ["deliver", "Deliver what there is.", {"type": "deliver"},
                         {"type": "reject", "message": "deliver"}]),
    (Answer("replan"), ["replan cheaper"]),
    (Answer("replan", "only the first file"), ["replan: only the first file"]),
    (Answer("stop"), ["stop", "no", False, {"type": "reject"}]),
    (Answer("cancel"), ["取消", {"type": "cancel"}]),
    *[(Answer("extend", amounts=amounts), values) for amounts, values in AMOUNTS],
]  # fmt: skip


def test_answers_to_a_budget() -> None:
    """C02, D03, Q6: extend by so much (a dollar sign is money), deliver what there is, replan, stop."""
    for answer, values in BUDGET:
        asked = pending("budget", **({"exhausted": list(answer.amounts)} if answer.amounts else {}))
        assert [value for value in values if read_answer(value, asked) != answer] == []


def test_the_words_beside_an_options_name_are_kept() -> None:
    """C02, 41.4a: `{"type": "replan", "message": "cheaper"}` is “replan: cheaper”, at every such pause."""
    for kind, about in (("budget", "budget"), ("question", "failure")):
        pause = pending(kind, **({} if kind == "budget" else {"about": about, "options": option_texts("en", about)}))
        wanted = read_answer("replan: cheaper", pause)
        assert wanted.text == "cheaper"  # type: ignore[union-attr]
        for key in ("message", "reason", "args"):
            assert read_answer({"type": "replan", key: "cheaper"}, pause) == wanted
        for end in ("stop", "deliver"):
            assert read_answer(f"{end}: it is pointless", pause) == Answer(end, "it is pointless")  # type: ignore[arg-type]
    extended = read_answer("extend: 5 rounds", pending("budget"))
    assert read_answer({"type": "extend", "message": "5 rounds"}, pending("budget")) == extended
    more = {"type": "extend", "amounts": {"rounds": 5}, "message": "please"}
    assert read_answer(more, pending("budget")) == extended


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_example_of_an_extension_can_be_said(language: str) -> None:
    """C02, Q84: the question's own example is understood in each language, also of amounts with thousands or cents."""
    for key, amount in {**dict.fromkeys(KEYS, 20_000), "cost_usd": 1234.57}.items():
        asked = pending("budget", exhausted=key, suggested={key: amount}, language=language)
        example = re.findall(r"[“„«「](.+?)[”“»」]", question_text(asked))[-1].strip()
        assert read_answer(example, asked) == Answer("extend", amounts={key: amount}), example


def test_an_extension_lifts_the_limit_or_is_given_back() -> None:
    """C02, D03, Q84: with two limits reached one is enough; another limit, or less than was spent beyond it, is not."""
    rows = [{"key": "rounds", "spent": 5, "limit": 3}, {"key": "tool_calls", "spent": 2, "limit": 2}]
    both = pending("budget", exhausted=["rounds", "tool_calls"], meter=rows)
    assert read_answer("tool_calls 1", both) == Answer("extend", amounts={"tool_calls": 1})
    said = "$5 more does not lift the limit that is reached (5 rounds, 2 tool calls used)"
    assert str(read_answer("extend $5", both)).startswith(said)
    assert "„erweitern Runden 20“" in str(read_answer("extend 2", {**both, "exhausted": "rounds", "language": "de"}))
    assert read_answer("extend 3", {**both, "exhausted": "rounds"}) == Answer("extend", amounts={"rounds": 3})
    kept = {**both, "exhausted": "rounds", "reserve": {"rounds": 1}}
    assert "“extend rounds 20”" in str(read_answer("extend 3", kept))
    assert read_answer("extend 4", kept) == Answer("extend", amounts={"rounds": 4})


NO_AMOUNT: list[Any] = [
    "extend bananas 5", "extend model 5", "0", -5, "lots", "extend rounds -5", {"rounds": 0}, {"rounds": True},
    {"rounds": 1.5}, {"rounds": float("inf")}, "extend rounds", "1 2", "extend 1.000", "1,000", "1.000 rounds",
    "rounds 1,500", "extend by 5 rounds", "20k input tokens", "10%", "yes, 50", None, {"extend": {}}, {"extend": False},
    {"type": "approve", "message": "but less"}, {"type": "reject", "message": "5"},
    {"type": "ignore", "message": "yes"}, {"type": "reject", "message": "extend"}, {"rounds": 2**53},
    "rounds 9999999999999999999999",
]  # fmt: skip


def test_a_budget_is_never_extended_by_what_is_not_understood() -> None:
    """C02: fail closed, where money is concerned too; nothing suggested and nothing named is no amount either."""
    assert [value for value in NO_AMOUNT if not isinstance(read_answer(value, pending("budget")), str)] == []
    for value in ("extend", True, {"extend": True}, {"type": "extend"}):
        assert isinstance(read_answer(value, pending("budget", suggested={})), str)
    assert isinstance(read_answer("5", pending("budget", exhausted=["rounds", "cost_usd"])), str)


EFFECT: list[tuple[str, list[Any]]] = [
    ("happened", ["it happened", "1", "yes", True, hitl("effect", answer="it happened")]),
    ("not_happened", ["It did not.", 2, {"type": "not_happened"}]),
    ("skip", ["skip", 3, {"type": "reject"}, [{"type": "ignore"}]]),
    ("cancel", [{"type": "cancel"}]),
]


def test_answers_to_an_unknown_effect() -> None:
    """C02: a button or word that does not say whether it happened decides nothing."""
    for kind, values in EFFECT:
        assert [value for value in values if read_answer(value, pending("effect")) != Answer(kind)] == []
    for value in ("perhaps it did", {"type": "approve"}, "", 9, "no", False, {"happened": "?"}):
        assert isinstance(read_answer(value, pending("effect")), str)


def test_several_questions_answered_at_once() -> None:
    """C07: by id, in either form, in any order."""
    others = [{"id": "s3.q1", "kind": "question"}]
    answers = {"s3.q1": "why not", "s2.q1": 2}
    for value in (answers, {"answers": answers}, json.dumps({"answers": answers})):
        assert answers_by_id(value, ["s2.q1", "s3.q1"]) == answers
    assert isinstance(read_answer({"s9.q1": "x"}, pending("question", others=others)), str)
