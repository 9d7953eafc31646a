"""Undo what tools changed in a finished request: check every change, then put back the latest first.

Workspace tools keep what they change in files; any other tool may have an `undo` in its metadata (`ToolUndo`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, Protocol

from donewhen.agent.storage.store import ThreadStore
from donewhen.agent.workspace.undo import WAITS, check_changes, undo_change
from donewhen.graph.events import now
from donewhen.graph.sync import run_in_thread
from donewhen.graph.tools.changes import Result, mark_undoing, mark_undone, read_changes
from donewhen.state.channels import Json
from donewhen.state.errors import ConfigError
from donewhen.state.proof.receipt import UndoneRow
from donewhen.state.records import WRITES

UNSEEN = "undo saw no change that it can take back"
OTHERS, GOAL_CHARS = 50, 60
"""The most other threads in which a later change of a file is looked for, and the characters of their goals."""
NOT_HERE = "the tool that made the change is not here"


class ToolUndo(Protocol):
    """Undoes the changes of a tool, whose entries have `by_tool`, and the `path` of their object."""

    async def read(self, entry: Json) -> Any:
        """Return how the object of a change is now."""
        ...

    def check(self, entry: Json, found: Any) -> tuple[Result, str, Any]:
        """Return whether a change can be undone where its object is like this, why not, and the object then."""
        ...

    async def undo(self, entry: Json) -> tuple[Result, str]:
        """Undo a change, if its object is still as the change left it."""
        ...


UndoOf = Callable[[str], "ToolUndo | str | None"]
"""Returns the undo of the tool with this name, or why it has none, if the tool says so."""


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
    removes: bool = False
    """True if the call made the file: undoing it deletes it."""


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
    earlier: str = ""
    """The latest request before this one with changes that stay, such as `2:`, which is what to give as `step`; "" if
    there is none.
    """

    def to_dict(self) -> Json:
        """Return all fields by name, in plain JSON."""
        return asdict(self)


class Undoing:
    """The changes of one request, or of one of its steps or calls."""

    def __init__(
        self,
        store: ThreadStore,
        thread_id: str,
        values: Json,
        entries: Sequence[tuple[str, Json]],
        step: str | None,
        undo_of: UndoOf,
    ) -> None:
        self._store = store
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
        chosen = [(key, entry) for key, entry in of_turn if not wanted or wanted in (entry["step"], entry["id"])]
        self._others = [
            (key, entry) for key, entry in entries if (key, entry) not in chosen and not entry.get("undone")
        ]
        self._turn = current
        before = [entry["turn"] for _, entry in self._others if entry["turn"] < turn]
        self._earlier = f"{max(before)}:" if before else ""
        tools = {entry["tool"] for _, entry in chosen if entry.get("by_tool")}
        found = {tool: undo_of(tool) for tool in {*tools, *(entry["tool"] for entry in journal)}}
        self._undos = {tool: undo for tool, undo in found.items() if undo and not isinstance(undo, str)}
        why_none = {tool: why for tool, why in found.items() if isinstance(why, str)}
        self.entries: list[tuple[str, Json]] = [each for each in chosen if self._is_reached(each[1])]
        seen = {entry["id"] for _, entry in chosen}
        self.beyond: tuple[Json, ...] = (
            *(self._beyond(entry, NOT_HERE) for _, entry in reversed(chosen) if not self._is_reached(entry)),
            *(
                self._beyond(entry, why_none.get(entry["tool"], UNSEEN))
                for entry in journal
                if _had_effect(entry) and (entry.get("delegated") or entry["id"] not in seen)
                if not wanted or wanted in (entry["step"], entry["id"])
            ),
        )

    def _is_reached(self, entry: Json) -> bool:
        """Return whether a change is undone already, or its undo is here."""
        return bool(not entry.get("by_tool") or entry.get("undone") or entry["tool"] in self._undos)

    def _beyond(self, entry: Mapping[str, Any], why: str) -> Json:
        return {
            "id": self._prefix + entry["id"],
            "step": self._prefix + entry["step"],
            "tool": entry["tool"],
            "why": why,
        }

    async def check(self) -> UndoReport:
        """Return what an undo would do; nothing is changed."""
        files = [entry for _, entry in self.entries if not entry.get("by_tool")]
        of_files = iter(await run_in_thread(partial(check_changes, files)))
        of_tools = iter(await self._check_tools([entry for _, entry in self.entries if entry.get("by_tool")]))
        outcomes = [next(of_tools if entry.get("by_tool") else of_files) for _, entry in self.entries]
        if "refused" in (result for result, _ in outcomes):
            elsewhere = await _read_elsewhere(self._store, self._thread_id)
            outcomes = [
                ("refused", self._later_change(*each, elsewhere) or why) if result == "refused" else (result, why)
                for each, (result, why) in zip(self.entries, outcomes, strict=True)
            ]
        if "refused" in (result for result, _ in outcomes):
            outcomes = [("left", WAITS) if each[0] == "restored" else each for each in outcomes]
        return self._report(outcomes)

    def _later_change(self, key: str, entry: Json, elsewhere: Sequence[tuple[str, Json, str]]) -> str:
        """Return which later change of the same file is not among these, and has to be undone first; "" if none is.

        `elsewhere` are those of other threads, each with the words for its thread.
        """
        paths = {entry["path"], entry.get("to") or entry["path"]}
        others = [*((*each, "") for each in self._others), *elsewhere]
        for other_key, other, thread in sorted(others, key=lambda each: each[0], reverse=True):
            is_same = other.get("root") == entry.get("root") and not paths.isdisjoint((other["path"], other.get("to")))
            if other_key > key and is_same and thread:
                return f"{thread} changed it later; undo that first"
            if other_key > key and is_same:
                request = "" if other["turn"] == self._turn else f"{other['turn']}:"
                return f"{request}{other['id']} changed it later; undo that first"
        return ""

    async def _check_tools(self, entries: Sequence[Json]) -> list[tuple[Result, str]]:
        """Return the result of undoing changes of tools, latest first, each on what the later ones leave."""
        objects, stays, outcomes = dict[str, Any](), set[str](), list[tuple[Result, str]]()
        for entry in entries:
            result: Result
            if entry.get("undone"):
                outcomes.append(("unchanged", f"undone already, {entry['undone']}"))
                continue
            if entry.get("lost"):
                result, why = "lost", str(entry["lost"])
            elif entry["path"] in stays:
                result, why = "left", "a later change of it stays"
            else:
                undo = self._undos[entry["tool"]]
                found = objects[entry["path"]] if entry["path"] in objects else await undo.read(entry)
                result, why, objects[entry["path"]] = undo.check(entry, found)
            stays |= {entry["path"]} if result not in ("restored", "unchanged") else set()
            outcomes.append((result, why))
        return outcomes

    async def carry_out(self, store: ThreadStore) -> UndoReport:
        """Put back all files, or none if one of them changed since."""
        report = await self.check()
        outcomes: list[tuple[Result, str]] = [(change.result, change.why) for change in report.changes]
        for n, (key, entry) in enumerate(self.entries):
            if "refused" in (result for result, _ in outcomes):  # a file changed since the check: touch nothing older
                outcomes[n] = ("left", WAITS) if outcomes[n][0] == "restored" else outcomes[n]
                continue
            if outcomes[n][0] == "restored":
                self.entries[n] = key, (entry := await mark_undoing(store, self._thread_id, key, entry, now()))
                outcomes[n] = await self._undo(entry)
            if outcomes[n][0] in ("restored", "unchanged") and not entry.get("undone"):
                await mark_undone(store, self._thread_id, key, entry, now())
        return self._report(outcomes)

    def rows(self, report: UndoReport, listed: Collection[str]) -> list[UndoneRow]:
        """Return the receipt's rows of what was put back, now or by an undo that was cut off; `listed` are there."""
        return [
            {"id": change.id, "path": change.path, "at": entry["undoing"]}
            for (_, entry), change in zip(self.entries, report.changes, strict=True)
            if entry.get("undoing") and change.result in ("restored", "unchanged") and change.id not in listed
        ]

    async def _undo(self, entry: Json) -> tuple[Result, str]:
        if entry.get("by_tool"):
            return await self._undos[entry["tool"]].undo(entry)
        outcome: tuple[Result, str] = await run_in_thread(partial(undo_change, entry))
        return outcome

    def _report(self, outcomes: Sequence[tuple[Result, str]]) -> UndoReport:
        changes = tuple(
            UndoneChange(
                self._prefix + entry["id"], self._prefix + entry["step"], entry["tool"], entry["path"],
                entry.get("to", ""), result, why, "was" in entry and entry["was"] is None,
            )
            for (_, entry), (result, why) in zip(self.entries, outcomes, strict=True)
        )  # fmt: skip
        results = {change.result for change in changes}
        status = "refused" if "refused" in results else "undone" if "restored" in results else "nothing"
        return UndoReport(self._thread_id, status, changes, self.beyond, earlier=self._earlier)  # type: ignore[arg-type]


async def read_undoing(store: ThreadStore, thread_id: str, values: Json, step: str | None, undo_of: UndoOf) -> Undoing:
    """Return the changes of the thread's latest request, or of a step. Raises ConfigError if there is no such step."""
    return Undoing(store, thread_id, values, await read_changes(store, thread_id), step, undo_of)


async def _read_elsewhere(store: ThreadStore, thread_id: str) -> list[tuple[str, Json, str]]:
    """Return the changes of the owner's latest other threads that were not undone, with their keys and threads."""
    row = await store.threads.get(thread_id) or {}
    owner, changes = row.get("owner") or "", list[tuple[str, Json, str]]()
    for id, other in await store.threads.find(OTHERS, owner=owner):
        if id != thread_id:
            thread = f"thread {id} ({' '.join(str(other.get('goal') or '').split())[:GOAL_CHARS]})"
            changes += [(key, entry, thread) for key, entry in await read_changes(store, id) if not entry.get("undone")]
    return changes


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
