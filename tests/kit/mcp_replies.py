"""An MCP server by hand, on stdio or HTTP, with one tool that pays and then answers as its argument `how` says.

As a program, `python mcp_replies.py LEDGER`, it is the server on stdio.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

OBJECT: dict[str, Any] = {"type": "object", "properties": {"how": {"type": "string"}}, "required": ["how"]}
PAID = {"content": [{"type": "text", "text": "paid"}]}
ERRORS: dict[str, tuple[int, str]] = {
    "invalid params": (-32602, "amount is missing"),
    "invalid request": (-32600, "Session terminated"),
    "parse error": (-32700, "what?"),
    "internal error": (-32603, "boom"),
    "server error": (-32000, "upstream exploded"),
    "crashed": (0, "KeyError"),
    "no money": (402, "no money left"),
}
RESULTS: dict[str, Any] = {
    "paid": PAID,
    "refused": {"content": [{"type": "text", "text": "no such customer"}], "isError": True},
    "refused in data": {"content": [], "structuredContent": {"error": "no such order"}, "isError": True},
    "no content": {"status": "paid"},
    "unknown content": {"content": [{"type": "table", "rows": []}]},
    "text as content": {"content": "paid"},
    "no object": "paid",
}
CUT = '{"jsonrpc": "2.0", "id": %s, "result": {"content": [{"type": "te'
HALF = '{"jsonrpc": "2.0", "id": %s, "result": {"content": [{"type": "text", "text": "paid \\ud83d"}]}}'
TEXT_CODE = '{"jsonrpc": "2.0", "id": %s, "error": {"code": "-32602", "message": "amount is missing"}}'
WORD_CODE = '{"jsonrpc": "2.0", "id": %s, "error": {"code": "NO_MONEY", "message": "no money left"}}'
TEXT_ERROR = '{"jsonrpc": "2.0", "id": %s, "error": "no money left"}'
REAL_CODE = '{"jsonrpc": "2.0", "id": %s, "error": {"code": 402.0, "message": {"reason": "no money left"}}}'
WHOLE = '{"jsonrpc": "2.0", "id": %s, "result": {"content": [{"type": "text", "text": "paid"}]}}'
NEWS = '{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "paying"}}'
PING = '{"jsonrpc": "2.0", "id": "p1", "method": "ping"}'
RAW = {
    "cut": CUT,
    "half an emoji": HALF,
    "empty": "",
    "a code as text": TEXT_CODE,
    "a code in words": WORD_CODE,
    "an error as text": TEXT_ERROR,
    "a code with a point": REAL_CODE,
    "alone in a batch": f"[{WHOLE}]",
    "a batch": f"[{NEWS}, {WHOLE}, {PING}]",
    "a refusal in a batch": f"[{NEWS}, {TEXT_CODE}]",
    "an empty batch": "[]",
}


def answer(message: Any, ledger: Path) -> str | None:
    """Return the text of the answer to a message; None to a notification."""
    id, method = message.get("id"), message.get("method")

    def said(**what: Any) -> str:
        return json.dumps({"jsonrpc": "2.0", "id": id, **what})

    if method == "initialize":
        about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        return said(result={**about, "serverInfo": {"name": "bank", "version": "1"}})
    if method == "tools/list":
        return said(result={"tools": [{"name": "pay", "description": "Pay.", "inputSchema": OBJECT}]})
    if method == "tools/call":
        how = message["params"]["arguments"]["how"]
        with ledger.open("a") as file:
            file.write(f"{how}\n")
        if how in ERRORS:
            code, text = ERRORS[how]
            return said(error={"code": code, "message": text})
        return RAW[how].replace("%s", json.dumps(id)) if how in RAW else said(result=RESULTS.get(how, PAID))
    return None if id is None else said(error={"code": -32601, "message": "Method not found"})


STATUSES = {"202": 202, "302": 302, "400": 400, "402": 402, "408": 408, "500": 500, "503": 503}
TYPES = {"HTML": "text/html", "bytes": "application/octet-stream", "no type": None}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ledger: Path
    streams: bool
    batches: bool

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = answer(message, self.ledger)
        how = ((message.get("params") or {}).get("arguments") or {}).get("how", "")
        if how == "hangs up":
            self.close_connection = True
            return
        kind = TYPES.get(how, "text/event-stream" if self.streams and text is not None else "application/json")
        body = (f"[{NEWS}, {text}]" if self.batches and text else text or "").encode()
        if kind == "text/event-stream":
            body = b"event: message\ndata: " + body + b"\n\n"
        self.send_response(STATUSES.get(how, 202 if text is None else 200))
        if how == "302":
            self.send_header("Location", "http://elsewhere.invalid/")
        if how in STATUSES:
            kind, body = "text/plain", b"no" * (how != "202")
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_response(405)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_DELETE = do_GET  # noqa: N815 - the name is the library's

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def over_http(ledger: Path, *, streams: bool, batches: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the connection to the server over HTTP; with `streams` it answers in streams of events, with `batches` in
    lists."""
    handler = type("Handler", (_Handler,), {"ledger": ledger, "streams": streams, "batches": batches})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield {"url": f"http://127.0.0.1:{server.server_address[1]}/mcp"}
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def over_stdio(ledger: Path, *, batches: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the connection to the server on stdio; with `batches` two calls are answered together, and all in lists."""
    yield {"command": sys.executable, "args": ["-I", "-S", __file__, str(ledger), *["batches"] * batches]}


def main() -> None:
    """Serve on stdio."""
    held = list[str]()
    for line in sys.stdin:
        message = json.loads(line)
        if (text := answer(message, Path(sys.argv[1]))) is None:
            continue
        if sys.argv[2:] != ["batches"]:
            print(text, flush=True)
            continue
        held.append(text)
        if message["method"] != "tools/call" or len(held) == 2:
            print(f"[{NEWS}, {', '.join(held)}]", flush=True)
            held = []


if __name__ == "__main__":
    main()
