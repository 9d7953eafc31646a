"""Three OpenAPI documents in the shape of public services, and a server on loopback that holds objects by path."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

FOLDER = Path(__file__).parent
PAYMENTS, ISSUES, CALENDAR = FOLDER / "payments.yaml", FOLDER / "issues.json", FOLDER / "calendar.yaml"

Answer = tuple[int, Any]


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
        self.objects[path] = (self.objects.get(path, {}) if method == "PATCH" else {}) | json.loads(sent.body)
        return 200, self.objects[path]

    def _exchange(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Exchange(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_any(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                sent = Sent(f"{self.command} {self.path}", headers, self.rfile.read(length).decode())
                server.sent.append(sent)
                status, body = server.respond(sent)
                if status == 0:  # the line is cut
                    self.close_connection = True
                    return
                content = b"" if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None: ...

        for method in ("GET", "PUT", "POST", "PATCH", "DELETE"):
            setattr(Exchange, f"do_{method}", Exchange.do_any)
        return Exchange
