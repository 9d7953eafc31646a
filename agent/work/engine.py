"""What is to be done on a thread by whoever has time for it, written down beside the thread: `queue_up`.

The row of the thread is the queue: what waits in it for a worker is found by an index, and the thread's own lock says
who does it. A request may be delivered any number of times; it is carried out once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from langchain_core.messages import AnyMessage, HumanMessage, convert_to_messages, messages_from_dict, messages_to_dict
from langgraph.types import StateSnapshot

from donewhen.agent.run import Run, ThreadId, known, run_of
from donewhen.agent.storage.thread_store import ThreadStore
from donewhen.agent.work.threads import note_thread, now_text, to_do
from donewhen.graph.models.output import Form
from donewhen.graph.receive import GIVEN, goal_problem
from donewhen.graph.tools.effects import label
from donewhen.state.errors import GoalError, StaleAnswer
from donewhen.state.graph_state import Json
from donewhen.state.ledger import allowed
from donewhen.state.settings import Settings

GoalInput = str | Sequence[Any]
"""A text, content blocks (`{"type": "text", "text": …}`), or messages of which the last one is the request."""
OPEN = ("queued", "running", "waiting")
QUEUE = "agents"
"""Of agents that say nothing else; the command has its own."""


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


def check_begun(thread_id: str, row: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Raise StaleAnswer where another request is to begin: nothing of the one before is asked any more."""
    if not_begun(row, values):
        stands = "it is queued" if row.get("status") == "queued" else "its request has not begun"
        raise StaleAnswer(f"thread {thread_id} waits for no answer: {stands}")


def run_at(
    thread_id: str,
    row: Json,
    snapshot: StateSnapshot,
    settings: Settings | None = None,
    form: Form | None = None,
) -> Run:
    """Return the run of a thread as its caller sees it, by its row and its state.

    Where another request is written down and not begun, the one before is over: nothing of it is asked any more.
    Raises UnknownThread, and StorageError for a version of the state unknown here.
    """
    goal, status = str(row.get("goal") or ""), "queued" if row.get("status") == "queued" else "running"
    if not_begun(row, snapshot.values):
        limits = allowed(settings.limits, None) if settings else {}
        run = Run(ThreadId.of(thread_id, ()), status, goal, limits=limits)  # type: ignore[arg-type]
    else:
        run = run_of(thread_id, known(thread_id, snapshot), settings, form)
        if to_do(row):
            run = replace(run, status=status)  # type: ignore[arg-type]
    return replace(run, problem=run.problem or str(row.get("problem") or ""))


async def queue_up(
    store: ThreadStore, thread_id: str, queue: str, work: Start | Json, at: datetime | None = None
) -> None:
    """Write down what the workers of a queue are to do on a thread: a `Start`, or answers by id; from `at` on.

    Whoever does so holds the thread.
    """
    due = at.astimezone(UTC).isoformat(timespec="milliseconds") if at else now_text()
    change: Json = {"request": {"answers": work}}
    if isinstance(work, Start):
        known = {"settings": work.settings, "metadata": work.metadata, "owner": work.owner or None}
        change = {"goal": work.messages[-1].text, "answered": {}, "request": work.to_json(), **known}
    await note_thread(store, thread_id, status="queued", queue=queue, due=due, tries=0, **change)


# Answers while somebody works on the thread, to questions that wait meanwhile. Who answers writes them down and then
# looks how the thread stands; who works writes down how it stands and then looks for answers: one of them sees it.


def _left_space(thread_id: str) -> tuple[str, ...]:
    return ("donewhen", "answers", label(thread_id))


async def leave(store: ThreadStore, thread_id: str, queue: str, answers: Json) -> None:
    """Leave answers by id to who works on the thread; when it waits for one of them, it is queued with that."""
    for id, answer in answers.items():
        await store.aput(_left_space(thread_id), id, {"answer": answer, "queue": queue}, index=False)


async def left_on(store: ThreadStore, thread_id: str, ids: Iterable[str]) -> dict[str, Json]:
    """`{answer, queue}` of what was left for these questions, by their ids."""
    found = {id: await store.aget(_left_space(thread_id), id) for id in ids}
    return {id: dict(item.value) for id, item in found.items() if item}


async def take_back(store: ThreadStore, thread_id: str, ids: Iterable[str]) -> None:
    """These answers are not left any more."""
    for id in ids:
        await store.adelete(_left_space(thread_id), id)


async def with_left(store: ThreadStore, run: Run, before: Json | None = None) -> Run:
    """The run as it stands: queued, where it waits for what was answered meanwhile; with what was queued `before`."""
    left = await left_on(store, run.thread_id, [pause["id"] for pause in run.pending])
    if not left:
        return run
    queue = next(iter(left.values()))["queue"]
    answers = {id: row["answer"] for id, row in left.items()}
    await queue_up(store, run.thread_id, queue, {**(before or {}), **answers})
    await take_back(store, run.thread_id, left)
    return run.without(left)
