"""Stream a model's reply: read its chunks, pass on the text for people, and join them into one message.

Without callbacks, the model's own stream is read in place of LangChain's `astream`, which walks all messages of the
conversation three times per request for the callbacks alone (docs/decisions/0063). Prose, and texts inside arguments,
are said as they come; what may turn out to be a decision or a thought is held back until the reply is read. Joining
completes nothing that the model did not write.
"""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol
from uuid import uuid4

from langchain_core.callbacks import AsyncCallbackManager
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    InvalidToolCall,
    ToolCall,
    message_chunk_to_message,
)
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.messages.tool import invalid_tool_call, tool_call
from langchain_core.runnables import RunnableConfig, ensure_config
from pydantic_core import from_json

from donewhen.graph.llm.printed import TEXT_ARGUMENTS
from donewhen.state.pattern import pattern

_TRANSLATED_BLOCKS = ("input_audio", "file", "image", "audio")
"""Content blocks whose older forms LangChain translates."""
SPOKEN_ARGUMENTS = {**TEXT_ARGUMENTS, "submit_plan": "speak"}
"""Decisions that have a text for people, and the argument that holds it."""

# The beginning of an object, a list of values, a fence or a tag, which may be no speech. `[s1.2]`, `a < b` and `code`
# are prose; a single opening character at the very end may still become either.
_NO_PROSE = pattern(
    r"""\{|\[(?=\s*(?:["'“{\[\]/#\d-]|true|false|null|True|False|None|THINK|\Z))|<(?=[/|\w]|\Z)|`(?=[`{\[]|\Z)"""
)
_BRACKETS = pattern(r"[\[\]{}]")
_DECISION_WORDS = pattern(r"action|tool|name|function|arg|input|param|step|speak|think|reason|thought", re.IGNORECASE)
"""At least one of these words is in every decision and in every tag of a thought."""
# A last line of at most two words may become the label of a decision, as in "Action:".
_LABEL = pattern(r"\n\W*\w*(?: \w*)?\W*\Z")
_LABEL_CHARS = 80
_BRACKET_CHARS = 2000
"""The longest open bracket, fence or tag; after that, the rest of the reply is held back."""

LATE_TEXT_CHARS = 50_000
"""If the text for people begins after so many characters of arguments, they are parsed in larger pieces."""


def stream_reply(
    model: Any, messages: Sequence[BaseMessage], config: RunnableConfig, options: Mapping[str, Any]
) -> AsyncIterator[BaseMessage]:
    """Return the chunks of a reply, all with one id, as `model.astream` yields them."""
    config = ensure_config(config)
    if isinstance(model, BaseChatModel) and type(model).astream is BaseChatModel.astream:
        # Would LangChain pass messages and chunks on unchanged, and does nothing listen to model calls? Listeners are
        # a callback of the run or the model, or a global tracer.
        listed = (block for message in messages if isinstance(message.content, list) for block in message.content)
        translated = any(isinstance(block, dict) and block.get("type") in _TRANSLATED_BLOCKS for block in listed)
        streams = model._should_stream(async_api=True, **{**options, "stream": True})
        if model.output_version != "v1" and not translated and streams:
            listeners = AsyncCallbackManager.configure(config.get("callbacks"), model.callbacks, model.verbose)
            if not listeners.handlers:
                return _stream_directly(model, messages, options)
    chunks: AsyncIterator[BaseMessage] = model.astream(messages, config=config, **options)
    return chunks


async def _stream_directly(
    model: BaseChatModel, messages: Sequence[BaseMessage], options: Mapping[str, Any]
) -> AsyncIterator[BaseMessage]:
    if model.rate_limiter:
        await model.rate_limiter.aacquire(blocking=True)
    id = f"lc_run--{uuid4()}"
    async for chunk in model._astream(list(messages), **options):
        message = chunk.message
        message.id = message.id or id
        message.response_metadata = {**(chunk.generation_info or {}), **message.response_metadata}
        yield message


def thinking_in(chunk: BaseMessage) -> str:
    """Return the thinking that a provider shows in a chunk, in whichever of the forms that LangChain reads."""
    if isinstance(chunk.content, str) and not chunk.additional_kwargs:
        return ""
    said = list[str]()
    for block in chunk.content_blocks:
        value: Any = block["value"] if block["type"] == "non_standard" else block
        said.append(str(value.get("reasoning") or value.get("thinking") or ""))
    return "".join(said)


