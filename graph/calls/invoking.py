"""One call, made once: metered, in the ledger of effects, its whole output kept under the observation's id."""

from dataclasses import dataclass, field, replace

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.errors import GraphInterrupt, ParentCommand
from langgraph.runtime import Runtime

from donewhen.graph.calls.observing import keep_text, kept_text
from donewhen.graph.context import Deps
from donewhen.graph.events import thread_of
from donewhen.graph.models.metering import Meter
from donewhen.graph.models.voice import aside
from donewhen.graph.tools.call import CallResult, call_tool, seconds_for
from donewhen.graph.tools.effects import (
    CallOutcome,
    Effect,
    EffectLog,
    UnknownEffect,
    effect_key,
    perform,
    short_of,
)
from donewhen.graph.tools.place import Place
from donewhen.graph.tools.toolbox import EffectKind
from donewhen.state.graph_state import Json, Planning, Step
from donewhen.state.ledger import Amounts, add, less
from donewhen.state.records import FrozenCall
from donewhen.state.settings import Settings

EFFECT = "donewhen_effect"
"""In the metadata of a call: the key of its effect, the same when it is made again after a crash."""


def left_of(state: Step | Planning) -> Amounts:
    """What a step or planning may still spend: its allowance less what it spent since it was sent off."""
    return less(state.get("allowance") or {}, state.get("spent"))


@dataclass
class Site:
    """Where calls are made: the step, the run it belongs to, and what was spent here so far."""

    state: Step
    runtime: Runtime[Settings]
    config: RunnableConfig
    deps: Deps
    seconds: float | None
    """The longest that one call may take, unless its tool says that it takes longer."""
    spent: Amounts = field(default_factory=dict)
    meters: list[Meter] = field(default_factory=list)
    """Of the calls that are being made."""
    wrote: list[str] = field(default_factory=list)
    """Short keys of the writes that were made here and whose outcome is known."""
    observed: int = 0
    """Observations that the step has already, where checks and a judge add some."""
    noted: list[Json] = field(default_factory=list)
    """Observations of checks and of what a judge looked up here."""

    def left(self) -> Amounts:
        """What the step may still spend, less what it spent here."""
        running = self.spent
        for meter in self.meters:
            running = add(running, meter.taken)
        return less(left_of(self.state), running)


async def invoke(
    site: Site, tool: BaseTool, call: FrozenCall, kind: EffectKind, observation: str
) -> CallOutcome | UnknownEffect:
    """Make the call, or replay it if it was made before a crash. Of an UnknownEffect a person must say whether to."""
    state, thread, store = site.state, thread_of(site.runtime), site.runtime.store
    record, id, turn = state["record"], state["step"]["id"], state.get("turn", 1)
    place = Place.of(site.config, depth=2)
    where = (thread, turn, id, record["attempt"], record["rounds"], call.get("position", 0))
    key = effect_key(place.scope, *where, tool=call["name"], arguments=call["args"])
    meter = Meter(site.left, site.deps.prices)
    tagged = aside(site.config, meter)

    async def run(key: str) -> CallOutcome:
        about = {**tagged["metadata"], "step": id, "attempt": record["attempt"], EFFECT: key}
        result = await _called(site, tool, call, {**tagged, "metadata": about}, key)
        meter.close()
        if kind != "read":
            await keep_text(site.runtime, state, observation, result.text)
        return CallOutcome(result, meter.spent)

    site.meters.append(meter)
    said, handoff = (call.get("known"), call.get("attempt", "")), bool(call.get("delegated"))
    effect = Effect(key, tool, call["args"], kind, *said, handoff)
    own = {*record.get("wrote", ()), *state.get("wrote", ()), *site.wrote}
    outcome = await perform(EffectLog(store, thread, place, id, state.get("claimed", ()), own, turn), effect, run)
    if isinstance(outcome, UnknownEffect):
        return outcome
    if outcome.key:
        site.wrote.append(outcome.key)
    if outcome.whole or not (text := await kept_text(site.runtime, state, observation)):
        return outcome
    # The same id may hold another text: that of another branch of the thread's history.
    same = short_of(text) == outcome.result.text
    return replace(outcome, result=replace(outcome.result, text=text)) if same else outcome


async def _called(site: Site, tool: BaseTool, call: FrozenCall, config: RunnableConfig, key: str) -> CallResult:
    """A tool that would pause the graph itself fails instead: every pause is at the top, one at a time."""
    try:
        return await call_tool(
            tool,
            call["args"],
            timeout=seconds_for(tool, call["args"], site.seconds),
            config=config,
            idempotency_key=key,
            call_id=call["id"] or None,
            secrets=site.deps.secrets,
        )
    except GraphInterrupt as pause:
        asked = "; ".join(str(getattr(one, "value", one))[:500] for one in (pause.args[0] if pause.args else ()))
        text = f"The tool stopped to ask a person, which tools cannot do here. Ask with ask_user: {asked}"
        return CallResult(False, text, 0.0, error="interrupt")
    except ParentCommand:
        return CallResult(
            False, "The tool wanted to take over the graph, which tools cannot do here.", 0.0, error="command"
        )
