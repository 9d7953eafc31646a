"""Threads as a page follows them: what an agent tells of each, kept from the start of its request, and shown in words.

A page that opens a thread, or opens it again, is told all of it from the first event, and then what happens.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from donewhen.agent.agent import Agent
from donewhen.agent.stream import RunStream
from donewhen.state.errors import DoneWhenError, ThreadBusy, UnknownThread
from donewhen.state.graph_state import Json
from donewhen.state.people.payloads import (
    options,
    question_of,
    question_text,
    shown_arguments,
    shown_plan,
    text_changes,
)
from donewhen.state.records import Pause

CALL_CHARS = 300
"""Of what a call returned; the page asks for the whole."""


@dataclass
class Conversation:
    """One thread: the events of its current request, and the stream that brings more."""

    events: list[Json] = field(default_factory=list)
    stream: RunStream | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, event: Mapping[str, Any]) -> None:
        """Add an event and wake whoever follows."""
        self.events.append(dict(event))
        self.changed.set()
        self.changed = asyncio.Event()


class Conversations:
    """All threads of an agent, for pages."""

    def __init__(self, agent: Agent, metadata: Json) -> None:
        self._agent, self._metadata = agent, metadata
        self._open: dict[str, Conversation] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def threads(self) -> list[Json]:
        """All threads, the latest first; one at work here says so."""
        rows = [info.to_dict() for info in await self._agent.threads()]
        return [{**row, "at_work": self._at_work(row["thread_id"])} for row in rows]

    async def start(self, goal: str, thread_id: str | None) -> str:
        """A request, on a new thread or as the next one on this. Raises what keeps it from starting."""
        before = await self._picture(thread_id) if thread_id else None
        stream = self._agent.stream(goal, thread_id=thread_id, metadata=self._metadata, on_leave="continue")
        said = [{**before, "run": None, "journal": []}] if before else []
        await self._begin(stream, Conversation(said))
        return stream.thread_id

    async def answer(self, thread_id: str, id: str, value: Any) -> None:
        """Answer the question `id`. Raises StaleAnswer for one that does not wait."""
        conversation = await self._conversation(thread_id)
        stream = self._agent.stream_resume(thread_id, {id: value}, on_leave="continue")
        await self._begin(stream, conversation, _said(conversation.events, id, value))

    async def go_on(self, thread_id: str, steer: str) -> None:
        """Go on with a request that was stopped or cut off; otherwise than before, where words say how."""
        conversation = await self._conversation(thread_id)
        said = {"type": "answered", "question": "", "text": steer} if steer else None
        await self._begin(self._agent.stream_resume(thread_id, steer=steer, on_leave="continue"), conversation, said)

    def stop(self, thread_id: str) -> None:
        """Ask the thread to stop at its next clean point."""
        if (conversation := self._open.get(thread_id)) and conversation.stream:
            conversation.stream.drain()

    async def follow(self, thread_id: str) -> AsyncIterator[tuple[int, Json]]:
        """All events of the thread's request and those to come, numbered; another request begins with 1 again."""
        conversation, number = await self._conversation(thread_id), 0
        while True:
            if self._open[thread_id] is not conversation:
                conversation, number = self._open[thread_id], 0
            if number == len(conversation.events):
                await conversation.changed.wait()
                continue
            number += 1
            yield number, conversation.events[number - 1]

    async def observation(self, thread_id: str, id: str) -> Json:
        """What a call returned, whole. Raises UnknownThread where there is no such observation."""
        state = await self._agent.graph.aget_state(_config(thread_id), subgraphs=True)
        below = [getattr(task.state, "values", None) or {} for task in state.tasks]
        for values in (state.values, *below):
            for entry in values.get("journal") or ():
                if entry.get("id") == id:
                    return {key: entry.get(key) for key in ("id", "step", "tool", "arguments", "ok", "text", "at")}
        raise UnknownThread(f"there is no observation {id!r} on thread {thread_id!r}")

    async def aclose(self) -> None:
        """Stop following; the agent, closed next, lets its runs stop at a clean point."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _at_work(self, thread_id: str) -> bool:
        return (conversation := self._open.get(thread_id)) is not None and conversation.stream is not None

    async def _conversation(self, thread_id: str) -> Conversation:
        """The thread as it is followed here; one that is not yet begins with a picture of it as it stands."""
        if thread_id not in self._open:
            picture = await self._picture(thread_id)
            self._open.setdefault(thread_id, Conversation([picture]))
        return self._open[thread_id]

    async def _begin(self, stream: RunStream, conversation: Conversation, said: Json | None = None) -> None:
        """Start the stream and go on with it; what keeps it from starting is raised and changes nothing.

        `said` is told where it starts: the words of a person that it is about.
        """
        if self._at_work(stream.thread_id):
            raise ThreadBusy(f"thread {stream.thread_id} is at work")
        first = await anext(stream)
        old = self._open.get(stream.thread_id)
        conversation.stream = stream
        self._open[stream.thread_id] = conversation
        if said:
            conversation.tell(said)
        conversation.tell(told(first))
        if old is not None and old is not conversation:
            old.changed.set()
        task = asyncio.create_task(self._carry(stream, conversation), name=f"page {stream.thread_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, stream: RunStream, conversation: Conversation) -> None:
        try:
            with suppress(DoneWhenError):  # told by an event already
                async for event in stream:
                    if event["type"] in ("waiting", "outcome", "error"):
                        conversation.stream = None
                    conversation.tell(told(event))
        finally:
            conversation.stream = None

    async def _picture(self, thread_id: str) -> Json:
        """A thread as it stands, as one event: the conversation, the run, and what it observed."""
        run = await self._agent.get(thread_id)
        values = (await self._agent.graph.aget_state(_config(thread_id))).values
        shown = run.to_dict()
        return {
            "type": "picture",
            "thread_id": thread_id,
            "messages": [_message(message) for message in values.get("messages") or () if _spoken(message)],
            "run": {**shown, "pending": [asked(pause) for pause in run.pending]},
            "journal": [observed(entry) for entry in values.get("journal") or () if entry.get("tool")],
        }


def _config(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}


def _spoken(message: BaseMessage) -> bool:
    """Whether it is part of the conversation: what people say, and answers; not what stands for a pause or a step."""
    said = isinstance(message, HumanMessage) or (isinstance(message, AIMessage) and not message.tool_calls)
    return said and bool(str(message.text).strip())


def _message(message: BaseMessage) -> Json:
    return {"by": "user" if isinstance(message, HumanMessage) else "agent", "text": str(message.text)}


def _said(events: list[Json], id: str, value: Any) -> Json | None:
    """What a person said at a pause, in their words; None for a button without words."""
    waiting = next((event for event in reversed(events) if event["type"] in ("waiting", "picture")), {})
    pauses = waiting.get("pending") or (waiting.get("run") or {}).get("pending") or ()
    question = next((str(pause["question"]) for pause in pauses if pause["id"] == id and pause["kind"] != "plan"), "")
    text = value if isinstance(value, str) else value.get("message") if isinstance(value, dict) else None
    return {"type": "answered", "question": question, "text": text} if text else None


def told(event: Mapping[str, Any]) -> Json:
    """An event with what a page shows of it: a call's arguments in words, a pause as it is asked."""
    if event["type"] == "tool_started":
        return {**event, **_arguments(event)}
    if event["type"] == "waiting":
        return {**event, "pending": [asked(pause) for pause in event.get("pending") or ()]}
    return dict(event)


def observed(entry: Mapping[str, Any]) -> Json:
    """An observation as a page draws it."""
    kept = {key: entry.get(key) for key in ("id", "step", "tool", "ok", "seconds")}
    return {**kept, **_arguments(entry), "text": str(entry.get("text") or "")[:CALL_CHARS]}


def asked(pause: Pause) -> Json:
    """A pause with its words: the question, the options, the plan as text, a call's arguments."""
    more: Json = {"question": question_of(pause), "options": options(pause)}
    if pause["kind"] == "plan":
        more["text"] = pause.get("draft") or shown_plan(pause)
    if pause.get("suggested"):
        more["hint"] = question_text(pause).rpartition("\n\n")[2]  # what “extend” alone means
    if pause["kind"] in ("tool", "effect"):
        more |= _arguments(pause)
    return {**pause, **more}


def _arguments(call: Mapping[str, Any]) -> Json:
    return {"shown": shown_arguments(call), "changes": [asdict(change) for change in text_changes(call)]}
