"""The nodes that wait for a person: `confirm` shows the whole plan, `ask_user` asks one question.

Neither does anything before its only interrupt, because it runs again from its beginning when the answer comes.
`graph/people/answers.py` says what an answer changes.
"""

from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.llm.attachments import with_typed_attachments
from donewhen.graph.people.answers import OVERDUE, take_answer
from donewhen.graph.people.pauses import current_pause, typed_reply, wait_for_answer
from donewhen.state.run import RunState
from donewhen.state.settings import Settings


async def confirm(state: RunState, runtime: Runtime[Settings], *, deps: Deps) -> RunState:
    """Apply the person's answer: approve, edit, reject with feedback, or cancel. Any other answer keeps the pause."""
    pending = current_pause(state)
    update = take_answer(state, pending, wait_for_answer(state, pending), deps, runtime.context)
    typed = typed_reply(state["messages"]) is not None
    return await with_typed_attachments(state, update, runtime) if typed else update


async def ask_user(state: RunState, runtime: Runtime[Settings], *, deps: Deps) -> RunState:
    """Apply the answer to the pending question, and any answers to other open questions sent with it."""
    pending, settings = current_pause(state), runtime.context
    typed = typed_reply(state["messages"]) is not None
    policy = pending["kind"] == "question" and settings.alone and not typed  # it answers questions at once
    value = OVERDUE if policy else wait_for_answer(state, pending)
    update = take_answer(state, pending, value, deps, settings)
    return await with_typed_attachments(state, update, runtime) if typed else update
