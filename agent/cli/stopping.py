"""SIGTERM ends the command at a clean point: the call at work may end, nothing new starts, all is kept."""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Self, TypeVar

PATIENCE = 10.0
"""Seconds that a call at work has to end before it is cut off. Whoever sends SIGTERM twice waits no longer."""
Result = TypeVar("Result")


class Terminated(KeyboardInterrupt):
    """SIGTERM ended the command."""


class Termination:
    """While entered, SIGTERM raises Terminated; while a leg runs, it asks the leg to stop first."""

    def __init__(self) -> None:
        self._came = 0
        self._drain: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._before: Any = None

    @property
    def asked(self) -> bool:
        """Whether the command was asked to end."""
        return self._came > 0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def run(self, runner: asyncio.Runner, leg: Coroutine[Any, Any, Result], drain: Callable[[], None]) -> Result:
        """Run a leg to its end, which may be an early one. Raises Terminated if it had to be cut off."""
        self._drain, self._loop = drain, runner.get_loop()
        try:
            return runner.run(self._remembered(leg))
        except asyncio.CancelledError:
            if self._came:
                raise Terminated from None
            raise
        finally:
            self._loop = self._task = None

    async def _remembered(self, leg: Coroutine[Any, Any, Result]) -> Result:
        self._task = asyncio.current_task()
        return await leg

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self._came += 1
        if self._loop is None or self._came > 2:
            raise Terminated
        self._loop.call_soon_threadsafe(self._stop, self._came)

    def _stop(self, times: int) -> None:
        """In the loop: ask to stop; a little later, or asked again, cut off."""
        assert self._loop is not None
        assert self._drain is not None
        self._drain()
        if self._task is not None:
            self._loop.call_later(PATIENCE if times == 1 else 0.0, self._task.cancel)
