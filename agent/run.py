"""A run as its caller sees it: what was read from a thread's last checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from langgraph.types import StateSnapshot

from donewhen.graph.people.pauses import open_pauses
from donewhen.state.errors import ThreadWaiting, UnknownThread
from donewhen.state.ledger import add, allowed
from donewhen.state.settings import Settings
from donewhen.state.versions import migrated

Json = dict[str, Any]
RunStatus = Literal["completed", "partial", "failed", "cancelled", "exhausted", "waiting", "running"]


@dataclass(frozen=True)
class Run:
    """The state of one thread.

    `status` is the outcome's, or `waiting` (for an answer to `pending[0]`), or `running` (cut off: `resume` goes on).
    """

    thread_id: str
    status: RunStatus
    goal: str = ""
    plan: Json | None = None
    steps: Mapping[str, Json] = field(default_factory=dict)
    pending: tuple[Json, ...] = ()
    """Open questions, the one asked now first: `{id, kind, question, options, step, …}`; it also has `interrupt_id`."""
    answer: str = ""
    outcome: Json | None = None
    receipt: Json | None = None
    spent: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    """What may be spent, with what was granted; only what is limited. Empty for a thread not started by an Agent."""
    problem: str = ""
    """Why the last answer was not taken; "" if it was."""


def run_of(thread_id: str, snapshot: StateSnapshot, settings: Settings | None = None) -> Run:
    """Read a run from a snapshot that holds one; `settings` tell its limits.

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
        thread_id,
        status,
        values.get("goal", ""),
        values.get("plan"),
        values.get("steps") or {},
        pending,
        outcome["text"] if finished and outcome else "",
        outcome if finished else None,
        outcome["receipt"] if finished and outcome else None,
        _spent(values, snapshot),
        allowed(settings.limits, values.get("granted")) if settings else {},
        str(pending[0].get("problem") or "") if pending else "",
    )


def _spent(values: Json, snapshot: StateSnapshot) -> Mapping[str, float]:
    spent: Mapping[str, float] = values.get("spent") or {}
    for task in snapshot.tasks:
        if task.result is None and isinstance(task.state, StateSnapshot):  # what has ended is in the values
            spent = add(spent, task.state.values.get("spent"))
    return spent


def _pending(values: Json, snapshot: StateSnapshot) -> tuple[Json, ...]:
    """What is open; all of it hangs on the one interrupt of the question asked now."""
    if not snapshot.interrupts:
        return ()
    first, *rest = open_pauses(values)
    return ({"asked_at": snapshot.created_at, **first, "interrupt_id": snapshot.interrupts[0].id}, *rest)


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
    extra: Json = field(default_factory=dict)
    """What whoever started it wants to remember, such as folder and model; never secrets."""
