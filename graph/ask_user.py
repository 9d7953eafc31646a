"""The ask_user node asks a person one question. It does nothing before its only interrupt."""

from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.llm.attachments import with_typed_attachments
from donewhen.graph.people.answers import OVERDUE, is_left_to_policy, take_answer
from donewhen.graph.people.pauses import current_pause, typed_reply, wait_for_answer
from donewhen.state.run import RunState
from donewhen.state.settings import Settings


async def ask_user(state: RunState, runtime: Runtime[Settings], *, deps: Deps) -> RunState:
    """Apply the answer to the pending question, and any answers to other open questions sent with it."""
    pending = current_pause(state)
    left = typed_reply(state["messages"]) is None and is_left_to_policy(pending, runtime.context)
    value = OVERDUE if left else wait_for_answer(state, pending)
    return await with_typed_attachments(state, take_answer(state, pending, value, deps, runtime.context), runtime)
