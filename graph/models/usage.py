"""Tokens of one model call: what the provider reports, else an estimate that says it is one. Pure."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage

# Scripts of which a character is about a token: kana, CJK, Hangul, full-width forms, and emoji beyond the first plane.
_WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U0001f000-\U0003ffff]")
_CHARS_PER_TOKEN = 4


def usage_of(message: AIMessage, prompt: int | str) -> dict[str, int]:
    """`input_tokens`, `cached_tokens` (part of the input), `output_tokens` (thinking included), `estimated` (a bool).

    From `usage_metadata`, else from the provider's raw `token_usage`, else estimated from the text.

    `prompt` is what was sent, or only its number of characters, which is then counted at four to a token.
    """
    reported = _reported(message)
    if reported is not None:
        return reported
    tokens = math.ceil(prompt / _CHARS_PER_TOKEN) if isinstance(prompt, int) else estimate_tokens(prompt)
    return {"input_tokens": tokens, "cached_tokens": 0, "output_tokens": _written(message), "estimated": True}


def estimate_tokens(text: str) -> int:
    """About how many tokens a text is: one per CJK character or emoji, one per four other characters."""
    wide = sum(1 for _ in _WIDE.finditer(text))
    return wide + math.ceil((len(text) - wide) / _CHARS_PER_TOKEN)


def _reported(message: AIMessage) -> dict[str, int] | None:
    """None when nothing is reported, or nothing but zeros, as some servers do."""
    raw = message.response_metadata.get("token_usage") or message.response_metadata.get("usage")
    for usage in (message.usage_metadata, raw):
        if not isinstance(usage, Mapping):
            continue
        given = _count(usage, "input_tokens", "prompt_tokens")
        written = _count(usage, "output_tokens", "completion_tokens")
        if given or written:
            details = usage.get("input_token_details") or usage.get("prompt_tokens_details")
            cached = _count(details, "cache_read", "cached_tokens") if isinstance(details, Mapping) else 0
            return {
                "input_tokens": given,
                "cached_tokens": min(cached, given),
                "output_tokens": written,
                "estimated": False,
            }
    return None


def _count(usage: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = usage.get(name)
        if isinstance(value, int | float) and math.isfinite(value) and value > 0:
            return int(value)
    return 0


def _written(message: AIMessage) -> int:
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    written = [f"{call['name']} {json.dumps(call['args'], ensure_ascii=False, default=str)}" for call in calls]
    thought = message.additional_kwargs.get("reasoning_content")
    return estimate_tokens("\n".join([message.text, *written, thought if isinstance(thought, str) else ""]).strip())
