"""An answer on its way into the run: read for every pause it names, all of it or nothing, and what it changes. Pure."""

from dataclasses import replace
from typing import Any

from donewhen.graph.context import Deps
from donewhen.graph.events import now
from donewhen.graph.people.applying import apply_answer
from donewhen.graph.people.consent import decide_plan, edited_plan
from donewhen.graph.people.pauses import asked_again, closing, open_pauses, opening, reopened
from donewhen.state.graph_state import Json, RunState
from donewhen.state.people.answers import Answer, Bundle, read_answer
from donewhen.state.people.grammar import JUDGEMENT
from donewhen.state.records import Pause
from donewhen.state.settings import Settings
from donewhen.state.updates import applied, together
from donewhen.state.values import flaw

AGAIN = (
    "“approve” is what was said to the pause before; from a second window it would be no answer to this question. "
    "Answer it, or approve once more to leave it to the agent's judgement"
)
ASSUME = "Nobody answers; assume what is most likely, and say in {where} what was assumed."
OVERDUE = {"overdue": True}
"""In place of an answer to what is open longer than `Settings.question_seconds`: the policy answers it."""
BY_POLICY = ("question", "budget")
"""What a policy may answer; plans, calls and effects are for people."""
Taken = tuple[Pause, Answer, str]
"""What was asked, the answer, and by whom it is."""


def take(state: RunState, pending: Pause, value: Any, deps: Deps, settings: Settings) -> RunState:
    """The update for what came as the answer to `pending`: an answer, or answers by id to any of the open questions.

    If any of it is not understood, nothing is taken and the pause stays. Questions not answered stay open.
    """
    read = None if value == OVERDUE else read_answer(value, pending)
    answers = read.answers if isinstance(read, Bundle) else {pending["id"]: value}
    pauses = {pause["id"]: pause for pause in open_pauses(state)}
    taken: list[Taken] = []
    problems = []
    for id, given in answers.items():
        one = _one(state, pauses.get(id), given, deps, settings)
        if isinstance(one, str):
            problems.append(one if len(answers) == 1 else f"{id}: {one}")
        else:
            taken.append(one)
    now = [one for one in taken if one[1].kind != "later"]
    if problems or not now:
        return asked_again(state, pending, "; ".join(problems), answers.get(pending["id"]))
    return _update(state, pending, now)


def answered_by_policy(pending: Pause, settings: Settings) -> bool:
    """Whether nobody is asked at all: the settings answer questions, and give nobody time to."""
    return pending["kind"] == "question" and settings.alone


def _one(state: RunState, pause: Pause | None, value: Any, deps: Deps, settings: Settings) -> Taken | str:
    if pause is None:
        return "stale: nothing waits under this id"
    if value == OVERDUE and pause["kind"] in BY_POLICY and settings.on_question != "wait":
        return pause, _policy(pause, settings), "policy"
    answer = read_answer(value, pause)
    if isinstance(answer, Bundle):
        answer = read_answer(answer.answers.get(pause["id"]), pause)
    if not isinstance(answer, Answer):
        return str(answer)
    if answer.text == JUDGEMENT and _approved_last(state) and not pause.get("problem"):
        return AGAIN
    if answer.kind == "edit" and pause["kind"] == "tool":
        if unfit := flaw(answer.arguments):
            return f"the edited arguments cannot be stored: something {unfit}"
        wrong = [] if pause.get("relayed") else _edited_problems(pause["tool"], answer.arguments or {}, deps)
        return "; ".join(wrong) if wrong else (pause, answer, "user")
    if answer.plan is not None:
        plan = edited_plan(state, pause, answer, deps, settings)
        return plan if isinstance(plan, str) else (pause, replace(answer, plan=plan), "user")
    return pause, answer, "user"


def _approved_last(state: RunState) -> bool:
    rows = state.get("approvals") or [{}]
    return bool(rows[-1].get("decision") == "approve" and rows[-1].get("by") == "user")


def _edited_problems(name: str, arguments: Json, deps: Deps) -> list[str]:
    """What is wrong with edited arguments: of a tool, or of an executor that works by itself, which takes a brief."""
    if name in deps.toolbox:
        return deps.toolbox.problems(name, arguments)
    fits = set(arguments) == {"brief"} and isinstance(arguments["brief"], str)
    return [] if fits else [f"{name} takes one argument, brief, a text"]


def _policy(pause: Pause, settings: Settings) -> Answer:
    if pause["kind"] == "budget":
        return Answer("deliver", "nobody answered")
    if pause.get("about") == "early":
        return Answer("declined", "nobody answered; the plan goes on")
    if settings.on_question == "abort" or pause.get("about"):
        return Answer("cancel", "nobody answered")
    if settings.on_question == "default" and settings.default_answer.strip():
        return Answer("answer", settings.default_answer)
    return Answer("declined", ASSUME.format(where="the result" if pause["step"] else "`speak`"))


def _update(state: RunState, pending: Pause, taken: list[Taken]) -> RunState:
    """All answers as one update, each made from the state in which the ones before it are applied."""
    values: Json = dict(state)
    update: Json = {}
    at = now("milliseconds")
    for pause, answer, by in taken:
        decide = decide_plan if pause["kind"] == "plan" else apply_answer
        change = decide(values, pause, answer, by=by, at=at)
        values, update = applied(values, change), together(update, change)
    said = next((answer for pause, answer, _ in taken if pause["id"] == pending["id"]), None)
    return {**update, **_asking(state, pending, said, ended="ending" in update)}  # type: ignore[typeddict-item]


def _asking(state: RunState, pending: Pause, said: Answer | None, *, ended: bool) -> RunState:
    """What becomes of the question asked now."""
    messages = state["messages"]
    if said is not None or ended:
        return {"pending": None, "messages": closing(messages, pending, _words(pending, said))}
    if pending["step"] is not None or pending["kind"] == "budget":
        # Those who were answered go on first; this one is asked again afterwards.
        return {"pending": None, "messages": closing(messages, pending, "Asked again later.")}
    kept = reopened(messages, {**pending, "problem": "", "draft": None})
    return {"pending": kept, "messages": [*closing(messages, pending, "Asked again."), opening(kept)]}


def _words(pending: Pause, answer: Answer | None) -> str:
    if answer is None:
        return "Ended."
    if pending["kind"] == "plan":
        fixed = {"approve": "Approved.", "edit": "Approved with changes.", "cancel": "Cancelled."}
        return fixed.get(answer.kind) or f"Rejected: {answer.text}".rstrip(": ")
    return answer.text or answer.kind
