"""Goals, their events and answers over HTTP: runs outlive the request, the client and the process that took them.

Run: uvicorn --factory web_app:create --workers 4 --timeout-graceful-shutdown 10, with DONEWHEN_STORAGE set. Without
that limit an open stream of events keeps a deployment waiting. Needs a model and `pip install fastapi uvicorn`. Who may
do what is for you to decide.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Header, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from donewhen import Agent, ConfigError, DoneWhenError, GoalError, ResumeError, UnknownThread

LATER: Any = {202: {"headers": {"Location": {"description": "The run as it stands.", "schema": {"type": "string"}}}}}
"""What the document of the API says of goals that are taken: where to look."""


def create(agent: Agent | None = None) -> FastAPI:
    """The application, with an agent of your own tools; each process works on what any of them was sent."""
    agent = agent or Agent(tools=[])

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        async with agent, agent.worker(concurrency=8):
            yield

    app = FastAPI(lifespan=life)

    @app.exception_handler(DoneWhenError)
    async def refused(_: Request, error: DoneWhenError) -> JSONResponse:
        codes = {UnknownThread: 404, ResumeError: 409, GoalError: 422, ConfigError: 422}
        code = next((codes[kind] for kind in codes if isinstance(error, kind)), 500)
        return JSONResponse({"error": type(error).__name__, "text": str(error)}, code)

    @app.post("/goals", status_code=202, responses=LATER)
    async def start(body: dict[str, Any], response: Response) -> dict[str, Any]:
        """`{goal, id?, thread?}`: with an id of the client's own, what is sent twice is carried out once."""
        ids = {"request_id": body.get("id"), "thread_id": body.get("thread")}
        thread = await agent.submit(body.get("goal"), **ids)
        response.headers["Location"] = f"/goals/{quote(thread, safe='')}"
        return {"thread": thread}

    @app.get("/goals/{thread}")
    async def state(thread: str) -> dict[str, Any]:
        """The run as it stands; `pending` has what it asks."""
        return (await agent.get(thread)).to_dict()

    @app.get("/goals/{thread}/events")
    async def events(thread: str, last_event_id: str | None = Header(None)) -> StreamingResponse:
        """Server-sent events up to the next question or the end; a browser that comes back goes on where it was."""
        await agent.info(thread)
        return StreamingResponse(told(agent, thread, last_event_id), media_type="text/event-stream")

    @app.post("/goals/{thread}/answers", status_code=202)
    async def answer(thread: str, body: dict[str, Any]) -> dict[str, Any]:
        """`{id, answer}` with the id of what is asked: it is for that, however late or often it comes."""
        return {"thread": await agent.submit_answer(thread, {body["id"]: body["answer"]})}

    return app


async def told(agent: Agent, thread: str, cursor: str | None) -> AsyncIterator[str]:
    """The events after the cursor, as they are sent."""
    async for event, after in agent.watch(thread, cursor):
        yield f"id: {after}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n"
        if event["type"] == "waiting":
            return
