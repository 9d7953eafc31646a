"""Answers that a worker takes up, or, while somebody works on the thread, that one when it comes to the question."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from langgraph.types import StateSnapshot

from donewhen.agent.resuming import by_id, resume_command
from donewhen.agent.run import Run, known, run_of
from donewhen.agent.storage import Storage
from donewhen.agent.storage.storage import Worked
from donewhen.agent.work.engine import check_begun, leave, left_on, queue_up, take_back, with_left
from donewhen.agent.work.threads import read_row
from donewhen.graph.people.pauses import open_pauses
from donewhen.state.errors import StaleAnswer, ThreadBusy
from donewhen.state.graph_state import Json
from donewhen.state.versions import migrated

State = Callable[[Worked, str], Awaitable[StateSnapshot]]
"""A thread's state, in a session."""
ENDING = 2.0
"""Seconds for whoever is just taking a thread up, or leaving it."""


async def submit_answer(storage: Storage, state: State, queue: str, shown: str | Run, answer: Any) -> str:
    """Hold an answer against what is asked, and write it down. Gives the thread's id. Raises as `Agent.resume`."""
    thread_id = str(shown.thread_id if isinstance(shown, Run) else shown)
    left: Json = {}
    for patience in (0.0, ENDING):
        try:
            async with storage.session(thread_id, patience=patience) as session:
                if left:  # and not seen by whoever worked on it
                    row = await read_row(session[1], thread_id) or {}
                    await with_left(session[1], run_of(thread_id, await state(session, thread_id)), _before(row))
                    return thread_id
                run, row = await _asked(session, state, thread_id, alone=True)
                answers = _held_against(run, row, answer, shown)
                if run.status == "running":
                    await leave(session[1], thread_id, queue, answers)
                else:
                    await queue_up(session[1], thread_id, queue, {**_before(row), **answers})
                return thread_id
        except ThreadBusy as error:
            busy = error
        async with storage.unlocked() as session:
            if not left:
                run, row = await _asked(session, state, thread_id, alone=False)
                left = _held_against(run, row, answer, shown)
                await leave(session[1], thread_id, queue, left)
            if (await read_row(session[1], thread_id) or {}).get("status") == "running":
                return thread_id
    async with storage.unlocked() as session:
        await take_back(session[1], thread_id, left)
    raise busy


def with_queued(run: Run, row: Json, answer: Any, shown: str | Run) -> Any:
    """An answer given here, by id, with those that wait for a worker, if any do. Raises StaleAnswer."""
    waiting = {pause["id"] for pause in run.pending}
    before = {id: value for id, value in _before(row).items() if id in waiting}
    if row.get("status") != "queued" or not before:
        return answer
    return {**before, **_held_against(run.without(before), row, answer, shown)}


async def _asked(session: Worked, state: State, thread_id: str, *, alone: bool) -> tuple[Run, Json]:
    """The run with what is still to be answered, and the thread's row; `running`: somebody works on it, or is to."""
    row, snapshot = await read_row(session[1], thread_id) or {}, await state(session, thread_id)
    check_begun(thread_id, row, snapshot.values)
    run = run_of(thread_id, snapshot)
    at_work = bool(snapshot.created_at) and run.status == "running"
    if at_work:
        run = replace(run, pending=tuple(open_pauses(migrated(snapshot.values))))
    if at_work or not alone:
        left = await left_on(session[1], thread_id, [pause["id"] for pause in run.pending])
        taken = {**_before(row), **(row.get("answered") or {}), **left}
        return run.without(taken, "running"), row
    if row.get("status") == "queued":
        return run.without(_before(row)), row
    known(thread_id, snapshot)
    return run, row


def _before(row: Json) -> Json:
    return (row.get("request") or {}).get("answers") or {}


def _held_against(run: Run, row: Json, answer: Any, shown: str | Run) -> Json:
    """The answer, by the ids of what it is for. Raises StaleAnswer."""
    if run.status == "running" and not run.pending:
        raise StaleAnswer(f"thread {run.thread_id} waits for no other answer: it is being worked on")
    resume_command(run, answer, shown, row.get("answered") or {})
    return by_id(run, answer)
