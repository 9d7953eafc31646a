"""What a person said, read from the shapes that clients send. What it means is decided in `answers`.

Read here: strings, booleans and numbers; JSON in a string or a fenced block; `{"decisions": [one]}` and a
bare decision (LangChain, agent-chat-ui, deep-agents-ui, ACP); `[{"type", "args"}]` (agent-inbox);
`{"approved": bool}` and `{"__agui_cancelled__": true}` (AG-UI); `{"resume": any}` (A2A); content blocks;
and `{"type" | "decision" | "action": word}`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from donewhen.state.language.words import plain
from donewhen.state.plan.document import unfenced

Verb = Literal["approve", "edit", "reject", "respond", "ignore", "cancel", "later", "text", "list", "other"]

VERBS: dict[str, Verb] = {
    "approve": "approve", "approved": "approve", "accept": "approve", "accepted": "approve",
    "edit": "edit", "edited": "edit",
    "reject": "reject", "rejected": "reject", "deny": "reject", "denied": "reject",
    "respond": "respond", "response": "respond", "answer": "respond",
    "ignore": "ignore",
    "cancel": "cancel", "cancelled": "cancel", "canceled": "cancel", "abort": "cancel",
    "later": "later", "postpone": "later",
}  # fmt: skip
TEXT_KEYS = ("message", "feedback", "reason", "text", "answer", "response")
EDIT_KEYS = ("plan", "steps", "arguments")
PLAN_KEYS = ("title", "complexity", "need_thinking", "steps", "schedule", "speak", "revision", "limits")
NESTING = 4


@dataclass(frozen=True)
class Given:
    """One answer as it was given, whatever its shape was."""

    verb: Verb
    """What the button said; `text` for something typed, `list` for several values, `other` for own keys."""
    text: str = ""
    """The words that came with it, or the word of an unknown verb."""
    fields: dict[str, Any] = field(default_factory=dict)
    """The edited arguments, or all keys of a dict that is none of the known shapes."""
    action: str | None = None
    """The action or tool name an edit says it is for."""
    items: list[Any] = field(default_factory=list)
    ids: frozenset[str] = frozenset()
    """Every question id the answer says it answers."""
    revisions: frozenset[str] = frozenset()


def decode_json(value: Any) -> Any:
    """A string that holds JSON (bare or in a fenced block) as its value; anything else unchanged."""
    if not isinstance(value, str):
        return value
    text = unfenced(value).strip()
    if not text.startswith(("{", "[", '"')):
        return value
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return value


def looks_like_json(text: str) -> bool:
    """Whether a text was meant as JSON, though it may be broken: nobody's feedback begins so."""
    return unfenced(text).lstrip().startswith(("{", "["))


def read_shape(value: Any, nesting: int = 0) -> Given | str:
    """What was given in `value`, or a sentence that says why there is none."""
    if nesting > NESTING:
        return "the answer is wrapped too often"
    if value is None:
        return "nothing was answered"
    if isinstance(value, bool | int | float):
        words = scalar_text(value)
        return Given("text", words) if words else f"{value} is no answer"
    if isinstance(value, str):
        decoded = decode_json(value)
        return Given("text", value.strip()) if decoded is value else read_shape(decoded, nesting + 1)
    if isinstance(value, list | tuple):
        return _read_list(list(value), nesting)
    if isinstance(value, Mapping):
        return _read_mapping({str(key): item for key, item in value.items()}, nesting)
    return f"a {type(value).__name__} is no answer"


def _read_list(items: list[Any], nesting: int) -> Given | str:
    if not items:
        return "the list is empty"
    if all(isinstance(item, Mapping) for item in items):
        if all("op" in item for item in items):
            return "a JSON Patch is no answer; send the whole plan, or its edited text"
        if all(item.get("type") == "text" and isinstance(item.get("text"), str) for item in items):
            return read_shape("\n".join(item["text"] for item in items), nesting + 1)
        if len(items) > 1:
            return f"{len(items)} decisions came for one question"
        return read_shape(items[0], nesting + 1)
    if all(isinstance(item, str | int | float) for item in items):
        return Given("list", items=items)
    return "the list holds no decision"


def _read_mapping(value: dict[str, Any], nesting: int) -> Given | str:
    if value.get("__agui_cancelled__"):
        return Given("cancel")
    if "decisions" in value:
        decisions = decode_json(value["decisions"])
        inner = _read_list(decisions, nesting + 1) if isinstance(decisions, list) else "`decisions` must be a list"
        if isinstance(inner, Given) and inner.verb not in VERBS.values():
            return "the decision has no known `type`"
        return _claimed(inner, value)
    if set(value) == {"resume"}:
        return read_shape(value["resume"], nesting + 1)
    return _claimed(_read_decision(value), value)


def _claimed(given: Given | str, value: Mapping[str, Any]) -> Given | str:
    """What was given, with the ids and revisions that `value` says it is about."""
    if isinstance(given, str):
        return given
    named = {key: {str(value[key])} if value.get(key) is not None else set() for key in ("id", "revision")}
    ids, revisions = given.ids | named["id"], given.revisions | named["revision"]
    return Given(given.verb, given.text, given.fields, given.action, given.items, ids, revisions)


def _read_decision(value: dict[str, Any]) -> Given | str:
    words = [plain(value[key]) for key in ("type", "decision", "action") if isinstance(value.get(key), str)]
    verbs = _flags(value)
    verbs.update(VERBS[word] for word in words if word in VERBS)
    if len(verbs) > 1:
        return f"the answer contradicts itself: {', '.join(sorted(verbs))}"
    text, (action, fields) = _text(value), _edits(value)
    if verbs:
        return Given(verbs.pop(), text, fields, action)
    if words:
        return Given("other", words[0], value)
    if fields:
        return Given("edit", text, fields, action)
    if text and set(value) - {"id", "revision"} <= set(TEXT_KEYS):
        return Given("reject" if "feedback" in value else "text", text)
    return Given("other", "", value)


def _flags(value: Mapping[str, Any]) -> set[Verb]:
    """What `{"approved": true}` and its relatives say; only real booleans count."""
    verbs: set[Verb] = set()
    for key in value:
        verb = VERBS.get(key)
        if verb in ("approve", "reject", "cancel") and isinstance(value[key], bool):
            if value[key]:
                verbs.add(verb)
            elif verb == "approve":
                verbs.add("reject")
    return verbs


def _text(value: Mapping[str, Any]) -> str:
    for key in (*TEXT_KEYS, "args"):
        words = scalar_text(value.get(key))
        if words:
            return words
    return ""


def scalar_text(value: Any) -> str:
    """A string, boolean or finite number as a person would have typed it; "" for anything else."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    return value.strip() if isinstance(value, str) else ""


def _edits(value: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The action or tool named by an edit, and its edited arguments."""
    edited = decode_json(value.get("edited_action") or value.get("editedAction") or value.get("args"))
    if isinstance(edited, Mapping):
        name = edited.get("name") or edited.get("action")
        arguments = decode_json(edited.get("args", edited.get("arguments")))
        if isinstance(arguments, Mapping):
            return (name if isinstance(name, str) else None), dict(arguments)
        return None, dict(edited)
    if isinstance(value.get("steps"), list) and "plan" not in value:
        return None, {"plan": {key: value[key] for key in PLAN_KEYS if key in value}}
    return None, {key: value[key] for key in EDIT_KEYS if key in value}
