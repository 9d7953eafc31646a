"""A run for its caller, read from its last checkpoint."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Literal, cast
from uuid import UUID

from langgraph.store.base import BaseStore
from langgraph.types import StateSnapshot

from donewhen.agent.storage.storage import check_thread_id
from donewhen.graph.llm.output import OutputForm
from donewhen.graph.pauses.pause import load_pause
from donewhen.graph.people.interjections import read_interjections
from donewhen.graph.people.pauses import open_pauses, words_to_show
from donewhen.state.channels import Json, apply_update
from donewhen.state.errors import ConfigError, ResumeError, ThreadWaiting, UnknownThread
from donewhen.state.ledger import add, with_granted
from donewhen.state.plan.plan import PlanJson
from donewhen.state.plan.steps import leave_interrupted
from donewhen.state.proof.receipt import Outcome, Receipt
from donewhen.state.records import Pause, StepRecord
from donewhen.state.settings import Settings
from donewhen.state.versions import migrate, migrate_inside

INTERRUPTED = "nobody works on it: it was stopped, or its process ended; resume goes on from there"
"""The problem of a run that has neither ended nor asked, and is not queued."""
RunStatus = Literal[
    "completed", "answered", "partial", "failed", "cancelled", "exhausted", "waiting", "running", "queued"
]


@dataclass(frozen=True)
class Run:
    """How the last run of a thread stands; `to_dict` returns it as JSON.

    `status` is the outcome's, or `waiting` (for an answer to `pending[0]`), or `queued` (for a worker), or `running`:
    somebody works on it, or, if `problem` says so, nobody does and `resume` continues it.
    """

    thread_id: str
    status: RunStatus
    goal: str = ""
    plan: PlanJson | None = None
    steps: Mapping[str, StepRecord] = field(default_factory=dict)
    """By step id, once the plan is approved."""
    pending: tuple[Pause, ...] = ()
    """Open questions, the current one first; that one also has `interrupt_id` if the run waits. While a run works or is
    queued with an answer, the others that are still open.
    """
    answer: str = ""
    output: Any = None
    """The structured result, if an `output_type` was requested and met: an instance if the type is known in this
    process, else plain JSON. `receipt["output"]` has its sources.
    """
    outcome: Outcome | None = None
    receipt: Receipt | None = None
    spent: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    """The limits including grants. Empty for a thread that no Agent started."""
    language: str = "en"
    """The language of the runtime's texts: the one the model declared, else that of the settings."""
    request: str = ""
    """The id of its request among those of the thread; "" if an older version began it."""
    problem: str = ""
    """What answers to open questions lack, why workers gave up or nobody works on it, why an audit was not possible,
    what was said too late, or that another request took its place; "" if all is well.
    """

    def __str__(self) -> str:
        """Return what a person reads: the open questions with all that is needed to answer them, or the answer."""
        asked = "\n\n".join(str(pause.get("text") or pause.get("question") or "") for pause in self.pending)
        return asked or self.answer or self.status

    def _repr_markdown_(self) -> str:
        """Return what a notebook shows: the same as `str(run)`."""
        return str(self)

    @property
    def takes_answer(self) -> bool:
        """True if `resume` takes an answer now: the run is not at work, and was not cut off at it."""
        return bool(self.pending and self.pending[0].get("interrupt_id"))

    def without(self, answered: Collection[str], status: RunStatus = "queued") -> "Run":
        """Return the run with this status, and without these questions."""
        left = [pause for pause in self.pending if pause["id"] not in answered]
        asked = [cast(Pause, {**each, "interrupt_id": self.pending[0].get("interrupt_id", "")}) for each in left[:1]]
        problem = _problem_of(left) if self.pending else self.problem
        return replace(self, status=status, pending=(*asked, *left[1:]), problem=problem)

    def to_dict(self) -> Json:
        """Return all fields by name, in plain JSON."""
        output = self.outcome.get("output") if self.outcome else None
        mappings = {key: dict(getattr(self, key)) for key in ("steps", "spent", "limits")}
        return {**vars(self), "output": output, **mappings, "pending": list(self.pending)}


