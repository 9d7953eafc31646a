"""Read the shape of a person's answer, which depends on the client. Its meaning depends on the pause.

Shapes: strings, booleans and numbers; JSON in a string or a fenced block; `{"decisions": [one]}` and a bare decision
(LangChain, agent-chat-ui, deep-agents-ui, ACP); `[{"type", "args"}]` (agent-inbox); `{"approved": bool}` and
`{"__agui_cancelled__": true}` (AG-UI); `{"resume": any}` (A2A); content blocks; and
`{"type" | "decision" | "action": word}`.

Buttons, options and short replies (`state/language/short_replies.py`) decide. All other words go to the planner at a
plan, and to the model at its question or its call. Where words could cost money, at a limit or an unknown effect, the
question is asked again, with what is missing.
"""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from donewhen.state.language.short_replies import read_word
from donewhen.state.language.texts import Unclear, unclear
from donewhen.state.language.words import fold_words
from donewhen.state.people.edit import strip_fence

AnswerKind = Literal[
    "approve", "edit", "reject", "say", "respond", "cancel", "later", "answer", "declined",
    "extend", "deliver", "replan", "retry", "stop", "happened", "not_happened", "skip", "go_on", "leave_out",
]  # fmt: skip
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
AROUND_KEYS = ("type", "decision", "action", "id")
OWN_KEYS = (*AROUND_KEYS, "revision")
MOST_NESTED = 4
ATTACHED = {
    "image", "image_url", "input_image", "audio", "input_audio", "video", "file", "input_file", "text-plain",
    "document",
}  # fmt: skip
"""The types of the content blocks of a message, beside `text`."""
JUDGEMENT = "Approved without further words: use your own judgement."
SIGNED = {"answer", "answered_by"}
"""The keys of an answer with the name of who gave it."""
YES = "--yes"
"""The name in an answer that no person gave, but the command because of this option; it counts as the policy's."""


@dataclass(frozen=True)
class Answer:
    """A person's decision. The possible kinds depend on the question; `cancel` and `later` are always possible."""

    kind: AnswerKind
    text: str = ""
    """The answer to a question, the reason of a rejection ("" if none), what was said about a plan, or the response in
    place of a result."""
    plan: dict[str, Any] | None = None
    """For the `edit` of a plan: the whole edited plan, not yet validated, without a revision."""
    arguments: dict[str, Any] | None = None
    """For the `edit` of a tool call: the arguments to run it with."""
    amounts: dict[str, float] = field(default_factory=dict)
    """For `extend`: the increase by ledger key, all positive. For the `edit` of a plan: the new limits."""
    effects: Mapping[str, str] = field(default_factory=dict, compare=False)
    """For the checked `edit` of a plan: the effects of its tools that are more than reading."""
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)
    """For the `edit` of a plan as text: the line on which each of its parts begins."""
    value: Any = None
    """What the `interrupt` of a graph or tool returns, if the question is its own."""


@dataclass(frozen=True)
class AnswerShape:
    """An answer in one common shape, whatever client sent it."""

    verb: Verb
    """The button that was pressed; `text` for typed text, `list` for several values, `other` for unknown keys."""
    text: str = ""
    """The words sent with it. For an unknown verb: that verb, and the words after a colon, as a person types them."""
    fields: dict[str, Any] = field(default_factory=dict)
    """The edited arguments, or all keys of a dict in no known shape."""
    action: str | None = None
    """The action or tool name that an edit is for."""
    items: list[Any] = field(default_factory=list)
    ids: frozenset[str] = frozenset()
    """The ids of questions that the answer names."""
    revisions: frozenset[str] = frozenset()


def answers_by_id(value: Any, open_ids: Collection[str]) -> dict[str, Any] | str:
    """Return the answers in `value` by question id, {} if it names none, or a text that says which one is stale.

    Answers by id are `{"answers": {…}}`, or a mapping whose keys are all ids of open questions.
    """
    decoded = decode_json(value)
    if not isinstance(decoded, Mapping):
        return {}
    answers = decoded.get("answers") if set(decoded) == {"answers"} else decoded
    if not isinstance(answers, Mapping):
        return {}
    if unknown := sorted(str(id) for id in answers if id not in open_ids):
        answered = "stale: that is answered already, perhaps in another window"
        reason = f"{answered}: nothing waits under {', '.join(unknown)}; open: {', '.join(sorted(open_ids))}."
        return {} if answers is decoded else reason
    return dict(answers)


