"""The plan node: triage, quick and without thinking; then, where that pays, a careful draft. Two checkpointed phases."""

from typing import Literal

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from graph.asking import Question, Reply, ask
from graph.binding import bound
from graph.briefs import planning_brief, profile_text
from graph.context import Deps, settings_of
from graph.decide import Correction, Decision, kept, read, respond
from graph.events import emit, retracter, sayer
from graph.pauses import call_id, opening
from graph.proposal import plan_rules, propose, with_finished
from graph.transcript import shown
from prompts import render
from state.decisions import DRAFT, TRIAGE, control_tools
from state.journal import answered_before
from state.ledger import add, exhausted
from state.plan import read_plan
from state.run import Json, Planning, PlanningOutput
from state.settings import Settings


def build_plan(deps: Deps) -> CompiledStateGraph[Planning, Settings, Planning, PlanningOutput]:
    """The subgraph of the plan node."""

    graph = StateGraph(Planning, context_schema=Settings, output_schema=PlanningOutput)
    graph.add_node("triage", bound(triage, deps))
    graph.add_node("draft", bound(draft, deps))
    graph.add_conditional_edges(START, _first_phase)
    graph.add_conditional_edges("triage", after_phase)
    graph.add_conditional_edges("draft", after_phase)
    return graph.compile()


async def triage(state: Planning, runtime: Runtime[Settings], *, deps: Deps) -> Planning:
    """Phase 1: quick, thinking off, small context. Answers, asks, declines or plans."""
    return await _phase("triage", state, runtime, deps)


async def draft(state: Planning, runtime: Runtime[Settings], *, deps: Deps) -> Planning:
    """Phase 2: thinking on; only when the triage wants it."""
    return await _phase("draft", state, runtime, deps)


def _first_phase(state: Planning) -> Literal["triage", "draft"]:
    return "draft" if state["planning"]["phase"] == "draft" else "triage"


def after_phase(state: Planning) -> Literal["triage", "draft", "__end__"]:
    """On as long as nothing came out of planning: a plan, a question or an end."""
    if state.get("plan") or state.get("pending") or state.get("ending"):
        return "__end__"
    return "draft" if state["planning"]["phase"] == "draft" else "triage"


async def _phase(
    phase: Literal["triage", "draft"], state: Planning, runtime: Runtime[Settings], deps: Deps
) -> Planning:
    """One model call of a phase, and what follows from it."""
    settings, planning = settings_of(runtime), state["planning"]
    left = remaining_of(state)
    if planning["rounds"] >= settings.plan_rounds:
        return _fail(state, runtime, "no_plan", f"planning used all its {settings.plan_rounds} rounds")
    if key := exhausted(left, ("model_calls",)):
        return {"ending": {"code": "out_of_budget", "reason": f"the limit of {key} was reached while planning"}}
    legal = TRIAGE if phase == "triage" else DRAFT
    facts = {**state["brief"], "proposal": planning.get("proposal")}
    prompt = render(f"plan_{phase}", profile=profile_text(settings.profile))
    messages = [SystemMessage(prompt), HumanMessage(planning_brief(deps, settings, facts, full=phase == "draft"))]
    role = "triage" if phase == "triage" else "plan"
    reply = await ask(
        deps,
        settings,
        Question(
            role,
            [*messages, *state.get("transcript", ())],
            control_tools(legal),
            allowance=left,
            say=sayer(runtime, None),
            retract=retracter(runtime, None),
        ),
    )
    counted = {**planning, "rounds": planning["rounds"] + 1}
    update = _act(phase, state, reply, {**state, "planning": counted}, runtime, deps)
    return {"planning": counted, **update, "spent": add(reply.spent, update.get("spent"))}


def remaining_of(state: Planning) -> dict[str, float]:
    """What planning may still spend: its allowance less what it spent since it started."""
    spent = state.get("spent") or {}
    return {key: max(0, amount - spent.get(key, 0)) for key, amount in (state.get("allowance") or {}).items()}


