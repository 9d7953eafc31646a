"""A run as its caller sees it, read from its last checkpoint; and what is remembered about threads beside that."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Literal, Self, cast

from langgraph.store.base import BaseStore
from langgraph.types import StateSnapshot

from donewhen.agent.storage import Storage
from donewhen.graph.models.output import Form
from donewhen.graph.people.pauses import open_pauses
from donewhen.graph.tools.effects import label
from donewhen.state.errors import ThreadWaiting, UnknownThread
from donewhen.state.graph_state import Json
from donewhen.state.ledger import add, allowed
from donewhen.state.plan.plan import PlanJson
from donewhen.state.proof.receipt import Outcome, Receipt
from donewhen.state.records import Pause, StepRecord
from donewhen.state.settings import Settings, stored_settings
from donewhen.state.versions import migrated

RunStatus = Literal["completed", "partial", "failed", "cancelled", "exhausted", "waiting", "running"]


class ThreadId(str):
    """A thread's id as a Run gives it: it remembers what was asked there, which a plain answer with it is for."""

    asked: str | None = None

    @classmethod
    def of(cls, thread_id: str, pending: tuple[Pause, ...]) -> Self:
        """The id, and the question asked now."""
        made = cls(thread_id)
        made.asked = pending[0]["id"] if pending else None
        return made


@dataclass(frozen=True)
class Run:
    """The state of one thread; `to_dict` gives it as JSON.

    `status` is the outcome's, or `waiting` (for an answer to `pending[0]`), or `running` (cut off: `resume` goes on).
    """

    thread_id: str
    status: RunStatus
    goal: str = ""
    plan: PlanJson | None = None
    steps: Mapping[str, StepRecord] = field(default_factory=dict)
    """By id of the step, once the plan is approved."""
    pending: tuple[Pause, ...] = ()
    """Open questions, the one asked now first; that one also has `interrupt_id`."""
    answer: str = ""
    output: Any = None
    """The result as data, where an `output_type` was wanted and met: an instance where the type is given in this
    process, else plain JSON; its sources are in `receipt["output"]`. None while there is none."""
    outcome: Outcome | None = None
    receipt: Receipt | None = None
    spent: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    """What may be spent, with what was granted; only what is limited. Empty for a thread not started by an Agent."""
    problem: str = ""
    """Why the last answer was not taken; "" if it was."""

    def to_dict(self) -> Json:
        """All fields by name, in plain JSON."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            **values,
            "output": self.outcome.get("output") if self.outcome else None,
            **{key: dict(values[key]) for key in ("steps", "spent", "limits")},
            "pending": list(self.pending),
        }


def run_of(thread_id: str, snapshot: StateSnapshot, settings: Settings | None = None, form: Form | None = None) -> Run:
    """Read a run from a snapshot that holds one; `settings` tell its limits, `form` of which type its output is.

    With the states of subgraphs, what steps at work have spent so far counts too.
    Raises StorageError for a version of the state unknown here.
    """
    values = migrated(snapshot.values)
    outcome = values.get("outcome")
    pending = _pending(values, snapshot)
    status: RunStatus = "waiting" if pending else "running"
    if not snapshot.tasks and outcome:
        status = outcome["status"]
    finished = status not in ("waiting", "running")
    return Run(
        ThreadId.of(thread_id, pending),
        status,
        values.get("goal", ""),
        values.get("plan"),
        values.get("steps") or {},
        pending,
        outcome["text"] if finished and outcome else "",
        _output(values, outcome, form) if finished else None,
        outcome if finished else None,
        outcome["receipt"] if finished and outcome else None,
        _spent(values, snapshot),
        allowed(settings.limits, values.get("granted")) if settings else {},
        str(pending[0].get("problem") or "") if pending else "",
    )


def _output(values: Json, outcome: Outcome | None, form: Form | None) -> Any:
    """The data as the type that is at hand, if the run was to give that."""
    if outcome is None or outcome.get("output") is None:
        return None
    return form.made(outcome["output"]) if form and form.schema == values.get("output_schema") else outcome["output"]


def _spent(values: Json, snapshot: StateSnapshot) -> Mapping[str, float]:
    spent: Mapping[str, float] = values.get("spent") or {}
    for task in snapshot.tasks:
        if task.result is None and isinstance(task.state, StateSnapshot):  # what has ended is in the values
            spent = add(spent, task.state.values.get("spent"))
    return spent


def _pending(values: Json, snapshot: StateSnapshot) -> tuple[Pause, ...]:
    """What is open; all of it hangs on the one interrupt of the question asked now."""
    if not snapshot.interrupts:
        return ()
    first, *rest = open_pauses(values)
    asked = {"asked_at": snapshot.created_at, **first, "interrupt_id": snapshot.interrupts[0].id}
    return cast(tuple[Pause, ...], (asked, *rest))


def known(thread_id: str, snapshot: StateSnapshot) -> StateSnapshot:
    """The snapshot, if there ever was a run on the thread. Raises UnknownThread."""
    if not snapshot.created_at:
        raise UnknownThread(f"there is no thread {thread_id!r}")
    return snapshot


def unfinished(run: Run) -> ThreadWaiting:
    """The error that keeps a new goal from displacing an open one; it says what is asked."""
    asked = "; ".join(f"{pause['id']}: {pause.get('question')}" for pause in run.pending)
    what = f"waits for an answer to {asked}" if asked else "is not finished"
    text = f"thread {run.thread_id} {what}. Resume it, or start with restart=True."
    return ThreadWaiting(text, [pause["id"] for pause in run.pending])


@dataclass(frozen=True)
class ThreadInfo:
    """One line of a list of threads."""

    thread_id: str
    goal: str
    status: str
    updated: str
    metadata: Json = field(default_factory=dict)
    """What whoever started it wants to remember, such as folder and model; never secrets."""

    def to_dict(self) -> Json:
        """All fields by name, in plain JSON."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


