"""Holds on threads: an advisory lock of a session, or, behind a pooler, a lease.

A lock ends with its session. Behind a pooler in transaction mode no session is ours, so a row says until when a thread
is held: its holder renews this lease, and so does every write, which fails if the lease is lost. A worker takes its own
kind of hold first and then checks for the other kind, so of two workers that come at once at most one works.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import psycopg

if TYPE_CHECKING:
    from donewhen.agent.storage.postgres.connections import PgConnection

LEASE = 20.0
"""Seconds that a lease lasts without renewal; a killed worker's thread stays busy that long."""
BEAT = 5.0
TABLE = (
    "CREATE TABLE IF NOT EXISTS donewhen_leases"
    " (key bigint PRIMARY KEY, holder text NOT NULL, until timestamptz NOT NULL)"
)
_UNTIL = f"clock_timestamp() + interval '{LEASE} s'"
_TAKE = (
    f"INSERT INTO donewhen_leases SELECT k, %s, {_UNTIL} FROM unnest(%s::bigint[]) AS k"
    " ON CONFLICT (key) DO UPDATE SET holder = EXCLUDED.holder, until = EXCLUDED.until"
    " WHERE donewhen_leases.until < clock_timestamp() RETURNING key"
)
_ADVISORY = (
    "SELECT (classid::bigint << 32) | objid::bigint AS k FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"
    " AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_CLAIM = (
    "INSERT INTO donewhen_leases VALUES (%s, %s, '-infinity')"
    " ON CONFLICT (key) DO UPDATE SET holder = EXCLUDED.holder, until = EXCLUDED.until"
)
_FREE = (
    f"SELECT k FROM unnest(%s::bigint[]) AS k EXCEPT {_ADVISORY}"
    " EXCEPT SELECT key FROM donewhen_leases WHERE key = ANY(%s) AND until > clock_timestamp()"
)


class TakenOver(psycopg.OperationalError):
    """Another worker changed the thread after its holder lost it."""

    def __str__(self) -> str:
        return "the connection was lost, or the lease on the thread ran out, and another worker took it over"


