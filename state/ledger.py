"""The ledger: counters of spending and their limits, under the same keys, as plain data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, FiniteFloat
from typing_extensions import TypedDict

from donewhen.state.options import Options
from donewhen.state.values import check_zone

Amounts = dict[str, float]


class Limits(Options):
    """The limits of a run or step; `None` means no limit, 0 allows nothing."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    rounds: int | None = Field(default=None, ge=0, description="model decisions for steps")
    model_calls: int | None = Field(default=None, ge=0, description="requests that reached a model, retries included")
    tool_calls: int | None = Field(default=None, ge=0, description="calls of domain tools and of checks")
    input_tokens: int | None = Field(default=None, ge=0, description="tokens sent to models")
    cached_tokens: int | None = Field(default=None, ge=0, description="the part of input_tokens read from a cache")
    output_tokens: int | None = Field(default=None, ge=0, description="tokens that models generate")
    cost_usd: FiniteFloat | None = Field(default=None, ge=0, description="US dollars")
    active_seconds: FiniteFloat | None = Field(
        default=None, ge=0, description="working time, without waiting for people"
    )
    questions: int | None = Field(default=None, ge=0, description="questions to a person")
    replans: int | None = Field(default=None, ge=0, description="new plans after a failure")


OF_A_DAY = ("model_calls", "input_tokens", "cached_tokens", "output_tokens", "cost_usd", "active_seconds")
"""The amounts that a budget of a day can limit: requests to models and what they cost, and time. Others, such as
`tool_calls`, are counted and shown.
"""
Scope = Literal["owner", "queue"]


def _check_day(limits: Limits | None) -> Limits | None:
    others = [key for key, limit in (limits or Limits()) if limit is not None and key not in OF_A_DAY]
    if others:
        raise ValueError(f"{', '.join(others)}: a budget of a day limits {', '.join(OF_A_DAY)}; others are of a run")
    return limits


def _check_unnamed(limits: Any) -> Any:
    if isinstance(limits, Mapping):
        for name, each in limits.items():
            if isinstance(each, Mapping | Limits):
                raise ValueError(f"limits by name, as of {name!r}, go into owners or queues")
    return limits


def _check_blanks(name: str) -> str:
    if name != name.strip():
        raise ValueError("the name begins or ends with a blank")
    return name


NameInBudgets = Annotated[str, AfterValidator(_check_blanks)]
"""The name of an owner or a queue; "" are the runs without an owner."""
DayLimits = Annotated[Limits | None, AfterValidator(_check_day)]
SharedLimits = Annotated[DayLimits, BeforeValidator(_check_unnamed)]


