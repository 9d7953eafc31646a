"""A thread that one worker holds, and its row, which says what its checkpoints say whenever nobody holds it.

Whoever changes checkpoints writes `running` into the row first, and how the thread stands only when all is done that
follows from it. So a row that says `running` while nobody holds the thread was left by a worker that died or was
cancelled. Whoever holds the thread next, or lists threads, does first what that one left undone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.base import BaseStore
from langgraph.types import StateSnapshot

from donewhen.agent.run import Run, run_of
from donewhen.agent.storage import Storage
from donewhen.agent.storage.rounds import surely
from donewhen.agent.storage.thread_store import ThreadStore
from donewhen.agent.storage.thread_table import NEVER
from donewhen.agent.work.engine import not_begun, with_left
from donewhen.agent.work.schedules import keep_schedule
from donewhen.agent.work.threads import (
    AT_ONCE,
    UNKNOWN,
    left_undone,
    note_cut_off,
    note_end,
    note_thread,
    read_row,
)
from donewhen.graph.models.output import PRESENT, Form
from donewhen.graph.people.told import unheard
from donewhen.state.errors import StorageError, ThreadBusy
from donewhen.state.graph_state import Json
from donewhen.state.settings import Settings

Compiled = CompiledStateGraph[Any, Settings, Any, Any]
_PLACES = ("checkpoint_id", "checkpoint_ns", "checkpoint_map")
LATE_CHARS = 1000
"""Of what was said too late, in the problem that says so."""


def configured_for(thread_id: str, config: RunnableConfig | None = None, form: Form | None = None) -> RunnableConfig:
    """Return the caller's callbacks, tags and metadata, with our thread at its latest checkpoint, and strict resume."""
    given: RunnableConfig = config or {}
    kept = {key: value for key, value in (given.get("configurable") or {}).items() if key not in _PLACES}
    own = {"thread_id": thread_id, "__pregel_strict_resume": True, **({PRESENT: form} if form else {})}
    metadata = {"session_id": thread_id, "langfuse_session_id": thread_id, **(given.get("metadata") or {})}
    return {**given, "configurable": {**kept, **own}, "metadata": metadata}


def on_saver(graph: Compiled, saver: BaseCheckpointSaver[Any], store: BaseStore) -> Compiled:
    """Return the same graph with this checkpointer and store, as `compile` would have made it."""
    return graph.copy({"checkpointer": saver, "store": store})


@dataclass(frozen=True)
class Held:
    """A thread that we work on alone."""

    thread_id: str
    saver: BaseCheckpointSaver[Any]
    store: ThreadStore
    graph: Compiled
    """On saver and store."""
    row: Json
    """What was known of the thread when we took it; {} if there was nothing."""

    async def snapshot(self) -> StateSnapshot:
        """Return how it stands."""
        return await self.graph.aget_state(configured_for(self.thread_id))


@asynccontextmanager
async def hold(storage: Storage, graph: Compiled, thread_id: str, patience: float = 0.0) -> AsyncIterator[Held]:
    """Work on a thread alone. What was left undone on it is done first, and last, if we are cancelled.

    Raises ThreadBusy, after `patience` seconds.
    """
    async with storage.session(thread_id, patience=patience) as (saver, store):
        own = on_saver(graph, saver, store)
        row = await settle(own, store, thread_id)
        try:
            yield Held(thread_id, saver, store, own, row or {})
        except (asyncio.CancelledError, GeneratorExit):
            with suppress(StorageError):
                await surely(asyncio.ensure_future(settle(own, store, thread_id)))
            raise


async def settle(graph: Compiled, store: ThreadStore, thread_id: str) -> Json | None:
    """Do what was left undone on a thread that we hold, and return its row; None of a thread that there is not."""
    found = await store.threads.get(thread_id)
    if found is None or not left_undone(found):
        return found
    row = await read_row(store, thread_id) or {}
    try:
        snapshot = await graph.aget_state(configured_for(thread_id))
        run, values = run_of(thread_id, snapshot), snapshot.values
    except StorageError as error:
        if found:
            raise
        await note_thread(store, thread_id, row, status=UNKNOWN, due=NEVER, problem=str(error))
        return await read_row(store, thread_id)
    change = {"goal": run.goal or None, "updated": _moment(snapshot)}
    if run.status == "running" or not_begun(row, values):
        await note_cut_off(store, thread_id, row, **change)
    else:
        await write_end(store, run, values, **change)
    return await read_row(store, thread_id)


def _moment(snapshot: StateSnapshot) -> str | None:
    """When a thread changed last, as rows have it."""
    if not snapshot.created_at:
        return None
    return datetime.fromisoformat(snapshot.created_at).astimezone(UTC).isoformat(timespec="milliseconds")


async def settle_all(storage: Storage, graph: Compiled) -> None:
    """Do what was left undone on threads that nobody holds; one that cannot be read says so when it is read."""
    async with storage.reader() as (_, store):
        found, before = await store.threads.undone(AT_ONCE), set[str]()
        while set(found) != before:
            for thread_id in await storage.unheld(found):
                with suppress(ThreadBusy, StorageError):
                    async with hold(storage, graph, thread_id):
                        pass
            if len(found) < AT_ONCE:
                return
            found, before = await store.threads.undone(AT_ONCE), set(found)


async def write_end(store: ThreadStore, run: Run, values: Json, **change: Any) -> Run:
    """Write down how a leg of a run ended, after what follows from that; return the run as it then stands.

    It may be done again and again, so that whoever is cut off in it leaves it to the next one.
    """
    await keep_schedule(store, run)
    if (answered := await with_left(store, run)) is not run:
        return answered
    row = await read_row(store, run.thread_id) or {}
    await note_end(store, run, row, **change)
    if run.outcome and (row.get("settings") or {}).get("when_busy") == "next_round":
        late = await unheard(store, run.thread_id, str(values.get("heard") or ""))
        if said := "\n".join(str(one["text"]) for one in late):
            run = replace(run, problem=f"said when the work was done already, and not followed: {said[:LATE_CHARS]}")
            await note_end(store, run, row, **{**change, "problem": run.problem})
    return await with_left(store, run)
