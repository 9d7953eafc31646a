"""The one synchronous helper: run a coroutine from code that is not async. One loop in one thread serves all of it."""

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

Result = TypeVar("Result")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="donewhen-sync", daemon=True).start()
    return loop


def wait(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run `coroutine` to its end and return its result; for scripts and notebooks without `await`.

    All calls share one event loop, so connections opened in one serve the next. Ctrl-C cancels the coroutine.
    """
    loop, context = _loop(), contextvars.copy_context()
    done: asyncio.Future[Any] | None = None
    started = threading.Event()
    finished = threading.Event()
    box: dict[str, Any] = {}

    def start() -> None:
        task = loop.create_task(coroutine, context=context)
        box["task"] = task
        task.add_done_callback(lambda _: finished.set())
        started.set()

    loop.call_soon_threadsafe(start)
    started.wait()
    done = box["task"]
    try:
        finished.wait()
    except KeyboardInterrupt:
        loop.call_soon_threadsafe(done.cancel)
        finished.wait()
        raise
    return done.result()  # type: ignore[no-any-return]
