"""Threads for what blocks: used again, and of no number. Neither a full pool delays it nor the end of the process waits
for it.
"""

import asyncio
import contextlib
import contextvars
import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

MOST_IDLE = 16
"""Threads that wait for more to do."""


@dataclass(frozen=True)
class Ended:
    """What work came to: its value or its error."""

    value: Any = None
    error: BaseException | None = None


def begun(work: Callable[[], Any]) -> asyncio.Future[Ended]:
    """Begin the work in a thread, with the caller's context variables; the future is how it will have ended."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Ended] = loop.create_future()

    def settle(ended: Ended) -> None:
        if not future.done():
            future.set_result(ended)

    def tell(ended: Ended) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, ended)

    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.given.put((functools.partial(contextvars.copy_context().run, work), tell))
    return future


async def threaded(work: Callable[[], Any]) -> Any:
    """What the work returns or raises, done in a thread."""
    ended = await begun(work)
    if ended.error is not None:
        raise ended.error
    return ended.value


class _Worker:
    """A thread that does one thing after another. One that hangs is never asked again, and missed by nobody."""

    def __init__(self) -> None:
        self.given: SimpleQueue[tuple[Callable[[], Any], Callable[[Ended], None]]] = SimpleQueue()
        threading.Thread(target=self._work, name="donewhen tools", daemon=True).start()

    def _work(self) -> None:
        goes_on = True
        while goes_on:
            work, tell = self.given.get()
            ended = _ended(work)
            if goes_on := len(_idle) < MOST_IDLE:
                _idle.append(self)
            tell(ended)
            del work, tell, ended  # nothing is kept until there is more to do


def _ended(work: Callable[[], Any]) -> Ended:
    try:
        return Ended(work())
    except StopIteration:
        return Ended(error=RuntimeError("StopIteration"))  # no coroutine can end with one
    except BaseException as error:
        return Ended(error=error)


_idle: list[_Worker] = []
os.register_at_fork(after_in_child=_idle.clear)
