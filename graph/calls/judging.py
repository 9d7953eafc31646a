"""The judge: a second model that sees criteria and evidence, never the claims. Whatever goes wrong is `unverified`."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage

from donewhen.graph.context import Deps
from donewhen.graph.models.ask import Question, ask
from donewhen.graph.models.briefs import judge_brief
from donewhen.graph.models.forms import from_text
from donewhen.prompts import render
from donewhen.state.ledger import Amounts
from donewhen.state.proof.claims import Verdict
from donewhen.state.reading.extraction import extract, prose
from donewhen.state.settings import Settings

REASON_CHARS = 500
_ONE: dict[str, Any] = {"met": {"type": "boolean"}, "reason": {"type": "string"}}
_ITEM: dict[str, Any] = {
    "type": "object",
    "properties": {"criterion": {"type": "integer"}, **_ONE},
    "required": ["criterion", "met", "reason"],
}
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"verdicts": {"type": "array", "items": _ITEM}},
    "required": ["verdicts"],
}
VERDICT: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "verdict",
        "description": "Decide of each criterion whether the evidence shows that it holds.",
        "parameters": PARAMETERS,
    },
}
_KEYS = {"verdicts", "reason"}
"""One of which a printed verdict has: those asked for, or a single one."""


async def judge(
    asked: Mapping[int, tuple[str, Sequence[Mapping[str, Any]]]],
    changes: str,
    deps: Deps,
    settings: Settings,
    allowance: Mapping[str, float],
    fence: str,
) -> tuple[dict[int, tuple[Verdict, str]], Amounts]:
    """A verdict and why for each criterion, number → (text, evidence), in one call; and what it cost.

    `changes` lists the calls of the step that changed anything, which shows what was done once, or not at all.
    The caller sees to it that the allowance has a model call.
    """
    messages = [SystemMessage(render("judge")), HumanMessage(judge_brief(asked, changes, fence))]
    reply = await ask(deps, settings, Question("judge", messages, [VERDICT], allowance=allowance, must_call=True))
    if reply.message is None:
        return dict.fromkeys(asked, ("unverified", f"the judge failed: {reply.error}")), reply.spent
    calls = [call["args"] for call in reply.message.tool_calls if call["name"] == "verdict"]
    said = calls or _printed(reply.message.text)
    return {number: _verdict(number, said, alone=len(asked) == 1) for number in asked}, reply.spent


def _verdict(number: int, said: Sequence[Mapping[str, Any]], *, alone: bool) -> tuple[Verdict, str]:
    """What was said of one criterion; said of it twice, or not at all, is no verdict."""
    listed = [item for call in said for item in call.get("verdicts") or () if isinstance(item, Mapping)]
    items = listed or list(said)
    mine = [item for item in items if item.get("criterion", number if alone else None) == number]
    met = mine[0].get("met") if len(mine) == 1 else None
    if not isinstance(met, bool):
        return "unverified", "the judge gave no verdict"
    why = f"the judge says: {str(mine[0].get('reason') or '')[:REASON_CHARS]}"
    return ("passed" if met else "failed"), why


def _printed(text: str) -> list[dict[str, Any]]:
    """Verdicts that are the whole reply. One within prose may be evidence repeated, which may say what it likes."""
    printed = from_text(text, ["verdict"])
    if printed.whole and [call["name"] for call in printed.calls] == ["verdict"]:
        return [dict(printed.calls[0]["args"])]
    found = extract(text, lambda value: isinstance(value, dict) and bool(_KEYS & set(value)), keys=("met", "verdicts"))
    alone = found is not None and not prose(text, found) and not text[found.end :].strip()
    return [dict(found.value)] if found is not None and found.value and alone else []
