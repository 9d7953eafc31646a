"""The plan node: triage, quick and without thinking; then, where that pays, a careful draft. Two phases."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from donewhen.graph.binding import Route, bound
from donewhen.graph.context import Deps, settings_of
from donewhen.graph.events import charged, emit, retracter, sayer
from donewhen.graph.models.ask import Question, Reply, ask
from donewhen.graph.models.briefs import planning_brief, profile_text
from donewhen.graph.models.reading import Correction, Decision, read
from donewhen.graph.models.transcript import called_natively, kept, respond, shown
from donewhen.graph.people.budget import Account, budget_pause
from donewhen.graph.people.pauses import call_id, opening
from donewhen.graph.people.proposal import plan_rules, propose, with_finished
from donewhen.prompts import render
from donewhen.state.language import other_script
from donewhen.state.ledger import Amounts, add, exhausted
from donewhen.state.people.amounts import counted
from donewhen.state.plan.plan import left_out, read_plan
from donewhen.state.proof.journal import answered_before
from donewhen.state.reading.decisions import DRAFT, TRIAGE, control_tools
from donewhen.state.redaction import redact
from donewhen.state.run import Json, Planning, PlanningOutput
from donewhen.state.settings import Settings

NO_QUESTIONS = (
    "No question was asked: the limit of questions is reached. Plan with what is most likely and say so in `speak`."
)
ANSWER_CHARS = 20_000


@dataclass(frozen=True)
class Phase:
    """What differs between the two phases."""

    prompt: str
    role: str
    legal: tuple[str, ...]


PHASES = {"triage": Phase("plan_triage", "triage", TRIAGE), "draft": Phase("plan_draft", "plan", DRAFT)}


def build_plan(deps: Deps) -> CompiledStateGraph[Planning, Settings, Planning, PlanningOutput]:
    """The subgraph of the plan node."""
    graph = StateGraph(Planning, context_schema=Settings, output_schema=PlanningOutput)
    graph.add_node("triage", bound(triage, deps))
    graph.add_node("draft", bound(draft, deps))
    graph.add_conditional_edges(START, Route(first_phase))
    graph.add_conditional_edges("triage", Route(after_triage))
    graph.add_conditional_edges("draft", Route(after_draft))
    return graph.compile()


async def triage(state: Planning, runtime: Runtime[Settings], *, deps: Deps) -> Planning:
    """Phase 1: quick, thinking off, small context. Answers, asks, declines or plans (P01, P02)."""
    return await _round(state, runtime, deps)


async def draft(state: Planning, runtime: Runtime[Settings], *, deps: Deps) -> Planning:
    """Phase 2: thinking on; only when the triage wants it, or when a plan failed (P03)."""
    return await _round(state, runtime, deps)


def first_phase(state: Planning) -> Literal["triage", "draft"]:
    """Where planning goes on: in the phase that its record names."""
    return "draft" if state["planning"]["phase"] == "draft" else "triage"


def after_triage(state: Planning) -> Literal["triage", "draft", "__end__"]:
    """On as long as nothing came out of planning: a plan, a question or an end."""
    return "__end__" if _came_out(state) else first_phase(state)


def after_draft(state: Planning) -> Literal["draft", "__end__"]:
    """As after the triage; but there is no way back to it."""
    return "__end__" if _came_out(state) else "draft"


def _came_out(state: Planning) -> bool:
    return bool(state.get("plan") or state.get("pending") or state.get("ending"))


async def _round(state: Planning, runtime: Runtime[Settings], deps: Deps) -> Planning:
    """One model call of the phase, and what follows from it."""
    settings, planning = settings_of(runtime), state["planning"]
    if planning["rounds"] >= settings.plan_rounds:
        return _fail(state, runtime, deps, "no_plan", f"planning used all its {counted(settings.plan_rounds, 'round')}")
    if settings.late():
        return _fail(state, runtime, deps, "out_of_budget", f"the deadline, {settings.deadline}, has passed")
    if key := exhausted(_left(state), ("model_calls",)):
        return _out_of_budget(state, runtime, deps, key)
    reply = await ask(deps, settings, _question(state, runtime, deps))
    charged(runtime, None, reply.spent)
    after = {**planning, "rounds": planning["rounds"] + 1}
    now: Planning = {**state, "planning": after, "spent": add(state.get("spent"), reply.spent)}
    if reply.error and reply.error.retryable:  # with more to spend, or more time, it would have been asked again
        if key := exhausted(_left(now), ("model_calls",)):
            return {"planning": after, **_out_of_budget(now, runtime, deps, key), "spent": reply.spent}
        if settings.late():
            return {"planning": after, "spent": reply.spent}
    update = _acted(now, reply, runtime, deps)
    return {"planning": after, **update, "spent": add(reply.spent, update.get("spent"))}


def _left(state: Planning) -> Amounts:
    """What planning may still spend: its allowance less what it spent since it started."""
    spent = state.get("spent") or {}
    return {key: max(0, amount - spent.get(key, 0)) for key, amount in (state.get("allowance") or {}).items()}


def _question(state: Planning, runtime: Runtime[Settings], deps: Deps) -> Question:
    """The prompt: instructions and tools first, then the brief, then the rounds; nothing earlier ever changes."""
    settings, phase = settings_of(runtime), PHASES[state["planning"]["phase"]]
    facts = {**state["brief"], "proposal": state["planning"].get("proposal"), "today": f"{datetime.now(UTC):%Y-%m-%d}"}
    messages = [
        SystemMessage(render(phase.prompt, profile=profile_text(settings.profile, language=settings.language))),
        HumanMessage(planning_brief(deps, settings, facts, full=phase.role == "plan")),
        *state.get("transcript", ()),
    ]
    tools, say, retract = control_tools(phase.legal), sayer(runtime, None), retracter(runtime, None)
    return Question(phase.role, messages, tools, allowance=_left(state), say=say, retract=retract, must_call=True)


def _acted(state: Planning, reply: Reply, runtime: Runtime[Settings], deps: Deps) -> Planning:
    """What the reply changes; `state` has this round counted."""
    settings = settings_of(runtime)
    if reply.message is None:
        assert reply.error is not None
        return _fail(state, runtime, deps, "model_error", str(reply.error))
    native = called_natively(state.get("transcript", ()))
    outcome = read(reply.message, PHASES[state["planning"]["phase"]].legal, printed=not native)
    void = isinstance(outcome, Decision) and outcome.kind == "speak"
    # What stands alone decides nothing and is said again with the decision: the user should not read it twice.
    said = "" if void else outcome.speech
    if void:
        outcome = Correction(["a text alone decides nothing here; make one of the legal calls"], printed=not native)
    plan: Json = {}
    if isinstance(outcome, Decision) and outcome.kind == "submit_plan":
        before = (state.get("approval") or {}).get("plan")
        found = read_plan(outcome.arguments, plan_rules(deps, settings, state["brief"].get("finished"), before))
        if isinstance(found, dict) and (extra := left_out(outcome.arguments)):
            emit(runtime, "note", text=f"Left out of the plan, which has no place for it: {', '.join(extra)}.")
        outcome, plan = (Correction(found), plan) if isinstance(found, list) else (outcome, found)
    if isinstance(outcome, Decision) and _wrong_language(state, plan or outcome.arguments, settings):
        outcome = Correction([f"write what the user reads in this language: {settings.language}"])
        state = {**state, "planning": {**state["planning"], "language_told": True}}
    taken = outcome if isinstance(outcome, Decision) else Decision("speak")
    if reply.speech:
        reply.speech.finish(said, taken.kind, taken.arguments)
    if isinstance(outcome, Correction):
        return _corrected(state, reply.message, outcome, runtime, deps)
    return _planned(state, plan, runtime, deps) if plan else _other(state, reply.message, outcome, runtime, deps)


def _wrong_language(state: Planning, said: Json, settings: Settings) -> bool:
    """Whether what the user will read is plainly not in the language that was set; pointed out once (P14)."""
    planning = state["planning"]
    if planning.get("language_told") or planning["corrections"] + 1 >= settings.max_corrections:
        return False
    texts = [said.get(key) for key in ("title", "speak", "text", "question", "guidance")]
    texts += [step["content"] for step in said.get("steps") or ()]
    return other_script(" ".join(text for text in texts if isinstance(text, str)), settings.language)


def _corrected(
    state: Planning, message: AIMessage, correction: Correction, runtime: Runtime[Settings], deps: Deps
) -> Planning:
    """The model is told what was wrong; too many in a row fail the phase (P11)."""
    settings, planning = settings_of(runtime), state["planning"]
    count = planning["corrections"] + 1
    said = redact("; ".join(correction.problems)[:1000])
    emit(runtime, "correction", step=None, text=said[:500])
    if count >= settings.max_corrections:
        return _fail(
            state, runtime, deps, "no_plan", f"{counted(count, 'unusable reply')} in a row; the last: {said[:300]}"
        )
    answered = respond(kept(message), partial(correction.text, PHASES[planning["phase"]].legal))
    return {"planning": {**planning, "corrections": count}, "transcript": [kept(message), *answered]}


def _fail(state: Planning, runtime: Runtime[Settings], deps: Deps, code: str, reason: str) -> Planning:
    """The phase failed: the draft falls back on the triage's plan and says so (P04); else the run ends."""
    planning = state["planning"]
    if planning.get("sketched"):
        emit(runtime, "note", text=f"Careful planning failed ({reason}); going on with the quick plan.")
        return _proposed({**planning, "fell_back": reason}, planning["proposal"], state, runtime, deps)
    return {"ending": {"code": code, "reason": reason}}


