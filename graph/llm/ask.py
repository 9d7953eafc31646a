"""Ask a model one question: stream the reply, time it, retry where that can help, and charge every attempt."""

import asyncio
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained

from donewhen.graph.context import Deps
from donewhen.graph.day_budget import announce_request, limits_today, settle_request
from donewhen.graph.events import current_runtime, store_events
from donewhen.graph.llm.adapter import (
    LEAST_TOKENS,
    ModelQuirks,
    PreparedModel,
    ThreadFacts,
    asked_context,
    lower_limit,
    reply_limit,
)
from donewhen.graph.llm.caching import key_options, mark_kind, mark_messages
from donewhen.graph.llm.calls import settle_calls
from donewhen.graph.llm.cost import cost_of, is_priced, missing_price_text, usage_of
from donewhen.graph.llm.endings import ending_of, reached_limit, refusal_in, reports_parts
from donewhen.graph.llm.errors import classify, text_in_refusal
from donewhen.graph.llm.history import (
    PRINTED,
    calls_natively,
    compact_request,
    count_tokens,
    fits,
    has_printed,
    should_print,
    window_of,
    without_images,
)
from donewhen.graph.llm.joining import join_chunks
from donewhen.graph.llm.openai_wire import ChatWire, wire_of
from donewhen.graph.llm.outgoing import (
    MADE_BY,
    FitRounds,
    History,
    any_lacks_thoughts,
    fit_history,
    in_turns,
    printed_history,
    refuses_images,
    with_instruction,
    without_system,
)
from donewhen.graph.llm.printed import holds_offered_calls
from donewhen.graph.llm.reply import MOST_CALLS, aside, without_excess
from donewhen.graph.llm.speech import SpeechStream, Voice
from donewhen.graph.sync import LARGE, load_jsonschema, run_in_thread
from donewhen.state.errors import DoneWhenError, ModelError
from donewhen.state.language.texts import say
from donewhen.state.ledger import Amounts, add, first_exhausted, round_seconds, subtract
from donewhen.state.pattern import pattern
from donewhen.state.settings import Settings
from donewhen.state.values import clean_text

log: logging.Logger = logging.getLogger("donewhen.tools")
TAGS = ["nostream", "langsmith:nostream"]
"""Tags that keep raw decisions out of chat clients; speech reaches them as events."""
METADATA = {"emit-tool-calls": False}
"""The same for AG-UI, which ignores tags: texts pass, arguments of decisions do not."""
LONGEST_BACKOFF = 20.0
"""Seconds between two attempts when the provider names no time."""
LONGEST_RETRY_AFTER = 120.0
"""Seconds; the error of a provider that asks for a longer wait is raised, unless an outage may last as long."""
OUTAGE_PAUSE = 120
"""Times the first wait, so a minute: the pause between two attempts in an outage."""
DRAIN_POLL = 0.5
"""Seconds between two looks whether a run that waits is drained, which is a flag of LangGraph."""
_AFFORDED = pattern(r"can only afford (\d{1,9})\b")
TOO_LONG = "context_too_long"
SHORTER_BY = 0.6
"""After a request was too long for the provider, the next one has this part of its tokens."""
MOST_BEGUN = 8 * MOST_CALLS
"""A reply that begins more calls is stopped; it is refused for far fewer."""
CHARS_OF_TOKEN = 8
"""A reply is stopped here after so many characters for each token that its role may write, if the server does not."""
STALL_SECONDS = 10.0
"""Seconds of silence between two reports of a stall to people."""
CHUNK_CHARS = 20
"""A chunk takes as long to join as this many characters."""
LONGEST_STREAM = 5
"""Times `model_seconds` (the longest silence): the most time that one reply may stream before it is cut off."""


@dataclass(frozen=True)
class ModelRequest:
    """One question: the role that is asked, the messages, the tools, and what it may cost."""

    role: str
    messages: Sequence[BaseMessage]
    tools: Sequence[dict[str, Any]] = ()
    """Tool definitions. Never change one: prepared models are cached by their identity."""
    executor: str | None = None
    allowance: Mapping[str, float] = field(default_factory=dict)
    voice: Voice | None = None
    """Streams the parts of the reply that are meant for people, and reports long silences; None to stream nothing."""
    place: Mapping[str, Any] = field(default_factory=dict)
    """The `step` and `round` of the question, for traces."""
    passing: int = 0
    """The number of messages at the end that no later request has."""
    thread: str = ""
    """The id of the thread, whose requests share a cache at the provider."""
    fence: str = ""
    """The word that frames foreign text in the messages."""
    rounds: FitRounds | None = None
    """The rounds that the last request of this conversation had."""
    must_call: bool = False
    """The reply has to call a tool; providers that can enforce this are asked to."""


