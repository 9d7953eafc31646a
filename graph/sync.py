"""Bridge sync and async code: wait for coroutines in one shared event loop, and run blocking work in threads."""

import asyncio
import contextvars
import importlib
import inspect
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from langgraph.store.base import BaseStore, Op, TTLConfig
from langgraph.store.base import Result as StoreResult
from langgraph.store.base.batch import AsyncBatchedBaseStore

Result = TypeVar("Result")
LARGE = 4_000
"""Texts longer than this are processed in a thread, so that they do not block the event loop."""
MOST_IDLE = 16
"""The most idle threads that are kept."""


_lock = threading.Lock()
_loops: dict[int, tuple[asyncio.AbstractEventLoop, threading.Thread]] = {}
"""By process id, because a forked child has its parent's memory but none of its threads."""


def _loop() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    with _lock:
        if os.getpid() not in _loops:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="donewhen-sync", daemon=True)
            thread.start()
            _loops[os.getpid()] = (loop, thread)
        return _loops[os.getpid()]


def wait(coroutine: Coroutine[Any, Any, Result], context: contextvars.Context | None = None) -> Result:
    """Run `coroutine` to its end and return its result; for code that is not async; in a notebook, `await` does it too.

    All calls share one event loop, so later calls can use connections opened by earlier ones. Ctrl-C cancels the
    coroutine. Raises RuntimeError in a coroutine that `wait` already runs, because it would wait for itself, and
    TypeError for anything but a coroutine.
    """
    if not asyncio.iscoroutine(coroutine):
        kind = type(coroutine).__name__
        raise TypeError(
            f"wait() takes a coroutine, such as agent.start(…), not a {kind}; iterate a stream with async for"
        )
    loop, thread = _loop()
    if threading.current_thread() is thread:
        coroutine.close()
        raise RuntimeError("wait() was called by a coroutine that wait() runs; use await there")
    context = context or contextvars.copy_context()
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


async def run_in_shared_loop(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Await `coroutine` in the event loop of `wait`, so it continues while a `wait` blocks the caller's own loop."""
    loop, thread = _loop()
    if threading.current_thread() is thread:
        return await coroutine
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))


def iterate(parts: AsyncGenerator[Result]) -> Iterator[Result]:
    """Iterate over an async generator in sync code; it is closed when the iteration ends."""
    context = contextvars.copy_context()
    try:
        while True:
            yield wait(_next(parts), context)
    except StopAsyncIteration:
        return
    finally:
        wait(parts.aclose(), context)


async def _next(parts: AsyncGenerator[Result]) -> Result:
    return await anext(parts)


async def finish(future: asyncio.Future[Any]) -> None:
    """Wait for a future even if the waiting task is cancelled meanwhile. Raises its error, or CancelledError."""
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError:
            cancelled = True
    if (failed := future.exception()) or cancelled:
        raise failed or asyncio.CancelledError


async def finish_batch(store: BaseStore, ops: Sequence[Op]) -> list[StoreResult]:
    """Carry out operations of a store. One that works in the task of its caller gets to the end, even if the task is
    cancelled meanwhile: langgraph's AsyncSqliteStore would stay in its transaction, and refuse everything later.
    """
    if not isinstance(store, AsyncBatchedBaseStore):
        return await store.abatch(ops)
    work = asyncio.create_task(store.abatch(ops))
    await finish(work)
    return work.result()


class ThreadedStore(BaseStore):
    """A store without async methods, made usable for async code: each batch runs in a thread."""

    def __init__(self, store: BaseStore) -> None:
        self._store = store
        self.supports_ttl: bool = store.supports_ttl
        self.ttl_config: TTLConfig | None = store.ttl_config

    def batch(self, ops: Iterable[Op]) -> list[StoreResult]:
        return self._store.batch(ops)

    async def abatch(self, ops: Iterable[Op]) -> list[StoreResult]:
        made: list[StoreResult] = await run_in_thread(partial(self._store.batch, list(ops)))
        return made


_blocking: dict[type[BaseStore], bool] = {}
"""True for store classes that refuse async use, such as langgraph's SqliteStore."""