def _act(
    phase: Literal["triage", "draft"],
    state: Planning,
    reply: Reply,
    now: Planning,
    runtime: Runtime[Settings],
    deps: Deps,
) -> Planning:
    settings = settings_of(runtime)
    if reply.message is None:
        assert reply.error is not None
        if phase == "triage":
            return {"ending": {"code": "model_error", "reason": str(reply.error), "error": reply.error.code}}
        return _fail(now, runtime, "model_error", str(reply.error))
    outcome = read(reply.message, TRIAGE if phase == "triage" else DRAFT)
    if reply.speech:
        reply.speech.finish(outcome.speech)
    if isinstance(outcome, Decision) and outcome.kind == "speak":
        outcome = Correction(["a text alone decides nothing here; make one of the legal calls"], outcome.speech)
    plan = None
    if isinstance(outcome, Decision) and outcome.kind == "submit_plan":
        plan = read_plan(outcome.arguments, plan_rules(deps, settings, state["brief"].get("finished")))
        if isinstance(plan, list):
            outcome = Correction(plan)
    if isinstance(outcome, Correction):
        return _corrected(phase, now, reply.message, outcome, runtime)
    if isinstance(plan, dict):
        return _planned(phase, now, plan, runtime)
    return _other(now, reply.message, outcome)


def _corrected(
    phase: str, state: Planning, message: AIMessage, correction: Correction, runtime: Runtime[Settings]
) -> Planning:
    settings, planning = settings_of(runtime), state["planning"]
    count = planning["corrections"] + 1
    emit(runtime, "correction", step=None, text="; ".join(correction.problems)[:500])
    if count >= settings.max_corrections:
        why = f"{count} unusable replies in a row; the last: {'; '.join(correction.problems)[:300]}"
        return _fail(state, runtime, "no_plan", why)
    said = kept(message)
    legal = TRIAGE if phase == "triage" else DRAFT
    return {
        "planning": {**planning, "corrections": count},
        "transcript": [said, *respond(said, correction.text(legal))],
    }


def _fail(state: Planning, runtime: Runtime[Settings], code: str, reason: str) -> Planning:
    """The phase failed: the draft falls back on the triage's plan and says so; the triage ends the run."""
    planning = state["planning"]
    if planning["phase"] == "draft" and (proposal := planning.get("proposal")):
        emit(runtime, "note", text=f"Careful planning failed ({reason}); going on with the quick plan.")
        return _proposed({**planning, "fell_back": reason}, proposal, state, runtime)
    return {"ending": {"code": code, "reason": reason}}


def _planned(phase: str, state: Planning, plan: Json, runtime: Runtime[Settings]) -> Planning:
    planning = {**state["planning"], "corrections": 0}
    if plan.get("speak"):
        emit(runtime, "speech", step=None, text=plan["speak"])
    if phase == "triage" and plan["need_thinking"]:
        emit(runtime, "note", text="This deserves a careful plan; thinking it through.")
        return {"planning": {**planning, "phase": "draft", "proposal": plan}}
    return _proposed(planning, plan, state, runtime)


def _proposed(planning: Json, plan: Json, state: Planning, runtime: Runtime[Settings]) -> Planning:
    whole = with_finished(plan, state.get("kept_steps") or {})
    emit(runtime, "plan", plan=whole)
    update = propose(whole, state.get("approval"), settings_of(runtime))
    return {"planning": {**planning, "open": False}, **update}  # type: ignore[typeddict-item]


def _other(state: Planning, message: AIMessage, decision: Decision) -> Planning:
    """An answer, a question, a refusal."""
    planning, arguments = {**state["planning"], "corrections": 0}, decision.arguments
    if decision.kind == "answer":
        return {"planning": planning, "ending": {"code": "answered", "reason": "", "text": arguments["text"]}}
    if decision.kind == "decline":
        return {
            "planning": planning,
            "ending": {"code": "declined", "reason": arguments["reason"], "text": arguments["guidance"]},
        }
    said, number = kept(message), planning.get("questions", 0) + 1
    if before := answered_before(state.get("asked", ()), arguments["question"]):
        told = f"You asked this before; the answer was:\n{shown(before, 20_000)}"
        return {"planning": planning, "transcript": [said, *respond(said, told)]}
    pending = {
        "id": f"plan.q{number}",
        "kind": "question",
        "name": "ask_user",
        "tool_call_id": call_id(),
        "question": arguments["question"],
        "options": arguments.get("options") or [],
        "step": None,
        "call": decision.id,
    }
    fresh = [*state.get("transcript", ())[state.get("kept", 0) :], said]
    return {
        "planning": {**planning, "questions": number},
        "pending": pending,
        "messages": [opening(pending)],
        "transcripts": {planning["transcript"]: fresh},
        "spent": {"questions": 1},
    }
