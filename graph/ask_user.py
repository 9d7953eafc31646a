"""The ask_user node: one question to a person. It does nothing before its one interrupt."""

from datetime import UTC, datetime
from typing import Any

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from graph.answering import apply_answer
from graph.context import Deps
from graph.pauses import asked_again, closing, open_pauses, typed_reply
from state.channels import merge_records
from state.human import Answer, Bundle, payload, read_answer
from state.run import Json, Run
from state.settings import Settings


async def ask_user(state: Run, runtime: Runtime[Settings], *, deps: Deps) -> Run:
    """Take the answer to the pending question, and answers to other open questions that came with it."""
    pending = state["pending"] or {}
    typed = typed_reply(state["messages"])
    value = interrupt(payload(pending)) if typed is None else typed
    read = read_answer(value, pending)
    answers = read.answers if isinstance(read, Bundle) else {pending["id"]: value}
    taken, problems = _read_all(state, answers, deps)
    if problems:
        return asked_again(state, "; ".join(problems))
    update = _combined(state, taken)
    if pending["id"] not in taken:
        # Others were answered; their steps go on first, and this question is asked again afterwards.
        return {**update, "pending": None}  # type: ignore[typeddict-item]
    said = taken[pending["id"]].text or taken[pending["id"]].kind
    return {**update, "pending": None, "messages": closing(state["messages"], pending, said)}  # type: ignore[typeddict-item]


def _read_all(state: Run, answers: dict[str, Any], deps: Deps) -> tuple[dict[str, Answer], list[str]]:
    pauses = {pause["id"]: pause for pause in open_pauses(state)}
    taken: dict[str, Answer] = {}
    problems = []
    for id, value in answers.items():
        read = read_answer(value, pauses[id]) if id in pauses else f"stale: nothing waits under {id}"
        if isinstance(read, Answer) and (wrong := _wrong_arguments(read, pauses[id], deps)):
            problems.append(wrong)
        elif isinstance(read, Answer):
            taken[id] = read
        else:
            problems.append(str(read))
    return taken, problems


def _wrong_arguments(answer: Answer, pause: Json, deps: Deps) -> str:
    if answer.kind != "edit" or pause["kind"] != "tool":
        return ""
    return "; ".join(deps.toolbox.problems(pause["tool"], answer.arguments or {}))


def _combined(state: Run, taken: dict[str, Answer]) -> Json:
    """The updates of all answers, each made from the state in which the ones before it were applied."""
    pauses = {pause["id"]: pause for pause in open_pauses(state)}
    values: dict[str, Any] = dict(state)
    update: Json = {}
    for id, answer in taken.items():
        change = apply_answer(values, pauses[id], answer, at=datetime.now(UTC).isoformat(timespec="seconds"))
        for key, value in change.items():
            if key == "steps":
                update[key] = merge_records(update.get(key), value)
                values[key] = merge_records(values.get(key), value)
            elif key in ("journal", "approvals"):
                update[key] = [*update.get(key, ()), *value]
            elif key == "transcripts":
                update[key] = {**update.get(key, {}), **value}
            else:
                update[key] = value
    return update