def id_of(thread: object) -> str:
    """Return the id of a thread that is given as its id or as a run of it. Raises ConfigError for anything else."""
    thread_id = thread.thread_id if isinstance(thread, Run) else thread
    if isinstance(thread_id, UUID) or (isinstance(thread_id, int) and not isinstance(thread_id, bool)):
        thread_id = str(thread_id)
    if not isinstance(thread_id, str):
        raise ConfigError(f"a thread is given by its id, or by a Run of it, not by a {type(thread_id).__name__}")
    return check_thread_id(thread_id)


def read_run(
    thread_id: str,
    snapshot: StateSnapshot,
    settings: Settings | None = None,
    form: OutputForm | None = None,
    *,
    at_work: bool = False,
) -> Run:
    """Read a run from a snapshot, with limits from `settings` and the output in the type of `form`.

    `at_work`: somebody works on it, so it is running even if its state has a question or an end: one that is answered
    just now, or from which not all has followed yet. With the states of subgraphs, the spending of working steps is
    included. Raises StorageError for an unknown version of the state.
    """
    values = migrate(snapshot.values)
    outcome = values.get("outcome")
    pending = () if at_work else _pending(values, snapshot)
    status: RunStatus = "waiting" if pending else "running"
    if not snapshot.tasks and outcome and not at_work:
        status = outcome["status"]
    run = Run(
        thread_id,
        status,
        goal=values.get("goal", ""),
        request=str(values.get("request") or ""),
        plan=values.get("plan"),
        steps=values.get("steps") or {},
        pending=pending,
        spent=add(values.get("spent"), read_inside(snapshot).get("spent")),
        limits=with_granted(settings.limits, values.get("granted")) if settings else {},
        language=str(values.get("language") or "en"),
        problem=_problem_of(pending) or str((values.get("ending") or {}).get("problem") or ""),
    )
    has_ended = status not in ("waiting", "running")
    if outcome is None or not (has_ended or (values.get("ending") or {}).get("again")):
        return run
    output = _output(values, outcome, form)
    run = replace(run, answer=outcome["text"], output=output, receipt=outcome["receipt"])
    return replace(run, outcome=outcome) if has_ended else run  # it is audited again, and may end otherwise


async def with_words_of_others(store: BaseStore, run: Run) -> Run:
    """Return a run whose questions for somebody named show what others have said since they were asked."""
    return show_words(run, await read_words_to_named(store, run))


async def read_words_to_named(store: BaseStore, run: Run) -> list[Json]:
    """Return what was said to a run if one of its questions is for somebody named; else []."""
    asked = any(pause.get("answered_by") for pause in run.pending)
    return await read_interjections(store, run.thread_id, "") if asked else []


def show_words(run: Run, interjections: Sequence[Json]) -> Run:
    """Return a run whose questions for somebody named show what of these interjections was said since."""

    def show(pause: Pause) -> Pause:
        if not pause.get("answered_by"):
            return pause
        shown: Pause = {**pause, "meanwhile": words_to_show(pause, interjections)}
        return {**shown, "text": load_pause(shown).text()}

    return replace(run, pending=tuple(show(pause) for pause in run.pending))


def _output(values: Json, outcome: Outcome, form: OutputForm | None) -> Any:
    """Return the structured result, in the caller's type if the run was asked for that."""
    output = outcome.get("output")
    if output is not None and form and form.schema == values.get("output_schema"):
        return form.to_python(output)
    return output


def read_inside(snapshot: StateSnapshot) -> Json:
    """Return what only the own states of interrupted planning and steps have, as the update with which they leave.

    `snapshot` has the states of subgraphs. Its values have what has ended.
    """
    states = [task.state for task in snapshot.tasks if task.result is None]
    at_work = [state.values for state in states if isinstance(state, StateSnapshot) and isinstance(state.values, dict)]
    version = snapshot.values.get("version", 0)
    updates = [leave_interrupted(migrate_inside(inside, version)) for inside in at_work if inside]
    return reduce(apply_update, updates, Json())


