"""Keep what a tool is about to change, so that people can undo it: one entry per change, stored before the change.

The store has the entries in `("donewhen", "changes", thread)`, under keys that are ordered by time. They go with their
thread. `agent/workspace/undo.py` says what an entry holds.
"""

import asyncio
import threading
import uuid
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.tools import ToolException
from langgraph.store.base import BaseStore

from donewhen.graph.clock import current_clock
from donewhen.graph.tools.effects import read_all, read_entries
from donewhen.state.secrets import CONTEXT, conceal, conceal_part, redact_json
from donewhen.state.values import Json, store_label

CHANGES = ("donewhen", "changes")
"""The namespace of the entries, before the thread."""
HOLDS_CREDENTIAL = "what it replaced holds a credential, and this storage is not encrypted"
Result = Literal["restored", "unchanged", "refused", "left", "lost"]
"""What became of a change that is to be undone: `restored`, or `unchanged` because there was nothing to undo; `refused`
because it was changed since; `left` because another one was refused; `lost` because what it replaced was not kept."""
SECONDS = 30.0
"""The time limit for storing an entry; without it a tool changes nothing."""


@dataclass(frozen=True)
class Keeper:
    """Stores entries for one call. Its tool works in another thread than the event loop, which it waits for."""

    store: BaseStore
    thread_id: str
    about: Mapping[str, Any]
    """The request, the step and the observation of the call, and its tool."""
    loop: asyncio.AbstractEventLoop
    loop_thread: int
    secrets: Sequence[str] = ()

    def keep(self, entry: Json) -> None:
        """Store an entry durably. Raises ToolException if that fails: then nothing may be changed."""
        if threading.get_ident() == self.loop_thread:  # it cannot wait for itself: an own tool that calls this one
            return
        key = self._new_key()
        write: Coroutine[Any, Any, None] = self.store.aput(
            _namespace(self.thread_id), key, {**self.about, **entry}, index=False
        )
        try:
            asyncio.run_coroutine_threadsafe(write, self.loop).result(SECONDS)
        except Exception as error:
            write.close()
            raise _not_kept(error) from error

    async def keep_async(self, entry: Json, key: str = "") -> str:
        """Store an entry durably, for a tool that runs in the event loop; return its key.

        With a `key`, the entry replaces the one that has it. Raises ToolException as `keep` does.
        """
        key = key or self._new_key()
        try:
            async with asyncio.timeout(SECONDS):
                await self.store.aput(_namespace(self.thread_id), key, {**self.about, **entry}, index=False)
        except Exception as error:
            raise _not_kept(error) from error
        return key

    async def forget(self, key: str) -> None:
        """Delete an entry whose change was not made. Raises ToolException if that fails."""
        try:
            async with asyncio.timeout(SECONDS):
                await self.store.adelete(_namespace(self.thread_id), key)
        except Exception as error:
            raise ToolException(f"What was kept could not be deleted ({type(error).__name__}).") from error

    @staticmethod
    def _new_key() -> str:
        return f"{current_clock().tick():020}.{uuid.uuid4().hex[:8]}"

    def may_hold(self, content: bytes, start: int, end: int) -> bool:
        """Return whether this part of a file may be stored: it holds no credential, or the storage is encrypted."""
        if getattr(self.store, "sealed", False):
            return True
        begin = max(0, start - CONTEXT)
        before, part = (content[a:b].decode(errors="replace") for a, b in ((begin, start), (start, end)))
        text = before + part + content[end : end + CONTEXT].decode(errors="replace")
        shown = conceal_part(text, len(before), len(before) + len(part))
        return conceal(shown, self.secrets) == part


def _not_kept(error: Exception) -> ToolException:
    return ToolException(f"Nothing was changed: what is there could not be kept ({type(error).__name__}).")


keeper: ContextVar[Keeper | None] = ContextVar("keeper", default=None)
"""Keeps what the current call is about to change; None outside of a step, or without a store."""


@contextmanager
def keep_changes(store: BaseStore | None, thread_id: str, about: Json, secrets: Sequence[str]) -> Iterator[None]:
    """Let the tools of a call keep what they change; changes of a nested agent's tools count as the handoff's."""
    if store is None or keeper.get() is not None:
        yield
        return
    loop = asyncio.get_running_loop()
    token = keeper.set(Keeper(store, thread_id, about, loop, threading.get_ident(), secrets))
    try:
        yield
    finally:
        keeper.reset(token)


async def read_changes(store: BaseStore, thread_id: str) -> list[tuple[str, Json]]:
    """Return the entries of a thread with their keys, the latest first."""
    items = await read_all(store, _namespace(thread_id))
    return sorted(((item.key, dict(item.value)) for item in items), reverse=True, key=lambda each: each[0])


async def calls_of_requests(store: BaseStore, thread_id: str, turns: Collection[int], by: int) -> list[Json]:
    """Return the calls of these requests that took effect, or may have, in the form of observations, the oldest first.

    Their ids name request and step, such as `1:s2`; `by` is the request that took their place. Changes that were undone
    are left out.
    """
    kept = [entry for _, entry in await read_changes(store, thread_id)]
    stay = {(entry["turn"], entry["step"], entry["tool"]) for entry in kept if not entry.get("undone")}
    undone = {(entry["turn"], entry["step"], entry["tool"]) for entry in kept} - stay
    calls = [
        {
            "id": f"{entry['turn']}:{entry['step']}",
            "tool": entry["tool"],
            "arguments": redact_json(entry["arguments"]),
            "effect": entry["kind"],
            "ok": entry["state"] == "done" and entry["result"]["ok"],
            "unknown": entry["state"] != "done",
            "failed": entry["state"] == "done" and ((entry["result"]["artifact"] or {}).get("failed") or False),
            "delegated": "about" in entry,
            "by": by,
        }
        for entry in await read_entries(store, thread_id)
        if entry["turn"] in turns and (entry["turn"], entry["step"], entry["tool"]) not in undone
    ]
    return [call for call in calls if call["ok"] or call["unknown"] or call["failed"]]


async def mark_undoing(store: BaseStore, thread_id: str, key: str, entry: Json, at: str) -> Json:
    """Record that a change is about to be put back, so that this is known if it is cut off; return the entry."""
    entry = {**entry, "undoing": at}
    await store.aput(_namespace(thread_id), key, entry, index=False)
    return entry


async def mark_undone(store: BaseStore, thread_id: str, key: str, entry: Json, at: str) -> None:
    """Record that a change was undone, and delete the content that was kept for it."""
    left = {name: value for name, value in entry.items() if name not in ("removed", "fields")}
    await store.aput(_namespace(thread_id), key, {**left, "undone": at}, index=False)


def _namespace(thread_id: str) -> tuple[str, ...]:
    return (*CHANGES, store_label(thread_id))
