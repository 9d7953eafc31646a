"""The judge: a second model that sees criterion and evidence, never the claim. Whatever goes wrong is `unverified`."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage

from graph.asking import Question, ask
from graph.briefs import judge_brief
from graph.context import Deps
from prompts import render
from state.evidence import Verdict
from state.extraction import extract_json
from state.ledger import Amounts
from state.settings import Settings

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
) -> tuple[Verdict, str, Amounts]:
    """The verdict, why, and what it cost. The caller sees to it that the allowance has a model call."""
    messages = [SystemMessage(render("judge")), HumanMessage(judge_brief(criterion, evidence))]
    reply = await ask(deps, settings, Question("judge", messages, [VERDICT], allowance=allowance))
    if reply.message is None:
        return "unverified", f"the judge failed: {reply.error}", reply.spent
    calls = [call["args"] for call in reply.message.tool_calls if call["name"] == "verdict"]
    if not calls and (found := extract_json(reply.message.text, PARAMETERS)):
        calls = [found.value]
    met = calls[0].get("met") if len(calls) == 1 else None
    if not isinstance(met, bool):
        return "unverified", "the judge gave no verdict", reply.spent
    return (
        ("passed" if met else "failed"),
        f"the judge says: {str(calls[0].get('reason') or '')[:REASON_CHARS]}",
        reply.spent,
    )
