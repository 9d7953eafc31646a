"""The public face: an Agent starts runs, resumes them, streams them, and reads what became of them."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Self
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.store.base import BaseStore
from langgraph.types import Command

from donewhen.agent.config import Config, read_config
from donewhen.agent.events import last, terminal, told
from donewhen.agent.models import ModelSource, Thinking
from donewhen.agent.prices import Price, Prices
from donewhen.agent.resuming import overdue_command, resume_command
from donewhen.agent.run import Json, Run, ThreadInfo, known, run_of, unfinished
from donewhen.agent.storage import Storage, open_storage
from donewhen.agent.thread_graph import Compiled, ThreadGraph, found, on_saver
from donewhen.agent.threads import list_threads, note_thread, thread_info, thread_settings
from donewhen.agent.tools import Tools, as_tools
from donewhen.graph.build import build_graph
from donewhen.graph.context import Executor
from donewhen.graph.people.pauses import put_away
from donewhen.graph.receive import goal_problem
from donewhen.graph.tools.toolbox import Effect
from donewhen.state.errors import GoalError
from donewhen.state.settings import Settings, read_settings

_MISSING: Any = object()
_TRIES = 3
_PLACES = ("checkpoint_id", "checkpoint_ns", "checkpoint_map")


class Agent:
    """Plans, confirms, executes and proves; every run is a thread that can be resumed from any process.

    `model`: a LangChain chat model or `"provider:model"`; None: from the environment.
    `tools`: LangChain tools, functions, or MCP-style dicts (with `caller`). `storage`: `sqlite:///file`, `memory:`,
    `postgresql://…` or a Storage; None: the user's default file. `models`: role → model. `effects`: tool name →
    read | idempotent | write. Nothing is opened or called before the first run. Raises ConfigError where
    neither `model`, `models` nor the environment names a model.
    """

    def __init__(
        self,
        model: str | BaseChatModel | None = None,
        tools: Tools = (),
        *,
        storage: str | Storage | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
        models: Mapping[str, str | BaseChatModel] | None = None,
        thinking: Mapping[str, Thinking] | None = None,
        executors: Mapping[str, Executor] | None = None,
        effects: Mapping[str, Effect] | None = None,
        prices: Mapping[str, Price] | None = None,
        caller: Callable[[str, Json], Any] | None = None,
        config: Config | None = None,
    ) -> None:
        config = config or read_config()
        self.models = ModelSource(model, roles=models, thinking=thinking, config=config)
        self.settings = read_settings(settings)
        self.storage = (
            storage if isinstance(storage, Storage) else open_storage(storage or config.storage, key=config.key)
        )
        self._builder = build_graph(
            self.models,
            as_tools(tools, caller=caller),
            executors=executors,
            effects=effects,
            prices=Prices({**config.prices, **(prices or {})}).cost,
            secrets=config.secrets,
        )
        self._compiled: Compiled = self._builder.compile()
        self._controls: dict[str, RunControl] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Let running threads stop at their next clean point."""
        self.drain()

    def drain(self) -> None:
        """Ask everything this agent runs to stop at a clean point; `resume` goes on from there."""
        for control in list(self._controls.values()):
            control.request_drain("drain")

    @property
    def graph(self) -> ThreadGraph:
        """The compiled graph on this agent's storage; every LangGraph verb works on it, `ainvoke` and `invoke` alike.

        Settings are passed as `context=`; without, those of the run or of this agent hold. It is as strict as `resume`.
        """
        return ThreadGraph.over(self._compiled, self.storage, self.settings)

    # Runs ------------------------------------------------------------------------------------------------------

    async def start(
        self,
        goal: str,
        *,
        thread_id: str | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
        restart: bool = False,
        extra: Json | None = None,
        config: RunnableConfig | None = None,
    ) -> Run:
        """Work on a goal until it ends or waits for a person.

        On a thread that has run before, the conversation goes on with a fresh plan and budget. Raises GoalError for
        a blank or huge goal, ThreadWaiting if the thread is not finished (`restart` puts that away), ThreadBusy.
        """
        return await last(
            self.stream(goal, thread_id=thread_id, settings=settings, restart=restart, extra=extra, config=config)
        )

    async def resume(
        self,
        thread_id: str | Run,
        answer: Any = _MISSING,
        *,
        settings: Settings | Mapping[str, Any] | None = None,
        config: RunnableConfig | None = None,
    ) -> Run:
        """Answer what a thread waits for, or go on after a crash.

        `answer` may have any shape clients send, or be `{id: answer}` for several open questions. With a Run in place
        of the thread's id it is for what was asked there, and for nothing asked since; ids say the same. A plain answer
        with a thread's id is for what is asked now, so that its second delivery answers the next question.
        Without an answer, an interrupted run goes on; one that waits or has ended is returned as it is. An answer
        that is not understood keeps the pause: `Run.problem` says why.
        The settings are those of the start, whichever agent goes on, unless others are given here; these then stay.
        Raises UnknownThread, StaleAnswer, ThreadBusy; nothing changes then.
        """
        return await last(self.stream_resume(thread_id, answer, settings=settings, config=config))

    async def stream(
        self,
        goal: str,
        *,
        thread_id: str | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
        restart: bool = False,
        extra: Json | None = None,
        config: RunnableConfig | None = None,
    ) -> AsyncGenerator[Json, None]:
        """As `start`, giving events as they happen: dicts with `type`, the last one `waiting`, `outcome` or `error`."""
        if problem := goal_problem(goal.strip()):
            raise GoalError(problem)
        thread_id = thread_id or str(uuid4())
        chosen = self.settings if settings is None else read_settings(settings)
        async with aclosing(told(self._started(goal, thread_id, chosen, restart, extra, config))) as events:
            async for event in events:
                yield event

    async def stream_resume(
        self,
        thread_id: str | Run,
        answer: Any = _MISSING,
        *,
        settings: Settings | Mapping[str, Any] | None = None,
        config: RunnableConfig | None = None,
    ) -> AsyncGenerator[Json, None]:
        """As `resume`, giving events as they happen."""
        shown = thread_id if isinstance(thread_id, Run) else None
        id = shown.thread_id if shown else str(thread_id)
        chosen = None if settings is None else read_settings(settings)
        async with aclosing(told(self._resumed(id, answer, shown, chosen, config))) as events:
            async for event in events:
                yield event

    # Reading -----------------------------------------------------------------------------------------------------

    async def get(self, thread_id: str) -> Run:
        """What became of a thread. Raises UnknownThread."""
        async with self.storage.reader() as session:
            graph, settings = on_saver(self._compiled, *session), await thread_settings(session[1], thread_id)
            snapshot = await graph.aget_state(_configured(thread_id, None), subgraphs=True)
            return run_of(thread_id, known(thread_id, snapshot), settings)

    async def receipt(self, thread_id: str) -> Json | None:
        """The receipt of a finished run: planned, executed, claimed, verified, spent; None while it is not finished."""
        return (await self.get(thread_id)).receipt

    async def threads(self, limit: int = 100) -> list[ThreadInfo]:
        """The threads of this storage, the one changed last first."""
        return await list_threads(self.storage, limit)

    async def info(self, thread_id: str) -> ThreadInfo:
        """What is remembered about a thread. Raises UnknownThread."""
        async with self.storage.reader() as (_, store):
            return await thread_info(store, thread_id)

    async def delete(self, thread_id: str) -> None:
        """Forget a thread: checkpoints, observations, effects. ThreadBusy while somebody works on it."""
        await self.storage.delete_thread(thread_id)

    # Inside ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _session(self, thread_id: str) -> AsyncIterator[tuple[Compiled, BaseStore]]:
        async with self.storage.session(thread_id) as (saver, store):
            yield on_saver(self._compiled, saver, store), store

    async def _started(
        self,
        goal: str,
        thread_id: str,
        settings: Settings,
        restart: bool,
        extra: Json | None,
        config: RunnableConfig | None,
    ) -> AsyncGenerator[Json, None]:
        async with self._session(thread_id) as (graph, store):
            configured = _configured(thread_id, config)
            snapshot = await graph.aget_state(configured)
            run = run_of(thread_id, snapshot)
            if snapshot.created_at and run.status in ("waiting", "running"):
                if not restart:
                    raise unfinished(run)
                await graph.aupdate_state(configured, put_away(snapshot.values), as_node="deliver")
            await note_thread(store, thread_id, goal=goal, extra=extra, settings=settings)
            yield {"type": "started", "thread_id": thread_id, "goal": goal}
            given = {"messages": [HumanMessage(goal)]}
            async with aclosing(self._driven(graph, store, thread_id, given, settings, configured)) as events:
                async for event in events:
                    yield event

    async def _resumed(
        self, thread_id: str, answer: Any, shown: Run | None, chosen: Settings | None, config: RunnableConfig | None
    ) -> AsyncGenerator[Json, None]:
        async with self._session(thread_id) as (graph, store):
            configured = _configured(thread_id, config)
            settings = chosen or await thread_settings(store, thread_id) or self.settings
            run = run_of(thread_id, known(thread_id, await graph.aget_state(configured)), settings)
            given: Command[Any] | None = None
            if answer is not _MISSING:
                given = resume_command(run, answer, shown)
            elif run.status == "waiting":
                given = overdue_command(run, settings)
            yield {"type": "started", "thread_id": thread_id, "goal": run.goal}
            if given is None and run.status != "running":
                yield terminal(run)
                return
            await note_thread(store, thread_id, goal=run.goal, settings=chosen)
            async with aclosing(self._driven(graph, store, thread_id, given, settings, configured)) as events:
                async for event in events:
                    yield event

    async def _driven(
        self,
        graph: Compiled,
        store: BaseStore,
        thread_id: str,
        given: Any,
        settings: Settings,
        config: RunnableConfig,
    ) -> AsyncGenerator[Json, None]:
        """Run the graph to its next pause or end and pass its events on; the last one is terminal."""
        control = self._controls[thread_id] = RunControl()
        modes: Any = {"stream_mode": "custom", "subgraphs": True, "durability": "sync", "control": control}
        try:
            for _ in range(_TRIES):
                stream: Any = graph.astream(given, config, context=settings, **modes)
                async with aclosing(stream):
                    async for _, event in stream:
                        yield event
                if not await found(graph, config):
                    break
                given = None
        except GraphDrained:
            pass
        finally:
            del self._controls[thread_id]
        run = run_of(thread_id, await graph.aget_state(config, subgraphs=True), settings)
        await note_thread(store, thread_id, status=run.status)
        yield terminal(run)


def _configured(thread_id: str, config: RunnableConfig | None) -> RunnableConfig:
    """The caller's callbacks, tags and metadata, with our thread at its latest checkpoint, and strict resume."""
    given: RunnableConfig = config or {}
    kept = {key: value for key, value in (given.get("configurable") or {}).items() if key not in _PLACES}
    own = {"thread_id": thread_id, "__pregel_strict_resume": True}
    metadata = {"session_id": thread_id, **(given.get("metadata") or {})}
    return {**given, "configurable": {**kept, **own}, "metadata": metadata}
