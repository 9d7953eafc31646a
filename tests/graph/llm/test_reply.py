"""The one reader: native tool calls become decisions or corrections; every gate in its order."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool

from donewhen.graph.llm.ask import join_chunks
from donewhen.graph.llm.history import TEXT_CHARS, storable_reply
from donewhen.graph.llm.reply import CALLS_CHARS, QUESTION, Decision, UnusableReply, read_reply
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.state.reading.decisions import EXECUTE, TRIAGE
from donewhen.testing import answer, ask_user, broken_call, call, finish_step, give_up, recall, reply


def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    return a + b


def write_file(path: str, content: str) -> str:
    """Write a file."""
    return path


TOOLBOX = Toolbox([StructuredTool.from_function(add), StructuredTool.from_function(write_file)])


def said(text: str = "", *calls: Any, **more: Any) -> AIMessage:
    """A reply with these calls, each with an id."""
    return join_chunks([reply(text, calls, **more)])


def decision(message: AIMessage, legal: Any = EXECUTE) -> Decision:
    found = read_reply(message, legal, TOOLBOX if legal is EXECUTE else None)
    assert isinstance(found, Decision), found
    return found


def correction(message: AIMessage, legal: Any = EXECUTE) -> str:
    found = read_reply(message, legal, TOOLBOX if legal is EXECUTE else None)
    assert isinstance(found, UnusableReply), found
    return found.text(legal)


WRONG = [
    (said(""), "the reply is empty: no text and no tool call"),
    (said("  \n"), "the reply is empty"),
    (said("<think>only a thought</think>"), "the reply is empty"),
    (said("", call("ad", a=1)), "there is no tool 'ad'; did you mean add?"),
    (said("", call("finish", result="x")), "there is no tool 'finish'; did you mean finish_"),
    (said("", call("submit_plan", steps=["a"])), "submit_plan is not legal here"),
    (said("", answer("x")), "answer is not legal here"),
    (said("", call("add")), "add: "),
    (said("", call("add", a="one")), "add: a"),
    (said("", call("add", a=1, c=2)), "add: "),
    (said("", call("add", a=float("nan"))), "add: the value holds nan, which is no JSON number"),
    (said("", call("write_file", path="x", content="\ud83d")), "write_file: the value holds half a character"),
    (said("", ask_user("a?"), call("write_file", path="a", content="b")), "ask_user must be the only call of a reply"),
    (said("", finish_step("x", "s1.1"), give_up("no", "failed")), "finish_step must be the only call of a reply"),
    (said("", ask_user("a?"), ask_user("b?")), "ask_user must be the only call of a reply"),
    (said("", *[call("add", a=n) for n in range(40)]), "40 calls in one reply; at most 32"),
    (said("", call("give_up", reason="x", kind="bored")), "kind: 'bored' is not one of ['blocked', 'failed',"),
    (said("", call("give_up", reason=" ", kind="failed")), r"reason: ' ' does not match '\\S'"),
    (said("", call("finish_step", goal_check=[])), "'result' is a required property"),
    (said("", call("ask_user", question="?", options={"a": 1})), "options: {'a': 1} is not of type 'array'"),
    (said("", recall("s1.1", -1)), "offset: -1 is less than the minimum of 0"),
    (said("", call("ask_user", question="?", steps=["a"])), "only submit_plan carries steps"),
    (said("", broken_call("add", '{"a": customer_id}')), "the arguments of add are not valid JSON"),
    (said("", broken_call("add", "[1, 2]")), "the arguments of add are not valid JSON"),
    (said("", broken_call("add", '{"a": 1}{"a": 2}')), "the arguments of add are not valid JSON"),
    (said("", broken_call("write_file", '{"path": "a", "content": "b"')), "the arguments of write_file are cut off"),
    (said("", broken_call("", "{}")), "a call names no tool"),
    (said("", call("add", a=1), finish_reason="length"), "cut off at the output limit"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "problem"), WRONG)
def test_anything_else_is_a_correction_that_says_what_is_legal(message: AIMessage, problem: str) -> None:
    """X02, X06, X07, P06: exactly what was wrong, near matches, and what is legal now."""
    text = correction(message)
    assert text.startswith("Correction: nothing was done.\n- ")
    assert problem in text
    assert "Call one of these: ask_user, finish_step, finish_task, give_up, recall, or the tools you have." in text


def test_where_every_call_is_wrong_each_is_told_its_own() -> None:
    """X06, X18: nothing is done, and the result of each call says what was wrong with this one."""
    message = said("", call("add", a="x"), call("nothing"))
    found, ids = read_reply(message, EXECUTE, TOOLBOX), [each["id"] for each in message.tool_calls]
    assert isinstance(found, UnusableReply)
    assert len(found.problems) == 2
    assert "add: a" in found.text(EXECUTE, ids[0])
    assert "no tool" not in found.text(EXECUTE, ids[0])
    assert "no tool 'nothing'" in found.text(EXECUTE, ids[1])


def test_beside_a_question_only_reads_run() -> None:
    """X18, X19: a write beside the question whether to write is not made; looking does no harm."""
    box = Toolbox([StructuredTool.from_function(add), StructuredTool.from_function(write_file)], {"add": "read"})
    message = said("", ask_user("Write it?"), call("add", a=1), call("write_file", path="a", content="b"))
    found = read_reply(message, EXECUTE, box)
    assert isinstance(found, Decision)
    assert [each["name"] for each in found.calls] == ["add"]
    assert sorted(found.refused) == sorted([message.tool_calls[0]["id"], message.tool_calls[2]["id"]])


CHECK: dict[str, Any] = {"criterion": 1, "met": True, "evidence": [{"observation": "s1.1"}]}


@pytest.mark.parametrize(
    ("made", "key", "expected"),
    [
        (call("finish_step", result="r", goal_check=CHECK), "goal_check", [CHECK]),
        (call("finish_step", result="r", goal_check=json.dumps([CHECK])), "goal_check", [CHECK]),
        (call("finish_step", result="r", goal_check=[{**CHECK, "criterion": "1", "met": "true"}]), "goal_check",
         [CHECK]),
        (call("finish_step", result="r", goal_check=[{**CHECK, "criterion": 1.0, "met": "False"}]), "goal_check",
         [{**CHECK, "met": False}]),
        (call("finish_step", result="r", goal_check=[{**CHECK, "evidence": {"observation": "s1.1"}, "note": None}]),
         "goal_check", [CHECK]),
        (call("finish_task", result="r", reason="r", goal_check={**CHECK, "criterion": "1"}), "goal_check", [CHECK]),
        (call("finish_step", result=12, goal_check=[CHECK]), "result", "12"),
        (call("ask_user", question="?", options="one"), "options", ["one"]),
        (call("ask_user", question="?", options='["a", "b"]'), "options", ["a", "b"]),
        (call("finish_step", result="r", goal_check=[{**CHECK, "met": "yes"}]), "goal_check",
         [{**CHECK, "met": "yes"}]),
    ],
)  # fmt: skip
def test_what_can_be_read_without_loss_is_read(made: Any, key: str, expected: Any) -> None:
    """X18, H10: of control tools as of others; what would be a guess is left for the correction."""
    assert decision(said("", made)).arguments[key] == expected


def test_what_runs_is_what_was_read() -> None:
    """X18, H10: the call as it is recorded and run holds the value of the schema's type, and the defaults."""
    assert decision(said("", call("add", a="71", b=None))).calls[0]["args"] == {"a": 71, "b": 0}
    assert "'7.5' is not of type 'integer'" in correction(said("", call("add", a="7.5")))
    twice = said("", broken_call("add", json.dumps(json.dumps({"a": 1}))))
    assert decision(twice).calls[0]["args"] == {"a": 1, "b": 0}


