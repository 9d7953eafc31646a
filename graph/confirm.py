"""The confirm node: the plan is shown whole and waits for a person. It does nothing before its one interrupt."""

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from donewhen.graph.calls.attached import with_typed
from donewhen.graph.context import Deps, settings_of
from donewhen.graph.people.answering import take
from donewhen.graph.people.pauses import asked_now, typed_reply
from donewhen.state.graph_state import RunState
from donewhen.state.people.payloads import payload
from donewhen.state.settings import Settings


async def confirm(state: RunState, runtime: Runtime[Settings], *, deps: Deps) -> RunState:
    """Take the person's answer: approve, edit, reject with feedback, or cancel. Anything else keeps the pause."""
    pending, typed = asked_now(state), typed_reply(state["messages"])
    value = interrupt(payload(pending)) if typed is None else typed
    return await with_typed(state, take(state, pending, value, deps, settings_of(runtime)), runtime)
