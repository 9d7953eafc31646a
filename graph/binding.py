"""Adapt nodes, routes and subgraphs to LangGraph: bind their dependencies, and support `ainvoke` and `invoke`.

A subgraph gets its inputs and dependencies by reference, from a context variable. They are not stored again with it,
and stand in no configuration, which LangGraph hands to tools and `RemoteGraph` sends to other servers (R18).
"""

import inspect
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.config import get_config
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import Overwrite

from donewhen.graph.context import Deps, with_settings
from donewhen.graph.day_budget import charging
from donewhen.graph.early_answers import refuse_early_answer
from donewhen.graph.events import CleanWriter, emit_question, emit_rest, log_of, thread_of
from donewhen.graph.pauses.pause import load_pause
from donewhen.graph.sync import awaitable_store, wait
from donewhen.graph.tools.effects import Place
from donewhen.state.channels import MERGED, VERSION, Json, RunState, apply_update, difference
from donewhen.state.private_langgraph import CHECKPOINTER_KEY, READ_KEY
from donewhen.state.records import Ending, Pause
from donewhen.state.secrets import hide_in_error
from donewhen.state.settings import Settings
from donewhen.state.versions import migrate, migrate_inside

_around: ContextVar[tuple[Json, Deps | None]] = ContextVar("around", default=({}, None))
"""The inputs of the subgraph that works in this context, and the dependencies of its nodes: so all runs share one
compiled subgraph."""
InputOf = Callable[[Json, Json, Settings, Deps], Json]
"""(state of the run, the Send's argument, settings, dependencies) → the inputs of a subgraph."""


class TaskSaver(BaseCheckpointSaver[Any]):
    """A checkpointer that may write less often, if it is told what can be made again. With every other one the graph
    works as well.
    """

    def let_wait(self, task_id: str, *, checkpoint: bool) -> None:
        """Let what this task writes wait for the next commit: it can be made again without asking a model, a tool or a
        person. `checkpoint`: so may the checkpoint that is made of it.
        """
        raise NotImplementedError

    def let_go(self, namespace: str) -> None:
        """Delete the checkpoints of this namespace, of a task, with the next one of the run, which has their result."""
        raise NotImplementedError


def saver_of_task() -> TaskSaver | None:
    """Return the checkpointer of the running task, if it is one that can be told something."""
    saver = get_config()["configurable"].get(CHECKPOINTER_KEY)
    return saver if isinstance(saver, TaskSaver) else None


def let_wait(runtime: Runtime[Settings], *, checkpoint: bool) -> None:
    """Let the writes of the running task wait, as `TaskSaver.let_wait` says."""
    if (saver := saver_of_task()) and runtime.execution_info:
        saver.let_wait(runtime.execution_info.task_id, checkpoint=checkpoint)


class Node(Runnable[Any, Any]):
    """Wrap `async (state, runtime, [config], *, deps)` as a runnable of the state.

    The node sees the state migrated to this version, and returns an update of it. What is written is the difference
    between the stored state and that after the update: so what a migration changed is in it, and what was there
    already is not. A state from a newer version raises StorageError and nothing is written. Without `deps` it is a node
    of a subgraph and also sees the subgraph's inputs. It has no trace span of its own, because LangGraph makes one for
    every node.
    """

    def __init__(self, node: Callable[..., Awaitable[Any]], deps: Deps | None = None, *, asks: bool = False) -> None:
        """`asks`: the node waits for a person, and takes what the graph is resumed with."""
        self.name: str | None = node.__name__
        self._asks = asks
        self._node = node
        self._deps = deps
        self._takes_config = "config" in inspect.signature(node).parameters

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        if self._deps is None:  # in a subgraph, whose state has no version of its own
            inputs, given = _around.get()
            assert given is not None
            deps, stored = given, input
            if inputs["version"] != VERSION:
                stored = migrate_inside(input, inputs["version"])
            seen = with_inputs(stored, inputs)
        else:
            if config and not self._asks:
                await refuse_early_answer(config)
            deps, stored = _deps_in(config, self._deps), migrate(input)
            seen = stored
        kept = {} if self.name == "receive" else seen.get("given_settings") or {}  # another request has its own
        approvers = {} if self.name == "receive" else seen.get("approvers") or {}
        runtime = with_settings(get_runtime(), deps, kept, approvers)
        if runtime.store is not None and (store := await awaitable_store(runtime.store)) is not runtime.store:
            runtime = runtime.override(store=store)
        log_of(thread_of(runtime)).turn = seen.get("turn", 0) + (self.name == "receive")
        runtime = runtime.override(stream_writer=CleanWriter(runtime.stream_writer, deps.secrets))
        try:
            with charging() as charges:
                update = await self._node(seen, runtime, *([config] if self._takes_config else []), deps=deps)
                if (update or {}).get("pending"):
                    update = await _send_question(seen, update, runtime, deps)
                charges.charge(update or {})
        except Exception as error:
            hide_in_error(error, deps.secrets)
            raise
        finally:
            emit_rest(runtime)
        if not (_charges(update) or seen.get("pending")):  # then it took a person's answer
            let_wait(runtime, checkpoint=True)
        # Merged channels of a subgraph begin empty; until something is stored, their values are its inputs.
        begun = {**stored, **{key: seen[key] for key in MERGED & seen.keys()}}
        written = difference(input, apply_update(begun, update or {}))
        # What a node overwrites with itself is stored in full again, so that no older checkpoint is read for it.
        again = ((key, write) for key, write in (update or {}).items() if isinstance(write, Overwrite))
        return {**written, **{key: write for key, write in again if write.value is input.get(key)}}

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        return wait(self.ainvoke(input, config))


