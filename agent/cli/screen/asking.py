"""Ask a person at the terminal, and return one answer value; `state.people` reads its meaning."""

import json
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from donewhen import ConfigError
from donewhen.agent.cli.result import short_id
from donewhen.agent.cli.screen.drawing import draw_pause, draw_plan
from donewhen.agent.cli.screen.terminal import TAB, Terminal, shorten
from donewhen.clients import (
    Answer,
    FormField,
    FormPause,
    Json,
    OpenPause,
    PlanPause,
    ToolPause,
    arguments_text,
    coerce_typed,
    field_problem,
    filled_lines,
    form_fields,
    load_pause,
    read_word,
)
from donewhen.types import Pause, ThreadInfo

EDITORS = ("sensible-editor", "nano", "vim", "vi")
PROMPT = "> "
FORM_KEYS: dict[str, Any] = {"/skip": {"type": "reject"}, "/cancel": {"type": "cancel"}}


class Later(Exception):
    """The person wants to answer another time."""


UNASKED = "{} deleted if somebody agrees, and nobody can be asked here: add --yes"


def agrees(terminal: Terminal, legend: str) -> bool:
    """Return whether the person says yes below this line of keys; Ctrl-D is a no."""
    terminal.legend(legend)
    try:
        return read_word(terminal.read(PROMPT)) == "yes"
    except EOFError:
        return False


def ask_consent(terminal: Terminal, about: str, legend: str, unasked: str) -> bool:
    """Return whether the person agrees to what the legend says, after a line about what it is for.

    Raises ConfigError with the text `unasked` if nobody can be asked.
    """
    if not terminal.interactive:
        raise ConfigError(unasked)
    terminal.line(about)
    return agrees(terminal, legend)


def is_meant(terminal: Terminal, info: ThreadInfo, legend: str) -> bool:
    """Return whether the person means this thread, which they did not name: it is only the latest.

    Raises ConfigError if nobody can be asked.
    """
    unasked = f"no thread is named; the latest is {info.thread_id}. Name the one that you mean"
    return ask_consent(terminal, f"Thread {short_id(info.thread_id)}: {shorten(info.goal, 68)}", legend, unasked)


