"""The plan node: a subgraph with two phases, triage and draft, which may both read before they decide."""

from functools import cache
from typing import Any, Literal

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from donewhen.graph.binding import Node, Subgraph, add_route
from donewhen.graph.context import Deps
from donewhen.graph.llm.history import observation_index
from donewhen.graph.planning.look import look
from donewhen.graph.planning.round import draft, triage
from donewhen.state.channels import PLANNING, Json, Planning, PlanningOutput, PlanningStored
from donewhen.state.plan.planning import planning_start
from donewhen.state.settings import Settings


def build_plan(deps: Deps) -> Subgraph:
    """Build the subgraph of the plan node."""
    return Subgraph(_compile_planning(), planning_input, deps)


def planning_input(run: Json, sent: Json, settings: Settings, deps: Deps) -> Json:
    """Return the inputs of planning; from the second planning of a request on, with an index of what was observed."""
    inputs = {**planning_start(run, settings), "run": run}
    if run["planning"]["number"] > 1:
        inputs["brief"]["seen"] = observation_index(
            run.get("journal") or (), {PLANNING, *(run.get("steps") or {})}, run.get("fence", "")
        )
    return inputs


@cache
def _compile_planning() -> CompiledStateGraph[Any, Settings, Any, Any]:
    """Compile the subgraph, once for all runs: each run brings its own dependencies."""
    graph = StateGraph(PlanningStored, context_schema=Settings, output_schema=PlanningOutput)
    graph.add_node("triage", Node(triage))
    graph.add_node("draft", Node(draft))
    graph.add_node("look", Node(look))
    undecided, looks, decided = "not decided yet", "wants to see something", "decided"
    routes = {
        START: {"triage": "quick", "draft": "careful", "look": "what it wanted to see"},
        "triage": {"triage": undecided, "draft": "worth a careful plan", "look": looks, END: decided},
        "draft": {"draft": undecided, "look": looks, END: decided},
        "look": {"triage": "seen, quick", "draft": "seen, careful", END: "no budget"},
    }
    for source, labels in routes.items():
        add_route(graph, source, after_round, labels, inside=True)
    return graph.compile(name="planning")


def after_round(state: Planning) -> Literal["triage", "draft", "look", "__end__"]:
    """Continue in the current phase until there is a plan, a question or an ending."""
    if state.get("plan") or state.get("pending") or state.get("ending"):
        return "__end__"
    if state["planning"]["work"]["calls"]:
        return "look"
    return "draft" if state["planning"]["phase"] == "draft" else "triage"
