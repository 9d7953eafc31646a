"""Stream a working run to its caller: events in order, from a task that stops when nobody listens."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import RunControl

from donewhen.agent.run import Run
from donewhen.graph.events import EventLog, use_log
from donewhen.state.channels import Json
from donewhen.state.errors import DoneWhenError
from donewhen.state.events import Event
from donewhen.state.secrets import hide_in_error, hide_known

OnLeave = Literal["stop", "continue"]
Work = Callable[["LiveRun"], Awaitable[Run]]
STOP_PATIENCE = 10.0
"""Seconds that a call has to end after its stream was left, before it is cut off."""


class LiveRun:
    """A run's work to its next pause or end, in its own task, which holds and releases the thread.

    It goes no further than its listener: an event is sent only after the previous one was handled.
    """

    def __init__(
        self,
        thread_id: str,
        work: Work,
        config: RunnableConfig | None,
        on_leave: OnLeave,
        on_begin: Callable[[str], None],
        on_end: "Callable[[LiveRun], None]",
        secrets: Sequence[str] = (),
    ) -> None:
        self.thread_id = thread_id
        self.config = config
        """The caller's configuration for the graph."""
        self.control: RunControl = RunControl()
        self.run: Run | None = None
        self.error: Exception | None = None
        self.has_sent: bool = False
        """False until the first event; before it an error is raised instead of sent."""
        self.left: bool = False
        """True once its listener left."""
        self.muted = False
        """True if the listener only wants the end: no other event is sent."""
        self.listener: asyncio.Task[Any] | None = None
        self._on_leave = on_leave
        self._work = work
        self._on_begin = on_begin
        self._on_end = on_end
        self._log = EventLog(thread_id)
        self._begun = False
        self._secrets = secrets
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._paced = True
        """True while the run waits for its listener after each event."""
        self._free: Future[None] = Future()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name=f"donewhen {thread_id}")

    async def _run(self) -> None:
        use_log(self._log)
        try:
            self.run = await self._work(self)
        except Exception as error:
            self.error = error
        finally:
            self._on_end(self)
            hide_in_error(self.error, self._secrets)
            end = end_event(self.run) if self.run else error_event(self.error or DoneWhenError("the run was cut off"))
            place = self._log.end if self.run else self._log.fail
            self._events.put_nowait(place(clean_event(end, self._secrets), begun=self._begun))
            self._free.set_result(None)

    async def begin(self, goal: str, request: str = "") -> None:
        """Send the event that a run begins, or goes on. `request` is the message of the request that begins, if any."""
        self._begun = True
        self._on_begin(request)
        await self.send(self._log.begin({"type": "started", "goal": goal}))
        if not self.muted:
            self._log.unsent = {}

    async def send(self, event: Event) -> None:
        """Send an event, and wait until the next one is wanted."""
        self.has_sent = True
        if self._log.unsent:
            self._log.unsent.pop(event["seq"], None)
        if not self.left and not self.muted:
            self._events.put_nowait(clean_event(event, self._secrets))
            if self._paced:
                await self._events.join()

    async def next(self) -> Event:
        """Return the next event; the caller has handled the previous one."""
        self.listener = asyncio.current_task()
        self._confirm_last()
        return await self._events.get()

    def _confirm_last(self) -> None:
        with suppress(ValueError):  # the first time, nothing was sent
            self._events.task_done()

    @property
    def done(self) -> bool:
        """Return whether the thread is free again."""
        return self._free.done()

    async def give_way(self) -> None:
        """Stop the run and wait until the thread is free, if its listener left and the run should not continue then.

        A listener has also left if the same task now wants the thread again, or if its task failed.
        """
        listener = self.listener
        gone = listener is None or listener is asyncio.current_task()
        if not gone and listener is not None and listener.done():
            gone = listener.cancelled() or listener.exception() is not None
        if self.left or gone:
            await self.release()

    def drain(self) -> None:
        """Stop at the next clean point; safe to call from any thread."""
        self.control.request_drain("drain")

    def run_ahead(self) -> None:
        """Wait for no listener from now on."""
        self._paced = False
        self._confirm_last()

    def leave(self) -> None:
        """Note that nobody listens any more; safe to call from any thread."""
        with suppress(RuntimeError):  # its loop is closed, and took the task along
            self._loop.call_soon_threadsafe(self._leave)

    def _leave(self, on_leave: OnLeave | None = None) -> None:
        if self.left or self.done:
            return
        self.left = True
        self._confirm_last()
        if (on_leave or self._on_leave) == "stop":
            self.drain()
            self._loop.call_later(STOP_PATIENCE, self._task.cancel)

    async def stop(self, patience: float = STOP_PATIENCE) -> None:
        """Leave, and wait until the thread is free: a call may end within `patience`, then it is cut off.

        A call that cannot be cut off is awaited for another 10 seconds at most. If the caller is cancelled during
        these, even a call whose outcome is awaited is cut off.
        """
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._leave, "stop")
        free = asyncio.wrap_future(self._free)
        if (await asyncio.wait({free}, timeout=patience))[0]:
            return
        self._loop.call_soon_threadsafe(self._task.cancel)
        try:
            await asyncio.wait({free}, timeout=STOP_PATIENCE)
        except asyncio.CancelledError:
            self._loop.call_soon_threadsafe(self._task.cancel)
            raise

    async def release(self, patience: float = STOP_PATIENCE) -> None:
        """Leave, and wait as in `stop` until the thread is free, unless the run should continue."""
        if self._on_leave == "continue":
            self._leave()
        else:
            await self.stop(patience)


