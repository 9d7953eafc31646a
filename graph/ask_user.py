"""The ask_user node: one question to a person. It does nothing before its one interrupt."""

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from donewhen.graph.calls.attached import with_typed
from donewhen.graph.context import Deps, settings_of
from donewhen.graph.people.answering import OVERDUE, answered_by_policy, take
from donewhen.graph.people.pauses import asked_now, typed_reply
from donewhen.state.graph_state import RunState
from donewhen.state.people.payloads import payload
from donewhen.state.settings import Settings


async def ask_user(state: RunState, runtime: Runtime[Settings], *, deps: Deps) -> RunState:
    """Take the answer to the pending question, and answers to other open questions that came with it."""
    pending, typed, settings = asked_now(state), typed_reply(state["messages"]), settings_of(runtime)
    if typed is None and answered_by_policy(pending, settings):
        return take(state, pending, OVERDUE, deps, settings)
    value = interrupt(payload(pending)) if typed is None else typed
    return await with_typed(state, take(state, pending, value, deps, settings), runtime)
