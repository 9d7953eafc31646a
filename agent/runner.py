"""The runner: takes a thread, begins a request on it or goes on with it, to its next pause or its end."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.types import Command, StateSnapshot

from donewhen.agent.held import Compiled, Held, configured_for, hold, on_saver, settle_all, write_end
from donewhen.agent.plans.templates import Templates
from donewhen.agent.resuming import answered, overdue_command, resume_command, steer_command, taken
from donewhen.agent.run import Run, known, run_of, unfinished
from donewhen.agent.storage import Storage
from donewhen.agent.storage.storage import Worked
from donewhen.agent.storage.thread_store import ThreadStore
from donewhen.agent.stream import Session
from donewhen.agent.thread_graph import found, seen
from donewhen.agent.work.engine import (
    QUEUE,
    GoalInput,
    Start,
    check_begun,
    messages_of,
    not_begun,
    queue_up,
    requested,
    run_at,
)
from donewhen.agent.work.submitting import with_queued
from donewhen.agent.work.threads import (
    Cancelling,
    ThreadInfo,
    forget_cancel,
    info_of,
    left_undone,
    note_thread,
    put_back,
    read_row,
    settings_of_row,
    to_do,
)
from donewhen.graph.deliver import ended_bare
from donewhen.graph.events import as_event, at_turn, stamped
from donewhen.graph.executors.executor import Executors, unenforceable
from donewhen.graph.models.output import Form
from donewhen.graph.people.pauses import put_away
from donewhen.graph.receive import given_space, received_to_end
from donewhen.state.errors import ConfigError, DoneWhenError, ThreadBusy, UnknownThread
from donewhen.state.graph_state import Json
from donewhen.state.settings import Settings
from donewhen.state.settings.merging import SettingsLike, merged
from donewhen.state.versions import migrated

MISSING: Any = object()
_TRIES = 3
ANSWER_LATER = "; `submit_answer` (`donewhen resume --detach`) leaves the answer for when that is done"
_log = logging.getLogger("donewhen")


@dataclass(frozen=True)
class Leg:
    """A thread that a session works on alone."""

    held: Held
    session: Session
    config: RunnableConfig


@dataclass(frozen=True)
class Runner:
    """Starts and resumes runs of one graph on one storage."""

    graph: Compiled
    storage: Storage
    settings: Settings
    """Of the agent; what a call gives is merged with them."""
    form: Form | None = None
    """In which the result is wanted as data."""
    queue: str = QUEUE
    """Whose workers carry out what is submitted or scheduled."""
    executors: Executors = field(default_factory=Executors)
    """Of the graph."""
    cancelling: Cancelling = field(default_factory=Cancelling)

    def typed(self, form: Form | None) -> "Runner":
        """Return the same, wanting the result in that form."""
        return replace(self, form=form) if form else self

    def merged(self, given: SettingsLike) -> Settings:
        """Return the settings of a start for which these are given."""
        wanted = {"output_schema": self.form.schema} if self.form else {}
        return merged(merged(self.settings, wanted), given)

    def _enforceable(self, settings: Settings) -> Settings:
        """Return the settings. Raises ConfigError for hard constraints that name nothing."""
        if problem := unenforceable(settings.profile, self.executors):
            raise ConfigError(f"settings: {problem}")
        return settings

    # Beginning ---------------------------------------------------------------------------------------------------

    async def request(
        self,
        goal: GoalInput | None,
        template: str | None,
        parameters: Mapping[str, Any] | None,
        metadata: Json | None,
        owner: str,
    ) -> Start:
        """Return what a run starts with: a goal, or a template with its own."""
        messages = None if goal is None else requested(goal)
        if template is None:
            return Start(messages or requested(""), self.settings, metadata, owner)
        text, plan = (await Templates(self.storage).get(template)).filled(parameters or {})
        return Start(messages or requested(text), self.settings, metadata, owner, {"plan": plan})

    async def start(
        self, session: Session, work: Start, given: SettingsLike, restart: bool, config: RunnableConfig | None
    ) -> Run:
        """Begin a new request on the session's thread. Raises ThreadWaiting, ConfigError."""
        work = replace(work, settings=self._enforceable(self.merged(given)))
        async with self._leg(session, config) as leg:
            snapshot = await self._free(leg.held, restart)
            return await self._begin(leg, work, snapshot, request=work.to_json(), queue="")

    async def submit(self, thread_id: str, work: Start, given: SettingsLike, restart: bool, at: datetime | None) -> str:
        """Write a start down for a worker. Raises ThreadWaiting."""
        work = replace(work, settings=self.merged(given))
        async with hold(self.storage, self.graph, thread_id) as held:
            await self._free(held, restart)
            await queue_up(held.store, thread_id, self.queue, work, at)
        return thread_id

    async def _free(self, held: Held, restart: bool) -> StateSnapshot:
        """Return how a thread stands. ThreadWaiting if its last request is open or queued, unless that is put away."""
        snapshot = await held.snapshot()
        run = run_of(held.thread_id, snapshot)
        if not restart and held.row.get("status") == "queued":
            raise unfinished(replace(run, status="queued"))
        if not restart and snapshot.created_at and run.status in ("waiting", "running"):
            raise unfinished(run)
        return snapshot

    async def _begin(self, leg: Leg, work: Start, snapshot: StateSnapshot, **noted: Any) -> Run:
        """Begin a request that is written down first: whoever finds it not begun begins it again."""
        held, thread_id = leg.held, leg.held.thread_id
        messages, goal = [*work.messages], work.messages[-1].text
        at_turn(thread_id, snapshot.values.get("turn", 0) + 1)
        if work.plan:
            await held.store.aput(given_space(thread_id), str(messages[-1].id), work.plan, index=False)
        await forget_cancel(held.store, thread_id)  # which was for the request before; who still waits asks again
        more = {"metadata": work.metadata, "settings": work.settings, "owner": work.owner or None}
        await note_thread(held.store, thread_id, held.row, goal=goal, answered={}, home=self.queue, **more, **noted)
        await self._put_away(held, snapshot)
        await leg.session.tell(stamped(thread_id, {"type": "started", "goal": goal}))
        return await self._drive(leg, {"messages": messages}, work.settings)

    async def _put_away(self, held: Held, snapshot: StateSnapshot) -> None:
        """Close what is open of the last request, whose place another one takes."""
        if snapshot.created_at and run_of(held.thread_id, snapshot).status in ("waiting", "running"):
            update = put_away(snapshot.values)
            await held.graph.aupdate_state(configured_for(held.thread_id), update, as_node="deliver")

    # Reading -----------------------------------------------------------------------------------------------------

    async def state(self, session: Worked, thread_id: str) -> StateSnapshot:
        """Return the state of a thread."""
        return await on_saver(self.graph, *session).aget_state(configured_for(thread_id))

    async def look(self, thread_id: str) -> tuple[Run, StateSnapshot]:
        """Return a run as it stands, and its state. Raises UnknownThread."""
        async with self.storage.reader() as session:
            row = await self._settled(session[1], thread_id) or {}
            snapshot = await seen(on_saver(self.graph, *session), configured_for(thread_id))
            return run_at(thread_id, row, snapshot, settings_of_row(row), self.form), snapshot

    async def info(self, thread_id: str) -> ThreadInfo:
        """Return what is remembered about a thread. Raises UnknownThread."""
        async with self.storage.reader() as (_, store):
            if (row := await self._settled(store, thread_id)) is None:
                raise UnknownThread(f"there is no thread {thread_id!r}")
            return info_of(thread_id, row)

    async def _settled(self, store: ThreadStore, thread_id: str) -> Json | None:
        """Return the row of a thread, after doing what a dead or cancelled holder left undone."""
        row = await store.threads.get(thread_id)
        if row is not None and left_undone(row) and await self.storage.unheld([thread_id]):
            with suppress(ThreadBusy):
                async with hold(self.storage, self.graph, thread_id) as held:
                    return held.row
        return await read_row(store, thread_id)

    async def settle_all(self) -> None:
        """Do what dead or cancelled holders left undone on any thread."""
        await settle_all(self.storage, self.graph)

    # Ending ------------------------------------------------------------------------------------------------------

    async def cancel(self, thread_id: str, reason: str) -> Run:
        """End what waits, was cut off or is queued. Raises UnknownThread, and ThreadBusy while somebody works on it."""
        async with hold(self.storage, self.graph, thread_id) as held:
            return await self._cancelled(held, reason)

    async def _cancelled(self, held: Held, reason: str) -> Run:
        thread_id, store, graph = held.thread_id, held.store, held.graph
        configured, row = configured_for(thread_id), await read_row(store, thread_id) or {}
        settings = settings_of_row(row) or self.settings
        snapshot = await held.snapshot()
        run, unbegun = run_of(thread_id, snapshot, settings, self.form), not_begun(row, snapshot.values)
        if unbegun or (snapshot.created_at and run.status in ("waiting", "running")):
            await note_thread(store, thread_id, row)
            if unbegun:
                await self._put_away(held, snapshot)
                values: Any = migrated((await held.snapshot()).values)
                update = received_to_end(values, settings, messages_of(row["request"]), "cancelled", reason)
                await graph.aupdate_state(configured, update, as_node="receive")
            else:
                ending: Json = {"code": "cancelled", "reason": reason}
                if snapshot.values.get("outcome"):  # its audit was cut off: it ended before
                    ending = {**(snapshot.values["ending"] or {}), "again": False}
                await graph.aupdate_state(configured, {"ending": ending}, as_node="advance")
            run = run_of(thread_id, await self._delivered(held, settings, reason), settings, self.form)
        else:
            snapshot = known(thread_id, snapshot)
        run = await write_end(store, run, snapshot.values)
        await forget_cancel(store, thread_id)
        return run

    async def _delivered(self, held: Held, settings: Settings, reason: str) -> StateSnapshot:
        """End a run whose end is decided; where no whole receipt can be made of it, with what can be said."""
        configured = configured_for(held.thread_id)
        try:
            await held.graph.ainvoke(None, configured, context=settings, durability="sync")
        except DoneWhenError:
            raise
        except Exception:
            _log.exception("%s: ended without a whole receipt", held.thread_id)
            values: Any = (await held.snapshot()).values
            await held.graph.aupdate_state(configured, ended_bare(values, settings, reason), as_node="deliver")
        return await held.snapshot()

    # Auditing ----------------------------------------------------------------------------------------------------

    async def audit(self, session: Session, given: SettingsLike) -> Run:
        """Have a judge doubt what the session's thread delivered. Raises ThreadWaiting while that is not finished."""
        async with self._leg(session) as leg:
            held, thread_id = leg.held, leg.held.thread_id
            snapshot = known(thread_id, await self._free(held, restart=False))
            settings = merged(settings_of_row(held.row) or self.settings, given)
            ending = {**(snapshot.values.get("ending") or {"code": "worked", "reason": ""}), "again": True}
            at_turn(thread_id, snapshot.values.get("turn", 1))
            await note_thread(held.store, thread_id, held.row)
            await held.graph.aupdate_state(leg.config, {"ending": ending}, as_node="advance")
            await leg.session.tell(stamped(thread_id, {"type": "started", "goal": snapshot.values.get("goal", "")}))
            return await self._drive(leg, None, settings)

    # Going on ----------------------------------------------------------------------------------------------------

    async def carry(self, session: Session) -> Run:
        """Do what was submitted for the session's thread; where nothing is left of that, go on."""
        async with self._leg(session) as leg:
            return await self._carry(leg)

    async def _carry(self, leg: Leg, given: SettingsLike = None) -> Run:
        row, thread_id, snapshot = leg.held.row, leg.held.thread_id, await leg.held.snapshot()
        request, settings = row.get("request") or {}, settings_of_row(row) or Settings()
        if not_begun(row, snapshot.values):
            work = Start(messages_of(request), merged(settings, given), plan=request.get("plan"))
            return await self._begin(leg, work, snapshot)
        run = run_of(thread_id, known(thread_id, snapshot))
        open_ids = {pause["id"] for pause in run.pending}
        answers = {id: value for id, value in (request.get("answers") or {}).items() if id in open_ids}
        if not answers and run.status != "running" and overdue_command(run, settings) is None:
            return await write_end(leg.held.store, run, snapshot.values)
        return await self._go_on(leg, answers or MISSING, run, given)

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
        """Answer what the session's thread waits for, or, for `MISSING`, go on, by the words of `steer`."""
        async with self._leg(session, config, "" if answer is MISSING else ANSWER_LATER) as leg:
            row, snapshot = leg.held.row, await leg.held.snapshot()
            values = snapshot.values
            if answer is MISSING and not steer and (to_do(row) or not_begun(row, values)):
                return await self._carry(leg, given)
            check_begun(session.thread_id, row, values)
            if wanted and values and wanted.schema != (values.get("output_schema") or {}):
                raise ConfigError("output_type: the run was started with another one, or with none")
            if answer is not MISSING:
                answer = with_queued(run_of(session.thread_id, snapshot), row, answer, shown)
            return await self._go_on(leg, answer, shown, given, steer)

    async def _go_on(self, leg: Leg, answer: Any, shown: Run | str, given: SettingsLike, steer: str = "") -> Run:
        held, thread_id, row = leg.held, leg.held.thread_id, leg.held.row
        settings = merged(settings_of_row(row) or self.settings, given)
        if given:
            self._enforceable(settings)
        snapshot = await held.snapshot()
        run = run_of(thread_id, known(thread_id, snapshot), settings, self.form)
        at_turn(thread_id, snapshot.values.get("turn", 1))
        command: Command[Any] | Json | None = None
        said: Json | None = None
        if steer:
            command = steer_command(run, steer)
        elif answer is not MISSING:
            command = resume_command(run, answer, shown, row.get("answered") or {})
            said = answered(run, answer)
        elif run.status == "waiting":
            command = overdue_command(run, settings)
        await leg.session.tell(stamped(thread_id, {"type": "started", "goal": run.goal}))
        if command is None and run.status != "running":
            return run
        noted: Json = {"goal": run.goal or None, "settings": settings if given else None, "answered": said}
        await note_thread(held.store, thread_id, row, **noted)
        return await self._drive(leg, command, settings)

    @asynccontextmanager
    async def _leg(
        self, session: Session, config: RunnableConfig | None = None, advice: str = ""
    ) -> AsyncIterator[Leg]:
        try:
            async with hold(self.storage, self.graph, session.thread_id) as held:
                advice = ""  # it is ours
                yield Leg(held, session, configured_for(session.thread_id, config, self.form))
        except ThreadBusy as error:
            if not advice:
                raise
            raise ThreadBusy(f"{error}{advice}") from None

    async def _drive(self, leg: Leg, given: Any, settings: Settings) -> Run:
        """Run the graph to its next pause or end; to its end, if somebody cancels it. Its events go to who listens."""
        session, graph, store, config = leg.session, leg.held.graph, leg.held.store, leg.config
        thread_id = session.thread_id
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
            return await self._cancelled(leg.held, listening.result())
        snapshot = snapshot or await graph.aget_state(config, subgraphs=True)
        run = run_of(thread_id, snapshot, settings, self.form)
        if drained and not taken(given, run, snapshot) and await put_back(store, thread_id):
            return replace(run, status="queued")
        return await write_end(store, run, snapshot.values)