GOAL_CHARS = 500


def _namespace(thread_id: str) -> tuple[str, ...]:
    return ("donewhen", "threads", label(thread_id))


async def note_thread(
    store: BaseStore,
    thread_id: str,
    *,
    goal: str | None = None,
    status: str = "running",
    metadata: Json | None = None,
    settings: Settings | None = None,
    answered: Json | None = None,
) -> None:
    """Write down what changed about a thread."""
    item = await store.aget(_namespace(thread_id), "info")
    value: dict[str, Any] = dict(item.value) if item else {"goal": "", "metadata": {}}
    if goal is not None:
        value["goal"] = goal.strip()[:GOAL_CHARS]
    if metadata is not None:
        value["metadata"] = metadata
    if answered is not None:
        value["answered"] = answered
    if settings is not None:
        value["settings"] = settings.model_dump(mode="json")
    value |= {"status": status, "updated": datetime.now(UTC).isoformat(timespec="seconds")}
    await store.aput(_namespace(thread_id), "info", value, index=False)


async def thread_info(store: BaseStore, thread_id: str) -> ThreadInfo:
    """What is remembered about one thread. Raises UnknownThread."""
    item = await store.aget(_namespace(thread_id), "info")
    if item is None:
        raise UnknownThread(f"there is no thread {thread_id!r}")
    value = item.value
    return ThreadInfo(
        thread_id, value["goal"], value["status"], value["updated"], value.get("metadata") or value.get("extra") or {}
    )


async def thread_settings(store: BaseStore, thread_id: str) -> Settings | None:
    """The settings with which the thread's request was started, or resumed last; None where none are remembered."""
    item = await store.aget(_namespace(thread_id), "info")
    found = item.value.get("settings") if item else None
    return None if found is None else stored_settings(found)


async def last_answered(store: BaseStore, thread_id: str) -> Json:
    """What was answered last on the thread: the question's id → a digest of what was said."""
    item = await store.aget(_namespace(thread_id), "info")
    return dict(item.value.get("answered") or {}) if item else {}


async def list_threads(storage: Storage, limit: int) -> list[ThreadInfo]:
    """All threads with a checkpoint, the one changed last first."""
    found = []
    ids = await storage.thread_ids(limit)
    async with storage.reader() as (_, store):
        for thread_id in ids:
            try:
                found.append(await thread_info(store, thread_id))
            except UnknownThread:
                found.append(ThreadInfo(thread_id, "", "unknown", ""))
    return found
