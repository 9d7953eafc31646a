"""Render a pause as an interrupt value that every known client can draw (one action, string arguments).

`args` and `arguments` are equal, because clients read one or the other. `reason`, `message`, `tool_call_id` and
`response_schema` are for AG-UI. The other keys (`id`, `kind`, `options`, `plan` …) are ours. `records.Pause` describes
`pending`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from donewhen.state.language.texts import option_texts, say, translate_option
from donewhen.state.pattern import pattern
from donewhen.state.people.amounts import example_amount, format_amount
from donewhen.state.people.edit import plan_document
from donewhen.state.plan.text import plan_text
from donewhen.state.records import Pause

ACTIONS = {
    "plan": ("confirm_plan", ["approve", "edit", "reject"]),
    "question": ("ask_user", ["edit", "respond", "reject"]),
    "tool": ("approve_tool", ["approve", "edit", "reject", "respond"]),
    "budget": ("extend_budget", ["edit", "respond", "reject"]),
    "effect": ("resolve_effect", ["edit", "respond", "reject"]),
}
_UNSEEN = pattern(
    "[\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
    "|(?<=[\x20-\x7e])[\u200c\u200d]"
)
"""Characters that are invisible or change the reading order. Joiners are visible between letters that they join."""
_ENDS_ASKING = pattern(r"[?？؟][^\w?？؟]{0,9}\Z")
REPLACING_ARGUMENTS = (("old", "new"), ("old_text", "new_text"), ("old_string", "new_string"), ("oldText", "newText"))
"""Argument names of tools that replace one text by another."""
LINE_CHARS = 120
"""The most characters of an argument that is shown on a line."""
OPTIONAL_KEYS = (
    "plan", "reply", "limits", "next_runs", "draft", "schema", "tool", "arguments", "new", "sources", "diffs",
    "exhausted", "suggested", "done", "left", "meter",
)  # fmt: skip
"""The keys of a pause that only some kinds have, shown as they are."""
OTHER_KEYS = ("id", "kind", "question", "options", "step")
"""The keys of a pause's short form, beside another one."""


def action_name(kind: str) -> str:
    """Return the name of a pause's action, which is also the name of its tool call."""
    return ACTIONS[kind][0]


def payload(pending: Pause) -> dict[str, Any]:
    """Return the interrupt value of a pause: JSON, with string arguments."""
    kind = pending["kind"]
    name, allowed = ACTIONS[kind]
    arguments = _action_arguments(pending)
    message = question_of(pending)
    value = {
        "action_requests": [
            {
                "name": name,
                "args": arguments,
                "arguments": dict(arguments),
                "description": _description(pending),
            }
        ],
        "review_configs": [{"action_name": name, "allowed_decisions": list(allowed)}],
        "reason": "tool_call" if kind in ("plan", "tool") else "input_required",
        "message": message,
        "tool_call_id": pending.get("tool_call_id"),
        "response_schema": _response_schema(name, allowed, arguments),
        "id": pending.get("id"),
        "kind": kind,
        "question": message,
        "text": pause_text(pending),
        "options": options(pending),
        "step": pending.get("step"),
        "revision": pending.get("revision"),
        "problem": pending.get("problem"),
        "others": [{key: other.get(key) for key in OTHER_KEYS} for other in pending.get("others") or ()],
    }
    return {**value, **{key: pending.get(key) for key in OPTIONAL_KEYS if pending.get(key) is not None}}


def options(pending: Pause) -> list[str]:
    """Return the options of a pause; those of the runtime's own pauses are in the language of the pause."""
    kind, language = pending["kind"], language_of(pending)
    about = pending.get("about") or ("plan" if kind == "tool" else kind)
    given = [str(each) for each in pending.get("options") or ()]
    if about == "question":
        return given
    if not given and kind not in ("budget", "effect"):
        return []
    return [translate_option(each, about, language) for each in given or option_texts(language, about)]


def language_of(pending: Pause) -> str:
    """Return the language of a pause."""
    return str(pending.get("language") or "en")


def editable_plan(pending: Pause) -> str:
    """Return the pending plan as text to be edited: a rejected edit, else the proposal."""
    return str(pending.get("draft") or "") or plan_document(pending)


def question_text(pending: Pause, *, choices: bool = True) -> str:
    """Return the full question as markdown: the plan or the frozen call to approve, and with `choices` the options."""
    kind = pending["kind"]
    parts = [question_of(pending)]
    if kind == "plan":
        parts.append(plan_text(pending).strip())
    if kind in ("tool", "effect") and pending.get("arguments") is not None:
        parts.append(call_text(pending, language_of(pending)))
    if choices and pending.get("schema"):
        parts.append(form_text(pending["schema"], language_of(pending)))
    if choices and kind not in ("plan", "tool") and options(pending):
        # The answer "2" to a budget means two more, so its options carry no numbers.
        marks = ["-" if kind == "budget" else f"{number}." for number in range(1, len(options(pending)) + 1)]
        lines = (" ".join(option.split()) for option in options(pending))
        parts.append("\n".join(f"{mark} {text}" for mark, text in zip(marks, lines, strict=True)))
    if kind == "budget" and pending.get("suggested"):
        language, suggested = language_of(pending), pending["suggested"]
        extend = translate_option("extend", "budget", language)
        amounts = ", ".join(format_amount(key, amount, language) for key, amount in suggested.items())
        example = example_amount(*next(iter(suggested.items())), language)
        parts.append(say(language, "ask", "extend_means", extend=extend, amounts=amounts, example=example))
    return "\n\n".join(parts)


