"""What a scripted reply looks like to a client: tokens, chunks, calls, and the builders of the protocol."""

import unicodedata
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph

from donewhen.agent.testing.replies import pieces
from donewhen.state.reading.decisions import arguments_schema
from donewhen.testing import (
    ScriptedModel,
    answer,
    ask_user,
    broken_call,
    call,
    criterion,
    decline,
    finish_step,
    finish_task,
    give_up,
    observed,
    recall,
    reply,
    submit_plan,
)


def test_usage_is_given_or_estimated_from_lengths() -> None:
    given_usage = {"input_tokens": 9, "output_tokens": 2, "input_token_details": {"cache_read": 4}}
    with ScriptedModel(["12345678", reply("x", usage=given_usage)], model_name="gpt-5-mini") as model:
        estimated, exact = model.invoke("a" * 42), model.invoke("x")
    assert estimated.usage_metadata == {"input_tokens": 11, "output_tokens": 2, "total_tokens": 13}
    assert exact.usage_metadata == {**given_usage, "total_tokens": 11}
    assert estimated.response_metadata == {"model_name": "gpt-5-mini", "finish_reason": "stop"}


SPOKEN = "Héllo 世界, 👩‍👩‍👧 and 🇩🇪 🏳️‍🌈 e\u0301 👍🏽!\r\n" * 3
WHOLE = reply(SPOKEN, [call("a", text="日本語🙂" * 5, n=1), call("b")], thinking="Let me think about it.")


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_chunks_join_back_to_the_exact_reply(asynchronous: bool) -> None:
    """S02, S03, S04: speech, thinking and calls arrive in pieces and join exactly."""
    expected = await ScriptedModel([WHOLE]).ainvoke("x")
    model = ScriptedModel([WHOLE])
    chunks = [c async for c in model.astream("x")] if asynchronous else list(model.stream("x"))
    assert len([c for c in chunks if c.text]) > 3
    assert sum(len(c.tool_call_chunks) for c in chunks if isinstance(c, AIMessageChunk)) > 4
    joined = chunks[0]
    for chunk in chunks[1:]:
        joined += chunk
    for name in ("content", "tool_calls", "usage_metadata", "response_metadata", "additional_kwargs", "id"):
        assert getattr(joined, name) == getattr(expected, name), name
    assert expected.text == SPOKEN
    assert [b["reasoning"] for b in expected.content_blocks if b["type"] == "reasoning"] == ["Let me think about it."]


@given(st.text(), st.integers(1, 9))
def test_pieces_join_exactly_and_never_cut_a_character(text: str, size: int) -> None:
    """S03"""
    cut = list(pieces(text, size))
    assert "".join(cut) == text
    assert all(cut)
    assert not any(unicodedata.category(piece[0]) in ("Mn", "Me", "Mc") for piece in cut[1:])


def test_broken_arguments_reach_the_runtime_as_a_provider_would_send_them() -> None:
    with ScriptedModel([broken_call("a", "[1, 2]"), broken_call("a", "{'n': nope}")]) as model:
        message = model.invoke("x")
        streamed = [c for c in model.stream("x") if isinstance(c, AIMessageChunk)]
    assert message.invalid_tool_calls[0]["args"] == "[1, 2]"
    assert message.invalid_tool_calls[0]["id"] == "call_1"
    assert not message.tool_calls
    joined = sum(streamed[1:], start=streamed[0])
    assert joined.invalid_tool_calls[0]["args"] == "{'n': nope}"


async def test_a_graph_that_streams_messages_gets_calls_and_usage() -> None:
    """S02: `stream_mode="messages"` turns ainvoke into a stream; nothing is lost on the way."""
    model = ScriptedModel([WHOLE])

    async def speak(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("speak", speak).add_edge(START, "speak").compile()
    parts: list[Any] = [
        p async for p in graph.astream({"messages": [HumanMessage("x")]}, stream_mode=["messages", "values"])
    ]
    said = [data[0].text for mode, data in parts if mode == "messages"]
    final = parts[-1][1]["messages"][-1]
    assert len(said) > 3
    assert "".join(said) == final.text == SPOKEN
    assert [c["name"] for c in final.tool_calls] == ["a", "b"]
    assert final.usage_metadata["total_tokens"] > 0


BUILT = [
    answer("42"),
    ask_user("Which?", ["a", "b"], "two fit"),
    ask_user("Which?"),
    submit_plan(["Look", {"content": "Write", "done_when": ["it exists"], "depends_on": ["s1"]}], speak="So."),
    decline("no tool", "give me one"),
    finish_step("42 files", "s1.1"),
    finish_step("42 files", ["s1.1", ("s1.2", "42")]),
    finish_step("no claim"),
    finish_task("done", goal_check=[criterion(1, "s1.1", ("s1.2", "x"), met=False, note="n")], reason="enough"),
    give_up("no network", "blocked"),
    recall("s1.1", 500),
]


@pytest.mark.parametrize("built", BUILT, ids=lambda built: built["name"])
def test_builders_keep_to_the_protocol(built: Any) -> None:
    jsonschema.validate(built["args"], {**arguments_schema(built["name"]), "additionalProperties": False})


def test_builders_say_what_they_are_told() -> None:
    assert finish_step("r", ["s1.1", ("s1.2", "42")])["args"]["goal_check"] == [
        {"criterion": 1, "met": True, "evidence": [{"observation": "s1.1"}]},
        {"criterion": 2, "met": True, "evidence": [{"observation": "s1.2", "quote": "42"}]},
    ]
    assert submit_plan("Look")["args"] == submit_plan({"content": "Look"})["args"] == submit_plan(["Look"])["args"]
    assert submit_plan(["Look"], title="T")["args"] == {
        "title": "T",
        "complexity": "moderate",
        "need_thinking": False,
        "steps": [{"content": "Look", "tools": []}],
    }
    with pytest.raises(ValueError, match="not both"):
        finish_step("r", "s1.1", goal_check=[])
    shown = [
        ToolMessage(f"[s1.{n}] count_files {how}\n…", tool_call_id="c") for n, how in enumerate(["ok", "error", "ok"])
    ]
    of_executor = HumanMessage("[s1.3] stock ok\n<tool_output 78d1c3>\n12 lamps\n</tool_output 78d1c3>")
    assert observed([HumanMessage("[s1.9] count_files ok"), *shown, of_executor]) == ["s1.0", "s1.2", "s1.3"]


def test_a_citation_of_another_shape_is_named() -> None:
    for wrong in ([["s1.1"]], [{"observation": "s1.1"}]):
        with pytest.raises(ValueError, match="a citation is"):
            finish_step("done", wrong)  # type: ignore[arg-type]
