"""Stream a model's reply and join its chunks into one message.

Without callbacks, the model's own stream is read in place of LangChain's `astream`, which walks all messages of the
conversation three times per request for the callbacks alone (docs/decisions/0063). Joining completes nothing that the
model did not write.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from langchain_core.callbacks import AsyncCallbackManager
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    InvalidToolCall,
    ToolCall,
    message_chunk_to_message,
)
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.messages.tool import invalid_tool_call, tool_call
from langchain_core.runnables import RunnableConfig, ensure_config

_TRANSLATED_BLOCKS = ("input_audio", "file", "image", "audio")
"""Content blocks whose older forms LangChain translates."""


def stream_reply(
    model: Any, messages: Sequence[BaseMessage], config: RunnableConfig, options: Mapping[str, Any]
) -> AsyncIterator[BaseMessage]:
    """Return the chunks of a reply, all with one id, as `model.astream` yields them."""
    config = ensure_config(config)
    direct = (
        isinstance(model, BaseChatModel)
        and _can_stream_directly(model, messages, options)
        and not _has_listeners(model, config)
    )
    return _stream_directly(model, messages, options) if direct else model.astream(messages, config=config, **options)


def _can_stream_directly(model: BaseChatModel, messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> bool:
    """Return True if LangChain would pass messages and chunks on unchanged."""
    own = type(model).astream is BaseChatModel.astream and model.output_version != "v1"
    listed = (block for message in messages if isinstance(message.content, list) for block in message.content)
    translated = any(isinstance(block, dict) and block.get("type") in _TRANSLATED_BLOCKS for block in listed)
    return own and not translated and model._should_stream(async_api=True, **{**options, "stream": True})


def _has_listeners(model: BaseChatModel, config: RunnableConfig) -> bool:
    """Return True if anything listens to model calls: a callback of the run or the model, or a global tracer."""
    return bool(AsyncCallbackManager.configure(config.get("callbacks"), model.callbacks, model.verbose).handlers)


async def _stream_directly(
    model: BaseChatModel, messages: Sequence[BaseMessage], options: Mapping[str, Any]
) -> AsyncIterator[BaseMessage]:
    if model.rate_limiter:
        await model.rate_limiter.aacquire(blocking=True)
    id = f"lc_run--{uuid4()}"
    async for chunk in model._astream(list(messages), **options):
        message = chunk.message
        message.id = message.id or id
        message.response_metadata = {**(chunk.generation_info or {}), **message.response_metadata}
        yield message


def chunk_chars(chunk: BaseMessage) -> int:
    """Return the number of characters of text and arguments in a chunk."""
    calls = chunk.tool_call_chunks if isinstance(chunk, AIMessageChunk) else []
    return len(chunk.text) + sum(len(call["args"] or "") for call in calls)


def join_chunks(chunks: Sequence[BaseMessage]) -> AIMessage:
    """Join chunks into the whole message. Calls get unique ids; arguments that are no JSON object become invalid calls.

    LangChain parses truncated arguments as if they were complete, which would turn half a call into a wrong one.
    All chunks are added at once, since adding them one by one is quadratic.
    """
    first = chunks[0]
    if not isinstance(first, AIMessageChunk):
        return _with_call_ids(first if isinstance(first, AIMessage) else AIMessage(first.text))
    others = [chunk for chunk in chunks[1:] if isinstance(chunk, AIMessageChunk)]
    whole = add_ai_message_chunks(first, *others) if others else first
    message = message_chunk_to_message(whole)
    assert isinstance(message, AIMessage)
    if whole.tool_call_chunks:
        message.tool_calls, message.invalid_tool_calls = _parse_calls(whole)
    return _with_call_ids(message)


def _parse_calls(whole: AIMessageChunk) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    calls: list[ToolCall] = []
    broken: list[InvalidToolCall] = []
    for chunk in whole.tool_call_chunks:
        name, raw, id = chunk["name"] or "", chunk["args"] or "", chunk["id"]
        arguments = _parse_object(raw)
        if arguments is None or not name:
            broken.append(invalid_tool_call(name=name, args=raw, id=id, error="not a JSON object"))
        else:
            calls.append(tool_call(name=name, args=arguments, id=id))
    return calls, broken


def _parse_object(raw: str) -> dict[str, Any] | None:
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _with_call_ids(message: AIMessage) -> AIMessage:
    """Give every call a unique id, which its result refers to; some servers send none, or the same for all."""
    used: set[str] = set()

    def unique(id: str | None) -> str:
        number, chosen = 1, id or f"call_{message.id or 'reply'}"
        while chosen in used:
            number, chosen = number + 1, f"{id or message.id or 'call'}_{number}"
        used.add(chosen)
        return chosen

    calls: list[ToolCall] = [{**call, "id": unique(call["id"])} for call in message.tool_calls]
    broken: list[InvalidToolCall] = [{**call, "id": unique(call["id"])} for call in message.invalid_tool_calls]
    if calls == message.tool_calls and broken == message.invalid_tool_calls:
        return message
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": broken})
