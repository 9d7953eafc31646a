"""What is to be done on a thread by whoever has time for it, written down beside the thread: `Engine.submit`.

The row of the thread is the queue: what waits in it for a worker is found by an index, and the thread's own lock says
who does it. A request may be delivered any number of times; it is carried out once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from langchain_core.messages import (
    AnyMessage,
    HumanMessage,
    convert_to_messages,
    messages_from_dict,
    messages_to_dict,
)

from donewhen.agent.storage import Storage
from donewhen.agent.storage.thread_store import ThreadStore
from donewhen.agent.work.threads import note_thread, now_text, read_row
from donewhen.graph.receive import GIVEN, goal_problem
from donewhen.state.errors import GoalError
from donewhen.state.graph_state import Json
from donewhen.state.settings import Settings

GoalInput = str | Sequence[Any]
"""A text, content blocks (`{"type": "text", "text": …}`), or messages of which the last one is the request."""
OPEN = ("queued", "running", "waiting")
QUEUE = "agents"
"""Of agents that say nothing else; the command has its own."""
TRIES = 5
"""Times that a run is taken up after it was cut off or an error, before it is left to a person."""


def requested(goal: GoalInput) -> list[AnyMessage]:
    """The messages that start a run; the last one is the user's. Raises GoalError for what nobody could work on."""
    if not isinstance(goal, Sequence):
        raise GoalError(f"the goal is no text, no content blocks and no messages, but {type(goal).__name__}")
    if isinstance(goal, str):
        messages: list[Any] = [HumanMessage(goal)]
    elif goal and all(isinstance(part, dict) and "type" in part and "role" not in part for part in goal):
        messages = [HumanMessage(list(goal))]
    else:
        try:
            messages = list(convert_to_messages(goal))
        except (ValueError, NotImplementedError, TypeError, KeyError) as error:
            raise GoalError(f"the goal is no text, no content blocks and no messages: {error}") from None
    if not messages or not isinstance(messages[-1], HumanMessage):
        raise GoalError("the last message is to be the user's")
    if problem := goal_problem(messages[-1].text.strip()):
        raise GoalError(problem)
    return messages


@dataclass(frozen=True)
class Start:
    """A new request, as it is written down."""

    messages: Sequence[AnyMessage]
    settings: Settings
    metadata: Json | None = None
    owner: str = ""
    plan: Json | None = None
    """`{plan, approved}`: work on this plan, without planning; `approved` is the revision that a person approved."""

    def __post_init__(self) -> None:
        """The request has an id of its own, and is marked where it comes with a plan."""
        *before, last = self.messages
        extra = {**last.additional_kwargs, GIVEN: True} if self.plan else last.additional_kwargs
        marked = last.model_copy(update={"id": last.id or uuid4().hex, "additional_kwargs": extra})
        object.__setattr__(self, "messages", [*before, marked])

    def to_json(self) -> Json:
        """For the row."""
        return {"messages": messages_to_dict(self.messages), "plan": self.plan}


def messages_of(request: Mapping[str, Any]) -> list[AnyMessage]:
    """The messages of a request that was written down."""
    return [*messages_from_dict(request["messages"])]  # type: ignore[list-item]


def not_begun(row: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether the request that a thread's row has is not in the state of its run: who was to begin it has died."""
    if "messages" not in (request := row.get("request") or {}):
        return False
    return messages_of(request)[-1].id not in {message.id for message in values.get("messages") or ()}


@dataclass(frozen=True)
class Engine:
    """Hands work to the workers of one queue on one storage."""

    storage: Storage
    queue: str

    async def submit(
        self, thread_id: str, work: Start | Json, *, at: datetime | None = None, once: bool = False
    ) -> bool:
        """Write down what is to be done on a thread, a `Start` or answers by id, from `at` on; False: `once` there was.

        Raises ThreadBusy where somebody works on the thread.
        """
        async with self.storage.session(thread_id) as (_, store):
            if once and await read_row(store, thread_id) is not None:
                return False
            await self.note(store, thread_id, work, at)
            return True

    async def note(self, store: ThreadStore, thread_id: str, work: Start | Json, at: datetime | None = None) -> None:
        """As `submit`, in a session on the thread."""
        due = at.astimezone(UTC).isoformat(timespec="milliseconds") if at else now_text()
        change: Json = {"request": {"answers": work}}
        if isinstance(work, Start):
            known = {"settings": work.settings, "metadata": work.metadata, "owner": work.owner or None}
            change = {"goal": work.messages[-1].text, "answered": {}, "request": work.to_json(), **known}
        await note_thread(store, thread_id, status="queued", queue=self.queue, due=due, tries=0, **change)
