"""The ask_user node: one question to a person. It does nothing before its one interrupt."""

from datetime import UTC, datetime
from typing import Any

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from graph.answering import apply_answer
from graph.context import Deps, settings_of
from graph.pauses import asked_again, closing, open_pauses, typed_reply
from state.channels import merge_records
from state.human import Answer, Bundle, payload, read_answer
from state.run import Json, Run
from state.settings import Settings

ASSUME = "Nobody answers; assume what is most likely, and say in the result what was assumed."
OVERDUE = {"overdue": True}
"""Resume value for a question that stayed open longer than `Settings.question_seconds`: the policy answers it."""


async def ask_user(state: Run, runtime: Runtime[Settings], *, deps: Deps) -> Run:
    """Take the answer to the pending question, and answers to other open questions that came with it."""
    pending, settings = state["pending"] or {}, settings_of(runtime)
    typed = typed_reply(state["messages"])
    if typed is None and answered_by_policy(pending, settings):
        return _by_policy(state, pending, settings)
    value = interrupt(payload(pending)) if typed is None else typed
    if value == OVERDUE:
        return _by_policy(state, pending, settings)
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


def answered_by_policy(pending: Json, settings: Settings) -> bool:
    """Whether nobody is asked at all: the settings answer questions, and give nobody time to."""
    return pending["kind"] == "question" and settings.on_question != "wait" and settings.question_seconds is None


def _by_policy(state: Run, pending: Json, settings: Settings) -> Run:
    """The settings answer in place of a person; what they assume is recorded like any answer."""
    if settings.on_question == "abort" or pending.get("about"):
        ending = {"code": "unanswered", "reason": f"nobody answered: {pending['question']}"}
        closed = closing(state["messages"], pending, "Nobody answered.")
        return {"ending": ending, "pending": None, "messages": closed}
    default = settings.on_question == "default"
    answer = Answer("answer", settings.default_answer) if default else Answer("declined", ASSUME)
    update = apply_answer(state, pending, answer, by="policy", at=_now())
    return {**update, "pending": None, "messages": closing(state["messages"], pending, answer.text)}  # type: ignore[typeddict-item]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


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
        change = apply_answer(values, pauses[id], answer, at=_now())
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
