"""The web application of the page: static files, and an API that needs the token of the printed link.

The token comes in a header and never in a cookie, so no other page can use it. Requests to other host names are
refused, so it is of no use to point a foreign name to this machine.
"""

import asyncio
import json
import secrets
import tempfile
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

from donewhen import DoneWhenError, ResumeError, UnknownThread
from donewhen.agent.page.conversations import BegunElsewhere, Conversations
from donewhen.agent.page.dropping import keep_file, picture_type
from donewhen.clients import catalogue, is_too_deep, known_language, storable

SCRIPTS = (
    "page.js", "server.js", "threads.js", "composer.js", "drafts.js", "view.js", "rows.js", "forms.js", "fields.js",
    "answer.js", "markdown.js", "draw.js", "reader.js", "libraries.js",
)  # fmt: skip
STATIC = {"page.html": "text/html", "page.css": "text/css", **dict.fromkeys(SCRIPTS, "text/javascript")}
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types page",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
HEARTBEAT = 15.0
"""Seconds after which an idle stream sends an empty line, so that it ends if its page is gone."""
MOST = 1_000_000
"""The most bytes of a request's body."""
DEEPEST = 60
"""The most nested brackets in a request's body; an edited plan has about ten."""
LISTED, MOST_LISTED = 50, 2000
"""Threads in the list: by default, and at most."""
MOST_OF_FILE = 500_000_000
"""The most bytes of a dropped file."""
MOST_OF_RECEIPT = 20_000_000
"""The most bytes of a receipt to check."""
Numbered = tuple[int, dict[str, Any]]
PageHandler = Callable[[Conversations, str, Request], Awaitable[Any]]
"""(all conversations, the path's thread, the request) → a response, or a JSON value"""


