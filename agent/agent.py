"""The public face: an Agent starts runs, resumes them, streams them, and reads what became of them."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Self
from uuid import uuid4

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig

from donewhen.agent.a2a.remote import connected
from donewhen.agent.checking import checked
from donewhen.agent.config import Config, read_config
from donewhen.agent.legs import MISSING, Legs
from donewhen.agent.models import ModelSource, Price, Prices, Thinking
from donewhen.agent.run import Run
from donewhen.agent.storage import Storage, open_storage
from donewhen.agent.stream import PATIENCE, OnLeave, RunStream, Session
from donewhen.agent.thread_graph import Compiled, ThreadGraph
from donewhen.agent.tools import Tools, as_tools
from donewhen.agent.work.engine import QUEUE, GoalInput, requested
from donewhen.agent.work.standing import Standing
from donewhen.agent.work.worker import Worker
from donewhen.graph.build import build_graph
from donewhen.graph.context import Background
from donewhen.graph.executors.executor import ExecutorInput, Executors
from donewhen.graph.models.output import Form
from donewhen.graph.tools.toolbox import EffectKind
from donewhen.state.graph_state import Json
from donewhen.state.proof.receipt import Receipt
from donewhen.state.settings import Settings
from donewhen.state.settings.merging import SettingsLike, merged


@checked
class Agent(Standing):
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

    _legs: Legs

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
        self.storage = (
            storage if isinstance(storage, Storage) else open_storage(storage or config.storage, key=config.key)
        )
        given = as_tools(tools, caller=caller)
        named = {**config.executors, **(executors or {})}
        self.executors = Executors(named, tools=given, effects=effects, connect=connected)
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
        self._of_threads: dict[str, Compiled] = {}
        """Graphs with the tools that were given to a run."""
        self._sessions: set[Session] = set()
        self._legs = Legs(self._compiled, self.storage, self.settings, form, queue)
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
        legs = self._legs_of(thread_id, tools).typed(_form(output_type))

        async def work(session: Session) -> Run:
            start = await legs.begun(messages, template, parameters, metadata, owner)
            return await legs.start(session, start, settings, restart, config)

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
        legs = self._legs_of(id, tools).typed(wanted)
        return self._stream(
            id,
            lambda session: legs.resume(session, answer, thread_id, settings, config, wanted, steer),
            on_leave,
        )

    async def carry(self, thread_id: str) -> Run:
        """Do now what was submitted for a thread; for workers. Raises UnknownThread, ThreadBusy."""
        legs = self._legs_of(thread_id)
        return await self._stream(thread_id, legs.carry, "stop").result()

    # Reading -----------------------------------------------------------------------------------------------------

    async def get(self, thread_id: str, *, output_type: Any = None) -> Run:
        """What became of a thread; `output_type` as in `resume`. Raises UnknownThread."""
        return (await self._legs.typed(_form(output_type)).look(thread_id))[0]

    async def receipt(self, thread_id: str) -> Receipt | None:
        """The receipt of a finished run: planned, executed, claimed, verified, spent; None while it is not finished."""
        return (await self.get(thread_id)).receipt

    # Inside ------------------------------------------------------------------------------------------------------

    def _legs_of(self, thread_id: str, tools: Tools = ()) -> Legs:
        """Legs for a thread, with the tools that are given to its run, or were given to it here before."""
        if tools:
            graph = self._builder(executors=self.executors.with_tools(as_tools(tools))).compile()
            self._of_threads[thread_id] = graph
        return replace(self._legs, graph=self._of_threads.get(thread_id, self._compiled))

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
