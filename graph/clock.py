"""The clock of a run: its database's own, or else one that is never behind what the run has read.

So what several processes write on a thread is in the order in which they wrote it, whatever their machines' clocks say.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

SECOND = 1_000_000_000
"""In nanoseconds, in which this clock counts."""


class Clock:
    """The clock of a database, which is so many nanoseconds `ahead` of this machine's.

    None: the database has none. Then this machine's clock goes on from what is read.
    """

    def __init__(self, ahead: int | None = None) -> None:
        self._ahead = ahead or 0
        self._follows = ahead is None
        self._last = 0

    def now(self) -> int:
        """Return the time."""
        return time.time_ns() + self._ahead

    def tick(self) -> int:
        """Return the time, later than any that it returned before: for keys that are in order."""
        self._last = max(self._last + 1, self.now())
        return self._last

    def follow(self, moment: int) -> None:
        """Go on from a moment that was read, if it is not past and only this machine's clock says so."""
        if self._follows:
            self._ahead += max(0, moment + 1 - self.now())


_clock: ContextVar[Clock | None] = ContextVar("donewhen_clock", default=None)


@contextmanager
def using(clock: Clock) -> Iterator[Clock]:
    """Make this the clock of everything inside."""
    before = _clock.get()
    _clock.set(clock)  # never reset by its token: what is held by a generator may end in another context
    try:
        yield clock
    finally:
        _clock.set(before)


def current_clock() -> Clock:
    """Return the clock of the run that works in this context; outside of runs, this machine's."""
    return _clock.get() or Clock()


def follow(moment: int | None) -> None:
    """Let the clock of this context go on from a moment that was read, if it is known."""
    if moment is not None and (clock := _clock.get()):
        clock.follow(moment)


def moment_of(text: str) -> int:
    """Return the moment that a text in ISO 8601 names."""
    return int(datetime.fromisoformat(text).timestamp() * SECOND)


def text_of(moment: int, timespec: str = "seconds") -> str:
    """Return a moment in ISO 8601, UTC."""
    return datetime.fromtimestamp(moment / SECOND, UTC).isoformat(timespec=timespec)
