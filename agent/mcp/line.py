"""The line to an MCP server, between the SDK and its transport: which call a message belongs to, and how it arrived.

The SDK turns everything that goes wrong into the same kind of error. Only here one can see whether a request was sent,
whether an error is the server's own, and what the server printed that is no message.
"""

import json
import logging
import math
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from donewhen.graph.tools.certain import NO_REFUSALS, refuses_request
from donewhen.state.values import clean_text, map_texts

if TYPE_CHECKING:
    import httpx2
    from mcp.shared.message import SessionMessage
    from mcp.types import ErrorData

PROBE_SECONDS = 3.0
"""Seconds of silence after which a server is taken for one that does not know `server/discover`."""
MOST_DIRT = 3
"""The most lines of a session of which people are told that they are no messages."""
MOST_CHARS = 10_000_000
"""The most characters of a message over several lines."""
READABLE = ("application/json", "text/event-stream")
"""The content types in which a server can say something."""
_ODD = re.compile(rb"""\A\s*\[|"error"\s*:\s*"|"code"\s*:\s*(?:"|-?\d+[.eE])|\\u[dD][89a-fA-F]""")
"""Marks of messages that the SDK may be unable to read: several in a list, an error code as text, half a character."""
log: logging.Logger = logging.getLogger("donewhen.tools")


@dataclass(eq=False, kw_only=True)
class Exchange:
    """The requests of one call, and what came back."""

    sent: bool = False
    """True if a request may have reached the server."""
    error: "ErrorData | None" = None
    """The error with which the transport answered: the server's, or, over HTTP, perhaps one of the SDK's own."""
    reply: "httpx2.Response | None" = None
    """The last HTTP response to it; None over other transports."""

    @property
    def has_lost_its_session(self) -> bool:
        """True if a remote server did not know the session, as after a restart, and so did nothing."""
        reply = self.reply
        return reply is not None and reply.status_code == 404 and "mcp-session-id" in reply.request.headers

    @property
    def may_have_lost_its_session(self) -> bool:
        """True if a remote server refused the request without recognizing its session, as some do after a restart."""
        reply = self.reply
        if reply is None or reply.status_code not in (400, 401, 410) or "mcp-session-id" not in reply.request.headers:
            return False
        try:
            body = reply.json()
        except Exception:  # not JSON, or not read
            return True
        return not isinstance(body, dict) or body.get("id") is None

    @property
    def was_refused(self) -> bool:
        """True if the server said, in its own words, that it did not do it."""
        if self.error is None or (reply := self.reply) is None:
            return self.error is not None and refuses_request(self.error.code)
        if reply.request.method == "POST" and 400 <= reply.status_code < 500:
            return reply.status_code not in NO_REFUSALS
        return self._is_readable(reply) and refuses_request(self.error.code)

    def _is_readable(self, reply: "httpx2.Response") -> bool:
        """Return whether the error can be the server's own: the SDK makes one of each response that it cannot read."""
        from mcp.types import PARSE_ERROR

        assert self.error is not None
        kind = reply.headers.get("content-type", "").lower()
        silent = reply.status_code == 202 or 300 <= reply.status_code < 400
        return not silent and kind.startswith(READABLE) and self.error.code != PARSE_ERROR


current: ContextVar[Exchange | None] = ContextVar("mcp_exchange", default=None)
"""The exchange of this context: requests that are sent in it, and questions that arrive in it, belong to it."""