@dataclass(frozen=True)
class Person:
    """The person at the terminal."""

    terminal: Terminal
    read: Callable[[str], str]
    editor: str | None = None
    drafts: dict[str, str] = field(default_factory=dict)
    """Unsent edits, by the pause's id."""
    seen: set[str] = field(default_factory=set)
    """The ids of the plans that were shown."""

    def ask(self, pending: Pause) -> Any:
        """Show the pause and ask until an answer is understood. Raises Later (also at Ctrl-D)."""
        pause = load_pause(pending)
        self.terminal.line("")
        self.terminal.show(draw_pause(pause, self.terminal, seen=pause.id in self.seen, fields=False))
        self.seen.add(pause.id)
        if pause.notice:
            self.terminal.line(pause.notice, "yellow")
        self.terminal.discard_typed()  # typed before it was drawn whole
        while True:
            value = self._ask_once(pause)
            if value is None:
                continue
            meaning = pause.read(value)
            if isinstance(meaning, Answer) and meaning.kind == "later":
                raise Later
            if not isinstance(meaning, str):
                return value
            self.terminal.line(meaning, "yellow")

    def _ask_once(self, pause: OpenPause) -> Any:
        """Ask once; return None to ask again."""
        if isinstance(pause, FormPause):
            return self._fill_form(pause.form)
        typed = self._read_typed(pause.legend)
        key = typed.casefold()
        if key == "/later":
            raise Later
        if key == "/cancel":
            return {"type": "cancel"}
        if key in pause.keys:
            return pause.keys[key]
        if not isinstance(pause, PlanPause | ToolPause):
            return typed.strip() or None
        is_plan = isinstance(pause, PlanPause)
        if typed.startswith(TAB) or key in ("r", "reject", "n", "no"):
            why = typed.strip() if typed.strip(TAB) and typed.startswith(TAB) else ""
            why = why or self._read_typed("what_instead" if is_plan else "why_not").strip()
            return {"type": "reject", "message": why} if why or not is_plan else None
        if key == "e":
            return self._edit_plan(pause) if isinstance(pause, PlanPause) else self._edit_call(pause)
        if len(typed) == 1 and typed.isascii():
            return None  # a slip of the finger is no feedback
        return typed or None

    def _fill_form(self, schema: Json) -> Any:
        """Ask field by field; return the filled form, or the person's word on the whole question."""
        self.terminal.legend(self.terminal.say("keys_form"))
        filled: dict[str, Any] = {}
        for each in form_fields(schema):
            self.terminal.line(self._heading(each), "bold")
            for line in _choices_of(each):
                self.terminal.line(line)
            while True:
                typed = self._read_typed("").strip(TAB)
                if typed.casefold() in FORM_KEYS:
                    return FORM_KEYS[typed.casefold()]
                if typed.casefold() == "/later":
                    raise Later
                if (value := read_typed(each, typed)) is not None:
                    value = coerce_typed({each["name"]: value}, schema)[each["name"]]
                if not (problem := field_problem(schema, each["name"], value)):
                    break
                self.terminal.line(problem, "yellow")
            if value is not None:
                filled[each["name"]] = value
        return filled

    def _heading(self, field: FormField) -> str:
        needed = [self.terminal.texts("page")["required"]] if field["required"] else []
        usual = [f"[{filled_lines({'': field['default']})[2:]}]"] if "default" in field else []
        notes = f" ({', '.join(needed)})" if needed else ""
        return " ".join([f"{field['title']}{notes}", *usual, *([f"– {field['about']}"] if field["about"] else [])])

    def _read_typed(self, legend: str) -> str:
        """Return the text typed below a line of keys; it begins with a TAB if that was pressed."""
        if legend:
            self.terminal.legend(self.terminal.say(legend))
        try:
            typed = self.read(PROMPT)
        except EOFError:
            raise Later from None
        return TAB + typed.strip() if typed.startswith(TAB) else typed.strip()

    def _warn(self, key: str, **values: Any) -> None:
        self.terminal.line(self.terminal.say(key, **values), "yellow")

    def _edit_plan(self, pause: PlanPause) -> Any:
        """Return an edit of the plan; None if the person went back, keeping the text for the next time."""
        draft_id = pause.id
        text = self.drafts.get(draft_id) or pause.editable_plan()
        while (edited := self._open_editor(text, ".yaml")) is not None:
            self.drafts[draft_id] = text = edited
            value = {"type": "edit", "edited_action": {"name": pause.action, "args": {"plan": text}}}
            legend = self._show_edit(pause.read(value), pause)
            if not legend:
                del self.drafts[draft_id]
                return None
            chosen = self._read_typed(legend).casefold()
            if chosen in ("y", "yes") and legend != "keys_mend":
                return value
            if chosen not in ("e", "y", "yes"):
                self._warn("kept_edit")
                return None
        return None

    def _show_edit(self, meaning: Any, pause: PlanPause) -> str:
        """Show what an edit changes; return the available keys, "" if it changes nothing."""
        if isinstance(meaning, Answer) and meaning.kind == "edit" and meaning.plan:
            edited = pause.but(plan=meaning.plan, limits={**pause.limits, **meaning.amounts})
            self.terminal.show(draw_plan(edited.dump(), self.terminal))
            return "keys_edited"
        if isinstance(meaning, Answer):
            self._warn("unchanged")
            return ""
        self.terminal.line(str(meaning), "yellow")
        return "keys_mend"

    def _edit_call(self, pause: ToolPause) -> Any:
        text = self._open_editor(arguments_text(pause.arguments or {}), ".json")
        if text is None:
            return None
        return {"type": "edit", "edited_action": {"name": pause.action, "args": {"arguments": text}}}

    def _open_editor(self, text: str, suffix: str) -> str | None:
        """Return the text from the person's editor; None if there is no editor or it failed."""
        command = self.editor or next((name for name in EDITORS if shutil.which(name)), None)
        if command is None:
            self.terminal.line(self.terminal.say("no_editor"), "yellow")
            return None
        with tempfile.TemporaryDirectory(prefix="donewhen-") as folder:
            path = Path(folder) / f"edit{suffix}"
            path.write_text(text, encoding="utf-8")
            # Ctrl-C goes to both of us, and is the editor's. A handler, unlike SIG_IGN, is not inherited.
            before = signal.signal(signal.SIGINT, lambda *_: None)
            try:
                code = subprocess.run([*shlex.split(command), str(path)], check=False).returncode
            except (OSError, ValueError) as error:
                self.terminal.line(self.terminal.say("editor_missing", command=repr(command), error=error), "yellow")
                return None
            finally:
                signal.signal(signal.SIGINT, before)
            if code:
                self.terminal.line(self.terminal.say("editor_failed", code=code), "yellow")
                return None
            return path.read_text(encoding="utf-8", errors="replace")


def _choices_of(field: FormField) -> list[str]:
    if field["kind"] == "boolean":
        return ["[y] yes  [n] no"]
    return [f"{number}. {option['label']}" for number, option in enumerate(field["options"], 1)]


def read_typed(field: FormField, typed: str) -> Any:
    """Return what was typed for a field: a choice by its name or number, else the text; None for nothing typed."""
    if not typed:
        return None
    if field["kind"] == "choices":
        return [_choice(field, part.strip()) for part in typed.split(",") if part.strip()]
    if field["kind"] in ("integer", "number", "json"):
        with suppress(ValueError):
            return json.loads(typed)
    return _choice(field, typed) if field["kind"] == "choice" else typed


def _choice(field: FormField, typed: str) -> Any:
    options = field["options"]
    named = [option["value"] for option in options if typed in (option["label"], str(option["value"]))]
    if not named and typed.isascii() and typed.isdecimal() and 0 < int(typed[:9]) <= len(options):
        return options[int(typed) - 1]["value"]
    return named[0] if named else typed