def _out_of_budget(state: Planning, runtime: Runtime[Settings], deps: Deps, key: str) -> Planning:
    """A limit is reached: the quick plan if there is one; else by policy a question, or an honest end."""
    settings, planning = settings_of(runtime), state["planning"]
    reason = f"the limit of {key} was reached while planning"
    if planning.get("sketched") or settings.at_limit != "ask":
        return _fail(state, runtime, deps, "stopped" if settings.at_limit == "stop" else "out_of_budget", reason)
    before = state["account"]
    spent = add(before["spent"], state.get("spent"))
    needs = ("questions",) if key == "questions" else ("model_calls",)
    account = Account(settings.limits, before["granted"], spent, done=before["done"], unplanned=True, needs=needs)
    id = f"budget.{planning['transcript']}.{key}.{planning['rounds']}"
    pending = budget_pause(account, key, id)
    return {"pending": pending, "messages": [opening(pending)], "transcripts": {planning["transcript"]: _fresh(state)}}


def _fresh(state: Planning) -> list[AnyMessage]:
    """The rounds that the run does not keep yet."""
    return list(state.get("transcript", ())[state.get("kept", 0) :])


def _planned(state: Planning, plan: Json, runtime: Runtime[Settings], deps: Deps) -> Planning:
    planning = {**state["planning"], "corrections": 0}
    if plan.get("speak"):
        emit(runtime, "speech", step=None, text=plan["speak"])
    if planning["phase"] == "triage" and plan["need_thinking"]:
        emit(runtime, "note", text="This deserves a careful plan; thinking it through.")
        return {"planning": {**planning, "phase": "draft", "proposal": plan, "sketched": True}}
    return _proposed(planning, plan, state, runtime, deps)


