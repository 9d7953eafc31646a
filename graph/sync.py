"""The one synchronous helper: run a coroutine from code that is not async. One loop in one thread serves all of it."""

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
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
    made: Future[asyncio.Task[Result]] = Future()
    finished = threading.Event()

    def start() -> None:
        task = loop.create_task(coroutine, context=context)
        task.add_done_callback(lambda _: finished.set())
        made.set_result(task)

    loop.call_soon_threadsafe(start)
    task = made.result()
    try:
        finished.wait()
    except KeyboardInterrupt:
        loop.call_soon_threadsafe(task.cancel)
        finished.wait()
        raise
    return task.result()
