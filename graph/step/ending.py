"""Ask the hooks before a run ends, and read what a person answered to a question of theirs."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from donewhen.graph.events import thread_of
from donewhen.graph.step.calls import CallContext, tell_people
from donewhen.graph.tools.hooks import OPTIONS, End, HookDecision, ask_hooks

READ_ON = "A person is asked first. Finish again when you have read the answer."


async def ask_before_end(
    context: CallContext,
    text: str,
    answers: Iterable[Mapping[str, Any]],
    status: str = "completed",
    output: Any = None,
) -> HookDecision:
    """Return the word of the hooks on this end; `output` is the structured result.

    A question of theirs that a person answered in this run agrees or refuses.
    """
    if not (hooks := context.deps.hooks.before_end):
        return HookDecision()
    state = context.state
    end = End(thread_of(context.runtime), state["step"]["id"], state["goal"], text, status, output)
    verdict = await ask_hooks(hooks, end, partial(tell_people, context))
    if verdict.refused or not verdict.question:
        return HookDecision(verdict.refused)
    for entry in answers:
        if entry["source"] == "user" and entry["arguments"].get("question") == verdict.question:
            said = str(entry["text"]).strip()
            agreed = said.casefold() == OPTIONS[0] and entry["arguments"].get("by") == "user"
            refused = "" if agreed else f"a person was asked “{verdict.question}” and said: {said[:500]}"
            verdict = HookDecision(refused)
            break
    return verdict
