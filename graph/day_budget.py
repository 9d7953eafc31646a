"""The budgets of a day, which the runs of an owner or a queue share: what is left, and who may ask a model now.

Whoever drives the graph gives it a `DayBudget` (`use_budget`); without one nothing is shared. A request to a model is
announced before it is made, so that other processes know of it, and its announcement is taken back with the commit that
charges the run.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from langgraph.types import Overwrite

from donewhen.state.errors import ModelError
from donewhen.state.ledger import Amounts, DayAccount, Scope


class DayBudget(Protocol):
    """What the run that works here shares with other runs."""

    limited: frozenset[str]
    """The amounts that are limited."""

    async def accounts(self) -> Sequence[DayAccount]:
        """Return the accounts of today that the run spends from."""
        ...

    async def announce(self) -> str | DayAccount:
        """Announce a request to a model, and return its id; wait while other runs' requests may use up what is left.

        Returns "" if nothing is limited, and the account if nothing is left of it.
        """
        ...

    def settle(self, request: str, spent: Amounts) -> None:
        """Say what an announced request really cost."""
        ...

    def charge(self, requests: Sequence[str], spent: Amounts, grants: Mapping[tuple[Scope, str], Amounts]) -> None:
        """Charge what a node spent, in place of its announced requests, in the commit of what the node returns.

        `grants` are extensions that a person gave, by scope and day.
        """
        ...


class DayLimitReached(ModelError):
    """No request may be made now: the account has nothing left."""

    def __init__(self, account: DayAccount, key: str) -> None:
        whose = f"the {account.scope} {account.name!r} for {account.day}"
        super().__init__(f"the limit of {key} of {whose} is reached", code="budget")
        self.account = account
        self.key = key


_budget: ContextVar[DayBudget | None] = ContextVar("donewhen_day_budget", default=None)
_requests: ContextVar[list[str] | None] = ContextVar("donewhen_announced", default=None)
"""The announced requests of the node that works in this context."""


def use_budget(budget: DayBudget | None) -> None:
    """Let all runs of this context share this budget, and no other."""
    _budget.set(budget)
    _requests.set(None)


def limits_today(key: str) -> bool:
    """Return whether a budget of the day limits this amount."""
    return (budget := _budget.get()) is not None and key in budget.limited


async def accounts_today() -> Sequence[DayAccount]:
    """Return the accounts of today that the run spends from."""
    return [] if (budget := _budget.get()) is None else await budget.accounts()


async def announce_request() -> str:
    """Announce a request to a model, and return its id; "" if nothing is shared or limited. Raises DayLimitReached."""
    budget, requests = _budget.get(), _requests.get()
    if budget is None or requests is None:
        return ""
    announced = await budget.announce()
    if isinstance(announced, DayAccount):
        raise DayLimitReached(announced, next(key for key, left in announced.left.items() if left <= 0))
    if announced:
        requests.append(announced)
    return announced


def settle_request(request: str, spent: Amounts) -> None:
    """Say what an announced request really cost."""
    if request and (budget := _budget.get()):
        budget.settle(request, spent)


class Charging:
    """A node at work, whose spending is charged when it ends."""

    def __init__(self, budget: DayBudget | None, requests: list[str]) -> None:
        self._budget = budget
        self._requests = requests

    def charge(self, update: Mapping[str, Any]) -> None:
        """Charge what the node's update says was spent."""
        if self._budget is None:
            return
        spent, grants = update.get("spent") or {}, dict[tuple[Scope, str], Amounts]()
        granted = update.get("granted") or {}
        for name, amount in () if isinstance(granted, Overwrite) else granted.items():
            scope, _, rest = name.partition(":")
            day, _, key = rest.partition(":")
            if key:
                grants.setdefault((scope, day), {})[key] = amount
        self._budget.charge(self._requests, {} if isinstance(spent, Overwrite) else spent, grants)


@contextmanager
def charging() -> Iterator[Charging]:
    """Give the node inside what charges its spending. A node within another one charges nothing: the outer one does."""
    if _requests.get() is not None:
        yield Charging(None, [])
        return
    requests = list[str]()
    _requests.set(requests)
    try:
        yield Charging(_budget.get(), requests)
    finally:
        _requests.set(None)
