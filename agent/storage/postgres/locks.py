"""Holds on threads: an advisory lock of a session, or, behind a pooler, a lease.

A lock goes with its session. Behind a pooler in transaction mode no session is ours, so a row says until when a thread
is held; its holder renews it, and so does every write, which fails otherwise. A worker takes its own kind first and
then looks for the other, so of two workers that come at once at most one works.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
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
_LEASED = "SELECT key FROM donewhen_leases WHERE until > clock_timestamp()"


def lock_key(name: str) -> int:
    """Return the lock number of a name."""
    digest = hashlib.sha256(b"donewhen:" + name.encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


class Lease:
    """A hold on a thread that all workers respect for `LEASE` seconds."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.holder: str = uuid4().hex

    async def renew(self, connection: "PgConnection") -> None:
        """Extend the lease. Raises psycopg.OperationalError if another worker has taken it over."""
        renewing = f"UPDATE donewhen_leases SET until = {_UNTIL} WHERE key = %s AND holder = %s"
        cursor = await connection.execute(renewing, (self.key, self.holder))
        if not cursor.rowcount:
            raise psycopg.OperationalError("the lease on this thread ran out and another worker took it over")

    async def end(self, connection: "PgConnection") -> None:
        """Release the lease."""
        query = "DELETE FROM donewhen_leases WHERE key = %s AND holder = %s"
        await connection.execute(query, (self.key, self.holder))


@asynccontextmanager
async def hold(connection: "PgConnection", key: int, turn: asyncio.Lock) -> AsyncIterator[bool]:
    """Hold the lock of a key meanwhile; yield False if somebody else holds it.

    `turn` is held by the user of the connection.
    """
    async with (_hold_lease if connection.pooled else _hold_lock)(connection, key, turn) as held:
        yield held


@asynccontextmanager
async def _hold_lock(connection: "PgConnection", key: int, turn: asyncio.Lock) -> AsyncIterator[bool]:
    held: bool | None = None  # not known, while it is asked for
    try:
        held = bool(await _one(connection, "SELECT pg_try_advisory_lock(%s)", key))
        if held and await _one(connection, f"SELECT EXISTS ({_LEASED} AND key = %s)", key):
            yield False
        else:
            yield held
    finally:
        if held is not False:
            await _unlock(connection, key)


async def _unlock(connection: "PgConnection", key: int) -> None:
    freed = False
    try:
        with suppress(psycopg.Error):
            await connection.execute("SELECT pg_advisory_unlock(%s)", (key,))
            freed = True
    finally:
        if not freed:  # closing frees it too, but a little later; and a broken connection has lost it already
            await connection.close()


@asynccontextmanager
async def _hold_lease(connection: "PgConnection", key: int, turn: asyncio.Lock) -> AsyncIterator[bool]:
    lease, beats, before = Lease(key), None, connection.renew_lease
    try:
        held = bool(await _one(connection, _TAKE, lease.holder, [key]))
        held = held and not await _one(
            connection, f"SELECT EXISTS (SELECT 1 FROM ({_ADVISORY}) AS a WHERE k = %s)", key
        )
        if held:
            beats = asyncio.create_task(_beat(connection, lease, turn))
            connection.renew_lease = lease.renew
        yield held
    finally:
        connection.renew_lease = before
        if beats:
            beats.cancel()
            await asyncio.wait({beats})
        with suppress(psycopg.Error):  # then it runs out
            await lease.end(connection)


async def _beat(connection: "PgConnection", lease: Lease, turn: asyncio.Lock) -> None:
    with suppress(psycopg.Error):  # the next write says so
        while True:
            await asyncio.sleep(BEAT)
            async with turn:
                await lease.renew(connection)


async def hold_in_transaction(connection: "PgConnection", keys: Sequence[int]) -> set[int]:
    """Take the locks that are free until this transaction ends; return their keys."""
    query = "SELECT k FROM unnest(%s::bigint[]) AS k WHERE pg_try_advisory_xact_lock(k)"
    cursor = await connection.execute(query, ([*keys],))
    free = [row["k"] for row in await cursor.fetchall()]
    cursor = await connection.execute(_TAKE, ("transaction", free))
    held = {row["key"] for row in await cursor.fetchall()}
    await connection.execute("DELETE FROM donewhen_leases WHERE key = ANY(%s)", ([*held],))
    return held


async def find_free(connection: "PgConnection", keys: Sequence[int]) -> set[int]:
    """Return the keys that nobody holds now."""
    query = f"SELECT k FROM unnest(%s::bigint[]) AS k EXCEPT {_ADVISORY} EXCEPT {_LEASED}"
    cursor = await connection.execute(query, ([*keys],))
    return {row["k"] for row in await cursor.fetchall()}


async def _one(connection: "PgConnection", query: str, *arguments: Any) -> Any:
    cursor = await connection.execute(query.encode(), arguments)
    row = await cursor.fetchone()
    return None if row is None else next(iter(row.values()))
