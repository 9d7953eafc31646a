"""OpenAI's model with messages in wire form: the same bytes as the ordinary way, at less work."""

import json
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from donewhen.agent.openai_chat import OpenAIChat

PIXEL = "data:image/png;base64,iVBORw0KGgo="
PARTS: list[Any] = [
    {"type": "text", "text": "What is on it?"},
    {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
    {"type": "image", "source_type": "base64", "mime_type": "image/png", "data": "iVBORw0KGgo="},
    {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
]
CALLS: Any = [{"name": "look", "args": {"what": "ä\u2028", "n": 1.5, "of": None}, "id": f"c{n}"} for n in range(2)]
BROKEN: Any = [{"name": "look", "args": "{not json", "id": "c9", "error": "cut"}]
MESSAGES: list[AnyMessage] = [
    SystemMessage("Work."),
    SystemMessage([{"type": "text", "text": "In parts."}], name="rules"),
    HumanMessage("Hello", name="Ann"),
    HumanMessage(PARTS),
    AIMessage("Looking.", tool_calls=CALLS, name="worker"),
    ToolMessage("seen", tool_call_id="c0"),
    ToolMessage([{"type": "text", "text": "seen"}], tool_call_id="c1", status="error"),
    AIMessage("", invalid_tool_calls=BROKEN, additional_kwargs={"refusal": "no"}),
    ToolMessage("no JSON", tool_call_id="c9"),
    AIMessage([{"type": "text", "text": "Said."}]),
    HumanMessage(""),
]


def look(what: str, n: float, of: list[str] | None = None) -> str:
    """Look."""
    return what


class Found(BaseModel):
    """What was found."""

    value: int


REQUESTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "a named model": ({"model": "o3"}, {"stop": ["END"], "max_tokens": 10}),
    "fields of one's own": (
        {"extra_body": {"top_k": 3}},
        {"extra_body": {"cache": True}, "parallel_tool_calls": False},
    ),
    "one's own messages": ({}, {"extra_body": {"messages": [{"role": "user", "content": "mine"}]}}),
    "streamed": ({"streaming": True, "stream_usage": True}, {}),
    "Responses API": ({"use_responses_api": True}, {}),
    "structured output": ({}, {"response_format": Found}),
}


async def bodies(
    kind: type[ChatOpenAI], given: dict[str, Any], options: dict[str, Any], tools: Sequence[Any]
) -> list[Any]:
    """The bodies of an asynchronous request and of a synchronous one, as they were sent."""
    sent: list[bytes] = []

    def refuse(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.content)
        return httpx2.Response(400, json={"error": {"message": "enough"}})

    net = httpx2.MockTransport(refuse)
    clients = {"http_client": httpx2.Client(transport=net), "http_async_client": httpx2.AsyncClient(transport=net)}
    model: Any = kind(**{"model": "m", "api_key": "k", "base_url": "http://x/v1", "max_retries": 0, **clients, **given})
    bound = model.bind_tools(tools, **options) if tools else model.bind(**options)
    messages = [m for m in MESSAGES if "use_responses_api" not in given or m.content not in (PARTS,)]
    with pytest.raises(Exception, match="enough"):
        await bound.ainvoke(messages)
    with pytest.raises(Exception, match="enough"):
        bound.invoke(messages)
    return [json.dumps(json.loads(body)) for body in sent]


@pytest.mark.parametrize("tools", [[], [look]], ids=["no tools", "tools"])
@pytest.mark.parametrize("name", REQUESTS)
async def test_the_body_is_the_ordinary_one(name: str, tools: list[Any]) -> None:
    """N53: every kind of message, and everything beside them, is sent as ChatOpenAI sends it."""
    given, options = REQUESTS[name]
    ordinary = await bodies(ChatOpenAI, given, options, tools)
    assert len(ordinary) == 2
    assert await bodies(OpenAIChat, given, options, tools) == ordinary


def test_messages_and_tools_are_not_looked_at_again() -> None:
    """N53: OpenAI's client is given no messages and no tools to transform."""
    payload = OpenAIChat(model="m", api_key="k")._get_request_payload(MESSAGES, tools=[{"type": "function"}])
    assert (payload["messages"], payload["tools"]) == ((), ())
    assert len(payload["extra_body"]["messages"]) == len(MESSAGES)
