"""The execute node: one step, as a subgraph. decide → act → decide … → goal_check."""

from typing import Literal

from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from graph.act import act
from graph.binding import bound
from graph.context import Deps
from graph.goal_check import goal_check
from graph.leaving import has_left
from graph.rounds import decide
from state.run import Step, StepOutput
from state.settings import Settings


def build_execute(deps: Deps) -> CompiledStateGraph[Step, Settings, Step, StepOutput]:
    """The subgraph of the execute node."""
    graph = StateGraph(Step, context_schema=Settings, output_schema=StepOutput)
    graph.add_node("decide", bound(decide, deps))
    graph.add_node("act", bound(act, deps))
    graph.add_node("goal_check", bound(goal_check, deps))
    graph.add_conditional_edges(START, after_dispatch)
    graph.add_conditional_edges("decide", after_decide)
    graph.add_conditional_edges("act", after_act)
    graph.add_conditional_edges("goal_check", after_goal_check)
    return graph.compile()


def after_dispatch(state: Step) -> Literal["decide", "act"]:
    """A step that waited with calls frozen goes on with them; no model is asked again."""
    return "act" if state["record"].get("calls") else "decide"


def after_decide(state: Step) -> Literal["decide", "act", "goal_check", "__end__"]:
    """Act on the decision; without one (speech, a correction) the next round."""
    if has_left(state):
        return "__end__"
    if state["record"].get("calls"):
        return "act"
    return "goal_check" if state.get("decision") else "decide"


def after_act(state: Step) -> Literal["decide", "__end__"]:
    """The next round, unless the step waits for a person or for budget."""
    return "__end__" if has_left(state) else "decide"


def after_goal_check(state: Step) -> Literal["decide", "__end__"]:
    """Done, failed, or on with what is missing."""
    return "__end__" if has_left(state) else "decide"