def _deps_in(config: RunnableConfig | None, deps: Deps) -> Deps:
    """Return the dependencies of the run; within another graph it has no schedules, whose runs nobody would begin."""
    deps = deps.of_run()
    return replace(deps, repeats=False) if deps.repeats and Place.of(config or {}, depth=1).nodes else deps


def _charges(update: Json | None) -> bool:
    """Return whether a node charges something; one that asked a model or made a call does."""
    spent = (update or {}).get("spent")
    return bool(spent.value if isinstance(spent, Overwrite) else spent)


async def _send_question(seen: Json, update: Json, runtime: Runtime[Settings], deps: Deps) -> Json:
    """Return a node's update after people were sent its question; if hooks refuse it, the run ends instead.

    They are asked about new questions of the run's own; they have seen those of models and tools.
    """
    pending: Pause = update["pending"]
    refused = ""
    if load_pause(pending).of_run and (seen.get("pending") or {}).get("id") != pending["id"]:
        goal = update.get("goal") or seen.get("goal") or seen["brief"]["goal"]
        refused = await deps.policies.refusal_of(pending, goal, runtime)
    if not refused:
        emit_question(runtime, pending)
        return update
    shown = pending["tool_call_id"]
    messages = update.get("messages") or ()
    kept = [each for each in messages if shown not in (call["id"] for call in getattr(each, "tool_calls", ()))]
    ending: Ending = {"code": "not_asked", "reason": refused}
    return {**update, "pending": None, "messages": kept, "ending": ending}


def with_inputs(state: Json, inputs: Json) -> Json:
    """Return a subgraph's state together with its inputs."""
    # Merged channels begin empty, so the input counts until something is stored.
    return {**inputs, **{key: value for key, value in state.items() if value or key not in inputs}}


class Route(Runnable[Any, Any]):
    """A route that LangGraph calls without awaiting in between; `inside` of a subgraph it also sees the inputs.

    A class, because LangGraph would read the type hints of a function and turn them into channels.

    If a run were cancelled between a node's update and its route, it would be stored without a next step and end
    silently on resume (langgraph #8834).
    """

    def __init__(self, route: Callable[..., Any], labels: Mapping[str, str], *, inside: bool = False) -> None:
        self.name: str | None = route.__name__
        self._route = route
        self._labels = labels
        self._inside = inside

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        target = self._route(with_inputs(input, _around.get()[0]) if self._inside else input)
        return self._labels[target] if isinstance(target, str) else target

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        return self.invoke(input, config)


def add_route(
    graph: StateGraph[Any, Any, Any, Any],
    source: str,
    route: Callable[..., Any],
    labels: Mapping[str, str],
    *,
    inside: bool = False,
) -> None:
    """Add conditional edges from a node, one per target and label. `route` returns a target or Sends.

    From START it gets the stored state and the conversation with what was given.
    """
    edges: dict[Hashable, str] = {label: target for target, label in labels.items()}
    made = StartRoute(route, labels) if source == START and not inside else Route(route, labels, inside=inside)
    graph.add_conditional_edges(source, made, edges)


class StartRoute(Route):
    """The route from START. LangGraph shows that all that was given, in an outer graph its whole state, under the names
    of our state's keys, though the graph takes only the messages.
    """

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        stored = (config or {})["configurable"][READ_KEY](list(RunState.__annotations__), False)
        return self._labels[self._route(stored, input.get("messages") or [])]


class Subgraph(RunnableLambda[Any, Any]):
    """Run a subgraph as a node. Only the id of what it was sent is stored; the rest is read from the run (K7).

    The run's state does not change while the subgraph works, nor by a crash, so its inputs are the same in every
    round.
    """

    stream, astream = Runnable.stream, Runnable.astream
    transform, atransform = Runnable.transform, Runnable.atransform
    """LangGraph streams nodes through these; RunnableLambda's own versions would split the output into chunks."""

    def __init__(self, graph: CompiledStateGraph[Any, Settings, Any, Any], inputs: InputOf, deps: Deps) -> None:
        super().__init__(graph.invoke, name=inputs.__name__)
        self.deps = [graph]
        """LangGraph finds the subgraph here. For a function it would parse the source."""
        self._graph = graph
        self._inputs_of = inputs
        self._deps = deps

    def invoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:
        with self._inputs_given(input, config) as started:
            return _without_empty(self._graph.invoke(started, config, **options))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:
        if config:
            await refuse_early_answer(config)
        with self._inputs_given(input, config) as started:
            return _without_empty(await self._graph.ainvoke(started, config, **options))

    @contextmanager
    def _inputs_given(self, sent: Json, config: RunnableConfig | None) -> Iterator[Json]:
        """Give the subgraph its inputs and dependencies; yield what it stores of them."""
        stored = (config or {})["configurable"][READ_KEY](list(RunState.__annotations__), False)
        run = migrate(stored)
        deps = _deps_in(config, self._deps)
        kept = run.get("given_settings") or {}
        approvers = run.get("approvers") or {}
        inputs = self._inputs_of(run, sent, with_settings(get_runtime(), deps, kept, approvers).context, deps)
        inputs |= {"version": stored.get("version", 0), "given_settings": kept, "approvers": approvers}
        before = _around.set((inputs, deps))
        if saver := saver_of_task():
            saver.let_go(get_config()["configurable"]["checkpoint_ns"])
        try:
            yield {"id": inputs["id"]}
        finally:
            _around.reset(before)


def _without_empty(output: Json) -> Json:
    """Return what a subgraph wrote; its channels that nothing was written to are empty."""
    return {key: value for key, value in output.items() if value != [] and value != {}}
