"""A recurring request: an interval or a time of day with its zone, nothing else (P18)."""

import re
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

CLOCK = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]")
LONGEST_MINUTES = 527_040
"""A leap year."""


def _minutes(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("an interval is a whole number of minutes from 1")
    return value


def _clock(text: str) -> str:
    if not CLOCK.fullmatch(text):
        raise ValueError(f"{text[:20]!r} is not a time of day HH:MM between 00:00 and 23:59")
    return text


def _zone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{text[:40]!r} is not a time zone such as Europe/Berlin") from None
    return text


class Schedule(BaseModel):
    """Either `every_minutes` ≥ 1 or `at` HH:MM with `timezone`; never both."""

    model_config = ConfigDict(extra="forbid")

    every_minutes: Annotated[int, BeforeValidator(_minutes), Field(ge=1, le=LONGEST_MINUTES)] | None = None
    at: Annotated[str, AfterValidator(_clock)] | None = None
    timezone: Annotated[str, AfterValidator(_zone)] | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> "Schedule":
        if (self.every_minutes is None) == (self.at is None):
            raise ValueError("a schedule has either every_minutes or at (HH:MM), not both and not neither")
        if self.at is not None and self.timezone is None:
            raise ValueError("a time of day needs a timezone such as Europe/Berlin; ask the user if unknown")
        return self
