"""Keep plans that people, code and agents tick off, independent of threads and models."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from donewhen.agent.storage import Storage, open_storage
from donewhen.agent.storage.storage import LOCK_PATIENCE
from donewhen.agent.storage.store import ThreadStore
from donewhen.state.channels import Json
from donewhen.state.errors import PlanError, StorageError
from donewhen.state.values import clean_text, similar

StepState = Literal["not_started", "in_progress", "completed", "blocked"]
STATES: tuple[StepState, ...] = get_args(StepState)
MARKS = {"not_started": "[ ]", "in_progress": "[→]", "completed": "[✓]", "blocked": "[!]"}
_OF_RUNS = {"pending": "not_started", "running": "in_progress", "done": "completed"}
"""The statuses of steps of runs that have another name here."""
SPACE, ACTIVE = ("donewhen_plans",), ("donewhen_active_plan",)
MOST_STEPS = 500
_ID = re.compile(r"[A-Za-z0-9][\w-]{0,59}")
Steps = Sequence[str | Mapping[str, Any]]
"""Contents, or `{id, content}`; without an id, the id of the step with the same content, or the next free one."""


@dataclass(frozen=True)
class KeptStep:
    """One step, with an id that is never reused in its plan."""

    id: str
    content: str
    status: StepState = "not_started"
    notes: str = ""


@dataclass(frozen=True)
class KeptPlan:
    """The current state of a plan."""

    id: str
    title: str
    steps: tuple[KeptStep, ...]
    active: bool = False
    given: int = field(default=0, repr=False)
    """The number of ids that were generated so far."""
    problem: str = ""
    """Why what is stored cannot be read; such a plan has only its id."""

    @property
    def text(self) -> str:
        """Return the plan with its marks and progress, for people and models."""
        if self.problem:
            return f"{self.id}: damaged: {self.problem}"
        by_status = {state: sum(step.status == state for step in self.steps) for state in STATES}
        share = 100 * by_status["completed"] / len(self.steps)
        counts = ", ".join(f"{number} {state.replace('_', ' ')}" for state, number in by_status.items())
        lines = [f"{self.title} ({self.id}{', active' if self.active else ''})"]
        lines.append(f"{by_status['completed']}/{len(self.steps)} steps completed ({share:.0f}%): {counts}")
        for number, step in enumerate(self.steps, 1):
            lines.append(f"{number}. {MARKS[step.status]} {step.id}: {step.content}")
            lines += [f"   {line}" for line in step.notes.splitlines()]
        return "\n".join(lines)

    def to_dict(self) -> Json:
        """Return the plan in plain JSON."""
        return {**asdict(self), "steps": [asdict(step) for step in self.steps]}


class PlanStore:
    """Kept plans in a storage. Invalid changes raise PlanError, which says what is valid.

    `storage` as in `Agent`; any number of processes may change the plans.
    """

    def __init__(self, storage: str | Storage) -> None:
        self._storage = storage if isinstance(storage, Storage) else open_storage(storage)

    async def create(self, id: str, title: str, steps: Steps) -> KeptPlan:
        """Keep a new plan with a unique id; it becomes the active one if there is none."""
        if not _ID.fullmatch(id):
            raise PlanError([f"{id[:60]!r} is not a valid id of a plan: use at most 60 letters, digits, - and _"])
        async with self._lock() as store:
            if await store.aget(SPACE, id) is not None:
                raise PlanError([f"there is a plan {id!r} already; update it, or take another id"])
            plan = _with_steps(KeptPlan(id, _clean_line("title", title), ()), steps)
            if await _read_active(store) is None:
                await store.aput(ACTIVE, "active", {"id": id}, index=False)
            return await _save(store, plan)

    async def update(self, id: str | None = None, *, title: str | None = None, steps: Steps | None = None) -> KeptPlan:
        """Change the title, the steps, or both. A step with the same id or content keeps its status and notes."""
        async with self._lock() as store:
            plan = await _read(store, id)
            plan = plan if title is None else replace(plan, title=_clean_line("title", title))
            return await _save(store, plan if steps is None else _with_steps(plan, steps))

    async def get(self, id: str | None = None) -> KeptPlan:
        """Return a plan; the active one if none is named."""
        async with self._storage.reader() as (_, store):
            return await _read(store, id)

    async def set_active(self, id: str) -> KeptPlan:
        """Make a plan the active one, which is used where no plan is named, and return it."""
        async with self._lock() as store:
            await _read(store, id)
            await store.aput(ACTIVE, "active", {"id": id}, index=False)
            return await _read(store, id)

    async def mark_step(
        self, step: int | str, status: str | None = None, notes: str | None = None, *, id: str | None = None
    ) -> KeptPlan:
        """Set the status or the notes of a step, given by its number, from 1, or its id; `done` is `completed`."""
        async with self._lock() as store:
            plan = await _read(store, id)
            old = _find_step(plan, step)
            state = old.status if status is None else _read_status(status)
            new_notes = old.notes if notes is None else clean_text(notes.strip())
            marked = replace(old, status=state, notes=new_notes)
            return await _save(store, replace(plan, steps=tuple(marked if s is old else s for s in plan.steps)))

    async def delete(self, id: str) -> None:
        """Delete a plan; if it was the active one, no plan is active then."""
        async with self._lock() as store:
            with suppress(StorageError):  # what is damaged can be deleted
                await _read(store, id)
            await store.adelete(SPACE, id)
            if await _read_active(store) == id:
                await store.adelete(ACTIVE, "active")

    async def list(self) -> list[KeptPlan]:
        """Return all plans, by id."""
        async with self._storage.reader() as (_, store):
            (items, damaged), active = await store.read_each(SPACE), await _read_active(store)
        plans = [KeptPlan(id, "", (), problem=problem) for id, problem in damaged.items()]
        for item in items:
            try:
                plans.append(_plan_of(item.key, item.value, active))
            except StorageError as error:
                plans.append(KeptPlan(item.key, "", (), problem=str(error)))
        return sorted(plans, key=lambda plan: plan.id)

    @asynccontextmanager
    async def _lock(self) -> AsyncIterator[ThreadStore]:
        async with self._storage.lock("kept plans", patience=LOCK_PATIENCE) as store:
            yield store


def _with_steps(plan: KeptPlan, steps: Steps) -> KeptPlan:
    """Return the plan with these steps: known ones keep their status, new ones are not started."""
    if isinstance(steps, str) or not steps or len(steps) > MOST_STEPS:
        raise PlanError([f"a plan has 1 to {MOST_STEPS} steps, given as a list"])
    generated, result = plan.given, list[KeptStep]()
    by_id, free = {step.id: step for step in plan.steps}, list(plan.steps)
    for number, item in enumerate(steps, 1):
        entry = {"content": item} if isinstance(item, str) else dict(item)
        if extra := entry.keys() - {"id", "content", "status", "notes"}:
            raise PlanError([f"step {number}: a step has id and content, not {', '.join(map(str, extra))}"])
        content, id = _clean_line(f"step {number}", entry.get("content")), entry.get("id")
        existing = by_id.get(str(id)) if id else next((step for step in free if step.content == content), None)
        if id is None and existing is None:
            generated += 1
            while f"s{generated}" in by_id:
                generated += 1
        name = existing.id if existing else str(id or f"s{generated}")
        if not _ID.fullmatch(name) or any(step.id == name for step in result):
            raise PlanError(
                [f"step {number}: {name[:60]!r} is the id of another step, or not a valid id; ids are unique"]
            )
        free = [step for step in free if step.id != name]
        result.append(KeptStep(name, content, existing.status, existing.notes) if existing else KeptStep(name, content))
    return replace(plan, steps=tuple(result), given=generated)


def _read_status(text: str) -> StepState:
    """Return the status that a text names, with a space for `_` or as steps of runs have it. Raises PlanError."""
    word = text.replace(" ", "_")
    for state in STATES:
        if _OF_RUNS.get(word, word) == state:
            return state
    raise PlanError([f"{text!r} is not a status of a step: use {', '.join(STATES)}"])


def _find_step(plan: KeptPlan, step: int | str) -> KeptStep:
    if isinstance(step, str) and step.strip().isdecimal() and len(step) < 20:
        step = int(step)
    if isinstance(step, int) and not isinstance(step, bool):
        if not 1 <= step <= len(plan.steps):
            raise PlanError([f"plan {plan.id!r} has no step {step}: its steps are 1 to {len(plan.steps)}"])
        return plan.steps[step - 1]
    kept_step = next((each for each in plan.steps if each.id == step), None)
    if kept_step is None:
        raise PlanError([f"plan {plan.id!r} has no step {step!r}: {', '.join(each.id for each in plan.steps)}"])
    return kept_step


def _clean_line(what: str, value: Any) -> str:
    text = clean_text(" ".join(str(value if value is not None else "").split()))
    if not text:
        raise PlanError([f"{what} is blank"])
    return text


async def _read_active(store: ThreadStore) -> str | None:
    item = await store.aget(ACTIVE, "active")
    return None if item is None else str(item.value["id"])


async def _read(store: ThreadStore, id: str | None) -> KeptPlan:
    active = await _read_active(store)
    if id is None and active is None:
        raise PlanError(["no plan is active: name one, or make one active"])
    item = await store.aget(SPACE, id or str(active))
    if item is None:
        names = [each.key for each in (await store.read_each(SPACE))[0]]
        near = similar(str(id), names) or names[:10]
        hint = f"there are: {', '.join(near)}" if near else "there are none"
        raise PlanError([f"there is no plan {id!r}; {hint}"])
    return _plan_of(item.key, item.value, active)


async def _save(store: ThreadStore, plan: KeptPlan) -> KeptPlan:
    await store.aput(
        SPACE, plan.id, {key: value for key, value in plan.to_dict().items() if key != "problem"}, index=False
    )
    return replace(plan, active=await _read_active(store) == plan.id)


def _plan_of(id: str, value: Mapping[str, Any], active: str | None) -> KeptPlan:
    """Return a stored plan. Raises StorageError if it is damaged."""
    try:
        steps = tuple(KeptStep(**step) for step in value["steps"])
        return KeptPlan(id, value["title"], steps, id == active, int(value.get("given") or 0))
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"the stored plan {id!r} is damaged ({type(error).__name__}: {error})") from error
