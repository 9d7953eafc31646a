"""MCP servers that die in the middle of a write: real processes, over every transport; nothing is repeated unasked."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool

from donewhen import McpServers
from donewhen.graph.tools.call import ToolCall, call_tool
from donewhen.testing import call, finish_step
from tests.kit.flows import FREE, Flow, one_step, play
from tests.kit.runs import last_seen
from tests.kit.serving import free_port

BANK = """
    import os, pathlib, sys
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.shared.exceptions import MCPError
    from mcp.types import ErrorData
    kind, port, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
    bank = MCPServer("bank", log_level="ERROR")

    @bank.tool()
    def pay(to: str) -> str:
        "Pay."
        with (folder / "paid.log").open("a+") as log:
            log.seek(0)
            first = not log.read()
            log.write(to + " ")
        if to == "nobody":
            raise ToolError("no such customer")
        if first:
            os._exit(3)  # it is paid, and the server dies before it can say so
        return "paid"

    where = {} if kind == "stdio" else {"port": port}
    where |= {"json_response": kind.endswith("json")} if kind.startswith("streamable") else {}
    bank.run(kind.removesuffix("-json"), **where)
"""
KINDS = {"streamable-http": "/mcp", "streamable-http-json": "/mcp", "sse": "/sse"}


async def listening(port: int) -> None:
    """Wait until a server listens there."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        except OSError:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def bank(kind: str, folder: Path) -> AsyncIterator[dict[str, Any]]:
    """The connection to a bank; a remote one is a process that is started again whenever it ends."""
    (folder / "bank.py").write_text("\n".join(line[4:] for line in BANK.splitlines()))
    command = [str(folder / "bank.py"), kind]
    if kind == "stdio":
        yield {"command": sys.executable, "args": [*command, "0", str(folder)]}
        return
    port = free_port()

    async def keep() -> None:
        while True:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, str(port), str(folder), stderr=asyncio.subprocess.DEVNULL
            )
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    keeper = asyncio.create_task(keep())
    try:
        await listening(port)
        yield {"url": f"http://127.0.0.1:{port}{KINDS[kind]}", **({"type": "sse"} if kind == "sse" else {})}
    finally:
        keeper.cancel()
        await asyncio.wait({keeper})


@asynccontextmanager
async def tools_of(connection: dict[str, Any]) -> AsyncIterator[list[BaseTool]]:
    """The tools of the bank."""
    async with McpServers({"mcpServers": {"bank": connection}}) as servers:
        yield servers.tools


async def paying(tools: list[BaseTool], to: str = "ann", **settings: Any) -> Flow:
    """A model that pays until it reads that it was paid; whoever is asked says that it happened."""

    def decide(messages: Any, _: Any) -> Any:
        seen = [message.text for message in messages if message.type == "tool"]
        return finish_step("paid", last_seen(messages)) if seen and "] pay ok" in seen[-1] else call("pay", to=to)

    chosen = {**FREE, "tool_seconds": 60, **settings}
    return await play(one_step(decide, tools=["pay"]), tools, answers=["it happened"], settings=chosen)


@pytest.mark.parametrize("kind", ["stdio", *KINDS])
async def test_a_server_that_dies_in_the_middle_of_a_write(kind: str, tmp_path: Path) -> None:
    """N14, R12, X24: the money is gone and nobody said so: a person is asked before it is paid once more."""
    async with bank(kind, tmp_path) as connection, tools_of(connection) as tools:
        # Where a stream of events breaks off, MCP's client waits on.
        flow = await paying(tools, tool_seconds=3 if kind == "streamable-http" else 60)
    assert (flow.status, [pause["kind"] for pause in flow.pauses]) == ("completed", ["effect"])
    assert (tmp_path / "paid.log").read_text().split() == ["ann"]


@pytest.mark.parametrize("kind", ["stdio", "streamable-http"])
async def test_an_error_that_a_server_answers_is_certain(kind: str, tmp_path: Path) -> None:
    """N14, X24, X27, honest: MCP's `isError` is an answer; nobody is asked. Refused twice, it is not sent again."""
    async with bank(kind, tmp_path) as connection, tools_of(connection) as tools:
        flow = await paying(tools, "nobody", limits={"rounds": 3}, on_exhausted="deliver")
    assert (flow.pauses, (tmp_path / "paid.log").read_text().split()) == ([], ["nobody"] * 2)


async def test_a_server_that_is_not_there_got_nothing(tmp_path: Path) -> None:
    """N14, X07, honest: its connection is refused, and nobody is asked."""
    async with bank("streamable-http", tmp_path) as connection, tools_of(connection) as tools:
        (tmp_path / "paid.log").write_text("before ")  # so it does not die
        flow = await paying(tools)
        assert (flow.status, flow.pauses) == ("completed", [])
    flow = await paying(tools, limits={"rounds": 3}, on_exhausted="deliver")
    assert (flow.pauses, (tmp_path / "paid.log").read_text().split()) == ([], ["before", "ann"])


async def test_a_server_that_was_started_again_gets_another_session(tmp_path: Path) -> None:
    """N14, R12: it knows nothing of the session from before; the call was not carried out, and is made."""
    async with bank("streamable-http", tmp_path) as connection, tools_of(connection) as tools:
        for paid in (["ann"], ["ann", "ann"]):
            flow = await paying(tools, tool_seconds=5)  # it dies the first time, and comes again
            await listening(int(connection["url"].split(":")[2].split("/")[0]))
            assert (flow.status, (tmp_path / "paid.log").read_text().split()) == ("completed", paid)


async def test_servers_that_are_used_twice_come_again_twice(tmp_path: Path) -> None:
    """R12: a server that dies is started again, also in the second use of the same object."""
    async with bank("stdio", tmp_path) as connection:
        servers = McpServers({"mcpServers": {"bank": connection}})
        for _ in range(2):
            (tmp_path / "paid.log").unlink(missing_ok=True)
            async with servers:
                (pay,) = servers.tools
                both = [await call_tool(ToolCall(pay, {"to": to}, timeout=20)) for to in ("ann", "bob")]
            assert [result.ok for result in both] == [False, True]


async def test_who_shares_a_session_with_a_lost_call_is_lost_too(tmp_path: Path) -> None:
    """N14: two calls at once; whichever ended the session, of none that was cut off it is known what it did."""
    async with bank("stdio", tmp_path) as connection, tools_of(connection) as (pay,):
        both = await asyncio.gather(*(call_tool(ToolCall(pay, {"to": to}, timeout=20)) for to in ("ann", "bob")))
    cut = [result.unknown for result in both if not result.ok]
    assert cut
    assert all(cut)
