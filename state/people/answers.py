"""What a reply means, by what was asked: one reader per kind of pause.

Fails closed: only a whole word of consent is consent ("no" in "know" is nothing, "yes but …" is feedback).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from donewhen.state.people.amounts import read_amounts
from donewhen.state.people.payloads import action_name, options
from donewhen.state.people.reply import Reply, decode_json, looks_like_json, plain, scalar_text
from donewhen.state.plan.edit import edit_plan

AnswerKind = Literal[
    "approve", "edit", "reject", "respond", "cancel", "answer", "declined",
    "extend", "deliver", "replan", "stop", "happened", "not_happened", "skip",
]  # fmt: skip

APPROVE = frozenset((
    "y", "yes", "yes please", "true", "ok", "okay", "approve", "approved", "accept", "accepted", "confirm",
    "confirmed", "lgtm", "looks good", "go ahead", "proceed",
    "同意", "可以", "批准", "好", "好的", "是", "是的", "确认", "行",
))  # fmt: skip
REJECT = frozenset((
    "n", "no", "false", "reject", "rejected", "deny", "denied",
    "不", "不行", "不可以", "不同意", "否", "拒绝",
))  # fmt: skip
CANCEL = frozenset(("cancel", "cancelled", "canceled", "stop", "abort", "quit", "取消", "停止", "中止"))
EDIT = frozenset(("edit", "edited", "respond"))
BUDGET: dict[str, AnswerKind] = {
    "deliver": "deliver", "deliver what there is": "deliver", "交付": "deliver",
    "replan": "replan", "replan cheaper": "replan", "重新规划": "replan",
    "stop": "stop",
}  # fmt: skip
EFFECT: dict[str, AnswerKind] = {
    "happened": "happened", "it happened": "happened", "it did": "happened", "发生了": "happened",
    "not_happened": "not_happened", "not happened": "not_happened", "it did not": "not_happened",
    "it didn't": "not_happened", "did not": "not_happened", "没有": "not_happened",
    "没有发生": "not_happened",
    "skip": "skip", "skip it": "skip", "跳过": "skip",
}  # fmt: skip
ACCEPTED = {
    "plan": "approve, an edited plan, reject with what should be different, or cancel",
    "question": "the answer as text, or the number of an option",
    "tool": "approve, edited arguments, reject with a reason, or a response to use instead of running it",
    "budget": "extend (with amounts, like “extend rounds 5”), deliver, replan, or stop",
    "effect": "“it happened”, “it did not”, or “skip”",
}
OWN_KEYS = ("type", "decision", "action", "id", "revision")
JUDGEMENT = "Approved without further words: use your own judgement."


@dataclass(frozen=True)
class Answer:
    """What a person decided. Which kinds are possible depends on what was asked."""

    kind: AnswerKind
    text: str = ""
    """The answer to a question, the feedback or reason of a rejection ("" if none was given), the response in place
    of a result."""
    plan: dict[str, Any] | None = None
    """kind `edit` of a plan: the whole edited plan, not yet validated, without a revision."""
    arguments: dict[str, Any] | None = None
    """kind `edit` of a tool call: the arguments to run it with."""
    amounts: dict[str, float] = field(default_factory=dict)
    """kind `extend`: how much more, by ledger key; all positive."""


def accepted(pending: Mapping[str, Any]) -> str:
    """What is accepted as an answer to this pause, in words."""
    said = ACCEPTED[pending["kind"]]
    return said if pending["kind"] != "budget" or may_replan(pending) else said.replace("replan, ", "")


def may_replan(pending: Mapping[str, Any]) -> bool:
    """Whether a budget pause offers another plan: not while there is none yet."""
    return any(option.startswith("replan") for option in options(pending))


def _has_words(text: str) -> bool:
    return any(character.isalpha() for character in text)


def _read_plan(reply: Reply, pending: Mapping[str, Any]) -> Answer | str:
    if reply.verb in ("approve", "edit") and reply.fields:
        return _edited_plan(reply, pending)
    if reply.verb == "approve":
        return Answer("approve") if not reply.text or plain(reply.text) in APPROVE else _yes_but(reply.text)
    word = plain(reply.text)
    if reply.verb == "cancel" or (word in CANCEL and reply.verb != "ignore"):
        return Answer("cancel")
    if reply.verb in ("reject", "ignore"):
        return Answer("reject", "" if word in REJECT else reply.text)
    if reply.verb not in ("text", "respond", "edit"):
        return ""
    if word in APPROVE and reply.verb != "edit":
        return Answer("approve")
    if word in REJECT:
        return Answer("reject")
    if word in EDIT or looks_like_json(reply.text) or not _has_words(reply.text):
        return f"“{reply.text[:80]}” is neither a decision nor feedback"
    return Answer("reject", reply.text)


def _yes_but(text: str) -> str:
    return f"approved, but with the words “{text[:80]}”: approve without words, or reject with them"


def _edited_plan(reply: Reply, pending: Mapping[str, Any]) -> Answer | str:
    if reply.action not in (None, action_name("plan")):
        return f"the edit is of {reply.action}, not of the plan"
    edit = edit_plan(reply.fields, pending.get("plan") or {}, limits=pending.get("limits"))
    if edit is None:
        return Answer("reject", scalar_text(reply.fields.get("plan")))
    if isinstance(edit, str):
        return edit
    if reply.text and plain(reply.text) not in APPROVE:
        return _yes_but(reply.text)
    return Answer("edit", plan=edit.plan) if edit.changed else Answer("approve")


def _read_question(reply: Reply, pending: Mapping[str, Any]) -> Answer | str:
    if reply.verb == "cancel":
        return Answer("cancel")
    if reply.verb == "ignore" or (reply.verb == "reject" and not reply.text):
        return Answer("declined")
    if reply.verb == "list":
        return Answer("answer", ", ".join(_choose(scalar_text(item), options(pending)) for item in reply.items))
    text = reply.text or scalar_text(reply.fields.get("answer"))
    if text and reply.verb != "other":
        return Answer("answer", _choose(text, options(pending)))
    if reply.verb != "approve":
        return "the answer is empty"
    return Answer("answer", next((option for option in options(pending) if plain(option) in APPROVE), JUDGEMENT))


def _choose(text: str, choices: list[str]) -> str:
    """The option that `text` names, by its words or else by its number; otherwise the text itself."""
    for choice in choices:
        if plain(choice) == plain(text):
            return choice
    number = plain(text).strip("()#")
    if number.isdecimal() and len(number) < 4 and 1 <= int(number) <= len(choices):
        return choices[int(number) - 1]
    return text


def _read_tool(reply: Reply, pending: Mapping[str, Any]) -> Answer | str:
    if reply.verb == "cancel":
        return Answer("cancel")
    if reply.verb in ("approve", "edit") and reply.fields:
        return _edited_call(reply, pending)
    if reply.verb == "approve":
        return Answer("approve") if not reply.text or plain(reply.text) in APPROVE else _yes_but(reply.text)
    if reply.verb in ("reject", "ignore"):
        return Answer("reject", reply.text)
    if reply.verb == "respond":
        return Answer("respond", reply.text) if reply.text else "the response is empty"
    unclear = plain(reply.text) in EDIT or looks_like_json(reply.text) or not _has_words(reply.text)
    if reply.verb != "text" or unclear:
        return ""
    if plain(reply.text) in APPROVE:
        return Answer("approve")
    return Answer("reject", "" if plain(reply.text) in REJECT else reply.text)


def _edited_call(reply: Reply, pending: Mapping[str, Any]) -> Answer | str:
    tool = str(pending.get("tool") or pending.get("name"))
    if reply.action == tool and tool != action_name("tool"):
        arguments: Any = reply.fields
    elif str(reply.fields.get("tool", tool)) != tool:
        return f"the call is of {tool}; another tool cannot be put in its place"
    else:
        arguments = decode_json(reply.fields.get("arguments"))
    if not isinstance(arguments, Mapping):
        return "the edited arguments are not a JSON object"
    if reply.text and plain(reply.text) not in APPROVE:
        return _yes_but(reply.text)
    changed = dict(arguments) != (pending.get("arguments") or {})
    return Answer("edit", arguments=dict(arguments)) if changed else Answer("approve")


def _read_budget(reply: Reply, pending: Mapping[str, Any]) -> Answer | str:
    if reply.verb == "cancel" or (reply.verb in ("reject", "ignore") and not reply.text):
        return Answer("stop")
    text = reply.text or scalar_text(reply.fields.get("answer"))
    word = plain(text)
    more = {key: item for key, item in reply.fields.items() if key not in OWN_KEYS}
    if reply.verb == "other" and word in ("", "extend") and more:
        return _extended(more.get("extend", more.get("amounts", more)), pending)
    if word in CANCEL | REJECT:
        return Answer("stop")
    anew = BUDGET.get(word) == "replan" or (word.startswith("replan") and reply.verb != "approve")
    if anew and not may_replan(pending):
        return "nothing is planned yet, so nothing can be planned anew"
    if word in BUDGET:
        return Answer(BUDGET[word])
    if anew:
        return Answer("replan", text[len("replan") :].strip(" :,;-"))
    agreed = (reply.verb == "approve" and not text) or word in APPROVE | {"extend", "延长", "继续"}
    return _extended(True if agreed else text, pending)


def _extended(value: Any, pending: Mapping[str, Any]) -> Answer | str:
    amounts = read_amounts(value, pending)
    return Answer("extend", amounts=amounts) if isinstance(amounts, dict) else amounts


def _read_effect(reply: Reply, pending: Mapping[str, Any]) -> Answer | str:
    if reply.verb == "cancel":
        return Answer("cancel")
    if reply.verb == "ignore" or (reply.verb == "reject" and not reply.text):
        return Answer("skip")
    # A button "approve" does not say whether the effect happened; the words do.
    text = "" if reply.verb == "approve" else reply.text or scalar_text(reply.fields.get("answer"))
    word = plain(_choose(text, options(pending)))
    if word in EFFECT:
        return Answer(EFFECT[word])
    if word in ("y", "yes", "true", "是", "是的"):
        return Answer("happened")
    if word in ("n", "no", "false", "否", "不"):
        return Answer("not_happened")
    return f"“{text[:80]}” does not say whether it happened" if text else ""


READERS: dict[str, Callable[[Reply, Mapping[str, Any]], Answer | str]] = {
    "plan": _read_plan,
    "question": _read_question,
    "tool": _read_tool,
    "budget": _read_budget,
    "effect": _read_effect,
}