class RunStream:
    """The events of a run, as they happen; the last, `waiting`, `outcome` or `error`, comes when the thread is free.

    Iterate it, preferably in an `async with`. If you leave early (a break, an exception, a cancelled task, or a dropped
    reference), `on_leave` decides: with "stop", the run stops at its next clean point, and a call in progress has 10
    seconds to end; with "continue", it continues without a listener. The end of an `async with` waits until the run has
    stopped; if the block was cancelled, the call is cut off at once. `resume` continues a stopped run. Nothing happens
    before the first event is asked for.
    """

    def __init__(self, thread_id: str, begin: Callable[[], Awaitable[LiveRun]]) -> None:
        self.thread_id = thread_id
        self._begin = begin
        self._live: LiveRun | None = None
        self._over = False

    @property
    def run(self) -> Run | None:
        """Return the run as of the last event; None before it, and after an error."""
        return self._live.run if self._live else None

    @property
    def error(self) -> Exception | None:
        """Return the exception of an `error` event."""
        return self._live.error if self._live else None

    def __iter__(self) -> NoReturn:
        raise TypeError("a RunStream is asynchronous: iterate it with async for, or wait(agent.start(…)) for the run")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._over:
            raise StopAsyncIteration
        if self._live is None:
            self._live = await self._begin()
        event = await self._live.next()
        if event["type"] in ("waiting", "outcome", "error"):
            self._over = True
            if self.error and not self._live.has_sent:
                raise self.error
        return event

    async def result(self) -> Run:
        """Consume the stream and return the run. Raises the error of an `error` event."""
        try:
            async for _ in self:
                if self._live:
                    self._live.muted = True
        except asyncio.CancelledError:
            if self._live:
                await self._live.release(patience=0)
            raise
        if self.run is None:
            raise self.error or DoneWhenError("the run was cut off; resume it")
        return self.run

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        cut = kind is not None and issubclass(kind, asyncio.CancelledError)
        await self._release(0 if cut else STOP_PATIENCE)

    def drain(self) -> None:
        """Ask the run to stop at its next clean point; `resume` continues it."""
        if self._live:
            self._live.drain()

    async def aclose(self) -> None:
        """Leave; with `on_leave="stop"`, wait until the thread is free."""
        await self._release(STOP_PATIENCE)

    async def _release(self, patience: float) -> None:
        self._over = True
        if self._live:
            await self._live.release(patience)

    def __del__(self) -> None:
        if (live := getattr(self, "_live", None)) and not live.done:
            live.leave()


def end_event(run: Run) -> Json:
    """Return the event that ends a stream: `waiting` or `outcome`."""
    if run.status == "waiting":
        return {"type": "waiting", "pending": list(run.pending), "problem": run.problem, "run": run.to_dict()}
    if run.outcome is None:
        text = run.problem or "Stopped; resume goes on from here."
        return {"type": "outcome", "status": "running", "code": "interrupted", "text": text, "run": run.to_dict()}
    status, code, text = run.outcome["status"], run.outcome["code"], run.outcome["text"]
    return {"type": "outcome", "status": status, "code": code, "text": text, "run": run.to_dict()}


def clean_event(event: Any, secrets: Sequence[str]) -> Any:
    """Return an event without known secrets, except in open questions: people approve a call exactly as it will run."""
    pending = {"pending": event["pending"]} if "pending" in event else {}
    if "run" in event:
        run = hide_known({key: item for key, item in event["run"].items() if key != "pending"}, secrets)
        pending["run"] = {**run, "pending": event["run"]["pending"]}
    return {**hide_known({key: item for key, item in event.items() if key not in pending}, secrets), **pending}


def error_event(error: BaseException) -> Json:
    """Return the event for an exception."""
    return {"type": "error", "kind": type(error).__name__, "text": str(error)}
