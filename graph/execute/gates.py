"""What stands before a call, in this order: refusals by code, the budget, a person's approval. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from langchain_core.tools import BaseTool

from donewhen.graph.people.pauses import call_id
from donewhen.graph.tools.effects import Doubt
from donewhen.graph.tools.paths import path_problem
from donewhen.graph.tools.toolbox import Effect
from donewhen.state.ledger import Amounts, exhausted
from donewhen.state.plan.steps import settled
from donewhen.state.proof.journal import call_key, canonical, repetitions
from donewhen.state.redaction import redact_json
from donewhen.state.run import Json, Step
from donewhen.state.settings import Settings

POINTED_OUT, REFUSED = 2, 4
"""The same call with the same result: at the 2nd it is said, the 4th is not made (X11)."""


class Tools(Protocol):
    """What running calls needs to know of tools; a Toolbox, or an executor that works by itself."""

    def get(self, name: str) -> BaseTool | None:
        """The tool of this name, or None."""
        ...

    def effect(self, name: str) -> Effect:
        """What it does to the world."""
        ...

    def targets(self, name: str, arguments: Mapping[str, Any]) -> set[str]:
        """What the call is about: files, addresses, ids."""
        ...


def refusal(
    call: Json, state: Step, seen: Sequence[Json], settings: Settings, tool: BaseTool | None = None
) -> str | None:
    """Why the call is not made at all, in words for the model; None if it may be. What a person approved is made."""
    if call["name"] == "recall" or "response" in call:
        return None
    if "refused" in call:
        return f"the user rejected this call: {call['refused']}"
    if outside := path_problem(call["args"], settings.profile.allowed_paths, tool):
        return outside
    if "approved" in call or "known" in call:
        return None
    rejected = {**state.get("rejected", {}), **state["record"].get("rejected", {})}
    if why := rejected.get(call_key(call["name"], call["args"])):
        return f"the user rejected this very call before: {why}"
    if repetitions(seen, state["step"]["id"], call["name"], call["args"]) >= REFUSED - 1:
        return f"{call['name']} with these arguments gave the same result {REFUSED - 1} times. Do something else."
    return None


def repeated(seen: Sequence[Json], call: Json, step: str) -> str:
    """A hint at a call that only repeats itself; "" if it does not."""
    count = repetitions(seen, step, call["name"], call["args"])
    if count < POINTED_OUT:
        return ""
    refused = f"The {REFUSED}th time it will be refused." if count < REFUSED else ""
    return " ".join(part for part in (f"Note: this call gave the same result {count} times.", refused) if part)


def stop(call: Json, state: Step, left: Amounts, tools: Tools, settings: Settings) -> Json | None:
    """Why the call must wait: the record's change with which the step leaves. None: it may be made now."""
    if settled(call):
        return None
    if key := exhausted(left, ("tool_calls",)):
        return {"status": "ready", "code": f"allowance:{key}"}
    if "approved" in call or "known" in call:
        return None
    if needs_approval(call, state, tools, settings):
        return {"status": "waiting", "waiting": _approval_pause(call, state)}
    return None


def needs_approval(call: Mapping[str, Any], state: Step, tools: Tools, settings: Settings) -> bool:
    """Whether a person must approve this very call: it changes something, and its tool is not granted to the step."""
    if call.get("delegated"):
        return settings.approvals == "each"  # The plan that was approved names the executor.
    if tools.effect(call["name"]) == "read" or settings.approvals == "never":
        return False
    return settings.approvals == "each" or call["name"] not in state.get("granted_tools", ())


def _approval_pause(call: Json, state: Step, why: str = "") -> Json:
    id = state["step"]["id"]
    return {
        **_pause(call, state, "call"),
        "kind": "tool",
        "name": "approve_tool",
        "question": f"May step {id} call {call['name']}? {why}".rstrip(),
        "options": ["approve", "edit", "reject"],
    }


def unknown_effect(call: Json, state: Step, doubt: Doubt) -> Json:
    """The record's change for a write whose like may have happened, or happened where nobody accounts for it."""
    shown, who = f"{call['name']}({canonical(redact_json(call['args']))[:500]})", f"step {doubt.step or '?'}"
    question = f"The call {shown} of {who} was cut off or did not answer; it may have taken effect. Did it happen?"
    if doubt.done:
        question = (
            f"The very call {shown} was already made, by {who}, which did not finish or is in another branch of this "
            "thread. “it happened” takes it as done here too, “it did not” makes it once more. Did it happen?"
        )
    waiting = {
        **_pause(call, state, "effect"),
        "kind": "effect",
        "name": "resolve_effect",
        "question": question,
        "options": ["it happened", "it did not", "skip"],
        "arguments": redact_json(call["args"]),
        "attempt": doubt.attempt,
    }
    return {"status": "waiting", "waiting": waiting}


def _pause(call: Json, state: Step, kind: str) -> Json:
    """What both pauses have in common. The id names attempt, round, content and position of the call."""
    id, record = state["step"]["id"], state["record"]
    attempt = "" if record.get("attempt", 1) == 1 else f"@{record['attempt']}"
    digest, position = call_key(call["name"], call["args"])[:8], call.get("position", 0)
    return {
        "id": f"{id}{attempt}.{kind}{record['rounds']}.{digest}" + (f".{position}" if position else ""),
        "tool_call_id": call_id(),
        "step": id,
        "tool": call["name"],
        "arguments": call["args"],
    }
