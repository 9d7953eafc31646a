"""Stream speech to people while the model writes it.

`SpeechStream` finds it in the chunks of a reply: prose, and texts inside arguments, are said as they come; what may
turn out to be a decision or a thought is held back until the reply is read. `Voice` sends it, as events on `custom` and
as chunks of the stored messages on `messages`. A message streams under the id that it has in state, so that clients
which read both show it once.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol
from uuid import uuid4

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    BaseMessageChunk,
    ToolMessageChunk,
)
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import set_config_context, var_child_runnable_config
from langgraph.graph.message import push_message
from langgraph.runtime import Runtime
from pydantic_core import from_json

from donewhen.graph.events import ANSWER, emit, emit_note, keep_speech
from donewhen.graph.llm.printed import TEXT_ARGUMENTS
from donewhen.state.channels import SPEECH_PREFIX
from donewhen.state.pattern import pattern
from donewhen.state.private_langgraph import StreamMessagesHandler, StreamMessagesHandlerV2, graph_namespace
from donewhen.state.settings import Settings
from donewhen.state.values import clean_text

OWN_MESSAGES = ("", "submit_plan.speak")
"""Places whose text becomes a separate message: prose, and `speak` beside a plan."""

NOT_EMITTED = {"emit-messages": False, "emit-tool-calls": False}
"""The metadata with which AG-UI emits nothing."""


SPOKEN_ARGUMENTS = {**TEXT_ARGUMENTS, "submit_plan": "speak"}
"""Decisions that have a text for people, and the argument that holds it."""

# The beginning of an object, a list of values, a fence or a tag, which may be no speech. `[s1.2]`, `a < b` and `code`
# are prose; a single opening character at the very end may still become either.
_NO_PROSE = pattern(
    r"""\{|\[(?=\s*(?:["'“{\[\]/#\d-]|true|false|null|True|False|None|THINK|TOOL_CALLS|\w*\Z|[A-Za-z_][\w.]*\())
    |<(?=[/|｜\w]|\Z)|`(?=[`{\[]|\Z)|◁
    |(?P<call>(?:\b(?:commentary|analysis)\s)?\bto=\w|(?:\A|\n)[ ]*Action:|\n[ ]*A(?:c(?:t(?:i(?:o(?:n)?)?)?)?)?\Z)""",
    re.VERBOSE,
)
_BRACKETS = pattern(r"[\[\]{}]")
_DECISION_WORDS = pattern(
    r"action|tool|name|function|arg|input|param|step|speak|think|reason|thought|unused|_turn|channel|<[|｜]|[|｜]>|</s>|◁|\A\[[a-z_][\w.]*\(",
    re.IGNORECASE,
)
"""At least one of these is in every decision, and in every mark and tag of a thought."""
# A last line of at most two words may become the label of a decision, as in "Action:".
_LABEL = pattern(r"\n\W*\w*(?: \w*)?\W*\Z")
_LABEL_CHARS = 80
_BRACKET_CHARS = 2000
"""The longest open bracket, fence or tag; after that, the rest of the reply is held back."""

MOST_AT_ONCE = 20_000
"""A longer piece is held until the whole reply is read."""
LATE_TEXT_CHARS = 50_000
"""If the text for people begins after so many characters of arguments, they are parsed in larger pieces."""


class Listener(Protocol):
    """Hears a reply. `argument` is "" for prose, else its place, such as `ask_user.question`."""

    def say(self, text: str, argument: str = "") -> None:
        """Take a piece of speech."""

    def retract(self, argument: str = "") -> None:
        """Forget the speech of this reply, which is void."""

    def keep(self) -> None:
        """Keep the speech of this reply, which is complete, for those who come later."""

    def think(self, text: str) -> None:
        """Take a piece of the model's thinking."""


class SpeechStream:
    """Passes speech on piece by piece. A bracket, a fence or a tag is held until it is closed and known to be prose;
    from a possible decision on, everything is held until the whole reply is read.

    The pieces of prose join to exactly the speech given to `finish`, and those of an argument to its text. Speech that
    turns out to be none (a thought without its opening tag) is retracted and said again.

    `prints`: the model may print its calls, so a line of up to two words is held because it may be the label of one.
    For other models the first character decides what is held, and a word is said as soon as it arrives.
    """

    def __init__(self, listener: Listener | None = None, *, prints: bool = True) -> None:
        self.prints = prints
        self.names: Collection[str] = ()
        """The names of the tools, which some models write as tags."""
        self._listener = listener
        self._pieces: dict[str, list[str]] = {}
        """The pieces that were said, by argument; prose under ""."""
        self.restart()

    def restart(self) -> None:
        """Begin, or begin again: retract the speech of a reply that broke off and is asked for again."""
        for argument in [*self._pieces]:
            self._retract(argument)
        self._halves = _Halves()
        self._tail = ""
        """Text that arrived and was not said yet; unused while holding."""
        self._passed = 0
        """The number of characters of the tail that are known to be prose."""
        self._holding = False
        self._written: dict[Any, _TextArgument | None] = {}
        self._speaks = False
        """Whether one of the calls so far has a text for people."""

    def take(self, chunk: BaseMessage) -> int:
        """Take the next chunk of the reply, with its text, thinking and calls; return its length in characters."""
        text = chunk.text
        length = len(text)
        self.feed(text)
        if self._listener and (thought := _thinking_in(chunk)):
            self._listener.think(thought)
        for part in chunk.tool_call_chunks if isinstance(chunk, AIMessageChunk) else ():
            length += len(part["args"] or "")
            self.feed_call(part)
        return length

    def feed(self, text: str) -> None:
        """Take the next piece of the reply's text."""
        if self._holding or not (text := self._halves.join(text)):
            return
        if len(text) > MOST_AT_ONCE:  # no piece of a stream
            self._holding = True
            return
        self._tail += text
        free = self._tail[: self._prose()]
        shown = free if self._pieces.get("") else "\n" + free.lstrip()
        shown = _without_open_line(shown) if self.prints else shown.rstrip()
        shown = shown if self._pieces.get("") else shown.lstrip()
        if shown:
            end = self._tail.index(shown) + len(shown)
            self._tail, self._passed = self._tail[end:], max(0, self._passed - end)
            self._emit(shown)

    def _prose(self) -> int:
        """Return where the prose of the tail ends so far; what follows is held back."""
        while other := _NO_PROSE.search(self._tail, self._passed):
            end = other.end() if other["call"] else _end_of_bracket(self._tail, other.start())
            if other["call"]:
                self._holding = other.end() < len(self._tail)
            elif end is None:
                self._holding = len(self._tail) - other.start() > _BRACKET_CHARS
            elif _DECISION_WORDS.search(self._tail[other.start() : end]) or self._names_tool(other.start(), end):
                self._holding = True
            else:
                self._passed = end
                continue
            return other.start()
        self._passed = len(self._tail)
        return len(self._tail)

    def _names_tool(self, start: int, end: int) -> bool:
        """Return True for a tag that has the name of a tool."""
        return self._tail[start] == "<" and self._tail[start + 1 : end - 1].strip("/ ") in self.names

    def feed_call(self, chunk: Mapping[str, Any]) -> None:
        """Take the next piece of a tool call. The text of the first call that has one for people is said."""
        index, name = chunk.get("index"), chunk.get("name")
        if index not in self._written:
            first = name in SPOKEN_ARGUMENTS and not self._speaks
            self._written[index] = _TextArgument(str(name), SPOKEN_ARGUMENTS[str(name)]) if first else None
            self._speaks = self._speaks or first
        if (written := self._written[index]) and (piece := written.feed(chunk.get("args") or "")):
            self._emit(piece, written.argument)

    def finish(self, speech: str, name: str = "", arguments: Mapping[str, Any] | None = None) -> None:
        """Say the rest of the reply's speech, and of the text in its decision `name`, once the reply is read."""
        argument = f"{name}.{SPOKEN_ARGUMENTS[name]}" if name in SPOKEN_ARGUMENTS else ""
        self._complete(
            {"": speech, **({argument: str((arguments or {}).get(SPOKEN_ARGUMENTS[name]) or "")} if argument else {})}
        )

    def finish_with(self, text: str) -> None:
        """Say the rest of this text, which is all the speech of the reply, in prose or in an argument."""
        written = next((each for each, pieces in self._pieces.items() if text.startswith("".join(pieces).strip())), "")
        before = "".join(self._pieces.get(written, ()))
        self._complete({written: before + text[len(before.strip()) :]})

    def _complete(self, texts: Mapping[str, str]) -> None:
        for wrong in [
            each for each, pieces in self._pieces.items() if not texts.get(each, "").startswith("".join(pieces))
        ]:
            self._retract(wrong)
        for each, text in texts.items():
            self._emit(text[len("".join(self._pieces.get(each, ()))) :], each)
        if self._listener:
            self._listener.keep()

    def _emit(self, piece: str, argument: str = "") -> None:
        if piece:
            self._pieces.setdefault(argument, []).append(piece)
            if self._listener:
                self._listener.say(piece, argument)

    def _retract(self, argument: str) -> None:
        del self._pieces[argument]
        if self._listener:
            self._listener.retract(argument)


def _thinking_in(chunk: BaseMessage) -> str:
    """Return the thinking that a provider shows in a chunk, in whichever of the forms that LangChain reads."""
    if isinstance(chunk.content, str) and not chunk.additional_kwargs:
        return ""
    thoughts = list[str]()
    for block in chunk.content_blocks:
        value: Any = block["value"] if block["type"] == "non_standard" else block
        thoughts.append(str(value.get("reasoning") or value.get("thinking") or ""))
    return "".join(thoughts)


def _end_of_bracket(text: str, start: int) -> int | None:
    """Return where the bracket, fence or tag at `start` ends; None if it is still open."""
    opening = text[start]
    if opening == "◁":
        return start + 1
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


class _Halves:
    """Joins characters that arrive in halves, as from servers that cut in units of UTF-16."""

    def __init__(self) -> None:
        self._half = ""

    def join(self, piece: str) -> str:
        """Return the piece without half a character at its end, which waits for the next piece."""
        if piece.isascii() and not self._half:
            return piece
        piece, self._half = self._half + piece, ""
        if "\ud800" <= piece[-1:] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        return clean_text(piece)


class _TextArgument:
    """Reads one text argument while the JSON of the arguments is still arriving."""

    def __init__(self, name: str, key: str) -> None:
        self.argument = f"{name}.{key}"
        self._key = key
        self._json = ""
        self._halves = _Halves()
        self._read = self._emitted = 0

    def feed(self, piece: str) -> str:
        """Return what this adds to the text; "" if there is nothing new, or the arguments are no JSON so far."""
        self._json += self._halves.join(piece)
        # Each parse starts at the beginning, so the pieces grow with the length; faster if the text begins very late.
        if len(self._json) - self._read < self._read // (2048 if self._emitted or self._read < LATE_TEXT_CHARS else 8):
            return ""
        self._read = len(self._json)
        with suppress(ValueError):
            arguments = from_json(self._json, allow_partial="trailing-strings")
            if isinstance(arguments, dict) and isinstance(text := arguments.get(self._key), str):
                new, self._emitted = text[self._emitted :], len(text)
                return new
        return ""


class Voice:
    """Streams what the planner (`step` None), a step or the delivery says in one reply.

    `language`: that of notes for people. `task`: the tool call that stands for the step in the conversation and gets
    its `result`; "" if the result is the answer of the run. `answer`: all speech is the answer. `inside`: the speaker
    is in a subgraph. `ends`: False if an answer does not end the run, because it is about a plan that waits for a
    person.
    """

    def __init__(
        self,
        runtime: Runtime[Settings],
        step: str | None = None,
        *,
        language: str,
        task: str = "",
        answer: bool = False,
        inside: bool,
        ends: bool = True,
    ) -> None:
        self._runtime = runtime
        self._step = step
        self._language = language
        self._task = task
        self._answer = answer
        self._inside = inside
        self._ends = ends
        self._utterances: dict[str, _Utterance] = {}
        self._kept_ids: set[str | None] = set()

    def say(self, text: str, argument: str = "") -> None:
        """Stream a piece of prose, or of the text in an argument."""
        if (utterance := self._utterances.get(argument)) is None:
            task = self._task if argument in ("finish_step.result", "finish_task.result") else ""
            utterance = self._utterances[argument] = _Utterance(
                f"{'' if self._answer or argument not in OWN_MESSAGES else SPEECH_PREFIX}{uuid4().hex}", task
            )
        where = {"argument": argument} if argument else {}
        marked = {"answer": True} if self._answer or (argument == ANSWER and self._ends) else {}
        sent = emit(self._runtime, "speech", step=self._step, text=text, id=utterance.id, **where, **marked)["text"]
        piece = utterance.add(text)
        if piece := piece if sent == text else sent:
            shown: BaseMessageChunk = AIMessageChunk(content=piece, id=utterance.id)
            if utterance.task:
                shown = ToolMessageChunk(content=piece, tool_call_id=utterance.task, id=utterance.id)
            push_chunk(shown, inside=self._inside)

    def retract(self, argument: str = "") -> None:
        """Declare speech void; it may come again under another id."""
        if utterance := self._utterances.pop(argument, None):
            where = {"argument": argument} if argument else {}
            emit(self._runtime, "speech_restarted", step=self._step, id=utterance.id, **where)

    def keep(self) -> None:
        """Keep the messages that were streamed, once each."""
        for message in [] if self._answer else self.messages():
            if message.id not in self._kept_ids:
                self._kept_ids.add(message.id)
                keep_speech(self._runtime, self._step, str(message.id), f"{message.text.strip()}\n")

    def think(self, text: str) -> None:
        """Stream the model's thinking, as an event of its own and never as a message."""
        emit(self._runtime, "thinking", step=self._step, text=text)

    def note(self, note: str, **values: Any) -> None:
        """Tell people something about the request: a text of the section `note`."""
        emit_note(self._runtime, self._language, note, **values)

    def report_stall(self, seconds: float) -> None:
        """Emit how many seconds the model has been silent."""
        emit(self._runtime, "stalled", step=self._step, seconds=seconds)

    def message_id(self, *arguments: str) -> str | None:
        """Return the id of the message that was said in one of these arguments."""
        return next((self._utterances[each].id for each in arguments if each in self._utterances), None)

    def messages(self) -> list[AnyMessage]:
        """Return the separate messages that were streamed."""
        utterances = (self._utterances[argument] for argument in OWN_MESSAGES if argument in self._utterances)
        return [AIMessage(utterance.text, id=utterance.id) for utterance in utterances if utterance.text]


class _Utterance:
    """The part of a message that was streamed, without surrounding white space."""

    def __init__(self, id: str, task: str) -> None:
        self.id = id
        self.task = task
        self._pieces: list[str] = []
        self._space = ""

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def add(self, text: str) -> str:
        """Return what can be shown now; white space waits until text follows."""
        pending = self._space + text if self._pieces else text.lstrip()
        piece = pending.rstrip()
        self._space = pending[len(piece) :]
        if piece:
            self._pieces.append(piece)
        return piece


def push_rest(message: AIMessage, streamed: str, *, inside: bool) -> None:
    """Stream the rest of a message, including its calls; `streamed` is the part that was streamed already.
    If nothing was streamed (in another process), LangGraph streams the whole message when its node ends.
    """
    if message.id is None or not any(message.id in listener.seen for listener in _listeners()):
        return
    calls: Sequence[Any] = [
        {"type": "tool_call_chunk", "index": number, **{**call, "args": json.dumps(call["args"], ensure_ascii=False)}}
        for number, call in enumerate(message.tool_calls)
    ]
    rest = message.text[len(streamed.strip()) :]
    if rest or calls:
        push_chunk(AIMessageChunk(content=rest, id=message.id, tool_call_chunks=list(calls)), inside=inside)


def push_chunk(message: BaseMessageChunk, *, inside: bool) -> None:
    """Send a chunk to listeners of `messages`; with `inside`, as a chunk of the graph around this subgraph."""
    config, listeners = var_child_runnable_config.get(), _listeners()
    if not config or not listeners:
        return
    if inside:
        metadata = config.get("metadata") or {}
        here = str(metadata.get("langgraph_checkpoint_ns", ""))
        config = {**config, "metadata": {**metadata, "langgraph_checkpoint_ns": here.rpartition("|")[0]}}
    events = [each for each in listeners if isinstance(each, StreamMessagesHandlerV2)]
    for listener in events:
        _push_events(listener, config, message)
    if not events:
        with set_config_context(config) as context:
            context.run(push_message, message, state_key=None)


def _push_events(listener: StreamMessagesHandlerV2, config: RunnableConfig, message: BaseMessageChunk) -> None:
    """Send the chunk as events of content blocks, which `push_message` does not emit."""
    if not isinstance(message, AIMessageChunk) or not message.id or not message.text:
        return
    metadata = {**(config.get("metadata") or {}), "run_id": message.id}
    events: list[dict[str, Any]] = []
    if message.id not in listener.seen:
        listener.seen.add(message.id)
        events.append({"event": "message-start", "role": "ai", "id": message.id})
        events.append({"event": "content-block-start", "index": 0, "content": {"type": "text", "text": ""}})
    events.append({"event": "content-block-delta", "index": 0, "delta": {"type": "text-delta", "text": message.text}})
    for event in events:
        listener.stream((graph_namespace(metadata), "messages", (event, metadata)))


def without_listeners(config: RunnableConfig, *handlers: BaseCallbackHandler) -> RunnableConfig:
    """Return a configuration for work outside the conversation, such as models that a tool asks.

    Listeners of the run do not receive it; `handlers` do.
    """
    callbacks: Any = config.get("callbacks") or []
    if isinstance(callbacks, BaseCallbackManager):
        callbacks = callbacks.copy()
        callbacks.handlers = _without_stream_handlers(callbacks.handlers)
        callbacks.inheritable_handlers = _without_stream_handlers(callbacks.inheritable_handlers)
        callbacks.add_metadata(NOT_EMITTED)
        for handler in handlers:
            callbacks.add_handler(handler)
    else:
        callbacks = [*_without_stream_handlers(callbacks), *handlers]
    return {**config, "callbacks": callbacks, "metadata": {**(config.get("metadata") or {}), **NOT_EMITTED}}


def _without_stream_handlers(handlers: Sequence[BaseCallbackHandler]) -> list[BaseCallbackHandler]:
    return [handler for handler in handlers if not isinstance(handler, StreamMessagesHandler)]


def _listeners() -> list[StreamMessagesHandler]:
    config = var_child_runnable_config.get() or {}
    callbacks = config.get("callbacks")
    handlers = callbacks if isinstance(callbacks, list) else getattr(callbacks, "handlers", ())
    return [handler for handler in handlers if isinstance(handler, StreamMessagesHandler)]