class Budgets(Options):
    """What all runs of an owner, and all runs of a queue, may spend in a day or a month, in all processes together.

    `Budgets(owner=Limits(cost_usd=5), owners={"it": Limits(cost_usd=20)})`: the limits of a name replace the general
    ones, or limit that name alone where there are none. `tool_calls` are counted and shown, and cannot be limited.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    owner: SharedLimits = Field(default=None, description="each owner's budget; runs without an owner share one")
    queue: SharedLimits = Field(default=None, description="each queue's budget")
    owners: dict[NameInBudgets, DayLimits] = Field(
        default={}, description="the budget of these owners instead; None: no limit"
    )
    queues: dict[NameInBudgets, DayLimits] = Field(
        default={}, description="the budget of these queues instead; None: no limit"
    )
    period: Literal["day", "month"] = Field(default="day", description="how long a budget lasts")
    zone: Annotated[str, AfterValidator(check_zone)] = Field(
        default="UTC", description="the time zone in which a day begins, such as Europe/Berlin"
    )

    @property
    def are_set(self) -> bool:
        """Return whether anything is limited. Then the spending of all runs is counted."""
        return bool(self.owner or self.queue or self.owners or self.queues)

    def limits_of(self, scope: Scope, name: str) -> Limits | None:
        """Return the limits of an owner or a queue; None if it has none."""
        return self.owners.get(name, self.owner) if scope == "owner" else self.queues.get(name, self.queue)


def read_budgets(value: Budgets | Mapping[str, Any]) -> Budgets:
    """Return budgets of a day. Raises ConfigError for unknown names and invalid values."""
    return value if isinstance(value, Budgets) else Budgets(**value)


class MeterRow(TypedDict):
    """The spending and the limit of one key."""

    key: str
    spent: float
    limit: float | None


KEYS: tuple[str, ...] = tuple(Limits.model_fields)
ROUND = ("rounds", "model_calls")
"""The amounts that a round uses one of."""
KNOWN_AFTERWARDS = ("input_tokens", "cached_tokens", "output_tokens", "cost_usd", "active_seconds")
"""Amounts known only after they are spent; when they run out, the call in flight still ends."""
CACHE_WRITES = "cache_write_tokens"
"""The part of input_tokens that a provider wrote to a cache, which some charge more for."""
ESTIMATED = "estimated_calls"
"""The number of model calls whose tokens were estimated because the provider reported none."""
UNPRICED = "unpriced_calls"
"""The number of model calls without a known price; their tokens count."""


def add(left: Mapping[str, float] | None, right: Mapping[str, float] | None) -> Amounts:
    """Sum two sets of amounts; the reducer of `spent` and `granted`."""
    total: Amounts = dict(left or {})
    for key, amount in (right or {}).items():
        total[key] = round(total.get(key, 0) + amount, 10)
    return total


def round_seconds(seconds: float) -> float:
    """Return the seconds, rounded to milliseconds."""
    return float(f"{seconds:.3f}")


def with_granted(limits: Limits, granted: Mapping[str, float] | None) -> Amounts:
    """Return the limits plus the granted extensions."""
    set_keys = [key for key in KEYS if getattr(limits, key) is not None]
    return {key: getattr(limits, key) + (granted or {}).get(key, 0) for key in set_keys}


def remaining(limits: Limits, granted: Mapping[str, float] | None, spent: Mapping[str, float] | None) -> Amounts:
    """Return what is left of every limit, never below zero."""
    return subtract(with_granted(limits, granted), spent)


def subtract(amounts: Mapping[str, float], used: Mapping[str, float] | None) -> Amounts:
    """Return what is left of each amount, never below zero."""
    return {key: max(0, amount - (used or {}).get(key, 0)) for key, amount in amounts.items()}


def allowance_left(values: Mapping[str, Any]) -> Amounts:
    """Return what a step or planning may still spend: its allowance minus its spending since it was dispatched."""
    return subtract(values.get("allowance") or {}, values.get("spent"))


def first_exhausted(left: Mapping[str, float], needs: tuple[str, ...] = ROUND) -> str | None:
    """Return the first key that is used up, or None. `needs` names the amounts that the next action uses one of.

    Money, tokens and seconds are always checked: at zero, no further action may start.
    """
    return next(iter(exhausted_keys(left, needs)), None)


def exhausted_keys(left: Mapping[str, float], needs: tuple[str, ...]) -> tuple[str, ...]:
    """Return all keys that are used up, by the rules of `first_exhausted`."""
    return tuple(key for key in (*needs, *KNOWN_AFTERWARDS) if left.get(key, 1) <= 0)


def tightest(*allowances: Mapping[str, float]) -> Amounts:
    """Return the smaller amount per key, such as of a step's own limit and the run's."""
    result: Amounts = {}
    for allowance in allowances:
        for key, amount in allowance.items():
            result[key] = min(amount, result.get(key, amount))
    return result


def share(left: Mapping[str, float], parts: int, reserve: Mapping[str, float]) -> list[Amounts]:
    """Split the remaining amounts, minus the reserve, into `parts` allowances that never add up to more.

    Whole numbers are split as evenly as possible; the first parts take the remainder.
    """
    split: dict[str, list[float]] = {}
    for key, amount in left.items():
        reserved = reserve.get(key, 0)
        free = max(0, amount - (math.ceil(reserved) if isinstance(amount, int) else reserved))
        if isinstance(free, int):
            split[key] = [free // parts + (1 if index < free % parts else 0) for index in range(parts)]
        else:  # rounded down: a quotient rounded up would add up to more than there is
            split[key] = [free] if parts == 1 else [math.nextafter(free / parts, 0.0)] * parts
    return [{key: amounts[index] for key, amounts in split.items()} for index in range(parts)]


def estimate_in_flight(spent: Mapping[str, float] | None, calls: int) -> Amounts:
    """Estimate what this many model calls in flight will use of amounts known only afterwards.

    Returns {} before the first call. Conversations grow, so the latest calls are about twice as large as the
    average.
    """
    calls_made = (spent or {}).get("model_calls", 0)
    amounts = {key: (spent or {}).get(key, 0) for key in KNOWN_AFTERWARDS}
    return (
        {key: 2 * calls * amount / calls_made for key, amount in amounts.items() if amount}
        if calls_made and calls
        else {}
    )


@dataclass(frozen=True)
class DayAccount:
    """What an owner or a queue may spend in a day or a month, and what its runs have spent."""

    scope: Scope
    name: str
    """The owner or the queue."""
    day: str
    """The day, such as 2030-12-01, or the month, such as 2030-12."""
    limits: Limits
    granted: Amounts
    """What people added to the limits for this time."""
    spent: Amounts

    @property
    def left(self) -> Amounts:
        """Return what is left of every limit."""
        return remaining(self.limits, self.granted, self.spent)


def meter(spent: Mapping[str, float] | None, limits: Limits, granted: Mapping[str, float] | None) -> list[MeterRow]:
    """Return rows `{key, spent, limit}` for everything spent or limited, and for calls of uncertain cost."""
    total, used = with_granted(limits, granted), spent or {}
    return [
        {"key": key, "spent": used.get(key, 0), "limit": total.get(key)}
        for key in (*KEYS, ESTIMATED, UNPRICED)
        if used.get(key) or key in total
    ]
