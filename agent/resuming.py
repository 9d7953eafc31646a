"""Which question an answer is for: strict, by id. An answer that nothing waits for changes nothing."""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.types import Command, StateSnapshot

from donewhen.agent.run import Run, ThreadId
from donewhen.graph.people.answering import BY_POLICY, OVERDUE
from donewhen.graph.people.pauses import PAUSE_ID
from donewhen.state.errors import StaleAnswer
from donewhen.state.graph_state import Json
from donewhen.state.language.texts import goes_on
from donewhen.state.people.answers import read_answer
from donewhen.state.records import Pause
from donewhen.state.settings import Settings
from donewhen.state.values import flaw, whole

_INTERRUPT_ID = re.compile(r"[0-9a-f]{32}")


def resume_command(run: Run, answer: Any, shown: Run | str | None = None, before: Json | None = None) -> Command[Any]:
    """The command that gives `answer` to what `run` waits for. Raises StaleAnswer if it waits for nothing like it.

    `answer` is an answer to the question asked now, or `{id: answer}` with ids of open questions. With a run as
    `shown`, an answer without ids is for what was asked in that run, and for nothing that is asked since. Else it must
    not repeat what was answered `before` to another question, unless `shown` is the id of a run that asks this one.
    """
    pauses = {pause["id"]: pause for pause in run.pending}
    if not pauses:
        hint = "; without an answer it goes on, and by `steer` in another way" if run.status == "running" else ""
        raise StaleAnswer(f"thread {run.thread_id} waits for no answer: it is {run.status}{hint}")
    first = run.pending[0]
    answers = _named(run, answer) or {_meant(first, shown, answer, before or {}): answer}
    if unknown := [str(id) for id in answers if id not in pauses]:
        raise StaleAnswer(f"nothing waits under {', '.join(unknown)}; open: {', '.join(pauses)}", list(pauses))
    answers = {id: _storable(value) for id, value in answers.items()}
    for id, value in answers.items():
        _check_fresh(value, pauses[id], list(pauses))
    return _command(first, answers)


def steer_command(run: Run, steer: str) -> Json | None:
    """What a stopped run goes on with by the words of `steer`; None: as it was. StaleAnswer if it was not stopped."""
    if run.status != "running":
        open_ids = [pause["id"] for pause in run.pending]
        raise StaleAnswer(f"thread {run.thread_id} was not stopped: it is {run.status}", open_ids)
    return None if goes_on(steer) else {"messages": [HumanMessage(whole(steer))]}


def overdue_command(run: Run, settings: Settings) -> Command[Any] | None:
    """The command by which the settings answer what stayed open longer than they allow."""
    if settings.on_question == "wait" or settings.question_seconds is None:
        return None
    latest = datetime.now(UTC) - timedelta(seconds=settings.question_seconds)
    asked = {pause["id"]: pause.get("asked_at") for pause in run.pending if pause["kind"] in BY_POLICY}
    late = [id for id, at in asked.items() if at and datetime.fromisoformat(at) <= latest]
    return _command(run.pending[0], dict.fromkeys(late, OVERDUE)) if late else None


def taken(given: Command[Any] | Json | None, run: Run, snapshot: StateSnapshot) -> bool:
    """Whether the checkpoints had what a leg was given when it was drained."""
    if isinstance(given, Command):
        return run.status != "waiting"
    there = {message.id for message in snapshot.values.get("messages") or ()}
    return not given or given["messages"][-1].id in there


def answered(run: Run, answer: Any) -> Json:
    """What to remember of an answer that is given: the question's id, and what was said as a digest."""
    return {id: _digest(value) for id, value in by_id(run, answer).items()}


def by_id(run: Run, answer: Any) -> Json:
    """An answer that is given, as it can be written down, by the id of its question."""
    return {id: _storable(value) for id, value in (_named(run, answer) or {run.pending[0]["id"]: answer}).items()}


def _digest(value: Any) -> str:
    said = value.strip().casefold() if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _command(first: Pause, answers: Json) -> Command[Any]:
    given = answers[first["id"]] if list(answers) == [first["id"]] else {"answers": answers}
    return Command(resume={first["interrupt_id"]: given})


def _storable(value: Any) -> Any:
    """The answer as it can be written down; what cannot be is no answer, and is told so."""
    if isinstance(value, str):
        return whole(value)
    return {"unreadable": problem} if (problem := flaw(value)) else value


def _meant(first: Pause, shown: Run | str | None, answer: Any, before: Json) -> str:
    """The question that an answer without ids is for. Raises StaleAnswer for what may be a second delivery."""
    if isinstance(shown, Run):
        return str(shown.pending[0]["id"]) if shown.pending else f"{shown.thread_id}, which was {shown.status}"
    asked = str(first["id"])
    said = next((id for id, digest in before.items() if id != asked and digest == _digest(answer)), None)
    if said is None or (isinstance(shown, ThreadId) and shown.asked == asked):
        return asked
    text = f"this repeats the answer to {said}, so it may be a second delivery of it; open is {asked}"
    raise StaleAnswer(f"{text}. Say what it is for: give the Run in place of the id, or {{id: answer}}", [asked])


def _named(run: Run, answer: Any) -> Json | None:
    """The answers by id, if `answer` is that."""
    first = run.pending[0]
    given = _ids_in(answer, run) or {}
    return {first["id"] if id == first["interrupt_id"] else id: value for id, value in given.items()} or None


def _ids_in(answer: Any, run: Run) -> Json | None:
    if not isinstance(answer, Mapping) or not answer or not all(isinstance(key, str) for key in answer):
        return None
    known = {pause["id"] for pause in run.pending} | {run.pending[0]["interrupt_id"]}
    named = known & set(answer) or all(PAUSE_ID.fullmatch(key) or _INTERRUPT_ID.fullmatch(key) for key in answer)
    return dict(answer) if named else None


def _check_fresh(value: Any, pause: Pause, open_ids: list[str]) -> None:
    """Raise StaleAnswer if the answer itself says that it is for another question, or another revision of the plan."""
    named = value.get("interrupt_id") if isinstance(value, Mapping) else None
    if named is not None and named != pause.get("interrupt_id"):
        raise StaleAnswer(f"the answer is for {named}, which does not wait; open: {', '.join(open_ids)}", open_ids)
    read = read_answer(value, pause)
    if isinstance(read, str) and read.startswith("stale"):
        raise StaleAnswer(read, open_ids)