def sign(value: Any, by: str | None) -> Any:
    """Return an answer with the name of who gave it, or "" so that nothing in it counts as a name; None: as it is."""
    return value if by is None else {"answer": value, "answered_by": by}


def read_signed(value: Any) -> tuple[Any, str | None]:
    """Return an answer without its signature, and the name in it; None if it has none."""
    if isinstance(value, Mapping) and set(value) == SIGNED and isinstance(value["answered_by"], str):
        return value["answer"], value["answered_by"]
    return value, None


def may_answer(audience: str, by: str) -> bool:
    """Return whether a question is for this person: they have the name that it is for, or are `name:somebody`."""
    return not audience or by == audience or by.startswith(f"{audience}:")


def fills_form(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether an answer is an object with fields of the form, and not only a decision such as to cancel."""
    filled, fields = decode_json(value), set(schema.get("properties") or ())
    if not fields or not isinstance(filled, Mapping) or not set(filled) <= fields:
        return False
    shape = read_shape(filled) if len(filled) == 1 and isinstance(value, Mapping) else None
    return not (isinstance(shape, AnswerShape) and shape.verb in ("cancel", "ignore", "later", "reject"))


def why_not_for(ids: Collection[str], *own: str | None) -> str | None:
    """Return why an answer that names `ids` is not for the pause that has its `own` ids; None if it may be."""
    if others := sorted({*ids} - {*own}):
        return f"stale: {', '.join(others)} does not wait; {own[0]} does."
    return None


def read_draft(value: Any) -> str:
    """Return the text of an edit, to be shown again if it was not accepted; "" for any other answer."""
    shape = read_shape(value)
    fields = shape.fields if isinstance(shape, AnswerShape) else {}
    drafts = [fields.get(key) for key in ("plan", "arguments")]
    return next((draft for draft in drafts if isinstance(draft, str) and draft.strip()), "")


# --- shapes


def decode_json(value: Any) -> Any:
    """Return the value of a string that holds JSON, bare or in a fenced block; anything else unchanged."""
    if not isinstance(value, str):
        return value
    text = strip_fence(value).strip()
    if not text.startswith(("{", "[", '"')):
        return value
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return value


def read_shape(value: Any, nesting: int = 0) -> AnswerShape | str:
    """Return the answer in one common shape, or a sentence that says why that is not possible."""
    if nesting > MOST_NESTED:
        return "the answer is wrapped too often"
    if value is None:
        return "nothing was answered"
    if isinstance(value, bool | int | float):
        words = scalar_text(value)
        return AnswerShape("text", words) if words else f"{value} is no answer"
    if isinstance(value, str):
        decoded = decode_json(value)
        return AnswerShape("text", value.strip()) if decoded is value else read_shape(decoded, nesting + 1)
    if isinstance(value, list | tuple):
        return _read_list(list(value), nesting)
    if isinstance(value, Mapping):
        return _read_mapping({str(key): item for key, item in value.items()}, nesting)
    return f"a {type(value).__name__} is no answer"


def is_message(value: Any) -> bool:
    """Return whether a value is the content of a message with images or files: a list of blocks, text among them."""
    blocks = value if isinstance(value, list | tuple) else ()
    kinds = {block.get("type") if isinstance(block, Mapping) else None for block in blocks}
    return bool(kinds & ATTACHED) and kinds <= {"text", *ATTACHED}


def _read_list(items: list[Any], nesting: int) -> AnswerShape | str:
    if not items:
        return "the list is empty"
    if is_message(items):
        return AnswerShape("text", "\n".join(scalar_text(item.get("text")) for item in items if item["type"] == "text"))
    if all(isinstance(item, Mapping) for item in items):
        if all("op" in item for item in items):
            return "a JSON Patch is no answer; send the whole plan, or its edited text"
        if all(item.get("type") == "text" and isinstance(item.get("text"), str) for item in items):
            return read_shape("\n".join(item["text"] for item in items), nesting + 1)
        if len(items) > 1:
            return f"{len(items)} decisions came for one question"
        return read_shape(items[0], nesting + 1)
    if all(isinstance(item, str | int | float) for item in items):
        return AnswerShape("list", items=items)
    return "the list holds no decision"


def _read_mapping(value: dict[str, Any], nesting: int) -> AnswerShape | str:
    if value.get("__agui_cancelled__"):
        return AnswerShape("cancel")
    if set(value) == {"resume"}:
        return read_shape(value["resume"], nesting + 1)
    if "decisions" in value:
        decisions = decode_json(value["decisions"])
        shape = _read_list(decisions, nesting + 1) if isinstance(decisions, list) else "`decisions` must be a list"
        if isinstance(shape, AnswerShape) and shape.verb not in VERBS.values():
            given = f"{str(value['decisions'])[:80]}; known: {', '.join(dict.fromkeys(VERBS.values()))}"
            return f"the decision has no known `type`: {given}"
    else:
        shape = _read_decision(value)
    if isinstance(shape, str):
        return shape
    ids, revisions = ({str(value[key])} if value.get(key) is not None else set() for key in ("id", "revision"))
    return replace(shape, ids=shape.ids | ids, revisions=shape.revisions | revisions)


def _read_decision(value: dict[str, Any]) -> AnswerShape | str:
    words = [fold_words(value[key]) for key in ("type", "decision", "action") if isinstance(value.get(key), str)]
    verbs = {VERBS[word] for word in words if word in VERBS}
    for key, verb in VERBS.items():  # `{"approved": true}` and its relatives; only real booleans count
        if verb in ("approve", "reject", "cancel") and isinstance(value.get(key), bool):
            verbs |= {verb} if value[key] else {"reject"} if verb == "approve" else set()
    if len(verbs) > 1:
        return f"the answer contradicts itself: {', '.join(sorted(verbs))}"
    text = next((typed for key in (*TEXT_KEYS, "args") if (typed := scalar_text(value.get(key)))), "")
    action, fields = read_edit(value)
    if verbs:
        verb = verbs.pop()
        if verb in ("reject", "cancel"):  # with any other button it may be an argument of the tool
            text = text or scalar_text(value.get("comment"))
        return AnswerShape(verb, text, fields, action)
    if words:
        return AnswerShape("other", f"{words[0]}: {text}" if text else words[0], value)
    if fields:
        return AnswerShape("edit", text, fields, action)
    if text and set(value) - {"id", "revision"} <= set(TEXT_KEYS):
        return AnswerShape("reject" if "feedback" in value else "text", text)
    return AnswerShape("other", "", value)


def read_edit(value: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the action or tool that an edit names, and its edited arguments."""
    edited = decode_json(value.get("edited_action") or value.get("editedAction") or value.get("args"))
    if isinstance(edited, Mapping):
        name = edited.get("name") or edited.get("action")
        arguments = decode_json(edited.get("args", edited.get("arguments")))
        if isinstance(arguments, Mapping):
            return (name if isinstance(name, str) else None), dict(arguments)
        return None, dict(edited)
    if isinstance(value.get("steps"), list) and "plan" not in value:
        return None, {"plan": {key: item for key, item in value.items() if key not in (*AROUND_KEYS, *TEXT_KEYS)}}
    return None, {key: value[key] for key in EDIT_KEYS if key in value}


def scalar_text(value: Any) -> str:
    """Return a string, boolean or finite number as a person would type it; "" for anything else."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    return value.strip() if isinstance(value, str) else ""


# --- meanings that several kinds of pauses share


def words_of(shape: AnswerShape) -> str:
    """Return the words of an answer, also those that were typed into a field of our payload."""
    return shape.text or scalar_text(shape.fields.get("answer"))


def read_ending(text: str) -> Answer | None:
    """Read words that end the run or postpone the question; they are the same at every pause."""
    word = read_word(text)
    return Answer(word) if word == "cancel" or word == "later" else None


def read_words(kind: AnswerKind, text: str) -> Answer | None:
    """Return an answer of this kind with these words; None if there are none."""
    return Answer(kind, text) if text.strip("\ufffd \n") else None


def read_broken_json(text: str) -> Unclear | None:
    """Return why a text that was meant as JSON is no answer; None for all other texts."""
    if not strip_fence(text).lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return unclear("broken_json", error=error)
    return unclear("json")


def match_choice(text: str, choices: list[str]) -> str:
    """Return the option that `text` names by its words or number; otherwise, or if it may be two, the text itself."""
    named = named_choices(text, choices)
    return named[0] if len(named) == 1 else text


def named_choices(text: str, choices: list[str]) -> list[str]:
    """Return the options that a text may name: that with these words; else that with this number, and that alone whose
    words begin with it, as “2” does “2 rooms”.
    """
    folded = fold_words(text)
    if same := [choice for choice in choices if fold_words(choice) == folded]:
        return same[:1]
    number = folded.strip("()#")
    if not number.isdecimal() or len(number) > 3:
        return []
    listed = choices[int(number) - 1 : int(number)] if int(number) else []
    begins = [choice for choice in choices if fold_words(choice).split(" ")[0] == folded]
    return list(dict.fromkeys([*listed, *(begins if len(begins) == 1 else ())]))
