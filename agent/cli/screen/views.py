"""A working run on stderr: a line for every event and, on a terminal, a live view below."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.live import Live

from donewhen import Run
from donewhen.agent.cli.screen.drawing import FOLDED, AnswerText, Blocks, draw_changes
from donewhen.agent.cli.screen.meter import MeterText
from donewhen.agent.cli.screen.terminal import STYLES, ShownText, Terminal, clean
from donewhen.clients import ANSWER, FINAL, add, call_line, say

LAST_EVENTS = ("waiting", "outcome", "error")
"""The types of the event that ends a stream."""
REDRAWS = 8
"""Redraws per second."""
TAIL = 6
"""The lines of current speech that are redrawn."""


@dataclass
class StepLine:
    """One step of the checklist."""

    content: str
    status: str = "pending"
    reason: str = ""
    calls: list[Mapping[str, Any]] = field(default_factory=list)
    """The running calls, by their `tool_started` events."""


@dataclass
class Progress:
    """The current state of a run; `apply` updates it with events."""

    thread_id: str = ""
    started: bool = False
    """True if there is anything to continue."""
    plan: Mapping[str, Any] | None = None
    """A plan that was not shown yet."""
    rows: dict[str, StepLine] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    end: dict[str, Any] | None = None
    """The event that ended the last stream."""
    answer: Blocks = field(default_factory=Blocks)
    """The part of the answer that was shown as it came."""

    def take(self, run: Run) -> None:
        """Start from the current state of a run."""
        self.thread_id = run.thread_id
        self.spent, self.limits = dict(run.spent), dict(run.limits)
        if run.plan:
            self.show_plan(run.plan, run.steps)

    def apply(self, event: Mapping[str, Any]) -> None:
        """Apply one event; unknown types change nothing."""
        kind = event.get("type")
        if kind in LAST_EVENTS:
            self.end = dict(event)
        elif kind == "started":
            self.thread_id, self.started, self.end = str(event.get("thread_id") or ""), True, None
            self.answer = Blocks()
        elif kind == "plan":
            self.plan = plan = event.get("plan") or {}
            self.show_plan(plan)
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

    def show_plan(self, plan: Mapping[str, Any], records: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Replace the checklist; kept steps keep their status."""
        before, self.rows = self.rows, {}
        for step in plan.get("steps") or []:
            row, record = before.get(step["id"], StepLine("")), (records or {}).get(step["id"], {})
            status, reason = record.get("status") or row.status, record.get("reason") or row.reason
            self.rows[step["id"]] = StepLine(str(step["content"]), str(status), str(reason))

    def _show_todos(self, todos: Sequence[Mapping[str, Any]]) -> None:
        """Apply the clients' checklist, which has steps that a person added, changed or removed."""
        rows = {}
        for todo in todos:
            row = rows[str(todo["id"])] = self.rows.get(todo["id"]) or StepLine(str(todo["content"]))
            status = {"completed": "done", "in_progress": "running"}.get(str(todo["status"]))
            if row.status not in FINAL:
                row.status, row.content = status or row.status, str(todo["content"])
        self.rows = rows

    def _apply_step(self, row: StepLine, kind: Any, event: Mapping[str, Any]) -> None:
        if kind == "tool_started":
            row.calls.append(event)
        elif kind == "observation":
            row.calls = [call for call in row.calls if call is not self.call_of(event)]
        elif kind in ("step_started", "step_finished"):
            row.status = "running" if kind == "step_started" else str(event.get("status") or "done")
            row.reason, row.calls = str(event.get("reason") or ""), []

    def call_of(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the running call of an observation, if known."""
        row = self.rows.get(str(event.get("step")))
        return next((call for call in (row.calls if row else ()) if call.get("id") == event.get("id")), event)


def mode_text(row: Mapping[str, Any], terminal: Terminal) -> str:
    """Return the mode of the request, who chose it, and why."""
    words = terminal.texts("mode")
    by = "planner" if row["by"] in ("triage", "plan") else row["by"]
    return say(terminal.language, "mode", "line", mode=words[row["mode"]], by=words[f"by_{by}"], reason=row["reason"])


def heard_text(row: Mapping[str, Any], terminal: Terminal) -> str:
    """Return the user's words to the working run, and which step followed them; or that they came too late."""
    key = "late" if "step" not in row else "heard_step" if row["step"] else "heard"
    place_text = say(terminal.language, "page", key, step=row.get("step"))
    return f"> {terminal.shorten(str(row['text']), 200)}  ({place_text})"


def call_text(call: Mapping[str, Any]) -> str:
    """Return a call on one line: `read_file(path="a.csv")`. Long texts have their own lines and are only named."""
    if (arguments := call.get("arguments")) is None:
        return str(call.get("tool"))
    return call_line(call.get("tool"), arguments)


def failure_text(row: Mapping[str, Any], terminal: Terminal) -> str:
    """Return that what a call returned is a failure, in its words; "" if it is none."""
    failed, word = row.get("failed"), terminal.texts("page")["effect_failed"]
    return f"{word}: {failed}" if isinstance(failed, str) else word if failed else ""


def failure_lines(lines: Sequence[str], terminal: Terminal) -> Iterator[tuple[str, str]]:
    """Yield the last lines of a failed call, if they are more than the line of the call shows."""
    yield from ((f"      {terminal.marks['bar']} {line}", "dim") for line in lines if len(lines) > 1)


class View:
    """Shows a run from a start or an answer to the end of its stream. With `quiet` it only keeps track of the state."""

    def __init__(self, terminal: Terminal, progress: Progress, *, quiet: bool = False) -> None:
        self.terminal: Terminal = terminal
        self.progress: Progress = progress
        self.quiet: bool = quiet
        self.speech: str = ""
        self.speaker: str | None = None
        self.draft: Callable[[], str] | None = None
        """Returns what a person has typed and not sent; None where typing has no effect."""
        moves = terminal.live and not quiet
        self.live: Live | None = (
            Live(self, console=terminal.console, refresh_per_second=REDRAWS, transient=True) if moves else None
        )

    def __enter__(self) -> Self:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._finish_speech()
        self._show_answer(self.progress.answer.finish())
        if self.live:
            self.live.stop()

    def show(self, event: Mapping[str, Any]) -> None:
        """Show one event."""
        kind, drawn = event.get("type"), [] if self.quiet else [*self._draw(event)]
        self.progress.apply(event)
        if self.quiet:
            return
        if kind == "speech" and event.get("answer"):
            if self.live and self.terminal.answers_here:  # elsewhere it is written whole in the end
                self._show_answer(self.progress.answer.feed(str(event.get("text") or "")))
        elif kind == "speech" and event.get("argument") is None:  # prose; an argument is shown whole in its place
            self._speak(event)
        elif kind == "speech_restarted":
            self.speech, self.speaker = "", None
            if event.get("argument") in (None, ANSWER):
                self.progress.answer = Blocks()
        elif kind not in (*LAST_EVENTS, "speech", "spent", "charged"):
            self._finish_speech()
        for text, style in drawn:
            self.terminal.show(text) if style is None else self.terminal.line(str(text), style)

    def _draw(self, event: Mapping[str, Any]) -> Iterator[tuple[RenderableType, str | None]]:
        """Yield the lines and drawings of one event, with their style; nothing for events that only redraw."""
        kind, step, terminal = event.get("type"), str(event.get("step") or "plan"), self.terminal
        if kind == "note":
            yield str(event.get("text")), "dim"
        elif kind in ("heard", "late"):
            yield heard_text(event, terminal), "bold"
        elif kind == "mode":
            yield mode_text(event, terminal), "dim"
        elif kind == "step_started":
            yield from self._plan_lines()
            if not self.live:
                yield f"{terminal.mark('running')} {step} {event.get('content')}", ""
        elif kind == "observation":
            call = self.progress.call_of(event)
            room = terminal.width - len(f"  {event.get('id')}  {terminal.marks['arrow']} ")
            call_line = terminal.shorten(call_text(call), room * 3 // 5)
            text = terminal.shorten(failure_text(event, terminal) or str(event.get("text")), room - cell_len(call_line))
            style = "dim" if event.get("ok") else "red"
            yield f"  {event.get('id')} {call_line} {terminal.marks['arrow']} {text}", style
            yield from failure_lines(event.get("last_lines") or (), terminal)
            yield from ((drawn, None) for drawn in draw_changes(call, terminal, most=FOLDED))
        elif kind == "step_finished":
            status, row = str(event.get("status")), self.progress.rows.get(step)
            why = "" if status == "done" else f": {status}, {event.get('reason') or ''}".rstrip(", ")
            yield f"{terminal.mark(status)} {step} {row.content if row else ''}{why}", STYLES.get(status, "")

    def _plan_lines(self) -> Iterator[tuple[str, str]]:
        plan, self.progress.plan = self.progress.plan or {}, None
        if steps := plan.get("steps"):
            name = self.terminal.texts("plan")["title"]
            yield name if plan.get("title") in (None, "", name) else f"{name}: {plan['title']}", "bold"
            yield from ((f"  {self.terminal.mark('pending')} {s['id']} {s['content']}", "") for s in steps)

    def _show_answer(self, block: str) -> None:
        if block.strip():
            self.terminal.line("")
            self.terminal.show(AnswerText(block))

    def _speak(self, event: Mapping[str, Any]) -> None:
        """Show speech, line by line."""
        if event.get("step") != self.speaker:
            self._finish_speech()
        self.speaker = event.get("step")
        *whole, self.speech = (self.speech + str(event.get("text") or "")).split("\n")
        for line in whole:
            self.terminal.line(self._speech(line), "italic")

    def _speech(self, line: str) -> str:
        return f"{self.speaker}: {line}" if self.speaker else line

    def _finish_speech(self) -> None:
        if self.speech.strip() and not self.quiet:
            self.terminal.line(self._speech(self.speech), "italic")
        self.speech, self.speaker = "", None

    def __rich__(self) -> Group:
        """Return the working steps, their calls, current speech and spending; rich calls it for every redraw."""
        terminal, rows = self.terminal, list[RenderableType]()
        for id, row in self.progress.rows.items():
            if row.status == "running":
                rows.append(ShownText(terminal.shorten(f"{terminal.mark('running')} {id} {row.content}"), style="cyan"))
                calls = (terminal.shorten(call_text(call), terminal.width - 4) for call in row.calls)
                rows += [ShownText(f"    {call}", style="dim") for call in calls]
        if self.speech.strip():
            rows.append(ShownText(terminal.shorten(self._speech(self.speech)), style="italic"))
        if tail := clean(self.progress.answer.tail).strip():
            rows += [ShownText(""), *ShownText(tail).wrap(terminal.console, terminal.width)[-TAIL:]]
        meter = ShownText(style="dim", overflow="ellipsis", no_wrap=True)
        spending = MeterText(self.progress.spent, self.progress.limits, terminal.language)
        for number, part in enumerate(spending.parts()):
            meter.append(f" {terminal.marks['dot']} " if number else "").append(part.text, part.style or None)
        if self.draft and (typed := clean(self.draft())):
            rows.append(ShownText(f"> {typed}", style="bold"))
        elif self.draft:
            meter.append(f" {terminal.marks['dot']} {terminal.say('type_to_tell')}")
        return Group(*rows, meter)
