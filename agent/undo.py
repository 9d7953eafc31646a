"""Undo what the workspace tools changed in a finished request: check every change, then put back the latest first."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from langgraph.types import StateSnapshot

from donewhen.agent.run import Run, read_run, require_thread
from donewhen.agent.storage.store import ThreadStore
from donewhen.agent.workspace.undo import WAITS, Result, check_changes, undo_change
from donewhen.graph.events import now
from donewhen.graph.sync import run_in_thread
from donewhen.graph.tools.changes import mark_undone, read_changes
from donewhen.state.channels import Json
from donewhen.state.errors import ConfigError, ThreadWaiting
from donewhen.state.records import WRITES

UNSEEN = "undo does not see what it changed"


@dataclass(frozen=True)
class UndoneChange:
    """One change, and the result of undoing it."""

    id: str
    """The observation of the call, such as `s1.2`."""
    step: str
    tool: str
    path: str
    to: str
    """The path to which a file was moved or deleted; "" for other changes."""
    result: Result
    """`restored`; `unchanged`: there was nothing to undo; `refused`: the file changed since; `left`: another change was
    refused; `lost`: the replaced content was not kept.
    """
    why: str


@dataclass(frozen=True)
class UndoReport:
    """The result of an undo. Nothing is changed if `status` is `refused`, unless a file changed during the undo."""

    thread_id: str
    status: Literal["undone", "refused", "nothing"]
    changes: tuple[UndoneChange, ...] = ()
    """The latest first."""
    beyond: tuple[Json, ...] = ()
    """Calls that may have changed something that undo cannot restore: `{id, step, tool, why}`."""
    dry_run: bool = False
    """True if nothing was changed: the report says what an undo would do."""

    def to_dict(self) -> Json:
        """Return all fields by name, in plain JSON."""
        return asdict(self)


def check_ended(thread_id: str, row: Mapping[str, Any], snapshot: StateSnapshot) -> Run:
    """Return the run of a thread. Raises ThreadWaiting if its request has not ended, UnknownThread."""
    run = read_run(thread_id, require_thread(thread_id, snapshot))
    if row.get("status") == "queued" or run.status in ("waiting", "running"):
        what = "waits for an answer" if run.pending else "is not finished"
        text = f"thread {thread_id} {what}, so nothing can be undone yet. End it first: `donewhen cancel`, agent.cancel"
        raise ThreadWaiting(text, [pause["id"] for pause in run.pending])
    return run


class Undoing:
    """The changes of one request, or of one of its steps or calls."""

    def __init__(self, thread_id: str, values: Json, entries: Sequence[tuple[str, Json]], step: str | None) -> None:
        self._thread_id = thread_id
        turn, current = _read_turn(step, int(values.get("turn") or 1)), int(values.get("turn") or 1)
        wanted = (step or "").rpartition(":")[2]
        self._prefix = "" if turn == current else f"{turn}:"
        journal = values.get("journal") or () if turn == current else ()
        of_turn = [(key, entry) for key, entry in entries if entry["turn"] == turn]
        names = _known_ids(values if turn == current else {}, journal, [entry for _, entry in of_turn])
        if wanted and wanted not in names:
            raise ConfigError(
                f"there is no step or call {step!r} in that request; there are {', '.join(names) or 'none'}"
            )
        self.entries: list[tuple[str, Json]] = [
            (key, entry) for key, entry in of_turn if not wanted or wanted in (entry["step"], entry["id"])
        ]
        seen = {entry["id"] for _, entry in self.entries}
        self.beyond: tuple[Json, ...] = tuple(
            {"id": entry["id"], "step": entry["step"], "tool": entry["tool"], "why": UNSEEN}
            for entry in journal
            if _had_effect(entry) and (entry.get("delegated") or entry["id"] not in seen)
            if not wanted or wanted in (entry["step"], entry["id"])
        )

    async def check(self) -> UndoReport:
        """Return what an undo would do; nothing is changed."""
        return self._report(await run_in_thread(partial(check_changes, [entry for _, entry in self.entries])))

    async def carry_out(self, store: ThreadStore) -> UndoReport:
        """Put back all files, or none if one of them changed since."""
        report = await self.check()
        outcomes: list[tuple[Result, str]] = [(change.result, change.why) for change in report.changes]
        for n, (key, entry) in enumerate(self.entries):
            if "refused" in (result for result, _ in outcomes):  # a file changed since the check: touch nothing older
                outcomes[n] = ("left", WAITS) if outcomes[n][0] == "restored" else outcomes[n]
                continue
            if outcomes[n][0] == "restored":
                outcomes[n] = await run_in_thread(partial(undo_change, entry))
            if outcomes[n][0] in ("restored", "unchanged") and not entry.get("undone"):
                await mark_undone(store, self._thread_id, key, entry, now())
        return self._report(outcomes)

    def _report(self, outcomes: Sequence[tuple[Result, str]]) -> UndoReport:
        changes = tuple(
            UndoneChange(
                self._prefix + entry["id"], self._prefix + entry["step"], entry["tool"], entry["path"],
                entry.get("to", ""), result, why,
            )
            for (_, entry), (result, why) in zip(self.entries, outcomes, strict=True)
        )  # fmt: skip
        results = {change.result for change in changes}
        status = "refused" if "refused" in results else "undone" if "restored" in results else "nothing"
        return UndoReport(self._thread_id, status, changes, self.beyond)  # type: ignore[arg-type]


async def read_undoing(store: ThreadStore, thread_id: str, values: Json, step: str | None) -> Undoing:
    """Return the changes of the thread's latest request, or of a step. Raises ConfigError if there is no such step."""
    return Undoing(thread_id, values, await read_changes(store, thread_id), step)


def _read_turn(step: str | None, current: int) -> int:
    number, colon, _ = (step or "").partition(":")
    if not colon:
        return current
    if not (number.isascii() and number.isdecimal() and len(number) < 10 and 1 <= int(number) <= current):
        raise ConfigError(f"step {str(step)[:60]!r}: the thread has the requests 1 to {current}, such as 1:s2")
    return int(number)


def _known_ids(values: Json, journal: Sequence[Mapping[str, Any]], changes: Sequence[Json]) -> list[str]:
    steps = [step["id"] for step in (values.get("plan") or {}).get("steps") or ()]
    rows = [*(entry for entry in journal if entry["source"] == "tool"), *changes]
    return [*dict.fromkeys([*steps, *(row["step"] for row in rows), *(row["id"] for row in rows)])]


def _had_effect(entry: Mapping[str, Any]) -> bool:
    return entry.get("effect") in WRITES and bool(entry["ok"] or entry.get("unknown"))
