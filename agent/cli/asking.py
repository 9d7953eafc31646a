"""Asking a person at the terminal: one pause, one answer value. What it means is read by `state.human`."""

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from donewhen.agent.cli.terminal import Terminal
from donewhen.state.people.answers import Answer, read_answer
from donewhen.state.people.grammar import may_replan
from donewhen.state.people.payloads import question_text, shown_plan
from donewhen.state.plan.text import plan_text

Read = Callable[[str], str]
EDITORS = ("sensible-editor", "nano", "vim", "vi")
PROMPTS = {
    "plan": "[a] approve  [e] edit  [r] reject with feedback  [c] cancel  [l] later > ",
    "tool": "[a] approve  [e] edit  [r] reject  [c] cancel the run  [l] later > ",
    "question": "Answer (/skip, /cancel, /later) > ",
    "budget": "[e] extend  [d] deliver  [r] replan  [s] stop, or an amount  [l] later > ",
    "effect": "Number or words (/cancel, /later) > ",
}
KEYS: dict[str, dict[str, Any]] = {
    "plan": {"a": "approve", "y": "approve", "c": {"type": "cancel"}},
    "tool": {"a": "approve", "y": "approve", "c": {"type": "cancel"}},
    "question": {"/skip": {"type": "reject"}},
    "budget": {"e": "extend", "d": "deliver", "r": "replan", "s": "stop"},
    "effect": {},
}


def _prompt(pending: Mapping[str, Any]) -> str:
    said = PROMPTS[pending["kind"]]
    return said if pending["kind"] != "budget" or may_replan(pending) else said.replace("[r] replan  ", "")


class Later(Exception):
    """The person wants to answer another time."""


@dataclass(frozen=True)
class Person:
    """Somebody at the terminal."""

    terminal: Terminal
    read: Read
    editor: str | None = None

    def ask(self, pending: Mapping[str, Any]) -> Any:
        """Show the pause and ask until there is an answer that is understood. Raises Later (also at Ctrl-D)."""
        self.terminal.line("")
        self.terminal.line(question_text(pending))
        if pending.get("problem"):
            self.terminal.line(f"Not understood: {pending['problem']}", "yellow")
        while True:
            value = self._once(pending)
            if value is None:
                continue
            meaning = read_answer(value, pending)
            if isinstance(meaning, Answer) and meaning.kind == "later":
                raise Later
            if not isinstance(meaning, str):
                return value
            self.terminal.line(meaning, "yellow")

    def _once(self, pending: Mapping[str, Any]) -> Any:
        """One round of asking; None to ask again."""
        kind = pending["kind"]
        typed = self._typed(_prompt(pending))
        key = typed.casefold()
        if key in ("/later", "l") and not (key == "l" and kind == "question"):
            raise Later
        if key == "/cancel":
            return {"type": "cancel"}
        if key in KEYS[kind]:
            return KEYS[kind][key]
        if kind in ("plan", "tool") and key in ("r", "reject", "n", "no"):
            why = self._typed("What should be different? (empty: back) > " if kind == "plan" else "Why? > ")
            return {"type": "reject", "message": why} if why or kind == "tool" else None
        if kind in ("plan", "tool") and key == "e":
            return self._edit_plan(pending) if kind == "plan" else self._edit_call(pending)
        if kind in ("plan", "tool") and len(typed) == 1 and typed.isascii():
            return None  # a slip of the finger is no feedback
        return typed or None

    def _typed(self, prompt: str) -> str:
        try:
            return self.read(prompt).strip()
        except EOFError:
            raise Later from None

    def _edit_plan(self, pending: Mapping[str, Any]) -> Any:
        text = str(pending.get("draft") or shown_plan(pending))
        while edited := self._edited(text, ".md"):
            text = edited
            value = {"type": "edit", "edited_action": {"name": "confirm_plan", "args": {"plan": text}}}
            meaning = read_answer(value, pending)
            if isinstance(meaning, Answer) and meaning.kind == "edit" and meaning.plan:
                limits = {**(pending.get("limits") or {}), **meaning.amounts}
                self.terminal.line(plan_text(meaning.plan, limits=limits))
                return value if self._sure("Run the plan as edited?") else None
            if isinstance(meaning, Answer) and meaning.kind == "reject":
                self.terminal.line(f"Beside the plan stands: {meaning.text}", "yellow")
                return value if self._sure("Send it as feedback to the planner?") else None
            self.terminal.line("Nothing was changed." if isinstance(meaning, Answer) else str(meaning), "yellow")
            if isinstance(meaning, Answer) or not self._sure("Mend it?"):
                return None
        return None

    def _edit_call(self, pending: Mapping[str, Any]) -> Any:
        from donewhen.state.people.payloads import arguments_text

        text = self._edited(arguments_text(pending.get("arguments") or {}), ".json")
        if text is None:
            return None
        return {"type": "edit", "edited_action": {"name": "approve_tool", "args": {"arguments": text}}}

    def _sure(self, question: str) -> bool:
        return self._typed(f"{question} [y/n] > ").casefold() in ("y", "yes")

    def _edited(self, text: str, suffix: str) -> str | None:
        """The text as the person left it in their editor; None if there is no editor or it failed."""
        command = self.editor or next((name for name in EDITORS if shutil.which(name)), None)
        if command is None:
            self.terminal.line("No editor found: set EDITOR.", "yellow")
            return None
        with tempfile.TemporaryDirectory(prefix="donewhen-") as folder:
            path = Path(folder) / f"edit{suffix}"
            path.write_text(text, encoding="utf-8")
            try:
                code = subprocess.run([*shlex.split(command), str(path)], check=False).returncode
            except (OSError, ValueError) as error:
                self.terminal.line(f"The editor {command!r} did not start: {error}", "yellow")
                return None
            if code:
                self.terminal.line(f"The editor ended with code {code}; nothing was taken.", "yellow")
                return None
            return path.read_text(encoding="utf-8", errors="replace")
