"""The confirm node shows a person the whole plan. It does nothing before its only interrupt."""

from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.llm.attachments import with_typed_attachments
from donewhen.graph.people.answers import take_answer
from donewhen.graph.people.pauses import current_pause, wait_for_answer
from donewhen.state.run import RunState
from donewhen.state.settings import Settings


async def confirm(state: RunState, runtime: Runtime[Settings], *, deps: Deps) -> RunState:
    """Apply the person's answer: approve, edit, reject with feedback, or cancel. Any other answer keeps the pause."""
    pending = current_pause(state)
    update = take_answer(state, pending, wait_for_answer(state, pending), deps, runtime.context)
    return await with_typed_attachments(state, update, runtime)