def test_arguments_whose_syntax_alone_was_wrong_are_mended() -> None:
    """P10: a trailing comma or single quotes cost no round; the values are as written."""
    found = decision(said("", broken_call("write_file", "{'path': 'a.md', 'content': 'I can\\'t',}")))
    assert found.calls[0]["args"] == {"path": "a.md", "content": "I can't"}


@pytest.mark.parametrize(
    "metadata",
    [
        {"finish_reason": "length"},
        {"finish_reason": "MAX_TOKENS"},
        {"stop_reason": "max_tokens"},
        {"finish_reason": "FinishReason.MAX_TOKENS"},
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    ],
)
def test_a_reply_that_was_cut_off_is_not_acted_on(metadata: dict[str, Any]) -> None:
    """X06: whatever a provider calls it, half a reply is not taken for a whole one; cut-off speech is still speech."""
    whole = said("", call("write_file", path="a", content="only the beginn"))
    assert "cut off" in correction(whole.model_copy(update={"response_metadata": metadata}))
    printed = AIMessage('{"action": "add", "args": {"a": 1}}', response_metadata=metadata)
    assert "cut off" in correction(printed)
    assert decision(AIMessage("I was going to", response_metadata=metadata)).kind == "speak"


@pytest.mark.parametrize(
    ("made", "text", "question"),
    [
        ({"question": "Which?"}, "Hm.", "Which?"),
        ({"question": "  "}, "Which year do you mean?", "Which year do you mean?"),
        ({"reason": "the year is missing"}, "", "the year is missing"),
        ({"options": ["a"]}, "", QUESTION),
    ],
)
def test_a_question_without_words_takes_them_from_speech_or_reason(made: Any, text: str, question: str) -> None:
    """X16: ask_user shows the question; speech, else the reason, else a default sentence where it has none."""
    assert decision(said(text, call("ask_user", **made))).arguments["question"] == question


