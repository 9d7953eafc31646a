"""The delegate node: an executor that works by itself does so, once, before the step is proven like any other."""

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import set_config_context
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.runtime import Runtime
from pydantic import ValidationError

from donewhen.graph.calls.invoking import Site, left_of
from donewhen.graph.calls.observing import thread_of
from donewhen.graph.context import Deps, Executor
from donewhen.graph.execute.act import carry_out
from donewhen.graph.models.metering import meter_of
from donewhen.graph.tools.toolbox import EffectKind
from donewhen.state.graph_state import Json, Step
from donewhen.state.plan.steps import transcript_key
from donewhen.state.settings import Settings


async def delegate(state: Step, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Step:
    """Let the step's executor work on the brief. Its output becomes one observation, called by the executor's name."""
    record, name = state["record"], state["step"]["executor"]
    executor = deps.executors[name]
    call: Json = {"id": "", "name": name, "args": {"brief": state["brief"]}, "delegated": True}
    now: Step = {**state, "record": {**record, "calls": record.get("calls") or [call], "delegated": True}}
    seconds = executor.seconds or left_of(state).get("active_seconds")
    key = f"{thread_of(runtime)}/{transcript_key(state['step']['id'], record)}"
    return await carry_out(Site(now, runtime, config, deps, seconds), Worker(name, executor, key))


class Worker:
    """An executor that works by itself, as the one tool of its step."""

    def __init__(self, name: str, executor: Executor, thread_id: str) -> None:
        self._executor = executor
        self._thread_id = thread_id
        self._tool = StructuredTool.from_function(
            coroutine=self._work, name=name, description=executor.description or name
        )

    def get(self, name: str) -> BaseTool | None:
        """The executor as a tool of one argument, `brief`."""
        return self._tool

    def effect(self, name: str) -> EffectKind:
        """Nobody knows what it does, so it is done once."""
        return "write"

    def outside(self, name: str) -> bool:
        """The approved plan names the executor; what it may reach is said where it is configured."""
        return False

    def targets(self, name: str, arguments: Mapping[str, Any]) -> set[str]:
        """Unknown."""
        return set()

    async def _work(self, brief: str, config: RunnableConfig) -> Any:
        """Apart from this graph: with its callbacks, but without its checkpoints, store and interrupts."""
        apart: RunnableConfig = {
            "callbacks": config.get("callbacks"),
            "tags": config.get("tags") or [],
            "metadata": config.get("metadata") or {},
            "configurable": {},
        }
        with set_config_context(apart) as context:
            return await asyncio.create_task(self._result(brief, apart), context=context)

    async def _result(self, brief: str, apart: RunnableConfig) -> Any:
        output = await self._output(brief, apart)
        messages = _messages(output)
        if meter := meter_of(apart):
            meter.reported(messages)
        return _said(output, messages)

    async def _output(self, brief: str, apart: RunnableConfig) -> Any:
        if self._executor.graph is not None:
            own: RunnableConfig = {**apart, "configurable": {"thread_id": self._thread_id}}
            return await self._executor.graph.ainvoke({"messages": [HumanMessage(brief)]}, own)
        assert self._executor.work is not None
        found: Any = self._executor.work(brief)
        return await found if inspect.isawaitable(found) else found


def _messages(output: Any) -> list[BaseMessage]:
    """The messages in it; those of a remote graph come as dicts."""
    given = output.get("messages") if isinstance(output, Mapping) else [output]
    return [made for one in given if (made := _message(one))] if isinstance(given, list) else []


def _message(one: Any) -> BaseMessage | None:
    if isinstance(one, Mapping) and one.get("type") == "ai":
        with suppress(ValidationError):
            return AIMessage.model_validate(dict(one))
    return one if isinstance(one, BaseMessage) else None


def _said(output: Any, messages: Sequence[BaseMessage]) -> Any:
    """What it came to: the text of its last message; raises ToolException if it stopped to ask."""
    if isinstance(output, Mapping) and (pauses := output.get("__interrupt__")):
        raise ToolException("stopped to ask: " + "; ".join(str(getattr(one, "value", one))[:500] for one in pauses))
    spoken = [message for message in messages if message.text.strip()]
    if spoken:
        return ([message for message in spoken if isinstance(message, AIMessage)] or spoken)[-1].text
    return {k: v for k, v in output.items() if k != "messages"} if isinstance(output, Mapping) else output
