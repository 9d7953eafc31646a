"""The texts of observations: in full in the store, shortened in the journal, and read further by `recall`."""

from collections.abc import Mapping
from typing import Any

from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from donewhen.graph.events import thread_of
from donewhen.graph.tools.rendering import cut_before
from donewhen.prompts import framed
from donewhen.state.channels import Json, Step
from donewhen.state.proof.journal import INLINE_CHARS, shorten_entry
from donewhen.state.records import Call, JournalEntry
from donewhen.state.settings import Settings
from donewhen.state.values import store_label

OBSERVATIONS = ("donewhen", "observations")
"""Namespace of the full texts of observations in the store."""
HEADER_CHARS = 200
"""Characters that `recall` reserves for its header."""
Span = tuple[str, int, int]
"""An observation's id, and the range of its characters that was recalled."""


async def store_text(runtime: Runtime[Settings], state: Step, id: str, text: str) -> None:
    """Store the full text of an observation if it is too long for the journal.

    An outer graph may have several runs on one thread; the scope distinguishes them.
    """
    if runtime.store is not None and len(text) > INLINE_CHARS:
        key = f"{scope_of(state)}:{_request_key(state, id)}"
        await runtime.store.aput((*OBSERVATIONS, store_label(thread_of(runtime))), key, {"text": text}, index=False)


async def load_text(runtime: Runtime[Settings], state: Step, id: str) -> str | None:
    """Return the full text of an observation of this or an earlier request; None if the store has none."""
    return None if runtime.store is None else await stored_text(runtime.store, thread_of(runtime), state, id)


async def stored_text(store: BaseStore, thread_id: str, state: Mapping[str, Any], id: str) -> str | None:
    """Return the full text of a thread's observation; None if the journal has all of it."""
    named = _request_key(state, id)
    for key in (f"{scope_of(state)}:{named}", named):  # as it is kept now, and as it was by older versions
        if item := await store.aget((*OBSERVATIONS, store_label(thread_id)), key):
            return str(item.value["text"])
    return None


def scope_of(state: Mapping[str, Any]) -> str:
    """Return the word that distinguishes runs on one thread; states of earlier versions have that of their frames."""
    return str(state.get("scope") or state.get("fence") or "")


def _request_key(state: Mapping[str, Any], id: str) -> str:
    return id if ":" in id else f"{state.get('turn', 1)}:{id}"


async def store_entry(runtime: Runtime[Settings], state: Step, entry: JournalEntry) -> JournalEntry:
    """Return the entry for the journal: a long text is stored and shortened; without a store it stays whole."""
    if runtime.store is None or len(entry["text"]) <= INLINE_CHARS:
        return entry
    await store_text(runtime, state, entry["id"], entry["text"])
    return shorten_entry(entry, INLINE_CHARS)


async def with_whole_text(runtime: Runtime[Settings], state: Step, entry: Mapping[str, Any]) -> Json:
    """Return the entry with its full text."""
    text = await load_text(runtime, state, entry["id"]) if entry.get("stored") else None
    return dict(entry) if text is None else {**entry, "text": text}


async def recall(
    call: Call, state: Step, new: list[JournalEntry], runtime: Runtime[Settings]
) -> tuple[str, Span | None]:
    """Return a piece of an observation's full text, framed as data, with the offset of the next piece; and its range.

    For an observation that is not there, the text says so.
    """
    wanted = str(call["args"]["observation"]).strip().strip("[]")
    offset = call["args"].get("offset") or 0
    entries = {e["id"]: e for e in [*state.get("before", ()), *known_entries(state), *new] if not e.get("outside")}
    if wanted not in entries:
        known = ", ".join(list(entries)[-15:]) or "none"
        return f"recall error\nThere is no observation {wanted[:40]!r} here; there are: {known}.", None
    entry = await with_whole_text(runtime, state, entries[wanted])
    text = entry["text"]
    room = max(runtime.context.observation_chars - HEADER_CHARS, HEADER_CHARS)
    end = max(cut_before(text, offset + room), min(offset + 1, len(text)))
    more = f"; it goes on at offset={end}" if end < len(text) else "; this is the end"
    end = max(end, offset)
    head = f"recall ok: [{wanted}] characters {offset} to {end} of {len(text)}{more}"
    piece = framed("tool_output", text[offset:end], state.get("fence", ""))
    return f"{head}\n{piece}", (wanted, offset, end)


def known_entries(state: Step) -> list[JournalEntry]:
    """Return the observations of this step and of its dependencies, oldest first."""
    return [*state.get("known", ()), *state.get("journal", ())]
