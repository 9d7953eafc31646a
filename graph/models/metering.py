"""What models cost that a tool or an executor calls by itself: counted as they are called, stopped at the allowance."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig

from donewhen.graph.context import PriceOf
from donewhen.graph.models.cost import cost_of, estimate_tokens, is_priced, no_price
from donewhen.state.errors import ModelError
from donewhen.state.ledger import Amounts, add, exhausted

_ONE_AT_A_TIME = threading.RLock()
"""Tools that run side by side in threads share what is left; none may start a call on what another just took."""


@dataclass(frozen=True)
class _Flying:
    """A call that was not answered yet."""

    sent: int
    """About how many tokens the prompt has."""
    name: str
    least: Amounts
    """What the prompt alone costs."""


class Meter(BaseCallbackHandler):
    """Adds up model calls, tokens and money of everything that runs with it among its callbacks.

    `left` says what may still be spent, all calls so far taken off. When nothing is, the next call of a model raises
    ModelError where it is made; so does a model without a known price under a limit of `cost_usd`, and every model
    called after `close`.
    """

    raise_error = True
    run_inline = True

    def __init__(self, left: Callable[[], Mapping[str, float]], prices: PriceOf | None) -> None:
        self.spent: Amounts = {}
        self._left = left
        self._prices = prices
        self._open: dict[UUID, _Flying] = {}
        self._closed = False

    @property
    def taken(self) -> Amounts:
        """What was spent, with what the calls in flight take at least."""
        with _ONE_AT_A_TIME:
            total = self.spent
            for call in self._open.values():
                total = add(total, call.least)
            return total

    def close(self) -> None:
        """The work is over, though a thread of it may go on: what is in flight is charged, nothing more is called."""
        with _ONE_AT_A_TIME:
            self.spent, self._closed = self.taken, True
            self._open.clear()

    def on_chat_model_start(
        self, serialized: Any, messages: Sequence[Sequence[BaseMessage]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """A chat model is about to be called."""
        self._start(run_id, sum(estimate_tokens(m.text) for batch in messages for m in batch), kwargs)

    def on_llm_start(self, serialized: Any, prompts: Sequence[str], *, run_id: UUID, **kwargs: Any) -> None:
        """A model that only completes text is about to be called."""
        self._start(run_id, sum(map(estimate_tokens, prompts)), kwargs)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """It answered."""
        with _ONE_AT_A_TIME:
            call = self._open.pop(run_id, None if self._closed else _Flying(0, "", {}))
        if call is None:
            return
        for row in response.generations:
            for generation in row[:1]:
                said = generation.message if isinstance(generation, ChatGeneration) else None
                message = said if isinstance(said, AIMessage) else AIMessage(generation.text)
                self._add(cost_of(message, call.sent, call.name, self._prices))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """It failed; the call was made and counts."""
        self._open.pop(run_id, None)

    def reported(self, messages: Sequence[BaseMessage]) -> None:
        """Charge what was called where nobody here could count, in a remote graph, as far as its messages report it."""
        replies = [message for message in messages if isinstance(message, AIMessage) and message.usage_metadata]
        for reply in [] if self.spent.get("model_calls") else replies:
            self._add({"model_calls": 1, **cost_of(reply, 0, "", self._prices)})

    def _start(self, run_id: UUID, sent: int, facts: Mapping[str, Any]) -> None:
        with _ONE_AT_A_TIME:
            if self._closed:
                raise ModelError("The call is over; no model may be called for it any more.", code="budget")
            left = self._left()
            if key := exhausted(left, ("model_calls",)):
                raise ModelError(f"The limit of {key} is reached; no model may be called any more.", code="budget")
            name = _name(facts)
            if "cost_usd" in left and not is_priced(name, self._prices):
                raise ModelError(no_price(name), code="unpriced")
            self._open[run_id] = _Flying(sent, name, cost_of(AIMessage(""), sent, name, self._prices))
            self._add({"model_calls": 1})

    def _add(self, amounts: Amounts) -> None:
        with _ONE_AT_A_TIME:
            self.spent = add(self.spent, amounts)


def _name(facts: Mapping[str, Any]) -> str:
    parameters, metadata = facts.get("invocation_params") or {}, facts.get("metadata") or {}
    named = (parameters.get("model_name"), parameters.get("model"), metadata.get("ls_model_name"))
    return str(next((name for name in named if name), "a model without a name"))


def meter_of(config: RunnableConfig) -> Meter | None:
    """The meter among the callbacks of a config."""
    given = config.get("callbacks")
    handlers = given.handlers if isinstance(given, BaseCallbackManager) else given or ()
    return next((handler for handler in handlers if isinstance(handler, Meter)), None)
