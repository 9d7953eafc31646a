"""Asking a person at the terminal: what is asked, drawn, and one answer value; `state.people` reads what it means."""

import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from donewhen.agent.cli.terminal import NAMES, Terminal
from donewhen.state.people.answers import Answer, read_answer
from donewhen.state.people.grammar import may_replan
from donewhen.state.people.payloads import arguments_text, question_text, shown_plan
from donewhen.state.plan.text import schedule_text

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


def draw(pending: Mapping[str, Any], terminal: Terminal) -> None:
    """What is asked, whole: a plan drawn for reading, everything else as every client shows it."""
    if pending["kind"] != "plan":
        return terminal.line(question_text(pending))
    terminal.line(str(pending.get("question") or ""))
    for text, style in plan_lines(pending.get("plan") or {}, pending.get("limits") or {}):
        terminal.line(text, style)
    return None


def plan_lines(plan: Mapping[str, Any], limits: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A plan as (text, style): what approving it approves, with nothing of it left out."""
    yield from (("", ""), (str(plan.get("title") or "Plan"), "bold"))
    for step in plan.get("steps") or []:
        yield from (("", ""), (f"{step.get('id')}. " + _inset(step["content"]), ""))
        for criterion in step.get("done_when") or []:
            yield f"    done when  {_inset(_criterion_text(criterion))}", ""
        for name, value in (("with", step.get("tools")), ("after", step.get("depends_on"))):
            yield from ((f"    {name:9}  {', '.join(map(str, each))}", "dim") for each in [value] if each)
        if step.get("executor"):
            yield f"    by         {step['executor']}", "dim"
    if wanted := plan.get("done_when"):
        yield from (("", ""), *((f"In the end: {_criterion_text(each)}", "") for each in wanted))
    amounts = [_amount(key, amount) for key, amount in limits.items() if amount is not None]
    if plan.get("schedule"):
        yield from (("", ""), (f"Repeated {schedule_text(plan['schedule'])}", ""))
    if amounts:
        yield from (("", ""), (f"At most: {', '.join(amounts)}", "dim"))


def _inset(text: Any) -> str:
    """A text whose further lines stand below its first."""
    return "\n    ".join(line.strip() for line in str(text).splitlines() if line.strip())


def _amount(key: str, amount: float) -> str:
    said = {"cost_usd": f"${amount:g}", "active_seconds": f"{amount:g} s of work"}
    return said.get(key, f"{amount:g} {NAMES.get(key, key)}")


def _criterion_text(criterion: Any) -> str:
    """A criterion in words, with the call that decides it and what is expected of that."""
    entry = criterion if isinstance(criterion, Mapping) else {"text": criterion}
    text, check = str(entry.get("text")), entry.get("check")
    if check:
        pairs = (f"{key} {value}" for key, value in (check.get("arguments") or {}).items())
        text += f" (checked by {check.get('tool')}: {', '.join(pairs)}{_expected(check.get('expect') or 'ok')})"
    return text + (" (a second model decides)" if entry.get("judge") else "")


def _expected(expect: Any) -> str:
    if not isinstance(expect, Mapping):
        return "" if expect == "ok" else f"; expected: {expect}"
    return "; expected: " + ", ".join(f"{key} {value}" for key, value in expect.items())


class Later(Exception):
    """The person wants to answer another time."""


@dataclass(frozen=True)
class Person:
    """Somebody at the terminal."""

    terminal: Terminal
    read: Callable[[str], str]
    editor: str | None = None

    def ask(self, pending: Mapping[str, Any]) -> Any:
        """Show the pause and ask until there is an answer that is understood. Raises Later (also at Ctrl-D)."""
        self.terminal.line("")
        draw(pending, self.terminal)
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
        kind, prompt = pending["kind"], PROMPTS[pending["kind"]]
        if kind == "budget" and not may_replan(pending):
            prompt = prompt.replace("[r] replan  ", "")
        typed = self._typed(prompt)
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
                draw({**pending, "plan": meaning.plan, "question": "", "limits": limits}, self.terminal)
                return value if self._sure("Run the plan as edited?") else None
            if isinstance(meaning, Answer) and meaning.kind == "reject":
                self.terminal.line(f"Beside the plan stands: {meaning.text}", "yellow")
                return value if self._sure("Send it as feedback to the planner?") else None
            self.terminal.line("Nothing was changed." if isinstance(meaning, Answer) else str(meaning), "yellow")
            if isinstance(meaning, Answer) or not self._sure("Mend it?"):
                return None
        return None

    def _edit_call(self, pending: Mapping[str, Any]) -> Any:
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
            # Ctrl-C goes to both of us, and is the editor's. A handler, unlike SIG_IGN, is not inherited.
            before = signal.signal(signal.SIGINT, lambda *_: None)
            try:
                code = subprocess.run([*shlex.split(command), str(path)], check=False).returncode
            except (OSError, ValueError) as error:
                self.terminal.line(f"The editor {command!r} did not start: {error}", "yellow")
                return None
            finally:
                signal.signal(signal.SIGINT, before)
            if code:
                self.terminal.line(f"The editor ended with code {code}; nothing was taken.", "yellow")
                return None
            return path.read_text(encoding="utf-8", errors="replace")
