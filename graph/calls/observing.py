"""From a call's result to an observation: numbered, kept whole by id, short in the journal, read on by `recall`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from donewhen.graph.context import settings_of
from donewhen.graph.events import now, thread_of
from donewhen.graph.tools.call import CallResult
from donewhen.graph.tools.effects import label
from donewhen.graph.tools.rendering import cut_before
from donewhen.prompts import framed
from donewhen.state.graph_state import Json, Step
from donewhen.state.proof.journal import INLINE_CHARS, Source, observation, shortened
from donewhen.state.records import FrozenCall
from donewhen.state.settings import Settings

NAMESPACE = ("donewhen", "observations")
HEADER_CHARS = 200


async def keep_text(store: BaseStore | None, thread_id: str, turn: int, id: str, text: str) -> None:
    """Put the whole text of an observation into the store, if it is too long for the journal."""
    if store is not None and len(text) > INLINE_CHARS:
        await store.aput((*NAMESPACE, label(thread_id)), f"{turn}:{id}", {"text": text}, index=False)


async def kept_text(store: BaseStore | None, thread_id: str, turn: int, id: str) -> str | None:
    """The whole text of an observation as it was put into the store, or None."""
    item = await store.aget((*NAMESPACE, label(thread_id)), f"{turn}:{id}") if store is not None else None
    return str(item.value["text"]) if item else None


async def keep(store: BaseStore | None, thread_id: str, turn: int, entry: Json) -> Json:
    """Put a long text into the store and give the journal's short form; without a store all stays in the journal."""
    await keep_text(store, thread_id, turn, entry["id"], entry["text"])
    return entry if store is None else shortened(entry, INLINE_CHARS)


async def whole(store: BaseStore | None, thread_id: str, turn: int, entry: Mapping[str, Any]) -> Json:
    """The entry with its whole text."""
    of, _, id = entry["id"].rpartition(":")  # of an earlier request
    text = await kept_text(store, thread_id, int(of or turn), id) if entry.get("stored") else None
    return dict(entry) if text is None else {**entry, "text": text}


def noted(
    state: Step,
    number: int,
    call: FrozenCall,
    result: CallResult,
    effect: str | None,
    targets: Iterable[str],
    source: Source = "tool",
) -> Json:
    """The observation of a call of this step. `effect` is None for a call that was not made."""
    id = state["step"]["id"]
    return observation(
        f"{id}.{number}",
        id,
        state["record"]["rounds"],
        source,
        result.text,
        ok=result.ok,
        tool=call["name"],
        arguments=call["args"],
        effect=effect,
        seconds=result.seconds,
        at=now(),
        targets=targets,
    )


@dataclass(frozen=True)
class Piece:
    """What came of a `recall`: what the model sees, and which characters of which observation that are, if any."""

    text: str
    id: str = ""
    span: tuple[int, int] = (0, 0)


async def recall(call: FrozenCall, state: Step, new: list[Json], runtime: Runtime[Settings]) -> Piece:
    """A piece of the whole text, framed as data, and where it goes on."""
    wanted = str(call["args"]["observation"]).strip().strip("[]")
    offset = call["args"].get("offset") or 0
    entries = {e["id"]: e for e in [*state.get("before", ()), *seen_before(state), *new] if not e.get("outside")}
    if wanted not in entries:
        known = ", ".join(list(entries)[-15:]) or "none"
        return Piece(f"recall error\nThere is no observation {wanted[:40]!r} here; there are: {known}.")
    entry = await whole(runtime.store, thread_of(runtime), state.get("turn", 1), entries[wanted])
    text = entry["text"]
    room = max(settings_of(runtime).observation_chars - HEADER_CHARS, HEADER_CHARS)
    end = max(cut_before(text, offset + room), min(offset + 1, len(text)))
    more = f"; it goes on at offset={end}" if end < len(text) else "; this is the end"
    span = (offset, max(end, offset))
    head = f"recall ok: [{wanted}] characters {span[0]} to {span[1]} of {len(text)}{more}"
    return Piece(f"{head}\n{framed('tool_output', text[offset:end], state.get('fence', ''))}", wanted, span)


def seen_before(state: Step) -> list[Json]:
    """Observations of this step and of those it builds on, oldest first."""
    return [*state.get("known", ()), *state.get("journal", ())]
