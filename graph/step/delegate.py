"""The delegate node hands the step to an executor that works on its own; the step is then proven like any other.

The executor's questions become questions of the run, and the answers start its next handoff.
"""

import asyncio
import inspect
import time
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import set_config_context
from langchain_core.tools import StructuredTool, ToolException
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl, Runtime

from donewhen.graph.context import Deps
from donewhen.graph.events import thread_of
from donewhen.graph.executors import nested
from donewhen.graph.executors.executor import (
    Executor,
    Handoff,
    Report,
    Unfinished,
    executor_problem,
    transcript,
)
from donewhen.graph.executors.relay import asks_of, conceal_ask, resume_values
from donewhen.graph.llm.attachments import brief_message
from donewhen.graph.llm.briefs import handover_text
from donewhen.graph.llm.cost import meter_of
from donewhen.graph.llm.speech import Voice
from donewhen.graph.step.calls import EFFECT, StepCalls
from donewhen.graph.step.leave import leave
from donewhen.graph.step.texts import Texts
from donewhen.graph.sync import is_async, run_in_thread
from donewhen.graph.tools.effects import CONFIRMED
from donewhen.graph.tools.toolbox import KnownTool
from donewhen.state.channels import Json, Step, conversation_before
from donewhen.state.ledger import allowance_left, round_seconds
from donewhen.state.private_langgraph import CHECKPOINTER_KEY
from donewhen.state.records import Call, StepChange
from donewhen.state.settings import Settings

NOT_SHOWN = "(The request has images or files attached, which are not shown here.)"