@dataclass(frozen=True)
class ModelReply:
    """The result of a question: a message or an error, and its cost either way."""

    message: AIMessage | None
    spent: Amounts
    error: ModelError | None = None
    speech: SpeechStream | None = None

    @property
    def needs_fewer_tools(self) -> bool:
        """True if the server refused so many tools; the next offer has no more than it takes."""
        return isinstance(self.error, _TooManyTools)


async def ask(deps: Deps, settings: Settings, question: ModelRequest) -> ModelReply:
    """Ask a model. Never raises for anything a model, a provider or a network does.

    Raises GraphDrained if the run is drained between two attempts.
    """
    speech = SpeechStream(question.voice)
    request = _Request(deps, settings, question, speech)
    message, failure = None, None
    try:
        message = await request.answer()
    except GraphDrained:
        raise
    except DoneWhenError as error:
        failure = error if isinstance(error, ModelError) else ModelError(str(error), code="config")
    except Exception as error:  # the model cannot be made, or its tools cannot be bound
        failure = classify(error)
    await load_jsonschema()  # the reply is read by it
    seconds = {"active_seconds": round_seconds(time.monotonic() - request.started)}
    return ModelReply(message, add(request.spent, seconds), failure, speech if message else None)


class _TooManyTools(ModelError):
    """A server takes fewer tools than a request had; how many is known now."""


class _FilledWindow(ModelError):
    """A reply that ended because the window was full, so only a shorter request leaves it more room."""


def _affordable(error: ModelError, sent: int | None) -> int | None:
    """Return the tokens of a reply that the credit still pays for, as OpenRouter says; None if fewer do not help."""
    match = _AFFORDED.search(str(error))
    tokens = int(match[1]) if match else 0
    return tokens if tokens >= LEAST_TOKENS and (sent is None or sent > tokens) else None


