"""Ask the hooks before people are asked a question."""

from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.events import emit, thread_of
from donewhen.graph.tools.hooks import Question, ask_hooks
from donewhen.state.people.payload import OTHER_KEYS
from donewhen.state.records import Pause
from donewhen.state.run import Json
from donewhen.state.settings import Settings

INTERNAL = (*OTHER_KEYS, "name", "call", "tool_call_id", "message_id", "asked_at", "digest")
"""Fields of a pause that hooks are not shown."""
NOT_ASKED = "No question was asked: {why}. Go on without the answer, or ask something else."


async def ask_before_question(runtime: Runtime[Settings], deps: Deps, goal: str, pending: Pause) -> str:
    """Return why the hooks refuse to show people this question; "" if they agree."""
    if not (hooks := deps.hooks.before_question):
        return ""
    details: Json = {key: value for key, value in pending.items() if key not in INTERNAL}
    about = Question(
        thread_of(runtime),
        pending.get("step"),
        goal,
        pending["kind"],
        pending["question"],
        list(pending.get("options") or ()),
        details,
    )
    verdict = await ask_hooks(hooks, about, lambda text: emit(runtime, "note", text=text))
    return verdict.refused or (verdict.question and f"a person would have to agree: {verdict.question}")
