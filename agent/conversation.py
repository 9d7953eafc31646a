"""What was said and observed on a thread, for whoever shows it: pages, editors, receipts."""

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.store.base import BaseStore
from langgraph.types import StateSnapshot

from donewhen.agent.run import Run, read_inside
from donewhen.graph.pauses.pause import load_pause
from donewhen.graph.step.texts import Texts
from donewhen.state.channels import Json
from donewhen.state.errors import UnknownThread
from donewhen.state.plan.plan import PlanJson
from donewhen.state.proof.outcome import displaced_line
from donewhen.state.records import JournalEntry
from donewhen.state.secrets import hide_known
from donewhen.state.versions import migrate


@dataclass(frozen=True)
class Conversation:
    """A thread, read at one moment: its current request, and the words of all."""

    run: Run
    request: int
    """The number of the current request, from 1."""
    message_id: str
    """The id of the message that began the current request; "" if an older version began it."""
    messages: Sequence[AnyMessage]
    """What people and the agent said to each other in all requests, with the calls by which clients show plans and
    steps.
    """
    observations: Sequence[JournalEntry]
    """What tools returned, people answered and checks found in the current request, in steps at work too. Long texts
    are shortened: `Agent.observation` returns one in full.
    """
    earlier: Sequence[JournalEntry]
    """The same of the requests before, oldest first, with ids such as `1:s2.3`, as far as later ones may read it."""
    displaced: str
    """What requests did whose place the current one took, as a line in its language; "" if nothing."""
    approved: PlanJson | None
    """The plan of the current request as a person, or the settings, approved it; None before that."""
    todos: Sequence[Json]
    """The plan as a list of `content` and `status`."""


def read_conversation(run: Run, snapshot: StateSnapshot, secrets: Sequence[str] = ()) -> Conversation:
    """Read a thread from a snapshot with the states of its subgraphs; `secrets` are hidden in what was displaced."""
    values = migrate(snapshot.values)
    displaced = hide_known(values.get("displaced") or (), secrets)  # before arguments are cut
    return Conversation(
        run,
        request=values.get("turn", 1),
        message_id=values.get("request") or "",
        messages=_shown_messages(run, values.get("messages") or ()),
        observations=(*(values.get("journal") or ()), *(read_inside(snapshot).get("journal") or ())),
        earlier=values.get("before") or (),
        displaced=displaced_line({**values, "displaced": displaced}),
        approved=(values.get("approval") or {}).get("plan"),
        todos=values.get("todos") or (),
    )


def _shown_messages(run: Run, messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    """Return the messages; that of the current question has what others have said since."""
    if not any(pause.get("meanwhile") for pause in run.pending[:1]):
        return messages
    asked = load_pause(run.pending[0])
    shown = {"content": asked.message_text()}
    return [
        each.model_copy(update=shown)
        if isinstance(each, AIMessage) and any(call["id"] == asked.tool_call_id for call in each.tool_calls)
        else each
        for each in messages
    ]


async def read_observation(
    conversation: Conversation, id: str, snapshot: StateSnapshot, store: BaseStore
) -> JournalEntry:
    """Return an observation with its full text; one of an earlier request by an id such as `1:s2.3`.

    Raises UnknownThread if the thread has none of this id.
    """
    thread_id = conversation.run.thread_id
    for entry in (*conversation.observations, *conversation.earlier):
        if entry["id"] == id:
            text = await Texts.of(store, thread_id, snapshot.values).get(id) if entry["stored"] else None
            return entry if text is None else {**entry, "text": text}
    raise UnknownThread(f"there is no observation {id!r} on thread {thread_id!r}")
