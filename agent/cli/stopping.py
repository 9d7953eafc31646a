"""Ctrl-C and SIGTERM end the command at a clean point: a tool call at work may end, nothing new starts, all is kept."""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Self, TypeVar

PATIENCE = 10.0
"""Seconds that what is at work has to end before it is cut off. Whoever asks twice waits no longer."""
AGAIN = 0.3
"""Seconds after which what is cut off, and still waits for something, is cut off for good."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
Result = TypeVar("Result")


class Terminated(KeyboardInterrupt):
    """SIGTERM ended the command."""


class Stopping:
    """While entered, both signals interrupt what runs; while a leg runs, they ask it to stop first.

    SIGTERM lets the call at work end, of a model or of a tool. Ctrl-C waits for tools only, for what they do cannot be
    taken back: `at_work` says whether one is, `say` tells the person that it is waited for.
    """

    def __init__(self, at_work: Callable[[], bool], say: Callable[[str], None]) -> None:
        self._at_work = at_work
        self._say = say
        self._came: list[int] = []
        self._drain: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._before: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        """Whether the command was asked to end."""
        return bool(self._came)

    def error(self) -> KeyboardInterrupt:
        """What ends the command."""
        return Terminated() if signal.SIGTERM in self._came else KeyboardInterrupt()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(
        self, runner: asyncio.Runner, leg: Coroutine[Any, Any, Result], drain: Callable[[], None] | None = None
    ) -> Result:
        """Run a leg to its end, which may be an early one. Raises `error` if it had to be cut off.

        What cannot be asked to stop by a `drain` is cut off at once.
        """
        self._drain, self._loop = drain, runner.get_loop()
        try:
            return runner.run(self._remembered(leg))
        except asyncio.CancelledError:
            if self._came:
                raise self.error() from None
            raise
        finally:
            self._loop = self._task = None

    async def _remembered(self, leg: Coroutine[Any, Any, Result]) -> Result:
        self._task = asyncio.current_task()
        return await leg

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._came.append(number)
        if self._loop is None or len(self._came) > len(SIGNALS):
            raise self.error()
        self._loop.call_soon_threadsafe(self._stop, number, len(self._came) > 1)

    def _stop(self, number: int, again: bool) -> None:
        """In the loop: ask to stop; a little later, or asked again, cut off."""
        if self._drain is not None:
            self._drain()
        if self._loop is None or self._task is None:
            return  # the leg ended meanwhile
        waits = self._drain is not None and not again and (number == signal.SIGTERM or self._at_work())
        if waits:
            self._say("Stopping when the call at work has ended; once more stops at once.")
        self._loop.call_later(PATIENCE if waits else 0.0, self._task.cancel)
        if again:
            self._loop.call_later(AGAIN, self._task.cancel)
