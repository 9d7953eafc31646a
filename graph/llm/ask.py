"""Ask a model one question: stream the reply, time it, retry where that can help, and charge every attempt."""

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
from donewhen.graph.llm.adapter import MOST_TOKENS, TOKEN_FIELDS, ModelQuirks, PreparedModel
from donewhen.graph.llm.caching import key_options, mark_kind, mark_messages
from donewhen.graph.llm.cost import cost_of, is_priced, missing_price_text
from donewhen.graph.llm.errors import classify
from donewhen.graph.llm.history import compact_request, count_tokens, fits, has_native_call, has_only_spoken, window_of
from donewhen.graph.llm.stream import Retract, Say, SpeechStream, join_chunks, stream_reply, thinking_in
from donewhen.graph.tools.schema import load_jsonschema
from donewhen.state.errors import DoneWhenError, ModelError
from donewhen.state.ledger import Amounts, add, exhausted
from donewhen.state.proof.journal import round_seconds
from donewhen.state.settings import Settings

TAGS = ["nostream", "langsmith:nostream"]
"""Tags that keep raw decisions out of chat clients; speech reaches them as events."""
METADATA = {"emit-tool-calls": False}
"""The same for AG-UI, which ignores tags: texts pass, arguments of decisions do not."""
LONGEST_BACKOFF = 20.0
"""Seconds between two attempts when the provider names no time."""
LONGEST_RETRY_AFTER = 120.0
"""Seconds; the error of a provider that asks for a longer wait is raised."""
TOO_LONG = "context_too_long"
SHORTER_BY = 0.6
"""After a request was too long for the provider, the next one has this part of its tokens."""
STALL_SECONDS = 10.0
"""Seconds of silence between two reports of a stall."""
LONGEST_STREAM = 5
"""Times `model_seconds` (the longest silence): the most time that one reply may stream before it is cut off."""


@dataclass(frozen=True)
class Question:
    """One question: the role that is asked, the messages, the tools, and what it may cost."""

    role: str
    messages: Sequence[BaseMessage]
    tools: Sequence[dict[str, Any]] = ()
    """Tool definitions. Never change one: prepared models are cached by their identity."""
    executor: str | None = None
    allowance: Mapping[str, float] = field(default_factory=dict)
    say: Say | None = None
    retract: Retract | None = None
    """Called when speech was void; it is said again from the start."""
    on_stall: Callable[[float], None] | None = None
    """Called every `STALL_SECONDS` of silence with the seconds that it has lasted."""
    place: Mapping[str, Any] = field(default_factory=dict)
    """The `step` and `round` of the question, for traces."""
    passing: int = 0
    """The number of messages at the end that are in this request only."""
    thread: str = ""
    """The id of the thread, whose requests share a cache at the provider."""
    fence: str = ""
    """The word that frames foreign text in the messages."""
    must_call: bool = False
    """The reply has to call a tool; providers that can enforce this are asked to."""
    think: Callable[[str], None] | None = None
    """Called with the model's thinking, where the provider shows it (S04)."""


@dataclass(frozen=True)
class ModelReply:
    """The result of a question: a message or an error, and its cost either way."""

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
        quirks = deps.adapter.quirks_of(model)
        message = await _Request(deps, model, quirks, question, settings, speech, spent, started).answer()
    except DoneWhenError as error:
        failure = error if isinstance(error, ModelError) else ModelError(str(error), code="config")
    except Exception as error:  # the model cannot be made, or its tools cannot be bound
        failure = classify(error)
    await load_jsonschema()  # the reply is read by it
    seconds = {"active_seconds": round_seconds(time.monotonic() - started)}
    return ModelReply(message, add(spent, seconds), failure, speech if message else None)


def _wait_before_retry(error: ModelError, number: int, first: float) -> float:
    """Return the seconds to wait: what the provider asks for, else a growing backoff. Raises ModelError if too long."""
    asked = error.retry_after
    if asked is None:
        return min(first * 2.0 ** (number - 1), LONGEST_BACKOFF) + random.uniform(0, first)
    if asked > LONGEST_RETRY_AFTER:
        raise ModelError(f"{error} It asks to wait {asked:.0f} seconds.", code=error.code, retry_after=asked)
    return max(asked, 0.0)


