"""The graph of the server, for every user one that works in their folder, and where a run of it goes on from."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, StateSnapshot

from donewhen.agent.a2a.remote import connected
from donewhen.agent.config import DEMO, read_config
from donewhen.agent.logs import set_up
from donewhen.agent.models import ModelSource, Prices
from donewhen.agent.workspace import workspace_tools
from donewhen.graph.build import build_graph
from donewhen.graph.executors.executor import Executors

served = read_config()
set_up(served.log)
_models = ModelSource(served.model or DEMO, config=served)


class ServedGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """The graph as pages drive it: the checkpoint they name is where they last looked, not always where to go on from.

    After Stop, and in a second tab, a page still names the pause it showed before. Taken as time travel, as LangGraph
    takes it, the run would begin once more from there. So an answer is for where the thread is, and so is what is
    typed after Stop; an answer to what is not asked any more is refused. Other runs from a checkpoint travel in time.
    """

    async def astream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> AsyncIterator[Any]:
        where = merge_configs(self.config, config)
        if isinstance(input, Command) and isinstance(input.resume, dict) and set(input.resume) == {"messages"}:
            input = (
                input.resume
            )  # `run.start` of the event protocol (@langchain/react) makes an answer of what is typed
        if input is not None and where["configurable"].get("checkpoint_id"):
            input, where = await self._up_to_date(input, where)
        parts = super().astream(input, where, **options)
        async with aclosing(cast(Any, parts)):
            async for part in parts:
                yield part

    async def _up_to_date(self, input: Any, seen: RunnableConfig) -> tuple[Any, RunnableConfig]:
        """The input, and from where it runs: the end of the thread, or the checkpoint that the page has `seen`."""
        elsewhere = ("checkpoint_id", "checkpoint_map")
        kept = {key: value for key, value in seen["configurable"].items() if key not in elsewhere}
        end: RunnableConfig = {**seen, "configurable": kept}
        head = await self.aget_state(end)
        answers = isinstance(input, Command) and input.resume is not None
        rests = head.interrupts or (head.values.get("outcome") and not head.next)
        if rests and not answers:
            return input, seen
        if answers and (asked := _asked(await self.aget_state(seen))) != _asked(head):
            input = replace(input, resume={"answers": {asked: input.resume}})
        return input, end


def _asked(snapshot: StateSnapshot) -> str:
    """The id of the pause that a thread stands at; "" at none."""
    return next((str(each.value.get("id")) for each in snapshot.interrupts if isinstance(each.value, dict)), "")


def _graph_in(folder: Path | None) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The graph whose tools work in `folder`; None: one without tools, to be looked at."""
    tools = [] if folder is None else workspace_tools(folder, commands=served.commands)
    prices, secrets = Prices(served.prices).cost, served.secrets
    executors = Executors(served.executors, tools=tools, connect=connected)
    graph = build_graph(_models, executors=executors, prices=prices, secrets=secrets).compile()
    return ServedGraph(**vars(graph))


def _graph_of(user: str | None) -> CompiledStateGraph[Any, Any, Any, Any]:
    folder = Path(served.folder) / (user or "")
    if user:
        folder.mkdir(parents=True, exist_ok=True)
    return _graph_in(folder)


_of_users = {user: _graph_of(user) for user in served.tokens}
_of_nobody = _graph_in(None) if served.tokens else _graph_of(None)


def _graph_for(config: RunnableConfig) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The graph in the folder of the user whose request it is."""
    return _of_users.get((config.get("configurable") or {}).get("langgraph_auth_user_id", ""), _of_nobody)


graph: Any = _graph_for if served.tokens else _of_nobody
