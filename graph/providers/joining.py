"""A streamed reply put together: exactly what was written, nothing completed that the model did not write."""

import json
from collections.abc import Sequence
from typing import Any

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


def length(chunk: BaseMessage) -> int:
    """How many characters of text and arguments a chunk brings."""
    calls = chunk.tool_call_chunks if isinstance(chunk, AIMessageChunk) else []
    return len(chunk.text) + sum(len(call["args"] or "") for call in calls)


def joined(chunks: Sequence[BaseMessage]) -> AIMessage:
    """The whole message. Calls have unique ids; arguments that are no JSON object are left as text, `invalid`.

    LangChain reads arguments that merely end early as if they were complete: half a call would become a wrong one.
    All chunks are added at once, since one by one takes time that grows with the square of the reply.
    """
    first = chunks[0]
    if not isinstance(first, AIMessageChunk):
        return _identified(first if isinstance(first, AIMessage) else AIMessage(first.text))
    others = [chunk for chunk in chunks[1:] if isinstance(chunk, AIMessageChunk)]
    whole = add_ai_message_chunks(first, *others) if others else first
    message = message_chunk_to_message(whole)
    assert isinstance(message, AIMessage)
    if whole.tool_call_chunks:
        message.tool_calls, message.invalid_tool_calls = _calls(whole)
    return _identified(message)


def _calls(whole: AIMessageChunk) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    calls: list[ToolCall] = []
    broken: list[InvalidToolCall] = []
    for chunk in whole.tool_call_chunks:
        name, raw, id = chunk["name"] or "", chunk["args"] or "", chunk["id"]
        arguments = _object(raw)
        if arguments is None or not name:
            broken.append(invalid_tool_call(name=name, args=raw, id=id, error="not a JSON object"))
        else:
            calls.append(tool_call(name=name, args=arguments, id=id))
    return calls, broken


def _object(raw: str) -> dict[str, Any] | None:
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _identified(message: AIMessage) -> AIMessage:
    """Every call with an id of its own, as the results need one to answer; some servers give none, or one for all."""
    taken: set[str] = set()

    def own(id: str | None) -> str:
        number, chosen = 1, id or f"call_{message.id or 'reply'}"
        while chosen in taken:
            number, chosen = number + 1, f"{id or message.id or 'call'}_{number}"
        taken.add(chosen)
        return chosen

    calls: list[ToolCall] = [{**call, "id": own(call["id"])} for call in message.tool_calls]
    broken: list[InvalidToolCall] = [{**call, "id": own(call["id"])} for call in message.invalid_tool_calls]
    if calls == message.tool_calls and broken == message.invalid_tool_calls:
        return message
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": broken})
