"""The plan node: a subgraph of two phases, triage and draft, which both may look before they decide."""

from typing import Literal

from langgraph.graph import END, START, StateGraph

from donewhen.graph.binding import Subgraph, bound_inside, lead
from donewhen.graph.context import Deps
from donewhen.graph.given import for_planning
from donewhen.graph.plan.look import look
from donewhen.graph.plan.phases import draft, triage
from donewhen.state.graph_state import Planning, PlanningOutput, PlanningStored
from donewhen.state.settings import Settings


def build_plan(deps: Deps) -> Subgraph:
    """The subgraph of the plan node."""
    graph = StateGraph(PlanningStored, context_schema=Settings, output_schema=PlanningOutput)
    graph.add_node("triage", bound_inside(triage, deps))
    graph.add_node("draft", bound_inside(draft, deps))
    graph.add_node("look", bound_inside(look, deps))
    more, looks = "not decided yet", "wants to see something"
    lead(graph, START, first_phase, {"triage": "quick", "draft": "careful"}, inside=True)
    decided = {"triage": more, "draft": "worth a careful plan", "look": looks, END: "decided"}
    lead(graph, "triage", after_triage, decided, inside=True)
    lead(graph, "draft", after_draft, {"draft": more, "look": looks, END: "decided"}, inside=True)
    lead(graph, "look", after_look, {"triage": "seen, quick", "draft": "seen, careful", END: "no budget"}, inside=True)
    return Subgraph(graph.compile(name="planning"), for_planning)


def first_phase(state: Planning) -> Literal["triage", "draft"]:
    """Where planning goes on: in the phase that its record names."""
    return "draft" if state["planning"]["phase"] == "draft" else "triage"


def after_triage(state: Planning) -> Literal["triage", "draft", "look", "__end__"]:
    """On as long as nothing came out of planning: a plan, a question or an end."""
    if _came_out(state):
        return "__end__"
    return "look" if state["planning"].get("calls") else first_phase(state)


def after_draft(state: Planning) -> Literal["draft", "look", "__end__"]:
    """As after the triage; but there is no way back to it."""
    if _came_out(state):
        return "__end__"
    return "look" if state["planning"].get("calls") else "draft"


def after_look(state: Planning) -> Literal["triage", "draft", "__end__"]:
    """Back to the phase that wanted to see something, unless the budget ended."""
    return "__end__" if _came_out(state) else first_phase(state)


def _came_out(state: Planning) -> bool:
    return bool(state.get("plan") or state.get("pending") or state.get("ending"))
