"""The public face: an Agent starts runs, resumes them, streams them, and reads what became of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self
from uuid import uuid4

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import StateSnapshot

from donewhen.agent.a2a import connected
from donewhen.agent.config import Config, read_config
from donewhen.agent.legs import MISSING, GoalInput, Legs, configured_for, requested
from donewhen.agent.models import ModelSource, Price, Prices, Thinking
from donewhen.agent.plans.store import PlanStore
from donewhen.agent.plans.templates import Templates
from donewhen.agent.resuming import by_id, resume_command
from donewhen.agent.run import Run, known, run_of
from donewhen.agent.storage import Storage, open_storage
from donewhen.agent.stream import PATIENCE, OnLeave, RunStream, Session
from donewhen.agent.thread_graph import Compiled, ThreadGraph, on_saver
from donewhen.agent.tools import Tools, as_tools
from donewhen.agent.work.engine import QUEUE, Engine, Start, with_plan
from donewhen.agent.work.schedules import Schedules
from donewhen.agent.work.threads import ThreadInfo, last_answered, list_threads, read_row, thread_info
from donewhen.agent.work.watching import watched
from donewhen.agent.work.worker import Worker, status_of
from donewhen.graph.build import build_graph
from donewhen.graph.context import Background
from donewhen.graph.executors.executor import ExecutorInput, Executors
from donewhen.graph.models.output import Form
from donewhen.graph.tools.toolbox import EffectKind
from donewhen.state.graph_state import Json
from donewhen.state.proof.receipt import Receipt
from donewhen.state.settings import Settings, SettingsLike, merged, stored_settings


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
        storage: str | Storage | None = None,
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
        self.storage = (
            storage if isinstance(storage, Storage) else open_storage(storage or config.storage, key=config.key)
        )
        given = as_tools(tools, caller=caller)
        named = {**config.executors, **(executors or {})}
        self.executors = Executors(named, tools=given, effects=effects, connect=connected)
        self._builder = build_graph(
            self.models,
            executors=self.executors,
            prices=Prices({**config.prices, **(prices or {})}).cost,
            secrets=config.secrets,
            repeats=True,
            context=context,
            memory=memory,
            embeddings=embeddings,
        )
        self._compiled: Compiled = self._builder.compile()
        self._sessions: set[Session] = set()
        self._legs = Legs(self._compiled, self.storage, self.settings, form, queue)
        self._engine = Engine(self.storage, queue)
        self._worker: Worker | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self, patience: float = PATIENCE) -> None:
        """Let what runs stop at its next clean point and wait; what takes longer than so many seconds is cut off.

        A call that changes something has 5 seconds more, so that its outcome is known.
        """
        if self._worker:
            await self._worker.stopped()
        await asyncio.gather(*(session.stopped(patience) for session in list(self._sessions)))

    def drain(self) -> None:
        """Ask everything this agent runs to stop at a clean point; `resume` goes on from there."""
        for session in list(self._sessions):
            session.drain()

    @property
    def graph(self) -> ThreadGraph:
        """The compiled graph on this agent's storage; every LangGraph verb works on it, `ainvoke` and `invoke` alike.

        Settings are passed as `context=`; without, those of the run or of this agent hold. It is as strict as `resume`.
        """
        return ThreadGraph.over(self._compiled, self.storage, self.settings)

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
        output_type: Any = None,
    ) -> Run:
        """Work on a goal until it ends or waits for a person.

        `goal`: a text, content blocks, or messages of which the last one is the request. `template`: the name of a plan
        that was saved, to work on with these `parameters`, without planning, and with its own goal where none is
        given; it is confirmed as any plan. `settings` go over those of
        the agent, field by field; what the agent's profile forbids stays forbidden. `metadata`: whatever the starter
        wants to remember, in `info` and `threads`; never secrets. `owner`: whose thread it is. `output_type`: a JSON
        Schema, or a Python type that Pydantic makes one of (a model, a dataclass, `list[Offer]`): the result is also
        wanted as that, in `Run.output`, with the source of every value in the receipt; a run that cannot give it is
        `partial` at best. On a thread that has run before, the conversation goes on with a fresh plan and budget.
        Raises GoalError for a blank or huge goal, ConfigError, ThreadWaiting if the thread is not finished (`restart`
        puts that away), ThreadBusy.
        """
        given: Any = {"settings": settings, "metadata": metadata, "config": config, "output_type": output_type}
        given |= {"template": template, "parameters": parameters, "owner": owner}
        return await self.stream(goal, thread_id=thread_id, restart=restart, **given).result()

    async def resume(
        self,
        thread_id: str | Run,
        answer: Any = MISSING,
        *,
        settings: SettingsLike = None,
        config: RunnableConfig | None = None,
        output_type: Any = None,
    ) -> Run:
        """Answer what a thread waits for, or go on after a crash.

        `answer` may have any shape clients send, or be `{id: answer}` for several open questions. With a Run in place
        of the thread's id it is for what was asked there, and for nothing asked since; ids say the same. A plain answer
        with a thread's id is for what is asked now; where it repeats the last answer to another question it may be a
        second delivery and is refused, unless the id is that of a Run which asks just this.
        Without an answer, an interrupted run goes on; one that waits or has ended is returned as it is. An answer
        that is not understood keeps the pause: `Run.problem` says why.
        The settings are those of the start, whichever agent goes on; those given here go over them and stay.
        `output_type` cannot change; given again, it makes `Run.output` an instance in this process too.
        Raises ConfigError for another one, UnknownThread, StaleAnswer, ThreadBusy; nothing changes then.
        """
        given: Any = {"settings": settings, "config": config, "output_type": output_type}
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
        output_type: Any = None,
        on_leave: OnLeave = "stop",
    ) -> RunStream:
        """As `start`, giving events as they happen; `on_leave` says what becomes of a run whose stream is left."""
        messages, legs = None if goal is None else requested(goal), self._legs.typed(_form(output_type))

        async def work(session: Session) -> Run:
            start = await self._begun(messages, template, parameters, metadata, owner)
            return await legs.start(session, start, settings, restart, config)

        return self._stream(str(thread_id or uuid4()), work, on_leave)

    async def _begun(
        self,
        messages: list[AnyMessage] | None,
        template: str | None,
        parameters: Mapping[str, Any] | None,
        metadata: Json | None,
        owner: str,
    ) -> Start:
        """What a run starts with: a goal, or a template with its own."""
        if template is None:
            messages = requested("") if messages is None else messages
            return Start(messages, self.settings, metadata, owner)
        goal, plan = (await self.templates.get(template)).filled(parameters or {})
        return Start(messages or requested(goal), self.settings, metadata, owner, {"plan": plan})

    def stream_resume(
        self,
        thread_id: str | Run,
        answer: Any = MISSING,
        *,
        settings: SettingsLike = None,
        config: RunnableConfig | None = None,
        output_type: Any = None,
        on_leave: OnLeave = "stop",
    ) -> RunStream:
        """As `resume`, giving events as they happen."""
        wanted = _form(output_type)
        legs = self._legs.typed(wanted)
        return self._stream(
            str(thread_id.thread_id if isinstance(thread_id, Run) else thread_id),
            lambda session: legs.resume(session, answer, thread_id, settings, config, wanted),
            on_leave,
        )

    # Work for others ---------------------------------------------------------------------------------------------

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

        A `worker` of this agent, or `donewhen worker`, in this process or in any other, carries it out, once.
        Raises as `start`.
        """
        thread_id, messages = str(thread_id or uuid4()), None if goal is None else requested(goal)
        begun = await self._begun(messages, template, parameters, metadata, owner)
        marked = with_plan(begun.messages, begun.plan)
        work = replace(begun, messages=marked, settings=self._legs.typed(_form(output_type)).merged(settings))
        async with self.storage.session(thread_id) as (saver, store):
            await self._legs.make_room(on_saver(self._compiled, saver, store), configured_for(thread_id, None), restart)
            await self._engine.note(store, thread_id, work, at)
        return self._woken(thread_id)

    async def submit_answer(self, thread_id: str | Run, answer: Any) -> str:
        """As `resume` with an answer, which a worker takes up: here it is only held against what is asked."""
        id = str(thread_id.thread_id if isinstance(thread_id, Run) else thread_id)
        async with self.storage.session(id) as (saver, store):
            graph = on_saver(self._compiled, saver, store)
            run = run_of(id, known(id, await graph.aget_state(configured_for(id, None))))
            resume_command(run, answer, thread_id, await last_answered(store, id))
            await self._engine.note(store, id, by_id(run, answer))
        return self._woken(id)

    def _woken(self, thread_id: str) -> str:
        if self._worker:
            self._worker.wake()
        return thread_id

    async def carry(self, thread_id: str, *, config: RunnableConfig | None = None) -> Run:
        """Do now what was submitted for a thread; for workers. Raises UnknownThread, ThreadBusy."""
        return await self._stream(thread_id, lambda session: self._legs.carry(session, config), "stop").result()

    def worker(self, *, concurrency: int = 4) -> Worker:
        """A worker for what this agent, and others with its storage and `queue`, submit and schedule.

        `async with agent.worker():` works beside the block, `await agent.worker().run()` until it is drained.
        """

        async def ourselves(_: ThreadInfo) -> Agent:
            return self

        self._worker = Worker(self.storage, self._engine.queue, ourselves, concurrency=concurrency)
        return self._worker

    @property
    def templates(self) -> Templates:
        """Plans that worked, to be started from again: save, get, list, delete."""
        return Templates(self.storage)

    @property
    def plans(self) -> PlanStore:
        """Plans that people and agents keep and tick off, beside the threads."""
        return PlanStore(self.storage)

    @property
    def schedules(self) -> Schedules:
        """What is repeated: list, show, pause, resume, run, delete."""
        return Schedules(self.storage)

    # Reading -----------------------------------------------------------------------------------------------------

    async def get(self, thread_id: str, *, output_type: Any = None) -> Run:
        """What became of a thread; `output_type` as in `resume`. Raises UnknownThread."""
        form = _form(output_type) or self._legs.form
        async with self.storage.reader() as session:
            graph, row = on_saver(self._compiled, *session), await read_row(session[1], thread_id) or {}
            settings = stored_settings(row["settings"]) if row.get("settings") else None
            snapshot = await graph.aget_state(configured_for(thread_id, None), subgraphs=True)
            if row.get("status") == "queued":
                return replace(run_of(thread_id, snapshot, settings), status="queued", goal=row["goal"])
            return run_of(thread_id, known(thread_id, snapshot), settings, form)

    async def watch(self, thread_id: str, cursor: str | None = None) -> AsyncIterator[tuple[Json, str]]:
        """Follow a run from anywhere: `(event, cursor)` until its outcome; with a cursor, what came after that event.

        The events are read off the checkpoints: none is missed when workers die or restart. Raises UnknownThread.
        """

        async def look() -> tuple[Run, StateSnapshot]:
            run = await self.get(thread_id)
            return run, await self.graph.aget_state(configured_for(thread_id, None), subgraphs=True)

        async for event, after in watched(look, cursor):
            yield event, after

    async def receipt(self, thread_id: str) -> Receipt | None:
        """The receipt of a finished run: planned, executed, claimed, verified, spent; None while it is not finished."""
        return (await self.get(thread_id)).receipt

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

    async def status(self) -> Json:
        """How many `threads` there are by status, which `workers` are alive, since when the `oldest` waits and runs."""
        return await status_of(self.storage)

    async def info(self, thread_id: str) -> ThreadInfo:
        """What is remembered about a thread. Raises UnknownThread."""
        async with self.storage.reader() as (_, store):
            return await thread_info(store, thread_id)

    async def delete(self, thread_id: str) -> None:
        """Forget a thread: checkpoints, observations, effects. ThreadBusy while somebody works on it."""
        await self.storage.delete_thread(thread_id)

    # Inside ------------------------------------------------------------------------------------------------------

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
