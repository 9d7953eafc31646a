"""Two ways to show a run at work on stderr: a checklist that redraws itself, and plain lines. Both are fed events."""

from collections.abc import Mapping
from typing import Any, Protocol

from rich.console import Group
from rich.live import Live
from rich.text import Text

from donewhen.agent.cli.meter import meter_parts
from donewhen.agent.cli.progress import TERMINAL, Progress, call_text
from donewhen.agent.cli.terminal import STYLES, Terminal, clean, shorten

REDRAWS = 8
"""Per second."""


class View(Protocol):
    """Shows one leg of a run: from a start or an answer to the next terminal event."""

    def __enter__(self) -> "View": ...
    def __exit__(self, *_: object) -> None: ...
    def show(self, event: Mapping[str, Any]) -> None:
        """Take one event."""
        ...


def open_view(terminal: Terminal, progress: Progress, *, quiet: bool = False) -> View:
    """The view that fits the terminal. `quiet` keeps the picture current and shows nothing."""
    if quiet:
        return _Quiet(progress)
    return _Checklist(terminal, progress) if terminal.live else _Lines(terminal, progress)


class _Quiet:
    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def __enter__(self) -> "View":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, event: Mapping[str, Any]) -> None:
        self.progress.apply(event)


class _Lines(_Quiet):
    """One line per thing that happened; speech line by line as it comes."""

    def __init__(self, terminal: Terminal, progress: Progress) -> None:
        super().__init__(progress)
        self.terminal = terminal
        self.said = ""
        self.speaker: str | None = None

    def __exit__(self, *_: object) -> None:
        self._finish_speech()

    def show(self, event: Mapping[str, Any]) -> None:
        self.progress.apply(event)
        if event.get("type") == "speech":
            if not event.get("answer") and not event.get("argument"):  # which are printed whole in their place
                self._speak(event)
            return
        if event.get("type") == "speech_restarted":
            self.said, self.speaker = "", None
            return
        if event.get("type") not in (*TERMINAL, "spent", "charged"):
            self._finish_speech()
        for text, style in lines_of(event, self.terminal):
            self._print(text, style)

    def _print(self, text: str, style: str) -> None:
        self.terminal.line(text, style)

    def _speak(self, event: Mapping[str, Any]) -> None:
        if event.get("step") != self.speaker:
            self._finish_speech()
        self.speaker = event.get("step")
        *whole, self.said = (self.said + str(event.get("text") or "")).split("\n")
        for line in whole:
            self._print(self._speech(line), "italic")

    def _speech(self, line: str) -> str:
        return f"{self.speaker}: {line}" if self.speaker else line

    def _finish_speech(self) -> None:
        if self.said.strip():
            self._print(self._speech(self.said), "italic")
        self.said, self.speaker = "", None


def lines_of(event: Mapping[str, Any], terminal: Terminal) -> list[tuple[str, str]]:
    """What one event is worth as (text, style); nothing for events that only move the picture."""
    kind, step = event.get("type"), event.get("step") or "plan"
    dots = terminal.marks["dots"]
    if kind == "note":
        return [(str(event.get("text")), "dim")]
    if kind == "plan":
        plan = event.get("plan") or {}
        rows = [
            (f"  {terminal.mark('pending')} {s['id']} {shorten(s['content'], 100, dots)}", "")
            for s in plan.get("steps") or []
        ]
        return [(f"Plan: {plan.get('title')}", "bold"), *rows]
    if kind == "step_started":
        return [(f"{terminal.mark('running')} {step} {shorten(str(event.get('content')), 100, dots)}", "")]
    if kind == "tool_started":
        return [(f"  {step} {shorten(call_text(str(event.get('tool')), event.get('arguments')), 100, dots)}", "dim")]
    if kind == "observation":
        mark = "ok" if event.get("ok") else "error"
        return [
            (
                f"  [{event.get('id')}] {mark}: {shorten(str(event.get('text')), 90, dots)}",
                "dim" if event.get("ok") else "red",
            )
        ]
    if kind == "correction":
        return [(f"  {step} corrected: {shorten(str(event.get('text')), 90, dots)}", "yellow")]
    if kind == "step_finished":
        status = str(event.get("status"))
        why = event.get("result") if status == "done" else event.get("reason")
        return [
            (
                f"{terminal.mark(status)} {step} {status}{': ' if why else ''}{shorten(str(why or ''), 100, dots)}",
                STYLES.get(status, ""),
            )
        ]
    return []


class _Checklist(_Lines):
    """Checklist, running calls and spend meter, redrawn in place; what is said scrolls by above it."""

    SHOWN_ABOVE = ("speech", "speech_restarted", "note", "correction")

    def __init__(self, terminal: Terminal, progress: Progress) -> None:
        super().__init__(terminal, progress)
        self.live = Live(self, console=terminal.console, refresh_per_second=REDRAWS, transient=True)

    def __enter__(self) -> "View":
        self.live.start()
        return self

    def __exit__(self, *args: object) -> None:
        super().__exit__(*args)
        self.live.stop()
        if (self.progress.end or {}).get("type") == "outcome":
            self.terminal.console.print(self)

    def show(self, event: Mapping[str, Any]) -> None:
        if event.get("type") in self.SHOWN_ABOVE:
            super().show(event)
        else:
            self.progress.apply(event)

    def __rich__(self) -> Group:
        """The picture now; called by rich at every redraw."""
        width = max(20, self.terminal.console.width - 2)
        rows = [text for id, row in self.progress.rows.items() for text in self._row(id, row.content, width)]
        if self.progress.title and rows:
            rows.insert(0, Text(shorten(self.progress.title, width), style="bold"))
        if self.said.strip():
            rows.append(Text(shorten(self._speech(self.said), width), style="italic"))
        return Group(*rows, *self._meter())

    def _meter(self) -> list[Text]:
        """What was spent, of how much; limits that are near stand out."""
        parts, meter = list(meter_parts(self.progress.spent, self.progress.limits)), Text(style="dim")
        for number, part in enumerate(parts):
            meter.append(f" {self.terminal.marks['dot']} " if number else "")
            meter.append(part.text, part.style or None)
        return [meter] if parts else []

    def _row(self, id: str, content: str, width: int) -> list[Text]:
        row = self.progress.rows[id]
        dots = self.terminal.marks["dots"]
        lines = [
            Text(shorten(f"{self.terminal.mark(row.status)} {content}", width, dots), style=STYLES.get(row.status, ""))
        ]
        below = row.tool or (row.reason if row.status not in ("done", "pending") else "")
        if below:
            lines.append(Text(f"    {shorten(clean(below), width - 4, dots)}", style="dim"))
        return lines
