"""The ask_user node asks a person one question. It does nothing before its only interrupt."""

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from donewhen.graph.context import Deps
from donewhen.graph.llm.attachments import with_typed_attachments
from donewhen.graph.people.answers import OVERDUE, is_left_to_policy, take_answer
from donewhen.graph.people.pauses import current_pause, typed_reply
from donewhen.state.people.payload import payload
from donewhen.state.run import RunState
from donewhen.state.settings import Settings


async def ask_user(state: RunState, runtime: Runtime[Settings], *, deps: Deps) -> RunState:
    """Apply the answer to the pending question, and any answers to other open questions sent with it."""
    pending, typed, settings = current_pause(state), typed_reply(state["messages"]), runtime.context
    if typed is None and is_left_to_policy(pending, settings):
        return take_answer(state, pending, OVERDUE, deps, settings)
    value = interrupt(payload(pending)) if typed is None else typed
    return await with_typed_attachments(state, take_answer(state, pending, value, deps, settings), runtime)
