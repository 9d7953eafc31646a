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
from state.ledger import Amounts, exhausted
from state.settings import Settings

VERDICT = {
    "type": "function",
    "function": {
        "name": "verdict",
        "description": "Decide whether the evidence shows that the criterion holds.",
        "parameters": {
            "type": "object",
            "properties": {"met": {"type": "boolean"}, "reason": {"type": "string"}},
            "required": ["met", "reason"],
        },
    },
}


async def judge(
    criterion: str,
    evidence: Sequence[Mapping[str, Any]],
    deps: Deps,
    settings: Settings,
    allowance: Mapping[str, float],
) -> tuple[Verdict, str, Amounts]:
    """The verdict, why, and what it cost."""
    if key := exhausted(allowance, ("model_calls",)):
        return "unverified", f"the judge could not be asked: the limit of {key} was reached", {}
    messages = [SystemMessage(render("judge")), HumanMessage(judge_brief(criterion, evidence))]
    reply = await ask(deps, settings, Question("judge", messages, [VERDICT], allowance=allowance))
    if reply.message is None:
        return "unverified", f"the judge failed: {reply.error}", reply.spent
    calls = [call["args"] for call in reply.message.tool_calls if call["name"] == "verdict"]
    parameters = VERDICT["function"]["parameters"]  # type: ignore[index]
    if not calls and (found := extract_json(reply.message.text, parameters)):
        calls = [found.value]
    met = calls[0].get("met") if len(calls) == 1 else None
    if not isinstance(met, bool):
        return "unverified", "the judge gave no verdict", reply.spent
    reason = str(calls[0].get("reason") or "")[:500]
    return ("passed" if met else "failed"), f"the judge says: {reason}", reply.spent
