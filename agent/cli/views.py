"""A run at work on stderr: a line for all that happened, and below them, where it can be redrawn, what goes on now."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from rich.cells import cell_len
from rich.console import Group
from rich.live import Live
from rich.text import Text

from donewhen.agent.cli.terminal import STYLES, Terminal, meter_parts
from donewhen.agent.run import Run
from donewhen.state.ledger import add

TERMINAL = ("waiting", "outcome", "error")
ENDED = ("done", "failed", "blocked", "skipped", "exhausted")
REDRAWS = 8
"""Per second."""


@dataclass
class Row:
    """One step of the checklist."""

    content: str
    status: str = "pending"
    reason: str = ""
    calls: list[str] = field(default_factory=list)
    """The calls that are running now."""


@dataclass
class Progress:
    """The picture of a run: events in; `apply` keeps it current."""

    thread_id: str = ""
    started: bool = False
    """Whether there is anything to go on with."""
    plan: Mapping[str, Any] | None = None
    """A plan that nobody was shown yet."""
    rows: dict[str, Row] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    end: dict[str, Any] | None = None
    """The terminal event."""

    def take(self, run: Run) -> None:
        """Start from a run as it stands."""
        self.thread_id = run.thread_id
        self.spent, self.limits = dict(run.spent), dict(run.limits)
        if run.plan:
            self.show_plan(run.plan, run.steps)

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take one event; types that are not known change nothing."""
        kind = event.get("type")
        if kind in TERMINAL:
            self.end = dict(event)
        elif kind == "started":
            self.thread_id, self.started, self.end = str(event.get("thread_id") or ""), True, None
        elif kind == "plan":
            self.plan = event.get("plan") or {}
            self.show_plan(self.plan)
        elif kind == "todos":
            self._show_todos(event.get("todos") or [])
        elif kind == "charged":
            self.spent = add(self.spent, event.get("spent") or {})
        elif kind == "spent":
            meter = event.get("meter") or []
            self.spent = {row["key"]: row["spent"] for row in meter}
            self.limits = {row["key"]: row["limit"] for row in meter if row["limit"] is not None}
        elif event.get("step") in self.rows:
            self._apply_step(self.rows[event["step"]], kind, event)

    def at_work(self) -> bool:
        """Whether a tool is being called."""
        return any(row.calls for row in self.rows.values())

    def show_plan(self, plan: Mapping[str, Any], records: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Replace the checklist; steps that stay keep their status."""
        before, self.rows = self.rows, {}
        for step in plan.get("steps") or []:
            known, record = before.get(step["id"], Row("")), (records or {}).get(step["id"], {})
            status, reason = record.get("status") or known.status, record.get("reason") or known.reason
            self.rows[step["id"]] = Row(str(step["content"]), str(status), str(reason))

    def _show_todos(self, todos: Sequence[Mapping[str, Any]]) -> None:
        """The checklist as clients get it: tells of steps that a person added, changed or removed."""
        rows = {}
        for todo in todos:
            row = rows[str(todo["id"])] = self.rows.get(todo["id"]) or Row(str(todo["content"]))
            status = {"completed": "done", "in_progress": "running"}.get(str(todo["status"]))
            if row.status not in ENDED:
                row.status, row.content = status or row.status, str(todo["content"])
        self.rows = rows

    def _apply_step(self, row: Row, kind: Any, event: Mapping[str, Any]) -> None:
        if kind == "tool_started":
            row.calls.append(call_text(str(event.get("tool")), event.get("arguments")))
        elif kind == "observation":
            row.calls = [call for call in row.calls if call != self.call_of(event)]
        elif kind in ("step_started", "step_finished"):
            row.status = "running" if kind == "step_started" else str(event.get("status") or "done")
            row.reason, row.calls = str(event.get("reason") or ""), []

    def call_of(self, event: Mapping[str, Any]) -> str:
        """The running call that an observation answers, as far as its tool tells."""
        row, tool = self.rows.get(str(event.get("step"))), f"{event.get('tool') or event.get('source') or ''}("
        return next((call for call in row.calls if call.startswith(tool)), f"{tool})") if row else f"{tool})"


def call_text(tool: str, arguments: Any) -> str:
    """A call on one line: `read_file(path="a.csv")`."""
    given = arguments if isinstance(arguments, Mapping) else {}
    pairs = (f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in given.items())
    return f"{tool}({', '.join(pairs)})"


class View:
    """Shows one leg of a run, from a start or an answer to the next terminal event. `quiet` only keeps the picture."""

    def __init__(self, terminal: Terminal, progress: Progress, *, quiet: bool = False) -> None:
        self.terminal, self.progress, self.quiet = terminal, progress, quiet
        self.said = ""
        self.speaker: str | None = None
        moves = terminal.live and not quiet
        self.live = Live(self, console=terminal.console, refresh_per_second=REDRAWS, transient=True) if moves else None

    def __enter__(self) -> Self:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._finish_speech()
        if self.live:
            self.live.stop()

    def show(self, event: Mapping[str, Any]) -> None:
        """Take one event."""
        kind, lines = event.get("type"), [] if self.quiet else self._lines(event)
        self.progress.apply(event)
        if self.quiet:
            return
        if kind == "speech" and not event.get("answer") and not event.get("argument"):  # printed whole in their place
            self._speak(event)
        elif kind == "speech_restarted":
            self.said, self.speaker = "", None
        elif kind not in (*TERMINAL, "speech", "spent", "charged"):
            self._finish_speech()
        for text, style in lines:
            self.terminal.line(text, style)

    def _lines(self, event: Mapping[str, Any]) -> list[tuple[str, str]]:
        """What one event is worth as (text, style); nothing for events that only move the picture."""
        kind, step, terminal = event.get("type"), str(event.get("step") or "plan"), self.terminal
        if kind == "note":
            return [(str(event.get("text")), "dim")]
        if kind == "step_started":
            started = [] if self.live else [(f"{terminal.mark('running')} {step} {event.get('content')}", "")]
            return [*self._plan_lines(), *started]
        if kind == "observation":
            room = terminal.width - len(f"  {event.get('id')}  {terminal.marks['arrow']} ")
            call = terminal.shorten(self.progress.call_of(event), room * 3 // 5)
            text = terminal.shorten(str(event.get("text")), room - cell_len(call))
            style = "dim" if event.get("ok") else "red"
            return [(f"  {event.get('id')} {call} {terminal.marks['arrow']} {text}", style)]
        if kind == "step_finished":
            status, row = str(event.get("status")), self.progress.rows.get(step)
            why = "" if status == "done" else f": {status}, {event.get('reason') or ''}".rstrip(", ")
            return [(f"{terminal.mark(status)} {step} {row.content if row else ''}{why}", STYLES.get(status, ""))]
        return []

    def _plan_lines(self) -> list[tuple[str, str]]:
        plan, self.progress.plan = self.progress.plan or {}, None
        rows = [(f"  {self.terminal.mark('pending')} {s['id']} {s['content']}", "") for s in plan.get("steps") or []]
        return [(f"Plan: {plan.get('title')}", "bold"), *rows] if rows else []

    def _speak(self, event: Mapping[str, Any]) -> None:
        """Speech, line by line as it comes."""
        if event.get("step") != self.speaker:
            self._finish_speech()
        self.speaker = event.get("step")
        *whole, self.said = (self.said + str(event.get("text") or "")).split("\n")
        for line in whole:
            self.terminal.line(self._speech(line), "italic")

    def _speech(self, line: str) -> str:
        return f"{self.speaker}: {line}" if self.speaker else line

    def _finish_speech(self) -> None:
        if self.said.strip() and not self.quiet:
            self.terminal.line(self._speech(self.said), "italic")
        self.said, self.speaker = "", None

    def __rich__(self) -> Group:
        """The steps at work, their calls, what is being said and what was spent; called by rich at every redraw."""
        terminal, rows = self.terminal, []
        for id, row in self.progress.rows.items():
            if row.status == "running":
                rows.append(Text(terminal.shorten(f"{terminal.mark('running')} {id} {row.content}"), style="cyan"))
                rows += [Text(f"    {terminal.shorten(call, terminal.width - 4)}", style="dim") for call in row.calls]
        if self.said.strip():
            rows.append(Text(terminal.shorten(self._speech(self.said)), style="italic"))
        meter = Text(style="dim", overflow="ellipsis", no_wrap=True)
        for number, part in enumerate(meter_parts(self.progress.spent, self.progress.limits)):
            meter.append(f" {terminal.marks['dot']} " if number else "").append(part.text, part.style or None)
        return Group(*rows, meter)
