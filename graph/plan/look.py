"""The look node: planning reads what it asked for; what it sees can be cited by the answer and by steps."""

import asyncio

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from donewhen.graph.calls.invoking import Site, invoke, left_of
from donewhen.graph.calls.observing import keep, noted
from donewhen.graph.context import Deps, settings_of
from donewhen.graph.events import charged, emit, observed
from donewhen.graph.models.offering import FIND, found, offered_to_plan
from donewhen.graph.models.transcript import shown
from donewhen.graph.models.window import shown_chars
from donewhen.graph.plan.outcomes import Turn, out_of_budget, planning_as_step
from donewhen.graph.tools.call import CallResult
from donewhen.graph.tools.effects import CallOutcome
from donewhen.graph.tools.paths import path_problem
from donewhen.state.graph_state import PLANNING, Json, Planning
from donewhen.state.ledger import add, exhausted
from donewhen.state.records import FrozenCall
from donewhen.state.secrets import redact_json
from donewhen.state.settings import Settings


async def look(state: Planning, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Planning:
    """Make the reading calls of the last reply, side by side, as far as the budget goes."""
    settings, planning = settings_of(runtime), state["planning"]
    asked: list[FrozenCall] = planning["calls"]
    told, names = await _found(asked, state, settings, deps)
    calls = [call for call in asked if call["name"] != FIND]
    if calls and (key := exhausted(left_of(state), ("tool_calls",))):
        return out_of_budget(Turn(state, runtime, deps), key)
    site = Site(planning_as_step(state), runtime, config, deps, settings.tool_seconds)
    room = int(left_of(state).get("tool_calls", len(calls)))
    first = len(state.get("known", ())) + len(state.get("journal", ())) + 1
    entries = await asyncio.gather(*(_read(call, first + n, site) for n, call in enumerate(calls[:room])))
    seconds = max((entry["seconds"] for entry in entries), default=0.0)
    spent = add(site.spent, {"tool_calls": len(entries), "active_seconds": seconds})
    charged(runtime, None, spent)
    limit = shown_chars(deps, settings, "triage" if planning["phase"] == "triage" else "plan")
    texts = [shown(entry, limit, fence=state["brief"].get("fence", "")) for entry in entries]
    texts += ["Not run: the limit of tool calls is reached."] * (len(calls) - len(entries))
    told |= {call["position"]: text for call, text in zip(calls, texts, strict=True)}
    return {
        "planning": {**planning, "calls": [], **({"found": [*(planning.get("found") or ()), *names]} if names else {})},
        "journal": [await keep(runtime, site.state, entry) for entry in entries],
        "transcript": _results(asked, [told[call["position"]] for call in asked]),
        "spent": spent,
    }


async def _found(
    calls: list[FrozenCall], state: Planning, settings: Settings, deps: Deps
) -> tuple[dict[int, str], list[str]]:
    """What the calls of `find_tools` came to, by position, and all names that they found."""
    finds, told, names = [call for call in calls if call["name"] == FIND], dict[int, str](), list[str]()
    if finds:
        offer = await offered_to_plan(deps, settings, state["brief"]["goal"], state["planning"])
        for call in finds:
            known = {*offer.bound, *offer.listed, *names}
            came = await found(deps, deps.all_tools(settings), call, known, state["brief"].get("fence", ""))
            told[call["position"]] = came["text"]
            names += came["names"]
    return told, names


async def _read(call: FrozenCall, number: int, site: Site) -> Json:
    """The observation of one call."""
    settings, toolbox = settings_of(site.runtime), site.deps.reads(settings_of(site.runtime))
    tool = toolbox.get(call["name"])
    assert tool is not None, call["name"]
    if outside := path_problem(call["args"], settings.profile.allowed_paths):
        return noted(site.state, number, call, CallResult(False, f"Not run: {outside}", 0.0), None, ())
    given = redact_json(call["args"])
    emit(site.runtime, "tool_started", id=f"{PLANNING}.{number}", step=None, tool=call["name"], arguments=given)
    outcome = await invoke(site, tool, call, "read", f"{PLANNING}.{number}")
    assert isinstance(outcome, CallOutcome), "a read is never in doubt"
    site.spent = add(site.spent, outcome.spent)
    entry = noted(site.state, number, call, outcome.result, "read", toolbox.targets(call["name"], call["args"]))
    observed(site.runtime, entry)
    return entry


def _results(calls: list[FrozenCall], told: list[str]) -> list[AnyMessage]:
    """One result per call; those of printed calls go back in one message."""
    if not calls[0]["native"]:
        return [HumanMessage("\n\n".join(told))]
    return [ToolMessage(text, tool_call_id=call["id"]) for call, text in zip(calls, told, strict=True)]
