"""Write calls and forms as Markdown for people."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from donewhen.state.language.texts import say
from donewhen.state.pattern import pattern
from donewhen.state.reading.decisions import PROGRAM
from donewhen.state.secrets import conceal_json

_UNSEEN = pattern(
    "[\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
    "|(?<=[\x20-\x7e])[\u200c\u200d]"
)
"""Characters that are invisible or change the reading order. Joiners are visible between letters that they join."""
REPLACING_ARGUMENTS = (("old", "new"), ("old_text", "new_text"), ("old_string", "new_string"), ("oldText", "newText"))
"""Argument names of tools that replace one text by another."""
LINE_CHARS = 120
"""The most characters of an argument that is shown on a line."""


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
    """Return the arguments of a call that are too long for a line, or replace something; a replaced text is one diff.

    `diffs` of the call has, by argument, the diff to what it replaces; `code` is the program that makes the call.
    """
    arguments, diffs = _arguments_of(call), call.get("diffs") or {}
    pair, changes = _replacing_arguments(call), []
    if pair:
        old, new = (arguments[key] for key in pair)
        changes.append(TextChange(" → ".join(pair), escape_unseen(_difference_anywhere(old, new)), is_diff=True))
    for key in _long_arguments(call):
        if key not in pair:
            changes.append(TextChange(key, escape_unseen(diffs.get(key) or arguments[key]), is_diff=key in diffs))
    others = (key for key in diffs if key not in (*_long_arguments(call), *pair))
    changes += [TextChange(key, escape_unseen(diffs[key]), is_diff=True) for key in others]
    return [*changes, TextChange(PROGRAM, escape_unseen(call["code"]), is_diff=False)] if call.get("code") else changes


def shown_arguments(call: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments that fit on one line each, as text or as JSON; `text_changes` has the others."""
    shown_apart = {*_long_arguments(call), *_replacing_arguments(call)}
    return {
        str(key): escape_unseen(value) if isinstance(value, str) else arguments_text(value)
        for key, value in _arguments_of(call).items()
        if key not in shown_apart
    }


def comparable_text(value: Any) -> str:
    """Return a value as lines that a diff can compare: a text as it is, other values as sorted JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True, default=str)


def _difference_anywhere(old: str, new: str) -> str:
    """Return the difference of two passages; in which lines of their file they stand is not known."""
    return re.sub(r"(?m)^@@ .* @@$", "@@", text_difference(old, new)).removeprefix("@@\n")


def text_difference(old: str, new: str) -> str:
    """Return the lines of a unified diff without its header; "" if nothing differs."""
    return "\n".join([*unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2)][2:])


def _arguments_of(call: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = call.get("arguments")
    return arguments if isinstance(arguments, Mapping) else {}


def _long_arguments(call: Mapping[str, Any]) -> list[str]:
    texts = ((key, text) for key, text in _arguments_of(call).items() if isinstance(text, str))
    return [key for key, text in texts if "\n" in text or len(text) > LINE_CHARS]


def _replacing_arguments(call: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the argument names of a text and its replacement, if either is long."""
    long, arguments = _long_arguments(call), _arguments_of(call)
    both = [pair for pair in REPLACING_ARGUMENTS if all(isinstance(arguments.get(key), str) for key in pair)]
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
        name = row["argument"].rpartition(".")[2]
        return say(language, "source", "none", value=escape_unseen(conceal_json({name: row["value"]})[name])[:80])
    key = "step" if source["kind"] == "plan" and source["at"] else source["kind"]
    return say(language, "source", key, at=source["at"], field=escape_unseen(source["field"])[:80]).strip()


def arguments_text(arguments: Any) -> str:
    """Return the arguments of a call as readable JSON, with invisible characters written as escapes."""
    return escape_unseen(json.dumps(arguments, ensure_ascii=False, indent=2, default=str))


def _fence(text: str, language: str = "json") -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