@dataclass
class _Request:
    """A question on its way to one model: `answer` retries, `_attempt` adapts the request, `_stream` makes it."""

    deps: Deps
    settings: Settings
    question: ModelRequest
    speech: SpeechStream
    model: BaseChatModel = field(init=False)
    quirks: ModelQuirks = field(init=False)
    started: float = field(default_factory=time.monotonic)
    spent: Amounts = field(default_factory=dict)
    """The cost of all attempts."""
    attempt: int = 0
    failed_at: float | None = None
    """When the first attempt failed."""
    is_away: bool = False
    """The model is still away after all retries, or asks to wait for long."""
    longest: int = 0
    """Characters after which the reply is stopped and counts as cut off."""
    stopped: bool = False
    """The last reply was stopped here, and not by the server."""
    messages: Sequence[BaseMessage] = ()
    """The messages that are sent: the question's own, shortened if they exceed the context window."""

    async def answer(self) -> AIMessage:
        """Return the model's reply, after as many attempts as the settings and the allowance permit."""
        self.model = self.deps.model(self.question.role, self.settings, self.question.executor)
        self.quirks = self.deps.adapter.quirks_of(self.model)
        money = "cost_usd" in self.question.allowance or limits_today("cost_usd")
        if money and not is_priced(self.quirks.name, self.deps.prices):
            raise ModelError(missing_price_text(self.quirks.name), code="unpriced")
        while True:
            request, before, began = await self._announce(), self.spent, time.monotonic()
            try:
                return await self._attempt()
            except ModelError as error:
                self.failed_at = self.failed_at or time.monotonic()
                try:
                    wait = self._wait_before_retry(error)
                finally:
                    if self.is_away:  # then the attempt was no work, nor is the wait
                        self.started += time.monotonic() - began
                        cost = subtract(self.spent, before)
                        self.spent = self.spent if any(cost[key] for key in cost.keys() - {"model_calls"}) else before
            finally:
                settle_request(request, subtract(self.spent, before))
            began = time.monotonic()
            if self.is_away:
                await store_events(current_runtime().store)  # who watches elsewhere reads of it now
            await _pause(wait)
            if self.is_away:
                self.started += time.monotonic() - began

    def _wait_before_retry(self, error: ModelError) -> float:
        """Return the seconds until the next attempt: what the provider asks for, else a growing pause.

        Raises the error, or one that says how long the provider asks to wait, if there is no next attempt.
        """
        settings, first, asked = self.settings, self.deps.adapter.first_wait, error.retry_after
        left = (self.failed_at or 0) + settings.outage_seconds - time.monotonic()
        used_up = self.attempt > settings.model_retries
        is_away = left > 0 and (self.is_away or used_up or (asked or 0) > LONGEST_RETRY_AFTER)
        if asked is not None and asked > (left if is_away else LONGEST_RETRY_AFTER):
            raise ModelError(f"{error} It asks to wait {asked:.0f} seconds.", code=error.code, retry_after=asked)
        if is_away:
            wait = min(max(asked or 0, OUTAGE_PAUSE * first), left)
        elif asked is not None:
            wait = max(asked, 0.0)
        else:
            wait = min(first * 2.0 ** (self.attempt - 1), LONGEST_BACKOFF) + random.uniform(0, first)
        is_late = settings.is_late(datetime.now(UTC) + timedelta(seconds=wait))
        if not error.retryable or is_late or (used_up and not is_away) or self._out_of_budget(0 if is_away else wait):
            raise error
        if is_away and not self.is_away:
            self._tell_outage(error, left)
        self.is_away = is_away
        return wait

    def _tell_outage(self, error: ModelError, left: float) -> None:
        """Tell people that the model is away, and how long the run waits for it."""
        fields = {"minutes": math.ceil(left / 60), "error": str(error)}
        if self.question.voice:
            self.question.voice.note("outage", **fields)
        else:
            log.warning("%s", say("en", "note", "outage", **fields))

    async def _announce(self) -> str:
        """Announce the next attempt to those who share a budget of the day; waiting for them is no work."""
        began = time.monotonic()
        try:
            return await announce_request()
        finally:
            self.started += time.monotonic() - began

    async def _attempt(self) -> AIMessage:
        """Ask once; repeat at once if the server refuses a parameter or the length. Raises ModelError."""
        question, adapter, quirks = self.question, self.deps.adapter, self.quirks
        self.attempt += 1
        facts = quirks.in_thread(question.thread)
        self._shorten(facts)
        printing = not quirks.calls_tools and should_print(question.messages)
        calls = quirks.calls_tools or calls_natively(question.messages)
        self.speech.prints = not calls or has_printed(question.messages)
        self.speech.names = {tool["function"]["name"] for tool in question.tools}
        limit = reply_limit(self.model, question.role, self.settings.max_tokens.get(question.role), quirks)
        self.longest = min(adapter.longest_reply, (limit.tokens or adapter.longest_reply) * CHARS_OF_TOKEN)
        most = (limit.tokens if limit.sent else None) if facts.limit is None else facts.limit
        left_out, before = set[str](), (quirks.strict, dict(quirks.left_out))
        short: AIMessage | None = None
        while True:
            sent = without_images(self.messages, "the model's server refused it") if facts.blind else self.messages
            history = fit_history(sent, quirks.maker, question.rounds)
            history = in_turns(history) if "free_turns" in quirks.unsupported else history
            history = without_system(history) if "system" in quirks.unsupported else history
            prepared = await adapter.prepare(
                self.model,
                quirks,
                question.tools,
                must_call=question.must_call,
                max_tokens=most,
                printing=printing,
                thinking=not history.foreign,
                context=asked_context(self.model, quirks, self._count, window_of(self.model, self.settings)),
            )
            try:
                message = await self._stream(prepared, history)
            except ModelError as error:
                lasting = not error.retryable and not self._out_of_budget(0)
                if lasting and short is not None:  # keep the server's own limit
                    facts.limit, quirks.needs_limit = 0, False
                    return short
                if lasting and error.code == TOO_LONG:
                    filled = isinstance(error, _FilledWindow)
                    if (
                        not filled and (lower := lower_limit(self.model, most)) is not None
                    ):  # it counts as part of the request
                        most = facts.limit = lower
                    elif not self._shorten_refused(facts):
                        raise
                    continue
                if lasting and error.code == "quota" and limit.tokens and (paid := _affordable(error, most)):
                    most = facts.limit = min(limit.tokens, paid)
                    continue
                if lasting and not facts.blind and refuses_images(sent, error):
                    facts.blind = True
                    continue
                if lasting and not quirks.fills_thoughts and any_lacks_thoughts(history, error):
                    quirks.fills_thoughts = True
                    continue
                if (
                    lasting
                    and error.code == "too_many_tools"
                    and adapter.note_too_many_tools(quirks, prepared, error.__cause__ or error)
                ):
                    raise _TooManyTools(str(error), code=error.code) from error
                if lasting and (name := adapter.note_refusal(quirks, prepared, error.__cause__ or error)):
                    left_out.add(name)
                    continue
                if lasting and adapter.note_refused_schema(quirks, prepared, error.__cause__ or error):
                    continue
                if not error.retryable:  # leaving the parameter out did not help: the server refused something else
                    quirks.unsupported -= left_out
                    quirks.strict, quirks.left_out = before
                raise
            if (
                short is None
                and facts.limit is None
                and limit.tokens
                and self._is_cut_early(message, prepared, limit.tokens)
            ):
                short, most, quirks.needs_limit = message, limit.tokens, True
                self.speech.restart()
                continue
            self._tell_left_out(before[1])
            if "tools" in prepared.sent:
                quirks.calls_tools |= bool(message.tool_calls or message.invalid_tool_calls)
            return message

    def _tell_left_out(self, left_out: Mapping[str, str]) -> None:
        """Say which tools the model is not offered since this request."""
        for name in self.quirks.left_out.keys() - left_out.keys():
            why = self.quirks.left_out[name]
            log.warning("%s", say("en", "note", "not_offered", name=repr(name), why=why))
            if self.question.voice:
                self.question.voice.note("not_offered", name=repr(name), why=why)

    def _shorten(self, facts: ThreadFacts) -> None:
        """Shorten the messages to the known window. Raises ModelError if that is impossible."""
        question = self.question
        windows = [each for each in (window_of(self.model, self.settings), facts.window) if each is not None]
        self.messages = self.messages or question.messages
        if windows and not fits(self.messages, question.tools, window := min(windows)):
            shorter = compact_request(question.messages, question.tools, window, question.fence)
            if shorter is None:
                problem = f"The request has about {count_tokens(question.messages, question.tools):,} tokens"
                problem = f"{problem}; the model takes {window:,}, and nothing more can be left out."
                raise ModelError(problem, code=TOO_LONG)
            self.messages = shorter

    def _shorten_refused(self, facts: ThreadFacts) -> bool:
        """Shorten the messages after the server refused them as too long; return False if that is impossible.

        The window is smaller than declared; the thread remembers it, so that its next requests need not find out.
        """
        question = self.question
        smaller = int(count_tokens(self.messages, question.tools) * SHORTER_BY)
        if (shorter := compact_request(question.messages, question.tools, smaller, question.fence)) is None:
            return False
        facts.window, self.messages = smaller, shorter
        return True

    def _is_cut_early(self, message: AIMessage, prepared: PreparedModel, most: int) -> bool:
        """Return True if a reply was cut off by a limit of the server that is much lower than the role's."""
        if self.stopped or "max_tokens" in prepared.sent | self.quirks.unsupported or not reached_limit(message):
            return False
        return usage_of(message, 0)["output_tokens"] < most / 2 and not self._out_of_budget(0)

    async def _stream(self, prepared: PreparedModel, history: History) -> AIMessage:
        """Make one request and return its reply. A reply that breaks off is charged too. Raises ModelError."""
        self.spent = add(self.spent, {"model_calls": 1})
        self.stopped = False
        chunks: list[BaseMessage] = []
        wire = wire_of(prepared.model)
        if wire and "thoughts" in prepared.sent:
            wire.packets, wire.fills = history.packets, self.quirks.fills_thoughts
        try:
            await self._collect(prepared, history, chunks, wire)
            if not chunks:
                raise ModelError(
                    "The model's answer was empty: not even its end came.", code="connection", retryable=True
                )
            message = await self._join(chunks)
        except Exception as error:
            self.speech.restart()
            if written := text_in_refusal(error):
                return await self._settle_text(written)
            if chunks:
                with suppress(Exception):  # the last chunk may be the one that cannot be joined
                    begun = await self._join(chunks)
                    self._charge(begun)  # tokens written before the failure are paid for
            raise classify(error) from error
        streamed = isinstance(chunks[0], AIMessageChunk)
        try:
            return await aside(message, partial(self._read, message, prepared, wire, streamed=streamed))
        except ModelError:
            self.speech.restart()
            raise

    def _read(self, message: AIMessage, prepared: PreparedModel, wire: ChatWire | None, *, streamed: bool) -> AIMessage:
        """Charge a reply and return it as it is read. Raises ModelError if it is not whole."""
        self._charge(message)
        if problem := self._problem_of_end(message, streamed=streamed, wire=wire):
            raise problem
        kept = without_excess(message, self.deps.adapter.longest_reply)
        self.stopped |= kept is not message
        return self._settle(prepared.renamed.put_back(kept), wire)

    async def _settle_text(self, written: str) -> AIMessage:
        """Return the reply that a model wrote and its server could not read."""
        message = AIMessage(written, id=f"lc_run--{uuid4()}", response_metadata={"finish_reason": "stop"})
        await aside(message, partial(self._charge, message))
        return await aside(message, partial(self._settle, message, None))

    def _settle(self, message: AIMessage, wire: ChatWire | None) -> AIMessage:
        """Return the reply with its calls as they are read, its maker, and what goes back with it."""
        question = self.question
        offered = [tool["function"]["name"] for tool in question.tools]
        replies = [each for each in question.messages if isinstance(each, AIMessage)]
        taken = {str(call["id"]) for each in replies for call in (*each.tool_calls, *each.invalid_tool_calls)}
        message = settle_calls(message, offered, taken)
        beside = wire.thoughts.beside(message.tool_calls) if wire and message.tool_calls else {}
        metadata: dict[str, Any] = {**message.response_metadata, MADE_BY: self.quirks.maker}
        if offered and not (message.tool_calls or message.invalid_tool_calls):
            metadata |= {PRINTED: True} if holds_offered_calls(clean_text(str(message.text)), offered) else {}
        return message.model_copy(
            update={
                "response_metadata": metadata,
                "additional_kwargs": {**beside, **message.additional_kwargs},
            }
        )

    async def _join(self, chunks: Sequence[BaseMessage]) -> AIMessage:
        join = partial(join_chunks, chunks, adds_usage=reports_parts(self.model))
        return join() if _are_short(chunks) else await run_in_thread(join)

    def _problem_of_end(self, message: AIMessage, *, streamed: bool, wire: ChatWire | None) -> ModelError | None:
        """Return the error of a reply that is not whole (R13); one that reached its limit is for the caller to read."""
        ending, quirks = ending_of(self.model, message, streamed=streamed), self.quirks
        quirks.names_end |= bool(ending.word)
        refusal = refusal_in(message) or (wire.thoughts.refusal if wire else "")
        if refusal and not message.tool_calls:
            return ModelError(f"The model refused to answer: {refusal}", code="content_filter", said=refusal)
        if ending.kind == "filtered":
            happened = f"The provider's filter stopped the reply ({ending.word})."
            return ModelError(f"{happened} Rephrase the goal or the material.", code="content_filter")
        if ending.kind == "window":
            return _FilledWindow("The request and the reply filled the model's context window.", code=TOO_LONG)
        if ending.kind != "broken":
            return None
        if wire and wire.done and not (ending.word or quirks.names_end):
            # The server says that the stream is over, without a reason. If it never gives one, that is a regular end.
            quirks.nameless_ends += 1
            if quirks.nameless_ends > 1:
                return None
        how = f"with {ending.word!r}" if ending.word else "without a word about its end"
        happened = f"The model's reply broke off: it ended {how}."
        return ModelError(f"{happened} Try again, or use another model.", code="connection", retryable=True)

    async def _collect(
        self, prepared: PreparedModel, history: History, chunks: list[BaseMessage], wire: ChatWire | None
    ) -> None:
        """Collect the chunks of a streamed reply. Silence raises a timeout; an endless reply is cut off."""
        question, voice = self.question, self.question.voice
        messages, seconds, size = history.messages, self.settings.model_seconds, 0
        calls = set[tuple[Any, Any]]()
        if prepared.printing:
            messages = with_instruction(printed_history(messages), prepared.printing)
            if "free_turns" not in prepared.sent:
                messages = in_turns(History(messages, [None] * len(messages), foreign=False)).messages
        else:
            messages = prepared.renamed.show(messages)
        options = prepared.options
        if "cache_marks" in prepared.sent:
            messages = self._mark_for_cache(messages)
        if "prompt_cache_key" in prepared.sent and question.thread:
            options = {**options, **key_options(self.model, question.thread)}
        ends = time.monotonic() + seconds * LONGEST_STREAM
        # Metadata is for traces, and tags keep raw chunks out of chat clients.
        facts = {**question.place, "role": question.role, "executor": question.executor, "attempt": self.attempt}
        facts_known = {f"donewhen_{key}": value for key, value in facts.items() if value is not None}
        config = RunnableConfig(tags=TAGS, metadata={**METADATA, **facts_known})
        model = prepared.model.model_copy(update={"async_client": wire}) if wire else prepared.model
        stream: AsyncIterator[BaseMessage] = model.astream(messages, config=config, **options)
        silence = _SilenceTimer(voice.report_stall if voice else None, min(STALL_SECONDS, seconds / 4))
        try:
            async with asyncio.timeout(seconds) as patience:
                while size <= self.longest and len(calls) <= MOST_BEGUN and (now := time.monotonic()) < ends:
                    silence.since = now
                    patience.reschedule(min(now + seconds, ends))
                    if (chunk := await anext(stream, None)) is None:
                        return
                    chunks.append(chunk)
                    size += self.speech.take(chunk)
                    parts = chunk.tool_call_chunks if isinstance(chunk, AIMessageChunk) else ()
                    calls.update((part["index"], part["id"]) for part in parts if part["name"])
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
        self.stopped = True
        chunks[-1].response_metadata["finish_reason"] = "length"

    def _mark_for_cache(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Mark the beginning that the next request shares. Steps make several requests; other roles often make one."""
        goes_on = self.question.role == "execute" or any(isinstance(message, AIMessage) for message in messages)
        lasting = len(messages) - self.question.passing
        return mark_messages(messages, mark_kind(self.model), lasting=lasting, goes_on=goes_on)

    def _charge(self, message: AIMessage) -> None:
        """Add the cost of a reply, or of the part that came before a failure."""
        self.spent = add(self.spent, cost_of(message, self._count, self.quirks.name, self.deps.prices))

    def _count(self) -> int:
        """Estimate the tokens of the request."""
        return count_tokens(self.messages, self.question.tools)

    def _out_of_budget(self, seconds: float) -> bool:
        """Return True if the attempts so far leave no allowance for another one in that many seconds."""
        running = add(self.spent, {"active_seconds": time.monotonic() - self.started + seconds})
        left = {key: amount - running.get(key, 0) for key, amount in self.question.allowance.items()}
        return first_exhausted(left, ("model_calls",)) is not None


async def _pause(seconds: float) -> None:
    """Wait. Raises GraphDrained if the run is drained meanwhile."""
    ends, runtime = time.monotonic() + seconds, current_runtime()
    while not runtime.drain_requested:
        left = max(ends - time.monotonic(), 0)
        await asyncio.sleep(min(left, DRAIN_POLL))
        if left <= DRAIN_POLL:
            return
    raise GraphDrained(runtime.drain_reason or "")


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


def _are_short(chunks: Sequence[BaseMessage]) -> bool:
    """Return whether joining these chunks takes about as long as handing them to a thread, or less."""
    size = 0
    for chunk in chunks:
        if not isinstance(chunk, AIMessageChunk) or chunk.additional_kwargs or not isinstance(chunk.content, str):
            return False
        size += CHUNK_CHARS + len(chunk.content)
        size += sum(CHUNK_CHARS + len(part["args"] or "") for part in chunk.tool_call_chunks)
        if size > LARGE:
            return False
    return True
