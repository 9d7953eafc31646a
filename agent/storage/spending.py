"""Our tables of what is spent in a day, and of the requests under way that are announced.

A session writes how much it spent in total, for each day and key, so a repeated write counts nothing twice. A day's
spending is the sum over sessions. An announcement belongs to the thread whose run made it.
"""

from collections.abc import Mapping
from typing import NamedTuple

from donewhen.agent.storage.table import RowStore
from donewhen.state.ledger import Amounts, Scope, add

_PUT = (
    "INSERT INTO donewhen_spent (day, owner, queue, session, key, amount) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (day, owner, queue, session, key) DO UPDATE SET amount = excluded.amount"
)
_ANNOUNCE = (
    "INSERT INTO donewhen_announced (thread_id, request, owner, queue, key, amount) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (thread_id, request, key) DO UPDATE SET amount = excluded.amount"
)
SETTLED = "settled"
"""The key of an announcement whose cost is known: its request was made, and is not charged yet."""
_CHARGE = (
    "INSERT INTO donewhen_spent (day, owner, queue, session, key, amount)"
    " SELECT ?, owner, queue, request, key, amount FROM donewhen_announced AS a WHERE thread_id = ? AND key <> ?"
    " AND (key = 'model_calls' OR EXISTS (SELECT 1 FROM donewhen_announced AS b"
    " WHERE b.thread_id = a.thread_id AND b.request = a.request AND b.key = ?))"
)
NOBODY = "(deleted)"
"""The owner of what an owner spent whose data were deleted."""
_FORGET = "DELETE FROM donewhen_announced WHERE thread_id = ?"


class AnnouncedRequest(NamedTuple):
    """A request that is under way: the thread whose run made it, and its id."""

    thread_id: str
    request: str


class SpendingTable:
    """What the runs of owners and queues spend, through one session."""

    def __init__(self, store: RowStore) -> None:
        self._store = store

    def put(self, day: str, owner: str, queue: str, session: str, amounts: Amounts) -> None:
        """Store what a session spent in total on a day, together with what it stores next."""
        for key, amount in amounts.items():
            self._store.put_with_next(_PUT, [day, owner, queue, session, key, float(amount)])

    async def spent(self, period: str, scope: Scope, name: str) -> Amounts:
        """Return what was spent and granted in a day or a month, by key."""
        where, days = f"day BETWEEN ? AND ? AND {scope} = ?", days_of(period)
        rows = await self._store.read_rows(
            f"SELECT key, sum(amount) FROM donewhen_spent WHERE {where} GROUP BY key", [*days, name]
        )
        return {key: round(float(amount), 10) for key, amount in rows}

    async def spent_since(self, day: str) -> Amounts:
        """Return what was spent by everybody since a day."""
        rows = await self._store.read_rows(
            "SELECT key, sum(amount) FROM donewhen_spent WHERE day >= ? GROUP BY key", [day]
        )
        return {key: float(amount) for key, amount in rows}

    async def spent_by_name(self, period: str, scope: Scope) -> dict[str, Amounts]:
        """Return what was spent and granted in a day or a month, by the name of the owner or queue."""
        rows = await self._store.read_rows(
            f"SELECT {scope}, key, sum(amount) FROM donewhen_spent WHERE day BETWEEN ? AND ? GROUP BY {scope}, key",
            [*days_of(period)],
        )
        amounts_by_name: dict[str, Amounts] = {}
        for name, key, amount in rows:
            amounts_by_name.setdefault(name, {})[key] = round(float(amount), 10)
        return amounts_by_name

    async def delete_before(self, day: str) -> None:
        """Delete what was spent before a day."""
        await self._store.put_row("DELETE FROM donewhen_spent WHERE day < ?", [day])

    async def forget_owner(self, owner: str, day: str) -> None:
        """Take the owner's name from what was spent before a day; it still counts for the queues."""
        update = "UPDATE donewhen_spent SET owner = ? WHERE owner = ? AND day < ?"
        await self._store.put_row(update, [NOBODY, owner, day])

    async def announce(self, thread_id: str, request: str, owner: str, queue: str, amounts: Amounts) -> None:
        """Store that a request is made, with its expected cost; or what it cost, once that is known."""
        *others, last = [[thread_id, request, owner, queue, key, float(each)] for key, each in amounts.items()]
        for row in others:
            self._store.put_with_next(_ANNOUNCE, row)
        await self._store.put_row(_ANNOUNCE, last)

    async def announced(self, scope: Scope, name: str) -> dict[AnnouncedRequest, Amounts]:
        """Return the requests under way, with their expected cost."""
        rows = await self._store.read_rows(
            f"SELECT thread_id, request, key, amount FROM donewhen_announced WHERE {scope} = ?", [name]
        )
        requests: dict[AnnouncedRequest, Amounts] = {}
        for thread_id, request, key, amount in rows:
            place = AnnouncedRequest(thread_id, request)
            requests[place] = add(requests.get(place), {key: amount})
        return requests

    def forget_with_next(self, thread_id: str, request: str) -> None:
        """Delete an announcement, together with what is stored next."""
        self._store.put_with_next(f"{_FORGET} AND request = ?", [thread_id, request])

    async def withdraw(self, thread_id: str, request: str) -> None:
        """Delete an announcement whose request is not made."""
        await self._store.put_row(f"{_FORGET} AND request = ?", [thread_id, request])

    async def charge_lost(self, day: str, thread_id: str, request: str | None = None) -> None:
        """Charge an announced request of a thread, or all of them, whose run was cut off: what it cost, if that is
        known, else one call. The request may have been made.
        """
        only, more = (" AND request = ?", [request]) if request else ("", [])
        charged = (
            f"{_CHARGE}{only} ON CONFLICT (day, owner, queue, session, key) DO UPDATE SET amount = excluded.amount"
        )
        self._store.put_with_next(charged, [day, thread_id, SETTLED, SETTLED, *more])
        await self._store.put_row(f"{_FORGET}{only}", [thread_id, *more])


def days_of(period: str) -> tuple[str, str]:
    """Return the first and the last day, as dates, of a day or of a month such as 2030-12."""
    return (f"{period}-01", f"{period}-31") if period.count("-") == 1 else (period, period)


def granted_of(scope: Scope, stored: Mapping[str, float]) -> Amounts:
    """Return the extensions for a scope among what is stored of a day."""
    return {name.partition(":")[2]: amount for name, amount in stored.items() if name.startswith(f"{scope}:")}
