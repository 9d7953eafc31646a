"""The part of an agent that nobody waits for: what is submitted, repeated, kept, and what there is on the storage."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from donewhen.agent.checking import checked
from donewhen.agent.plans.store import PlanStore
from donewhen.agent.plans.templates import Templates
from donewhen.agent.run import Run
from donewhen.agent.storage import Storage
from donewhen.agent.storage.thread_store import AT_ONCE
from donewhen.agent.work.schedules import Schedules
from donewhen.agent.work.submitting import submit_answer
from donewhen.agent.work.threads import (
    ENDED,
    ThreadInfo,
    ask_to_cancel,
    list_threads,
    read_row,
    thread_info,
    thread_settings,
)
from donewhen.agent.work.watching import watched
from donewhen.agent.work.worker import Worker, status_of
from donewhen.graph.models.output import Form
from donewhen.graph.people.told import tell
from donewhen.state.errors import ConfigError, GoalError, ResumeError, ThreadBusy, UnknownThread
from donewhen.state.graph_state import Json
from donewhen.state.settings.merging import SettingsLike

PATIENCE = 90.0
"""Seconds that a run at work has to come to a clean point, when it is cancelled."""


@checked
class Standing:
    """Of an `Agent`; it has no state but the storage's."""

    storage: Storage
    _legs: Any
    _worker: Worker | None

    # What is to be done ----------------------------------------------------------------------------------------

    async def submit(
        self,
        goal: Any = None,
        *,
        template: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        thread_id: str | None = None,
        settings: SettingsLike = None,
        restart: bool = False,
        metadata: Json | None = None,
        owner: str = "",
        at: datetime | None = None,
        output_type: Any = None,
    ) -> str:
        """Write a goal down for a worker, from `at` on, and give the thread's id at once; `get` and `watch` tell more.

        A `worker` of an agent with this storage and `queue`, in this process or in any other, carries it out, once;
        `donewhen worker` serves `queue="command"`, with the tools of the command. An `at` without a zone is by the
        clock of this machine. Raises as `start`.
        """
        legs = self._legs.typed(None if output_type is None else Form.of(output_type))
        begun = await legs.begun(goal, template, parameters, metadata, owner)
        return self._woken(await legs.submit(str(thread_id or uuid4()), begun, settings, restart, at))

    async def submit_answer(self, thread_id: str | Run, answer: Any) -> str:
        """As `resume` with an answer, which a worker takes up: here it is only held against what is asked.

        While somebody works on the thread, an answer to another question of it waits until that is done.
        """
        legs = self._legs
        return self._woken(await submit_answer(self.storage, legs.state, legs.queue, thread_id, answer))

    def _woken(self, thread_id: str) -> str:
        if self._worker:
            self._worker.wake()
        return thread_id

    def worker(self, *, concurrency: int = 4) -> Worker:
        """A worker for what this agent, and others with its storage and `queue`, submit and schedule.

        `async with agent.worker():` works beside the block, `await agent.worker().run()` until it is drained, as by
        SIGTERM. Raises ConfigError for a `concurrency` below 1.
        """
        if concurrency < 1:
            raise ConfigError(f"a worker carries on at least one run at once, not {concurrency}")

        async def ourselves(_: ThreadInfo) -> Any:
            return self

        self._worker = Worker(self.storage, self._legs.queue, ourselves, concurrency=concurrency)
        return self._worker

    async def cancel(self, thread_id: str, reason: str = "cancelled from outside") -> Run:
        """End a run that waits, works or is queued, here or in any other process; what was done stays done.

        A run at work stops at its next clean point, when the call at work has ended; a run that has ended is given as
        it is. Raises UnknownThread, and ThreadBusy if it works on for more than 90 seconds.
        """
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                run: Run = await self._legs.cancel(thread_id, reason)
                return run
            except ThreadBusy:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            async with self.storage.unlocked() as (_, store):
                await ask_to_cancel(store, thread_id, reason)
            await asyncio.sleep(0.2)

    async def tell(self, thread_id: str, text: str) -> None:
        """Say something to a run while it works: planning and the steps at work follow it from their next round on.

        It is the user's word like any answer: whoever works later sees it, and it stands in the receipt. Raises
        ThreadBusy where the run's settings refuse that (`when_busy`, as by default), UnknownThread, and ResumeError if
        nothing works on the thread: then `resume` answers what it waits for, and `start` begins anew.
        """
        if not text.strip():
            raise GoalError("there is nothing to tell: the text is blank")
        async with self.storage.unlocked() as (_, store):
            row = await read_row(store, thread_id)
            if row is None:
                raise UnknownThread(f"there is no thread {thread_id!r}")
            settings = await thread_settings(store, thread_id)
            try:
                async with self.storage.session(thread_id):
                    raise ResumeError(f"nothing works on thread {thread_id!r}: resume it, or start anew on it")
            except ThreadBusy:
                if settings is None or settings.when_busy == "refuse":
                    said = 'it takes no messages while it works; Settings(when_busy="next_round") lets it'
                    raise ThreadBusy(f"thread {thread_id!r} is being worked on, and {said}") from None
            await tell(store, thread_id, text.strip())

    @property
    def schedules(self) -> Schedules:
        """What is repeated: list, show, pause, resume, run, delete."""
        return Schedules(self.storage)

    @property
    def templates(self) -> Templates:
        """Plans that worked, to be started from again: save, get, list, delete."""
        return Templates(self.storage)

    @property
    def plans(self) -> PlanStore:
        """Plans that people and agents keep and tick off, beside the threads."""
        return PlanStore(self.storage)

    # What there is -----------------------------------------------------------------------------------------------

    async def watch(self, thread_id: str, cursor: str | None = None) -> AsyncIterator[tuple[Json, str]]:
        """Follow a run from anywhere: `(event, cursor)` until its outcome; with a cursor, what came after that event.

        One that workers could not carry on ends so too, with the status `running` and the reason. The events are read
        off the checkpoints twice a second: none is missed when workers die or restart. What is said comes whole, as one
        `speech` event under the id of its message. Raises UnknownThread.
        """
        async for event, after in watched(lambda: self._legs.look(thread_id), cursor):
            yield event, after

    async def threads(
        self,
        limit: int = 100,
        *,
        owner: str | None = None,
        status: str | Collection[str] = (),
        before: datetime | None = None,
    ) -> list[ThreadInfo]:
        """The threads of this storage, or those of an owner, of a status, not changed since `before`; latest first."""
        states = [status] if isinstance(status, str) else status
        until = before.astimezone(UTC).isoformat(timespec="milliseconds") if before else None
        return await list_threads(self.storage, limit, owner=owner, status=states, before=until)

    async def pending(self, *, owner: str | None = None, limit: int = 1000) -> list[Json]:
        """Open questions of all threads, or of an owner's, asked longest ago first.

        Each has `thread_id`, `goal`, `owner` and of the pause `id`, `kind`, `question`, `options`, `step`, `asked_at`.
        """
        waiting = await self.threads(limit, owner=owner, status="waiting")
        rows = [
            {"thread_id": info.thread_id, "goal": info.goal, "owner": info.owner, **pause}
            for info in waiting
            for pause in info.pending
        ]
        return sorted(rows, key=lambda row: str(row["asked_at"] or ""))

    async def status(self) -> Json:
        """How many `threads` there are by status and how many wait in which of the `queues`; the `workers` alive, each
        with its queue; since when the `oldest` waits and runs.
        """
        return await status_of(self.storage)

    async def info(self, thread_id: str) -> ThreadInfo:
        """What is remembered about a thread. Raises UnknownThread."""
        async with self.storage.reader() as (_, store):
            return await thread_info(store, thread_id)

    async def delete(self, thread_id: str) -> None:
        """Forget a thread: checkpoints, observations, effects. ThreadBusy while somebody works on it."""
        await self.storage.delete_thread(thread_id)

    async def prune(self, older: timedelta, *, owner: str | None = None) -> list[str]:
        """Delete ended threads that have not changed for so long, with all that belongs to them; gives their ids."""
        gone: list[str] = []
        before = datetime.now(UTC) - older
        for status in ENDED:  # one at a time: by the index, however many others are as old
            busy: list[str] = []
            while not busy and (found := await self.threads(AT_ONCE, status=status, owner=owner, before=before)):
                ids = [info.thread_id for info in found]
                busy = await self.storage.delete_threads(ids)  # somebody goes on with one of them right now
                gone += [id for id in ids if id not in busy]
        return gone