def join_chunks(chunks: Sequence[BaseMessage]) -> AIMessage:
    """Join chunks into the whole message. Calls get unique ids; arguments that are no JSON object become invalid calls.

    LangChain parses truncated arguments as if they were complete, which would turn half a call into a wrong one.
    All chunks are added at once, since adding them one by one is quadratic.
    """
    first = chunks[0]
    if not isinstance(first, AIMessageChunk):
        return _with_call_ids(first if isinstance(first, AIMessage) else AIMessage(first.text))
    others = [chunk for chunk in chunks[1:] if isinstance(chunk, AIMessageChunk)]
    whole = add_ai_message_chunks(first, *others) if others else first
    message = message_chunk_to_message(whole)
    assert isinstance(message, AIMessage)
    if whole.tool_call_chunks:
        message.tool_calls, message.invalid_tool_calls = _parse_calls(whole)
    return _with_call_ids(message)


def _parse_calls(whole: AIMessageChunk) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    calls: list[ToolCall] = []
    broken: list[InvalidToolCall] = []
    for chunk in whole.tool_call_chunks:
        name, raw, id = chunk["name"] or "", chunk["args"] or "", chunk["id"]
        try:
            arguments = json.loads(raw, strict=False) if raw.strip() else {}
        except (ValueError, RecursionError):
            arguments = None
        if isinstance(arguments, dict) and name:
            calls.append(tool_call(name=name, args=arguments, id=id))
        else:
            broken.append(invalid_tool_call(name=name, args=raw, id=id, error="not a JSON object"))
    return calls, broken


def _with_call_ids(message: AIMessage) -> AIMessage:
    """Give every call a unique id, which its result refers to; some servers send none, or the same for all."""
    given = [call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls)]
    ids: dict[str, None] = {}  # in order
    for id in given:
        number, chosen = 1, id or f"call_{message.id or 'reply'}"
        while chosen in ids:
            number, chosen = number + 1, f"{id or message.id or 'call'}_{number}"
        ids[chosen] = None
    if [*ids] == given:
        return message
    unique = iter(ids)
    calls: list[ToolCall] = [{**call, "id": next(unique)} for call in message.tool_calls]
    broken: list[InvalidToolCall] = [{**call, "id": next(unique)} for call in message.invalid_tool_calls]
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": broken})


# Speech -----------------------------------------------------------------------------------------------------------


class Say(Protocol):
    """Receives a piece of speech; `argument` is "" for prose, else its place, such as `ask_user.question`."""

    def __call__(self, text: str, argument: str = "") -> None: ...


class Retract(Protocol):
    """Called when the speech of this reply, as prose or in an argument, is void."""

    def __call__(self, argument: str = "") -> None: ...


