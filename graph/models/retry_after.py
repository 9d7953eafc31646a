"""How long a provider asks to wait before the next try: headers first, then what its message says. Pure."""

import math
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_AMOUNT = r"\d+(?:\.\d+)?"
_UNIT = r"\s{0,2}(ms|milliseconds?|h|hours?|hrs?|m|mins?|minutes?|s|secs?|seconds?)(?![a-z])"
_PIECE = re.compile(rf"({_AMOUNT}){_UNIT}", re.IGNORECASE)
_ASKED = re.compile(
    r"(?:(?:try|retry)(?:ing)?(?: your request)?(?: again)? (?:in|after)"
    r"|retry[_-]?(?:delay|after)[\"']?\s{0,2}[:=]|\bwait(?: for)?|(?:available|resets?) in)"
    r"[\s\"':~]{0,4}(?:about |at least )?"
    rf"(?P<wait>{_AMOUNT}(?:{_UNIT}(?:(?:,? and |, ?| )?{_AMOUNT}{_UNIT}){{0,3}})?)",
    re.IGNORECASE,
)


def retry_after(headers: Mapping[str, str], text: str, now: float | None = None) -> float | None:
    """Seconds to wait, or None when nobody says. Header names are lower case; `now` is Unix time.

    Understands `retry-after-ms`, `Retry-After` as seconds or as a date (against the response's own `date`),
    "try again in 1m2.5s", `retryDelay: "17s"`, and rate-limit reset headers (durations, Unix times, dates).
    """
    now = time.time() if now is None else now
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        if (milliseconds := _number(headers.get(name, ""))) is not None:
            return milliseconds / 1000
    asked = _moment(headers.get("retry-after", ""), _date(headers.get("date", "")) or now)
    if asked is None:
        asked = _spoken(text)
    return _reset(headers, now) if asked is None else asked


def duration(text: str) -> float | None:
    """Seconds of `17s`, `1m30s`, `6m0s`, `120ms`, `2 minutes`; a bare number is seconds."""
    pieces = _PIECE.findall(text)
    if not pieces:
        return _number(text.strip().rstrip("."))
    return math.fsum(float(number) * _factor(unit.lower()) for number, unit in pieces)


def _factor(unit: str) -> float:
    if unit.startswith(("ms", "mil")):
        return 0.001
    return {"h": 3600.0, "m": 60.0}.get(unit[0], 1.0)


def _spoken(text: str) -> float | None:
    found = _ASKED.search(text)
    return duration(found["wait"]) if found else None


def _reset(headers: Mapping[str, str], now: float) -> float | None:
    """The wait of the limit that is used up; where that is not said, the shortest."""
    waits: dict[str, float] = {}
    for name, value in headers.items():
        if "ratelimit" in name and "reset" in name and (wait := _moment(value, now)) is not None:
            waits[name] = wait
    left = {name: _number(headers.get(name.replace("reset", "remaining"), "")) for name in waits}
    spent = [wait for name, wait in waits.items() if left[name] == 0]
    return max(spent) if spent else min(waits.values(), default=None)


def _moment(value: str, now: float) -> float | None:
    """Seconds from now of a duration, a Unix time in seconds or milliseconds, or a date."""
    seconds = duration(value) if value[:1].isdigit() and "T" not in value else None
    if seconds is None:
        date = _date(value)
        return None if date is None else max(0.0, date - now)
    if seconds > now / 2:
        seconds = (seconds / 1000 if seconds > now * 100 else seconds) - now
    return max(0.0, seconds)


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _date(value: str) -> float | None:
    """Unix time of an HTTP or ISO 8601 date."""
    try:
        moment = datetime.fromisoformat(value) if value[:1].isdigit() else parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
