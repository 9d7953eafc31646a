"""Count usage and cost of model calls: as reported by the provider, otherwise estimated and marked as such."""

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig

from donewhen.graph.context import Deps, PriceOf
from donewhen.graph.day_budget import limits_today
from donewhen.graph.llm.adapter import model_name
from donewhen.graph.tools.rendering import is_large
from donewhen.state.errors import DoneWhenError, ModelError
from donewhen.state.ledger import CACHE_WRITES, ESTIMATED, UNPRICED, Amounts, add, first_exhausted
from donewhen.state.pattern import pattern
from donewhen.state.settings import ROLES, Settings
from donewhen.state.values import texts_in

_CACHE_WRITES = ("cache_creation", "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
"""The names of cache writes in LangChain's packages; none are counted twice."""
Prompt = int | Callable[[], int]
"""The estimated tokens that were sent, or a function that estimates them if that is needed."""

# Scripts in which a character is about a token: kana, CJK, Hangul, full-width forms, and emoji beyond the first plane.
_WIDE = pattern(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U0001f000-\U0003ffff]")
_CHARS_PER_TOKEN = 4


def usage_of(message: AIMessage, prompt: Prompt) -> dict[str, int]:
    """Return `input_tokens`, `output_tokens` (with thinking), and `estimated`.

    Parts of the input are `cached_tokens`, read from a cache, and `cache_write_tokens`, if any were written to one.

    Read from `usage_metadata`, which LangChain's packages fill, else estimated from the texts.
    """
    usage: Mapping[str, Any] = message.usage_metadata or {}
    sent_tokens, written = (max(0, usage.get(key) or 0) for key in ("input_tokens", "output_tokens"))
    if not (sent_tokens or written):  # nothing is reported, or only zeros, as some servers do
        sent, written = prompt() if callable(prompt) else prompt, _estimate_written(message)
        return {"input_tokens": sent, "cached_tokens": 0, "output_tokens": written, "estimated": True}
    details: Mapping[str, Any] = usage.get("input_token_details") or {}
    cached = min(details.get("cache_read") or 0, sent_tokens)
    counted = {"input_tokens": sent_tokens, "cached_tokens": cached, "output_tokens": written}
    if stored := min(sum(details.get(key) or 0 for key in _CACHE_WRITES), sent_tokens - cached):
        counted[CACHE_WRITES] = stored
    return {**counted, "estimated": False}


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text: one per CJK character or emoji, one per four other characters."""
    wide = sum(1 for _ in _WIDE.finditer(text))
    return wide + math.ceil((len(text) - wide) / _CHARS_PER_TOKEN)


def _estimate_written(message: AIMessage) -> int:
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    if is_large([call["args"] for call in calls]):  # not in one piece, which would hold up everything else
        return estimate_tokens(message.text) + sum(estimate_tokens(each) + 1 for each in texts_in([*calls]))
    written = [f"{call['name']} {json.dumps(call['args'], ensure_ascii=False, default=str)}" for call in calls]
    thought = message.additional_kwargs.get("reasoning_content")
    return estimate_tokens("\n".join([message.text, *written, thought if isinstance(thought, str) else ""]).strip())


def is_priced(name: str, prices: PriceOf | None) -> bool:
    """Return True if the price of the model is known."""
    return prices is not None and prices(name, {"input_tokens": 1}) is not None


def cost_of(message: AIMessage, prompt: Prompt, name: str, prices: PriceOf | None) -> Amounts:
    """Return the tokens of a reply and their cost.

    The price is that of `name`, which the user set; if it has none, that of the model that answered.
    """
    used: Amounts = dict(usage_of(message, prompt))
    if used.pop("estimated", False):
        used[ESTIMATED] = 1
    answered_by = str(message.response_metadata.get("model_name") or "")
    costs = (prices(each, used) for each in (name, answered_by) if prices and each)
    cost = next((price for price in costs if price is not None), None)
    if cost is None:
        return {**used, UNPRICED: 1}
    return {**used, "cost_usd": cost} if cost else used


def missing_price_text(name: str) -> str:
    """Return the error for a model without a price under a limit of money, with what to do about it."""
    return (
        f"There is a limit of cost_usd, but no price is known for the model {name!r}. "
        f"Give its price, in prices= or as DONEWHEN_PRICES='{name}=0/0' if it costs nothing, or limit tokens instead."
    )


def find_unpriced(deps: Deps, settings: Settings) -> str | None:
    """Return why a run with a limit of money may not start: a model of it has no known price. None if it may."""
    limited = settings.limits.cost_usd is not None or settings.step_limits.cost_usd is not None
    if not (limited or limits_today("cost_usd")):
        return None
    names = []
    own = [("execute", name) for name, executor in deps.executors.items() if executor.model is not None]
    for role, executor in [*own, *((role, None) for role in ROLES)]:  # the judge too: a single criterion may need it
        try:
            names.append(deps.model(role, settings, executor))
        except DoneWhenError:
            continue  # a model that cannot be made is reported when it is asked
    for name in map(model_name, names):
        if not is_priced(name, deps.prices):
            return missing_price_text(name)
    return None


_LOCK = threading.RLock()
"""Held while the allowance is checked: tools in parallel threads share it, and none may use what another just spent."""


@dataclass(frozen=True)
class _OpenCall:
    """A call without a reply so far."""

    sent: int
    """The estimated tokens of the prompt."""
    name: str
    least: Amounts
    """The cost of the prompt alone."""


class Meter(BaseCallbackHandler):
    """Adds up calls, tokens and money of the models that a tool or executor calls, as one of its callbacks.

    `left` returns the remaining allowance, with all calls so far deducted. ModelError is raised where the next model
    is called if nothing remains, if the model has no known price under a limit of `cost_usd`, and after `close`.
    """

    raise_error = True
    run_inline = True

    def __init__(self, left: Callable[[], Mapping[str, float]], prices: PriceOf | None) -> None:
        self.spent: Amounts = {}
        self._left = left
        self._prices = prices
        self._open: dict[UUID, _OpenCall] = {}
        self._closed = False

    @property
    def least_spent(self) -> Amounts:
        """The amounts spent, with the least cost of the calls in flight."""
        with _LOCK:
            total = self.spent
            for call in self._open.values():
                total = add(total, call.least)
            return total

    def close(self) -> None:
        """Charge the calls in flight and refuse further ones: the work is over, though a thread of it may still run."""
        with _LOCK:
            self.spent, self._closed = self.least_spent, True
            self._open.clear()

    def on_chat_model_start(
        self, serialized: Any, messages: Sequence[Sequence[BaseMessage]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Check the allowance before a chat model is called."""
        self._start(run_id, sum(estimate_tokens(m.text) for batch in messages for m in batch), kwargs)

    def on_llm_start(self, serialized: Any, prompts: Sequence[str], *, run_id: UUID, **kwargs: Any) -> None:
        """Check the allowance before a completion model is called."""
        self._start(run_id, sum(map(estimate_tokens, prompts)), kwargs)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Charge the reply."""
        with _LOCK:
            call = self._open.pop(run_id, None if self._closed else _OpenCall(0, "", {}))
        if call is None:
            return
        for row in response.generations:
            for generation in row[:1]:
                reply = generation.message if isinstance(generation, ChatGeneration) else None
                message = reply if isinstance(reply, AIMessage) else AIMessage(generation.text)
                self._add(cost_of(message, call.sent, call.name, self._prices))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget a failed call; it is charged as a call, without tokens."""
        self._open.pop(run_id, None)

    def charge_reported(self, messages: Sequence[BaseMessage]) -> None:
        """Charge calls of a remote graph, which cannot be counted here, as far as its messages report their usage."""
        replies = [message for message in messages if isinstance(message, AIMessage) and message.usage_metadata]
        for reply in [] if self.spent.get("model_calls") else replies:
            self._add({"model_calls": 1, **cost_of(reply, 0, "", self._prices)})

    def _start(self, run_id: UUID, sent: int, facts: Mapping[str, Any]) -> None:
        with _LOCK:
            if self._closed:
                raise ModelError("The call is over; no model may be called for it any more.", code="budget")
            left = self._left()
            if key := first_exhausted(left, ("model_calls",)):
                raise ModelError(f"The limit of {key} is reached; no model may be called any more.", code="budget")
            name = _model_name(facts)
            if "cost_usd" in left and not is_priced(name, self._prices):
                raise ModelError(missing_price_text(name), code="unpriced")
            self._open[run_id] = _OpenCall(sent, name, cost_of(AIMessage(""), sent, name, self._prices))
            self._add({"model_calls": 1})

    def _add(self, amounts: Amounts) -> None:
        with _LOCK:
            self.spent = add(self.spent, amounts)


def _model_name(facts: Mapping[str, Any]) -> str:
    parameters, metadata = facts.get("invocation_params") or {}, facts.get("metadata") or {}
    named = (parameters.get("model_name"), parameters.get("model"), metadata.get("ls_model_name"))
    return str(next((name for name in named if name), "a model without a name"))


def meter_of(config: RunnableConfig) -> Meter | None:
    """Return the meter among the callbacks of a configuration."""
    callbacks = config.get("callbacks")
    handlers = callbacks.handlers if isinstance(callbacks, BaseCallbackManager) else callbacks or ()
    return next((handler for handler in handlers if isinstance(handler, Meter)), None)
