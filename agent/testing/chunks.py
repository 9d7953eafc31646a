"""A whole reply cut into chunks as a provider streams it; they join back to the exact reply."""

import json
import unicodedata
from collections.abc import Iterator

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk

_JOINER = "\u200d"


def message_chunks(message: AIMessage, size: int = 8) -> Iterator[AIMessageChunk]:
    """Thinking, text, tool calls in pieces of about `size` characters; the last has tokens and metadata."""
    extra = dict(message.additional_kwargs)
    thinking = extra.pop("reasoning_content", None)
    whole = message.content if isinstance(message.content, list) else None
    empty: str | list[str | dict[str, object]] = "" if whole is None else []
    for piece in pieces(thinking or "", size):
        yield AIMessageChunk(content=empty, additional_kwargs={"reasoning_content": piece}, id=message.id)
    if whole is not None:
        yield AIMessageChunk(content=whole, id=message.id)
    for piece in pieces(str(message.text) if whole is None else "", size):
        yield AIMessageChunk(content=piece, id=message.id)
    for index, (name, arguments, id) in enumerate(written_calls(message)):
        head = tool_call_chunk(name=name, args="", id=id, index=index)
        yield AIMessageChunk(content=empty, tool_call_chunks=[head], id=message.id)
        for piece in pieces(arguments, size):
            tail = tool_call_chunk(args=piece, index=index)
            yield AIMessageChunk(content=empty, tool_call_chunks=[tail], id=message.id)
    yield AIMessageChunk(
        content=empty,
        additional_kwargs=extra,
        response_metadata=message.response_metadata,
        usage_metadata=message.usage_metadata,
        id=message.id,
        chunk_position="last",
    )


def written_calls(message: AIMessage) -> list[tuple[str | None, str, str | None]]:
    """Name, arguments as written, and id of every tool call, broken ones last."""
    good = [(c["name"], json.dumps(c["args"], ensure_ascii=False), c["id"]) for c in message.tool_calls]
    return good + [(c["name"], c["args"] or "", c["id"]) for c in message.invalid_tool_calls]


def pieces(text: str, size: int) -> Iterator[str]:
    """Cuts `text` after about `size` characters, never inside what a reader sees as one."""
    start = 0
    for end in range(1, len(text) + 1):
        if end == len(text) or (end - start >= size and not _joined(text[end - 1], text[end])):
            yield text[start:end]
            start = end


def _joined(left: str, right: str) -> bool:
    if left == _JOINER or right == _JOINER or (left, right) == ("\r", "\n"):
        return True
    if unicodedata.category(right) in ("Mn", "Mc", "Me") or "\U0001f3fb" <= right <= "\U0001f3ff":
        return True
    return all("\U0001f1e6" <= character <= "\U0001f1ff" for character in (left, right))
