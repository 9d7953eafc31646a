"""An AG-UI endpoint, for CopilotKit and other AG-UI clients. Run: uvicorn agui_server:app

Needs ag-ui-langgraph and fastapi, and works in the folder where it is started. Pauses come as interrupts with
everything to draw them; any shape of answer resumes.
What is said streams as the messages that stay, under their ids; all other events come as CUSTOM, `donewhen.plan` …
The end is AG-UI 1.0's: an outcome (success, interrupt or cancelled), the tokens by model, RUN_ERROR for a failed run.
"""

from collections.abc import AsyncIterator
from typing import Any

from ag_ui.core import (
    PROTOCOL_VERSION,
    CustomEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
)
from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langchain_core.messages import AIMessageChunk
from langgraph.types import Command

from donewhen import Agent
from donewhen.workspace import workspace_tools

MESSAGES = (None, "submit_plan.speak", "ask_user.question", "answer.text")
"""What is said as a message of its own; the result of a step is that of its card."""

RAW = ("on_chat_model_stream", "on_tool_end")
"""What models and tools give, from which the adapter would make messages that do not stay."""


class Speaking:
    """The graph of an agent for the adapter, which knows chunks of models: it gets what is said as such chunks."""

    def __init__(self, agent: Agent) -> None:
        self._graph = agent.graph

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    async def astream_events(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        """The graph's own events, what is said in place of what its models stream."""
        said = ""
        async for event in self._graph.astream_events(*given, **more, stream_mode=["updates", "custom"]):
            chunk = event["data"].get("chunk")
            part = chunk[-1] if isinstance(chunk, tuple) and chunk[-2] == "custom" else None
            if not (isinstance(part, dict) and "seq" in part):
                part = None  # what a tool wrote is none of our events
            if part is None and event["event"] not in RAW:
                yield event
            elif part and part["type"] == "speech" and part.get("argument") in MESSAGES:
                if said and said != part["id"]:
                    yield _spoken("on_chat_model_end", said, output=None)
                said = part["id"]
                yield _spoken("on_chat_model_stream", said, chunk=AIMessageChunk(part["text"], id=said))
            elif part and part["type"] != "speech":
                yield {**event, "event": "on_custom_event", "name": f"donewhen.{part['type']}", "data": part}
        if said:
            yield _spoken("on_chat_model_end", said, output=None)


def _spoken(kind: str, id: str, **data: Any) -> dict[str, Any]:
    """An event of a model; the adapter makes one message of all that a node says, so each message is a node."""
    return {"event": kind, "name": "donewhen", "run_id": id, "data": data, "metadata": {"langgraph_node": id}}


class Endpoint(LangGraphAgent):
    """The adapter, which by itself says neither how a run ended nor the version, and reads no ids of answers."""

    def _build_command_from_agui_resume(self, entries: list[Any], **_: Any) -> Command[Any]:
        """The adapter's hook for answers: each is for the interrupt that it names, and for no other."""
        cancelled = {"__agui_cancelled__": True}
        answers = {one.interrupt_id: one.payload if one.status == "resolved" else cancelled for one in entries}
        return Command(resume=answers)

    async def run(self, input: RunAgentInput) -> AsyncIterator[Any]:
        """The adapter's events, with the version at the start and the outcome at the end."""
        end: dict[str, Any] = {}
        async for event in super().run(input):
            if isinstance(event, CustomEvent) and event.name == "donewhen.outcome":
                end = event.value
            if isinstance(event, RunStartedEvent):
                event.protocol_version = PROTOCOL_VERSION
            if not end or not isinstance(event, RunFinishedEvent):
                yield event
            elif end["status"] == "failed":
                yield RunErrorEvent(message=end["text"], code=end["code"], usage=event.usage)
            else:
                cancelled = end["status"] == "cancelled"
                event.outcome = RunFinishedCancelledOutcome() if cancelled else RunFinishedSuccessOutcome()
                event.result = {"status": end["status"], "code": end["code"]}  # also for partial and exhausted
                yield event


def serve(agent: Agent) -> FastAPI:
    """The agent at `/agent`, on its own storage."""
    app = FastAPI()
    graph: Any = Speaking(agent)
    endpoint = Endpoint(name="donewhen", graph=graph, emit_interrupt_outcome=True)
    add_langgraph_fastapi_endpoint(app, endpoint, "/agent")
    return app


app = serve(Agent("demo", workspace_tools(".")))
