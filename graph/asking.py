"""One question to a model: streamed, timed, retried where that may help, charged in any case."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, message_chunk_to_message
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential_jitter,
)

from graph.context import Deps
from graph.failures import classify
from graph.speech import Speech
from graph.usage import usage_of
from state.errors import DoneWhenError, ModelError
from state.journal import round_seconds
from state.ledger import ESTIMATED, Amounts, add
from state.settings import Settings

TAGS = ["nostream", "langsmith:nostream"]
"""Keeps raw decisions out of chat clients; speech reaches them as events."""
LONGEST_WAIT = 120.0
"""Seconds; a provider that asks for more gets its error passed on."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Question:
    """Who is asked what, with which tools, and what it may cost."""

    role: str
    messages: Sequence[BaseMessage]
    tools: Sequence[dict[str, Any]] = ()
    executor: str | None = None
    allowance: Mapping[str, float] = field(default_factory=dict)
    say: Say | None = None
    retract: Callable[[], None] | None = None
    """Told when a reply broke off after some of it was said; it will be said again from the start."""


@dataclass(frozen=True)
class Reply:
    """What came back: a message or an error, and what it cost either way."""

    message: AIMessage | None
    spent: Amounts
    error: ModelError | None = None
    speech: Speech | None = None


async def ask(deps: Deps, settings: Settings, question: Question) -> Reply:
    """Ask a model. Never raises for anything a model, a provider or a network does."""
    spent: Amounts = {}
    speech = Speech(question.say or (lambda _: None))
    started = time.monotonic()
    try:
        model = deps.model(question.role, settings, question.executor)
        _priced(deps, model, question.allowance)
        message = await _attempts(model, settings, question, spent, speech)
    except DoneWhenError as error:
        failure = error if isinstance(error, ModelError) else ModelError(str(error), code="config")
        return Reply(None, {**spent, "active_seconds": round_seconds(time.monotonic() - started)}, failure)
    usage = _charge(deps, message, question, model)
    return Reply(
        message, add(add(spent, usage), {"active_seconds": round_seconds(time.monotonic() - started)}), None, speech
    )


async def _attempts(model: Any, settings: Settings, question: Question, spent: Amounts, speech: Speech) -> AIMessage:
    bound = model.bind_tools(list(question.tools)) if question.tools else model
    allowed = int(min(settings.model_retries + 1, question.allowance.get("model_calls", 1_000)))
    retrying = AsyncRetrying(
        retry=retry_if_exception(lambda error: isinstance(error, ModelError) and error.retryable),
        stop=stop_after_attempt(max(1, allowed)),
        wait=_wait,
        reraise=True,
    )
    async for attempt in retrying:
        with attempt:
            spent["model_calls"] = spent.get("model_calls", 0) + 1
            try:
                return await _stream(bound, question.messages, settings.model_seconds, speech)
            except Exception as error:
                if speech.restart() and question.retract:
                    question.retract()
                raise classify(error) from error
    raise AssertionError("unreachable: tenacity re-raises")


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, ModelError) else None
    if asked is not None and asked > LONGEST_WAIT and isinstance(error, ModelError):
        raise ModelError(f"{error} It asks to wait {asked:.0f} seconds.", code=error.code, retry_after=asked)
    return max(asked or 0.0, float(wait_exponential_jitter(initial=0.5, max=20)(state)) if asked is None else 0.0)


async def _stream(model: Any, messages: Sequence[BaseMessage], seconds: float, speech: Speech) -> AIMessage:
    """Collect a streamed reply; a silence longer than `seconds` is a timeout."""
    whole: AIMessageChunk | None = None
    chunks: AsyncIterator[AIMessageChunk] = aiter(model.astream(list(messages), config={"tags": TAGS}))
    try:
        while True:
            async with asyncio.timeout(seconds):
                chunk = await anext(chunks, None)
            if chunk is None:
                break
            whole = chunk if whole is None else whole + chunk
            speech.feed(chunk.text)
    except ValueError as error:
        if "generation" not in str(error).lower():
            raise
    finally:
        if aclose := getattr(chunks, "aclose", None):
            await aclose()
    message = AIMessage("") if whole is None else message_chunk_to_message(whole)
    return message if isinstance(message, AIMessage) else AIMessage(message.text)


def _model_name(model: Any, message: AIMessage | None = None) -> str:
    said = (message.response_metadata.get("model_name") if message else None) or ""
    return str(said or getattr(model, "model_name", None) or getattr(model, "model", None) or type(model).__name__)


def _priced(deps: Deps, model: Any, allowance: Mapping[str, float]) -> None:
    if "cost_usd" in allowance and _price(deps, _model_name(model), {"input_tokens": 1}) is None:
        raise ModelError(
            f"There is a limit of cost_usd, but no price is known for the model {_model_name(model)!r}. "
            "Give its price, or limit tokens instead.",
            code="unpriced",
        )


def _price(deps: Deps, name: str, usage: Mapping[str, float]) -> float | None:
    return deps.pricing(name, usage) if deps.pricing else None


def _charge(deps: Deps, message: AIMessage, question: Question, model: Any) -> Amounts:
    used = dict(usage_of(message, sum(len(m.text) for m in question.messages)))
    if used.pop("estimated", False):
        used[ESTIMATED] = 1
    cost = _price(deps, _model_name(model, message), used) or _price(deps, _model_name(model), used)
    return {**used, **({"cost_usd": cost} if cost else {})}
