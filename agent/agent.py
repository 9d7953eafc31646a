"""The public face: an Agent starts runs, resumes them, streams them, and reads what became of them."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Self
from uuid import uuid4
from weakref import WeakSet

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig

from donewhen.agent.a2a.remote import connected
from donewhen.agent.checking import checked
from donewhen.agent.config import Config, read_config
from donewhen.agent.held import Compiled
from donewhen.agent.models import ModelSource, Price, Prices, Thinking
from donewhen.agent.plans.store import PlanStore
from donewhen.agent.plans.templates import Templates
from donewhen.agent.run import Run
from donewhen.agent.runner import MISSING, Runner
from donewhen.agent.storage import Storage, open_storage
from donewhen.agent.storage.thread_store import AT_ONCE
from donewhen.agent.stream import PATIENCE, OnLeave, RunStream, Session
from donewhen.agent.thread_graph import ThreadGraph
from donewhen.agent.tools import Tools, as_tools
from donewhen.agent.work.engine import QUEUE, GoalInput, requested
from donewhen.agent.work.schedules import Schedules
from donewhen.agent.work.submitting import submit_answer
from donewhen.agent.work.threads import (
    ENDED,
    Page,
    ThreadInfo,
    ask_to_cancel,
    list_pending,
    list_threads,
    read_row,
    thread_settings,
)
from donewhen.agent.work.watching import watched
from donewhen.agent.work.worker import Worker, status_of
from donewhen.agent.workspace import WORKSPACE_TOOLS
from donewhen.graph.build import build_graph
from donewhen.graph.context import Background
from donewhen.graph.executors.executor import ExecutorInput, Executors, unlike
from donewhen.graph.models.output import Form
from donewhen.graph.people.told import take_back, tell
from donewhen.graph.tools.toolbox import EffectKind
from donewhen.state.errors import ConfigError, GoalError, ResumeError, ThreadBusy, UnknownThread
from donewhen.state.graph_state import Json
from donewhen.state.proof.receipt import Receipt
from donewhen.state.settings import Settings
from donewhen.state.settings.merging import SettingsLike, merged

AT_WORK = 90.0
"""Seconds that a run at work has to come to a clean point, when it is cancelled."""


@checked
class Agent:
    """Plans, confirms, executes and proves; every run is a thread that can be resumed from any process.

    `model`: a LangChain chat model or `"provider:model"`; None: from the environment. `tools`: LangChain tools,
    functions, or MCP-style dicts (with `caller`). `storage`: `sqlite:///file`, `memory:`, `postgresql://…` or a
    Storage; None: the user's default file. `executors`: name → Executor, compiled graph, or `"a2a:https://…"`; the
    agent's `executors` may be changed while it lives. `instructions`: how to work, for every prompt; the same as
    `settings.profile.instructions`. `output_type`: what every result is wanted as, see `start`. `models`: role → model.
    `effects`: tool name → read | idempotent | write. `queue`: whose workers carry out what is submitted and scheduled
    here. `context`, `memory`, `embeddings`: see `build_graph`. Nothing is opened or called before the first run. The
    environment may add a profile and executors. Raises ConfigError where neither `model`, `models` nor the environment
    names a model.
    """

    def __init__(
        self,
        model: str | BaseChatModel | None = None,
        tools: Tools = (),
        *,
        storage: str | os.PathLike[str] | Storage | None = None,
        settings: SettingsLike = None,
        instructions: str = "",
        output_type: Any = None,
        models: Mapping[str, str | BaseChatModel] | None = None,
        thinking: Mapping[str, Thinking] | None = None,
        executors: Mapping[str, ExecutorInput] | None = None,
        effects: Mapping[str, EffectKind] | None = None,
        prices: Mapping[str, Price] | None = None,
        caller: Callable[[str, Json], Any] | None = None,
        queue: str = QUEUE,
        context: Background | None = None,
        memory: Background | None = None,
        embeddings: Embeddings | None = None,
        config: Config | None = None,
    ) -> None:
        config = config or read_config()
        self.models = ModelSource(model, roles=models, thinking=thinking, config=config)
        self.settings = merged(merged(Settings(), {"profile": config.profile} if config.profile else None), settings)
        if instructions:
            self.settings = merged(self.settings, {"profile": {"instructions": instructions}})
        if form := _form(output_type):
            self.settings = merged(self.settings, {"output_schema": form.schema})
        self.models.check(self.settings.models.values())
        self._opened_storage = not isinstance(storage, Storage)
        self.storage = (
            storage if isinstance(storage, Storage) else open_storage(storage or config.storage, key=config.key)
        )
        given = as_tools(tools, caller=caller)
        named = {**config.executors, **(executors or {})}
        elsewhere = [*WORKSPACE_TOOLS, *unlike(config.profile.get("forbidden_tools") or (), given)]
        self.executors = Executors(named, tools=given, effects=effects, connect=connected, elsewhere=elsewhere)
        self._builder = partial(
            build_graph,
            self.models,
            prices=Prices({**config.prices, **(prices or {})}).cost,
            secrets=config.secrets,
            repeats=True,
            context=context,
            memory=memory,
            embeddings=embeddings,
        )
        self._compiled: Compiled = self._builder(executors=self.executors).compile(name="donewhen")
        self._of_threads: dict[str, tuple[Compiled, Executors]] = {}
        """Graphs with the tools that were given to a run."""
        self._sessions: set[Session] = set()
        self._runner = Runner(self._compiled, self.storage, self.settings, form, queue, self.executors)
        self._workers = WeakSet[Worker]()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self, patience: float = PATIENCE) -> None:
        """Let what runs stop at its next clean point and wait; what takes longer than so many seconds is cut off.

        A call that changes something has 5 seconds more, so that its outcome is known.
        """
        await asyncio.gather(*(worker.stopped() for worker in list(self._workers)))
        await asyncio.gather(*(session.stopped(patience) for session in list(self._sessions)))
        if self._opened_storage:
            await self.storage.aclose()

    def drain(self) -> None:
        """Ask everything this agent runs to stop at a clean point; `resume` goes on from there."""
        for session in list(self._sessions):
            session.drain()

    @property
    def graph(self) -> ThreadGraph:
        """The compiled graph on this agent's storage; every LangGraph verb works on it, `ainvoke` and `invoke` alike.

        Settings are passed as `context=`; without, those of the run or of this agent hold. It is as strict as `resume`.
        """
        return ThreadGraph(self._compiled, self.storage, self.settings)

    # Runs ------------------------------------------------------------------------------------------------------

    async def start(
        self,
        goal: GoalInput | None = None,
        *,
        template: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        thread_id: str | None = None,
        settings: SettingsLike = None,
        restart: bool = False,
        metadata: Json | None = None,
        owner: str = "",
        config: RunnableConfig | None = None,
        tools: Tools = (),
        output_type: Any = None,
    ) -> Run:
        """Work on a goal until it ends or waits for a person.

        `goal`: a text, content blocks, or messages of which the last one is the request. `template`: the name of a plan
        that was saved, to work on with these `parameters`, without planning, and with its own goal where none is
        given; it is confirmed as any plan. `tools`: for this run, beside those of the agent; another process that goes
        on with it has to give them again. `settings` go over those of the agent, field by field; what its profile
        forbids stays forbidden. `metadata`: whatever the starter wants to remember, in `info` and `threads`; never
        secrets. `owner`: whose thread it is. `output_type`: a JSON Schema, or a Python type that Pydantic makes one of
        (a model, a dataclass, `list[Offer]`): the result is also wanted as that, in `Run.output`, with the source of
        every value in the receipt; a run that cannot give it is `partial` at best. On a thread that has run before, the
        conversation goes on with a fresh plan and budget.
        Raises GoalError for a blank or huge goal, ConfigError, ThreadWaiting if the thread is not finished (`restart`
        puts that away), ThreadBusy.
        """
        given: Any = {"settings": settings, "metadata": metadata, "config": config, "output_type": output_type}
        given |= {"template": template, "parameters": parameters, "owner": owner, "tools": tools}
        return await self.stream(goal, thread_id=thread_id, restart=restart, **given).result()

    async def resume(
        self,
        thread_id: str | Run,
        answer: Any = MISSING,
        *,
        settings: SettingsLike = None,
        steer: str = "",
        config: RunnableConfig | None = None,
        tools: Tools = (),
        output_type: Any = None,
    ) -> Run:
        """Answer what a thread waits for, or go on after a crash.

        `answer` may have any shape clients send, or be `{id: answer}` for several open questions. With a Run in place
        of the thread's id it is for what was asked there, and for nothing asked since; ids say the same. A plain answer
        with a thread's id is for what is asked now; where it repeats the last answer to another question it may be a
        second delivery and is refused, unless the id is that of a Run which asks just this.
        Without an answer, an interrupted run goes on; with `steer` it is planned anew by these words, and what is
        finished stays; by “continue” nothing is planned. One that waits or has ended is returned as it is. An answer
        that is not understood keeps the pause: `Run.problem` says why.
        The settings are those of the start, whichever agent goes on; those given here go over them and stay.
        `output_type` cannot change; given again, it makes `Run.output` an instance in this process too.
        Raises ConfigError for another one, UnknownThread, StaleAnswer, ThreadBusy; nothing changes then.
        """
        given: Any = {
            "steer": steer,
            "settings": settings,
            "config": config,
            "tools": tools,
            "output_type": output_type,
        }
        return await self.stream_resume(thread_id, answer, **given).result()

    def stream(
        self,
        goal: GoalInput | None = None,
        *,
        template: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        thread_id: str | None = None,
        settings: SettingsLike = None,
        restart: bool = False,
        metadata: Json | None = None,
        owner: str = "",
        config: RunnableConfig | None = None,
        tools: Tools = (),
        output_type: Any = None,
        on_leave: OnLeave = "stop",
    ) -> RunStream:
        """As `start`, giving events as they happen; `on_leave` says what becomes of a run whose stream is left."""
        thread_id, messages = str(thread_id or uuid4()), goal if goal is None else requested(goal)
        runner = self._runner_of(thread_id, tools).typed(_form(output_type))

        async def work(session: Session) -> Run:
            request = await runner.request(messages, template, parameters, metadata, owner)
            return await runner.start(session, request, settings, restart, config)

        return self._stream(thread_id, work, on_leave)

    def stream_resume(
        self,
        thread_id: str | Run,
        answer: Any = MISSING,
        *,
        settings: SettingsLike = None,
        steer: str = "",
        config: RunnableConfig | None = None,
        tools: Tools = (),
        output_type: Any = None,
        on_leave: OnLeave = "stop",
    ) -> RunStream:
        """As `resume`, giving events as they happen."""
        wanted, id = _form(output_type), str(thread_id.thread_id if isinstance(thread_id, Run) else thread_id)
        runner = self._runner_of(id, tools).typed(wanted)
        return self._stream(
            id,
            lambda session: runner.resume(session, answer, thread_id, settings, config, wanted, steer),
            on_leave,
        )

    async def carry(self, thread_id: str) -> Run:
        """Do now what was submitted for a thread; for workers. Raises UnknownThread, ThreadBusy."""
        return await self._stream(thread_id, self._runner_of(thread_id).carry, "stop").result()

    # Work that nobody waits for ----------------------------------------------------------------------------------

    async def submit(
        self,
        goal: GoalInput | None = None,
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
        runner = self._runner.typed(_form(output_type))
        request = await runner.request(goal, template, parameters, metadata, owner)
        return self._woken(await runner.submit(str(thread_id or uuid4()), request, settings, restart, at))

    async def submit_answer(self, thread_id: str | Run, answer: Any) -> str:
        """As `resume` with an answer, which a worker takes up: here it is only held against what is asked.

        While somebody works on the thread, an answer to another question of it waits until that is done.
        """
        runner = self._runner
        return self._woken(await submit_answer(self.storage, runner.state, runner.queue, thread_id, answer))

    def _woken(self, thread_id: str) -> str:
        for worker in list(self._workers):
            worker.wake()
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

        worker = Worker(self.storage, self._runner.queue, ourselves, concurrency=concurrency)
        self._workers.add(worker)
        return worker

    async def cancel(self, thread_id: str, reason: str = "cancelled from outside") -> Run:
        """End a run that waits, works or is queued, here or in any other process; what was done stays done.

        A run at work stops at its next clean point, when the call at work has ended; a run that has ended is given as
        it is. The receipt names a write that was cut off, of which nobody knows whether it took effect.
        Raises UnknownThread, and ThreadBusy if it works on for more than 90 seconds.
        """
        deadline = asyncio.get_running_loop().time() + AT_WORK
        while True:
            try:
                return await self._runner.cancel(thread_id, reason)
            except ThreadBusy:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            async with self.storage.unlocked() as (_, store):
                await ask_to_cancel(store, thread_id, reason)
            await asyncio.sleep(0.2)

    async def audit(self, thread_id: str | Run, settings: SettingsLike = None) -> Run:
        """Have a judge doubt the answer of a finished run, where nobody did or once more; what it says takes the place
        of what was said before, in the outcome, the receipt and below the answer.

        `settings` go over those of the run for this audit, such as `{"models": {"judge": "anthropic:claude-…"}}`. What
        it costs is added to what was spent; the limits of the run do not stop it, `audit_calls` does. It never makes a
        run better than its steps. Where nobody can judge, all stays as it was, and `Run.problem` says why.
        Raises ThreadWaiting for a run that is not finished, ConfigError, UnknownThread, ThreadBusy.
        """
        id = str(thread_id.thread_id if isinstance(thread_id, Run) else thread_id)
        runner = self._runner_of(id)
        self.models.check(merged(self.settings, settings).models.values())
        return await self._stream(id, lambda session: runner.audit(session, settings), "stop").result()

    async def tell(self, thread_id: str, text: str) -> None:
        """Say something to a run while it works: planning and the steps at work follow it from their next round on.

        It is the user's word like any answer: whoever works later sees it, and it stands in the receipt. What comes
        when the work is done already stands in the `problem` of the run. Raises ThreadBusy where the run's settings
        refuse that (`when_busy`, as by default), UnknownThread, and ResumeError if nothing works on the thread: then
        `resume` answers what it waits for, and `start` begins anew.
        """
        if not text.strip():
            raise GoalError("there is nothing to tell: the text is blank")
        idle = ResumeError(f"nothing works on thread {thread_id!r}: resume it, or start anew on it")
        async with self.storage.unlocked() as (_, store):
            if await read_row(store, thread_id) is None:
                raise UnknownThread(f"there is no thread {thread_id!r}")
            settings = await thread_settings(store, thread_id)
            if await self.storage.unheld([thread_id]):
                raise idle
            if settings is None or settings.when_busy == "refuse":
                said = 'it takes no messages while it works; Settings(when_busy="next_round") lets it'
                raise ThreadBusy(f"thread {thread_id!r} is being worked on, and {said}")
            key = await tell(store, thread_id, text.strip())
            if (await read_row(store, thread_id) or {}).get("status") != "running":  # it ended meanwhile
                await take_back(store, thread_id, key)
                raise idle

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

    # Reading -----------------------------------------------------------------------------------------------------

    async def get(self, thread_id: str, *, output_type: Any = None) -> Run:
        """What became of a thread; `output_type` as in `resume`. Raises UnknownThread."""
        return (await self._runner.typed(_form(output_type)).look(thread_id))[0]

    async def receipt(self, thread_id: str) -> Receipt | None:
        """The receipt of a finished run: planned, executed, claimed, verified, spent; None while it is not finished."""
        return (await self.get(thread_id)).receipt

    async def watch(self, thread_id: str, cursor: str | None = None) -> AsyncIterator[tuple[Json, str]]:
        """Follow a run from anywhere: `(event, cursor)` until its outcome; with a cursor, what came after that event.

        One that workers could not carry on ends so too, with the status `running` and the reason. The events are read
        off the checkpoints twice a second: none is missed when workers die or restart. What is said comes whole, as one
        `speech` event under the id of its message. Raises UnknownThread.
        """
        async for event, after in watched(lambda: self._runner.look(thread_id), cursor):
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
        await self._runner.settle_all()
        return await list_threads(self.storage, limit, owner=owner, status=states, before=until)

    async def pending(self, *, owner: str | None = None, limit: int = 1000, cursor: str | None = None) -> Page:
        """Return open questions of all threads, or of an owner's: at most so many, asked longest ago first.

        Each has `thread_id`, `goal`, `owner` and of the pause `id`, `kind`, `question`, `options`, `step`, `asked_at`.
        The list has a `cursor` where there are more: give it for the next ones. All questions of a thread come
        together. Raises ConfigError for a cursor that is none.
        """
        await self._runner.settle_all()
        async with self.storage.reader() as (_, store):
            return await list_pending(store, limit, owner=owner, cursor=cursor)

    async def status(self) -> Json:
        """How many `threads` there are by status and how many wait in which of the `queues`; the `workers` alive, each
        with its queue; since when the `oldest` waits and runs.
        """
        await self._runner.settle_all()
        return await status_of(self.storage)

    async def info(self, thread_id: str) -> ThreadInfo:
        """What is remembered about a thread. Raises UnknownThread."""
        return await self._runner.info(thread_id)

    async def delete(self, thread_id: str) -> None:
        """Forget a thread: checkpoints, observations, effects. ThreadBusy while somebody works on it; UnknownThread."""
        await self._runner.info(thread_id)
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

    # Inside ------------------------------------------------------------------------------------------------------

    def _runner_of(self, thread_id: str, tools: Tools = ()) -> Runner:
        """A runner for a thread, with the tools that are given to its run, or were given to it here before."""
        if tools:
            executors = self.executors.with_tools(as_tools(tools))
            self._of_threads[thread_id] = self._builder(executors=executors).compile(), executors
        graph, executors = self._of_threads.get(thread_id, (self._compiled, self.executors))
        return replace(self._runner, graph=graph, executors=executors)

    def _stream(self, thread_id: str, work: Callable[[Session], Awaitable[Run]], on_leave: OnLeave) -> RunStream:
        async def begin() -> Session:
            for other in [session for session in self._sessions if session.thread_id == thread_id]:
                await other.yielded()
            session = Session(thread_id, work, on_leave, self._sessions.discard)
            self._sessions.add(session)
            return session

        return RunStream(thread_id, begin)


def _form(output_type: Any) -> Form | None:
    return None if output_type is None else Form.of(output_type)