def form_text(schema: Mapping[str, Any], language: str = "en") -> str:
    """Return the fields of a form as lines: `- size (S | M | L, required): what it means`."""
    lines, required = [], schema.get("required") or ()
    for name, field in schema["properties"].items():
        kind = (
            " | ".join(map(str, field["enum"]))
            if isinstance(field.get("enum"), list)
            else str(field.get("type", "any"))
        )
        notes = [kind, *([say(language, "page", "required")] if name in required else [])]
        if "default" in field:
            notes.append(say(language, "ask", "default", value=json.dumps(field["default"], ensure_ascii=False)))
        about = " ".join(str(field.get("description") or field.get("title") or "").split())
        lines.append(f"- {name} ({', '.join(notes)})" + (f": {about}" if about else ""))
    return escape_unseen("\n".join(lines))


def call_text(call: Mapping[str, Any], language: str = "en") -> str:
    """Return a call's arguments for people: short ones as JSON, long texts as text, replaced texts as a diff."""
    arguments = call["arguments"]
    if not isinstance(arguments, Mapping):
        return _fence(arguments_text(arguments))
    shown = {key: say(language, "ask", "below", number=f"{len(arguments[key]):,}") for key in _long_arguments(call)}
    parts = [_fence(arguments_text({**arguments, **shown}))]
    for change in text_changes(call):
        parts.append(f"{change.name}:\n\n{_fence(change.text, 'diff' if change.is_diff else '')}")
    return "\n\n".join(parts)


@dataclass(frozen=True)
class TextChange:
    """A long text among the arguments of a call, or its diff to the text that it replaces."""

    name: str
    text: str
    is_diff: bool = False


def text_changes(call: Mapping[str, Any]) -> list[TextChange]:
    """Return the arguments of a call that are too long for a line; a replaced text is one diff.

    `diffs` of the call has, by argument, the diff to the text that it replaces.
    """
    given, diffs = _arguments_given(call), call.get("diffs") or {}
    pair, found = _replacing_arguments(call), []
    if pair:
        old, new = (given[key] for key in pair)
        found.append(TextChange(" → ".join(pair), escape_unseen(text_difference(old, new)), is_diff=True))
    for key in _long_arguments(call):
        if key not in pair:
            found.append(TextChange(key, escape_unseen(diffs.get(key) or given[key]), is_diff=key in diffs))
    return found


