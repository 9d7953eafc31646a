"""The plan node: a subgraph of two phases, triage and draft, which both may look before they decide."""

from functools import cache
from typing import Any, Literal

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from donewhen.graph.binding import InnerNode, Subgraph, lead
from donewhen.graph.context import Deps
from donewhen.graph.given import for_planning
from donewhen.graph.plan.look import look
from donewhen.graph.plan.phases import draft, triage
from donewhen.state.graph_state import Planning, PlanningOutput, PlanningStored
from donewhen.state.settings import Settings


def build_plan(deps: Deps) -> Subgraph:
    """The subgraph of the plan node."""
    return Subgraph(_planning(), for_planning, deps)


@cache
def _planning() -> CompiledStateGraph[Any, Settings, Any, Any]:
    """Made once: it takes its dependencies from the run."""
    graph = StateGraph(PlanningStored, context_schema=Settings, output_schema=PlanningOutput)
    graph.add_node("triage", InnerNode(triage))
    graph.add_node("draft", InnerNode(draft))
    graph.add_node("look", InnerNode(look))
    more, looks = "not decided yet", "wants to see something"
    begin = {"triage": "quick", "draft": "careful", "look": "what it wanted to see"}
    lead(graph, START, after_round, begin, inside=True)
    decided = {"triage": more, "draft": "worth a careful plan", "look": looks, END: "decided"}
    lead(graph, "triage", after_round, decided, inside=True)
    lead(graph, "draft", after_round, {"draft": more, "look": looks, END: "decided"}, inside=True)
    lead(graph, "look", after_round, {"triage": "seen, quick", "draft": "seen, careful", END: "no budget"}, inside=True)
    return graph.compile(name="planning")


def after_round(state: Planning) -> Literal["triage", "draft", "look", "__end__"]:
    """On, in the phase that the record names, as long as nothing came out of planning: a plan, a question or an end."""
    if state.get("plan") or state.get("pending") or state.get("ending"):
        return "__end__"
    if state["planning"].get("calls"):
        return "look"
    return "draft" if state["planning"]["phase"] == "draft" else "triage"
