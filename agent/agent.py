"""The public face: an Agent starts runs, resumes them, streams them, and reads what became of them."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Self
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import RunControl
from langgraph.store.base import BaseStore
from langgraph.types import Command, StateSnapshot

from agent.answers import resume_command
from agent.config import Config, read_config
from agent.models import ModelSource, Thinking
from agent.prices import Price, Prices
from agent.run import Json, Run, ThreadInfo, run_of
from agent.storage import Storage, open_storage
from agent.threads import list_threads, note_thread, thread_info
from agent.tools import Tools, as_tools
from graph import Executor, build_graph
from graph.receive import goal_problem
from graph.toolbox import Effect
from state.errors import DoneWhenError, GoalError, StorageError, ThreadWaiting, UnknownThread
from state.run import VERSION
from state.settings import Settings

_MISSING: Any = object()
Compiled = CompiledStateGraph[Any, Settings, Any, Any]


class Agent:
    """Plans, confirms, executes and proves; every run is a thread that can be resumed from any process.

    `model`: a LangChain chat model or `"provider:model"`; None: from the environment, else the offline model.
    `tools`: LangChain tools, functions, or MCP-style dicts (with `caller`). `storage`: `sqlite:///file`, `memory:`,
    `postgresql://…` or a Storage; None: the user's default file. `models`: role → model. `effects`: tool name →
    read | idempotent | write. Nothing is opened or called before the first run.
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
        self.settings = _settings(settings)
        self.storage = storage if isinstance(storage, Storage) else open_storage(storage or config.storage, key=config.key)
        self._builder = build_graph(
            self.models,
            as_tools(tools, caller=caller),
            executors=executors,
            effects=effects,
            pricing=Prices(prices).cost,
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
        for control in self._controls.values():
            control.request_drain("drain")

    @property
    def graph(self) -> Compiled:
        """The compiled graph on this agent's storage; every LangGraph verb works on it, `ainvoke` and `invoke` alike.

        It takes no lock over a whole run; two callers of one thread are on their own.
        """
        from agent.storage.direct import DirectSaver, DirectStore

        return self._compiled.copy(update={"checkpointer": DirectSaver(self.storage), "store": DirectStore(self.storage)})

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
        a blank or huge goal, ThreadWaiting if the thread has an open question (unless `restart`), ThreadBusy.
        """
        return await _last(
            self.stream(goal, thread_id=thread_id, settings=settings, restart=restart, extra=extra, config=config)
        )

    async def resume(
        self,
        thread_id: str,
        answer: Any = _MISSING,
        *,
        settings: Settings | Mapping[str, Any] | None = None,
        config: RunnableConfig | None = None,
    ) -> Run:
        """Answer what a thread waits for, or go on after a crash.

        `answer` may have any shape clients send, or be `{id: answer}` for several open questions. Without it, an
        interrupted run goes on; one that waits or has ended is returned as it is. An answer that is not understood
        keeps the pause: `Run.problem` says why. Raises UnknownThread, StaleAnswer, ThreadBusy; nothing changes then.
        """
        return await _last(self.stream_resume(thread_id, answer, settings=settings, config=config))

    async def stream(
        self,
        goal: str,
        *,
        thread_id: str | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
        restart: bool = False,
        extra: Json | None = None,
        config: RunnableConfig | None = None,
    ) -> AsyncIterator[Json]:
        """As `start`, giving events as they happen: dicts with `type`, the last one `waiting`, `outcome` or `error`."""
        if problem := goal_problem(goal.strip()):
            raise GoalError(problem)
        thread_id = thread_id or uuid4().hex
        async with self._session(thread_id) as (graph, store):
            snapshot = await graph.aget_state(_configured(thread_id, config))
            if snapshot.created_at and (snapshot.interrupts or snapshot.tasks) and not restart:
                run = run_of(thread_id, snapshot)
                what = "waits for an answer" if run.pending else "is not finished"
                asked = f": {run.pending[0].get('question')}" if run.pending else ""
                raise ThreadWaiting(
                    f"thread {thread_id} {what}{asked}. Resume it, or start with restart=True.",
                    [pause["id"] for pause in run.pending],
                )
            await note_thread(store, thread_id, goal=goal, extra=extra)
            yield {"type": "started", "thread_id": thread_id, "goal": goal}
            given = {"messages": [HumanMessage(goal)]}
            async for event in self._drive(graph, store, thread_id, given, settings, config):
                yield event

    async def stream_resume(
        self,
        thread_id: str,
        answer: Any = _MISSING,
        *,
        settings: Settings | Mapping[str, Any] | None = None,
        config: RunnableConfig | None = None,
    ) -> AsyncIterator[Json]:
        """As `resume`, giving events as they happen."""
        async with self._session(thread_id) as (graph, store):
            snapshot = _known(thread_id, await graph.aget_state(_configured(thread_id, config)))
            run = run_of(thread_id, snapshot)
            given: Command[Any] | None = None
            if answer is not _MISSING:
                given = resume_command(run, answer)
            yield {"type": "started", "thread_id": thread_id, "goal": run.goal}
            if given is None and run.status != "running":
                yield _terminal(run)
                return
            async for event in self._drive(graph, store, thread_id, given, settings, config):
                yield event

    # Reading -----------------------------------------------------------------------------------------------------

    async def get(self, thread_id: str) -> Run:
        """What became of a thread. Raises UnknownThread."""
        async with self.storage.reader() as (saver, store):
            graph = self._compiled.copy(update={"checkpointer": saver, "store": store})
            return run_of(thread_id, _known(thread_id, await graph.aget_state(_configured(thread_id, None))))

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
        """Forget a thread: checkpoints, observations, effects."""
        await self.storage.delete_thread(thread_id)

    # Inside ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _session(self, thread_id: str) -> AsyncIterator[tuple[Compiled, BaseStore]]:
        async with self.storage.session(thread_id) as (saver, store):
            yield self._compiled.copy(update={"checkpointer": saver, "store": store}), store

    async def _drive(
        self,
        graph: Compiled,
        store: BaseStore,
        thread_id: str,
        given: Any,
        settings: Settings | Mapping[str, Any] | None,
        config: RunnableConfig | None,
    ) -> AsyncIterator[Json]:
        """Run the graph to its next pause or end and pass its events on; the last one is terminal."""
        configured = _configured(thread_id, config)
        control = self._controls[thread_id] = RunControl()
        stream = graph.astream(
            given,
            configured,
            context=self.settings if settings is None else _settings(settings),
            stream_mode="custom",
            subgraphs=True,
            durability="sync",
            control=control,
        )
        try:
            async with aclosing(stream):  # type: ignore[type-var]
                async for _, event in stream:
                    yield event
        except GraphDrained:
            pass
        finally:
            del self._controls[thread_id]
        run = run_of(thread_id, await graph.aget_state(configured))
        await note_thread(store, thread_id, status=run.status)
        yield _terminal(run)


def _settings(given: Settings | Mapping[str, Any] | None) -> Settings:
    return given if isinstance(given, Settings) else Settings.model_validate(given or {})


def _configured(thread_id: str, config: RunnableConfig | None) -> RunnableConfig:
    """The caller's callbacks, tags and metadata, with our thread and strict resume."""
    given: RunnableConfig = config or {}
    own = {"thread_id": thread_id, "__pregel_strict_resume": True}
    metadata = {"session_id": thread_id, **(given.get("metadata") or {})}
    return {**given, "configurable": {**(given.get("configurable") or {}), **own}, "metadata": metadata}


def _known(thread_id: str, snapshot: StateSnapshot) -> StateSnapshot:
    if not snapshot.created_at:
        raise UnknownThread(f"there is no thread {thread_id!r}")
    version = snapshot.values.get("version", VERSION)
    if version > VERSION:
        raise StorageError(
            f"thread {thread_id} was written by a newer version of DoneWhen (state {version}, this one reads {VERSION}); "
            "update DoneWhen to go on with it"
        )
    return snapshot


def _terminal(run: Run) -> Json:
    if run.status == "waiting":
        return {"type": "waiting", "pending": list(run.pending), "problem": run.problem, "run": run}
    outcome = run.outcome or {"status": run.status, "code": "interrupted", "text": "Stopped; resume goes on from here."}
    kept = {key: outcome[key] for key in ("status", "code", "text")}
    return {"type": "outcome", **kept, "run": run}


async def _last(events: AsyncIterator[Json]) -> Run:
    run: Run | None = None
    async for event in events:
        run = event.get("run", run)
    if run is None:
        raise DoneWhenError("the run ended without an outcome")
    return run
