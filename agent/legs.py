"""One leg of a run, from a start or an answer to the next pause or the end, alone on its thread."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.types import Command, StateSnapshot

from donewhen.agent.plans.templates import Templates
from donewhen.agent.resuming import answered, overdue_command, resume_command, steer_command, taken
from donewhen.agent.run import Run, known, run_of, unfinished
from donewhen.agent.storage import Storage
from donewhen.agent.storage.storage import Worked
from donewhen.agent.storage.thread_store import ThreadStore
from donewhen.agent.stream import Session
from donewhen.agent.thread_graph import Compiled, configured_for, found, on_saver, seen
from donewhen.agent.work.engine import QUEUE, GoalInput, Start, messages_of, not_begun, queue_up, requested
from donewhen.agent.work.schedules import ended
from donewhen.agent.work.submitting import with_queued
from donewhen.agent.work.threads import (
    Cancelling,
    forget_cancel,
    note_thread,
    put_back,
    read_row,
    thread_settings,
    to_do,
)
from donewhen.graph.events import as_event, at_turn, stamped
from donewhen.graph.models.output import Form
from donewhen.graph.people.pauses import put_away
from donewhen.graph.receive import given_space
from donewhen.state.errors import ConfigError, ThreadBusy
from donewhen.state.graph_state import Json
from donewhen.state.settings import Settings
from donewhen.state.settings.merging import SettingsLike, merged, stored_settings

MISSING: Any = object()
_TRIES = 3
ANSWER_LATER = "; `submit_answer` (`donewhen resume --detach`) leaves the answer for when that is done"


@dataclass(frozen=True)
class Held:
    """A thread that a session works on alone."""

    session: Session
    graph: Compiled
    """On the thread's saver and store."""
    store: ThreadStore
    config: RunnableConfig

    @property
    def thread_id(self) -> str:
        """The thread's."""
        return self.session.thread_id


