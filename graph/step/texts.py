"""The texts of observations: in full in the store, shortened in the journal, and read further by `recall`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.store.base import BaseStore

from donewhen.graph.tools.rendering import cut_before
from donewhen.prompts import framed
from donewhen.state.channels import Planning, Step
from donewhen.state.proof.journal import BEFORE_CHARS, BEFORE_ROOM, INLINE_CHARS, shorten_entry
from donewhen.state.records import Call, JournalEntry
from donewhen.state.values import split_kept, store_label

OBSERVATIONS = ("donewhen", "observations")
"""Namespace of the full texts of observations in the store."""
HEADER_CHARS = 200
"""Characters that `recall` reserves for its header."""
Span = tuple[str, int, int]
"""An observation's id, and the range of its characters that was recalled."""


@dataclass(frozen=True)
class Texts:
    """The full texts of a run's observations in the store."""

    store: BaseStore | None
    thread: str
    scope: str
    """Distinguishes the runs that an outer graph may have on one thread."""
    turn: int
    """The number of the request. The ids of observations of earlier requests begin with the number of theirs."""

    @classmethod
    def of(cls, store: BaseStore | None, thread: str, values: Mapping[str, Any]) -> "Texts":
        """Return the texts of the run that has these values."""
        return cls(store, thread, scope_of(values), values.get("turn", 1))

    async def put(self, id: str, text: str) -> None:
        """Store the full text of an observation if it is too long for the journal."""
        if len(text) > INLINE_CHARS:
            await self._store(id, text)

    async def _store(self, id: str, text: str) -> None:
        if self.store is not None:
            await self.store.aput(self._namespace, f"{self.scope}:{self._key(id)}", {"text": text}, index=False)

    async def get(self, id: str) -> str | None:
        """Return the full text of an observation of this or an earlier request; None if the store has none."""
        if self.store is None:
            return None
        key_of_thread = self._key(id)  # older versions stored texts under it
        for key in (f"{self.scope}:{key_of_thread}", key_of_thread):
            if item := await self.store.aget(self._namespace, key):
                return str(item.value["text"])
        return None

    async def put_entry(self, entry: JournalEntry) -> JournalEntry:
        """Store the entry's text if it is long, and return the entry with it shortened; without a store, unchanged."""
        if self.store is None or len(entry["text"]) <= INLINE_CHARS:
            return entry
        await self.put(entry["id"], entry["text"])
        return shorten_entry(entry, INLINE_CHARS)

    async def shorten_earlier(self, entries: Sequence[JournalEntry]) -> list[JournalEntry]:
        """Return observations of earlier requests, the oldest in short form; their full texts are stored, each once."""
        fitted, room = list[JournalEntry](), BEFORE_ROOM
        for entry in reversed(entries):
            short = shorten_entry(entry, BEFORE_CHARS) if len(entry["text"]) > room else entry
            stored, is_whole = entry["stored"], len(entry["text"]) == entry["length"]
            if len(short["text"]) < len(entry["text"]) and is_whole and self.store is not None:
                await self._store(entry["id"], entry["text"])
                stored = True
            fitted.insert(0, {**short, "stored": stored})
            room = max(0, room - len(short["text"]))
        return fitted

    async def load(self, entry: JournalEntry) -> JournalEntry:
        """Return the entry with its full text."""
        text = await self.get(entry["id"]) if entry["stored"] else None
        return {**entry} if text is None else {**entry, "text": text}

    @property
    def _namespace(self) -> tuple[str, ...]:
        return (*OBSERVATIONS, store_label(self.thread))

    def _key(self, id: str) -> str:
        return id if ":" in id else f"{self.turn}:{id}"


def scope_of(state: Mapping[str, Any]) -> str:
    """Return the word that distinguishes runs on one thread; in states of older versions it is the fence."""
    return str(state.get("scope") or state.get("fence") or "")


async def recall(
    call: Call, entries: Iterable[JournalEntry], texts: Texts, fence: str, room: int
) -> tuple[str, Span | None]:
    """Return a piece of an observation's full text, with a header that names the next offset, and the piece's range.

    Header and piece have at most about `room` characters. An observation that is not among `entries` has no range; the
    text says so.
    """
    id = str(call["args"]["observation"]).strip().strip("[]")
    offset = call["args"].get("offset") or 0
    by_id = {entry["id"]: entry for entry in entries if not entry.get("outside")}
    if id not in by_id:
        latest = ", ".join(list(by_id)[-15:]) or "none"
        return f"recall error\nThere is no observation {id[:40]!r} here; there are: {latest}.", None
    text = (await texts.load(by_id[id]))["text"]
    room = max(room - HEADER_CHARS, HEADER_CHARS)
    end = max(cut_before(text, offset + room), min(offset + 1, len(text)), offset)
    more = f"; it goes on at offset={end}" if end < len(text) else "; this is the end"
    if end >= len(text) and (rest := split_kept(text)[1]):
        more += f" of what was kept: {rest}"
    head = f"recall ok: [{id}] characters {offset} to {end} of {len(text)}{more}"
    piece = framed("tool_output", text[offset:end], fence)
    return f"{head}\n{piece}", (id, offset, end)


def known_entries(state: Step | Planning) -> list[JournalEntry]:
    """Return all observations that a step or planning can cite, also its own, oldest first."""
    return [*state["known"], *state.get("journal", ())]
