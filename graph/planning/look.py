"""The look node: it makes the reads that planning asked for. The answer and the steps can cite them."""

from dataclasses import dataclass, field

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.events import emit_charge
from donewhen.graph.llm.briefs import offer_for_planning
from donewhen.graph.llm.history import observation_limit, render_observation
from donewhen.graph.planning.outcomes import ROLE_OF_PHASE, PlanningRound, leave_at_limit, planning_caller
from donewhen.graph.step.calls import Calls
from donewhen.graph.step.gates import GATES_OF_LOOKS, Go, No, rule
from donewhen.graph.step.texts import known_entries
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.state.channels import Planning
from donewhen.state.ledger import allowance_left, first_exhausted
from donewhen.state.proof.journal import has_succeeded
from donewhen.state.reading.decisions import LOOKUPS
from donewhen.state.records import Call, JournalEntry, PlanningRecord, PlanningWork
from donewhen.state.settings import Settings


async def look(state: Planning, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Planning:
    """Make the read calls of the last reply, as far as the budget allows."""
    calls, limit = state["planning"]["work"]["calls"], first_exhausted(allowance_left(state), ("tool_calls",))
    if limit and any(call["name"] not in LOOKUPS for call in calls):
        return leave_at_limit(PlanningRound(state, runtime, deps), limit)
    tools, observed = deps.reads(runtime.context, state["approval"]), len(known_entries(state))
    caller = planning_caller(state, runtime, state.get("spent"))
    return await Looks(caller, runtime, config, deps, tools, observed=observed, planning=state).run()


@dataclass
class Looks(Calls[Planning]):
    """The looks of planning, which are made like the calls of a step and pass fewer gates."""

    planning: Planning = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        planning = self.planning["planning"]
        self.calls, self.held = planning["work"]["calls"], list(planning["work"]["call_answers"])
        self.limit = observation_limit(self.deps, self.settings, ROLE_OF_PHASE[planning["phase"]])

    async def _rule(self, call: Call) -> Go | No:
        return await rule(call, self, GATES_OF_LOOKS)

    async def _searched_tools(self) -> tuple[Toolbox, set[str]]:
        state = self.planning
        offer = await offer_for_planning(self.deps, self.settings, state["brief"]["goal"], state["planning"])
        return self.deps.all_tools(self.settings), {*offer.bound, *offer.listed}

    def _render(self, entry: JournalEntry, hint: str) -> str:
        has_recall = bool(self.caller.before)
        return render_observation(entry, self.limit, hint, self.caller.fence, has_recall=has_recall)

    def _finish(self) -> Planning:
        """Return the update of planning. A plan that came with the looks is sent back if one of them failed."""
        emit_charge(self.runtime, None, self.spent)
        if self.held:
            self.results.append(HumanMessage("\n\n".join(self.held)))
        before = self.planning["planning"]["work"]
        after: PlanningWork = {
            **before,
            "calls": [],
            "call_answers": [],
            "found_tools": [*before["found_tools"], *self.found_tools],
            "recalled": [*before["recalled"], *(id for id, *_ in self.recalled)],
        }
        looks = [entry for entry in self.new_entries if entry["source"] == "tool"]
        if (plan := before["sent_plan"]) and not all(map(has_succeeded, looks)):
            self._decline("submit_plan", plan["id"])
            after["sent_plan"] = None
        planning: PlanningRecord = {**self.planning["planning"], "work": after}
        return {"planning": planning, "journal": self.new_entries, "transcript": self.results, "spent": self.spent}
