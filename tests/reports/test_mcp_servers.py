"""Reports about clients of MCP, each tried with a server over HTTP that answers as reported."""

import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from donewhen import McpServers
from donewhen.graph.tools.call import CallOutcome, ToolCall, call_tool

EVENTS = {"content-type": "text/event-stream"}
PROGRESS = {
    "jsonrpc": "2.0",
    "method": "notifications/progress",
    "params": {"progressToken": "tool-call-3", "progress": 0, "total": 1},
}
OBJECT = {"type": "object", "properties": {"q": {"type": "string"}}}
COUNTED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
SEEN = {"content": [{"type": "text", "text": "seen 12"}]}
FAILED = {"content": [{"type": "text", "text": "no such lamp"}], "isError": True}
UNKNOWN = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}
NO_SESSION = {
    "jsonrpc": "2.0",
    "id": None,
    "error": {"code": -32000, "message": "Bad Request: No valid session ID provided"},
}


class Server:
    """A server with one tool. It forgets its first session before the first call, and says so as `lost` has it."""

    def __init__(
        self,
        *,
        result: Mapping[str, Any] = SEEN,
        tool: Mapping[str, Any] | None = None,
        lost: tuple[int, Any] | None = None,
        moved: int = 0,
        about: Mapping[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
        before: str | None = None,
        text_ids: bool = False,
        capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        self.before, self.text_ids = before, text_ids
        self.capabilities: Mapping[str, Any] = {"tools": {}} if capabilities is None else capabilities
        self.result, self.tool, self.lost, self.moved, self.error = result, tool or {}, lost, moved, error
        self.about: Mapping[str, Any] = {"name": "s", "version": "1"} if about is None else about
        self.session, self.calls = "", 0

    def answer(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[int, Any, dict[str, str]]:
        """Return status, body and headers of the answer to a message."""
        id, method = message.get("id"), message["method"]

        def said(**what: Any) -> tuple[int, Any, dict[str, str]]:
            whole = {"jsonrpc": "2.0", "id": str(id) if self.text_ids else id, **what}
            if self.before is None:
                return 200, whole, {}
            return 200, f"{self.before}event: message\ndata: {json.dumps(whole)}\n\n", EVENTS

        if id is None:
            return 202, "", {}
        if method == "initialize":
            self.session = f"s{int(self.session[1:] or 0) + 1}"
            start = {"protocolVersion": "2025-06-18", "capabilities": self.capabilities, "serverInfo": self.about}
            return 200, {"jsonrpc": "2.0", "id": id, "result": start}, {"mcp-session-id": self.session}
        if method == "tools/call" and self.lost and headers.get("mcp-session-id") == "s1":
            return *self.lost, {}
        if method == "tools/list":
            listed = {"name": "look", "description": "Look.", "inputSchema": OBJECT, **self.tool}
            return said(result={"tools": [listed]})
        if method == "tools/call":
            self.calls += 1
            return said(error=self.error) if self.error else said(result=self.result)
        return said(error={"code": -32601, "message": "Method not found"})

    def __enter__(self) -> str:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._exchange())
        self._http.daemon_threads = True
        self._thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return f"http://127.0.0.1:{self._http.server_address[1]}/mcp"

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _exchange(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805 (self is the handler's)
        class Exchange(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if server.moved and not self.path.endswith("/"):
                    self._send(server.moved, "", {"location": f"{self.path}/"})
                    return
                self._send(*server.answer(json.loads(body), {k.lower(): v for k, v in self.headers.items()}))

            def do_GET(self) -> None:
                self._send(405, "", {})

            do_DELETE = do_GET  # noqa: N815

            def _send(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
                sent = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                kind = "text/plain" if isinstance(body, str) else "application/json"
                self.send_response(status)
                for name, value in {"content-type": kind, "content-length": str(len(sent)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        return Exchange


async def called(servers: McpServers) -> CallOutcome:
    return await call_tool(ToolCall(servers.tools[0], {"q": "lamp"}, timeout=10))


GONE = {"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "Session not found"}}
REPORTS: dict[str, tuple[dict[str, Any], str]] = {
    "modelcontextprotocol/python-sdk#3556": ({"lost": (404, "")}, "seen 12"),
    "punkpeye/mcp-remote#106": ({"lost": (404, UNKNOWN)}, "seen 12"),
    "anthropics/claude-code#55970": ({"lost": (404, GONE)}, "seen 12"),
    "sparfenyuk/mcp-proxy#149": ({"lost": (404, "Not Found")}, "seen 12"),
    "BerriAI/litellm#23688": ({"moved": 307}, "seen 12"),
    "modelcontextprotocol/python-sdk#1168": ({"moved": 308}, "seen 12"),
    "seuros/action_mcp#181": ({"result": {"content": [], "structuredContent": {"n": 12}}}, '{"n": 12}'),
    "IBM/mcp-context-forge#4042": ({"tool": {"outputSchema": COUNTED}}, "seen 12"),
    "modelcontextprotocol/typescript-sdk#654": ({"tool": {"outputSchema": COUNTED}, "result": FAILED}, "no such lamp"),
    "yamadashy/repomix#833": (
        {"tool": {"outputSchema": COUNTED}, "result": {**FAILED, "structuredContent": {"error": "no lamp"}}},
        "no such lamp",
    ),
    "IBM/mcp-context-forge#689": ({"before": ": hi\n\nevent: keepalive\ndata: {}\n\n"}, "seen 12"),
    "twentyhq/twenty#24559": ({"before": f"event: message\ndata: {json.dumps(PROGRESS)}\n\n"}, "seen 12"),
    "cognizant-ai-lab/neuro-san#526": ({"text_ids": True}, "seen 12"),
    "anomalyco/opencode#49464": (
        {"tool": {"inputSchema": {**OBJECT, "properties": {**OBJECT["properties"], "raw": True}}}},
        "seen 12",
    ),
    "jacksteamdev/obsidian-mcp-tools#63": (
        {"tool": {"inputSchema": {"type": "object", "additionalProperties": {}}}},
        "seen 12",
    ),
    "craigk5n/webcalendar#725": ({"tool": {"inputSchema": {"type": "object", "properties": []}}}, "seen 12"),
    "shopware/shopware#18722": (
        {
            "capabilities": {"tools": []},
            "tool": {"inputSchema": {"type": "object", "properties": {"q": {}, "more": {"properties": []}}}},
        },
        "seen 12",
    ),
    "lightweight-component/aj-mcp#4": ({"tool": {"inputSchema": None}}, "seen 12"),
    "usememos/memos#6049": ({"result": {"structuredContent": [{"n": 12}]}}, '{"result": [{"n": 12}]}'),
    "symfony/ai#123": ({"result": {"content": SEEN["content"][0], "isError": False}}, "seen 12"),
    "kirodotdev/Kiro#8960": (
        {"result": {"content": [*SEEN["content"], {"type": "resource_link", "uri": "file:///a.png", "name": "a.png"}]}},
        "seen 12\n[resource a.png: file:///a.png]",
    ),
}
ALSO: dict[str, tuple[dict[str, Any], str]] = {
    "a server without a version": ({"about": {"name": "s"}}, "seen 12"),
    "empty objects of PHP": (
        {"result": {"content": [{**SEEN["content"][0], "annotations": [], "_meta": []}], "_meta": []}},
        "seen 12",
    ),
    "what is required, as in draft 3": (
        {"tool": {"inputSchema": {"type": "OBJECT", "properties": {"q": {"type": "STRING", "required": True}}}}},
        "seen 12",
    ),
    "nothing is required": ({"tool": {"inputSchema": {**OBJECT, "required": None}}}, "seen 12"),
    "a null where a truth belongs": ({"result": {**SEEN, "isError": None, "structuredContent": None}}, "seen 12"),
    "data without content": ({"result": {"structuredContent": {"n": 12}}}, '{"n": 12}'),
    "details beside an error": (
        {"error": {"code": -32602, "message": "no lamp", "data": {"known": ["desk"]}}},
        'no lamp: {"known": ["desk"]}',
    ),
}


@pytest.mark.parametrize("report", [*REPORTS, *ALSO])
async def test_a_report_about_a_server_holds(report: str) -> None:
    """Q49, R17: the model reads what the server says, as it says it; each call is made once, two calls one after the
    other."""
    how, said = {**REPORTS, **ALSO}[report]
    server = Server(**how)
    with server as url:
        async with McpServers({"mcpServers": {"s": {"url": url}}}) as servers:
            got = [await called(servers), await called(servers)]
    assert [each.text for each in got] == [said, said]
    assert [each.ok for each in got] == [server.result is not FAILED and "no " not in said] * 2
    assert server.calls == 2


SESSIONS: dict[str, tuple[tuple[int, Any], str]] = {
    "as an example of the SDK for TypeScript": ((400, NO_SESSION), "Bad Request: No valid session ID provided"),
    "modelcontextprotocol/rust-sdk#559": ((401, "Unauthorized: Session not found"), ""),
}


@pytest.mark.parametrize("report", SESSIONS)
async def test_a_session_that_is_refused_in_other_words_is_begun_again(report: str) -> None:
    """Q49: a server that forgot its session may say so with other statuses than 404. The call was refused, which is
    told; the next one begins another session."""
    lost, said = SESSIONS[report]
    server = Server(lost=lost)
    with server as url:
        async with McpServers({"mcpServers": {"s": {"url": url}}}) as servers:
            first, second = await called(servers), await called(servers)
    assert (first.ok, first.unknown, second.ok, second.text) == (False, False, True, "seen 12")
    assert said in first.text
    assert (server.session, server.calls) == ("s2", 1)
