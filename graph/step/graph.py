"""The execute node, a subgraph for one step: rounds of `decide`, then `goal_check`.

`decide` makes the calls of its reply. `act` makes those that had to wait, all of them if there is no store, the calls
of the plan, and the next change of a program. `delegate` hands the step to an executor that works on its own.
"""

from functools import cache, partial
from typing import Any, Literal

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from donewhen.graph.binding import Node, Subgraph, add_route
from donewhen.graph.context import Deps
from donewhen.graph.llm.briefs import step_brief
from donewhen.graph.llm.history import TranscriptLength
from donewhen.graph.llm.outgoing import FitRounds
from donewhen.graph.step.delegate import delegate
from donewhen.graph.step.program import act
from donewhen.graph.step.prove import goal_check
from donewhen.graph.step.round import decide
from donewhen.graph.step.texts import scope_of
from donewhen.graph.tools.program import Sandbox
from donewhen.state.channels import PLANNING, Json, Step, StepOutput, StepStored
from donewhen.state.consent import sources_of
from donewhen.state.plan.order import ancestors, conversation_of
from donewhen.state.plan.plan import find_step
from donewhen.state.plan.planning import promotion_reasons
from donewhen.state.plan.steps import transcript_key
from donewhen.state.proof.journal import CallHistory, citable_entries, decision_entries
from donewhen.state.proof.planned import shown_by_calls
from donewhen.state.settings import Settings
from donewhen.state.statuses import AT_WORK, FINAL


def build_execute(deps: Deps) -> Subgraph:
    """Return the subgraph of the execute node."""
    return Subgraph(_compile_step(), step_input, deps)


@cache
def _compile_step() -> CompiledStateGraph[Any, Settings, Any, Any]:
    """Compile the subgraph once, because the run passes the dependencies."""
    graph = StateGraph(StepStored, context_schema=Settings, output_schema=StepOutput)
    graph.add_node("delegate", Node(delegate))
    graph.add_node("decide", Node(decide))
    graph.add_node("act", Node(act))
    graph.add_node("goal_check", Node(goal_check))
    first = {"delegate": "the executor works by itself", "act": "approved calls", "goal_check": "a claim"}
    add_route(graph, START, after_dispatch, {**first, "decide": "a round"}, inside=True)
    default = {"decide": "next round", END: "ended, or waits"}
    add_route(
        graph,
        "delegate",
        after_delegate,
        {"delegate": "drained", "goal_check": "its word is the result", **default},
        inside=True,
    )
    add_route(graph, "decide", after_round, {"act": "calls", "goal_check": "claims to be done", **default}, inside=True)
    after_act = {"goal_check": "the plan's calls may be all", "act": "a program's next change", **default}
    add_route(graph, "act", after_calls, after_act, inside=True)
    add_route(graph, "goal_check", after_round, {"decide": "not proven", END: "proven, or waits"}, inside=True)
    return graph.compile(name="step")


def after_dispatch(state: Step) -> Literal["delegate", "decide", "act", "goal_check"]:
    """Continue where the step waited, with its stored calls or claim, so that no model is asked again."""
    record = state["record"]
    # An executor that works on its own gets the step with the calls that the plan wrote down for it.
    to_executor = state["works_alone"] and not record["delegated"]
    if (calls := record["calls"]) and not (to_executor and calls[0].get("planned")):
        return "delegate" if calls[0].get("delegated") else "act"
    if record["claim"]:
        return "goal_check"
    return "delegate" if to_executor else "decide"


def after_round(state: Step) -> Literal["decide", "act", "goal_check", "__end__"]:
    """Go to `act` for open calls, to `goal_check` for a claim, to `decide` for the next round, or leave."""
    if state["record"]["status"] != "running":
        return "__end__"
    if state["record"]["calls"]:
        return "act"
    return "goal_check" if state.get("decision") else "decide"


def after_delegate(state: Step) -> Literal["delegate", "decide", "goal_check", "__end__"]:
    """Go on as after a round, but back to `delegate` if a drain has left its call open."""
    next_node = after_round(state)
    return "delegate" if next_node == "act" else next_node


def after_calls(state: Step) -> Literal["decide", "act", "goal_check", "__end__"]:
    """Go on as after a round, but to `goal_check`, before any model is asked, if the plan's calls may be enough."""
    next_node = after_round(state)
    is_complete = next_node == "decide" and not state["record"]["rounds"] and shown_by_calls(state["step"])
    return "goal_check" if is_complete else next_node


# The inputs of a step are read from the run whenever it starts or continues, so that they are stored once; the step
# itself stores only its rounds and its record, which grow with its own work and not with the run's.


def step_input(run: Json, sent: Json, settings: Settings, deps: Deps) -> Json:
    """Return the inputs of `execute` for the step that `sent` names.

    Of other work a step gets the results and observations that it may use: those of planning, of its dependencies, and
    of steps that a later plan replaced. The date comes from its record, so that its brief stays the same.
    """
    id = sent["id"]
    plan, records, journal = run["plan"] or {}, run.get("steps") or {}, run.get("journal") or []
    record, step, dependencies = records[id], find_step(plan, id), ancestors(plan, id)
    replaced = records.keys() - {each["id"] for each in plan["steps"]}
    today, missing = record["today"] or settings.today_text, deps.missing_tools(plan, step)
    # The step's own writes are not among these: it accounts for them itself.
    others_at_work = [other for key, other in records.items() if key != id and other["status"] in AT_WORK]
    name = step.get("executor")
    executor = deps.executors.active.get(name) if name else None
    return {
        "id": id,
        "fence": run.get("fence", ""),
        "scope": scope_of(run),
        "step": step,
        "works_alone": executor is not None and executor.works_alone,
        "conversation": conversation_of(plan, id, run.get("turn", 1)),
        "goal": run["goal"],
        "turn": run.get("turn", 1),
        "language": run.get("language", "en"),
        "granted_tools": ((run.get("approval") or {}).get("tools") or {}).get(id, []),
        "approved_effects": (run.get("approval") or {}).get("effects") or {},
        "brief": step_brief(run, step, dependencies, replaced, today=today, missing=missing),
        "attachments": list(run.get("attachments") or ()),
        "promotable": promotion_reasons(run, id, settings),
        "is_last": all(records[each["id"]]["status"] in FINAL for each in plan["steps"] if each["id"] != id),
        "known": [*citable_entries(journal, {id, PLANNING, *dependencies, *replaced}), *decision_entries(run)],
        "before": run.get("before") or [],
        "interjection_cursor": run.get("interjection_cursor") or "",
        "user_answers": [entry for entry in journal if entry["source"] == "user"],
        "rejected": {key: why for each in records.values() for key, why in each["rejected"].items()},
        "asked_often": {
            key: last for other, each in records.items() if other != id for key, last in each["asked_often"].items()
        },
        "settled_writes": [
            *(run.get("settled_writes") or ()),
            *(key for other in others_at_work for key in other["wrote"]),
        ],
        "earlier": (run.get("transcripts") or {}).get(transcript_key(id, record), []),
        "transcript_length": TranscriptLength(),
        "fitted_rounds": FitRounds(),
        "call_history": CallHistory(),
        "get_sources": cache(partial(sources_of, run, id, today)),
        "sandbox": Sandbox(),
        "own_rounds": set(),
        "allowance": record["allowance"],
        "record": record,
        "run": run,
    }
