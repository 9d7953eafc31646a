"""From an item of the script to the message a provider would have sent: ids, tokens, metadata."""

import copy
import inspect
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, UsageMetadata

from donewhen.agent.testing.calls import Call, reply
from donewhen.agent.testing.chunks import written_calls
from donewhen.agent.testing.request import Request
from donewhen.agent.testing.script import Script, ScriptError, Turn, is_reply, kind


def settle(turn: Turn) -> AIMessage | BaseException:
    """Asks policies until there is a message, or an exception to raise."""
    item: Any = turn.reply
    while is_policy(item):
        item = item(turn.request.messages, turn.request.tools)
        if inspect.iscoroutine(item):
            item.close()
            raise ScriptError("a coroutine policy needs ainvoke or astream; the model was called synchronously")
    return _message(item)


async def asettle(turn: Turn) -> AIMessage | BaseException:
    """As `settle`, and awaits policies that are coroutine functions."""
    item: Any = turn.reply
    while is_policy(item):
        item = item(turn.request.messages, turn.request.tools)
        if inspect.isawaitable(item):
            item = await item
    return _message(item)


def is_policy(item: object) -> bool:
    """Whether `item` decides when asked; exception classes are callable too, but are raised."""
    return callable(item) and not isinstance(item, type)


def finished(message: AIMessage, turn: Turn, script: Script, model_name: str) -> AIMessage:
    """A copy of `message` with what a provider adds; ids and tokens that it brings along are kept."""
    unnamed = sum(not c["id"] for c in (*message.tool_calls, *message.invalid_tool_calls))
    ids = iter(script.number_calls(turn, unnamed))
    calls = message.tool_calls or message.invalid_tool_calls
    message = copy.deepcopy(message)
    whole = AIMessage(
        content=message.content,
        additional_kwargs=message.additional_kwargs,
        tool_calls=[{**c, "id": c["id"] or next(ids)} for c in message.tool_calls],
        invalid_tool_calls=[{**c, "id": c["id"] or next(ids)} for c in message.invalid_tool_calls],
        response_metadata={
            "finish_reason": "tool_calls" if calls else "stop",
            "model_name": model_name,
            **message.response_metadata,
        },
        id=script.message_id(turn, message.id),
        name=message.name,
    )
    whole.usage_metadata = message.usage_metadata or _estimate(turn.request, whole)
    return whole


def _message(item: object) -> AIMessage | BaseException:
    if isinstance(item, type) and issubclass(item, BaseException):
        return item()
    if isinstance(item, BaseException | AIMessage):
        return item
    if isinstance(item, str):
        return reply(item)
    if isinstance(item, list | tuple | Mapping) and is_reply(item):
        return reply(calls=cast(list[Call], [item] if isinstance(item, Mapping) else item))
    raise ScriptError(f"a policy returned no reply but {kind(item)}; see ScriptedModel")


def _estimate(request: Request, message: AIMessage) -> UsageMetadata:
    read = _length(request.messages) + len(json.dumps(request.tools, default=str))
    input_tokens, output_tokens = math.ceil(read / 4), math.ceil(_length([message]) / 4)
    return UsageMetadata(
        input_tokens=input_tokens, output_tokens=output_tokens, total_tokens=input_tokens + output_tokens
    )


def _length(messages: Sequence[BaseMessage]) -> int:
    calls = (written_calls(message) for message in messages if isinstance(message, AIMessage))
    return sum(len(str(message.text)) for message in messages) + sum(
        len(name or "") + len(arguments) for written in calls for name, arguments, _ in written
    )