@dataclass(frozen=True)
class Legs:
    """Starts and resumes runs of one graph on one storage."""

    graph: Compiled
    storage: Storage
    settings: Settings
    """Of the agent; what a call gives is merged with them."""
    form: Form | None = None
    """In which the result is wanted as data."""
    queue: str = QUEUE
    """Whose workers carry out what is submitted or scheduled."""
    cancelling: Cancelling = field(default_factory=Cancelling)

    def typed(self, form: Form | None) -> "Legs":
        """The same, wanting the result in that form."""
        return replace(self, form=form) if form else self

    def merged(self, given: SettingsLike) -> Settings:
        """The settings of a start for which these are given."""
        wanted = {"output_schema": self.form.schema} if self.form else {}
        return merged(merged(self.settings, wanted), given)

    async def start(
        self, session: Session, work: Start, given: SettingsLike, restart: bool, config: RunnableConfig | None
    ) -> Run:
        """A new request on the session's thread."""
        settings = self.merged(given)
        async with self._held(session, config) as held:
            row = await self.make_room(held.graph, held.store, held.config, restart)
            work = replace(work, settings=settings)
            return await self._begin(held, work, row, request=work.to_json(), queue="")

    async def make_room(self, graph: Compiled, store: ThreadStore, configured: RunnableConfig, restart: bool) -> Json:
        """What is known of a thread. ThreadWaiting if its last request is open or queued, unless that is put away."""
        thread_id, snapshot = str(configured["configurable"]["thread_id"]), await graph.aget_state(configured)
        run, row = run_of(thread_id, snapshot), await read_row(store, thread_id) or {}
        if not restart and row.get("status") == "queued":
            raise unfinished(replace(run, status="queued"))
        at_turn(thread_id, snapshot.values.get("turn", 0) + 1)
        if snapshot.created_at and run.status in ("waiting", "running"):
            if not restart:
                raise unfinished(run)
            await graph.aupdate_state(configured, put_away(snapshot.values), as_node="deliver")
        return row

    async def _begin(self, held: Held, work: Start, row: Json, **noted: Any) -> Run:
        messages, goal = [*work.messages], work.messages[-1].text
        if work.plan:
            await held.store.aput(given_space(held.thread_id), str(messages[-1].id), work.plan, index=False)
        await forget_cancel(held.store, held.thread_id)  # which was for the request before; who still waits asks again
        more = {"metadata": work.metadata, "settings": work.settings, "owner": work.owner or None}
        await note_thread(held.store, held.thread_id, row, goal=goal, answered={}, home=self.queue, **more, **noted)
        await held.session.tell(stamped(held.thread_id, {"type": "started", "goal": goal}))
        return await self._drive(held, {"messages": messages}, work.settings)

    async def begun(
        self,
        goal: GoalInput | None,
        template: str | None,
        parameters: Mapping[str, Any] | None,
        metadata: Json | None,
        owner: str,
    ) -> Start:
        """What a run starts with: a goal, or a template with its own."""
        messages = None if goal is None else requested(goal)
        if template is None:
            return Start(messages or requested(""), self.settings, metadata, owner)
        text, plan = (await Templates(self.storage).get(template)).filled(parameters or {})
        return Start(messages or requested(text), self.settings, metadata, owner, {"plan": plan})

    async def submit(self, thread_id: str, work: Start, given: SettingsLike, restart: bool, at: datetime | None) -> str:
        """Write a start down for a worker."""
        work = replace(work, settings=self.merged(given))
        async with self._alone(thread_id) as (graph, store):
            await self.make_room(graph, store, configured_for(thread_id, None), restart)
            await queue_up(store, thread_id, self.queue, work, at)
        return thread_id

    async def state(self, session: Worked, thread_id: str) -> StateSnapshot:
        """The state of a thread."""
        return await on_saver(self.graph, *session).aget_state(configured_for(thread_id, None))

    async def look(self, thread_id: str) -> tuple[Run, StateSnapshot]:
        """A run as it stands, and its state."""
        async with self.storage.reader() as session:
            graph, row = on_saver(self.graph, *session), await read_row(session[1], thread_id) or {}
            settings = stored_settings(row["settings"]) if row.get("settings") else None
            snapshot = await seen(graph, configured_for(thread_id, None))
            if to_do(row) or (row.get("goal") and not snapshot.created_at):  # cancelled in the queue, or just begun
                run = replace(run_of(thread_id, snapshot, settings), status=row["status"], goal=row["goal"])
            else:
                run = run_of(thread_id, known(thread_id, snapshot), settings, self.form)
            return replace(run, problem=run.problem or row.get("problem") or ""), snapshot

    async def cancel(self, thread_id: str, reason: str) -> Run:
        """End what waits, was cut off or is queued. ThreadBusy while somebody works on it."""
        async with self._alone(thread_id) as (graph, store):
            return await self._cancelled(graph, store, thread_id, reason)

    async def _cancelled(self, graph: Compiled, store: ThreadStore, thread_id: str, reason: str) -> Run:
        configured, row = configured_for(thread_id, None), await read_row(store, thread_id) or {}
        settings = await thread_settings(store, thread_id) or self.settings
        run = run_of(thread_id, snapshot := await graph.aget_state(configured), settings, self.form)
        if snapshot.created_at and run.status in ("waiting", "running"):
            ending = {"code": "cancelled", "reason": reason}
            await graph.aupdate_state(configured, {"ending": ending}, as_node="advance")
            await graph.ainvoke(None, configured, context=settings, durability="sync")
            run = run_of(thread_id, await graph.aget_state(configured), settings, self.form)
        elif to_do(row) or not_begun(row, snapshot.values):
            run = replace(run, status="cancelled", goal=row["goal"], outcome=None, answer="")
        else:
            known(thread_id, snapshot)
        await ended(store, run)
        await forget_cancel(store, thread_id)
        return run

    async def carry(self, session: Session) -> Run:
        """What was submitted for the session's thread; where nothing is left of that, going on."""
        async with self._held(session) as held:
            return await self._carry(held)

    async def _carry(self, held: Held, given: SettingsLike = None) -> Run:
        row = await read_row(held.store, held.thread_id) or {}
        request = row.get("request") or {}
        snapshot = await held.graph.aget_state(held.config)
        if not_begun(row, snapshot.values):
            settings = merged(stored_settings(row["settings"]), given)
            work = Start(messages_of(request), settings, plan=request.get("plan"))
            at_turn(held.thread_id, snapshot.values.get("turn", 0) + 1)
            return await self._begin(held, work, row)
        run = run_of(held.thread_id, known(held.thread_id, snapshot))
        open_ids = {pause["id"] for pause in run.pending}
        answers = {id: value for id, value in (request.get("answers") or {}).items() if id in open_ids}
        settings = stored_settings(row.get("settings") or {})
        if not answers and run.status != "running" and overdue_command(run, settings) is None:
            return await ended(held.store, run)
        return await self._go_on(held, answers or MISSING, run, given)

    async def resume(
        self,
        session: Session,
        answer: Any,
        shown: Run | str,
        given: SettingsLike,
        config: RunnableConfig | None,
        wanted: Form | None = None,
        steer: str = "",
    ) -> Run:
        """An answer to what the session's thread waits for, or, for `MISSING`, going on, by the words of `steer`."""
        advice = "" if answer is MISSING else ANSWER_LATER
        async with self._held(session, config, advice) as held:
            snapshot, row = await held.graph.aget_state(held.config), await read_row(held.store, held.thread_id) or {}
            values = snapshot.values
            if answer is MISSING and not steer and (to_do(row) or not_begun(row, values)):
                return await self._carry(held, given)
            if wanted and values and wanted.schema != (values.get("output_schema") or {}):
                raise ConfigError("output_type: the run was started with another one, or with none")
            if answer is not MISSING:
                answer = with_queued(run_of(held.thread_id, snapshot), row, answer, shown)
            return await self._go_on(held, answer, shown, given, steer)

    async def _go_on(self, held: Held, answer: Any, shown: Run | str, given: SettingsLike, steer: str = "") -> Run:
        thread_id, store = held.thread_id, held.store
        settings = merged(await thread_settings(store, thread_id) or self.settings, given)
        snapshot = await held.graph.aget_state(held.config)
        run = run_of(thread_id, known(thread_id, snapshot), settings, self.form)
        at_turn(thread_id, snapshot.values.get("turn", 1))
        command: Command[Any] | Json | None = None
        said: Json | None = None
        if steer:
            command = steer_command(run, steer)
        elif answer is not MISSING:
            row = await read_row(store, thread_id) or {}
            command = resume_command(run, answer, shown, row.get("answered") or {})
            said = answered(run, answer)
        elif run.status == "waiting":
            command = overdue_command(run, settings)
        await held.session.tell(stamped(thread_id, {"type": "started", "goal": run.goal}))
        if command is None and run.status != "running":
            return run
        await note_thread(store, thread_id, goal=run.goal or None, settings=settings if given else None, answered=said)
        return await self._drive(held, command, settings)

    @asynccontextmanager
    async def _held(
        self, session: Session, config: RunnableConfig | None = None, advice: str = ""
    ) -> AsyncIterator[Held]:
        async with AsyncExitStack() as stack:
            try:
                graph, store = await stack.enter_async_context(self._alone(session.thread_id))
            except ThreadBusy as error:
                raise ThreadBusy(f"{error}{advice}") from None
            yield Held(session, graph, store, configured_for(session.thread_id, config, self.form))

    @asynccontextmanager
    async def _alone(self, thread_id: str) -> AsyncIterator[tuple[Compiled, ThreadStore]]:
        async with self.storage.session(thread_id) as (saver, store):
            yield on_saver(self.graph, saver, store), store

    async def _drive(self, held: Held, given: Any, settings: Settings) -> Run:
        """Run the graph to its next pause or end; to its end, if somebody cancels it. Its events go to who listens."""
        session, graph, store, config = held.session, held.graph, held.store, held.config
        thread_id = held.thread_id
        heard: Any = {"stream_mode": []} if session.unheard else {"stream_mode": "custom", "subgraphs": True}
        modes: Any = {**heard, "durability": "sync", "control": session.control}
        listening = asyncio.create_task(self.cancelling.asked(store, thread_id, session.drain))
        snapshot, drained = None, False
        try:
            for go in [given, *[None] * (_TRIES - 1)]:
                stream: Any = graph.astream(go, config, context=settings, **modes)
                async with aclosing(stream):
                    async for _, written in stream:
                        event = as_event(thread_id, written)
                        if event["type"] == "outcome":
                            session.outcome = event
                        else:
                            await session.tell(event)
                if snapshot := await found(graph, config):
                    break
        except GraphDrained:
            drained = True
        finally:
            listening.cancel()
            await asyncio.wait([listening])
        if not listening.cancelled():
            return await self._cancelled(graph, store, thread_id, listening.result())
        snapshot = snapshot or await graph.aget_state(config, subgraphs=True)
        run = run_of(thread_id, snapshot, settings, self.form)
        if drained and not taken(given, run, snapshot) and await put_back(store, thread_id):
            return replace(run, status="queued")
        return await ended(store, run)
