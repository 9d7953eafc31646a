"""An A2A agent of its own process, made with the protocol's SDK, for tests.

It does what a word in the request says: asks, wants credentials, fails, takes its time, pays. LOG gets the id of every
message that arrives, `LOG.text` the text of the last one, `LOG.paid` a line for every payment, and `LOG.cancelled` the
id of every task that was cancelled. After LOG may come the port that its card names, and `quiet` for one that does not
stream, `unlisted` for one that lists no tasks.
"""

import asyncio
import socket
from pathlib import Path

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    ListTasksRequest,
    ListTasksResponse,
    UnsupportedOperationError,
)
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp


class Librarian(AgentExecutor):
    """Counts the requests of each conversation, and does what the word says."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._heard: dict[str, int] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text, message = context.get_user_input(), context.message
        assert message is not None
        with self._log.open("a") as log:
            log.write(f"{message.message_id}\n")
        self._log.with_suffix(".text").write_text(text)
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(message))
            self._heard[message.context_id] = self._heard.get(message.context_id, 0) + 1
        updater = TaskUpdater(event_queue, message.task_id, message.context_id)

        def says(words: str):  # type: ignore[no-untyped-def]
            return updater.new_agent_message([new_text_part(words)])

        await updater.start_work(says("Looking at the shelves."))
        if "for hours" in text:
            await asyncio.sleep(3600)
        if "slowly" in text:
            await asyncio.sleep(0.5)
        if "pay" in text:
            await asyncio.sleep(1)
            with self._log.with_suffix(".paid").open("a") as paid:
                paid.write("12 EUR\n")
            if "rest" in text:
                await asyncio.sleep(1)  # so that it can be cut off between the payment and the word of it
        if context.current_task is not None:
            await updater.add_artifact([new_text_part(f"three papers on {text}")])
            await updater.complete()
        elif "ask first" in text:
            await updater.requires_input(says("Which field?"))
        elif "secret things" in text:
            await updater.requires_auth(says("the archive is locked"))
        elif "fail please" in text:
            await updater.failed(says("the library burnt down"))
        elif "refuse this" in text:
            await updater.reject(says("not my field"))
        else:
            await updater.add_artifact([new_text_part(f"three papers, request {self._heard[message.context_id]}")])
            await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.current_task is not None
        task = context.current_task
        with self._log.with_suffix(".cancelled").open("a") as log:
            log.write(f"{task.id}\n")
        await TaskUpdater(event_queue, task.id, task.context_id).cancel()


class Unlisted(DefaultRequestHandler):
    """Lists no tasks."""

    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        raise UnsupportedOperationError


def app(port: int, log: Path, *more: str) -> Starlette:
    """The server."""
    card = AgentCard(
        name="Librarian",
        description="Finds papers.",
        version="1.0",
        supported_interfaces=[
            AgentInterface(url=f"http://127.0.0.1:{port}/", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(streaming="quiet" not in more),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="find", name="find", description="finds papers by <field>", tags=["papers"])],
    )
    kind = Unlisted if "unlisted" in more else DefaultRequestHandler
    handler = kind(Librarian(log), InMemoryTaskStore(), card)
    routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")]
    return Starlette(routes=routes, middleware=[Middleware(Guard, locked=log.with_suffix(".locked"))])


class Guard(BaseHTTPMiddleware):
    """While the file `locked` is there, only who has the key is answered."""

    def __init__(self, app: ASGIApp, locked: Path) -> None:
        super().__init__(app)
        self._locked = locked

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        if self._locked.exists() and request.headers.get("authorization") != "Bearer key":
            return JSONResponse({"error": "who are you?"}, 401)
        return await call_next(request)


def serve(door: socket.socket, log: str, *more: str) -> None:
    """Serve at this door until the process is ended."""
    named = next((int(each) for each in more if each.isdigit()), door.getsockname()[1])
    uvicorn.Server(uvicorn.Config(app(named, Path(log), *more), log_level="warning")).run([door])
