"""The confirm node shows a person the whole plan. It does nothing before its only interrupt."""

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from donewhen.graph.context import Deps
from donewhen.graph.llm.attachments import with_typed_attachments
from donewhen.graph.people.answers import take_answer
from donewhen.graph.people.pauses import current_pause, typed_reply
from donewhen.state.people.payload import payload
from donewhen.state.run import RunState
from donewhen.state.settings import Settings


async def confirm(state: RunState, runtime: Runtime[Settings], *, deps: Deps) -> RunState:
    """Apply the person's answer: approve, edit, reject with feedback, or cancel. Any other answer keeps the pause."""
    pending, typed = current_pause(state), typed_reply(state["messages"])
    value = interrupt(payload(pending)) if typed is None else typed
    return await with_typed_attachments(state, take_answer(state, pending, value, deps, runtime.context), runtime)
