"""A remote agent over A2A as an executor: `pip install 'donewhen[a2a]' 'a2a-sdk[http-server]' uvicorn`. Without a key.

The server is made here with the protocol's SDK; yours is elsewhere, and only its address is needed.
"""

import asyncio
import socket

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette

from donewhen import Agent
from donewhen.testing import ScriptedModel, finish_step, submit_plan


class Archive(AgentExecutor):
    """Wants to know the year, then answers."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.message.task_id, context.message.context_id)
        await updater.start_work()
        if context.current_task is None:
            await updater.requires_input(updater.new_agent_message([new_text_part("Of which year?")]))
        else:
            await updater.add_artifact([new_text_part(f"In {context.get_user_input()} there were 12 storms.")])
            await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


def served(port: int) -> uvicorn.Server:
    """The archive on this machine."""
    card = AgentCard(
        name="Archive",
        description="Knows the weather of every year.",
        version="1.0",
        supported_interfaces=[
            AgentInterface(url=f"http://127.0.0.1:{port}/", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="storms", name="storms", description="counts the storms of a year", tags=["weather"])],
    )
    handler = DefaultRequestHandler(Archive(), InMemoryTaskStore(), card)
    app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")])
    return uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))


async def main() -> None:
    """Start the archive, let it work on a step, and answer what it asks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = served(port)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - it has no event to wait for
        await asyncio.sleep(0.01)
    model = ScriptedModel(
        roles={
            "triage": [submit_plan([{"content": "count the storms", "executor": "archive"}])],
            "execute": [finish_step("There were 12 storms in 1987.", ("s1.2", "In 1987 there were 12 storms"))],
        }
    )
    executors = {"archive": f"a2a:http://127.0.0.1:{port}"}
    async with Agent(model, executors=executors, storage="memory:", settings={"confirm": "never"}) as agent:
        run = await agent.start("How many storms were there?")
        print(f"the archive asks: {run.pending[0]['question']}")
        run = await agent.resume(run, "1987")
        print(f"{run.status}: {run.answer}")
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