class Line:
    """Both directions of a session's transport."""

    def __init__(self, server: str, left_out: dict[str, str]) -> None:
        """`left_out` receives listed tools that cannot be used, each with the reason."""
        import anyio
        from mcp.shared.message import SessionMessage

        self._server, self._left_out = server, left_out
        self._reading: Any = None
        self._writing: Any = None
        self._open = dict[str, tuple[str, Exchange | None]]()
        """The method and the exchange of each request that has no answer yet, by its id."""
        self._waiting = anyio.CancelScope()
        self._probe: Any = None
        """The id of the request that asks whether the server knows the newest protocol."""
        self._until = math.inf
        """The deadline for the answer to the probe."""
        self._begun, self._dirt = "", 0
        """The part that has arrived of a message over several lines."""
        self._more = deque[SessionMessage]()
        """Messages that came together with another one."""

    @asynccontextmanager
    async def carry(self, transport: Any) -> AsyncIterator[tuple[Self, "_Writing"]]:
        """Open the transport, and yield the two streams that the SDK takes."""
        async with transport as (self._reading, self._writing):
            yield self, _Writing(self)

    # What is sent -------------------------------------------------------------------------------------------------

    async def send(self, item: "SessionMessage") -> None:
        """Send a message, noting for which call."""
        import anyio
        from mcp.types import JSONRPCRequest

        request, exchange = item.message, current.get()
        before = exchange.sent if exchange else False
        if isinstance(request, JSONRPCRequest):
            self._open[str(request.id)] = request.method, exchange
            if request.method == "server/discover":
                self._probe, self._until = request.id, anyio.current_time() + PROBE_SECONDS
                self._waiting.deadline = self._until
            if exchange:
                exchange.sent = True
        try:
            await self._writing.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            if exchange:
                exchange.sent = before
            raise

    async def close_sending(self) -> None:
        """Close the direction to the server."""
        await self._writing.aclose()

    # What comes ---------------------------------------------------------------------------------------------------

    @property
    def last_context(self) -> Any:
        """The context in which the transport received the last message, where it tells."""
        return getattr(self._reading, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "SessionMessage":
        """Return the next message; report and skip lines that are no messages."""
        import anyio

        while True:
            if self._more:
                return self._note(self._more.popleft())
            with anyio.CancelScope(deadline=self._until) as self._waiting:  # `send` may set an earlier one
                item = await self._reading.__anext__()
            if self._waiting.cancelled_caught:
                return self._answer_probe()
            if (message := self._reread(item) if isinstance(item, Exception) else item) is not None:
                self._begun = ""
                return self._note(message)

    async def receive(self) -> "SessionMessage":
        """Return the next message."""
        return await self.__anext__()

    async def aclose(self) -> None:
        """Close the direction from the server."""
        await self._reading.aclose()

    async def __aenter__(self) -> Self:
        await self._reading.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._reading.__aexit__(*error)

    def _answer_probe(self) -> "SessionMessage":
        """Return what a server that lacks `server/discover` answers, after which the SDK tries `initialize`."""
        from mcp.types import METHOD_NOT_FOUND

        self._until = math.inf
        return _error(self._probe, METHOD_NOT_FOUND, "no answer")

    def _note(self, item: "SessionMessage") -> "SessionMessage":
        """Note an answer in the exchange of its call, and mend a list of tools."""
        from mcp.types import JSONRPCError, JSONRPCResponse

        message = item.message
        if not isinstance(message, JSONRPCError | JSONRPCResponse):
            return item
        if message.id is None and len(self._open) == 1:  # the server could not even read the id
            return _error(next(iter(self._open)), message.error.code, message.error.message)
        method, exchange = self._open.pop(str(message.id), ("", None))
        if method == "server/discover":
            self._until = math.inf
        if exchange and isinstance(message, JSONRPCError):
            exchange.error = message.error
        if isinstance(message, JSONRPCResponse):
            if method == "tools/list":
                message.result = mend_tools(message.result, self._leave_out)
            elif method == "initialize":
                message.result = mend_start(message.result)
            elif method == "tools/call":
                message.result = mend_result(message.result)
        return item

    def _reread(self, fault: Exception) -> "SessionMessage | None":
        """Return the message in a line that the SDK could not read, or an error for it; None if it is no message."""
        value: Any = _input(fault)
        if isinstance(value, str):
            value = self._read_line(value)
        self._take(value)
        if self._more:
            return self._more.popleft()
        if not self._begun:
            self._report(str(_input(fault)) if _input(fault) is not None else f"{type(fault).__name__}: {fault}")
        return None

    def _take(self, value: Any) -> None:
        """Keep the messages in a value for the SDK: one, or a list of several, which was allowed until June 2025."""
        from mcp.shared.message import SessionMessage
        from mcp.types import PARSE_ERROR, jsonrpc_message_adapter
        from pydantic import ValidationError

        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, dict):
                continue
            try:
                self._more.append(SessionMessage(jsonrpc_message_adapter.validate_python(mend_message(each))))
            except (ValidationError, RecursionError):
                if str(id := each.get("id")) in self._open and "method" not in each:
                    self._open.pop(str(id))
                    self._more.append(_error(id, PARSE_ERROR, f"its answer cannot be read: {_shorten(each)}"))

    async def on_response(self, response: "httpx2.Response") -> None:
        """Mend the body of an HTTP response when it is read, because the SDK takes only one message of it."""
        kind, read = response.headers.get("content-type", "").lower(), response.aiter_bytes
        if response.request.method == "POST" and kind.startswith(READABLE):
            mended = self._mend_body if kind.startswith(READABLE[0]) else _mend_events
            response.aiter_bytes = lambda *size, **sizes: mended(read(*size, **sizes))  # type: ignore[method-assign]

    async def _mend_body(self, parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield the answer in a body; keep its other messages for the next reads."""
        body = b"".join([part async for part in parts])
        messages = _messages_in(body)
        answer = next((each for each in messages if "method" not in each), None)
        self._take([each for each in messages if each is not answer])
        yield body if answer is None else json.dumps(answer).encode()

    def _read_line(self, line: str) -> Any:
        """Return the JSON value in a line, or in it and the lines before, as far as it can be read."""
        from pydantic_core import from_json

        with suppress(ValueError, RecursionError):
            return json.loads(line)  # it takes halves of surrogate pairs
        self._begun = f"{self._begun}\n{line}" if self._begun else line if line.strip() == "{" else ""
        if self._begun:
            if line.rstrip() == "}":
                whole, self._begun = self._begun, ""
                with suppress(ValueError, RecursionError):
                    return json.loads(whole)
            self._begun = self._begun if len(self._begun) < MOST_CHARS else ""
            return None
        for part in (line, line[:200]):  # the second for what is nested too deeply
            with suppress(ValueError):
                return from_json(part, allow_partial=True)
        return None

    def _leave_out(self, name: str, why: str) -> None:
        log.warning("the MCP server %r: %s; it is left out", self._server, why)
        self._left_out[name] = why

    def _report(self, text: str) -> None:
        if not text.strip():
            return
        self._dirt += 1
        if self._dirt <= MOST_DIRT:
            more = "; more such lines are not shown" if self._dirt == MOST_DIRT else ""
            log.warning("the MCP server %r sent what is no message: %s%s", self._server, _shorten(text), more)


class _Writing:
    """The direction to the server, as the SDK takes it."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def send(self, item: "SessionMessage") -> None:
        """Send a message."""
        await self._line.send(item)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._line.close_sending()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.aclose()


def _input(fault: Exception) -> Any:
    """Return the line, or its value, that a validation error is about; None for another error."""
    from pydantic import ValidationError

    return fault.errors(include_url=False)[0]["input"] if isinstance(fault, ValidationError) else None


def _error(id: Any, code: int, message: str) -> "SessionMessage":
    from mcp.shared.message import SessionMessage
    from mcp.types import ErrorData, JSONRPCError

    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=code, message=message)))


