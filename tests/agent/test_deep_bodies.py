"""Requests that nest too deeply: each of our servers says so in its protocol, and goes on."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from donewhen import Agent
from donewhen.agent.acp.lines import EditorLines
from donewhen.servers import a2a_app, mcp_server

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "A2A-Version": "1.0"}
A2A = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "count the files"}]}
DEEP = pytest.mark.parametrize("depth", [80, 300, 100_000])


@asynccontextmanager
async def posted_to(server: str) -> AsyncIterator[Any]:
    """Yield a function that posts a request, whose `DEEP` is nested, to a server of an agent."""
    agent = Agent("demo", [], storage="memory:")
    app: Any = a2a_app(agent, "http://127.0.0.1/")
    if server == "mcp":
        app = mcp_server(agent).streamable_http_app(json_response=True, stateless_http=True, host="0.0.0.0")
    place = {"a2a": "/", "mcp": "/mcp"}[server]
    transport = httpx.ASGITransport(app)

    async def post(method: str, params: Any, depth: int) -> httpx.Response:
        body = json.dumps({"jsonrpc": "2.0", "id": "1", "method": method, "params": params})
        nested = body.replace('"DEEP"', "[" * depth + "]" * depth)
        return await http.post(place, content=nested, headers=HEADERS)

    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://t") as http:
        yield post


REQUESTS = {
    "a2a": [
        ("SendMessage", {"message": {**A2A, "parts": [{"data": "DEEP"}]}}),
        ("SendMessage", {"message": A2A, "metadata": {"a": "DEEP"}}),
        ("GetTask", {"id": "DEEP"}),
    ],
    "mcp": [("tools/call", {"name": "show", "arguments": {"thread_id": "x", "a": "DEEP"}})],
}


@DEEP
@pytest.mark.parametrize("server", REQUESTS)
async def test_a_body_that_is_too_deep_is_the_clients_fault(server: str, depth: int) -> None:
    """Q112: a 4xx with a JSON-RPC error, never an internal error; two at once, and the next request is served."""
    async with posted_to(server) as post:
        for method, params in REQUESTS[server]:
            for reply in await asyncio.gather(*(post(method, params, depth) for _ in range(2))):
                error = reply.json().get("error") or {}
                assert error.get("code") != -32603, reply.text[:200]
                if depth > 100:
                    assert (reply.status_code, error["code"] in (-32600, -32700)) == (400, True)
        assert (await post(*REQUESTS[server][-1], 1)).status_code == 200


@DEEP
async def test_a_line_of_an_editor_that_is_too_deep_is_refused(depth: int) -> None:
    """Q112: over ACP it is an error of JSON-RPC, and the next line is read."""
    reader, written = asyncio.StreamReader(limit=2**20), list[bytes]()

    class Writer:
        def write(self, data: bytes) -> None:
            written.append(data)

        def is_closing(self) -> bool:
            return False

        async def drain(self) -> None:
            pass

    lines = EditorLines(reader, Writer())  # type: ignore[arg-type]
    nested = "[" * depth + "]" * depth
    reader.feed_data(b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"a": %s}}\n' % nested.encode())
    reader.feed_data(b'{"jsonrpc": "2.0", "id": 2, "method": "ping"}\n')
    reader.feed_eof()
    assert ((await lines.receive()) or {})["id"] == 2
    assert json.loads(written[0])["error"]["code"] in (-32600, -32700)
