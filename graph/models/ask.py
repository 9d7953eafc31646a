"""One question to a model: streamed, timed, retried where that may help, charged in any case."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, SystemMessage
from langchain_core.runnables import RunnableConfig

from donewhen.graph.context import Deps
from donewhen.graph.models.cost import cost_of, is_priced, no_price
from donewhen.graph.models.speech import Retract, Say, SpeechStream
from donewhen.graph.models.transcript import only_spoke
from donewhen.graph.models.window import compacted, fits, tokens_of, window_of
from donewhen.graph.providers.adapter import MOST_TOKENS, TOKENS, Habits, Prepared
from donewhen.graph.providers.failures import classify
from donewhen.graph.providers.joining import joined, length
from donewhen.graph.providers.streaming import streamed
from donewhen.state.errors import DoneWhenError, ModelError
from donewhen.state.ledger import Amounts, add, exhausted
from donewhen.state.proof.journal import round_seconds
from donewhen.state.settings import Settings

TAGS = ["nostream", "langsmith:nostream"]
"""Keeps raw decisions out of chat clients; speech reaches them as events."""
METADATA = {"emit-tool-calls": False}
"""The same for AG-UI, which heeds no tags: texts pass, arguments of decisions do not."""
MOST_WAIT = 20.0
"""Seconds between two attempts, where the provider names no time."""
LONGEST_WAIT = 120.0
"""Seconds; a provider that asks for more gets its error passed on."""
TOO_LONG = "context_too_long"
SHORTER = 0.6
"""Of a request that a provider found too long: what the next one may have."""
STALLS = 10.0
"""Seconds of silence after which a listener is told."""
LONGEST_STREAM = 5
"""Times `model_seconds`, which is the longest silence: a reply that streams for longer is cut off there."""


@dataclass(frozen=True)
class Question:
    """Who is asked what, with which tools, and what it may cost."""

    role: str
    messages: Sequence[BaseMessage]
    tools: Sequence[dict[str, Any]] = ()
    """Definitions that are never changed: what is bound is kept by their identity."""
    executor: str | None = None
    allowance: Mapping[str, float] = field(default_factory=dict)
    say: Say | None = None
    retract: Retract | None = None
    """Told when something that was said is void; what is to be said comes again from the start."""
    stalled: Callable[[float], None] | None = None
    """Told how many seconds nothing came, every `STALLS` of them."""
    place: Mapping[str, Any] = field(default_factory=dict)
    """Where it is asked, for traces: `step`, `round`."""
    fence: str = ""
    """The word that frames foreign text in its messages."""
    must_call: bool = False
    """A text alone decides nothing here; a provider that can see to it that a tool is called is asked to."""


@dataclass(frozen=True)
class ModelReply:
    """What came back: a message or an error, and what it cost either way."""

    message: AIMessage | None
    spent: Amounts
    error: ModelError | None = None
    speech: SpeechStream | None = None


async def ask(deps: Deps, settings: Settings, question: Question) -> ModelReply:
    """Ask a model. Never raises for anything a model, a provider or a network does."""
    spent: Amounts = {}
    speech = SpeechStream(question.say or (lambda text, argument="": None), question.retract)
    started = time.monotonic()
    message, failure = None, None
    try:
        model = deps.model(question.role, settings, question.executor)
        asking = _Asking(deps, model, deps.adapter.habits(model), question, settings, speech, spent, started)
        asking.check_price()
        message = await _attempts(asking, settings)
    except DoneWhenError as error:
        failure = error if isinstance(error, ModelError) else ModelError(str(error), code="config")
    except Exception as error:  # of a model that cannot even be made, or have its tools bound
        failure = classify(error)
    seconds = {"active_seconds": round_seconds(time.monotonic() - started)}
    return ModelReply(message, add(spent, seconds), failure, speech if message else None)


async def _attempts(asking: "_Asking", settings: Settings) -> AIMessage:
    number = 1
    while True:
        try:
            return await asking.once()
        except ModelError as error:
            wait = _wait(error, number, asking.deps.adapter.first_wait)
            if not error.retryable or number > settings.model_retries or settings.late() or asking.spent_up(wait):
                raise
        await asyncio.sleep(wait)
        number += 1


def _wait(error: ModelError, number: int, first: float) -> float:
    """As long as the provider asks for; if it names no time, longer each time."""
    asked = error.retry_after
    if asked is None:
        return min(first * 2.0 ** (number - 1), MOST_WAIT) + random.uniform(0, first)
    if asked > LONGEST_WAIT:
        raise ModelError(f"{error} It asks to wait {asked:.0f} seconds.", code=error.code, retry_after=asked)
    return max(asked, 0.0)


@dataclass
class _Asking:
    """A question on its way to one model; `spent` collects what its attempts cost."""

    deps: Deps
    model: BaseChatModel
    habits: Habits
    question: Question
    settings: Settings
    speech: SpeechStream
    spent: Amounts
    started: float
    attempt: int = 0
    messages: Sequence[BaseMessage] = ()
    """What is sent: the question's messages, made shorter where the model does not read them all."""

    def fit(self, window: int | None) -> None:
        """Make what is sent shorter if it is longer than the window. Raises ModelError if that cannot be done."""
        question, sent = self.question, self.messages or self.question.messages
        if window is not None and not fits(sent, question.tools, window):
            shorter = compacted(question.messages, question.tools, window, question.fence)
            if shorter is None:
                said = f"The request has about {tokens_of(question.messages, question.tools):,} tokens"
                said = f"{said}; the model takes {window:,}, and nothing more can be left out."
                raise ModelError(said, code=TOO_LONG)
            sent = shorter
        self.messages = sent

    async def once(self) -> AIMessage:
        """One attempt, repeated at once without what a server does not take. Raises ModelError."""
        question, adapter, habits = self.question, self.deps.adapter, self.habits
        self.attempt += 1
        most = self.settings.max_tokens.get(question.role) or _most(self.model, question.role)
        known = [each for each in (window_of(self.model, self.settings), habits.window) if each is not None]
        self.fit(min(known, default=None))
        printing = not habits.called and only_spoke(question.messages)
        left_out = set[str]()
        while True:
            prepared = await adapter.prepare(
                self.model, habits, question.tools, must_call=question.must_call, most=most, printing=printing
            )
            try:
                message = await self._answer(prepared)
            except ModelError as error:
                lasting = not error.retryable and not self.spent_up(0)
                if lasting and error.code == TOO_LONG:
                    # Its window is smaller than anybody said; how small, the next requests need not find out again.
                    smaller = int(tokens_of(self.messages, question.tools) * SHORTER)
                    if (shorter := compacted(question.messages, question.tools, smaller, question.fence)) is None:
                        raise
                    habits.window, self.messages = smaller, shorter
                    continue
                if lasting and (name := adapter.refused(habits, prepared, error.__cause__ or error)):
                    left_out.add(name)
                    continue
                if not error.retryable:  # leaving it out has not helped: what was refused is something else
                    habits.refused -= left_out
                raise
            if "tools" in prepared.sent:
                habits.learn(message)
            return message

    async def _answer(self, prepared: Prepared) -> AIMessage:
        self._charge({"model_calls": 1})
        chunks: list[BaseMessage] = []
        try:
            await self._collect(prepared, chunks)
            if not chunks:
                raise ModelError(
                    "The model's answer was empty: not even its end came.", code="connection", retryable=True
                )
            message = joined(chunks)
        except Exception as error:
            self.speech.restart()
            if chunks:
                with suppress(Exception):  # what came last may be what could not be joined
                    self._charge(self._cost(joined(chunks)))  # what was written before it broke off was paid for
            raise classify(error) from error
        self._charge(self._cost(message))
        return message

    async def _collect(self, prepared: Prepared, chunks: list[BaseMessage]) -> None:
        """Gather a streamed reply; silence is a timeout, and a reply without end is cut off."""
        messages, seconds, size = list(self.messages), self.settings.model_seconds, 0
        if prepared.printing:
            messages[0] = SystemMessage(f"{messages[0].text}\n\n{prepared.printing}")
        ends = time.monotonic() + seconds * LONGEST_STREAM
        stream = streamed(prepared.model, messages, self._config(), prepared.options)
        silence = _Silence(self.question.stalled, min(STALLS, seconds / 4))
        try:
            async with asyncio.timeout(seconds) as patience:
                while size <= self.deps.adapter.longest_reply and (now := time.monotonic()) < ends:
                    silence.since = now
                    patience.reschedule(min(now + seconds, ends))
                    if (chunk := await anext(stream, None)) is None:
                        return
                    chunks.append(chunk)
                    size += length(chunk)
                    self.speech.feed(chunk.text)
                    for part in chunk.tool_call_chunks if isinstance(chunk, AIMessageChunk) else ():
                        self.speech.feed_call(part)
        except TimeoutError:
            if time.monotonic() < ends or not chunks:
                raise
        except ValueError as error:
            if "no generation" not in str(error).lower():
                raise
            return
        finally:
            silence.over()
            if aclose := getattr(stream, "aclose", None):
                await aclose()
        chunks[-1].response_metadata["finish_reason"] = "length"

    def _config(self) -> RunnableConfig:
        """What traces say of this call, and what keeps its raw chunks out of chat clients."""
        question = self.question
        told = {**question.place, "role": question.role, "executor": question.executor, "attempt": self.attempt}
        known = {f"donewhen_{key}": value for key, value in told.items() if value is not None}
        return {"tags": TAGS, "metadata": {**METADATA, **known}}

    def _charge(self, amounts: Mapping[str, float]) -> None:
        self.spent.update(add(self.spent, amounts))

    def _cost(self, message: AIMessage) -> Amounts:
        sent = partial(tokens_of, self.messages, self.question.tools)
        return cost_of(message, sent, self.habits.name, self.deps.prices)

    def check_price(self) -> None:
        """Under a limit of money, a model whose price is unknown is an error before the first call."""
        if "cost_usd" in self.question.allowance and not is_priced(self.habits.name, self.deps.prices):
            raise ModelError(no_price(self.habits.name), code="unpriced")

    def spent_up(self, seconds: float) -> bool:
        """Whether what the attempts cost so far leaves nothing for another one that many seconds from now."""
        running = add(self.spent, {"active_seconds": time.monotonic() - self.started + seconds})
        left = {key: amount - running.get(key, 0) for key, amount in self.question.allowance.items()}
        return exhausted(left, ("model_calls",)) is not None


class _Silence:
    """Tells, again and again, for how long nothing has come."""

    def __init__(self, tell: Callable[[float], None] | None, seconds: float) -> None:
        self.since = time.monotonic()
        self._tell = tell
        self._seconds = seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look) if tell else None

    def _look(self) -> None:
        silent = time.monotonic() - self.since
        if self._tell and silent >= self._seconds * 0.99:
            self._tell(round(silent, 1))
        wait = self._seconds - silent % self._seconds
        self._timer = asyncio.get_running_loop().call_later(wait, self._look)

    def over(self) -> None:
        if self._timer:
            self._timer.cancel()


def _most(model: BaseChatModel, role: str) -> int | None:
    """The most tokens a role may write where nobody set it; None for what the model's owner set."""
    known = (getattr(model, "profile", None) or {}).get("max_output_tokens")
    own = next((most for name in TOKENS if (most := getattr(model, name, None))), known)
    most = MOST_TOKENS.get(role, max(MOST_TOKENS.values()))
    return None if own != known else min(most, known or most)