def shown_arguments(call: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments that fit on a line each, as text or as JSON."""
    aside = {*_long_arguments(call), *_replacing_arguments(call)}
    return {
        str(key): escape_unseen(value) if isinstance(value, str) else arguments_text(value)
        for key, value in _arguments_given(call).items()
        if key not in aside
    }


def text_difference(old: str, new: str) -> str:
    """Return the lines of a unified diff without its header; "" if nothing differs."""
    return "\n".join([*unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2)][2:])


def _arguments_given(call: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = call.get("arguments")
    return arguments if isinstance(arguments, Mapping) else {}


def _long_arguments(call: Mapping[str, Any]) -> list[str]:
    diffs = call.get("diffs") or {}
    texts = ((key, text) for key, text in _arguments_given(call).items() if isinstance(text, str))
    return [key for key, text in texts if "\n" in text or len(text) > LINE_CHARS or key in diffs]


def _replacing_arguments(call: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the argument names of a text and its replacement, if either is long."""
    long, given = _long_arguments(call), _arguments_given(call)
    both = [pair for pair in REPLACING_ARGUMENTS if all(isinstance(given.get(key), str) for key in pair)]
    return next((pair for pair in both if any(key in long for key in pair)), ())


def escape_unseen(text: str) -> str:
    """Return the text with invisible characters written as escapes."""
    return _UNSEEN.sub(lambda unseen: json.dumps(unseen[0])[1:-1], text)


def sources_text(rows: Sequence[Mapping[str, Any]], language: str) -> str:
    """Return where each argument of a call comes from: `iban ← s1.2 payee.iban`; one without a source is marked."""
    return "; ".join(
        dict.fromkeys(f"`{escape_unseen(row['argument'])[:80]}` ← {_source_text(row, language)}" for row in rows)
    )


def _source_text(row: Mapping[str, Any], language: str) -> str:
    source = row["source"]
    if source is None:
        return say(language, "source", "none", value=escape_unseen(row["value"])[:80])
    key = "step" if source["kind"] == "plan" and source["at"] else source["kind"]
    return say(language, "source", key, at=source["at"], field=escape_unseen(source["field"])[:80]).strip()


def arguments_text(arguments: Any) -> str:
    """Return the arguments of a call as readable JSON, with invisible characters written as escapes."""
    return escape_unseen(json.dumps(arguments, ensure_ascii=False, indent=2, default=str))


def question_of(pending: Pause) -> str:
    """Return the question alone: what was asked, with its purpose if another step asks the same, or the usual words."""
    asked, purpose = str(pending.get("question") or "").strip(), pending.get("purpose")
    if asked:
        return f"{purpose} ({pending['step']}): {asked}" if purpose else asked
    tool = pending.get("tool") or pending.get("name")
    return say(language_of(pending), "ask", pending["kind"], tool=tool)


def closing_question(pending: Pause) -> str:
    """Return what is asked at the end of a pause: its question, unless what is said at a plan ends with one already."""
    spoken = str(pending.get("reply") or (pending.get("plan") or {}).get("speak") or "")
    if pending["kind"] != "plan" or not _ENDS_ASKING.search(spoken):
        return question_of(pending)
    if not (changes := pending.get("changes")):
        return ""
    return "\n".join([say(language_of(pending), "ask", "differs"), *(f"- {line}" for line in changes)])


def message_text(pending: Pause, *, choices: bool = True, speak: str = "", whole: bool = False) -> str:
    """Return the text of a pause's message in the conversation; a plan begins with its title, or with `speak`.

    Without `choices`, the options and the fields of a form are left out, for somebody who draws them. A plan that the
    person has seen is not written again, and of a changed one only the changes, except in the `whole` text.
    """
    if pending["kind"] != "plan":
        return _with_problem(pending, question_text(pending, choices=choices))
    seen = not whole and (pending.get("reply") or pending.get("problem"))
    if seen:
        parts = [f"{say(language_of(pending), 'plan', 'unchanged')} {closing_question(pending)}".strip()]
    else:
        before = None if whole else pending.get("before")
        parts = [speak, plan_text(pending, before).strip(), closing_question(pending)]
    return _with_problem(pending, "\n\n".join(part for part in parts if part))


def pause_text(pending: Pause, *, whole: bool = False) -> str:
    """Return all that a person needs to answer a pause, as markdown in their language.

    At a plan that is, in this order: what is wrong with the last answer or was answered to it, what the planner says to
    the plan, the plan with its criteria, what it may change, its schedule and chosen limits, and the question. Who has
    read the plan already reads that it is unchanged, or only what changed, except in the `whole` text.
    """
    speak = str((pending.get("plan") or {}).get("speak") or "").strip() if pending["kind"] == "plan" else ""
    return message_text(pending, speak=speak, whole=whole)


def short_arguments(pending: Pause) -> dict[str, str]:
    """Return the arguments of that message's tool call. A plan is shown in the text and the action instead."""
    plan = pending.get("plan") or {}
    if pending["kind"] != "plan":
        return _action_arguments(pending)
    return {"title": str(plan.get("title") or ""), "revision": str(pending.get("revision") or "")}


def _description(pending: Pause) -> str:
    """Return the text that clients show beside the action, and in lists; for a plan only the title."""
    title = (pending.get("plan") or {}).get("title") if pending["kind"] == "plan" else None
    return _with_problem(pending, f"{title}: {question_of(pending)}" if title else question_text(pending))


def _with_problem(pending: Pause, text: str) -> str:
    parts = [text]
    if pending.get("reply"):
        parts.insert(0, str(pending["reply"]))
    if pending.get("problem"):
        parts.insert(0, f"> {pending['problem']}")
    others = pending.get("others") or []
    if others:
        lines = [f"- `{other.get('id')}`: {other.get('question') or other.get('kind')}" for other in others]
        parts.append(say(language_of(pending), "ask", "others") + "\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _action_arguments(pending: Pause) -> dict[str, str]:
    kind = pending["kind"]
    draft = str(pending.get("draft") or "")
    if kind == "plan":
        return {"plan": editable_plan(pending)}
    if kind == "tool":
        tool = str(pending.get("tool") or pending.get("name"))
        return {"tool": tool, "arguments": draft or arguments_text(pending.get("arguments") or {})}
    return {"question": question_text(pending), "answer": ""}


def _fence(text: str, language: str = "json") -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def _response_schema(name: str, allowed: list[str], arguments: Mapping[str, str]) -> dict[str, Any]:
    edited = {
        "name": {"const": name},
        "args": {"type": "object", "properties": {key: {"type": "string"} for key in arguments}},
    }
    decision = {
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {"enum": list(allowed)},
            "message": {"type": "string"},
            "edited_action": {"type": "object", "required": ["name", "args"], "properties": edited},
        },
    }
    decisions = {"type": "array", "minItems": 1, "maxItems": 1, "items": decision}
    return {"type": "object", "required": ["decisions"], "properties": {"decisions": decisions}}
