"""The execute node, a subgraph for one step: (delegate →) decide → decide … → goal_check. `act` makes delayed calls."""

from functools import cache
from typing import Any, Literal

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from donewhen.graph.binding import Node, Subgraph, add_route
from donewhen.graph.context import Deps
from donewhen.graph.step.calls import act
from donewhen.graph.step.delegate import delegate
from donewhen.graph.step.prove import goal_check
from donewhen.graph.step.round import decide
from donewhen.graph.step_input import step_input
from donewhen.state.run import Step, StepOutput, StepStored
from donewhen.state.settings import Settings


def build_execute(deps: Deps) -> Subgraph:
    """Return the subgraph of the execute node."""
    return Subgraph(_step(), step_input, deps)


@cache
def _step() -> CompiledStateGraph[Any, Settings, Any, Any]:
    """Return the compiled subgraph. It is made once, because the run passes the dependencies."""
    graph = StateGraph(StepStored, context_schema=Settings, output_schema=StepOutput)
    graph.add_node("delegate", Node(delegate))
    graph.add_node("decide", Node(decide))
    graph.add_node("act", Node(act))
    graph.add_node("goal_check", Node(goal_check))
    left, more = {END: "ended, or waits"}, {"decide": "next round"}
    begin = {"delegate": "the executor works by itself", "act": "approved calls", "goal_check": "a claim"}
    add_route(graph, START, after_dispatch, {**begin, "decide": "a round"}, inside=True)
    add_route(graph, "delegate", after_round, {"goal_check": "its word is the result", **more, **left}, inside=True)
    decided = {"act": "calls", "goal_check": "claims to be done", **more, **left}
    add_route(graph, "decide", after_round, decided, inside=True)
    add_route(graph, "act", after_round, {**more, **left}, inside=True)
    add_route(graph, "goal_check", after_round, {"decide": "not proven", END: "proven, or waits"}, inside=True)
    return graph.compile(name="step")


def after_dispatch(state: Step) -> Literal["delegate", "decide", "act", "goal_check"]:
    """Continue where the step waited, with its stored calls or claim, so that no model is asked again."""
    record = state["record"]
    alone = state["alone"] and not record.get("delegated")
    if (calls := record.get("calls")) and not (alone and calls[0].get("planned")):
        return "delegate" if calls[0].get("delegated") else "act"
    if record.get("claim"):
        return "goal_check"
    return "delegate" if alone else "decide"


def after_round(state: Step) -> Literal["decide", "act", "goal_check", "__end__"]:
    """Go to `act` for open calls, to `goal_check` for a claim, to `decide` for the next round, or leave."""
    if state["record"]["status"] != "running":
        return "__end__"
    if state["record"].get("calls"):
        return "act"
    return "goal_check" if state.get("decision") else "decide"
