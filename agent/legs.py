"""One leg of a run, from a start or an answer to the next pause or the end, alone on its thread."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.store.base import BaseStore
from langgraph.types import Command

from donewhen.agent.resuming import answered, overdue_command, resume_command
from donewhen.agent.run import Run, known, last_answered, note_thread, run_of, thread_settings, unfinished
from donewhen.agent.storage import Storage
from donewhen.agent.stream import Session
from donewhen.agent.thread_graph import Compiled, found, on_saver
from donewhen.graph.models.output import PRESENT, Form
from donewhen.graph.people.pauses import put_away
from donewhen.graph.receive import goal_problem
from donewhen.state.errors import ConfigError, GoalError
from donewhen.state.graph_state import Json
from donewhen.state.settings import Settings, SettingsLike, merged

MISSING: Any = object()
GoalInput = str | Sequence[Any]
"""A text, content blocks (`{"type": "text", "text": …}`), or messages of which the last one is the request."""
_TRIES = 3
_PLACES = ("checkpoint_id", "checkpoint_ns", "checkpoint_map")


def requested(goal: GoalInput) -> list[AnyMessage]:
    """The messages that start a run; the last one is the user's. Raises GoalError for what nobody could work on."""
    if isinstance(goal, str):
        messages: list[Any] = [HumanMessage(goal)]
    elif goal and all(isinstance(part, dict) and "type" in part and "role" not in part for part in goal):
        messages = [HumanMessage(list(goal))]
    else:
        try:
            messages = list(convert_to_messages(goal))
        except (ValueError, NotImplementedError, TypeError, KeyError) as error:
            raise GoalError(f"the goal is no text, no content blocks and no messages: {error}") from None
    if not messages or not isinstance(messages[-1], HumanMessage):
        raise GoalError("the last message is to be the user's")
    if problem := goal_problem(messages[-1].text.strip()):
        raise GoalError(problem)
    return messages


@dataclass(frozen=True)
class Legs:
    """Starts and resumes runs of one graph on one storage."""

    graph: Compiled
    storage: Storage
    settings: Settings
    """Of the agent; what a call gives is merged with them."""
    form: Form | None = None
    """In which the result is wanted as data."""

    def typed(self, form: Form | None) -> "Legs":
        """The same, wanting the result in that form."""
        return replace(self, form=form) if form else self

    async def start(
        self,
        session: Session,
        messages: list[AnyMessage],
        given: SettingsLike,
        restart: bool,
        metadata: Json | None,
        config: RunnableConfig | None,
    ) -> Run:
        """A new request on the session's thread."""
        wanted = {"output_schema": self.form.schema} if self.form else {}
        settings = merged(merged(self.settings, wanted), given)
        thread_id, goal = session.thread_id, messages[-1].text
        async with self._alone(thread_id) as (graph, store):
            configured = configured_for(thread_id, config, self.form)
            snapshot = await graph.aget_state(configured)
            run = run_of(thread_id, snapshot)
            if snapshot.created_at and run.status in ("waiting", "running"):
                if not restart:
                    raise unfinished(run)
                await graph.aupdate_state(configured, put_away(snapshot.values), as_node="deliver")
            await note_thread(store, thread_id, goal=goal, metadata=metadata, settings=settings, answered={})
            await session.tell({"type": "started", "thread_id": thread_id, "goal": goal})
            return await self._drive(session, graph, store, {"messages": messages}, settings, configured)

    async def resume(
        self,
        session: Session,
        answer: Any,
        shown: Run | str,
        given: SettingsLike,
        config: RunnableConfig | None,
        wanted: Form | None = None,
    ) -> Run:
        """An answer to what the session's thread waits for, or, for `MISSING`, going on."""
        thread_id = session.thread_id
        async with self._alone(thread_id) as (graph, store):
            configured = configured_for(thread_id, config, self.form)
            settings = merged(await thread_settings(store, thread_id) or self.settings, given)
            snapshot = known(thread_id, await graph.aget_state(configured))
            if wanted and wanted.schema != (snapshot.values.get("output_schema") or {}):
                raise ConfigError("output_type: the run was started with another one, or with none")
            run = run_of(thread_id, snapshot, settings, self.form)
            command: Command[Any] | None = None
            said: Json | None = None
            if answer is not MISSING:
                command = resume_command(run, answer, shown, await last_answered(store, thread_id))
                said = answered(run, answer)
            elif run.status == "waiting":
                command = overdue_command(run, settings)
            await session.tell({"type": "started", "thread_id": thread_id, "goal": run.goal})
            if command is None and run.status != "running":
                return run
            kept = settings if given else None
            await note_thread(store, thread_id, goal=run.goal, settings=kept, answered=said)
            return await self._drive(session, graph, store, command, settings, configured)

    @asynccontextmanager
    async def _alone(self, thread_id: str) -> AsyncIterator[tuple[Compiled, BaseStore]]:
        async with self.storage.session(thread_id) as (saver, store):
            yield on_saver(self.graph, saver, store), store

    async def _drive(
        self,
        session: Session,
        graph: Compiled,
        store: BaseStore,
        given: Any,
        settings: Settings,
        config: RunnableConfig,
    ) -> Run:
        """Run the graph to its next pause or end and pass its events on."""
        thread_id = session.thread_id
        modes: Any = {"stream_mode": "custom", "subgraphs": True, "durability": "sync", "control": session.control}
        try:
            for _ in range(_TRIES):
                stream: Any = graph.astream(given, config, context=settings, **modes)
                async with aclosing(stream):
                    async for _, event in stream:
                        await session.tell(event)
                if not await found(graph, config):
                    break
                given = None
        except GraphDrained:
            pass
        run = run_of(thread_id, await graph.aget_state(config, subgraphs=True), settings, self.form)
        await note_thread(store, thread_id, status=run.status)
        return run


def configured_for(thread_id: str, config: RunnableConfig | None, form: Form | None = None) -> RunnableConfig:
    """The caller's callbacks, tags and metadata, with our thread at its latest checkpoint, and strict resume."""
    given: RunnableConfig = config or {}
    kept = {key: value for key, value in (given.get("configurable") or {}).items() if key not in _PLACES}
    own = {"thread_id": thread_id, "__pregel_strict_resume": True, **({PRESENT: form} if form else {})}
    metadata = {"session_id": thread_id, **(given.get("metadata") or {})}
    return {**given, "configurable": {**kept, **own}, "metadata": metadata}
