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
from donewhen.graph.executors.executor import Executors, constraint_problem, unknown_names
from donewhen.graph.receive import NOT_TAKEN
from donewhen.state.errors import ConfigError
from donewhen.state.settings import Settings, confine_settings, merge_settings, misspelt_settings, read_settings

served: Config = read_config()
set_up(served.log)
pinned: Settings = merge_settings(read_settings({"profile": served.profile} if served.profile else {}), served.settings)
"""Settings that no client can widen."""
_PREFIXES = (
    "run_id",
    "graph_id",
    "assistant_id",
    "user_id",
    "__",
    "langgraph_",
    "x-",
    "cron_",
    "thread_",
    "checkpoint_",
)
"""Prefixes of keys that the server adds to settings."""
_models = ModelSource(served.model or DEMO, config=served)


def settings_for(configurable: Mapping[str, Any], context: Mapping[str, Any]) -> tuple[Settings, list[str]]:
    """Return the client's settings within the operator's, and the names of those that were not granted.

    `configurable` may have keys of other programs. Raises ConfigError for invalid values, and for misspelt names in
    `context`.
    """
    wanted = {key: value for key, value in {**configurable, **context}.items() if not key.startswith(_PREFIXES)}
    if wrong := misspelt_settings({key: value for key, value in context.items() if key in wanted}):
        raise ConfigError(f"settings: {'; '.join(wrong)}")
    granted, refused = confine_settings(pinned, wanted, models=not (served.tokens or served.settings))
    if problem := constraint_problem(granted, _all_executors):
        raise ConfigError(f"settings: {problem}")
    return granted, refused


class RunFailed(Exception):
    """Raised at the end of a failed run of the A2A endpoint: the task shows this name, and its history the answer."""


class ServedGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """The graph that the server offers, with four differences from a compiled graph.

    - Wherever a run gets its settings from, they stay within the operator's.
    - An answer, and anything typed after Stop, continues from the head of the thread, even if the page names an older
      checkpoint: after Stop, and in a second tab, a page still names the pause that it showed before, and LangGraph
      would run again from there. An answer to a question that is no longer open is refused. Other runs from a
      checkpoint are time travel.
    - A failed run of the A2A endpoint raises at its end, because the endpoint calls any other run completed.
    - `values` of subgraphs are not streamed: agent-chat-ui asks for them and draws the last ones as the thread's, so
      the conversation would disappear while a step works.
    """

    async def astream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> AsyncIterator[Any]:
        where = merge_configs(self.config, config)
        context = options.get("context")
        asked = context.model_dump(exclude_unset=True) if isinstance(context, Settings) else context or {}
        options["context"], refused = settings_for(where.get("configurable") or {}, asked)
        if not_taken := [name for name in refused if name.partition(".")[0] in Settings.model_fields]:
            where = merge_configs(where, {"configurable": {NOT_TAKEN: not_taken}})
        if isinstance(input, Command) and isinstance(input.resume, dict) and set(input.resume) == {"messages"}:
            # `run.start` of the event protocol (@langchain/react) sends typed text as an answer.
            input = input.resume
        if input is not None and where["configurable"].get("checkpoint_id"):
            input, where = await self._choose_start(input, where)
        parts = super().astream(input, where, **options)
        async with aclosing(cast(Any, parts)):
            async for part in parts:
                if not _is_from_subgraph(part, "values"):
                    yield part
        if (where.get("metadata") or {}).get("a2a"):
            thread: RunnableConfig = {"configurable": {"thread_id": where["configurable"]["thread_id"]}}
            outcome = (await self.aget_state(merge_configs(self.config, thread))).values.get("outcome") or {}
            if outcome.get("status") == "failed":
                raise RunFailed(outcome.get("code"))

    async def _choose_start(self, input: Any, seen: RunnableConfig) -> tuple[Any, RunnableConfig]:
        """Return the input and its start: the head of the thread, or the checkpoint that the page has `seen`."""
        checkpoint_keys = ("checkpoint_id", "checkpoint_map")
        configurable = {key: value for key, value in seen["configurable"].items() if key not in checkpoint_keys}
        head_config: RunnableConfig = {**seen, "configurable": configurable}
        head = await self.aget_state(head_config)
        is_answer = isinstance(input, Command) and input.resume is not None
        is_at_rest = head.interrupts or (head.values.get("outcome") and not head.next)
        if is_at_rest and not is_answer:
            return input, seen
        if is_answer and (question := _pause_id(await self.aget_state(seen))) != _pause_id(head):
            input = replace(input, resume={"answers": {question: input.resume}})
        return input, head_config


def _is_from_subgraph(part: Any, mode: str) -> bool:
    """Return whether a stream part (namespace, mode, data) is a subgraph's. The event protocol's parts are mappings."""
    return isinstance(part, tuple) and len(part) == 3 and bool(part[0]) and part[1] == mode


def _pause_id(snapshot: StateSnapshot) -> str:
    """Return the id of the thread's current pause, or ""."""
    return next((str(each.value.get("id")) for each in snapshot.interrupts if isinstance(each.value, dict)), "")


def _build_executors(folder: Path | None) -> Executors:
    tools = (
        []
        if folder is None
        else workspace_tools(folder, commands=served.commands, box=served.box, network=served.network)
    )
    elsewhere = [*WORKSPACE_TOOLS, *unknown_names(served.profile.get("forbidden_tools") or (), tools)]
    return Executors(served.executors, tools=tools, connect=connect_executor, elsewhere=elsewhere)


def _build_graph(folder: Path | None) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return the graph whose tools work in `folder`; with None it has no tools, and serves for inspection."""
    executors = _build_executors(folder)
    prices, secrets = Prices(served.prices).cost, served.secrets
    graph = build_graph(_models, executors=executors, prices=prices, secrets=secrets).compile()
    if served.trace:
        from donewhen.agent.tracing import make_tracing

        graph = graph.with_config(callbacks=[make_tracing(False, served)])
    return ServedGraph(**vars(graph))


def _build_user_graph(user: str | None) -> CompiledStateGraph[Any, Any, Any, Any]:
    folder = Path(served.folder) / (user or "")
    if user:
        folder.mkdir(parents=True, exist_ok=True)
    return _build_graph(folder)


_all_executors = _build_executors(Path(served.folder))
"""Tools and executors by name, the same for all users."""
settings_for({}, {})  # raises ConfigError for pinned settings that cannot be enforced
_graphs_by_user = {user: _build_user_graph(user) for user in served.tokens}
_common_graph = _build_graph(None) if served.tokens else _build_user_graph(None)


def _pick_graph(config: RunnableConfig) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return the graph in the folder of the request's user."""
    return _graphs_by_user.get((config.get("configurable") or {}).get("langgraph_auth_user_id", ""), _common_graph)


graph: Any = _pick_graph if served.tokens else _common_graph
