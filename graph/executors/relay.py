"""Turn a sub-agent's interrupts into questions and approvals of the run, and answers into resume values. Pure.
// An interrupt's value may be a text, a mapping with a question, a request to review calls (`action_requests`), or the
payload of a DoneWhen run.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from donewhen.state.records import FrozenCall, Pause
from donewhen.state.run import Json

QUESTION_KEYS = ("question", "message", "query", "text", "prompt", "description")
QUESTION_CHARS = 20_000


def asks_of(pauses: Sequence[tuple[str, Any]]) -> list[Pause]:
    """Return one row per question: `{id, kind, question, options}`; for a call to review `tool` and `arguments` too."""
    return [ask for id, value in pauses for ask in _asks(str(id), value)]


def _asks(id: str, value: Any) -> list[Pause]:
    if not isinstance(value, Mapping):
        return [_question(id, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))]
    actions = value.get("action_requests")
    if "kind" not in value and isinstance(actions, list) and actions and all(map(_is_action, actions)):
        return [_review(id, action) for action in actions]
    texts = (value.get(key) for key in QUESTION_KEYS)
    described = next((text for text in texts if isinstance(text, str) and text.strip()), "")
    if isinstance(actions, list) and actions and isinstance(actions[0], Mapping):
        described = str(actions[0].get("description") or described)
        plan = str((actions[0].get("args") or {}).get("plan") or "")
        described = described if plan.strip() in described else f"{described}\n\n{plan}"
    options = value.get("options")
    given = [str(each) for each in options] if isinstance(options, list) else []
    return [_question(id, described or json.dumps(dict(value), ensure_ascii=False, default=str), given)]


def _is_action(action: Any) -> bool:
    return isinstance(action, Mapping) and isinstance(action.get("name") or action.get("action"), str)


def _question(id: str, text: str, options: Sequence[str] = ()) -> Pause:
    return {"id": id, "kind": "question", "question": text.strip()[:QUESTION_CHARS], "options": list(options)}


def _review(id: str, action: Mapping[str, Any]) -> Pause:
    """Return the approval of a call that the sub-agent wants to make."""
    arguments = action.get("args", action.get("arguments"))
    return {
        "id": id,
        "kind": "tool",
        "question": str(action.get("description") or "")[:QUESTION_CHARS],
        "options": ["approve", "edit", "reject"],
        "tool": str(action.get("name") or action.get("action")),
        "arguments": dict(arguments) if isinstance(arguments, Mapping) else {},
    }


def open_ask(call: FrozenCall) -> Pause | None:
    """Return the first unanswered question of a delegated call."""
    asks, answers = call.get("asks") or [], call.get("answers") or []
    return asks[len(answers)] if len(answers) < len(asks) else None


def decision(kind: str, text: str, tool: str, arguments: Json | None) -> Json:
    """Return a person's answer to a review in the form that LangChain's agents expect."""
    if kind == "approve":
        return {"type": "approve"}
    if kind == "edit":
        return {"type": "edit", "edited_action": {"name": tool, "args": arguments or {}}}
    return {"type": "respond" if kind == "respond" else "reject", "message": text}


def resume_values(call: FrozenCall) -> dict[str, Any]:
    """Return the value to resume each interrupt with, by interrupt id."""
    found: dict[str, Any] = {}
    for ask, answer in zip(call.get("asks") or (), call.get("answers") or (), strict=False):
        if ask["kind"] == "tool":
            found.setdefault(ask["id"], {"decisions": []})["decisions"].append(answer)
        else:
            found[ask["id"]] = answer
    return found
