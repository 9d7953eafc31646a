"""Asking a person: the open question as a pause, with its message in the conversation."""

from langgraph.runtime import Runtime

from donewhen.graph.events import now
from donewhen.graph.models.voice import finished
from donewhen.graph.people.applying import apply_answer
from donewhen.graph.people.budget import budget_pause, one_left, own_left, questions_over, run_account, step_account
from donewhen.graph.people.pauses import asked_now, named, opening, reopened
from donewhen.state.channels import merge_records
from donewhen.state.graph_state import Json
from donewhen.state.language.texts import say
from donewhen.state.ledger import add, exhausted
from donewhen.state.people.answers import Answer
from donewhen.state.plan.progress import Move
from donewhen.state.records import Pause
from donewhen.state.settings import Settings

NO_QUESTIONS = (
    "No question was asked: the limit of questions is reached. Go on without the answer: take what is most likely "
    "and say so in the result, or give_up."
)


def ask_waiting(values: Json, move: Move, settings: Settings, runtime: Runtime[Settings]) -> Json:
    """Ask the first of the steps that wait; for all of them the time runs from the first time they are listed.

    A question counts when it is first listed. One too many offers an extension, or is answered by policy (H13, Q7).
    """
    waiting = {id: values["steps"][id]["waiting"] for id in move.steps}
    new = [id for id, pause in waiting.items() if pause["kind"] == "question" and "asked_at" not in pause]
    over = questions_over(values, settings, new)
    listed = [id for id in move.steps if id not in over]
    if not listed:
        return _one_question_more(values, over[0], settings)
    asked_at = now()
    stamped: Json = {id: {"waiting": {"asked_at": asked_at, **waiting[id]}} for id in listed}
    for id in set(new) - set(over):
        stamped[id]["spent"] = add(values["steps"][id].get("spent"), {"questions": 1})
    steps = merge_records({id: values["steps"][id] for id in values["steps"] if id not in over}, stamped)
    asked = posed(values, asked_now({**values, "steps": steps, "pending": None}))
    return {**asked, "steps": stamped, "spent": {"questions": len(new) - len(over)} if len(new) > len(over) else {}}


def _one_question_more(values: Json, id: str, settings: Settings) -> Json:
    """More may be asked if a person says so; where nobody is asked about limits, the step goes on without."""
    pause = values["steps"][id]["waiting"]
    if settings.at_limit != "ask":
        return apply_answer(values, pause, Answer("declined", NO_QUESTIONS), by="policy", at=now())
    own = exhausted(own_left(values, settings, id), ("questions",)) == "questions"
    needs = ("questions",)
    account = step_account(values, settings, id, needs) if own else run_account(values, settings, needs=needs)
    name = f"budget.{id if own else 'run'}.questions.{account.total('questions'):g}"
    asked = budget_pause(account, "questions", name, replans_left=one_left(values, settings, "replans"))
    wants = say(account.language, "ask", "wants", step=id, question=inset(str(pause["question"])))
    return posed(values, {**asked, "question": f"{asked['question']}\n\n{wants}"})


def posed(values: Json, pending: Pause) -> Json:
    """The update with which a run waits for this answer; people are told the question."""
    pending = reopened(values["messages"], {"asked_at": now(), **named(values, pending)})
    asked = opening(pending)
    finished(asked, str(pending.get("question") or ""), inside=False)
    return {"pending": pending, "messages": [asked]}


def inset(text: str) -> str:
    """To stand within a line of our own, so that no line of it looks like one of those."""
    return "\n    ".join(text.splitlines())
