"""What is known about a run while it works: events in, the current picture out. Draws nothing."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from donewhen.agent.run import Run
from donewhen.state.ledger import add

TERMINAL = ("waiting", "outcome", "error")
ENDED = ("done", "failed", "blocked", "skipped", "exhausted")


@dataclass
class Row:
    """One step of the checklist."""

    content: str
    status: str = "pending"
    reason: str = ""
    tool: str = ""
    """The call that is running now."""


@dataclass
class Progress:
    """The picture of a run; `apply` keeps it current."""

    thread_id: str = ""
    started: bool = False
    """Whether there is anything to go on with."""
    title: str = ""
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
            self.show_plan(event.get("plan") or {})
        elif kind == "todos":
            self._show_todos(event.get("todos") or [])
        elif kind == "charged":
            self.spent = add(self.spent, event.get("spent") or {})
        elif kind == "spent":
            self._show_spent(event)
        elif event.get("step") in self.rows:
            self._apply_step(self.rows[event["step"]], kind, event)

    def at_work(self) -> bool:
        """Whether a tool is being called."""
        return any(row.tool for row in self.rows.values())

    def show_plan(self, plan: Mapping[str, Any], records: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Replace the checklist; steps that stay keep their status."""
        self.title = str(plan.get("title") or "")
        before = self.rows
        self.rows = {}
        for step in plan.get("steps") or []:
            known = before.get(step["id"], Row(""))
            record = (records or {}).get(step["id"], {})
            status, reason = record.get("status") or known.status, record.get("reason") or known.reason
            self.rows[step["id"]] = Row(str(step["content"]), str(status), str(reason))

    def _show_todos(self, todos: Sequence[Mapping[str, Any]]) -> None:
        """The checklist as clients get it: tells of steps that a person added, changed or removed."""
        rows = {}
        for todo in todos:
            row = rows[str(todo["id"])] = self.rows.get(todo["id"]) or Row(str(todo["content"]))
            status = {"completed": "done", "in_progress": "running"}.get(str(todo["status"]))
            if status and row.status not in ENDED:
                row.status = status
            if row.status not in ENDED:
                row.content = str(todo["content"])
        self.rows = rows

    def _show_spent(self, event: Mapping[str, Any]) -> None:
        meter = event.get("meter") or []
        self.spent = dict(event.get("spent") or {row["key"]: row["spent"] for row in meter})
        limits = event.get("limits") or {row["key"]: row["limit"] for row in meter}
        self.limits = {key: limit for key, limit in limits.items() if limit is not None}

    def _apply_step(self, row: Row, kind: Any, event: Mapping[str, Any]) -> None:
        if kind == "step_started":
            row.status, row.reason, row.tool = "running", "", ""
        elif kind == "tool_started":
            row.tool = call_text(str(event.get("tool")), event.get("arguments"))
        elif kind == "observation":
            row.tool = ""
        elif kind == "step_finished":
            row.status, row.reason = str(event.get("status") or "done"), str(event.get("reason") or "")
            row.tool = ""


def call_text(tool: str, arguments: Any) -> str:
    """A call on one line: `read_file(path="a.csv")`."""
    if not isinstance(arguments, Mapping):
        return f"{tool}()"
    pairs = (f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in arguments.items())
    return f"{tool}({', '.join(pairs)})"
