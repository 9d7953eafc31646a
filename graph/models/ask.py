"""One question to a model: streamed, timed, retried where that may help, charged in any case."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from donewhen.graph.context import Deps
from donewhen.graph.models.failures import classify
from donewhen.graph.models.joining import joined, length
from donewhen.graph.models.pricing import cost_of, is_priced, model_name, no_price
from donewhen.graph.models.requesting import as_asked
from donewhen.graph.models.speech import Speech
from donewhen.prompts import render
from donewhen.state.errors import DoneWhenError, ModelError
from donewhen.state.ledger import Amounts, add, exhausted
from donewhen.state.proof.journal import round_seconds
from donewhen.state.settings import Settings

TAGS = ["nostream", "langsmith:nostream"]
"""Keeps raw decisions out of chat clients; speech reaches them as events."""
FIRST_WAIT, MOST_WAIT = 0.5, 20.0
"""Seconds before the second attempt, doubled for each further one, where the provider names no time."""
LONGEST_WAIT = 120.0
"""Seconds; a provider that asks for more gets its error passed on."""
LONGEST_REPLY = 1_000_000
"""Characters; a model that runs on is stopped there, and its reply counts as cut off."""
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
    """Told when something that was said is void; what is to be said comes again from the start."""


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
    speech = Speech(question.say or (lambda _: None), question.retract)
    started = time.monotonic()
    message, failure = None, None
    try:
        model = deps.model(question.role, settings, question.executor)
        asking = _Asking(deps, model, question, settings.model_seconds, speech, spent, started)
        asking.check_price()
        message = await _attempts(asking, settings)
    except DoneWhenError as error:
        failure = error if isinstance(error, ModelError) else ModelError(str(error), code="config")
    seconds = {"active_seconds": round_seconds(time.monotonic() - started)}
    return Reply(message, add(spent, seconds), failure, speech if message else None)


async def _attempts(asking: "_Asking", settings: Settings) -> AIMessage:
    retrying = AsyncRetrying(
        retry=retry_if_exception(lambda error: isinstance(error, ModelError) and error.retryable),
        stop=lambda state: (
            state.attempt_number > settings.model_retries or settings.late() or asking.spent_up(state.upcoming_sleep)
        ),
        wait=_wait,
        reraise=True,
    )
    async for attempt in retrying:
        with attempt:
            return await asking.once()
    raise AssertionError("unreachable: tenacity re-raises")


def _wait(state: RetryCallState) -> float:
    """As long as the provider asks for; if it names no time, longer each time."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, ModelError) else None
    if asked is None:
        return min(FIRST_WAIT * 2.0 ** (state.attempt_number - 1), MOST_WAIT) + random.uniform(0, FIRST_WAIT)
    if asked > LONGEST_WAIT and isinstance(error, ModelError):
        raise ModelError(f"{error} It asks to wait {asked:.0f} seconds.", code=error.code, retry_after=asked)
    return max(asked, 0.0)


@dataclass
class _Asking:
    """A question on its way to one model; `spent` collects what its attempts cost."""

    deps: Deps
    model: BaseChatModel
    question: Question
    seconds: float
    speech: Speech
    spent: Amounts
    started: float

    async def once(self) -> AIMessage:
        """One attempt. Raises ModelError."""
        self._charge({"model_calls": 1})
        chunks: list[BaseMessage] = []
        try:
            await self._collect(chunks)
            if not chunks:
                raise ModelError(
                    "The model's answer was empty: not even its end came.", code="connection", retryable=True
                )
            message = joined(chunks)
        except Exception as error:
            self.speech.restart()
            if chunks:
                self._charge(self._cost(joined(chunks)))  # what was written before it broke off was paid for
            raise self._read(error) from error
        self._charge(self._cost(message))
        return message

    def _read(self, error: Exception) -> ModelError:
        """What went wrong. A server that does not know how to report usage is asked again without."""
        found, name = classify(error), model_name(self.model)
        if found.retryable or "stream_options" not in str(error) or name in self.deps.mute:
            return found
        self.deps.mute.add(name)
        return ModelError(str(found), code=found.code, retryable=True, retry_after=0.0)

    async def _collect(self, chunks: list[BaseMessage]) -> None:
        """Gather a streamed reply; a silence longer than `seconds` is a timeout."""
        model, messages = _bound(as_asked(self.model, self.deps.mute), self.question)
        stream: AsyncIterator[BaseMessage] = aiter(model.astream(messages, config={"tags": TAGS}))
        size = 0
        try:
            while size <= LONGEST_REPLY:
                async with asyncio.timeout(self.seconds):
                    chunk = await anext(stream, None)
                if chunk is None:
                    return
                chunks.append(chunk)
                size += length(chunk)
                self.speech.feed(chunk.text)
            chunks[-1].response_metadata["finish_reason"] = "length"
        except ValueError as error:
            if "no generation" not in str(error).lower():
                raise
        finally:
            if aclose := getattr(stream, "aclose", None):
                await aclose()

    def _charge(self, amounts: Mapping[str, float]) -> None:
        self.spent.update(add(self.spent, amounts))

    def _cost(self, message: AIMessage) -> Amounts:
        return cost_of(message, _prompt_text(self.question), model_name(self.model), self.deps.pricing)

    def check_price(self) -> None:
        """Under a limit of money, a model whose price is unknown is an error before the first call."""
        name = model_name(self.model)
        if "cost_usd" in self.question.allowance and not is_priced(name, self.deps.pricing):
            raise ModelError(no_price(name), code="unpriced")

    def spent_up(self, seconds: float) -> bool:
        """Whether what the attempts cost so far leaves nothing for another one that many seconds from now."""
        running = add(self.spent, {"active_seconds": time.monotonic() - self.started + seconds})
        left = {key: amount - running.get(key, 0) for key, amount in self.question.allowance.items()}
        return exhausted(left, ("model_calls",)) is not None


def _bound(model: BaseChatModel, question: Question) -> tuple[Any, list[BaseMessage]]:
    """The model with the tools; one that cannot call tools is told to print its call."""
    messages = list(question.messages)
    if not question.tools:
        return model, messages
    try:
        return model.bind_tools(list(question.tools)), messages
    except NotImplementedError:
        functions = [json.dumps(tool["function"], ensure_ascii=False) for tool in question.tools]
        printed = render("print_calls", functions="\n".join(functions))
        return model, [SystemMessage(f"{messages[0].text}\n\n{printed}"), *messages[1:]]


def _prompt_text(question: Question) -> str:
    """All that was sent, for an estimate of its tokens."""
    sent = [json.dumps(list(question.tools), ensure_ascii=False)] if question.tools else []
    for message in question.messages:
        sent.append(message.text)
        if isinstance(message, AIMessage) and message.tool_calls:
            sent.append(json.dumps([call["args"] for call in message.tool_calls], ensure_ascii=False, default=str))
    return "\n".join(sent)
