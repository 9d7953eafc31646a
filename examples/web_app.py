"""Goals, their events and answers over HTTP: runs outlive the request, the client and the process that took them.

Run: uvicorn --factory web_app:create --workers 4 --timeout-graceful-shutdown 10, with DONEWHEN_STORAGE set. Without
that limit an open stream of events keeps a deployment waiting. Behind a proxy that cuts off a path, name it with
--root-path; nginx needs `proxy_buffering off` and a long `proxy_read_timeout` for events. Needs a model and `pip
install fastapi uvicorn`. With users, pass `user_of`: nobody then reads or answers the goals of another user, except a
question that is for them by `answered_by`: they find it by `GET /questions`, and see its goal until it is answered.
For a folder per user, give `agent.worker` an `open_agent=lambda info:
Agent(tools=workspace_tools(folders[info.owner]), storage=agent.storage)`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Depends, FastAPI, Header, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

from donewhen import Agent, ConfigError, DoneWhenError, GoalError, ResumeError, StorageError, UnknownThread

LATER: Any = {202: {"headers": {"Location": {"description": "The run as it stands.", "schema": {"type": "string"}}}}}
"""What the document of the API says of goals that are taken: where to look."""


class Answer(BaseModel):
    """The answer to the question with this id, as its page has shown it."""

    id: str
    answer: Any
    meanwhile: list[dict[str, str]] = []
    """What the question had as such when it was shown."""


def nobody(_: Request) -> str:
    """For an application with one user."""
    return ""


def create(agent: Agent | None = None, user_of: Callable[[Request], str] = nobody) -> FastAPI:
    """The application, with an agent of your own tools; each process works on what any of them was sent.

    `user_of` says who sends a request, by your own log-in; it raises HTTPException(401) for a stranger.
    """
    agent = agent or Agent(tools=[])

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        async with agent, agent.worker(concurrency=8):
            yield

    app = FastAPI(lifespan=life)

    @app.exception_handler(DoneWhenError)
    async def refused(_: Request, error: DoneWhenError) -> JSONResponse:
        if isinstance(error, ResumeError) and error.is_kept:  # words of somebody who is not asked
            return JSONResponse({"kept": str(error)}, 202)
        codes = {UnknownThread: 404, ResumeError: 409, GoalError: 422, ConfigError: 422, StorageError: 503}
        code = next((codes[kind] for kind in codes if isinstance(error, kind)), 500)
        text = str(error) if code < 500 else "It cannot be done now; try again later."
        return JSONResponse({"error": type(error).__name__, "text": text}, code)

    async def closed_to(thread: str, user: Annotated[str, Depends(user_of)]) -> set[str]:
        """The ids of open questions that are for others. The thread is the user's, or asks them: else UnknownThread."""
        info = await agent.info(thread)
        others = {each["id"] for each in info.pending if info.owner != user and not asks(each, user)}
        if info.owner != user and len(others) == len(info.pending):
            raise UnknownThread(f"no thread {thread!r}")
        return others

    async def own(thread: str, _: Annotated[set[str], Depends(closed_to)]) -> str:
        """The thread, if it is the user's, or asks them."""
        return thread

    @app.get("/questions")
    async def questions(user: Annotated[str, Depends(user_of)], cursor: str | None = None) -> dict[str, Any]:
        """Open questions that the user may answer, the oldest first; with a `cursor` there are more."""
        page = await agent.pending(cursor=cursor)
        theirs = [each for each in page if asks(each, user) or (each["owner"] == user and "answered_by" not in each)]
        return {"questions": theirs, "cursor": page.cursor}

    @app.post("/goals", status_code=202, responses=LATER)
    async def start(
        body: dict[str, Any], request: Request, response: Response, user: Annotated[str, Depends(user_of)]
    ) -> dict[str, Any]:
        """`{goal, id?, thread?}`: with an id of the client's own, what is sent twice is carried out once."""
        id = body.get("id")
        ids = {"request_id": f"{quote(user, safe='')}:{id}" if user and id else id, "thread_id": body.get("thread")}
        thread = await agent.submit(body.get("goal"), owner=user, **ids)
        response.headers["Location"] = f"{request.scope.get('root_path', '')}/goals/{quote(thread, safe='')}"
        return {"thread": thread}

    @app.get("/goals/{thread}")
    async def state(thread: Annotated[str, Depends(own)]) -> dict[str, Any]:
        """The run as it stands; `pending` has what it asks."""
        return (await agent.get(thread)).to_dict()

    @app.get("/goals/{thread}/events")
    async def events(
        thread: Annotated[str, Depends(own)], last_event_id: Annotated[str | None, Header()] = None
    ) -> Response:
        """Server-sent events up to the next question or the end; a browser that comes back goes on where it was."""
        stream = aiter(agent.watch(thread, last_event_id))
        first = asyncio.ensure_future(anext(stream, None))
        await asyncio.wait({first}, timeout=1)
        if first.done() and first.result() is None:
            return Response(status_code=204)  # at the end, it need not come back
        return StreamingResponse(told(first, stream), media_type="text/event-stream")

    @app.post("/goals/{thread}/answers", status_code=202)
    async def answer(
        thread: str,
        body: Answer,
        user: Annotated[str, Depends(user_of)],
        others: Annotated[set[str], Depends(closed_to)],
    ) -> dict[str, Any]:
        """`{id, answer, meanwhile?}` with what the page of the question has shown: a yes counts only for that."""
        if body.id in others:
            raise UnknownThread(f"thread {thread!r} asks you nothing with the id {body.id!r}")
        shown = {"id": body.id, "meanwhile": body.meanwhile}
        return {"thread": await agent.submit_answer(thread, body.answer, question=shown, by=user)}

    return app


def asks(question: Mapping[str, Any], user: str) -> bool:
    """Whether only this user, or one of a role before a colon, may answer it."""
    return question.get("answered_by") in {user, user.partition(":")[0]} - {""}


async def told(first: "asyncio.Future[Any]", stream: AsyncIterator[Any]) -> AsyncIterator[str]:
    """The events, as they are sent."""
    pair = await first
    while pair:
        event, after = pair
        yield f"id: {after}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n"
        pair = await anext(stream, None) if event["type"] != "waiting" else None
