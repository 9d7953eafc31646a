"""The budgets of a day or a month, in a database: what the runs of an owner and of a queue spend together.

All processes share them. Each day is kept by itself; a month is the sum of its days.

Two runs at once never both take what is left for one. Each announces its request, in a commit of its own, before it
looks what others have announced: so of two at least one sees the other, and lets it go first. A request is expected to
cost twice what requests cost on average; where nothing is known yet, one goes alone.
"""

import asyncio
import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from math import inf
from time import monotonic
from typing import TypedDict
from uuid import uuid4
from zoneinfo import ZoneInfo

from donewhen.agent.storage import Storage
from donewhen.agent.storage.spending import NOBODY, SETTLED, AnnouncedRequest, days_of, granted_of
from donewhen.agent.storage.store import ThreadStore
from donewhen.graph.clock import SECOND
from donewhen.state.errors import ConfigError
from donewhen.state.ledger import (
    KEYS,
    KNOWN_AFTERWARDS,
    Amounts,
    Budgets,
    DayAccount,
    Limits,
    MeterRow,
    Scope,
    add,
    first_exhausted,
    meter,
)

ALL_THERE_IS = 1e15
"""What a request is expected to cost of which nothing is known."""
LOOK_AGAIN = 1.0
"""Seconds of waiting for others until those are looked for that died meanwhile."""


class BudgetRow(TypedDict):
    """What an owner or a queue spent in a day or a month, and its limits."""

    scope: Scope
    name: str
    day: str
    meter: list[MeterRow]


def today(store: ThreadStore, zone: str) -> str:
    """Return the date by the database's clock."""
    return datetime.fromtimestamp(store.threads.clock().now() / SECOND, ZoneInfo(zone)).date().isoformat()


def period_now(store: ThreadStore, budgets: Budgets) -> str:
    """Return the day or month of the budgets, such as 2030-12-01 or 2030-12, by the database's clock."""
    day = today(store, budgets.zone)
    return day if budgets.period == "day" else day[: len("2030-12")]


def read_account(scope: Scope, name: str, day: str, limits: Limits, stored: Mapping[str, float]) -> DayAccount:
    """Return an account from what is stored of its day."""
    granted = granted_of(scope, stored)
    return DayAccount(scope, name, day, limits, granted, {key: each for key, each in stored.items() if ":" not in key})