def lock_key(name: str) -> int:
    """Return the lock number of a name."""
    digest = hashlib.sha256(b"donewhen:" + name.encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


class Hold(Protocol):
    """A hold on a thread; it moves to another connection if the server closes the one that it is on."""

    key: int

    async def take(self, connection: "PgConnection") -> bool:
        """Take the thread, and return whether it was free."""
        ...

    async def take_again(self, connection: "PgConnection") -> bool:
        """Take it on another connection; return whether that is possible now.

        Raises TakenOver if another worker has changed it since.
        """
        ...

    def claim(self) -> tuple[str, tuple[Any, ...]] | None:
        """Return the statement, to be executed with the first change, that records this holder; None for none."""
        ...

    def claimed(self) -> None:
        """Note that the claim was stored."""
        ...

    async def free(self, connection: "PgConnection") -> None:
        """Free it."""
        ...


def hold(key: int, connection: "PgConnection", turn: asyncio.Lock) -> Hold:
    """Return a hold for this kind of connection. `turn` is held by the user of the connection."""
    return Lease(key, turn) if connection.pooled else Lock(key)


class Lock:
    """The advisory lock of a session. Its claim, a lease that has run out, records who changed the thread last."""

    def __init__(self, key: int) -> None:
        self.key = key
        self._holder = uuid4().hex
        self._is_held: bool | None = None
        """None while the server is being asked for it."""
        self._last: str | None = None
        """Who changed the thread last, as far as this hold knows."""

    async def take(self, connection: "PgConnection") -> bool:
        taken, self._last = await self._take(connection)
        return taken

    async def take_again(self, connection: "PgConnection") -> bool:
        taken, last = await self._take(connection)
        if last not in (self._last, self._holder):
            raise TakenOver
        return taken

    async def _take(self, connection: "PgConnection") -> tuple[bool, str | None]:
        self._is_held = None
        self._is_held = bool(await _one(connection, "SELECT pg_try_advisory_lock(%s)", self.key))
        query = "SELECT holder, until > clock_timestamp() AS held FROM donewhen_leases WHERE key = %s"
        lease = await (await connection.execute(query, (self.key,))).fetchone() or {"held": False, "holder": None}
        return self._is_held and not lease["held"], lease["holder"]

    def claim(self) -> tuple[str, tuple[Any, ...]] | None:
        if self._last == self._holder:
            return None
        return _CLAIM, (self.key, self._holder)

    def claimed(self) -> None:
        self._last = self._holder

    async def free(self, connection: "PgConnection") -> None:
        if self._is_held is False:
            return
        freed = False
        try:
            with suppress(psycopg.Error):
                await connection.execute("SELECT pg_advisory_unlock(%s)", (self.key,))
                freed = True
        finally:
            if not freed:  # closing frees it as well, a little later; a broken connection has lost it already
                await connection.close()


class Lease:
    """A hold on a thread that all workers respect for `LEASE` seconds. It is its own claim."""

    def __init__(self, key: int, turn: asyncio.Lock) -> None:
        self.key = key
        self.holder: str = uuid4().hex
        self._turn = turn
        self._beats: asyncio.Task[None] | None = None
        self._before: Any = None

    async def take(self, connection: "PgConnection") -> bool:
        self._before = connection.renew_lease
        is_taken = bool(await _one(connection, _TAKE, self.holder, [self.key]))
        query = f"SELECT EXISTS (SELECT 1 FROM ({_ADVISORY}) AS a WHERE k = %s)"
        is_taken = is_taken and not await _one(connection, query, self.key)
        if is_taken:
            self._begin(connection)
        return is_taken

    async def take_again(self, connection: "PgConnection") -> bool:
        await self.renew(connection)
        await self._end_beats()
        self._begin(connection)
        return True

    def claim(self) -> None:
        return None

    def claimed(self) -> None:
        return

    async def free(self, connection: "PgConnection") -> None:
        connection.renew_lease = self._before
        await self._end_beats()
        with suppress(psycopg.Error):  # then it runs out
            await self.end(connection)

    async def renew(self, connection: "PgConnection") -> None:
        """Extend the lease. Raises TakenOver if another worker has taken it."""
        renewing = f"UPDATE donewhen_leases SET until = {_UNTIL} WHERE key = %s AND holder = %s"
        cursor = await connection.execute(renewing, (self.key, self.holder))
        if not cursor.rowcount:
            raise TakenOver

    async def end(self, connection: "PgConnection") -> None:
        """Release the lease."""
        query = "DELETE FROM donewhen_leases WHERE key = %s AND holder = %s"
        await connection.execute(query, (self.key, self.holder))

    def _begin(self, connection: "PgConnection") -> None:
        self._beats = asyncio.create_task(self._beat(connection))
        connection.renew_lease = self.renew

    async def _end_beats(self) -> None:
        if self._beats:
            self._beats.cancel()
            await asyncio.wait({self._beats})

    async def _beat(self, connection: "PgConnection") -> None:
        with suppress(psycopg.Error):  # the next write says so
            while True:
                await asyncio.sleep(BEAT)
                async with self._turn:
                    await self.renew(connection)


async def hold_in_transaction(connection: "PgConnection", keys: Sequence[int]) -> set[int]:
    """Take the locks that are free until this transaction ends; return their keys."""
    query = "SELECT k FROM unnest(%s::bigint[]) AS k WHERE pg_try_advisory_xact_lock(k)"
    cursor = await connection.execute(query, ([*keys],))
    free = [row["k"] for row in await cursor.fetchall()]
    cursor = await connection.execute(_TAKE, ("transaction", free))
    taken = {row["key"] for row in await cursor.fetchall()}
    await connection.execute("DELETE FROM donewhen_leases WHERE key = ANY(%s)", ([*taken],))
    return taken


async def find_free(connection: "PgConnection", keys: Sequence[int]) -> set[int]:
    """Return the keys that nobody holds now."""
    cursor = await connection.execute(_FREE.encode(), ([*keys], [*keys]))
    return {row["k"] for row in await cursor.fetchall()}


async def _one(connection: "PgConnection", query: str, *arguments: Any) -> Any:
    cursor = await connection.execute(query.encode(), arguments)
    row = await cursor.fetchone()
    return None if row is None else next(iter(row.values()))
