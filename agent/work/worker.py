"""Workers carry out submitted, interrupted and due runs of one queue on one storage.

Holding a thread's lock gives the right to work on it, so any number of workers may read the same rows. A worker that
dies loses its locks, and another one finds the run and continues it.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from random import random
from typing import Protocol, Self, TypedDict
from uuid import uuid4

from donewhen.agent.run import Run
from donewhen.agent.storage import Storage
from donewhen.agent.storage.storage import WaitForWork, wait_unnotified
from donewhen.agent.storage.store import ThreadStore
from donewhen.agent.storage.table import NEVER
from donewhen.agent.work.news import Notifier, store_failure
from donewhen.agent.work.schedules import Schedules
from donewhen.agent.work.thread_rows import (
    DUE_FIRST,
    ENDED,
    OPEN,
    TRIES,
    ThreadInfo,
    is_unsettled,
    read_info,
    time_text,
    update_row,
)
from donewhen.state.channels import Json
from donewhen.state.errors import DoneWhenError, StorageError, ThreadBusy, ToolMissing, UnknownThread
from donewhen.state.secrets import conceal

POLL = 0.5
"""Seconds between two polls of the queue."""
SWEEP = 5.0
"""Seconds between two searches for the unfinished work of dead workers."""
FEW = 32
"""The most threads of the queue among which a worker takes one at random, because others were faster."""
LINE = 256
"""The most owners whose first waiting threads are considered."""
SWEPT = 10_000
"""The most running threads that one sweep examines."""
SKIP_TAKEN = 1.0
"""Seconds to skip a thread that another worker just took: its row may not show that yet."""
SKIP_LACKING = 30.0
"""Seconds to skip a thread whose tools this worker lacks, or whose row cannot be read."""
GRACE = 15.0
"""Seconds that running work has to stop after a drain, before it is cancelled."""
ALIVE = 30.0
"""Seconds for which a worker counts as alive after its last sweep."""
SPACE = ("donewhen_workers",)
_log = logging.getLogger("donewhen.work")


class AgentAtWork(Protocol):
    """An object that continues a thread, such as an `Agent`."""

    async def run_submitted(self, thread_id: str) -> Run: ...

    def drain(self) -> None: ...


Settle = Callable[[Sequence[str], Callable[[str, Exception], None]], Awaitable[bool]]
"""Completes what dead processes left undone on threads, and reports which cannot be completed, see `Runner.settle`."""
OpenAgent = Callable[[ThreadInfo], AbstractAsyncContextManager[AgentAtWork]]
"""Opens the agent that continues a thread. A DoneWhenError leaves the thread to a person, with the reason."""


class Worker:
    """Carries out the runs of a queue, at most `concurrency` at once; the others wait in the database.

    `await run()` works until `drain()` or SIGTERM; `async with` works beside the block and drains at its end. Owners
    take turns: each owner's first thread comes before any second one. An owner's threads are taken in the order in
    which they were submitted; workers that reach for the same one at once go a little out of it. If a worker drains or
    dies, the next worker that polls continues its runs. A run that raises an error is retried later, five times; then,
    or at once where no retry helps, as if a key is missing, it is left to a person (`resume`, or `submit` again), with
    the reason in `Run.problem`. Questions that are open for `Settings.question_seconds` are answered as `on_question`
    says. An answer for which a worker lacks the tools stays in the queue for as long as no worker has them: this one
    tries again after 30 seconds, with the tools that `open_agent` gives it then, and `ThreadInfo.problem`
    (`agent.info`) says what is missing. An approved plan whose tool is gone or changed goes on without that tool, and
    asks anew. The attribute `report`, a function of yours, is called with a thread's id and what happens to it. Errors
    are logged as warnings of `donewhen.work`.
    """

    def __init__(
        self,
        storage: Storage,
        queue: str,
        open_agent: OpenAgent,
        *,
        concurrency: int = 4,
        poll: float = POLL,
        notifier: Notifier | None = None,
        settle: Settle | None = None,
    ) -> None:
        """`settle` completes what dead workers left; without it, that is left to other workers."""
        self.id: str = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:4]}"
        self.concurrency: int = min(
            concurrency, storage.at_once
        )  # more would wait for the storage, and no other worker could take them
        self._wanted = concurrency
        self.storage = storage
        self._queue, self._open, self._poll = queue, open_agent, poll
        self.report: Callable[[str, str], None] = lambda thread_id, event: None
        self._notifier = notifier
        self._settle = settle
        self._schedules = Schedules(storage)
        self._active: dict[str, asyncio.Task[None]] = {}
        self._owners: dict[str, str] = {}
        self._served: dict[str, int] = {}
        """By owner, the number of the turn in which the last of their threads was taken."""
        self._skipped: dict[str, float] = {}
        """The threads to skip, each with the time until which."""
        self._turn_numbers = count(1)
        self._agents: list[AgentAtWork] = []
        self._wake = asyncio.Event()
        self._draining = False
        self._task: asyncio.Task[None] | None = None
        self._started = time_text(datetime.now(UTC))
        self._schedules_checked = float("-inf")

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def start(self) -> None:
        """Work in the background, also once more after it was stopped."""
        if self._task is None or self._task.done():
            self._draining = False
            self._task = asyncio.create_task(self._work(), name=f"donewhen worker {self.id}")

    async def stop(self) -> None:
        """Drain, and wait until all work has stopped."""
        self.drain()
        if self._task is not None:
            await self._task

    def drain(self) -> None:
        """Take no more work, and ask current work to stop at its next clean point."""
        self._draining = True
        for agent in self._agents:
            agent.drain()
        self._wake.set()

    def wake(self) -> None:
        """Poll the queue now."""
        self._wake.set()

    async def run(self) -> None:
        """Work until drained, by `drain` or SIGTERM; a second SIGTERM ends the process.

        An unreachable database is tried again until it can be reached. Meanwhile no run is given up: the first error of
        each counts as one of its retries, and the next ones cannot be stored.
        """
        with self._drain_on_sigterm():
            await self._work()

    @contextmanager
    def _drain_on_sigterm(self) -> Iterator[None]:
        """Drain on SIGTERM, unless another handler is installed. Windows has no such signal."""
        loop, main = asyncio.get_running_loop(), threading.current_thread() is threading.main_thread()

        def once() -> None:
            loop.remove_signal_handler(signal.SIGTERM)
            self.drain()

        if ours := main and sys.platform != "win32" and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            loop.add_signal_handler(signal.SIGTERM, once)
        try:
            yield
        finally:
            if ours:
                loop.remove_signal_handler(signal.SIGTERM)

    async def _work(self) -> None:
        pause, problem = self._poll, ""
        if self.concurrency < self._wanted:
            most = f"works on at most {self.concurrency} runs at once, not {self._wanted}"
            _log.warning("A worker on this storage %s: for more, start more processes.", most)
        try:
            while not self._draining:
                try:
                    async with self.storage.listen() as (store, wait_for_work):
                        if problem:
                            _log.warning("The storage is there again.")
                        pause, problem = self._poll, ""
                        await self._listen(store, wait_for_work)
                except StorageError as error:
                    if str(error) != problem:
                        problem = str(error)
                        _log.warning("%s. Trying again.", problem)
                    pause = min(2 * pause, 10.0)
                    if not self._draining:
                        self._wake.clear()
                        await wait_unnotified(self._wake, pause)
        finally:
            self.drain()
            if at_work := list(self._active.values()):
                _, late = await asyncio.wait(at_work, timeout=GRACE)
                for task in late:
                    task.cancel()
                await asyncio.gather(*late, return_exceptions=True)
            with suppress(StorageError):
                async with self.storage.writer() as (_, store):
                    await store.adelete(SPACE, self.id)

    async def _listen(self, store: ThreadStore, wait_for_work: WaitForWork) -> None:
        """Sweep once, then poll now and whenever there may be new work, until it is time for the next sweep."""
        loop = asyncio.get_running_loop()
        await self._sweep(store)
        await self._beat()
        ends = loop.time() + SWEEP
        while not self._draining and loop.time() < ends:
            self._wake.clear()
            await self._take_work(store)
            await wait_for_work(self._wake, self._poll)

    async def _take_work(self, store: ThreadStore) -> None:
        """Queue due schedules, and start as many waiting threads as there is room for."""
        now = asyncio.get_running_loop().time()
        if now - self._schedules_checked >= self._poll:
            self._schedules_checked = now
            await self._schedules.start_due(self._queue, store=store)
        if len(self._active) >= self.concurrency:
            return
        line = await store.threads.find_due(self._queue, store.threads.now(), LINE + len(self._active))
        self._skipped = {thread_id: until for thread_id, until in self._skipped.items() if until > now}
        skipped = self._active.keys() | self._skipped.keys()
        # All workers see the same line at the same time: each goes by its order, until others were faster. Then it
        # shuffles the line in groups, which are larger the more threads it just found taken.
        few = min(FEW, 1 + sum(until <= now + SKIP_TAKEN for until in self._skipped.values()))
        left = [each for each in line if each[1] not in skipped]
        free = [
            (due != DUE_FIRST, place // few, random(), thread_id, owner)
            for place, (due, thread_id, owner) in enumerate(left)
        ]
        while free and len(self._active) < self.concurrency:
            mine = Counter(self._owners.values())
            first = min(free, key=lambda each: (mine[each[-1]], self._served.get(each[-1], 0), each))
            free.remove(first)
            *_, thread_id, owner = first
            try:
                row = await store.threads.get(thread_id) or {}
            except StorageError as error:  # of this row; the others go on
                self._set_aside(thread_id, str(error), now + SKIP_LACKING)
                continue
            self._served[owner] = next(self._turn_numbers)
            self._owners[thread_id] = owner
            self._active[thread_id] = asyncio.create_task(
                self._continue_thread(thread_id, row), name=f"donewhen {thread_id}"
            )

    async def _beat(self) -> None:
        """Record that this worker is alive."""
        beat: Json = {"id": self.id, "queue": self._queue, "started": self._started}
        beat |= {"active": len(self._active), "concurrency": self.concurrency}
        async with self.storage.writer() as (_, store):
            beat["seen"] = store.threads.now()
            await store.aput(SPACE, self.id, beat, index=False)

    async def _sweep(self, store: ThreadStore) -> None:
        """Settle the threads of the queue, and those without one, that dead workers left. Wake the notifier.

        Their rows say `running`, and nobody holds them. One that cannot be settled is left alone for a while; for a
        run of the queue that counts as a failed try.
        """
        if self._notifier:
            self._notifier.wake()
        if self._settle is None:
            return
        now = asyncio.get_running_loop().time()
        running = await store.threads.find_running(self._queue, store.threads.now(), SWEPT)
        alone = await store.threads.find_running("", store.threads.now(), SWEPT)
        skipped = {*self._active, *(id for id, until in self._skipped.items() if until > now)}
        failed: dict[str, Exception] = {}
        await self._settle([id for id in (*running, *alone) if id not in skipped], failed.__setitem__)
        for thread_id, error in failed.items():
            self._set_aside(thread_id, f"{type(error).__name__}: {error}", now + SKIP_LACKING)
            with suppress(DoneWhenError):
                if thread_id in running:
                    await self._postpone(thread_id, error, swept=True)

    def _set_aside(self, thread_id: str, problem: str, until: float) -> None:
        """Skip for a while a thread that could not be read or completed: it is damaged, or the database went away."""
        self._skipped[thread_id] = until
        _log.warning("%s: left alone for a while: %s", thread_id, problem)
        self.report(thread_id, f"left alone for a while: {problem}")

    async def _continue_thread(self, thread_id: str, row: Json) -> None:
        try:
            if row.get("queue") != self._queue or self._draining:
                return
            async with self._open(read_info(thread_id, row)) as agent:
                self._agents.append(agent)
                try:
                    if not self._draining:
                        self.report(thread_id, "taken up")
                        self.report(thread_id, (await agent.run_submitted(thread_id)).status)
                finally:
                    self._agents.remove(agent)
        except (ThreadBusy, UnknownThread):  # another worker has it, or it was deleted
            self._skipped[thread_id] = asyncio.get_running_loop().time() + SKIP_TAKEN
            self.report(thread_id, "let go")
        except ToolMissing as error:
            self._skipped[thread_id] = asyncio.get_running_loop().time() + SKIP_LACKING
            self.report(thread_id, "left to a worker that has what it needs")
            with suppress(DoneWhenError):
                await self._leave_to_others(thread_id, str(error))
        except Exception as error:
            _log.warning("%s: %s: %s", thread_id, type(error).__name__, conceal(str(error)))
            with suppress(DoneWhenError):  # then its row says `running`, and a sweep returns it to the queue
                await self._postpone(thread_id, error)
        finally:
            self._active.pop(thread_id, None)
            self._owners.pop(thread_id, None)
            self._wake.set()

    async def _leave_to_others(self, thread_id: str, problem: str) -> None:
        """Return an answer to the queue, behind other work, because tools are missing here; store which."""
        async with self.storage.session(thread_id) as (_, store):
            row = await store.threads.get(thread_id) or {}
            if row.get("status") in ("queued", "waiting"):
                if row.get("problem") != problem:
                    _log.warning("%s: %s", thread_id, problem)
                due = store.threads.now(1)
                await store.threads.put(thread_id, {**row, "due": due, "problem": problem})

    async def _postpone(self, thread_id: str, error: Exception, *, swept: bool = False) -> None:
        """Retry later; after five retries, or if it can never work, leave it to a person.

        A question that the policy is to answer stays as it is asked: another worker may have what this one lacks.
        `swept`: a sweep could not settle the run; only the first worker that says so counts.
        """
        async with self.storage.session(thread_id) as (_, store):
            row = await store.threads.get(thread_id) or {}
            status = row.get("status")
            is_done = status in ENDED or (status == "waiting" and row["due"] > store.threads.now())
            if is_done or (swept and not (row and is_unsettled(row))):
                return  # another worker has continued it since, for instance while this one was frozen
            tries = int(row.get("tries") or 0) + 1
            is_final = not isinstance(error, StorageError) and isinstance(error, DoneWhenError)
            problem = conceal(f"{type(error).__name__}: {error}")[:500]
            is_left = tries > TRIES or (is_final and status != "waiting")
            due = NEVER if is_left else store.threads.now(2**tries)
            change: Json = {"due": due, "tries": tries, "problem": problem}
            if is_left:
                await store_failure(store, thread_id, row, problem, self._notifier)
            if status == "waiting":
                await store.threads.put(thread_id, {**row, **change})
            else:
                change |= {"status": "running", "queue": ""} if is_left else {"status": "queued"}
                await update_row(store, thread_id, **change)
        if self._notifier:
            self._notifier.wake()


class StorageStatus(TypedDict):
    """The state of the work on a storage."""

    threads: dict[str, int]
    """The number of threads by status."""
    queues: dict[str, int]
    """The number of threads that wait for a worker, by queue."""
    workers: list[Json]
    """The workers alive: `id`, `queue`, `started`, `seen`, `active` and `concurrency` of each."""
    oldest: dict[str, str]
    """By open status, the time of the last change of the thread that has not changed for longest."""


async def status_of(storage: Storage, left: Sequence[str]) -> StorageStatus:
    """Read the state of the work on a storage. `left`: threads that nobody works on, whatever their rows say."""
    async with storage.reader() as (_, store):
        lately = store.threads.now(-ALIVE)
        counts: Counter[str] = Counter()
        queues: dict[str, int] = {}
        for (queue, status), number in (await store.threads.counts(left)).items():
            counts[status] += number
            if status == "queued":
                queues[queue] = number
        workers = [dict(item.value) for item in (await store.read_each(SPACE))[0]]
        oldest = await store.threads.oldest(OPEN)
    alive = [worker for worker in workers if str(worker.get("seen") or "") >= lately]
    return {"threads": dict(sorted(counts.items())), "queues": queues, "workers": alive, "oldest": oldest}