class SpeechStream:
    """Passes speech on piece by piece. A bracket, a fence or a tag is held until it is closed and known to be prose;
    from a possible decision on, everything is held until the whole reply is read.

    The pieces of prose join to exactly the speech given to `finish`, and those of an argument to its text. Speech that
    turns out to be none (a thought without its opening tag) is retracted and said again.

    `prints`: the model may print its calls, so a line of up to two words is held because it may be the label of one.
    For other models the first character decides what is held, and a word is said as soon as it arrives.
    """

    def __init__(self, say: Say, retract: Retract | None = None, *, prints: bool = True) -> None:
        self.prints = prints
        self._say = say
        self._retract = retract or (lambda argument="": None)
        self._said: dict[str, list[str]] = {}
        """The pieces that were said, by argument; prose under ""."""
        self._clear()

    def _clear(self) -> None:
        self._said.clear()
        self._tail = ""
        """Text that arrived and was not said yet; unused while holding."""
        self._passed = 0
        """The number of characters of the tail that are known to be prose."""
        self._holding = False
        self._written: dict[Any, _TextArgument | None] = {}

    def feed(self, text: str) -> None:
        """Take the next piece of the reply's text."""
        if self._holding or not text:
            return
        self._tail += text
        free = self._tail[: self._prose()]
        shown = free if self._said.get("") else "\n" + free.lstrip()
        shown = _without_open_line(shown) if self.prints else shown.rstrip()
        shown = shown if self._said.get("") else shown.lstrip()
        if shown:
            end = self._tail.index(shown) + len(shown)
            self._tail, self._passed = self._tail[end:], max(0, self._passed - end)
            self._emit(shown)

    def _prose(self) -> int:
        """Return where the prose of the tail ends so far; what follows is held back."""
        while other := _NO_PROSE.search(self._tail, self._passed):
            end = _end_of_bracket(self._tail, other.start())
            if end is None:
                self._holding = len(self._tail) - other.start() > _BRACKET_CHARS
            elif _DECISION_WORDS.search(self._tail, other.start(), end):
                self._holding = True
            else:
                self._passed = end
                continue
            return other.start()
        self._passed = len(self._tail)
        return len(self._tail)

    def feed_call(self, chunk: Mapping[str, Any]) -> None:
        """Take the next piece of a tool call. The text of the first call that has one for people is said."""
        index, name = chunk.get("index"), chunk.get("name")
        if index not in self._written:
            first = not any(self._written.values())
            self._written[index] = (
                _TextArgument(name, SPOKEN_ARGUMENTS[name]) if first and name in SPOKEN_ARGUMENTS else None
            )
        if (written := self._written[index]) and (piece := written.feed(chunk.get("args") or "")):
            self._emit(piece, written.argument)

    def restart(self) -> None:
        """Retract the speech of a reply that broke off and is asked for again."""
        for argument in self._said:
            self._retract(argument)
        self._clear()

    def finish(self, speech: str, name: str = "", arguments: Mapping[str, Any] | None = None) -> None:
        """Say the rest of the reply's speech, and of the text in its decision `name`, once the reply is read."""
        argument = f"{name}.{SPOKEN_ARGUMENTS[name]}" if name in SPOKEN_ARGUMENTS else ""
        self._complete(
            {"": speech, **({argument: str((arguments or {}).get(SPOKEN_ARGUMENTS[name]) or "")} if argument else {})}
        )

    def finish_with(self, text: str) -> None:
        """Say the rest of this text, which is all that the reply says, in prose or in an argument."""
        written = next((each for each, said in self._said.items() if text.startswith("".join(said).strip())), "")
        before = "".join(self._said.get(written, ()))
        self._complete({written: before + text[len(before.strip()) :]})

    def _complete(self, texts: Mapping[str, str]) -> None:
        for wrong in [each for each, said in self._said.items() if not texts.get(each, "").startswith("".join(said))]:
            self._retract(wrong)
            del self._said[wrong]
        for each, text in texts.items():
            self._emit(text[len("".join(self._said.get(each, ()))) :], each)

    def _emit(self, piece: str, argument: str = "") -> None:
        if piece:
            self._said.setdefault(argument, []).append(piece)
            self._say(piece, argument)


def _end_of_bracket(text: str, start: int) -> int | None:
    """Return where the bracket, fence or tag at `start` ends; None if it is still open."""
    opening = text[start]
    if opening == "<":
        end = text.find(">", start)
        return end + 1 if end >= 0 else None
    if opening == "`":
        fence = "```" if text.startswith("```", start) else "`"
        undecided = len(text) - start < 3
        end = -1 if undecided else text.find(fence, start + len(fence))
        return end + len(fence) if end >= 0 else None
    depth = 0
    for bracket in _BRACKETS.finditer(text, start, start + 2 * _BRACKET_CHARS):
        depth += 1 if bracket[0] in "[{" else -1
        if depth == 0:
            return bracket.end()
    return None


def _without_open_line(text: str) -> str:
    """Return the text without white space at its end, and without a last line that may be a label."""
    label = _LABEL.search(text, max(0, len(text) - _LABEL_CHARS))
    return (text[: label.start()] if label else text).rstrip()


class _TextArgument:
    """Reads one text argument while the JSON of the arguments is still arriving."""

    def __init__(self, name: str, key: str) -> None:
        self.argument = f"{name}.{key}"
        self._key = key
        self._json = ""
        self._read = self._said = 0

    def feed(self, piece: str) -> str:
        """Return what this adds to the text; "" if there is nothing new, or the arguments are no JSON so far."""
        self._json += piece
        # Each parse starts at the beginning, so the pieces grow with the length; faster if the text begins very late.
        if len(self._json) - self._read < self._read // (2048 if self._said or self._read < LATE_TEXT_CHARS else 8):
            return ""
        self._read = len(self._json)
        with suppress(ValueError):
            arguments = from_json(self._json, allow_partial="trailing-strings")
            if isinstance(arguments, dict) and isinstance(text := arguments.get(self._key), str):
                new, self._said = text[self._said :], len(text)
                return new
        return ""
