"""Our table of events: one row for each stored event, committed together with what the run stores next.

So when a checkpoint is stored, the events before it are, too. The column `event` has the event as JSON, encrypted if
there is a key; its thread, its number and its request are columns.
"""

import json
from typing import Any

from donewhen.agent.storage.cipher import Cipher
from donewhen.agent.storage.table import RowStore
from donewhen.state.channels import Json
from donewhen.state.errors import StorageError
from donewhen.state.values import storable, storable_text

READ_AT_ONCE = 500
"""The most events that are read at once."""
_INSERT = "INSERT INTO donewhen_events (thread_id, n, turn, event) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
"""Where a connection is lost, it may be executed again on another one; the second time changes nothing."""


class EventTable:
    """The events of threads, through one session."""

    def __init__(self, store: RowStore, cipher: Cipher | None = None) -> None:
        self._store = store
        self._cipher = cipher

    def append(self, thread_id: str, number: int, turn: int, event: Json) -> None:
        """Store an event together with what this session stores next."""
        if self._cipher is None:
            text = storable_text(event)
        else:
            text = self._cipher.seal_text(storable(event), "event", thread_id, number)
        self._store.put_with_next(_INSERT, [thread_id, number, turn, text])

    async def last(self, thread_id: str) -> int:
        """Return the number of a thread's last event; 0 if none is kept."""
        rows = await self._store.read_rows("SELECT max(n) FROM donewhen_events WHERE thread_id = ?", [thread_id])
        return int(rows[0][0] or 0)

    async def beginnings(self, thread_id: str) -> dict[int, int]:
        """Return the number of the first event of each request that has events, by the request's number."""
        rows = await self._store.read_rows(
            "SELECT turn, min(n) FROM donewhen_events WHERE thread_id = ? GROUP BY turn ORDER BY turn", [thread_id]
        )
        return {int(turn): int(number) for turn, number in rows}

    async def read(self, thread_id: str, *, after: int = 0, turn: int = 0, most: int = READ_AT_ONCE) -> list[Json]:
        """Return the events after a number and from a request on, in order, at most `most`."""
        rows = await self._store.read_rows(
            "SELECT n, turn, event FROM donewhen_events WHERE thread_id = ? AND n > ? AND turn >= ? ORDER BY n LIMIT ?",
            [thread_id, after, turn, most],
        )
        return [self._read(thread_id, *row) for row in rows]

    async def read_back(self, thread_id: str, numbers: range) -> list[Json]:
        """Return the events with these numbers, the latest first, at most `READ_AT_ONCE`."""
        rows = await self._store.read_rows(
            "SELECT n, turn, event FROM donewhen_events WHERE thread_id = ? AND n >= ? AND n < ?"
            " ORDER BY n DESC LIMIT ?",
            [thread_id, numbers.start, numbers.stop, READ_AT_ONCE],
        )
        return [self._read(thread_id, *row) for row in rows]

    def _read(self, thread_id: str, number: int, turn: int, text: Any) -> Json:
        try:
            event = (
                json.loads(text) if self._cipher is None else self._cipher.unseal_text(text, "event", thread_id, number)
            )
            return {**event, "thread_id": thread_id, "turn": turn, "seq": number}
        except (StorageError, TypeError, ValueError, RecursionError) as error:
            raise StorageError(f"the event {number} of the thread {thread_id!r} is damaged ({error})") from error
