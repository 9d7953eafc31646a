"""The page's server, for this machine: static files, and an API for whoever holds the token of the printed link.

The token comes in a header and never in a cookie, so no other page can speak for it; only requests that name this
host are answered, so no foreign name can be pointed at it.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from donewhen.agent.page.conversations import Conversations
from donewhen.state.errors import DoneWhenError, StaleAnswer, ThreadBusy, ThreadWaiting, UnknownThread
from donewhen.state.language.scripts import spoken
from donewhen.state.language.texts import catalogue

SCRIPTS = ("page.js", "view.js", "rows.js", "forms.js", "draw.js")
STATIC = {"page.html": "text/html", "page.css": "text/css", **dict.fromkeys(SCRIPTS, "text/javascript")}
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
HEARTBEAT = 15.0
"""Seconds after which a quiet stream says that it is there, so that one whose page has gone ends."""
MOST = 1_000_000
"""Bytes of a request's body."""
Numbered = tuple[int, dict[str, Any]]
PageHandler = Callable[[Conversations, str, Request], Awaitable[Any]]
"""(all conversations, the thread of the path, the request) → what is answered: a response, or something in JSON"""


def page(conversations: Conversations, token: str, hosts: frozenset[str]) -> Starlette:
    """The application. `hosts`: what requests may name as their host, with the port."""
    routes = [
        Route("/", static("page.html")),
        *(Route(f"/{name}", static(name)) for name in STATIC),
        Route("/api/words", words),
        Route("/api/threads", answered(_threads)),
        Route("/api/threads", answered(_start), methods=["POST"]),
        Route("/api/threads/{thread}/events", answered(_events)),
        Route("/api/threads/{thread}/answer", answered(_answer), methods=["POST"]),
        Route("/api/threads/{thread}/go-on", answered(_go_on), methods=["POST"]),
        Route("/api/threads/{thread}/stop", answered(_stop), methods=["POST"]),
        Route("/api/threads/{thread}/observations/{observation}", answered(_observation)),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await conversations.aclose()

    app = Starlette(routes=routes, middleware=[Middleware(Guard, token=token, hosts=hosts)], lifespan=lifespan)
    app.state.conversations = conversations
    return app


class Guard:
    """Refuses foreign hosts and origins, and calls of the API without the token."""

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (why := self._refused(Request(scope))):
            return await PlainTextResponse(why, 403, HEADERS)(scope, receive, send)
        return await self.app(scope, receive, send)

    def _refused(self, request: Request) -> str:
        origin, given = request.headers.get("origin"), request.headers.get("authorization", "")
        if request.headers.get("host", "") not in self.hosts:
            return "This page answers this machine only."
        if origin is not None and origin.removeprefix("http://") not in self.hosts:
            return "Another page may not speak for you here."
        if request.url.path.startswith("/api/") and not secrets.compare_digest(
            given.encode(), f"Bearer {self.token}".encode()
        ):
            return "Open the link that `donewhen chat` printed."
        return ""


def static(name: str) -> Callable[[Request], Awaitable[Response]]:
    """A file of the page."""

    async def give(_: Request) -> Response:
        text = (files("donewhen.agent.page") / "static" / name).read_text("utf-8")
        return Response(text, media_type=f"{STATIC[name]}; charset=utf-8", headers=HEADERS)

    return give


def answered(handler: PageHandler) -> Callable[[Request], Awaitable[Response]]:
    """The handler as Starlette takes it, errors of ours as JSON: `{"error": {"kind", "text"}}`."""

    async def handle(request: Request) -> Response:
        try:
            said = await handler(request.app.state.conversations, request.path_params.get("thread", ""), request)
            return said if isinstance(said, Response) else JSONResponse(said, headers=HEADERS)
        except DoneWhenError as error:
            conflict = isinstance(error, StaleAnswer | ThreadBusy | ThreadWaiting)
            code = 404 if isinstance(error, UnknownThread) else 409 if conflict else 400
            why = {"kind": type(error).__name__, "text": str(error)}
            return JSONResponse({"error": why}, code, headers=HEADERS)

    return handle


async def words(request: Request) -> Response:
    """The page's own words in the first of the wanted languages that there are texts of."""
    wanted = [part.strip() for part in request.query_params.get("languages", "").split(",") if part.strip()]
    language = spoken("", wanted[0]) if wanted else "en"
    said: dict[str, Any] = {"language": language}
    for section in ("plan", "terminal", "meter", "page"):
        said |= catalogue(language)[section]
    return JSONResponse(said, headers=HEADERS)


async def _body(request: Request) -> dict[str, Any]:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST:
            raise DoneWhenError("this is more than a page sends")
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise DoneWhenError("the body must be a JSON object")
    return value


async def _threads(conversations: Conversations, _: str, request: Request) -> Any:
    return await conversations.threads()


async def _start(conversations: Conversations, _: str, request: Request) -> Any:
    body = await _body(request)
    return {"thread": await conversations.start(str(body.get("goal") or ""), body.get("thread") or None)}


async def _answer(conversations: Conversations, thread: str, request: Request) -> Any:
    body = await _body(request)
    await conversations.answer(thread, str(body.get("id") or ""), body.get("answer"))
    return {}


async def _go_on(conversations: Conversations, thread: str, request: Request) -> Any:
    await conversations.go_on(thread, str((await _body(request)).get("steer") or "").strip())
    return {}


async def _stop(conversations: Conversations, thread: str, _: Request) -> Any:
    conversations.stop(thread)
    return {}


async def _observation(conversations: Conversations, thread: str, request: Request) -> Any:
    return await conversations.observation(thread, request.path_params["observation"])


async def _events(conversations: Conversations, thread: str, _: Request) -> Response:
    """Events as lines of JSON, each with its number `n`; it stays open."""
    events = conversations.follow(thread)
    first = await anext(events)  # an unknown thread is refused before anything is sent
    return StreamingResponse(_lines(first, events), media_type="application/x-ndjson", headers=HEADERS)


async def _lines(first: Numbered, events: AsyncIterator[Numbered]) -> AsyncIterator[str]:
    number, event = first
    while True:
        yield json.dumps({"n": number, **event}, ensure_ascii=False, default=str) + "\n"
        coming = asyncio.ensure_future(anext(events))
        try:
            while not (await asyncio.wait({coming}, timeout=HEARTBEAT))[0]:
                yield "\n"
        finally:
            coming.cancel()
        number, event = coming.result()
