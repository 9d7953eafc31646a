"""Stream speech to people while the model writes it: events on `custom`, chunks of the stored messages on `messages`.

A message streams under the id that it has in state, so that clients which read both show it once.
"""

import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessageChunk, ToolMessageChunk
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import set_config_context, var_child_runnable_config
from langgraph.graph.message import push_message
from langgraph.runtime import Runtime

from donewhen.graph.events import ANSWER, emit
from donewhen.state.private_langgraph import StreamMessagesHandler, StreamMessagesHandlerV2, graph_namespace
from donewhen.state.run import SAID
from donewhen.state.settings import Settings

OWN_MESSAGES = ("", "submit_plan.speak")
"""Places whose text becomes a separate message: prose, and `speak` beside a plan."""

NOT_EMITTED = {"emit-messages": False, "emit-tool-calls": False}
"""The metadata with which AG-UI emits nothing."""


class Voice:
    """Streams what the planner (`step` None), a step or the delivery says in one reply.

    `task`: the tool call that stands for the step in the conversation and gets its `result`; "" if the result is the
    answer of the run. `answer`: all speech is the answer. `inside`: the speaker is in a subgraph.
    """

    def __init__(
        self, runtime: Runtime[Settings], step: str | None = None, *, task: str = "", answer: bool = False, inside: bool
    ) -> None:
        self._runtime = runtime
        self._step = step
        self._task = task
        self._answer = answer
        self._inside = inside
        self._said: dict[str, _Utterance] = {}

    def say(self, text: str, argument: str = "") -> None:
        """Stream a piece of prose, or of the text in an argument."""
        if (saying := self._said.get(argument)) is None:
            task = self._task if argument in ("finish_step.result", "finish_task.result") else ""
            saying = self._said[argument] = _Utterance(
                f"{'' if self._answer or argument not in OWN_MESSAGES else SAID}{uuid4().hex}", task
            )
        where = {"argument": argument} if argument else {}
        marked = {"answer": True} if self._answer or argument == ANSWER else {}
        emit(self._runtime, "speech", step=self._step, text=text, id=saying.id, **where, **marked)
        if piece := saying.add(text):
            shown: BaseMessageChunk = AIMessageChunk(content=piece, id=saying.id)
            if saying.task:
                shown = ToolMessageChunk(content=piece, tool_call_id=saying.task, id=saying.id)
            push_chunk(shown, inside=self._inside)

    def retract(self, argument: str = "") -> None:
        """Declare speech void; it may come again under another id."""
        if saying := self._said.pop(argument, None):
            where = {"argument": argument} if argument else {}
            emit(self._runtime, "speech_restarted", step=self._step, id=saying.id, **where)

    def think(self, text: str) -> None:
        """Stream the model's thinking: an event of its own, and never a message."""
        emit(self._runtime, "thinking", step=self._step, text=text)

    def report_stall(self, seconds: float) -> None:
        """Emit how many seconds the model has been silent."""
        emit(self._runtime, "stalled", step=self._step, seconds=seconds)

    def message_id(self, *arguments: str) -> str | None:
        """Return the id of the message that was said in one of these arguments."""
        return next((self._said[each].id for each in arguments if each in self._said), None)

    def messages(self) -> list[AnyMessage]:
        """Return the separate messages that were streamed."""
        said = (self._said[argument] for argument in OWN_MESSAGES if argument in self._said)
        return [AIMessage(saying.text, id=saying.id) for saying in said if saying.text]


class _Utterance:
    """The part of a message that was streamed, without surrounding white space."""

    def __init__(self, id: str, task: str) -> None:
        self.id = id
        self.task = task
        self._pieces: list[str] = []
        self._held = ""

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def add(self, text: str) -> str:
        """Return what can be shown now; white space waits until text follows."""
        pending = self._held + text if self._pieces else text.lstrip()
        piece = pending.rstrip()
        self._held = pending[len(piece) :]
        if piece:
            self._pieces.append(piece)
        return piece


def push_rest(message: AIMessage, said: str, *, inside: bool) -> None:
    """Stream the rest of a message, including its calls, after `said` of it was streamed.

    If nothing was streamed (in another process), LangGraph streams the whole message when its node ends.
    """
    if message.id is None or not any(message.id in listener.seen for listener in _listeners()):
        return
    calls: Sequence[Any] = [
        {"type": "tool_call_chunk", "index": number, **{**call, "args": json.dumps(call["args"], ensure_ascii=False)}}
        for number, call in enumerate(message.tool_calls)
    ]
    rest = message.text[len(said.strip()) :]
    if rest or calls:
        push_chunk(AIMessageChunk(content=rest, id=message.id, tool_call_chunks=list(calls)), inside=inside)


def push_chunk(message: BaseMessageChunk, *, inside: bool) -> None:
    """Send a chunk to listeners of `messages`; with `inside`, as a chunk of the graph around this subgraph."""
    config = var_child_runnable_config.get()
    if not config or not _listeners():
        return
    if inside:
        metadata = config.get("metadata") or {}
        here = str(metadata.get("langgraph_checkpoint_ns", ""))
        config = {**config, "metadata": {**metadata, "langgraph_checkpoint_ns": here.rpartition("|")[0]}}
    events = [each for each in _listeners() if isinstance(each, StreamMessagesHandlerV2)]
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