def read_left_behind(snapshot: StateSnapshot) -> Json:
    """Return all that a new input of the graph would drop, as an update: of planning and steps that work or have ended
    beside others that work.
    """
    ended = [task.result for task in snapshot.tasks if task.result and isinstance(task.state, StateSnapshot)]
    return reduce(apply_update, [*ended, read_inside(snapshot)], Json())


def interrupted_tasks(snapshot: StateSnapshot) -> set[str]:
    """Return the ids of the tasks that were cut off, inside planning and steps too."""
    inside = [task.state.tasks for task in snapshot.tasks if isinstance(task.state, StateSnapshot)]
    return {task.id for tasks in (snapshot.tasks, *inside) for task in tasks if task.result is None}


def _pending(values: Json, snapshot: StateSnapshot) -> tuple[Pause, ...]:
    """Return the open questions; all share the interrupt of the current question."""
    if not snapshot.interrupts:
        return ()
    first, *rest = ({**pause.dump(), "text": pause.text()} for pause in open_pauses(values))
    asked = {"asked_at": snapshot.created_at, **first, "interrupt_id": snapshot.interrupts[0].id}
    return cast(tuple[Pause, ...], (asked, *rest))


def _problem_of(pending: Sequence[Pause]) -> str:
    """Return what answers to open questions lack, with the ids of questions unless it is only the current one."""
    problems = {pause["id"]: str(pause["problem"]) for pause in pending if pause.get("problem")}
    if [*problems] == [pause["id"] for pause in pending[:1]]:
        return "".join(problems.values())
    return "; ".join(f"{id}: {problem}" for id, problem in problems.items())


def require_thread(thread_id: str, snapshot: StateSnapshot) -> StateSnapshot:
    """Return the snapshot. Raises UnknownThread if the thread never had a run."""
    if not snapshot.created_at:
        raise unknown_thread(thread_id)
    return snapshot


def unknown_thread(thread_id: str) -> UnknownThread:
    """Return the error for a thread that is not in the storage."""
    return UnknownThread(
        f"there is no thread {thread_id!r} in this storage; agent.threads() and `donewhen threads` list them"
    )


def waiting_error(run: Run, hint: str = "") -> ThreadWaiting:
    """Return the error for what needs a thread whose request has ended; it says what the thread does, and `hint`."""
    what_it_does, remedy = _describe_state(run.thread_id, run.status, run.pending, run.problem)
    pending = [pause["id"] for pause in run.pending]
    return ThreadWaiting(f"thread {run.thread_id!r} {what_it_does}", pending, remedy=remedy + hint)


def idle_error(thread_id: str, row: Mapping[str, Any]) -> ResumeError:
    """Return the error for words to a thread on which nothing works; it says what the thread does instead."""
    status, pending = str(row.get("status") or "running"), row.get("pending") or ()
    what_it_does, remedy = _describe_state(thread_id, status, pending, str(row.get("problem") or ""))
    text = f"nothing works on thread {thread_id!r}, which {what_it_does}"
    return ResumeError(text, [pause["id"] for pause in pending] if status == "waiting" else (), remedy=remedy)


def _describe_state(thread_id: str, status: str, pending: Iterable[Mapping[str, Any]], problem: str) -> tuple[str, str]:
    """Return what a thread does on which nothing works, and, to stand behind it, what makes it go on."""
    it = repr(thread_id)
    if status == "waiting":
        asked = "; ".join(f"{pause['id']}: {str(pause.get('question') or '')[:200]}" for pause in pending)
        return f"waits for an answer ({asked})", f": give it with resume({it}, answer) or submit_answer({it}, answer)"
    if status == "queued":
        remedy = f". Wait for that, watch({it}) follows it, or cancel({it})"
        return "is not finished: it is queued for a worker", remedy
    if status == "running" and problem not in ("", INTERRUPTED):
        return f"is not finished: {problem}", f". resume({it}) goes on"
    if status == "running":
        remedy = f". resume({it}) goes on, and with steer= in another direction"
        return "is not finished: its work was interrupted", remedy
    return f"has ended ({status})", f": start(goal, thread_id={it}) goes on with its conversation"