def page(conversations: Conversations, token: str, hosts: frozenset[str]) -> Starlette:
    """Return the application. `hosts` are the allowed host names of requests, with the port."""
    routes = [
        Route("/", serve_static("page.html")),
        *(Route(f"/{name}", serve_static(name)) for name in STATIC),
        Route("/api/words", serve_texts, methods=["GET", "POST"]),
        Route("/api/about", to_handler(_about)),
        Route("/api/files", to_handler(_drop), methods=["POST"]),
        Route("/api/receipts", to_handler(_verify), methods=["POST"]),
        Route("/api/threads", to_handler(_threads)),
        Route("/api/threads", to_handler(_start), methods=["POST"]),
        Route("/api/threads/{thread}", to_handler(_delete), methods=["DELETE"]),
        Route("/api/threads/{thread}/title", to_handler(_rename), methods=["POST"]),
        Route("/api/threads/{thread}/events", to_handler(_events)),
        Route("/api/threads/{thread}/answer", to_handler(_answer), methods=["POST"]),
        Route("/api/threads/{thread}/plan-text", to_handler(_plan_text), methods=["POST"]),
        Route("/api/threads/{thread}/go-on", to_handler(_go_on), methods=["POST"]),
        Route("/api/threads/{thread}/tell", to_handler(_tell), methods=["POST"]),
        Route("/api/threads/{thread}/receipt", to_handler(_receipt)),
        Route("/api/threads/{thread}/undo", to_handler(_undo), methods=["POST"]),
        Route("/api/threads/{thread}/stop", to_handler(_stop), methods=["POST"]),
        Route("/api/threads/{thread}/observations/{observation}", to_handler(_observation)),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await conversations.aclose()

    app = Starlette(routes=routes, middleware=[Middleware(Guard, token=token, hosts=hosts)], lifespan=lifespan)
    app.state.conversations = conversations
    return app


class Guard:
    """Refuses foreign hosts and origins, and API calls without the token."""

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self.app: ASGIApp = app
        self.token: str = token
        self.hosts: frozenset[str] = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (why := self._refusal(Request(scope))):
            language = known_language(*Request(scope).headers.get("accept-language", "").replace(";", ",").split(","))
            return await PlainTextResponse(catalogue(language)["page"][why], 403, HEADERS)(scope, receive, send)
        return await self.app(scope, receive, send)

    def _refusal(self, request: Request) -> str:
        """Return the name of the text that says why a request is refused; "" if it is not."""
        origin, token = request.headers.get("origin"), request.headers.get("authorization", "")
        if request.headers.get("host", "") not in self.hosts:
            return "this_machine"
        if not request.url.path.startswith("/api/"):
            return ""  # the page itself holds nothing: it says why it is not answered
        if origin is not None and origin.removeprefix("http://") not in self.hosts:
            is_own = request.headers.get("sec-fetch-site") == "same-origin"  # behind a proxy that names another host
            return "this_machine" if is_own else "other_page"
        if not secrets.compare_digest(token.encode(), f"Bearer {self.token}".encode()):
            return "link"
        return ""


def serve_static(name: str) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that serves a file of the page."""

    async def serve(_: Request) -> Response:
        text = (files("donewhen.agent.page") / "static" / name).read_text("utf-8")
        return Response(text, media_type=f"{STATIC[name]}; charset=utf-8", headers=HEADERS)

    return serve


def to_handler(handler: PageHandler) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler for Starlette, with our errors as JSON: `{"error": {"kind", "text"}}`, a `place` too."""

    async def handle(request: Request) -> Response:
        try:
            result = await handler(request.app.state.conversations, request.path_params.get("thread", ""), request)
            return result if isinstance(result, Response) else JSONResponse(storable(result), headers=HEADERS)
        except DoneWhenError as error:
            code = 404 if isinstance(error, UnknownThread) else 409 if isinstance(error, ResumeError) else 400
            place = {"place": error.place} if isinstance(error, BegunElsewhere) else {}
            problem = {"kind": type(error).__name__, "text": str(error), **place}
            return JSONResponse({"error": storable(problem)}, code, headers=HEADERS)

    return handle


async def serve_texts(request: Request) -> Response:
    """Return the page's texts in the first of the requested languages that has a catalogue."""
    language = known_language(*request.query_params.get("languages", "").split(","))
    texts: dict[str, Any] = {"language": language, "source": catalogue(language)["source"]}
    texts["once_more"] = catalogue(language)["options"]["once_more"]
    for section in ("plan", "terminal", "meter", "page"):
        texts |= catalogue(language)[section]
    return JSONResponse(texts, headers=HEADERS)


async def _read_bytes(request: Request, most: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise DoneWhenError(f"the body must have at most {most} bytes")
    return bytes(body)


async def _read_body(request: Request) -> dict[str, Any]:
    body = await _read_bytes(request, MOST)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or is_too_deep(value, DEEPEST):
        raise DoneWhenError(f"the body must be a JSON object, nested at most {DEEPEST} times")
    return value


async def _about(conversations: Conversations, _: str, request: Request) -> Any:
    return conversations.about()


async def _threads(conversations: Conversations, _: str, request: Request) -> Any:
    limit = request.query_params.get("limit", "")
    count = min(int(limit), MOST_LISTED) if limit.isascii() and limit.isdecimal() and len(limit) < 10 else LISTED
    return await conversations.threads(request.query_params.get("search", ""), count)


async def _start(conversations: Conversations, _: str, request: Request) -> Any:
    body = await _read_body(request)
    goal, *others = (str(body.get(name) or "") for name in ("goal", "thread", "instead_of", "model"))
    names = body.get("pictures")
    pictures = (
        [name for name in names if isinstance(name, str) and picture_type(name)] if isinstance(names, list) else []
    )
    thread, instead_of, model = (each or None for each in others)
    return {"thread": await conversations.start(goal, thread, instead_of, model, pictures)}


async def _answer(conversations: Conversations, thread: str, request: Request) -> Any:
    body = await _read_body(request)
    await conversations.answer(thread, str(body.get("id") or ""), body.get("answer"))
    return {}


async def _plan_text(conversations: Conversations, thread: str, request: Request) -> Any:
    body = await _read_body(request)
    edited = {key: body.get(key) for key in ("plan", "limits")}
    return await conversations.plan_text(thread, str(body.get("id") or ""), edited)


async def _go_on(conversations: Conversations, thread: str, request: Request) -> Any:
    await conversations.go_on(thread, str((await _read_body(request)).get("steer") or "").strip())
    return {}


async def _tell(conversations: Conversations, thread: str, request: Request) -> Any:
    await conversations.tell(thread, str((await _read_body(request)).get("text") or ""))
    return {}


async def _undo(conversations: Conversations, thread: str, request: Request) -> Any:
    body = await _read_body(request)
    step = str(body.get("step") or "") or None
    return await conversations.undo(thread, step, dry_run=body.get("dry_run") is not False)


async def _rename(conversations: Conversations, thread: str, request: Request) -> Any:
    await conversations.rename(thread, str((await _read_body(request)).get("title") or ""))
    return {}


async def _delete(conversations: Conversations, thread: str, _: Request) -> Any:
    await conversations.delete(thread)
    return {}


async def _drop(conversations: Conversations, _: str, request: Request) -> Any:
    """Save the body as a file of the folder; return its name."""
    if conversations.folder is None:
        raise DoneWhenError("this agent has no folder for files: start it with one")
    with tempfile.TemporaryFile() as content:
        async for chunk in request.stream():
            if content.tell() + len(chunk) > MOST_OF_FILE:
                raise DoneWhenError(f"a file may have at most {MOST_OF_FILE // 1_000_000} MB")
            content.write(chunk)
        content.seek(0)
        name = await asyncio.to_thread(keep_file, conversations.folder, request.query_params.get("name", ""), content)
    return {"name": name, "picture": bool(picture_type(name))}


async def _receipt(conversations: Conversations, thread: str, _: Request) -> Any:
    return await conversations.receipt(thread)


async def _verify(conversations: Conversations, _: str, request: Request) -> Any:
    return await conversations.verify(await _read_bytes(request, MOST_OF_RECEIPT))


async def _stop(conversations: Conversations, thread: str, _: Request) -> Any:
    conversations.stop(thread)
    return {}


async def _observation(conversations: Conversations, thread: str, request: Request) -> Any:
    return await conversations.observation(thread, request.path_params["observation"])


async def _events(conversations: Conversations, thread: str, _: Request) -> Response:
    """Return a stream of events as lines of JSON, each with its number `n`; it stays open."""
    events = conversations.follow(thread)
    first = await anext(events)  # an unknown thread is refused before anything is sent
    return StreamingResponse(_event_lines(first, events), media_type="application/x-ndjson", headers=HEADERS)


async def _event_lines(first: Numbered, events: AsyncIterator[Numbered]) -> AsyncIterator[str]:
    number, event = first
    while True:
        yield json.dumps(storable({"n": number, **event}), ensure_ascii=False, default=str) + "\n"
        coming = asyncio.ensure_future(anext(events))
        try:
            while not (await asyncio.wait({coming}, timeout=HEARTBEAT))[0]:
                yield "\n"
        finally:
            coming.cancel()
        try:
            number, event = coming.result()
        except StopAsyncIteration:  # the thread was deleted
            return