def test_a_decision_too_long_is_refused_and_a_long_call_kept_without_its_arguments() -> None:
    """X12: runaway arguments neither decide nor fill the transcript."""
    long = said("", finish_step("x" * (CALLS_CHARS + 1), "s1.1"))
    assert "at most 200,000" in correction(long)
    writing = said("", call("write_file", path="a", content="x" * (CALLS_CHARS + 1)))
    assert decision(writing).calls[0]["args"]["path"] == "a"
    assert storable_reply(writing).tool_calls == []
    assert len(storable_reply(writing).text) < 100


def test_of_a_huge_reply_the_transcript_keeps_head_and_tail() -> None:
    """F6, X12: and says that something was left out."""
    short = storable_reply(AIMessage("All work and no play. " * 230_000))
    assert len(short.text) < TEXT_CHARS + 100
    assert "characters left out" in short.text


def test_what_cannot_be_stored_is_not_kept() -> None:
    """F10: half characters in text are replaced, in arguments the reply is left out of the transcript."""
    assert storable_reply(AIMessage("so \ud83d")).text == "so \ufffd"
    assert storable_reply(said("", call("add", a="\ud83d"))).tool_calls == []
    json.dumps(storable_reply(said("", broken_call("add", "\ud83d"))).model_dump()).encode()


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from([*EXECUTE, *TRIAGE, "add", "write_file", "nothing"])


@given(NAMES, st.dictionaries(st.sampled_from(["question", "result", "a", "b", "path", "kind", "reason"]), ANY))
def test_no_call_can_break_the_reader(name: str, arguments: dict[str, Any]) -> None:
    """X06: whatever a model calls with whatever, there is a decision or a correction, and both can be stored."""
    message = said("", call(name, **arguments))
    found = read_reply(message, EXECUTE, TOOLBOX)
    assert isinstance(found, Decision | UnusableReply)
    json.dumps(storable_reply(message).tool_calls, allow_nan=False).encode()
    if isinstance(found, Decision):
        json.dumps([found.arguments, found.calls], allow_nan=False).encode()