async def awaitable_store(store: BaseStore) -> BaseStore:
    """Return a store usable in async code: the store itself, if it supports that."""
    if (blocking := _blocking.get(type(store))) is None:
        try:
            await finish_batch(store, [])
            blocking = False
        except NotImplementedError:
            blocking = True
        except Exception:
            return store  # the error is reported where the store is used
        _blocking[type(store)] = blocking
    return ThreadedStore(store) if blocking else store


# Blocking work in threads: a full pool does not delay it, and the end of the process does not wait for it.


@dataclass(frozen=True)
class WorkEnd:
    """The value or the error of finished work."""

    value: Any = None
    error: BaseException | None = None


def start_in_thread(work: Callable[[], Any]) -> asyncio.Future[WorkEnd]:
    """Start the work in a thread with the caller's context variables; return a future of its end."""
    future: Future[WorkEnd] = Future()
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.given.put((partial(contextvars.copy_context().run, work), future))
    return asyncio.wrap_future(future)


async def run_in_thread(work: Callable[[], Any]) -> Any:
    """Run the work in a thread and return its value, or raise its error."""
    ended = await start_in_thread(work)
    if ended.error is not None:
        raise ended.error
    return ended.value


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calls must be awaited, also behind `partial` or `__call__`."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


LEAVING = 0.5
"""Seconds that code of others has to end after it was cancelled; then it is left to itself."""
_left: set[asyncio.Task[WorkEnd]] = set()


async def call_in_time(function: Callable[..., Any], *given: Any, seconds: float) -> Any:
    """Return what a function of others returns, async or not; raise its error, or TimeoutError if it takes longer.

    A sync one runs in a thread, so it delays nothing else. What does not end when it is cancelled is left to itself.
    """

    async def work() -> WorkEnd:
        try:
            found = await function(*given) if is_async(function) else await run_in_thread(partial(function, *given))
            return WorkEnd(await found if inspect.isawaitable(found) else found)
        except asyncio.CancelledError as error:
            return WorkEnd(error=RuntimeError(f"it was cancelled from within {error}".strip()))
        except BaseException as error:  # a SystemExit in a task would end the event loop
            return WorkEnd(error=error)

    task = asyncio.create_task(work())
    _left.add(task)
    task.add_done_callback(_left.discard)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise TimeoutError(f"it took longer than {seconds:g} seconds")
        if task.result().error is not None:
            raise task.result().error  # type: ignore[misc]
        return task.result().value
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=LEAVING)


async def run_aside(characters: int, work: Callable[[], Result]) -> Result:
    """Run work that reads a text of this length: in a thread if the text is long, else directly."""
    return work() if characters <= LARGE else cast("Result", await run_in_thread(work))


class _Worker:
    """A thread that does one piece of work after another. If it hangs, it is not used again."""

    def __init__(self) -> None:
        self.given: SimpleQueue[tuple[Callable[[], Any], Future[WorkEnd]]] = SimpleQueue()
        threading.Thread(target=self._work, name="donewhen tools", daemon=True).start()

    def _work(self) -> None:
        goes_on = True
        while goes_on:
            work, future = self.given.get()
            try:
                ended = WorkEnd(work())
            except StopIteration:
                ended = WorkEnd(error=RuntimeError("StopIteration"))  # a coroutine cannot raise one
            except BaseException as error:
                ended = WorkEnd(error=error)
            if goes_on := len(_idle) < MOST_IDLE:
                _idle.append(self)
            with suppress(InvalidStateError):  # nobody waits any more
                future.set_result(ended)
            del work, future, ended  # release them while idle


_idle: list[_Worker] = []


def _forget_threads() -> None:
    """Forget the parent's threads in a forked child, which has none of them, and the lock that one may hold."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


if hasattr(os, "register_at_fork"):  # on Windows nothing forks
    os.register_at_fork(after_in_child=_forget_threads)


async def load_jsonschema() -> None:
    """Import jsonschema in a thread, because it lists files, which servers refuse in their event loop."""
    if "jsonschema" not in sys.modules:
        await asyncio.to_thread(importlib.import_module, "jsonschema")
