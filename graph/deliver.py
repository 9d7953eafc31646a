"""The deliver node: the only one that ends a run. The answer is written from the receipt, by a model or by code."""

from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langgraph.runtime import Runtime

from graph.asking import Question, ask
from graph.briefs import delivery_brief, profile_text
from graph.context import Deps, settings_of
from graph.events import emit, retracter, sayer
from graph.pauses import closing
from prompts import render
from state.ledger import Amounts, add, remaining
from state.outcome import left_over, receipt, status_of, summary
from state.run import Json, Run, todos
from state.settings import Settings

ANSWER_CHARS = 50_000


async def deliver(state: Run, runtime: Runtime[Settings], *, deps: Deps) -> Run:
    """End the run: one outcome, a text for the user, a receipt."""
    if state.get("outcome"):
        return {}
    settings, ending = settings_of(runtime), state.get("ending") or {"code": "worked", "reason": ""}
    steps = _ended(state.get("steps") or {}, ending)
    values: Json = {**state, "steps": steps}
    status = status_of(ending["code"], state.get("plan"), steps, settings)
    draft = receipt(values, settings, status, ending["code"])
    text, spent = await _text(values, ending, draft, deps, runtime)
    final = receipt({**values, "spent": add(state.get("spent"), spent)}, settings, status, ending["code"])
    outcome = {"status": status, "code": ending["code"], "text": text, "reason": ending["reason"], "receipt": final}
    emit(runtime, "todos", todos=todos(state.get("plan"), steps))
    pending = state.get("pending")
    closed = closing(state.get("messages") or (), pending, "Ended.") if pending else []
    said: list[AnyMessage] = [*closed, AIMessage(text)]
    return {
        "messages": said,
        "outcome": outcome,
        "steps": steps,
        "pending": None,
        "spent": spent,
        "todos": todos(state.get("plan"), steps),
    }


def _ended(records: Json, ending: Json) -> Json:
    """Steps that were under way when the run ended are skipped, with the reason."""
    under_way = ("pending", "ready", "waiting", "running")
    change = {"status": "exhausted" if ending["code"] in ("out_of_budget", "stopped") else "skipped"}
    reason = ending["reason"] or ending["code"]
    return {
        id: {**record, **change, "reason": reason, "waiting": None} if record.get("status") in under_way else record
        for id, record in records.items()
    }


async def _text(values: Json, ending: Json, draft: Json, deps: Deps, runtime: Runtime[Settings]) -> tuple[str, Amounts]:
    """What the user reads, and what writing it cost."""
    settings = settings_of(runtime)
    if ending.get("text"):
        return _said(runtime, ending["text"]), {}
    if not any(row["status"] == "done" for row in draft["steps"]) or ending["code"] in (
        "cancelled",
        "model_error",
        "stopped",
    ):
        return _said(runtime, summary(draft, _why(ending))), {}
    prompt = render("deliver", profile=profile_text(settings.profile))
    text = delivery_brief(values["goal"], draft, settings, ending["reason"])
    left = remaining(settings.limits, values.get("granted"), values.get("spent"))
    if left.get("model_calls", 1) < 1:
        return _said(runtime, summary(draft, _why(ending))), {}
    messages = [SystemMessage(prompt), HumanMessage(text)]
    reply = await ask(
        deps,
        settings,
        Question(
            "deliver",
            messages,
            allowance={**left, "model_calls": 1},
            say=sayer(runtime, None),
            retract=retracter(runtime, None),
        ),
    )
    answer = reply.message.text.strip()[:ANSWER_CHARS] if reply.message else ""
    if not answer:
        emit(runtime, "note", text="The answer could not be written by the model; this is a summary by the runtime.")
        return _said(runtime, summary(draft, _why(ending))), reply.spent
    text = "\n".join([answer, *_unsaid(draft)])
    if reply.speech:
        reply.speech.finish(text)
    return text, reply.spent


def _said(runtime: Runtime[Settings], text: str) -> str:
    """A text that no model streamed reaches the listeners all the same."""
    sayer(runtime, None)(text)
    return text


def _unsaid(draft: Json) -> list[str]:
    """Whatever the model wrote, what is not done is listed."""
    lines = left_over(draft)
    return ["", *lines] if lines else []


def _why(ending: Json) -> str:
    """The first line of a summary by code."""
    words: dict[str, str] = {
        "cancelled": "Cancelled.",
        "no_plan": "No usable plan came out of planning.",
        "model_error": "The model could not be used.",
        "out_of_budget": "The budget is used up.",
        "stopped": "Stopped at the budget.",
        "unanswered": "A question stayed open.",
    }
    return " ".join(part for part in (words.get(ending["code"], ""), _sentence(ending["reason"])) if part)


def _sentence(text: Any) -> str:
    return f"{str(text).strip()[:1000]}"
