"""Three OpenAPI documents in the shape of public services, and a server on loopback that holds objects by path."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

FOLDER = Path(__file__).parent
PAYMENTS, ISSUES, CALENDAR = FOLDER / "payments.yaml", FOLDER / "issues.json", FOLDER / "calendar.yaml"

Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]]
"""Status, body (JSON, text, bytes, or pieces that come one by one), and headers."""


@dataclass
class Sent:
    """A request as it arrived."""

    line: str
    """Method and path, with the query."""
    headers: dict[str, str]
    body: str


@dataclass
class ApiServer:
    """Reads and writes objects by path, as most APIs do; `answer` may say something else first."""

    objects: dict[str, Any] = field(default_factory=dict)
    answer: Callable[[Sent], Answer | None] = lambda _: None
    sent: list[Sent] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def lines(self) -> list[str]:
        return [each.line for each in self.sent]

    @property
    def changes(self) -> list[str]:
        """Those of the requests that may change something."""
        return [line for line in self.lines if not line.startswith("GET ")]

    def __enter__(self) -> Self:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._exchange())
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def respond(self, sent: Sent) -> Answer:
        """Return status and JSON of an answer."""
        method, path = sent.line.split(" ")
        path = path.partition("?")[0]
        if (found := self.answer(sent)) is not None:
            return found
        if method == "GET":
            return (200, self.objects[path]) if path in self.objects else (404, {"message": "Not Found"})
        if method == "DELETE":
            return (204, None) if self.objects.pop(path, None) is not None else (404, {"message": "Not Found"})
        if method == "POST":
            return 201, {"id": "new_1", "got": sent.body}
        if method == "PATCH" and path not in self.objects:
            return 404, {"message": "Not Found"}
        self.objects[path] = (self.objects.get(path, {}) if method == "PATCH" else {}) | json.loads(sent.body or "{}")
        return 200, self.objects[path]

    def _exchange(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Exchange(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_any(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                headers = {name.lower(): ", ".join(self.headers.get_all(name, ())) for name in self.headers}
                sent = Sent(f"{self.command} {self.path}", headers, self.rfile.read(length).decode())
                server.sent.append(sent)
                status, body, *more = server.respond(sent)
                if status == 0:  # the line is cut
                    self.close_connection = True
                    return
                if not isinstance(body, bytes | str | Iterator):
                    more = [{"Content-Type": "application/json"}, *more]
                    body = b"" if body is None else json.dumps(body)
                pieces = (
                    body if isinstance(body, Iterator) else iter([body.encode() if isinstance(body, str) else body])
                )
                self.send_response(status)
                kind = {"Content-Type": "text/plain", "Connection": "close"}
                for name, value in {**kind, **{name: each[name] for each in more for name in each}}.items():
                    self.send_header(name, value)
                self.end_headers()
                with suppress(OSError):  # the client has gone
                    for piece in pieces:
                        self.wfile.write(piece)

            def log_message(self, *_: Any) -> None: ...

        for method in ("GET", "PUT", "POST", "PATCH", "DELETE"):
            setattr(Exchange, f"do_{method}", Exchange.do_any)
        return Exchange
