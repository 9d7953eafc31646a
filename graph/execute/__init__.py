"""The execute node: one step, as a subgraph. (delegate →) decide → decide … → goal_check; act: calls that waited"""

from functools import cache
from typing import Any, Literal

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from donewhen.graph.binding import InnerNode, Subgraph, lead
from donewhen.graph.context import Deps
from donewhen.graph.execute.act import act
from donewhen.graph.execute.decide import decide
from donewhen.graph.execute.delegate import delegate
from donewhen.graph.execute.goal_check import goal_check
from donewhen.graph.execute.leaving import has_left
from donewhen.graph.given import for_step
from donewhen.state.graph_state import Step, StepOutput, StepStored
from donewhen.state.settings import Settings


def build_execute(deps: Deps) -> Subgraph:
    """The subgraph of the execute node."""
    return Subgraph(_step(), for_step, deps)


@cache
def _step() -> CompiledStateGraph[Any, Settings, Any, Any]:
    """Made once: it takes its dependencies from the run."""
    graph = StateGraph(StepStored, context_schema=Settings, output_schema=StepOutput)
    graph.add_node("delegate", InnerNode(delegate))
    graph.add_node("decide", InnerNode(decide))
    graph.add_node("act", InnerNode(act))
    graph.add_node("goal_check", InnerNode(goal_check))
    left, more = {END: "ended, or waits"}, {"decide": "next round"}
    begin = {"delegate": "the executor works by itself", "act": "approved calls", "goal_check": "a claim"}
    lead(graph, START, after_dispatch, {**begin, "decide": "a round"}, inside=True)
    lead(graph, "delegate", after_round, {"goal_check": "its word is the result", **more, **left}, inside=True)
    decided = {"act": "calls", "goal_check": "claims to be done", **more, **left}
    lead(graph, "decide", after_round, decided, inside=True)
    lead(graph, "act", after_round, {**more, **left}, inside=True)
    lead(graph, "goal_check", after_round, {"decide": "not proven", END: "proven, or waits"}, inside=True)
    return graph.compile(name="step")


def after_dispatch(state: Step) -> Literal["delegate", "decide", "act", "goal_check"]:
    """A step that waited goes on where it was: with frozen calls, with a claim; no model is asked again."""
    record = state["record"]
    alone = state["alone"] and not record.get("delegated")
    if (calls := record.get("calls")) and not (alone and calls[0].get("planned")):
        return "delegate" if calls[0].get("delegated") else "act"
    if record.get("claim"):
        return "goal_check"
    return "delegate" if alone else "decide"


def after_round(state: Step) -> Literal["decide", "act", "goal_check", "__end__"]:
    """Make the calls that nobody made yet, prove what is claimed; else the next round, unless it ended or waits."""
    if has_left(state):
        return "__end__"
    if state["record"].get("calls"):
        return "act"
    return "goal_check" if state.get("decision") else "decide"
