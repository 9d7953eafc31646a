"""What comes out of planning: a plan, an answer, a question, a refusal, a correction, or an honest end."""

from dataclasses import replace
from functools import partial

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.runtime import Runtime

from donewhen.graph.calls.invoking import left_of
from donewhen.graph.context import Deps, settings_of
from donewhen.graph.events import emit, mode_chosen
from donewhen.graph.models.output import Form
from donewhen.graph.models.reading import Decision, Unusable
from donewhen.graph.models.transcript import kept, respond, shown
from donewhen.graph.models.voice import Voice, finished
from donewhen.graph.people.budget import Account, budget_pause
from donewhen.graph.people.consent import propose
from donewhen.graph.people.pauses import opening, pause
from donewhen.state.graph_state import Json, Planning
from donewhen.state.language.texts import say
from donewhen.state.ledger import add
from donewhen.state.people.amounts import counted
from donewhen.state.plan.modes import PROMOTED, mode_row
from donewhen.state.plan.reopening import joined, work_of
from donewhen.state.proof.evidence import Ground, Seen, ground
from donewhen.state.proof.journal import answered_before
from donewhen.state.reading.decisions import DRAFT, TRIAGE
from donewhen.state.records import Mode
from donewhen.state.secrets import redact
from donewhen.state.settings import Settings

NO_QUESTIONS = (
    "No question was asked: the limit of questions is reached. Plan with what is most likely and say so in `speak`."
)
EXAMPLE = (
    'A good reply is one call and nothing else, such as submit_plan with {"title": "Tidy up", "steps": [{"content": '
    '"Move the old files to old/", "done_when": ["no file older than a year is left"], "tools": ["move_file"]}]}, or '
    'ask_user with {"question": "Which files?"}.'
)
REPEATED = (
    "this is, step for step, what failed already; find another way, or ask_user, or decline. If it should be tried "
    "again as it is, ask_user whether to"
)
ANSWER_CHARS = 20_000
LEGAL = {"triage": TRIAGE, "draft": DRAFT}


def legal_now(phase: str, settings: Settings) -> tuple[str, ...]:
    """The decisions of a phase, less the one that a forced mode leaves no room for."""
    gone = {"auto": "", "answer": "submit_plan"}.get(settings.mode, "answer")
    return tuple(name for name in LEGAL[phase] if name != gone)


def corrected(
    state: Planning,
    message: AIMessage,
    correction: Unusable,
    runtime: Runtime[Settings],
    deps: Deps,
    legal: tuple[str, ...],
) -> Planning:
    """The model is told what was wrong; too many in a row fail the phase (P11)."""
    settings, planning = settings_of(runtime), state["planning"]
    count = planning["corrections"] + 1
    said = redact("; ".join(correction.problems)[:1000])
    emit(runtime, "correction", step=None, text=said[:500])
    if count >= settings.max_corrections:
        reason = f"{counted(count, 'unusable reply')} in a row; the last: {said[:300]}"
        return fail(state, runtime, deps, "no_plan", reason)
    correction = replace(correction, hint=EXAMPLE) if count == settings.max_corrections - 1 else correction
    told = respond(kept(message), partial(correction.text, legal))
    return {"planning": {**planning, "corrections": count}, "transcript": [kept(message), *told]}


def fail(state: Planning, runtime: Runtime[Settings], deps: Deps, code: str, reason: str) -> Planning:
    """The phase failed: the draft falls back on the triage's plan and says so (P04); else the run ends."""
    planning = state["planning"]
    if planning.get("sketched"):
        emit(runtime, "note", text=f"Careful planning failed ({reason}); going on with the quick plan.")
        return _proposed({**planning, "fell_back": reason}, planning["proposal"], state, runtime, deps)
    return {"ending": {"code": code, "reason": reason}}


