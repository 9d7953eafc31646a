"""WireServer: a server on loopback that speaks OpenAI's chat completions from a script, faults included."""

import json
import socket
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from itertools import chain, islice
from socketserver import ThreadingTCPServer
from types import TracebackType
from typing import Any, Self, cast

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable

from donewhen.agent.testing.script import Replies
from donewhen.agent.testing.scripted import ScriptedModel
from tests.kit.wire_format import Fault, completion, completion_chunks, error_body, read_messages

_SECRETS = ("authorization", "proxy-authorization", "api-key", "x-api-key", "cookie")
_LINGER_ZERO = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class WireRequest:
    """One received request."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case; the values of keys and cookies read `<hidden>`."""
    body: Any
    """The parsed JSON, or None."""


class LoopbackServer(ThreadingTCPServer):
    """A server whose threads all end when it is closed."""

    allow_reuse_address = True
    daemon_threads = False
    request_queue_size = 64

    def __init__(self, wire: "WireServer") -> None:
        self.wire = wire
        super().__init__(("127.0.0.1", 0), Exchange)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if error and not isinstance(error, ConnectionError | TimeoutError):  # clients may hang up
            self.wire.errors.append(error)


class Exchange(BaseHTTPRequestHandler):
    """Answers one request and closes the connection."""

    protocol_version = "HTTP/1.1"
    timeout = 10.0
    started: bool = False

    @property
    def wire(self) -> "WireServer":
        return cast(LoopbackServer, self.server).wire

    def do_GET(self) -> None:
        """Serve `/v1/models`."""
        if self._admit(None, "/v1/models"):
            card = {"id": self.wire.model, "object": "model", "created": 0, "owned_by": "donewhen"}
            self._send_json(200, {"object": "list", "data": [card]})

    def do_POST(self) -> None:
        """Serve `/v1/chat/completions`."""
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if not self._admit(body, "/v1/chat/completions"):
            return
        try:
            if not isinstance(body, dict):
                raise ValueError("the body is no JSON object")
            messages = read_messages(body)
        except ValueError as error:
            self._send_json(400, error_body(400, str(error)))
            return
        self._answer(messages, body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: `requests` is the record."""

    def _admit(self, body: Any, path: str) -> bool:
        headers = {name.lower(): value for name, value in self.headers.items()}
        key = headers.get("authorization")
        shown = {name: "<hidden>" if name in _SECRETS else value for name, value in headers.items()}
        self.wire.requests.append(WireRequest(self.command, self.path, shown, body))
        if self.wire.api_key is not None and key != f"Bearer {self.wire.api_key}":
            self._send_json(401, error_body(401, "Incorrect API key provided.", "invalid_api_key"))
            return False
        if self.path.partition("?")[0] != path:
            message = f"Unknown request URL: {self.command} {self.path}."
            self._send_json(404, error_body(404, message, "unknown_url"))
            return False
        return True

    def _answer(self, messages: list[BaseMessage], body: Mapping[str, Any]) -> None:
        try:
            self._respond(_bind_tools(self.wire.brain, body), messages, body)
        except Fault as fault:
            self._perform(fault, messages, body)
        except BaseException as error:
            if self.started:
                self._reset()
                return
            # Clients retry a 500, but should not retry a request for which the script has no answer.
            status = 400 if isinstance(error, AssertionError) else 500
            self._send_json(status, error_body(status, f"{type(error).__name__}: {error}", "script_error"))

    def _respond(
        self,
        model: Runnable[LanguageModelInput, AIMessage],
        messages: list[BaseMessage],
        body: Mapping[str, Any],
        cut: int | None = None,
    ) -> None:
        name = str(body.get("model") or self.wire.model)
        if not body.get("stream"):
            payload = _encode(completion(model.invoke(messages), name))
            self._send(200, payload, "application/json", cut)
            return
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        events = completion_chunks(model.stream(messages), name, usage)
        first = next(events)  # a fault or an error shows here, before the head is sent
        self._stream_events(chain([first], events), cut)

    def _perform(self, fault: Fault, messages: list[BaseMessage], body: Mapping[str, Any]) -> None:
        stopped = fault.hang > 0 and self.wire.stopping.wait(fault.hang)
        if stopped or fault.reset:
            self._reset()
        elif fault.status is not None:
            default = error_body(fault.status, f"Scripted fault {fault.status}.")
            self._send_json(fault.status, default if fault.body is None else fault.body, fault.headers)
        elif fault.garbage is not None:
            self._send(200, fault.garbage, "text/event-stream" if body.get("stream") else "application/json")
        elif fault.reply is not None:
            cut = fault.stall_after if fault.reset_after is None else fault.reset_after
            self._respond(ScriptedModel([fault.reply]), messages, body, cut)
            if fault.stall_after is not None:
                self.wire.stopping.wait()
            if cut is not None:
                self._reset()
        else:
            self._reset()

    def _send_json(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        kind = "text/plain; charset=utf-8" if isinstance(body, str) else "application/json"
        payload = body.encode() if isinstance(body, str) else _encode(body)
        self._send(status, payload, kind, headers=headers)

    def _send(
        self,
        status: int,
        payload: bytes,
        content_type: str,
        cut: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        given = {"Content-Type": content_type, **(headers or {}), "Content-Length": str(len(payload))}
        self._send_head(status, given)
        self.wfile.write(payload if cut is None else payload[: len(payload) // 2 if cut else 0])

    def _stream_events(self, events: Iterator[dict[str, Any]], cut: int | None) -> None:
        self._send_head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        lines = (b"data: " + _encode(event) + b"\n\n" for event in events)
        for line in chain(lines, [b"data: [DONE]\n\n"]) if cut is None else islice(lines, cut):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        if cut is None:
            self.wfile.write(b"0\r\n\r\n")

    def _send_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.started = True
        self.send_response(status)
        for name, value in {**headers, "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()

    def _reset(self) -> None:
        # Closing without lingering sends RST instead of FIN.
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        socket.close(self.connection.detach())


def _bind_tools(brain: BaseChatModel, body: Mapping[str, Any]) -> Runnable[LanguageModelInput, AIMessage]:
    if not body.get("tools"):
        return cast("Runnable[LanguageModelInput, AIMessage]", brain)
    choice = {"tool_choice": body["tool_choice"]} if body.get("tool_choice") else {}
    return brain.bind_tools(body["tools"], **choice)


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")


class WireServer:
    """Serves `POST /v1/chat/completions` and `GET /v1/models` on a free loopback port while it is entered.

    `script` is what `ScriptedModel` takes, coroutine functions aside, with `fault(…)` as one more kind of reply; or
    any chat model. A script is checked at exit, as ScriptedModel does; a model is left to its owner. With `api_key`,
    other keys get a 401. What OpenAI's server refuses (a tool call without its result) gets a 400, and so does a
    request that the script has no reply to; an exception that the script raises becomes a 500.
    """

    def __init__(self, script: Replies | BaseChatModel, *, api_key: str | None = None, model: str = "scripted") -> None:
        brain = script if isinstance(script, BaseChatModel) else ScriptedModel(script)
        self._own = brain if brain is not script and isinstance(brain, ScriptedModel) else None
        self.brain: BaseChatModel = brain
        self.model: str = model
        self.api_key: str | None = api_key
        self.requests: list[WireRequest] = []
        """All requests so far, including refused ones; keys are not kept."""
        self.errors: list[BaseException] = []
        """Errors in the server; the first is raised at exit."""
        self.stopping: threading.Event = threading.Event()
        self._server: LoopbackServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """Return the `base_url` for a client. Raises RuntimeError while nothing is served."""
        if self._server is None:
            raise RuntimeError("the server runs inside `with WireServer(…) as server:` only")
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._server = LoopbackServer(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="wire")
        self._thread.start()
        return self

    def __exit__(
        self, type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        assert self._thread is not None
        self.stopping.set()  # wakes what hangs or stalls
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = None
        if error is None and self.errors:
            raise self.errors[0]
        if self._own is not None:
            self._own.__exit__(type, error, trace)
