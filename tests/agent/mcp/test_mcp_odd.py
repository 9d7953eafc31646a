"""Servers as they are: old, silent, with dirt on stdout, odd tools, no hints. All work, and a line says what is odd."""

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, ConfigError, McpServers
from donewhen.agent.mcp import line
from donewhen.graph.tools.call import CallOutcome, ToolCall, call_tool
from donewhen.graph.tools.toolbox import Toolbox

CODE = r"""
import json, os, sys
mode, tools = sys.argv[1], json.loads(sys.argv[2])
def out(raw):
    sys.stdout.buffer.write(raw + b"\n")
    sys.stdout.flush()
for first, text in enumerate(sys.stdin):
    message = json.loads(text)
    id, method, params = message.get("id"), message["method"], message.get("params") or {}
    def say(indent=None, **what):
        out(json.dumps({"jsonrpc": "2.0", "id": id, **what}, indent=indent).encode())
    if mode == "exits" and method == "server/discover":
        os._exit(1)
    elif method == "initialize":
        capabilities = {"prompts": {}} if mode == "prompts" else {"tools": {}}
        about = {"protocolVersion": "2025-06-18", "capabilities": capabilities}
        say(result={**about, "serverInfo": {"name": "odd", "version": "1"}})
    elif method == "tools/list" and mode != "prompts":
        more = {"nextCursor": "again"} if mode == "endless" else {}
        say(result={"tools": tools, **more})
    elif method == "tools/call":
        if params["arguments"].get("q") == "die":
            os._exit(1)
        if mode == "dirt":
            out(b"log: caf\xe9")
            out(b"")
            out(b'{"level": "info"}')
        text = json.dumps([params["name"], params["arguments"]])
        say(indent=2 if mode == "lines" else None, result={"content": [{"type": "text", "text": text}]})
    elif id is not None and mode != "silent":
        say(error={"code": -32601, "message": "Method not found"})
"""
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}


def listed(name: str, schema: Any = SCHEMA, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "Look.", **({} if schema is None else {"inputSchema": schema}), **more}


def config(folder: Path, mode: str = "well", tools: Any = None, name: str = "odd", **more: Any) -> dict[str, Any]:
    (folder / "server.py").write_text(CODE)
    arguments = ["-I", "-S", str(folder / "server.py"), mode, json.dumps(tools or [listed("look")])]
    return {"mcpServers": {name: {"command": sys.executable, "args": arguments, **more}}}


async def called(servers: McpServers, name: str, **arguments: Any) -> CallOutcome:
    tool = next(tool for tool in servers.tools if tool.name == name)
    return await call_tool(ToolCall(tool, arguments, timeout=20))