def out_of_budget(state: Planning, runtime: Runtime[Settings], deps: Deps, key: str) -> Planning:
    """A limit is reached: the quick plan if there is one; else by policy a question, or an honest end."""
    settings, planning = settings_of(runtime), state["planning"]
    reason = f"the limit of {key} was reached while planning"
    if planning.get("sketched") or settings.at_limit != "ask":
        return fail(state, runtime, deps, "stopped" if settings.at_limit == "stop" else "out_of_budget", reason)
    before = state["account"]
    spent = add(before["spent"], state.get("spent"))
    needs = (key,) if key in ("questions", "tool_calls") else ("model_calls",)
    more: Json = {"done": before["done"], "unplanned": True, "needs": needs, "language": _language(state)}
    account = Account(settings.limits, before["granted"], spent, **more)
    id = f"budget.{planning['transcript']}.{key}.{planning['rounds']}"
    pending = budget_pause(account, key, id)
    rounds = list(state.get("transcript", ()))
    return {"pending": pending, "messages": [opening(pending)], "transcripts": {planning["transcript"]: rounds}}


def planned(
    state: Planning, message: AIMessage, decision: Decision, plan: Json, runtime: Runtime[Settings], deps: Deps
) -> Planning:
    """A plan: on to the careful draft if the triage wants one, else to consent. Not one that failed already."""
    tried = () if state["planning"].get("feedback") else state["planning"].get("tried", ())
    if work_of(plan, state.get("kept_steps") or {}) in tried:
        return _repeated(state, message, decision, runtime, deps)
    planning = {**state["planning"], "corrections": 0}
    if planning["phase"] == "triage" and plan["need_thinking"]:
        emit(runtime, "note", text="This deserves a careful plan; thinking it through.")
        return {"planning": {**planning, "phase": "draft", "proposal": plan, "sketched": True}}
    return _proposed(planning, plan, state, runtime, deps)


def _repeated(
    state: Planning, message: AIMessage, decision: Decision, runtime: Runtime[Settings], deps: Deps
) -> Planning:
    """The work that failed already, proposed again: the planner is told, then a person; else it ends here (M7)."""
    planning, settings = state["planning"], settings_of(runtime)
    if not planning.get("repeat_told"):
        told: Planning = {**state, "planning": {**planning, "repeat_told": True}}
        return corrected(told, message, Unusable([REPEATED]), runtime, deps, legal_now(planning["phase"], settings))
    emit(runtime, "note", text="The planner proposes again what failed already.")
    if settings.alone:
        return fail(state, runtime, deps, "no_plan", "what failed already was planned again")
    steps = "; ".join(step["content"] for step in decision.arguments.get("steps") or () if isinstance(step, dict))
    question = say(_language(state), "ask", "repeated", steps=steps[:500])
    again: Planning = {**state, "planning": {**planning, "tried": []}}
    return asks(again, message, Decision("ask_user", {"question": question}, id=decision.id), runtime, deps)


def _proposed(planning: Json, plan: Json, state: Planning, runtime: Runtime[Settings], deps: Deps) -> Planning:
    settings = settings_of(runtime)
    found = joined(plan, (state.get("approval") or {}).get("plan"), state.get("kept_steps") or {})
    assert isinstance(found, tuple), found
    whole, stale = found
    count = len(whole["steps"])
    enough = "enough" if count == 1 else "takes"
    reason = planning.get("reason") or say(_language(state), "mode", enough, number=count)
    mode: Mode = "plan" if count > 1 or planning.get("promoted") else "step"
    modes = _mode(planning, mode, reason, runtime)
    emit(runtime, "plan", plan=whole)
    ask = planning.get("promoted") == f"{PROMOTED}write"
    language, granted = _language(state), (state.get("account") or {}).get("granted")
    update = propose(whole, state.get("approval"), settings, deps, language, granted=granted, ask=ask)
    return {"planning": {**planning, "open": False, "stale": stale}, **modes, **update}  # type: ignore[typeddict-item]


def _mode(planning: Json, mode: Mode, reason: str, runtime: Runtime[Settings]) -> Planning:
    """What is made of the request, told and written down where it is not what it was before."""
    if planning.get("mode") == mode:
        return {}
    by = "triage" if planning["phase"] == "triage" else "plan"
    row = mode_row(mode, by if settings_of(runtime).mode == "auto" else "settings", reason)
    mode_chosen(runtime, row)
    return {"modes": [dict(row)]}


