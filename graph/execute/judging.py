"""The judge: a second model that sees criterion and evidence, never the claim. Whatever goes wrong is `unverified`."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage

from donewhen.graph.context import Deps
from donewhen.graph.models.ask import Question, ask
from donewhen.graph.models.briefs import judge_brief
from donewhen.graph.models.forms import from_text
from donewhen.prompts import render
from donewhen.state.ledger import Amounts
from donewhen.state.proof.evidence import Verdict
from donewhen.state.reading.extraction import extract, prose
from donewhen.state.settings import Settings

REASON_CHARS = 500
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"met": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["met", "reason"],
}
VERDICT: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "verdict",
        "description": "Decide whether the evidence shows that the criterion holds.",
        "parameters": PARAMETERS,
    },
}


async def judge(
    criterion: str,
    evidence: Sequence[Mapping[str, Any]],
    deps: Deps,
    settings: Settings,
    allowance: Mapping[str, float],
    fence: str = "",
) -> tuple[Verdict, str, Amounts]:
    """The verdict, why, and what it cost. The caller sees to it that the allowance has a model call."""
    messages = [SystemMessage(render("judge")), HumanMessage(judge_brief(criterion, evidence, fence))]
    reply = await ask(deps, settings, Question("judge", messages, [VERDICT], allowance=allowance, must_call=True))
    if reply.message is None:
        return "unverified", f"the judge failed: {reply.error}", reply.spent
    calls = [call["args"] for call in reply.message.tool_calls if call["name"] == "verdict"]
    if not calls and (printed := _printed(reply.message.text)):
        calls = [printed]
    met = calls[0].get("met") if len(calls) == 1 else None
    if not isinstance(met, bool):
        return "unverified", "the judge gave no verdict", reply.spent
    return (
        ("passed" if met else "failed"),
        f"the judge says: {str(calls[0].get('reason') or '')[:REASON_CHARS]}",
        reply.spent,
    )


def _printed(text: str) -> dict[str, Any] | None:
    """A verdict that is the whole reply. One within prose may be evidence repeated, which may say what it likes."""
    printed = from_text(text, ["verdict"])
    if printed.whole and [call["name"] for call in printed.calls] == ["verdict"]:
        return dict(printed.calls[0]["args"])
    found = extract(text, lambda value: isinstance(value, dict) and "reason" in value, keys=("met",))
    alone = found is not None and not prose(text, found) and not text[found.end :].strip()
    return dict(found.value) if found is not None and found.value and alone else None
