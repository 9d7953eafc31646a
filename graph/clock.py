"""The clock of a run: the database's, or else one that is never behind the times that the run has read.

So the times that several processes write on a thread are in order, whatever their machines' clocks say.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

SECOND = 1_000_000_000
"""In nanoseconds, in which this clock counts."""


class Clock:
    """The clock of a database, which is `ahead` of this machine's by so many nanoseconds.

    None: the database has no clock. Then it is this machine's, moved on to the latest time that was read.
    """

    def __init__(self, ahead: int | None = None) -> None:
        self._ahead = ahead or 0
        self._follows = ahead is None
        self._last = 0

    def now(self) -> int:
        """Return the time."""
        return time.time_ns() + self._ahead

    def tick(self) -> int:
        """Return the time, which is later than any time that `tick` returned before: for keys that sort in order."""
        self._last = max(self._last + 1, self.now())
        return self._last

    def follow(self, moment: int) -> None:
        """Continue from a moment that was read, unless it is past, or the database has a clock of its own."""
        if self._follows:
            self._ahead += max(0, moment + 1 - self.now())


_clock: ContextVar[Clock | None] = ContextVar("donewhen_clock", default=None)


@contextmanager
def using(clock: Clock) -> Iterator[Clock]:
    """Make this the clock of everything inside."""
    before = _clock.get()
    _clock.set(clock)  # not reset by its token: a generator may end in another context
    try:
        yield clock
    finally:
        _clock.set(before)


def current_clock() -> Clock:
    """Return the clock of the run that works in this context; outside of runs, this machine's."""
    return _clock.get() or Clock()


def follow(moment: int | None) -> None:
    """Let the clock of this context continue from a moment that was read; None changes nothing."""
    if moment is not None and (clock := _clock.get()):
        clock.follow(moment)


def moment_of(text: str) -> int:
    """Return the moment that a text in ISO 8601 names."""
    return int(datetime.fromisoformat(text).timestamp() * SECOND)


def text_of(moment: int, timespec: str = "seconds") -> str:
    """Return a moment in ISO 8601, UTC."""
    return datetime.fromtimestamp(moment / SECOND, UTC).isoformat(timespec=timespec)
