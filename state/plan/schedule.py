"""A recurring request: an interval, a time of day or a cron expression, with its zone; and the moments it names (P18).

Cron expressions mean what they mean to `cronsim`, which follows Debian: when the clock is put forward, a skipped time
comes right after the gap; when it is put back, a repeated time comes once.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from donewhen.state.pattern import pattern
from donewhen.state.values import check_zone

CLOCK = pattern(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]")
LONGEST_MINUTES = 527_040
"""The minutes of a leap year."""
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NAMED = {
    "weekdays": DAYS[:5], "weekday": DAYS[:5], "workdays": DAYS[:5], "weekend": DAYS[5:], "weekends": DAYS[5:],
    "daily": DAYS, "every day": DAYS,
}  # fmt: skip
Missed = Literal["skip", "once", "all"]


def _minutes(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("an interval is a whole number of minutes from 1")
    return value


def _clock(text: str) -> str:
    if not CLOCK.fullmatch(text):
        raise ValueError(f"{text[:20]!r} is not a time of day HH:MM between 00:00 and 23:59")
    return text


def _days(value: Any) -> Any:
    """Return days as people write them: names in English of any length, ranges such as mon-fri, `weekdays`."""
    if value in (None, "", []):
        return None
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise ValueError(f"weekdays are a list such as {list(DAYS[:2])}, or a text such as 'mon-fri'")
    names = re.split(r"[,\s]+", value.strip()) if isinstance(value, str) and value not in _NAMED else value
    numbers: set[int] = set()
    for item in [names] if isinstance(names, str) else names:
        named = _NAMED.get(str(item).casefold())
        first, _, last = str(item).casefold().partition("-")
        if named is None and not all(len(day) >= 3 and day[:3] in DAYS for day in (first, last or first)):
            raise ValueError(f"{str(item)[:20]!r} is no day of the week: use {', '.join(DAYS)}")
        if named is not None:
            numbers |= {DAYS.index(day) for day in named}
        else:
            start, end = DAYS.index(first[:3]), DAYS.index((last or first)[:3])
            numbers |= {day % 7 for day in range(start, (end if end >= start else end + 7) + 1)}
    return [DAYS[day] for day in sorted(numbers)]


def _cron(text: str) -> str:
    fields = text.split()
    if len(fields) != 5:
        raise ValueError(f"{text[:60]!r} is no cron expression of five fields: minute hour day month weekday")
    try:
        next(CronSim(" ".join(fields), datetime(2024, 1, 1)))
    except (CronSimError, ValueError, StopIteration):
        raise ValueError(f"{text[:60]!r} is a cron expression that names no time") from None
    return " ".join(fields)


WAYS = ("every_minutes", "at", "cron")
"""The fields of a schedule that give times, of which it has one."""
SCHEDULES = ("donewhen_schedules",)
"""The store namespace of confirmed schedules, each with its `thread_id` and `schedule`, under its id."""


class Schedule(BaseModel):
    """One of `every_minutes` ≥ 1, `at` HH:MM (on `weekdays`, else daily) and `cron`; the last two with `timezone`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)

    every_minutes: Annotated[int, BeforeValidator(_minutes), Field(ge=1, le=LONGEST_MINUTES)] | None = None
    at: Annotated[str, AfterValidator(_clock)] | None = None
    weekdays: Annotated[list[str] | None, BeforeValidator(_days)] = None
    cron: Annotated[str, AfterValidator(_cron)] | None = None
    timezone: Annotated[str, AfterValidator(check_zone)] | None = None
    missed: Missed = "once"
    """What happens with missed runs: none is made up for, the last one, or all in order."""

    @model_validator(mode="after")
    def _one_of_three(self) -> "Schedule":
        if sum(way is not None for way in (self.every_minutes, self.at, self.cron)) != 1:
            raise ValueError("a schedule has either every_minutes or at (HH:MM) or cron, not two and not none")
        if self.weekdays and self.at is None:
            raise ValueError("weekdays go with at (HH:MM); cron has days of its own, every_minutes has none")
        if self.every_minutes is None and self.timezone is None:
            raise ValueError("a time of day needs a timezone such as Europe/Berlin; ask the user if unknown")
        return self


def occurrences(schedule: Mapping[str, Any], after: datetime, start: datetime) -> Iterator[datetime]:
    """Yield the moments after `after`, in order and unique, in whole seconds, in the zone.

    Runs are remembered by these moments. `start` is the origin of an interval.
    """
    zone = zone_of(schedule)
    if minutes := schedule.get("every_minutes"):
        step, start = timedelta(minutes=minutes), start.astimezone(UTC).replace(microsecond=0)
        following = start + max(1, (after - start) // step + 1) * step
        while True:
            yield following.astimezone(zone)
            following += step
    before = after.astimezone(UTC)
    for moment in CronSim(_as_cron(schedule), after.astimezone(zone)):
        if (exact := moment.astimezone(UTC)) > before:  # in an hour that comes twice cron starts from the first
            yield exact.astimezone(zone)
            before = exact


def zone_of(schedule: Mapping[str, Any]) -> tzinfo:
    """Return the time zone of a schedule; UTC if it has none."""
    return ZoneInfo(schedule["timezone"]) if schedule.get("timezone") else UTC


def _as_cron(schedule: Mapping[str, Any]) -> str:
    if schedule.get("cron"):
        return str(schedule["cron"])
    hour, minute = schedule["at"].split(":")
    return f"{int(minute)} {int(hour)} * * {','.join(schedule.get('weekdays') or ()) or '*'}"


def next_moments(schedule: Mapping[str, Any], now: datetime, count: int = 3) -> list[str]:
    """Return the next moments of a schedule that begins now, as ISO 8601 with offset."""
    return [iso_text(moment) for moment in islice(occurrences(schedule, now, now), count)]


def says_when(schedule: Mapping[str, Any]) -> bool:
    """Return whether the fields of a schedule give times."""
    return any(schedule.get(way) is not None for way in WAYS)


def with_times(schedule: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a schedule with new ones: a new way to give times replaces the others, and their days."""
    gone = [*WAYS, *(() if fields.get("at") is not None else ("weekdays",))] if says_when(fields) else []
    return {**{key: item for key, item in schedule.items() if key not in gone}, **fields}


def iso_text(moment: datetime) -> str:
    """Return a moment as ISO 8601, with seconds if it is within a minute."""
    return moment.isoformat(timespec="seconds" if moment.second else "minutes")