@dataclass
class _Request:
    """A question on its way to one model; `spent` adds up the cost of its attempts."""

    deps: Deps
    model: BaseChatModel
    quirks: ModelQuirks
    question: Question
    settings: Settings
    speech: SpeechStream
    spent: Amounts
    started: float
    attempt: int = 0
    messages: Sequence[BaseMessage] = ()
    """The messages that are sent: the question's own, shortened if they exceed the context window."""

    async def answer(self) -> AIMessage:
        """Return the model's reply, after as many attempts as the settings and the allowance permit."""
        if "cost_usd" in self.question.allowance and not is_priced(self.quirks.name, self.deps.prices):
            raise ModelError(missing_price_text(self.quirks.name), code="unpriced")
        while True:
            try:
                return await self._attempt()
            except ModelError as error:
                wait = _wait_before_retry(error, self.attempt, self.deps.adapter.first_wait)
                used_up = self.attempt > self.settings.model_retries or self.settings.is_late()
                if not error.retryable or used_up or self._out_of_budget(wait):
                    raise
            await asyncio.sleep(wait)

    def _fit(self, window: int | None) -> None:
        """Shorten the messages if they exceed the window. Raises ModelError if they cannot be shortened enough."""
        question, sent = self.question, self.messages or self.question.messages
        if window is not None and not fits(sent, question.tools, window):
            shorter = compact_request(question.messages, question.tools, window, question.fence)
            if shorter is None:
                problem = f"The request has about {count_tokens(question.messages, question.tools):,} tokens"
                problem = f"{problem}; the model takes {window:,}, and nothing more can be left out."
                raise ModelError(problem, code=TOO_LONG)
            sent = shorter
        self.messages = sent

    async def _attempt(self) -> AIMessage:
        """Make one attempt; repeat it at once without parameters that the server does not take. Raises ModelError."""
        question, adapter, quirks = self.question, self.deps.adapter, self.quirks
        self.attempt += 1
        most = self.settings.max_tokens.get(question.role) or _most_tokens(self.model, question.role)
        known = [each for each in (window_of(self.model, self.settings), quirks.window) if each is not None]
        self._fit(min(known, default=None))
        printing = not quirks.calls_tools and has_only_spoken(question.messages)
        self.speech.prints = not (quirks.calls_tools or has_native_call(question.messages))
        left_out = set[str]()
        while True:
            prepared = await adapter.prepare(
                self.model, quirks, question.tools, must_call=question.must_call, max_tokens=most, printing=printing
            )
            try:
                message = await self._stream(prepared)
            except ModelError as error:
                lasting = not error.retryable and not self._out_of_budget(0)
                if lasting and error.code == TOO_LONG:
                    # The window is smaller than declared; remember that, so that later requests need not find out.
                    smaller = int(count_tokens(self.messages, question.tools) * SHORTER_BY)
                    if (shorter := compact_request(question.messages, question.tools, smaller, question.fence)) is None:
                        raise
                    quirks.window, self.messages = smaller, shorter
                    continue
                if lasting and (name := adapter.note_refusal(quirks, prepared, error.__cause__ or error)):
                    left_out.add(name)
                    continue
                if not error.retryable:  # leaving it out did not help: something else was refused
                    quirks.unsupported -= left_out
                raise
            if "tools" in prepared.sent:
                quirks.calls_tools |= bool(message.tool_calls or message.invalid_tool_calls)
            return message

    async def _stream(self, prepared: PreparedModel) -> AIMessage:
        """Return the reply that the model streams, and charge it, or what came of it. Raises ModelError."""
        self.spent.update(add(self.spent, {"model_calls": 1}))
        chunks: list[BaseMessage] = []
        try:
            await self._collect(prepared, chunks)
            if not chunks:
                raise ModelError(
                    "The model's answer was empty: not even its end came.", code="connection", retryable=True
                )
            message = join_chunks(chunks)
        except Exception as error:
            self.speech.restart()
            if chunks:
                with suppress(Exception):  # the last chunk may be the one that cannot be joined
                    self._charge(join_chunks(chunks))  # tokens written before the failure are paid for
            raise classify(error) from error
        self._charge(message)
        return message

    async def _collect(self, prepared: PreparedModel, chunks: list[BaseMessage]) -> None:
        """Collect the chunks of a streamed reply. Silence raises a timeout; an endless reply is cut off."""
        messages, seconds, size = list(self.messages), self.settings.model_seconds, 0
        if prepared.printing:
            messages[0] = SystemMessage(f"{messages[0].text}\n\n{prepared.printing}")
        options = prepared.options
        if "cache_marks" in prepared.sent:
            messages = self._mark_for_cache(messages)
        if "prompt_cache_key" in prepared.sent and self.question.thread:
            options = {**options, **key_options(self.model, self.question.thread)}
        ends = time.monotonic() + seconds * LONGEST_STREAM
        stream = stream_reply(prepared.model, messages, self._config(), options)
        silence = _SilenceTimer(self.question.on_stall, min(STALL_SECONDS, seconds / 4))
        try:
            async with asyncio.timeout(seconds) as patience:
                while size <= self.deps.adapter.longest_reply and (now := time.monotonic()) < ends:
                    silence.since = now
                    patience.reschedule(min(now + seconds, ends))
                    if (chunk := await anext(stream, None)) is None:
                        return
                    chunks.append(chunk)
                    size += len(chunk.text)
                    self.speech.feed(chunk.text)
                    if self.question.think and (thought := thinking_in(chunk)):
                        self.question.think(thought)
                    for part in chunk.tool_call_chunks if isinstance(chunk, AIMessageChunk) else ():
                        size += len(part["args"] or "")
                        self.speech.feed_call(part)
        except TimeoutError:
            if time.monotonic() < ends or not chunks:
                raise
        except ValueError as error:
            if "no generation" not in str(error).lower():
                raise
            return
        finally:
            silence.stop()
            if aclose := getattr(stream, "aclose", None):
                await aclose()
        chunks[-1].response_metadata["finish_reason"] = "length"

    def _mark_for_cache(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Mark the beginning that the next request shares. Steps make several requests; other roles often make one."""
        goes_on = self.question.role == "execute" or any(isinstance(message, AIMessage) for message in messages)
        lasting = len(messages) - self.question.passing
        return mark_messages(messages, mark_kind(self.model), lasting=lasting, goes_on=goes_on)

    def _config(self) -> RunnableConfig:
        """Return the call's configuration: metadata for traces, and tags that keep raw chunks out of chat clients."""
        question = self.question
        facts = {**question.place, "role": question.role, "executor": question.executor, "attempt": self.attempt}
        known = {f"donewhen_{key}": value for key, value in facts.items() if value is not None}
        return {"tags": TAGS, "metadata": {**METADATA, **known}}

    def _charge(self, message: AIMessage) -> None:
        """Add the cost of a reply, or of what came of it."""
        sent = partial(count_tokens, self.messages, self.question.tools)
        self.spent.update(add(self.spent, cost_of(message, sent, self.quirks.name, self.deps.prices)))

    def _out_of_budget(self, seconds: float) -> bool:
        """Return True if the attempts so far leave no allowance for another one in that many seconds."""
        running = add(self.spent, {"active_seconds": time.monotonic() - self.started + seconds})
        left = {key: amount - running.get(key, 0) for key, amount in self.question.allowance.items()}
        return exhausted(left, ("model_calls",)) is not None


class _SilenceTimer:
    """Report, again and again, how long the model has been silent."""

    def __init__(self, report: Callable[[float], None] | None, seconds: float) -> None:
        self.since = time.monotonic()
        self._report = report
        self._seconds = seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look) if report else None

    def _look(self) -> None:
        silent = time.monotonic() - self.since
        if self._report and silent >= self._seconds * 0.99:
            self._report(round(silent, 1))
        wait = self._seconds - silent % self._seconds
        self._timer = asyncio.get_running_loop().call_later(wait, self._look)

    def stop(self) -> None:
        if self._timer:
            self._timer.cancel()


def _most_tokens(model: BaseChatModel, role: str) -> int | None:
    """Return the default limit of a role's reply; None if the model's owner set one."""
    known = (getattr(model, "profile", None) or {}).get("max_output_tokens")
    own = next((most for name in TOKEN_FIELDS if (most := getattr(model, name, None))), known)
    most = MOST_TOKENS.get(role, max(MOST_TOKENS.values()))
    return None if own != known else min(most, known or most)
