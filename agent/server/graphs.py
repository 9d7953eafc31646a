"""The server's graphs, one per user with a folder, and the checkpoint from which a run continues."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, StateSnapshot

from donewhen.agent.a2a.remote import connect_executor
from donewhen.agent.config import DEMO, Config, read_config
from donewhen.agent.logs import set_up
from donewhen.agent.models import ModelSource
from donewhen.agent.prices import Prices
from donewhen.agent.workspace import WORKSPACE_TOOLS, workspace_tools
from donewhen.graph.build import build_graph
from donewhen.graph.executors.executor import Executors, profile_problem, unknown_names
from donewhen.state.errors import ConfigError
from donewhen.state.settings import Settings, confine_settings, merge_settings, read_settings

served: Config = read_config()
set_up(served.log)
pinned: Settings = merge_settings(read_settings({"profile": served.profile} if served.profile else {}), served.settings)
"""Settings that no client can widen."""
_BESIDE = ("run_id", "graph_id", "assistant_id", "user_id", "__", "langgraph_", "x-", "cron_", "thread_", "checkpoint_")
"""Prefixes of keys that the server adds to settings."""
_models = ModelSource(served.model or DEMO, config=served)


def settings_for(asked: Mapping[str, Any]) -> tuple[Settings, list[str]]:
    """Return the client's settings within the operator's, and the names of those it does not get.

    Raises ConfigError for invalid values.
    """
    asked = {key: value for key, value in asked.items() if not key.startswith(_BESIDE)}
    kept, refused = confine_settings(pinned, asked, models=not (served.tokens or served.settings))
    if problem := profile_problem(kept.profile, _named):
        raise ConfigError(f"settings: {problem}")
    return kept, refused


class RunFailed(Exception):
    """A run of the A2A endpoint ended as failed. The task shows this name, and its history the answer."""


class ServedGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """The graph for pages. Its settings stay within the operator's, wherever a run has its own from.

    The checkpoint that pages name is where they last looked, not always where to go on from.

    After Stop, and in a second tab, a page still names the pause it showed before. Taken as time travel, as LangGraph
    takes it, the run would begin once more from there. So an answer is for where the thread is, and so is what is
    typed after Stop; an answer to what is not asked any more is refused. Other runs from a checkpoint travel in time.

    The A2A endpoint calls a task completed unless its run raises; so a run of its that failed raises at its end.

    `values` are the thread's alone: agent-chat-ui asks for the streams of subgraphs too, and draws whatever values come
    last as the thread's, so those of a step at work would take the conversation away.
    """

    async def astream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> AsyncIterator[Any]:
        where = merge_configs(self.config, config)
        given = options.get("context")
        asked = given.model_dump(exclude_unset=True) if isinstance(given, Settings) else given or {}
        options["context"], _ = settings_for({**(where.get("configurable") or {}), **asked})
        if isinstance(input, Command) and isinstance(input.resume, dict) and set(input.resume) == {"messages"}:
            input = (
                input.resume
            )  # `run.start` of the event protocol (@langchain/react) makes an answer of what is typed
        if input is not None and where["configurable"].get("checkpoint_id"):
            input, where = await self._up_to_date(input, where)
        parts = super().astream(input, where, **options)
        async with aclosing(cast(Any, parts)):
            async for part in parts:
                if not _of_subgraph(part, "values"):
                    yield part
        if (where.get("metadata") or {}).get("a2a"):
            thread: RunnableConfig = {"configurable": {"thread_id": where["configurable"]["thread_id"]}}
            outcome = (await self.aget_state(merge_configs(self.config, thread))).values.get("outcome") or {}
            if outcome.get("status") == "failed":
                raise RunFailed(outcome.get("code"))

    async def _up_to_date(self, input: Any, seen: RunnableConfig) -> tuple[Any, RunnableConfig]:
        """Return the input and its starting point: the end of the thread, or the checkpoint the page has `seen`."""
        elsewhere = ("checkpoint_id", "checkpoint_map")
        kept = {key: value for key, value in seen["configurable"].items() if key not in elsewhere}
        end: RunnableConfig = {**seen, "configurable": kept}
        head = await self.aget_state(end)
        answers = isinstance(input, Command) and input.resume is not None
        rests = head.interrupts or (head.values.get("outcome") and not head.next)
        if rests and not answers:
            return input, seen
        if answers and (asked := _pause_id(await self.aget_state(seen))) != _pause_id(head):
            input = replace(input, resume={"answers": {asked: input.resume}})
        return input, end


def _of_subgraph(part: Any, mode: str) -> bool:
    """Return whether a stream part (namespace, mode, data) is a subgraph's. The event protocol's parts are mappings."""
    return isinstance(part, tuple) and len(part) == 3 and bool(part[0]) and part[1] == mode


def _pause_id(snapshot: StateSnapshot) -> str:
    """Return the id of the thread's current pause, or ""."""
    return next((str(each.value.get("id")) for each in snapshot.interrupts if isinstance(each.value, dict)), "")


def _executors_in(folder: Path | None) -> Executors:
    tools = [] if folder is None else workspace_tools(folder, commands=served.commands)
    elsewhere = [*WORKSPACE_TOOLS, *unknown_names(served.profile.get("forbidden_tools") or (), tools)]
    return Executors(served.executors, tools=tools, connect=connect_executor, elsewhere=elsewhere)


def _graph_in(folder: Path | None) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return the graph whose tools work in `folder`; None for one without tools, for inspection."""
    executors = _executors_in(folder)
    prices, secrets = Prices(served.prices).cost, served.secrets
    graph = build_graph(_models, executors=executors, prices=prices, secrets=secrets).compile()
    if served.trace:
        from donewhen.agent.tracing import make_tracing

        graph = graph.with_config(callbacks=[make_tracing(False, served)])
    return ServedGraph(**vars(graph))


def _graph_of(user: str | None) -> CompiledStateGraph[Any, Any, Any, Any]:
    folder = Path(served.folder) / (user or "")
    if user:
        folder.mkdir(parents=True, exist_ok=True)
    return _graph_in(folder)


_named = _executors_in(Path(served.folder))
"""Tools and executors by name, the same for all users."""
settings_for({})  # what an operator pins that cannot be enforced starts nothing
_of_users = {user: _graph_of(user) for user in served.tokens}
_of_nobody = _graph_in(None) if served.tokens else _graph_of(None)


def _graph_for(config: RunnableConfig) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return the graph in the folder of the request's user."""
    return _of_users.get((config.get("configurable") or {}).get("langgraph_auth_user_id", ""), _of_nobody)


graph: Any = _graph_for if served.tokens else _of_nobody
