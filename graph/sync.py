"""The one synchronous helper: run a coroutine from code that is not async. One loop in one thread serves all of it."""

import asyncio
import contextvars
import os
import sys
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")


_lock = threading.Lock()
_loops: dict[int, tuple[asyncio.AbstractEventLoop, threading.Thread]] = {}
"""By process: a child has its parent's memory, and none of its threads."""


def _loop() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    with _lock:
        if os.getpid() not in _loops:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="donewhen-sync", daemon=True)
            thread.start()
            _loops[os.getpid()] = (loop, thread)
        return _loops[os.getpid()]


def _forked() -> None:
    """Whoever held the lock is not there any more."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


def wait(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run `coroutine` to its end and return its result; for scripts and notebooks without `await`.

    All calls share one event loop, so connections opened in one serve the next. Ctrl-C cancels the coroutine.
    Raises RuntimeError where it would wait for itself: in a coroutine that `wait` already runs.
    """
    loop, thread = _loop()
    if threading.current_thread() is thread:
        coroutine.close()
        raise RuntimeError("wait() was called by a coroutine that wait() runs; use await there")
    context = contextvars.copy_context()
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


@contextmanager
def opened(manager: AbstractAsyncContextManager[Result]) -> Iterator[Result]:
    """An asynchronous context manager in a `with` of code that is not async."""
    value = wait(manager.__aenter__())
    try:
        yield value
    except BaseException:
        if not wait(manager.__aexit__(*sys.exc_info())):
            raise
    else:
        wait(manager.__aexit__(None, None, None))
