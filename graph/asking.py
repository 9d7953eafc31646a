"""Ask the hooks, also before people are asked a question."""

from collections.abc import Callable, Sequence
from typing import Any

from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.events import emit, thread_of
from donewhen.graph.tools.hooks import Call, End, HookDecision, Question, ask_hooks
from donewhen.state.people.payload import OTHER_KEYS
from donewhen.state.records import Pause
from donewhen.state.run import Json
from donewhen.state.secrets import conceal
from donewhen.state.settings import Settings
from donewhen.state.values import map_texts

INTERNAL = (*OTHER_KEYS, "name", "call", "tool_call_id", "message_id", "asked_at", "digest")
"""Fields of a pause that hooks are not shown."""
NOT_ASKED = "No question was asked: {why}. Go on without the answer, or ask something else."


async def consult_hooks(
    runtime: Runtime[Settings], deps: Deps, hooks: Sequence[Callable[[Any], Any]], about: Call | Question | End
) -> HookDecision:
    """Return what the hooks decide, without credentials; people who watch the run read which of them failed."""

    def tell(text: str) -> None:
        emit(runtime, "note", text=conceal(text, deps.secrets))

    said = await ask_hooks(hooks, about, tell, runtime.context.tool_seconds)
    return HookDecision(**map_texts(vars(said), lambda text: conceal(text, deps.secrets)))


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
    verdict = await consult_hooks(runtime, deps, hooks, about)
    return verdict.refused or (verdict.question and f"a person would have to agree: {verdict.question}")