class RunBudget:
    """What a run shares with others, through the session that holds its thread. Implements `DayBudget`."""

    def __init__(
        self, budgets: Budgets, storage: Storage, store: ThreadStore, thread_id: str, *, owner: str, queue: str
    ) -> None:
        self._names: dict[Scope, str] = {"owner": owner, "queue": queue}
        found = {scope: budgets.limits_of(scope, name) for scope, name in self._names.items()}
        self._limits = {scope: limits for scope, limits in found.items() if limits is not None}
        self._budgets = budgets
        self._storage = storage
        self._store = store
        self._table = store.spending
        self._thread_id = thread_id
        self._owner, self._queue = owner, queue
        self._session = uuid4().hex
        self._numbers = itertools.count(1)
        self._settled: dict[str, Amounts] = {}
        """What requests of this session cost, until their node is charged with it."""
        self._unannounced = set[str]()
        """Requests whose real cost is not announced yet."""
        self._totals: dict[str, Amounts] = {}
        """By day, what this session spent and was granted."""
        self.limited: frozenset[str] = frozenset(
            key for limits in self._limits.values() for key in KEYS if getattr(limits, key) is not None
        )

    async def open(self) -> None:
        """Charge the requests that were cut off: of a process that held the thread before, and died, or of this one."""
        await self._table.charge_lost(today(self._store, self._budgets.zone), self._thread_id)

    close = open

    async def accounts(self) -> list[DayAccount]:
        """Return the accounts of now that the run spends from."""
        day = period_now(self._store, self._budgets)
        return [
            read_account(scope, name, day, self._limits[scope], await self._table.spent(day, scope, name))
            for scope, name in self._names.items()
            if scope in self._limits
        ]

    async def announce(self) -> str | DayAccount:
        """Announce a request, and return its id; wait for others. Returns an account of which nothing is left.

        Returns "" at once if nothing limits the run.
        """
        if not self.limited:
            return ""
        request, looked = f"{self._session}:{next(self._numbers)}", monotonic()
        while self._unannounced:
            settled = self._unannounced.pop()
            await self._announce(settled, {**self._settled[settled], SETTLED: 1})
        while True:
            accounts, others, has_room = await self._look(request)
            if reached := next((each for each in accounts if _is_used_up(each.left)), None):
                if not await self._charge_dead(others):
                    return reached
            elif has_room:
                await self._announce(request, await self._expected(accounts))
                if (await self._look(request))[2]:
                    return request
                await self._table.withdraw(self._thread_id, request)
            elif monotonic() - looked > LOOK_AGAIN:
                looked = monotonic()
                await self._charge_dead(others)
            await asyncio.sleep(random.uniform(0.01, 0.1))

    def settle(self, request: str, spent: Amounts) -> None:
        """Say what an announced request really cost."""
        self._settled[request] = {key: spent.get(key, 0) for key in self.limited | {"model_calls"}}
        self._unannounced.add(request)

    def charge(self, requests: Sequence[str], spent: Amounts, grants: Mapping[tuple[Scope, str], Amounts]) -> None:
        """Charge what a node spent, in place of its announced requests, in the next commit."""
        changes = {today(self._store, self._budgets.zone): spent} if spent else {}
        for (scope, day), amounts in grants.items():
            first = days_of(day)[0]
            changes[first] = add(changes.get(first), {f"{scope}:{key}": amount for key, amount in amounts.items()})
        for day, amounts in changes.items():
            total = self._totals[day] = add(self._totals.get(day), amounts)
            changed = {key: total[key] for key in amounts}
            self._table.put(day, self._owner, self._queue, self._session, changed)
        for request in requests:
            self._settled.pop(request, None)
            self._unannounced.discard(request)
            self._table.forget_with_next(self._thread_id, request)

    async def _announce(self, request: str, amounts: Amounts) -> None:
        await self._table.announce(self._thread_id, request, self._owner, self._queue, amounts)

    async def _look(self, own: str) -> tuple[list[DayAccount], list[AnnouncedRequest], bool]:
        """Return the accounts, the announced requests of others, and whether there is room for one more request.

        Announcements are read first: a request that is charged meanwhile counts twice then, and is not overlooked.
        What settled requests cost is spent, also those of others: who waited for each other's would wait for ever.
        """
        others, has_room = set[AnnouncedRequest](), True
        announced = [await self._table.announced(scope, self._names[scope]) for scope in self._limits]
        accounts = list[DayAccount]()
        for account, found in zip(await self.accounts(), announced, strict=True):
            of_others = {each: cost for each, cost in found.items() if each.request not in (own, *self._settled)}
            spent = _total([*self._settled.values(), *(cost for cost in of_others.values() if SETTLED in cost)])
            under_way = _total(cost for cost in of_others.values() if SETTLED not in cost)
            account = replace(account, spent=add(account.spent, {key: spent.get(key, 0) for key in KEYS}))
            has_room = has_room and not _is_used_up(
                {key: left - under_way.get(key, 0) for key, left in account.left.items()}
            )
            accounts.append(account)
            others |= of_others.keys()
        return accounts, [*others], has_room

    async def _expected(self, accounts: Sequence[DayAccount]) -> Amounts:
        """Return what a request is expected to cost: twice the average of these accounts or, without one, of all."""
        if not (wanted := self.limited & {*KNOWN_AFTERWARDS}):
            return {"model_calls": 1}
        known = next((each.spent for each in accounts if each.spent.get("model_calls")), None)
        if known is None:
            yesterday = date.fromisoformat(days_of(accounts[0].day)[0]) - timedelta(days=1)
            known = await self._table.spent_since(yesterday.isoformat())
        calls = known.get("model_calls", 0)
        amounts = {key: 2 * known.get(key, 0) / calls if calls else ALL_THERE_IS for key in wanted}
        return {"model_calls": 1, **amounts}

    async def _charge_dead(self, announced: Sequence[AnnouncedRequest]) -> bool:
        """Charge what was announced for threads that nobody works on, as their processes died; return if any was."""
        free = await self._storage.find_left([*{each.thread_id for each in announced} - {self._thread_id}])
        dead = [each for each in announced if each.thread_id in free]
        for each in dead:
            await self._table.charge_lost(today(self._store, self._budgets.zone), *each)
        return bool(dead)


def _total(costs: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for cost in costs:
        total = add(total, cost)
    return total


def _is_used_up(left: Mapping[str, float]) -> bool:
    return first_exhausted(left, ("model_calls",)) is not None


async def list_budgets(store: ThreadStore, budgets: Budgets, day: str | None = None) -> list[BudgetRow]:
    """Return what owners and queues spent in a day or a month, by default now, those with the least left first.

    Raises ConfigError if `day` is neither.
    """
    now, rows = period_now(store, budgets), list[tuple[float, BudgetRow]]()
    day = day or now
    try:
        is_known = date.fromisoformat(days_of(day)[0]).isoformat().startswith(day)
    except ValueError:
        is_known = False
    if not is_known:
        raise ConfigError(f"{day!r} is neither a day, such as 2030-12-01, nor a month, such as 2030-12")
    scopes: tuple[Scope, ...] = ("owner", "queue")
    for scope in scopes:
        for name, stored in (await store.spending.spent_by_name(day, scope)).items():
            is_limited = len(day) == len(now) and name != NOBODY  # a day's limits are not those of a month
            limits = budgets.limits_of(scope, name) if is_limited else None
            account = read_account(scope, name, day, limits or Limits(), stored)
            if not (shown := meter(account.spent, account.limits, account.granted)):
                continue
            used = [row["spent"] / row["limit"] if row["limit"] else inf for row in shown if row["limit"] is not None]
            rows.append((-max(used, default=0), {"scope": scope, "name": name, "day": day, "meter": shown}))
    return [row for _, row in sorted(rows, key=lambda each: (each[0], each[1]["scope"], each[1]["name"]))]