def _proposed(planning: Json, plan: Json, state: Planning, runtime: Runtime[Settings], deps: Deps) -> Planning:
    whole = with_finished(plan, state.get("kept_steps") or {})
    emit(runtime, "plan", plan=whole)
    update = propose(whole, state.get("approval"), settings_of(runtime), deps)
    return {"planning": {**planning, "open": False}, **update}  # type: ignore[typeddict-item]


def _other(state: Planning, message: AIMessage, decision: Decision, runtime: Runtime[Settings], deps: Deps) -> Planning:
    """An answer, a question, a refusal."""
    planning, arguments = {**state["planning"], "corrections": 0}, decision.arguments
    if decision.kind == "ask_user":
        return _asks({**state, "planning": planning}, kept(message), decision, runtime, deps)
    if decision.kind == "answer":
        ending = {"code": "answered", "reason": "", "text": arguments["text"], "said": True}
        return {"planning": planning, "ending": ending}
    ending = {"code": "declined", "reason": arguments["reason"], "text": arguments["guidance"]}
    return {"planning": planning, "ending": ending}


def _asks(state: Planning, message: AIMessage, decision: Decision, runtime: Runtime[Settings], deps: Deps) -> Planning:
    """Leave with a question; the answer will be the result of this very call."""
    planning, question = state["planning"], decision.arguments["question"]
    told = ""
    if _left(state).get("questions", 1) < 1:
        if settings_of(runtime).at_limit == "ask":
            return {"planning": planning, **_out_of_budget(state, runtime, deps, "questions")}
        told = NO_QUESTIONS
    if before := answered_before(state.get("asked", ()), question, decision.arguments.get("options")):
        told = f"You asked this before; the answer was:\n{shown(before, ANSWER_CHARS)}"
    if told:
        return {"planning": planning, "transcript": [message, *respond(message, told)]}
    number = planning["questions"] + 1
    pending = {
        "id": f"{planning['transcript']}.q{number}",
        "kind": "question",
        "name": "ask_user",
        "tool_call_id": call_id(),
        "question": question,
        "options": decision.arguments.get("options") or [],
        "step": None,
        "call": decision.id,
    }
    return {
        "planning": {**planning, "questions": number},
        "pending": pending,
        "messages": [opening(pending)],
        "transcripts": {planning["transcript"]: [*_fresh(state), message]},
        "spent": {"questions": 1},
    }
