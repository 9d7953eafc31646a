"""What a model call used and what that costs: reported where the provider reports it, else an estimate that says so."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.messages import AIMessage

from donewhen.graph.context import Deps, PriceOf
from donewhen.graph.providers.adapter import model_name
from donewhen.state.errors import DoneWhenError
from donewhen.state.ledger import ESTIMATED, UNPRICED, Amounts
from donewhen.state.pattern import pattern
from donewhen.state.settings import ROLES, Settings

Prompt = int | Callable[[], int]
"""About how many tokens were sent, or how to count them, which is asked only for an estimate."""

# Scripts of which a character is about a token: kana, CJK, Hangul, full-width forms, and emoji beyond the first plane.
_WIDE = pattern(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U0001f000-\U0003ffff]")
_CHARS_PER_TOKEN = 4


def usage_of(message: AIMessage, prompt: Prompt) -> dict[str, int]:
    """`input_tokens`, `cached_tokens` (part of the input), `output_tokens` (thinking included), `estimated` (a bool).

    From `usage_metadata`, which LangChain's packages fill, else estimated from the texts.
    """
    reported = _reported(message)
    if reported is not None:
        return reported
    sent = prompt() if callable(prompt) else prompt
    return {"input_tokens": sent, "cached_tokens": 0, "output_tokens": _written(message), "estimated": True}


def estimate_tokens(text: str) -> int:
    """About how many tokens a text is: one per CJK character or emoji, one per four other characters."""
    wide = sum(1 for _ in _WIDE.finditer(text))
    return wide + math.ceil((len(text) - wide) / _CHARS_PER_TOKEN)


def _reported(message: AIMessage) -> dict[str, int] | None:
    """None when nothing is reported, or nothing but zeros, as some servers do."""
    usage: Mapping[str, Any] = message.usage_metadata or {}
    given, written = (max(0, usage.get(key) or 0) for key in ("input_tokens", "output_tokens"))
    cached = (usage.get("input_token_details") or {}).get("cache_read") or 0
    counted = {"input_tokens": given, "cached_tokens": min(cached, given), "output_tokens": written}
    return {**counted, "estimated": False} if given or written else None


def _written(message: AIMessage) -> int:
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    written = [f"{call['name']} {json.dumps(call['args'], ensure_ascii=False, default=str)}" for call in calls]
    thought = message.additional_kwargs.get("reasoning_content")
    return estimate_tokens("\n".join([message.text, *written, thought if isinstance(thought, str) else ""]).strip())


def is_priced(name: str, prices: PriceOf | None) -> bool:
    """Whether anybody knows what the model costs."""
    return prices is not None and prices(name, {"input_tokens": 1}) is not None


def cost_of(message: AIMessage, prompt: Prompt, name: str, prices: PriceOf | None) -> Amounts:
    """Tokens of a reply and what they cost.

    The price is that of `name`, which is what the user set; where it has none, that of the model that answered.
    """
    used: Amounts = dict(usage_of(message, prompt))
    if used.pop("estimated", False):
        used[ESTIMATED] = 1
    answered_by = str(message.response_metadata.get("model_name") or "")
    known = (prices(each, used) for each in (name, answered_by) if prices and each)
    cost = next((price for price in known if price is not None), None)
    if cost is None:
        return {**used, UNPRICED: 1}
    return {**used, "cost_usd": cost} if cost else used


def no_price(name: str) -> str:
    """What is wrong with a model without a price under a limit of money, and what to do about it."""
    return (
        f"There is a limit of cost_usd, but no price is known for the model {name!r}. "
        f"Give its price, in prices= or as DONEWHEN_PRICES='{name}=0/0' if it costs nothing, or limit tokens instead."
    )


def unpriced(deps: Deps, settings: Settings) -> str | None:
    """Why a run under a limit of money may not start: a model it will ask has no known price. None if it may."""
    if settings.limits.cost_usd is None and settings.step_limits.cost_usd is None:
        return None
    names = [executor.model for executor in deps.executors.values() if executor.model is not None]
    for role in ROLES:  # the judge too: a single criterion may ask for it
        try:
            names.append(deps.model(role, settings))
        except DoneWhenError:
            continue  # a model that cannot be made is an error of its own, where it is asked
    for name in map(model_name, names):
        if not is_priced(name, deps.prices):
            return no_price(name)
    return None
