"""A request held against what its model reads at most: counted before it is sent, shortened where it is too long."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage

from donewhen.graph.context import Deps
from donewhen.graph.models.cost import estimate_tokens
from donewhen.graph.models.transcript import bounded, fitting
from donewhen.state.errors import DoneWhenError
from donewhen.state.pattern import pattern
from donewhen.state.settings import Settings

HEAD = 2
"""Messages that always stay: the instructions and the brief."""
ROOM = 0.95
"""Of the window, for what is estimated and not counted."""
SHARE = 8
"""One observation shown takes at most this part of the window."""
LEAST_CHARS = 400
"""Of a message that is cut."""
PICTURE = " " * 4_000
"""Stands for an image or a file in an estimate: about a thousand tokens, as providers charge for an image."""
_ID = pattern(r"\A\[([^\]\s]+)\] ")


def window_of(model: BaseChatModel, settings: Settings) -> int | None:
    """The most tokens of a request to this model: as it says itself and as the settings say; None if neither does."""
    own = (getattr(model, "profile", None) or {}).get("max_input_tokens")
    known = [most for most in (own, settings.context_tokens) if isinstance(most, int) and most > 0]
    return min(known, default=None)


def shown_chars(deps: Deps, settings: Settings, role: str, executor: str | None = None) -> int:
    """The most characters of one observation in a prompt: as the settings say, and as the window leaves room for."""
    try:
        window = window_of(deps.model(role, settings, executor), settings)
    except DoneWhenError:  # told when the model is asked
        window = None
    return settings.observation_chars if window is None else min(settings.observation_chars, window * 4 // SHARE)


def tokens_of(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> int:
    """About how many tokens a request has."""
    return sum(map(_tokens, messages)) + sum(estimate_tokens(json.dumps(tool, ensure_ascii=False)) for tool in tools)


def fits(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]], window: int) -> bool:
    """Whether a request fits; counted only where its length leaves a doubt."""
    length = sum(len(text) for message in messages for text in _texts(message))
    return length + 4_000 * len(tools) < window or tokens_of(messages, tools) <= window * ROOM


def compacted(
    messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]], window: int, fence: str
) -> list[BaseMessage] | None:
    """The request with its oldest rounds as one line each and, if need be, with long results cut; None: it cannot fit.

    What is left out can be read by `recall`.
    """
    head, rounds = list(messages[:HEAD]), list(messages[HEAD:])
    room = window * ROOM - tokens_of(head, tools)
    if room <= 0 or not rounds:
        return None
    chars = int(room * sum(map(_length, rounds)) / max(tokens_of(rounds, ()), 1))
    for limit in (chars, chars // 2, chars // 4):
        shorter = [*head, *fitting(rounds, limit, fence)]  # type: ignore[arg-type]
        if fits(shorter, tools, window):
            return shorter
    last = fitting(rounds, chars // 4, fence)  # type: ignore[arg-type]
    each = max(chars // (len(last) + 1), LEAST_CHARS)
    shorter = [*head, *(_cut(message, each) for message in last)]
    return shorter if fits(shorter, tools, window) else None


def _cut(message: BaseMessage, limit: int) -> BaseMessage:
    """A result shortened in its middle, so that it can be read on; a reply stays as it is."""
    text = str(message.text)
    if isinstance(message, AIMessage) or len(text) <= limit or not isinstance(message.content, str):
        return message
    named = _ID.match(text)
    return message.model_copy(update={"content": bounded(text, limit, named[1] if named else "…")})


def _texts(message: BaseMessage) -> list[str]:
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    parts = message.content if isinstance(message.content, list) else ()
    pictures = [PICTURE for part in parts if isinstance(part, dict) and part.get("type") != "text"]
    said = [json.dumps(call["args"], ensure_ascii=False, default=str) for call in calls]
    return [str(message.text), *said, *pictures]


def _length(message: BaseMessage) -> int:
    return sum(map(len, _texts(message)))


def _tokens(message: BaseMessage) -> int:
    return 4 + sum(map(_estimated, _texts(message)))


@lru_cache(maxsize=512)
def _estimated(text: str) -> int:
    return estimate_tokens(text)
