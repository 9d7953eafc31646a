"""Threads for what blocks: used again, and of no number. Neither a full pool delays it nor the end of the process waits
for it.
"""

import asyncio
import contextlib
import contextvars
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
    context = contextvars.copy_context()

    def settle(ended: Ended) -> None:
        if not future.done():
            future.set_result(ended)

    def run() -> None:
        try:
            ended = Ended(context.run(work))
        except StopIteration:
            ended = Ended(error=RuntimeError("StopIteration"))  # no future can end with one
        except BaseException as error:
            ended = Ended(error=error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, ended)

    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.given.put(run)
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
        self.given: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._work, name="donewhen tools", daemon=True).start()

    def _work(self) -> None:
        while True:
            self.given.get()()
            if len(_idle) >= MOST_IDLE:
                return
            _idle.append(self)


_idle: list[_Worker] = []
os.register_at_fork(after_in_child=_idle.clear)
