"""The texts of observations: in full in the store, shortened in the journal, and read further by `recall`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from langgraph.store.base import BaseStore

from donewhen.graph.tools.rendering import cut_before
from donewhen.prompts import framed
from donewhen.state.channels import Planning, Step
from donewhen.state.proof.journal import INLINE_CHARS, shorten_entry
from donewhen.state.records import Call, JournalEntry
from donewhen.state.values import store_label

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
    """The request; the id of an observation of an earlier one begins with its own."""

    @classmethod
    def of(cls, store: BaseStore | None, thread: str, values: Mapping[str, Any]) -> "Texts":
        """Return the texts of the run that has these values."""
        return cls(store, thread, scope_of(values), values.get("turn", 1))

    async def put(self, id: str, text: str) -> None:
        """Store the full text of an observation if it is too long for the journal."""
        if self.store is not None and len(text) > INLINE_CHARS:
            await self.store.aput(self._namespace, f"{self.scope}:{self._key(id)}", {"text": text}, index=False)

    async def get(self, id: str) -> str | None:
        """Return the full text of an observation of this or an earlier request; None if the store has none."""
        if self.store is None:
            return None
        named = self._key(id)
        for key in (f"{self.scope}:{named}", named):  # as it is kept now, and as it was by older versions
            if item := await self.store.aget(self._namespace, key):
                return str(item.value["text"])
        return None

    async def put_entry(self, entry: JournalEntry) -> JournalEntry:
        """Return the entry for the journal: a long text is stored and shortened; without a store it stays whole."""
        if self.store is None or len(entry["text"]) <= INLINE_CHARS:
            return entry
        await self.put(entry["id"], entry["text"])
        return shorten_entry(entry, INLINE_CHARS)

    async def whole(self, entry: JournalEntry) -> JournalEntry:
        """Return the entry with its full text."""
        text = await self.get(entry["id"]) if entry["stored"] else None
        return {**entry} if text is None else {**entry, "text": text}

    @property
    def _namespace(self) -> tuple[str, ...]:
        return (*OBSERVATIONS, store_label(self.thread))

    def _key(self, id: str) -> str:
        return id if ":" in id else f"{self.turn}:{id}"


def scope_of(state: Mapping[str, Any]) -> str:
    """Return the word that distinguishes runs on one thread; states of earlier versions have that of their frames."""
    return str(state.get("scope") or state.get("fence") or "")


async def recall(
    call: Call, entries: Iterable[JournalEntry], texts: Texts, fence: str, room: int
) -> tuple[str, Span | None]:
    """Return a piece of an observation's full text, framed as data, with the offset of the next piece; and its range.

    `room` are the most characters of it. For an observation that is not among `entries`, the text says so.
    """
    wanted = str(call["args"]["observation"]).strip().strip("[]")
    offset = call["args"].get("offset") or 0
    found = {entry["id"]: entry for entry in entries if not entry.get("outside")}
    if wanted not in found:
        known = ", ".join(list(found)[-15:]) or "none"
        return f"recall error\nThere is no observation {wanted[:40]!r} here; there are: {known}.", None
    text = (await texts.whole(found[wanted]))["text"]
    room = max(room - HEADER_CHARS, HEADER_CHARS)
    end = max(cut_before(text, offset + room), min(offset + 1, len(text)))
    more = f"; it goes on at offset={end}" if end < len(text) else "; this is the end"
    end = max(end, offset)
    head = f"recall ok: [{wanted}] characters {offset} to {end} of {len(text)}{more}"
    piece = framed("tool_output", text[offset:end], fence)
    return f"{head}\n{piece}", (wanted, offset, end)


def known_entries(state: Step | Planning) -> list[JournalEntry]:
    """Return the observations that a step or planning can cite, its own and earlier ones, oldest first."""
    return [*state["known"], *state.get("journal", ())]
