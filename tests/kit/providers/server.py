"""A server on loopback that answers with the bytes that a function gives, as any provider might."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """An answer: its pieces are sent one by one, as a stream that ends cleanly, however little it says."""

    pieces: Sequence[bytes]
    kind: str = "text/event-stream"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_json(cls, body: Any, status: int = 200, **headers: str) -> "Answer":
        """Return an answer that is JSON and no stream."""
        return cls([json.dumps(body).encode()], "application/json", status, headers)


Handler = Callable[[dict[str, Any]], Answer]
"""Answers the body of a request."""


class ProviderServer:
    """Answers every request by a function of its body, and keeps the bodies and paths."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.errors: list[Exception] = []
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> "ProviderServer":
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._exchange())
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients may hang up
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        if self.errors and error[0] is None:
            raise self.errors[0]

    def _answer(self, body: dict[str, Any]) -> Answer:
        try:
            return self.handler(body)
        except Exception as error:  # raised where the server is closed; the client sees a failure
            self.errors.append(error)
            return Answer.of_json({"error": {"message": f"the test failed: {error!r}"}}, 400)

    def _exchange(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805 (self is the handler's)
        class Exchange(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                server.connections += 1
                super().setup()

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)))
                server.bodies.append(body)
                server.paths.append(self.path)
                answer = server._answer(body)
                self.send_response(answer.status)
                for name, value in {"content-type": answer.kind, **answer.headers}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for piece in filter(None, answer.pieces):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *args: Any) -> None:
                """Log nothing."""

        return Exchange