@pytest.mark.parametrize("mode", ["exits", "silent"])
async def test_servers_of_before_get_the_older_handshake(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q49: a server that ends at, or ignores, `server/discover` is asked to `initialize`, also when started again."""
    monkeypatch.setattr(line, "PROBE_SECONDS", 0.3)
    async with McpServers(config(tmp_path, mode)) as servers:
        assert (await called(servers, "look", q="a")).ok
        assert (await called(servers, "look", q="die")).unknown
        assert (await called(servers, "look", q="b")).ok


@pytest.mark.parametrize("mode", ["dirt", "lines"])
async def test_what_is_no_message_hangs_no_call(mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Q49: a byte that is not UTF-8, other JSON, a message over several lines: two calls at once, and one later."""
    async with McpServers(config(tmp_path, mode)) as servers:
        both = await asyncio.gather(called(servers, "look", q="1"), called(servers, "look", q="2"))
        assert [json.loads(each.text)[1] for each in (*both, await called(servers, "look", q="3"))] == [
            {"q": "1"},
            {"q": "2"},
            {"q": "3"},
        ]
    warned = [record.message for record in caplog.records if record.name == "donewhen.tools"]
    assert len(warned) == (3 if mode == "dirt" else 0), warned
    assert all("'odd' sent what is no message: " in each for each in warned)


ODD: dict[str, tuple[list[dict[str, Any]], list[str], str]] = {
    "no schema": ([listed("look"), listed("odd", None)], ["look"], "its tool 'odd' has no inputSchema"),
    "no name": ([listed("look"), {"description": "?"}], ["look"], "a tool without a name"),
    "schema of text": ([listed("look"), listed("odd", "object")], ["look"], "its tool 'odd' has no inputSchema"),
    "schema that refers away": (
        [listed("look"), listed("odd", {"type": "object", "$ref": "http://elsewhere.invalid/s.json"})],
        ["look"],
        "elsewhere.invalid",
    ),
    "empty schema": ([listed("look"), listed("odd", {})], ["look", "odd"], ""),
    "a choice at the top": ([listed("odd", {"anyOf": [SCHEMA, {"type": "object"}]})], ["odd"], ""),
    "list of types": ([listed("odd", {"type": ["object", "null"], "properties": {}})], ["odd"], ""),
    "odd fields": ([listed("odd", annotations={"readOnlyHint": "yes"}, icons=7, outputSchema=[])], ["odd"], ""),
    "one name twice": ([listed("look"), listed("look")], ["look"], "lists 2 tools called 'look'"),
    "one name after mending": ([listed("a.b"), listed("a_b"), listed("a b")], ["a_b_*", "a_b", "a_b_*"], ""),
    "long names": ([listed("x" * 70 + "1"), listed("x" * 70 + "2")], ["x" * 57 + "_*"] * 2, ""),
}


@pytest.mark.parametrize("kind", ODD)
async def test_one_odd_tool_costs_only_itself(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Q49, R17: it is mended, or left out with a line that names it; the rest works, each under a name of its own."""
    tools, names, warned = ODD[kind]
    async with McpServers(config(tmp_path, tools=tools)) as servers:
        got = [tool.name for tool in servers.tools]
        assert len(got) == len(names) == len({*got})
        assert all(name == made or name.removesuffix("*") == made[:-6] for name, made in zip(names, got, strict=True))
        Agent("demo", [servers], storage="memory:")
        said = [json.loads((await called(servers, each, q="x")).text)[0] for each in got]
    assert len({*said}) == len(said)
    text = "; ".join(record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert (warned in text) if warned else not text


async def test_a_list_without_end_and_a_server_without_tools(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Q49, R17: pages that repeat end, and a server of prompts only starts; two such servers at once."""
    both = {
        name: config(tmp_path, mode)["mcpServers"]["odd"] for name, mode in (("far", "endless"), ("near", "prompts"))
    }
    async with McpServers(both) as servers:
        assert [tool.name for tool in servers.tools] == ["look"]
    assert "'far' lists its tools without end; the 1 of them are used" in caplog.text
    assert "'near' offers no tools" in caplog.text


SHOP = [listed(name) for name in ("get_item", "get_price", "put_item")]


@pytest.mark.parametrize("how", ["agent", "file"])
async def test_effects_are_declared_by_pattern(how: str, tmp_path: Path) -> None:
    """Q32: a server without hints; `get_*` only reads, a name says otherwise of one of them; nothing else changes."""
    effects = {"get_*": "read", "get_price": "idempotent"}
    servers = McpServers(config(tmp_path, tools=SHOP, **({"effects": effects} if how == "file" else {})))
    agent = Agent("demo", [servers], storage="memory:", effects=effects if how == "agent" else None)
    async with servers:
        found = {name: tool.effect for name, tool in agent.executors.toolbox.items()}
    expected = "read" if how == "file" else "idempotent"  # in a file, the first that fits
    assert found == {"get_item": "read", "get_price": expected, "put_item": "write"}


async def test_effects_of_an_agent_are_checked_when_all_servers_are_open(tmp_path: Path) -> None:
    """Q32: made before they are open, an agent takes `effects`; the last server to open says which fits no tool."""
    one = McpServers(config(tmp_path, tools=SHOP))
    two = McpServers(config(tmp_path, name="two"))
    Agent("demo", [one, two], storage="memory:", effects={"look": "read", "get_*": "read", "delete_*": "write"})
    async with one:
        with pytest.raises(ConfigError, match=r"effects names a tool that does not exist: delete_\*; there are: get_"):
            async with two:
                pass
    agent, give = Agent("demo", [], storage="memory:"), {"give": {"description": "Give.", "input_schema": {}}}
    with pytest.raises(ConfigError, match="does not exist: take"):
        agent.tools.add(give, caller=print, effects={"take": "read"})
    assert "give" not in agent.tools


@pytest.mark.parametrize("how", ["argument", "file"])
async def test_arguments_can_be_fixed_and_hidden(how: str, tmp_path: Path) -> None:
    """Q32: no model sees the key of the state, and every call gets it; an argument without a value is in no call."""
    schema = {"type": "object", "properties": {name: {} for name in ("q", "state_key", "debug")}}
    tools = [listed(name, {**schema, "required": ["q", "state_key"]}) for name in ("put_item", "get_item")]
    fixed = {"put_*": {"state_key": "s1", "debug": None}}
    given = config(tmp_path, tools=tools, **({"arguments": fixed} if how == "file" else {}))
    async with McpServers(given, arguments=None if how == "file" else fixed) as servers:
        box = Toolbox(servers.tools)
        assert [*box["put_item"].parameters["properties"]] == ["q"]
        assert [*box["get_item"].parameters["properties"]] == ["q", "state_key", "debug"]
        assert json.loads((await called(servers, "put_item", q="x")).text)[1] == {"q": "x", "state_key": "s1"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"loook": {}}, "no MCP server has: loook; there are: look"), ({"look": {"p": 1}}, "names 'p'; it takes: q")],
)
async def test_fixed_arguments_of_nothing_are_an_error(arguments: Any, said: str, tmp_path: Path) -> None:
    """Q32: a typing error would show models what they should not see."""
    with pytest.raises(ConfigError, match=said):
        async with McpServers(config(tmp_path), arguments=arguments):
            pass


async def test_variables_are_those_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q32: `${NAME}` in a configuration is read from the environment unless another one is given."""
    monkeypatch.setenv("ODD_SERVER", sys.executable)
    given = config(tmp_path)
    given["mcpServers"]["odd"]["command"] = "${ODD_SERVER}"
    async with McpServers(given) as servers:
        assert len(servers.tools) == 1
    with pytest.raises(ConfigError, match="wants the variable ODD_SERVER"):
        McpServers(given, environment={})