def _shorten(value: Any) -> str:
    text = " ".join(str(value).split())
    return repr(text if len(text) <= 200 else f"{text[:200]}…")


async def _mend_events(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield a stream of events with one message in each, answers last, because the SDK reads no further."""
    begun = list[bytes]()
    async for part in parts:
        *lines, rest = part.split(b"\n")
        for line in lines:
            yield _mend_event(b"".join([*begun, line])) + b"\n"
            begun = []
        begun.append(rest)
    yield _mend_event(b"".join(begun))


def _mend_event(line: bytes) -> bytes:
    if not line.startswith(b"data:") or not (messages := _messages_in(line[5:])):
        return line
    messages.sort(key=lambda each: "method" not in each)
    return b"\n\n".join(b"data: " + json.dumps(each).encode() for each in messages)


def _messages_in(text: bytes) -> list[dict[str, Any]]:
    """Return the messages in a text that only this module can read; [] if the SDK can, or if nobody can."""
    if _ODD.search(text):
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
            return [
                mend_message(each) for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)
            ]
    return []


# What servers leave out ----------------------------------------------------------------------------------------------


def mend_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with whole characters only, and with an error whose code is a number and whose message is text.

    A code in words becomes the beginning of the error's message; it does not count as proof that nothing was done.
    """
    mended: dict[str, Any] = map_texts(message, clean_text)
    if (error := mended.get("error")) is None:
        return mended
    fields = error if isinstance(error, dict) else {"message": error}
    code, text = fields.get("code", 0), fields.get("message") or ""
    text = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    with suppress(ValueError, TypeError, OverflowError):
        number = float(code)
        return {**mended, "error": {**fields, "code": int(number) if number.is_integer() else 0, "message": text}}
    return {**mended, "error": {**fields, "code": 0, "message": f"{code}: {text}" if text else str(code)}}


def mend_start(result: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to `initialize` with a name and a version of the server, and what it can do."""
    info = result.get("serverInfo")
    about = without_nulls(info) if isinstance(info, dict) else {}
    named = {key: about[key] if isinstance(about.get(key), str) else "" for key in ("name", "version")}
    abilities = {key: _object(each) for key, each in (result.get("capabilities") or {}).items()}
    return {**without_nulls(result), "capabilities": abilities, "serverInfo": {**about, **named}}


def mend_result(result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a call in the form that the SDK accepts.

    Nulls are left out; missing content is an empty list, and a single block a list of it; data that are no object are
    named `result`.
    """
    mended = _without_odd_marks(without_nulls(result))
    if isinstance(blocks := mended.get("content"), dict):
        blocks = [blocks]
    if isinstance(blocks, list):
        mended["content"] = [_without_odd_marks(each) if isinstance(each, dict) else each for each in blocks]
    if (data := mended.get("structuredContent")) is None:
        return mended
    return {"content": [], **mended, "structuredContent": data if isinstance(data, dict) else {"result": data}}


def _without_odd_marks(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a result or a block without annotations that are no object: PHP writes empty ones as lists."""
    return {key: each for key, each in fields.items() if key not in ("_meta", "annotations") or isinstance(each, dict)}


def _object(value: Any) -> Any:
    """Return an empty list as the empty object that PHP means by it."""
    return {} if value == [] else value


def without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


# Lists of tools -------------------------------------------------------------------------------------------------------

HINT_KINDS: dict[str, type] = {
    "title": str,
    "readOnlyHint": bool,
    "destructiveHint": bool,
    "idempotentHint": bool,
    "openWorldHint": bool,
}


def mend_tools(result: dict[str, Any], leave_out: Callable[[str, str], None]) -> dict[str, Any]:
    """Return a list of tools without the mistakes for which the SDK would refuse the whole list."""
    listed = result.get("tools")
    tools = [_mend_tool(each, leave_out) for each in listed] if isinstance(listed, list) else []
    cursor = result.get("nextCursor")
    rest = {key: value for key, value in result.items() if key not in ("tools", "nextCursor")}
    mended = {**rest, "tools": [tool for tool in tools if tool]}
    return {**mended, "nextCursor": cursor} if isinstance(cursor, str) and cursor else mended


SCHEMA_DEPTH = 40
"""The levels of a schema that are mended."""


def _mend_schema(node: Any, depth: int = 0) -> Any:
    """Return a schema with empty objects for empty lists, without nulls, and with types in lower case.

    `"required": true` in a property, as in draft 3, becomes the `required` of its object.
    """
    if depth == 0 and node is None:
        return {}
    node = _object(node)
    if not isinstance(node, dict) or depth > SCHEMA_DEPTH:
        return node
    mended = {key: each for key, each in node.items() if each is not None or key in ("default", "const")}
    if isinstance(kind := mended.get("type"), str):
        mended["type"] = kind.lower()
    for key in ("properties", "$defs", "definitions"):
        if isinstance(named := _object(mended.get(key)), dict):
            mended[key] = {name: _mend_schema(each, depth + 1) for name, each in named.items()}
    for key in ("items", "additionalProperties"):
        if isinstance(mended.get(key), dict):
            mended[key] = _mend_schema(mended[key], depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(mended.get(key), list):
            mended[key] = [_mend_schema(each, depth + 1) for each in mended[key]]
    needed = []
    for name, each in (mended.get("properties") or {}).items():
        if isinstance(each, dict) and isinstance(each.get("required"), bool):
            needed += [name] if each.pop("required") else []
    if needed:
        mended["required"] = list(dict.fromkeys([*(mended.get("required") or ()), *needed]))
    return mended


def _mend_tool(tool: Any, leave_out: Callable[[str, str], None]) -> dict[str, Any] | None:
    name = tool.get("name") if isinstance(tool, dict) else None
    if not isinstance(name, str) or not name:
        leave_out(_shorten(tool), f"a tool without a name, {_shorten(tool)}")
        return None
    schema = _mend_schema(tool.get("inputSchema", ""))
    if not isinstance(schema, dict):
        leave_out(name, f"its tool {name!r} has no inputSchema")
        return None
    hints, output = tool.get("annotations"), tool.get("outputSchema")
    mended: dict[str, Any] = {"name": name, "inputSchema": {**schema, "type": "object"}}
    mended |= {key: tool[key] for key in ("title", "description") if isinstance(tool.get(key), str)}
    if isinstance(hints, dict):
        mended["annotations"] = {key: hints[key] for key, kind in HINT_KINDS.items() if type(hints.get(key)) is kind}
    if isinstance(output, dict) and output.get("type") == "object":
        mended["outputSchema"] = output
    return mended
