"""WireServer: the same scripts over a real connection, and what can go wrong on one."""

from typing import Any

import httpx
import openai
import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI

from donewhen.testing import ScriptedModel, ScriptExhausted, ScriptUnfinished, broken_call, call, reply
from tests.kit.wire import WireServer

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
SPOKEN = "Héllo 世界 👩‍👩‍👧 🇩🇪\n" * 3
WHOLE = reply(
    SPOKEN,
    [call("look", path="日本語🙂"), call("read", n=1, deep={"a": [1.5, None]})],
    usage={
        "input_tokens": 100,
        "output_tokens": 20,
        "input_token_details": {"cache_read": 64},
        "output_token_details": {"reasoning": 7},
    },
)


def client(server: WireServer, **settings: Any) -> ChatOpenAI:
    given = {"api_key": "test", "max_retries": 0, "model": "scripted", "stream_usage": True, **settings}
    return ChatOpenAI(base_url=server.base_url, **given)


async def streamed(model: Any, prompt: Any = "x") -> tuple[AIMessageChunk, list[str]]:
    """The joined message, and the pieces of speech it came in."""
    joined: AIMessageChunk | None = None
    said = []
    async for chunk in model.astream(prompt):
        joined = chunk if joined is None else joined + chunk
        said += [chunk.text] if chunk.text else []
    assert joined is not None
    return joined, said


def assert_whole(message: AIMessage) -> None:
    assert message.text == SPOKEN
    assert [(c["name"], c["args"], c["id"]) for c in message.tool_calls] == [
        ("look", {"path": "日本語🙂"}, "call_1"),
        ("read", {"n": 1, "deep": {"a": [1.5, None]}}, "call_2"),
    ]
    assert message.usage_metadata is not None
    assert message.usage_metadata["total_tokens"] == 120
    assert message.usage_metadata["input_token_details"]["cache_read"] == 64
    assert message.usage_metadata["output_token_details"]["reasoning"] == 7
    assert message.response_metadata["finish_reason"] == "tool_calls"
    assert message.response_metadata["model_name"] == "scripted"


async def test_a_reply_arrives_in_chunks_with_calls_and_usage() -> None:
    """S02, S03"""
    with WireServer([WHOLE]) as server:
        message, said = await streamed(client(server).bind_tools([TOOL]))
    assert_whole(message)
    assert len(said) > 3


async def test_streamed_usage_comes_only_when_it_is_asked_for() -> None:
    """R05: with a base URL of one's own, LangChain asks for it only with stream_usage=True."""
    with WireServer(["a", "b"]) as server:
        without, _ = await streamed(client(server, stream_usage=False))
        with_usage, _ = await streamed(client(server))
    assert without.usage_metadata is None
    assert with_usage.usage_metadata is not None


async def test_the_conversation_reaches_the_script_as_messages() -> None:
    brain = ScriptedModel(roles={"execute": [call("look"), "done"]})
    system = SystemMessage("You are the executor of DoneWhen.")
    with WireServer(brain) as server, brain:
        model = client(server).bind_tools([TOOL], tool_choice="look")
        first = await model.ainvoke([system, HumanMessage("go")])
        broken = AIMessage("", invalid_tool_calls=[{**broken_call("look", "{oops"), "id": "bad"}])
        history = [first, ToolMessage("[s1.1] look ok", tool_call_id="call_1"), broken]
        repaired = ToolMessage("Correction: …", tool_call_id="bad")
        last = await model.ainvoke([system, HumanMessage("go"), *history, repaired])
    assert last.text == "done"
    seen = brain.requests[1]
    assert seen.role == "execute"
    assert seen.tool_names == ["look"]
    assert seen.kwargs["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert [m.type for m in seen.messages] == ["system", "human", "ai", "tool", "ai", "tool"]
    assert isinstance(seen.messages[4], AIMessage)
    assert seen.messages[4].invalid_tool_calls[0]["args"] == "{oops"


async def test_requests_are_recorded_without_keys() -> None:
    with WireServer(["hi"], api_key="sk-secret-1") as server:
        await client(server, api_key="sk-secret-1", temperature=0.5).ainvoke("x")
        with pytest.raises(openai.AuthenticationError) as caught:
            await client(server, api_key="sk-secret-2").ainvoke("x")
    assert [r.body["temperature"] for r in server.requests[:1]] == [0.5]
    assert server.requests[0].headers["authorization"] == "<hidden>"
    assert server.requests[0].path == "/v1/chat/completions"
    assert "sk-secret" not in repr(server.requests) + str(caught.value)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "at least one"),
        ([{"content": "x"}], "a role"),
        ([{"role": "tool", "tool_call_id": "a", "content": "x"}], "must follow"),
        (
            [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "c7", "function": {"name": "a", "arguments": "{}"}}],
                }
            ],
            "c7",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"id": "c7"}]}, {"role": "tool", "tool_call_id": "c7"}],
            "function",
        ),
    ],
)
def test_what_a_provider_refuses_is_refused(messages: Any, why: str) -> None:
    """X14: a call without its result, or a result without its call, is an error at every provider."""
    with WireServer([]) as server:
        answer = httpx.post(f"{server.base_url}/chat/completions", json={"messages": messages})
    assert answer.status_code == 400
    assert why in answer.json()["error"]["message"]


async def test_too_often_is_a_400_and_fails_at_exit_too_seldom_fails_at_exit() -> None:
    async def ask_twice(server: WireServer) -> None:
        with server:
            await client(server).ainvoke("x")
            with pytest.raises(openai.BadRequestError, match="1 reply"):
                await client(server).ainvoke("x")

    with pytest.raises(ScriptExhausted):
        await ask_twice(WireServer(["once"]))
    with pytest.raises(ScriptUnfinished), WireServer(["never"]):
        pass


async def test_many_at_once_and_thinking_in_its_own_field() -> None:
    """S04: thinking has a field of its own on the wire; ChatOpenAI drops it."""
    brain = ScriptedModel([reply(str(n), thinking="hm") for n in range(12)])
    with WireServer(brain) as server, brain:
        texts = [m.text for m in await client(server).abatch(["x"] * 11)]
        body = {"messages": [{"role": "user", "content": "x"}]}
        async with httpx.AsyncClient() as plain:
            raw = await plain.post(f"{server.base_url}/chat/completions", json=body)
    said = raw.json()["choices"][0]["message"]
    assert said["reasoning_content"] == "hm"
    assert sorted(map(int, [*texts, said["content"]])) == list(range(12))