def looks(state: Planning, message: AIMessage, decision: Decision) -> Planning:
    """Calls that read, for the next node; what was wrong with others of the same reply is told at once."""
    native = bool(message.tool_calls or message.invalid_tool_calls)
    calls = [{**call, "native": native, "position": number} for number, call in enumerate(decision.calls)]
    told = [ToolMessage(text, tool_call_id=id) for id, text in decision.refused.items()] if native else []
    planning = {**state["planning"], "corrections": 0, "texts": 0, "calls": calls}
    return {"planning": planning, "transcript": [message, *told]}


def answered(
    state: Planning,
    message: AIMessage,
    decision: Decision,
    runtime: Runtime[Settings],
    deps: Deps,
    voice: Voice,
    form: Form | None,
) -> Planning:
    """The goal is settled without a plan. What it cites must hold, and data be in its form: that is mended once."""
    planning, arguments = state["planning"], decision.arguments
    entries = [*state.get("known", ()), *state.get("journal", ())]
    found = ground(arguments["text"], arguments, Seen(entries, "p")) if arguments.get("evidence") else Ground()
    good, problems = found.evidence, [f"evidence: {each}" for each in (*found.problems, *found.imprecise)]
    data, flaws = form.read(arguments, arguments["text"]) if form else (None, [])
    if (problems or flaws) and not planning.get("answer_told"):
        told: Planning = {**state, "planning": {**planning, "answer_told": True}}
        wrong = Unusable([*problems, *flaws])
        return corrected(told, message, wrong, runtime, deps, legal_now("triage", settings_of(runtime)))
    ending = {"code": "answered", "reason": "", "text": arguments["text"], "said": True, "evidence": good}
    ending["message_id"] = voice.id("answer.text")
    if form and not flaws:
        ending["output"] = data
    seen = ", ".join(dict.fromkeys(item["observation"] for item in good))
    why = arguments.get("reason") or (f"what was read answers it: {seen}" if seen else "it needs no work")
    return {"planning": {**planning, "corrections": 0}, "ending": ending, **_mode(planning, "answer", why, runtime)}


def declined(
    state: Planning, message: AIMessage, decision: Decision, runtime: Runtime[Settings], deps: Deps, voice: Voice
) -> Planning:
    """It cannot be done here: the reason for the log, guidance for the user."""
    arguments = decision.arguments
    ending = {"code": "declined", "reason": arguments["reason"], "text": arguments["guidance"]}
    return {"planning": {**state["planning"], "corrections": 0}, "ending": ending}


def asks(
    state: Planning,
    message: AIMessage,
    decision: Decision,
    runtime: Runtime[Settings],
    deps: Deps,
    voice: Voice | None = None,
) -> Planning:
    """Leave with a question; the answer will be the result of this very call."""
    planning, question = {**state["planning"], "corrections": 0}, decision.arguments["question"]
    told = ""
    if left_of(state).get("questions", 1) < 1:
        if settings_of(runtime).at_limit == "ask":
            return {"planning": planning, **out_of_budget(state, runtime, deps, "questions")}
        told = NO_QUESTIONS
    if before := answered_before(state.get("asked", ()), question, decision.arguments.get("options"), step="plan"):
        told = f"You asked this before; the answer was:\n{shown(before, ANSWER_CHARS)}"
    if told:
        return {"planning": planning, "transcript": [message, *respond(message, told)]}
    number = planning["questions"] + 1
    pending = pause(
        "question",
        f"{planning['transcript']}.q{number}",
        question,
        options=decision.arguments.get("options") or (),
        call=decision.id,
        message_id=voice.id("ask_user.question") if voice else None,
        language=_language(state),
    )
    asked = opening(pending)
    finished(asked, question, inside=True)
    return {
        "planning": {**planning, "questions": number},
        "pending": pending,
        "messages": [asked],
        "transcripts": {planning["transcript"]: [*state.get("transcript", ()), message]},
        "spent": {"questions": 1},
    }


def _language(state: Planning) -> str:
    return str(state["brief"].get("language") or "en")