async def delegate(state: Step, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Step:
    """Let the executor work on the brief. Its output becomes one observation, as of a tool with the executor's name."""
    record, name = state["record"], state["step"]["executor"]
    if problem := executor_problem(name, deps.executors):
        return leave(state, runtime, {"status": "failed", "code": "no_executor", "reason": problem})
    executor = deps.executors[name]
    gives_result = executor.passthrough and not state["step"].get("done_when")  # its output is the step's, as it is
    text = state["brief"]
    if executor.remote is not None or gives_result:
        run, today = state["run"], record["today"] or runtime.context.today_text
        needs_past = executor.work is not None and bool(conversation_before(run) or run.get("background"))
        text = handover_text(run, state["step"], today, whole=gives_result and not needs_past)
    new_call: Call = {"id": "", "name": name, "args": {"brief": text}, "delegated": True}
    calls = [call for call in record["calls"] if not call.get("planned")] or [new_call]
    begun: Step = {**state, "record": {**record, "calls": calls, "delegated": True}}
    content = (await brief_message("", state["attachments"], runtime)).content
    attached = content[1:] if isinstance(content, list) else ()  # what stands behind the text
    handoff = replace(_make_handoff(begun, calls[0], runtime, config), attached=attached)
    worker = ExecutorAsTool(executor, handoff, calls[0], deps.secrets)
    handover = StepCalls.of(begun, runtime, config, deps, {name: worker.as_tool()})
    seconds_left = allowance_left(state).get("active_seconds")
    longest = runtime.context.executor_seconds
    handover.seconds = executor.seconds or (longest if seconds_left is None else min(longest, seconds_left))
    begun_at = time.monotonic()
    try:
        update = await handover.run()
    except GraphDrained:
        return handover.keep_begun(round_seconds(time.monotonic() - begun_at))
    return await _take_output(begun, update, runtime) if gives_result else update


def _make_handoff(state: Step, call: Call, runtime: Runtime[Settings], config: RunnableConfig) -> Handoff:
    """Return the executor's input; its brief and keys are added when the call is made."""
    saver = (config.get("configurable") or {}).get(CHECKPOINTER_KEY)
    voice, node_context = Voice(runtime, state["step"]["id"], language=state["language"], inside=True), copy_context()

    def tell(text: str) -> None:
        node_context.copy().run(voice.say, text)

    return Handoff(
        brief="",
        key="",
        first=call.get("first", ""),
        name=call["name"],
        thread_id=thread_of(runtime),
        conversation=state["conversation"],
        answers=resume_values(call),
        context=runtime.context.tool_context,
        saver=saver if isinstance(saver, BaseCheckpointSaver) else None,
        store=runtime.store,
        tell=tell,
        control=runtime.control or RunControl(),
    )


async def _take_output(state: Step, update: Step, runtime: Runtime[Settings]) -> Step:
    """Claim that the output of a passthrough executor is the step's result; without an output, the step fails."""
    if update["record"]["status"] != "running":
        return update
    # Hooks' notes may stand behind the call.
    last = next(entry for entry in reversed(update["journal"]) if entry["source"] == "tool")
    entry = await Texts.of(runtime.store, thread_of(runtime), state).load(last)
    is_lost = entry.get("confirmed") and entry["text"] == CONFIRMED
    if is_lost or not entry["ok"]:
        after: Step = {**state, "record": update["record"], "wrote": update.get("wrote", [])}
        change: StepChange = {"status": "failed", "code": "executor_failed", "reason": entry["text"][:1000]}
        return {**update, **leave(after, runtime, change, update.get("transcript", ()), update.get("spent"))}
    claims = [{"criterion": 1, "met": True, "evidence": [{"observation": entry["id"]}]}]
    arguments = {"result": entry["text"], "goal_check": claims}
    return {**update, "decision": {"kind": "finish_step", "arguments": arguments, "id": "", "whole": True}}


@dataclass(frozen=True)
class ExecutorAsTool:
    """An executor that works on its own, as the only tool of its step."""

    executor: Executor
    handoff: Handoff
    call: Call
    secrets: Sequence[str] = ()

    def as_tool(self) -> KnownTool:
        """Return the executor as a tool with one argument, `brief`.

        Its effects and targets are unknown, so it counts as a write. It needs no approval: the approved plan names the
        executor, whose configuration limits its reach.
        """
        name = self.call["name"]

        async def work(brief: str, config: RunnableConfig) -> tuple[Any, Json]:
            key = str((config.get("metadata") or {}).get(EFFECT, ""))
            return await self._work(
                replace(self.handoff, brief=brief, key=key, first=self.handoff.first or key), config
            )

        async def probe(arguments: Mapping[str, Any], idempotency_key: str) -> Any:
            report = await self._lookup(idempotency_key, str(arguments.get("conversation", "")))
            return report.output if report else False

        about = {"conversation": self.handoff.conversation}
        tool = StructuredTool.from_function(
            coroutine=work,
            name=name,
            description=self.executor.description or name,
            response_format="content_and_artifact",
            metadata={"keyed": self._can_find, "probe": probe, "about": about, "asks": False, "targets": []},
        )
        return KnownTool(tool, "write")

    @property
    def _can_find(self) -> bool:
        """True if the executor can find an earlier handoff by its key."""
        executor = self.executor
        return bool(executor.remote or (executor.graph and nested.is_durable(executor.graph, self.handoff.saver)))

    async def _lookup(self, key: str, conversation: str) -> Report | None:
        """Return the report of an earlier handoff; None if it did not happen. Raises Unfinished if that is unknown."""
        handoff = replace(self.handoff, key=key, first=key, conversation=conversation, config=_without_checkpoints({}))
        if self.executor.graph is not None:
            return await nested.lookup(self.executor.graph, handoff)
        if self.executor.remote is not None:
            return await self.executor.remote.lookup(handoff)
        raise Unfinished("Nothing is kept of what it did.")

    async def _work(self, handoff: Handoff, config: RunnableConfig) -> tuple[Any, Json]:
        """Work apart from this graph: with its callbacks, but without its checkpoints, store and interrupts.

        Return the output; or, if people have to be asked first, their questions as the artifact.
        """
        isolated = _without_checkpoints(config)
        with set_config_context(isolated) as context:
            report = await asyncio.create_task(self._report(replace(handoff, config=isolated)), context=context)
        if (meter := meter_of(isolated)) and not self.call.get("charged"):
            meter.charge_reported(report.messages)
        if report.failure:
            raise ToolException(report.failure)
        position = self.call.get("position", 0)
        if report.unreached:  # under the same position the handoff finds an answer that did arrive after all
            repeated = [{**ask, "unreached": report.unreached} for ask in self.call.get("asks") or ()]
            return "It asks.", {"asks": repeated, "answers": [], "first": handoff.first, "position": position}
        if report.asks:
            asks = [conceal_ask(ask, self.secrets) for ask in asks_of(report.asks)]
            return "It asks.", {"asks": asks, "answers": [], "first": handoff.first, "position": position + 1}
        return report.output, {"transcript": transcript(report.messages)} if len(report.messages) > 1 else {}

    async def _report(self, handoff: Handoff) -> Report:
        if self.executor.graph is not None:
            return await nested.work(self.executor.graph, handoff)
        if handoff.attached:
            handoff = replace(handoff, brief=f"{handoff.brief}\n\n{NOT_SHOWN}")
        if self.executor.remote is not None:
            return await self.executor.remote.work(handoff)
        work: Any = self.executor.work
        output = await work(handoff.brief) if is_async(work) else await run_in_thread(partial(work, handoff.brief))
        output = await output if inspect.isawaitable(output) else output
        messages = [output] if isinstance(output, AIMessage) else []
        return Report(nested.output_of(output, messages), messages=messages)


def _without_checkpoints(config: RunnableConfig) -> RunnableConfig:
    """Return the callbacks, tags and metadata of a config, but not the `run_id` by which LangGraph would go on with the
    last brief.
    """
    metadata = {key: value for key, value in (config.get("metadata") or {}).items() if key != "run_id"}
    callbacks, tags = config.get("callbacks"), config.get("tags") or []
    return {"callbacks": callbacks, "tags": tags, "metadata": metadata, "configurable": {}}
