"""From a call's result to an observation: numbered, kept whole by id, short in the journal."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from graph.calling import CallResult
from graph.effects import label
from state.journal import INLINE_CHARS, KNOWN_CHARS, observation, shortened
from state.run import Json, Step
from state.settings import Settings

NAMESPACE = ("donewhen", "observations")


def thread_of(runtime: Runtime[Settings]) -> str:
    """The thread's id; "" in a run without a checkpointer."""
    info = runtime.execution_info
    return str((info.thread_id if info else None) or "")


async def keep(store: BaseStore | None, thread_id: str, turn: int, entry: Json) -> Json:
    """Put a long text into the store and give the journal's short form; without a store all stays in the journal."""
    if store is None:
        return entry
    if len(entry["text"]) > KNOWN_CHARS:
        await store.aput((*NAMESPACE, label(thread_id)), f"{turn}:{entry['id']}", {"text": entry["text"]}, index=False)
    return shortened(entry, INLINE_CHARS)


async def whole(store: BaseStore | None, thread_id: str, turn: int, entry: Mapping[str, Any]) -> Json:
    """The entry with its whole text."""
    if store is None or not entry.get("stored"):
        return dict(entry)
    item = await store.aget((*NAMESPACE, label(thread_id)), f"{turn}:{entry['id']}")
    return {**entry, "text": item.value["text"]} if item else dict(entry)


def noted(
    state: Step,
    number: int,
    call: Mapping[str, Any],
    result: CallResult,
    effect: str | None,
    targets: Iterable[str],
    source: str = "tool",
) -> Json:
    """The observation of a call of this step."""
    id = state["step"]["id"]
    return observation(
        f"{id}.{number}",
        id,
        state["record"]["rounds"],
        source,  # type: ignore[arg-type]
        result.text,
        ok=result.ok,
        tool=call["name"],
        arguments=call["args"],
        effect=effect,
        seconds=result.seconds,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        targets=targets,
    )
