"""Remote MCP servers that demand a login: OAuth's client credentials, a provider of the program's own, a token."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from starlette.requests import Request
from starlette.responses import JSONResponse

from donewhen import Agent, ConfigError, McpServers
from donewhen.agent.config import read_servers
from donewhen.agent.mcp.client import _Tokens
from donewhen.testing import call, finish_step
from tests.kit.flows import FREE, one_step
from tests.kit.serving import free_port

TOKEN, SECRET = "tok-7Qm2xV9bK4pL8wZ1", "sec-3Rt6yU0iO5aS7dF2"


class Guard:
    """Knows the one token, for this server."""

    def __init__(self, resource: str) -> None:
        self.resource = resource

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what the token allows; None if it is not known."""
        known = AccessToken(token=token, client_id="desk", scopes=["tools"], resource=self.resource)
        return known if token == TOKEN else None


@asynccontextmanager
async def guarded() -> AsyncIterator[tuple[str, str, list[str]]]:
    """A server on loopback that demands a token, and gives it to who logs in: its address, issuer, and logins."""
    port, logins = free_port(), list[str]()
    issuer = f"http://127.0.0.1:{port}"
    auth: Any = {"issuer_url": issuer, "resource_server_url": f"{issuer}/mcp", "required_scopes": ["tools"]}
    settings = AuthSettings(**auth, validate_token_resource=True)
    server = MCPServer("far", log_level="ERROR", auth=settings, token_verifier=Guard(f"{issuer}/mcp"))

    @server.tool()
    def price(thing: str) -> str:
        """Look up a price."""
        return f"{thing} costs 3"

    @server.custom_route("/.well-known/oauth-authorization-server", methods=["GET"])
    async def about(request: Request) -> JSONResponse:
        """Say where tokens are."""
        return JSONResponse(
            {
                "issuer": issuer,
                "authorization_endpoint": f"{issuer}/authorize",
                "token_endpoint": f"{issuer}/token",
                "response_types_supported": ["code"],
                "grant_types_supported": ["client_credentials"],
            }
        )

    @server.custom_route("/token", methods=["POST"])
    async def give(request: Request) -> JSONResponse:
        """Give the token for the secret."""
        said = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
        logins.append(said)
        if said != f"desk:{SECRET}":
            return JSONResponse({"error": "invalid_client"}, 401)
        return JSONResponse({"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600, "scope": "tools"})

    runner = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), port=port, log_level="error", lifespan="on"))
    serving = asyncio.create_task(runner.serve())
    while not runner.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    try:
        yield f"{issuer}/mcp", issuer, logins
    finally:
        runner.should_exit = True
        await serving


@pytest.mark.parametrize("way", ["credentials", "provider", "token"])
async def test_a_server_that_demands_a_login_is_used(way: str, caplog: pytest.LogCaptureFixture) -> None:
    """N42, S02: from the configuration with variables, by the program's own provider, or with a fixed token; neither
    secret nor token is in the state or the logs."""
    caplog.set_level(logging.INFO)
    async with guarded() as (url, issuer, logins):
        far: dict[str, Any] = {"url": url, "trust": True}
        more: dict[str, Any] = {}
        if way == "credentials":
            far["auth"] = {"client_id": "desk", "client_secret": "${SECRET}", "issuer": issuer, "scope": "tools"}
        elif way == "token":
            far["headers"] = {"Authorization": "Bearer ${TOKEN}"}
        else:
            provider = ClientCredentialsOAuthProvider(url, _Tokens(), "desk", SECRET, scope="tools", issuer=issuer)
            more["auth"] = {"far": provider}
        environment = {"SECRET": SECRET, "TOKEN": TOKEN}
        model = one_step([call("price", thing="tea"), finish_step("3", ("s1.1", "tea costs 3"))], tools=["price"])
        async with (
            McpServers({"far": far}, environment=environment, **more) as servers,
            Agent(model, servers, storage="memory:", settings={**FREE, "approvals": "never"}) as agent,
        ):
            run = await agent.start("What does tea cost?")
            state = await agent.graph.aget_state({"configurable": {"thread_id": run.thread_id}})
        assert run.status == "completed"
        assert logins == ([] if way == "token" else [f"desk:{SECRET}"])
    for secret in (TOKEN, SECRET):
        assert secret not in repr(state) + caplog.text


@pytest.mark.parametrize("auth", [None, {"client_id": "desk", "client_secret": "wrong-4Hk8nB", "issuer": "ISSUER"}])
async def test_a_login_that_fails_is_named_without_its_secret(auth: dict[str, str] | None) -> None:
    """S02: the server is named; the secret is not."""
    async with guarded() as (url, issuer, _):
        far: dict[str, Any] = {"url": url}
        if auth:
            far["auth"] = {**auth, "issuer": issuer}
        with pytest.raises(ConfigError, match=r"'far' did not start: .*(demands a login|invalid_client)") as caught:
            async with McpServers({"far": far}, start_seconds=10):
                raise AssertionError("it started")
    assert "4Hk8nB" not in str(caught.value)


async def test_a_token_that_the_server_rejects_is_not_asked_for_again() -> None:
    """A wrong token is called rejected, with the HTTP status; a missing one is asked for."""
    async with guarded() as (url, _, _):
        for headers, said in (
            ({"Authorization": "Bearer wrong-4Hk8nB"}, "rejects the login that it was given"),
            ({}, "demands a login"),
        ):
            with pytest.raises(ConfigError, match=rf"'far' did not start: .*{said} \(401\)") as caught:
                async with McpServers({"far": {"url": url, "headers": headers}}, start_seconds=10):
                    raise AssertionError("it started")
            assert "4Hk8nB" not in str(caught.value)


async def test_effects_of_a_server_that_did_not_start_are_no_mistake(caplog: pytest.LogCaptureFixture) -> None:
    """N42: only what a server lists says whether a pattern fits a tool."""
    async with guarded() as (url, _, _):
        far: dict[str, Any] = {"url": url, "effects": {"pri*": "read", "cost*": "read"}}
        async with McpServers({"far": far}, start_seconds=10, optional=True) as servers:
            assert "demands a login (401)" in servers.missing[0]
        assert "fits no tool" not in caplog.text
        given = {**far, "headers": {"Authorization": f"Bearer {TOKEN}"}}
        async with McpServers({"far": given}, start_seconds=10, optional=True) as servers:
            assert servers.missing == []
        assert "the MCP server 'far' names 'cost*', which fits no tool" in caplog.text


def test_what_cannot_be_a_login_is_named() -> None:
    """N32: what is missing, and where a token or a person's login goes."""
    with pytest.raises(ConfigError, match="has client_id, client_secret, issuer and perhaps scope; a fixed token"):
        read_servers({"far": {"url": "https://x.org/mcp", "auth": {"client_id": "desk"}}}, {})
    with pytest.raises(ConfigError, match="auth names 'near', which is no remote MCP server"):
        McpServers({"far": {"url": "https://x.org/mcp"}}, auth={"near": None})  # type: ignore[dict-item]
