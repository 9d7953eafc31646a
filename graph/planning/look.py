"""The look node makes the reads that planning asked for; the answer and steps can cite them."""

import asyncio
from functools import partial

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.events import emit_charge, emit_observation
from donewhen.graph.llm.briefs import FIND_TOOLS, find_tools, offer_for_planning
from donewhen.graph.llm.history import observation_limit, render_observation
from donewhen.graph.llm.reply import LOOK_FIRST
from donewhen.graph.planning.outcomes import PlanningRound, out_of_budget, planning_as_step
from donewhen.graph.step.calls import carry_out, observe, store_notes
from donewhen.graph.step.gates import GATES_OF_LOOKS, CallContext, Wait, rule
from donewhen.graph.step.texts import recall, store_entry
from donewhen.graph.tools.call import CallOutcome
from donewhen.state.channels import PLANNING, Planning
from donewhen.state.ledger import add, allowance_left, first_exhausted
from donewhen.state.records import Call, JournalEntry, PlanningRecord
from donewhen.state.settings import Settings


async def look(state: Planning, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Planning:
    """Make the read calls of the last reply in parallel, as far as the budget allows."""
    settings, planning = runtime.context, state["planning"]
    asked: list[Call] = planning["calls"]
    told, names = await _find_tools(asked, state, settings, deps)
    recalled = [call for call in asked if call["name"] == "recall"]
    calls = [call for call in asked if call["name"] not in (FIND_TOOLS, "recall")]
    if calls and (key := first_exhausted(allowance_left(state), ("tool_calls",))):
        return out_of_budget(PlanningRound(state, runtime, deps), key)
    context = CallContext(
        planning_as_step(state, state.get("spent") or {}),
        runtime,
        config,
        deps,
        deps.reads(settings, state.get("approval")),
    )
    room = int(allowance_left(state).get("tool_calls", len(calls)))
    first = len(state.get("known", ())) + len(state.get("journal", ())) + 1
    made = await asyncio.gather(*(_make_call(call, first + n, context) for n, call in enumerate(calls[:room])))
    context.meters.clear()  # what they counted is in the outcomes
    entries, spent = [entry for _, entry in made], context.spent
    for outcome, _ in made:
        spent = add(spent, outcome.spent)
    seconds = max((entry["seconds"] for entry in entries), default=0.0)
    spent = add(spent, {"tool_calls": len(entries), "active_seconds": seconds})
    emit_charge(runtime, None, spent)
    pieces = [await recall(call, context.state, [], runtime) for call in recalled]
    told |= {call["position"]: text for call, (text, _) in zip(recalled, pieces, strict=True)}
    limit = observation_limit(deps, settings, "triage" if planning["phase"] == "triage" else "plan")
    fence, once = state["brief"].get("fence", ""), not state["brief"].get("before")
    render = partial(render_observation, limit=limit, fence=fence, planning=once)
    texts = [render(entry) for entry in entries]
    observed = [note for outcome, _ in made for note in outcome.notes]
    notes = await store_notes(context, first + len(entries), observed)
    if notes:
        texts[-1] = "\n".join([texts[-1], *map(render, notes)])
    texts += ["Not run: the limit of tool calls is reached."] * (len(calls) - len(entries))
    told |= {call["position"]: text for call, text in zip(calls, texts, strict=True)}
    if asked[0]["native"]:
        messages: list[AnyMessage] = [ToolMessage(told[c["position"]], tool_call_id=c["id"]) for c in asked]
    else:  # printed calls get their results in one message
        messages = [HumanMessage("\n\n".join([*planning.get("held", ()), *(told[c["position"]] for c in asked)]))]
    after: PlanningRecord = {**planning, "calls": [], "held": []}
    if (then := planning.get("then")) and not (len(entries) == len(calls) and all(entry["ok"] for entry in entries)):
        messages.append(ToolMessage(LOOK_FIRST.format(name="submit_plan"), tool_call_id=then["id"]))
        after["then"] = None
    if names:
        after["found"] = [*(planning.get("found") or ()), *names]
    if read := [span[0] for _, span in pieces if span]:
        after["recalled"] = [*(planning.get("recalled") or ()), *read]
    return {
        "planning": after,
        "journal": [*[await store_entry(runtime, context.state, entry) for entry in entries], *notes],
        "transcript": messages,
        "spent": spent,
    }


async def _find_tools(
    calls: list[Call], state: Planning, settings: Settings, deps: Deps
) -> tuple[dict[int, str], list[str]]:
    """Answer the `find_tools` calls; return the answers by position, and all names found."""
    finds, told, names = [call for call in calls if call["name"] == FIND_TOOLS], dict[int, str](), list[str]()
    if finds:
        offer = await offer_for_planning(deps, settings, state["brief"]["goal"], state["planning"])
        for call in finds:
            known = {*offer.bound, *offer.listed, *names}
            came = await find_tools(deps, deps.all_tools(settings), call, known, state["brief"].get("fence", ""))
            told[call["position"]] = came["text"]
            names += came["names"]
    return told, names


async def _make_call(call: Call, number: int, context: CallContext) -> tuple[CallOutcome, JournalEntry]:
    """Make one call, or refuse it; return what came of it, and its observation."""
    id, ruling = f"{PLANNING}.{number}", await rule(call, context, GATES_OF_LOOKS)
    assert not isinstance(ruling, Wait), "planning leaves nothing for a call"
    outcome = await carry_out(context, call, id, ruling)
    assert isinstance(outcome, CallOutcome), "the outcome of a read is never unknown"
    entry = observe(context, call, id, outcome)
    if outcome.made:
        emit_observation(context.runtime, entry)
    return outcome, entry
