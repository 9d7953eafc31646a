"""The format of a WireServer: OpenAI's chat completions, made from LangChain's messages, and faults."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall, UsageMetadata, convert_to_messages

from donewhen.agent.testing.replies import Call, broken_call, message_chunks, reply, written_calls
from donewhen.agent.testing.script import Reply


@dataclass(eq=False, kw_only=True)
class Fault(Exception):
    """An answer that fails on demand: scripts raise it, and the server performs it. It has one kind, and maybe `hang`.

    - `status`, with `headers` and `body` (JSON, text, or None for OpenAI's error of that status);
    - `reset`: the connection is reset without an answer;
    - `hang`: nothing for so many seconds; afterwards the other kind, or the connection is closed;
    - `stall_after`, `reset_after`: that many chunks of `reply`, then silence until the server
      ends, or a reset. Unstreamed, half of the answer comes through, whatever the number (0: none of it);
    - `garbage`: a 200 whose body, or whose stream, is these bytes;
    - `reply`: what is answered after `hang`, or in part by `stall_after` and `reset_after`.
    """

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    reset: bool = False
    hang: float = 0.0
    stall_after: int | None = None
    reset_after: int | None = None
    garbage: bytes | None = None
    reply: Reply | None = None

    def __post_init__(self) -> None:
        kinds = [self.status, self.reset or None, self.stall_after, self.reset_after, self.garbage]
        if sum(kind is not None for kind in kinds) > 1:
            raise ValueError("a fault has one of status, reset, stall_after, reset_after, garbage")
        if not any(kind is not None for kind in (*kinds, self.reply)) and not self.hang:
            raise ValueError("a fault needs one of status, reset, hang, stall_after, reset_after, garbage")
        if self.reply is None and (self.stall_after is not None or self.reset_after is not None):
            self.reply = "This answer does not come to its end."
        super().__init__(self.status)


fault = Fault
"""The name for scripts: `fault(status=503)`."""


def read_messages(body: Mapping[str, Any]) -> list[BaseMessage]:
    """Return the request's messages; raises ValueError where OpenAI's server answers 400."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages: expected a list with at least one message")
    if not all(isinstance(message, dict) and "role" in message for message in messages):
        raise ValueError("messages: every message is an object with a role")
    try:
        _check_pairs(messages)
        return [_read_message(message) for message in messages]
    except (AttributeError, KeyError, NotImplementedError, TypeError) as error:
        raise ValueError(f"messages: unreadable, {type(error).__name__} {error}") from error


def _read_message(message: Mapping[str, Any]) -> BaseMessage:
    if message["role"] != "assistant":
        return convert_to_messages([{"content": "", **message}])[0]
    written = [(call["function"], call["id"]) for call in message.get("tool_calls") or ()]
    calls = [_read_call(function["name"], function["arguments"], id) for function, id in written]
    thinking = message.get("reasoning_content")
    return reply(message.get("content") or "", calls, thinking=thinking)


def _read_call(name: str, arguments: str, id: str) -> Call:
    """Return the tool call, or the broken one if its arguments are no JSON object: servers keep those."""
    try:
        parsed = json.loads(arguments, strict=False)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict):
        return ToolCall(name=name, args=parsed, id=id)
    return {**broken_call(name, arguments), "id": id}


def _check_pairs(messages: list[dict[str, Any]]) -> None:
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_calls:
                raise ValueError("messages with role 'tool' must follow a message with their 'tool_calls'")
            open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            raise ValueError(f"these tool_call_ids have no tool message: {', '.join(open_calls)}")
        open_calls = [call["id"] for call in message.get("tool_calls") or ()]
    if open_calls:
        raise ValueError(f"these tool_call_ids have no tool message: {', '.join(open_calls)}")


def completion(message: AIMessage, model: str) -> dict[str, Any]:
    """Return the `chat.completion` object of a whole reply."""
    written = written_calls(message)
    reply_message: dict[str, Any] = {"role": "assistant", "content": str(message.text) or None}
    if thinking := message.additional_kwargs.get("reasoning_content"):
        reply_message["reasoning_content"] = thinking
    if written:
        reply_message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments, id in written
        ]
    choice = {"index": 0, "message": reply_message, "finish_reason": _finish_reason(message, bool(written))}
    usage = None if message.usage_metadata is None else _usage(message.usage_metadata)
    return {**_head(message, model, "chat.completion"), "choices": [choice], "usage": usage}


def completion_chunks(chunks: Iterable[AIMessage], model: str, include_usage: bool) -> Iterator[dict[str, Any]]:
    """Yield the `chat.completion.chunk` objects of a streamed reply, tokens last if the client asked for them."""
    usage: UsageMetadata | None = None
    role: dict[str, Any] = {"role": "assistant"}
    called = False
    head: dict[str, Any] = {}
    reason = "stop"
    for chunk in _as_chunks(chunks):
        head = _head(chunk, model, "chat.completion.chunk")
        called = called or bool(chunk.tool_call_chunks)
        usage = chunk.usage_metadata or usage
        reason = _finish_reason(chunk, called)
        if delta := _delta(chunk):
            yield {**head, "choices": [{"index": 0, "delta": {**role, **delta}, "finish_reason": None}]}
            role = {}
    yield {**head, "choices": [{"index": 0, "delta": role, "finish_reason": reason}]}
    if include_usage and usage:
        yield {**head, "choices": [], "usage": _usage(usage)}


def error_body(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """Return an error in OpenAI's shape."""
    kind = "server_error" if status >= 500 else "requests" if status == 429 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _as_chunks(messages: Iterable[AIMessage]) -> Iterator[AIMessageChunk]:
    # A model that cannot stream hands its whole message through `stream`.
    for message in messages:
        if isinstance(message, AIMessageChunk):
            yield message
        else:
            yield from message_chunks(message)


def _delta(chunk: AIMessageChunk) -> dict[str, Any]:
    delta: dict[str, Any] = {}
    if thinking := chunk.additional_kwargs.get("reasoning_content"):
        delta["reasoning_content"] = thinking
    if text := str(chunk.text):
        delta["content"] = text
    if chunk.tool_call_chunks:
        delta["tool_calls"] = [_call_delta(number, call) for number, call in enumerate(chunk.tool_call_chunks)]
    return delta


def _call_delta(number: int, call: Mapping[str, Any]) -> dict[str, Any]:
    index = call["index"] if isinstance(call.get("index"), int) else number
    function = {"arguments": call.get("args") or ""}
    if not call.get("name"):
        return {"index": index, "function": function}
    return {
        "index": index,
        "id": call["id"],
        "type": "function",
        "function": {"name": call["name"], **function},
    }


def _head(message: AIMessage, model: str, kind: str) -> dict[str, Any]:
    return {"id": message.id or "chatcmpl-0", "object": kind, "created": 0, "model": model}


def _finish_reason(message: AIMessage, called: bool) -> str:
    return str(message.response_metadata.get("finish_reason") or ("tool_calls" if called else "stop"))


def _usage(usage: UsageMetadata) -> dict[str, Any]:
    read = usage.get("input_token_details", {})
    written = usage.get("output_token_details", {})
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
        "prompt_tokens_details": {"cached_tokens": read.get("cache_read", 0), "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": written.get("reasoning", 0), "audio_tokens": 0},
    }
