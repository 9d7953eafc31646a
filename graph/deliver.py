"""The deliver node: the only one that ends a run. The answer is written from the receipt, by a model or by code."""

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langgraph.runtime import Runtime

from donewhen.graph.context import Deps, settings_of
from donewhen.graph.events import answerer, emit, retracter
from donewhen.graph.models.ask import Question, ask
from donewhen.graph.models.briefs import delivery_brief, profile_text
from donewhen.graph.models.forms import from_text
from donewhen.graph.models.reading import Decision, read
from donewhen.graph.people.pauses import closing
from donewhen.prompts import instructions
from donewhen.state.ledger import Amounts, add, exhausted, remaining
from donewhen.state.people.texts import catalogue
from donewhen.state.proof.outcome import left_over, not_asked, receipt, status_of, summary, unproven, what_next
from donewhen.state.proof.receipt import Receipt
from donewhen.state.reading.decisions import DELIVER, control_tools
from donewhen.state.reading.extraction import prose
from donewhen.state.run import Json, Run, todos
from donewhen.state.settings import Settings
from donewhen.state.values import whole

ANSWER_CHARS = 50_000
BY_CODE = ("cancelled", "model_error", "stopped")
"""Ends after which no model is asked for words: the user said stop, or there is no model."""


async def deliver(state: Run, runtime: Runtime[Settings], *, deps: Deps) -> Run:
    """End the run: one outcome, a text for the user, a receipt. An outcome that is set stays (D01)."""
    if state.get("outcome"):
        return {}
    settings, ending = settings_of(runtime), state.get("ending") or {"code": "worked", "reason": ""}
    code, steps = ending["code"], _ended(state.get("steps") or {}, ending)
    values: Json = {**state, "steps": steps}
    status = status_of(code, state.get("plan"), steps, settings)
    text, spent = await _text(values, ending, receipt(values, settings, status, code), deps, runtime)
    final = receipt({**values, "spent": add(state.get("spent"), spent)}, settings, status, code)
    checklist = todos(state.get("plan"), steps)
    emit(runtime, "todos", todos=checklist)
    emit(runtime, "spent", meter=final["meter"])
    pending = state.get("pending")
    closed = closing(state.get("messages") or (), pending, "Ended.") if pending else []
    said: list[AnyMessage] = [*closed, AIMessage(text)]
    return {
        "messages": said,
        "outcome": {"status": status, "code": code, "text": text, "reason": ending["reason"], "receipt": final},
        "steps": steps,
        "pending": None,
        "spent": spent,
        "todos": checklist,
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


async def _text(
    values: Json, ending: Json, draft: Receipt, deps: Deps, runtime: Runtime[Settings]
) -> tuple[str, Amounts]:
    """What the user reads, and what writing it cost. Where one step's result is the answer, no model is asked (D05)."""
    settings, done = settings_of(runtime), [row for row in draft["steps"] if row["status"] == "done"]
    language = values.get("language", "en")
    by_code = "\n\n".join(part for part in (ending.get("text") or "", _by_code(draft, ending, language)) if part)
    left = remaining(settings.limits, values.get("granted"), values.get("spent"))
    if len(draft["steps"]) == len(done) == 1 and draft["status"] == "completed":
        return _said(runtime, "\n".join([done[0]["result"], *_unsaid(draft, language)])), {}
    if not done or ending.get("text") or ending["code"] in BY_CODE or exhausted(left, ("model_calls",)):
        told = ending.get("said") and by_code == ending["text"]  # by the model, as it wrote it
        return by_code if told else _said(runtime, by_code), {}
    reply = await ask(deps, settings, _question(values, ending, draft, left, runtime))
    answer = _written(reply.message)
    if not answer:
        emit(runtime, "note", text="The answer could not be written by the model; this is a summary by the runtime.")
        return _said(runtime, by_code), reply.spent
    text = "\n".join([answer, *_unsaid(draft, language)])
    if reply.speech:
        reply.speech.finish(text)
    return text, reply.spent


def _question(values: Json, ending: Json, draft: Receipt, left: Amounts, runtime: Runtime[Settings]) -> Question:
    settings, fence = settings_of(runtime), values.get("fence", "")
    profile = profile_text(settings.profile, language=settings.language)
    told = delivery_brief(values, draft, settings, ending["reason"], fence)
    return Question(
        "deliver",
        [SystemMessage(instructions("deliver", profile)), HumanMessage(told)],
        control_tools(DELIVER),
        allowance=left,
        say=answerer(runtime),
        retract=retracter(runtime, None),
        must_call=True,
    )


def _written(message: AIMessage | None) -> str:
    """The answer in a reply, called, printed or plain; "" if there is none. JSON in a plain answer belongs to it."""
    if message is None:
        return ""
    outcome, text = read(message, DELIVER, printed=False), whole(str(message.text))
    if isinstance(outcome, Decision) and outcome.kind == "deliver":
        return str(outcome.arguments["text"]).strip()[:ANSWER_CHARS]
    printed = from_text(text, ["deliver", "answer"])
    said = [str(call["args"].get("text") or "") for call in printed.calls if call["name"] in ("deliver", "answer")]
    return (said[0] if said and printed.whole else prose(text, None)).strip()[:ANSWER_CHARS]


def _by_code(draft: Receipt, ending: Json, language: str) -> str:
    """What became of the steps, in words made by code; "" where there were none and all is said."""
    known = catalogue(language)["why"]
    first, reason = known.get(ending["code"], ""), str(ending["reason"]).strip()[:1000]
    if ending["code"] == "declined":
        reason = ""  # for the log; what users read is the guidance
    why = f"{first}: {reason}" if first and reason else f"{first}." if first else reason
    return "" if ending.get("text") and not draft["steps"] else summary(draft, why, language)


def _said(runtime: Runtime[Settings], text: str) -> str:
    """A text that no model streamed reaches the listeners all the same."""
    answerer(runtime)(text)
    return text


def _unsaid(draft: Receipt, language: str) -> list[str]:
    """Whatever the model wrote: what was assumed, what is not done, and what would come next (D03)."""
    lines = [*unproven(draft, language), *not_asked(draft, language), *left_over(draft, language)]
    return ["", *lines, *what_next(draft, language)] if lines else []
