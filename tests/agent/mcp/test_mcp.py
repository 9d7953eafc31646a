"""MCP servers: real processes over stdio, whose tools are called like any other (X07)."""

import asyncio
import json
import os
import signal
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, ConfigError, McpServers, Run, wait
from donewhen.agent.config import read_servers
from donewhen.errors import ToolMissing
from donewhen.graph.sync import run_in_shared_loop
from donewhen.graph.tools.call import CallOutcome, ToolCall, call_tool
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.hooks import Hooks
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from tests.kit.flows import one_step
from tests.kit.serving import free_port

SERVER = """
    import asyncio, os, sys
    from mcp.server.mcpserver import MCPServer, Image
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations
    server = MCPServer("shop", log_level="ERROR")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def price(thing: str, config: str = "plain", runtime: str = "none") -> str:
        "Look up a price. In euros."
        return f"{thing} costs 3 ({config}, {runtime})"

    @server.tool(annotations=ToolAnnotations(idempotent_hint=True, read_only_hint=False))
    def stock(thing: str) -> dict[str, int]:
        "Count what is there."
        return {"count": 7}

    @server.tool()
    def fail() -> str:
        "Fail."
        raise ToolError("out of tea")

    under_way = asyncio.Event()

    @server.tool()
    async def slow(until_crash: bool = False) -> str:
        "Take long."
        if until_crash:
            under_way.set()
        await asyncio.sleep(600)
        return "late"

    @server.tool()
    def picture() -> Image:
        "Draw."
        return Image(data=bytes.fromhex("89504e470d0a1a0a31323334"), format="png")

    @server.tool()
    async def die() -> str:
        "Crash while the slow one works."
        await under_way.wait()
        os._exit(3)

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def process() -> int:
        "Which one is it?"
        return os.getpid()

    @server.tool()
    def shout() -> str:
        "Write much where nobody reads."
        for _ in range(100):
            sys.stderr.write("x" * 50_000)
        return "shouted"

    @server.tool()
    def environment() -> list[str]:
        "Show the variables."
        return sorted(os.environ)

    server.run()
"""


def python(folder: Path, code: str, **more: Any) -> dict[str, Any]:
    """A server that is this Python running the code."""
    file = folder / f"server_{abs(hash(code))}.py"
    file.write_text(textwrap.dedent(code))
    return {"command": sys.executable, "args": [str(file)], **more}


async def called(servers: McpServers, name: str, arguments: Any = None, seconds: float = 20) -> CallOutcome:
    tool = next(tool for tool in servers.tools if tool.name == name)
    return await call_tool(ToolCall(tool, arguments or {}, timeout=seconds))


async def test_the_tools_of_a_server_work_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S9: results, errors, pictures, slow calls; megabytes on stderr; after a crash the next call finds it again."""
    monkeypatch.setenv("SHOP_SECRET", "not for servers")
    shop = python(tmp_path, SERVER, env={"SHOP_MODE": "${MODE}"})
    async with McpServers({"mcpServers": {"shop": shop}}, environment={"MODE": "test"}) as servers:
        box = Toolbox(servers.tools)
        assert [box.effect(name) for name in ("price", "stock", "fail")] == ["read", "idempotent", "write"]
        assert box["price"].one_line == "Look up a price."
        assert box["price"].arguments.problems({"thing": 3}) == ["thing: 3 is not of type 'string'"]

        priced = await called(servers, "price", {"thing": "tea", "config": "gold", "runtime": "fast"})
        assert (priced.ok, priced.text) == (True, "tea costs 3 (gold, fast)")
        counted = await called(servers, "stock", {"thing": "tea"})
        assert json.loads(counted.text) == {"count": 7}
        assert counted.artifact == {"structured_content": {"count": 7}}
        failed = await called(servers, "fail")
        assert (failed.ok, failed.error) == (False, "error")
        assert "out of tea" in failed.text
        refused = await called(servers, "price", {})
        assert not refused.ok
        picture = await called(servers, "picture")
        assert (picture.text, picture.images[0]["mime_type"]) == ("[image, image/png, 12 bytes]", "image/png")
        variables = (await called(servers, "environment")).text
        assert "SHOP_MODE" in variables
        assert "SHOP_SECRET" not in variables

        assert (await called(servers, "slow", seconds=0.2)).error == "timeout"
        assert (await called(servers, "price", {"thing": "tea"})).ok

        assert (await called(servers, "shout")).text == "shouted"

        died, waiting = await asyncio.gather(called(servers, "die"), called(servers, "slow", {"until_crash": True}))
        assert not died.ok
        assert not waiting.ok
        assert "the MCP server 'shop' is not there any more" in waiting.text
        assert (await called(servers, "price", {"thing": "tea"})).text.startswith("tea costs 3")
    assert servers.tools == []


async def test_a_hook_knows_the_server_of_a_tool(tmp_path: Path) -> None:
    """X06: by the name that the configuration gives it, before and after."""
    seen = list[str]()
    hooks = Hooks(
        before_call=[lambda made: seen.append(made.server)], after_call=[lambda made: seen.append(made.server)]
    )
    model = one_step([call("price", thing="tea"), finish_step("It costs 3.", "s1.1")], tools=["price"])
    servers = McpServers({"mcpServers": {"shop": python(tmp_path, SERVER)}})
    async with servers, Agent(model, [servers], storage="memory:", hooks=hooks) as agent:
        await agent.start("What is tea?", settings={"confirm": "never"})
    assert seen == ["shop"] * 2


async def killed(process: int) -> None:
    """Kill it, and wait until it is gone."""
    watched, gone, loop = os.pidfd_open(process), asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(watched, gone.set)
    os.kill(process, signal.SIGKILL)
    await gone.wait()
    loop.remove_reader(watched)
    os.close(watched)


async def test_tools_answer_while_their_own_loop_is_blocked(tmp_path: Path) -> None:
    """N32: in a notebook a session is opened with `await`, and a run is waited for with `wait`."""
    model = ScriptedModel(
        roles={
            "triage": [submit_plan([{"content": "look", "done_when": ["the price is known"]}])],
            "execute": [call("price", thing="tea"), finish_step("3 euros", "s1.1")],
        }
    )
    async with McpServers({"mcpServers": {"shop": python(tmp_path, SERVER)}}) as servers:
        settings = {"confirm": "never", "tool_seconds": 20}
        agent = Agent(model, servers.tools, storage="memory:", settings=settings)
        assert wait(agent.start("what is tea?")).status == "completed"
        assert (await called(servers, "price", {"thing": "tea"})).ok
    model.assert_exhausted()


async def test_a_server_that_died_while_nobody_used_it_is_started_again(tmp_path: Path) -> None:
    """U12: killed during a pause, it is there again for the next call, which was not sent and so is made."""
    async with McpServers({"mcpServers": {"shop": python(tmp_path, SERVER)}}) as servers:
        for _ in range(2):
            process = int((await called(servers, "process")).text)
            await killed(process)
            for _ in range(20):  # until the end of its output is read, which came before
                await run_in_shared_loop(asyncio.sleep(0))
            again = await called(servers, "process")
            assert again.ok, again.text
            assert int(again.text) != process


BOLD = """
    from mcp.server.mcpserver import MCPServer
    from mcp.types import ToolAnnotations
    server = MCPServer("bold", log_level="ERROR")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True, effect="read", secrets=True, check=True, probe="x"))
    def wipe() -> str:
        "Wipe."
        return "wiped"

    server.run(%r, **%r)
"""


async def test_a_server_says_hints_and_nothing_else(tmp_path: Path) -> None:
    """S4: `effect`, `check`, `secrets`, `probe` are not for a server to say; that it only reads, a local one may. The
    form of its results is no word about it."""
    async with McpServers({"mcpServers": {"bold": python(tmp_path, BOLD % ("stdio", {}))}}) as servers:
        (tool,) = servers.tools
        assert {**tool.metadata, "output_schema": {}} == {"server": "bold", "readOnlyHint": True, "output_schema": {}}


async def test_a_remote_server_is_believed_where_it_is_trusted(tmp_path: Path) -> None:
    """S4: with `"trust": true`; else its tools are writes, whatever it says."""
    port = free_port()
    command = python(tmp_path, BOLD % ("streamable-http", {"port": port}))
    process = await asyncio.create_subprocess_exec(
        command["command"], *command["args"], stderr=asyncio.subprocess.DEVNULL
    )
    try:
        for trust, effect in ((False, "write"), (True, "read")):
            remote = {"url": f"http://127.0.0.1:{port}/mcp", "trust": trust}
            for _ in range(100):
                try:
                    async with McpServers({"mcpServers": {"bold": remote}}, start_seconds=5) as servers:
                        assert Toolbox(servers.tools).effect("wipe") == effect
                    break
                except ConfigError:
                    await asyncio.sleep(0.1)
            else:
                raise AssertionError("the server never answered")
    finally:
        process.kill()
        await process.wait()


async def test_names_are_prefixed_only_where_they_clash(tmp_path: Path) -> None:
    """Two servers with one tool of the same name, and a name that the runtime has taken."""
    code = """
        from mcp.server.mcpserver import MCPServer
        server = MCPServer("s", log_level="ERROR")
        for name in {names}:
            server.add_tool(lambda: "from {server}", name=name, description="d")
        server.run()
    """
    config = {
        "one": python(tmp_path, code.format(names=["look", "only.here"], server="one")),
        "my two": python(tmp_path, code.format(names=["look", "recall"], server="two")),
        "off": {"command": "nowhere", "disabled": True},
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": config}))
    async with McpServers(file, reserved={"recall"}) as servers:
        assert [tool.name for tool in servers.tools] == ["one_look", "only_here", "my_two_look", "my_two_recall"]
        Toolbox(servers.tools, reserved={"recall"})
        results = [(await called(servers, tool.name)).text for tool in servers.tools]
        assert results == ["from one", "from one", "from two", "from two"]


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
async def test_a_run_that_waits_for_a_renamed_tool_is_told_so(order: tuple[str, str], tmp_path: Path) -> None:
    """An approval never means another server's tool of that name: the error names both, and the answer is good later.

    A server added with `reserved` leaves the names as they are.
    """
    code = """
        from mcp.server.mcpserver import MCPServer
        server = MCPServer("s", log_level="ERROR")
        server.add_tool(lambda: "from {server}", name="look", description="d")
        server.run()
    """
    config = {name: python(tmp_path, code.format(server=name)) for name in order}
    alone, added = ({"mcpServers": {name: config[name]}} for name in ("one", "two"))
    storage = f"sqlite:///{tmp_path}/runs.db"
    script = one_step([call("look"), finish_step("looked", ("s1.1", "from one"))], content="look", tools=["look"])
    async with McpServers(alone) as servers, Agent(script, [servers], storage=storage) as agent:
        run = await agent.start("Look", settings={"confirm": "never", "approvals": "each", "verification": "grounded"})
    async with McpServers({"mcpServers": config}) as servers, Agent(script, [servers], storage=storage) as agent:
        others = ", ".join(f"{name}_look" for name in order)
        with pytest.raises(ToolMissing, match=f"needs look, .*Servers’ look is called {others} here"):
            await agent.resume(run, "approve")
    async with McpServers(alone) as servers:
        names = [tool.name for tool in servers.tools]
        async with McpServers(added, reserved=names) as more, Agent(script, [servers, more], storage=storage) as agent:
            assert [tool.name for tool in agent.tools] == ["look", "two_look"]
            run = await agent.resume(run, "approve")
            assert (run.status, run.answer) == ("completed", "looked")


REPLACED = """
    from mcp.server.mcpserver import MCPServer
    server = MCPServer("s", log_level="ERROR")
    @server.tool()
    def look({arguments}) -> str:
        \'\'\'{words}.\'\'\'
        return "from {server}"
    server.run()
"""
"""A server with one tool."""


@pytest.mark.parametrize(
    ("name", "arguments", "words", "why"),
    [
        ("two", "at: str", "Look", "look is now a tool of the server two, before of one"),
        (
            "one",
            "at: str, wipe: bool = True",
            "Look",
            "look of the server one does something else now, or takes other arguments",
        ),
        ("one", "at: str", "Look well, it says today", ""),
    ],
    ids=["another server", "other arguments", "other words"],
)
async def test_an_approval_is_for_the_server_and_the_arguments_that_were_shown(
    name: str, arguments: str, words: str, why: str, tmp_path: Path
) -> None:
    """X15: for a call, and for a plan that waits beside it; the answer is good where the tool is the one of before."""

    def config(name: str, arguments: str, words: str) -> dict[str, Any]:
        code = REPLACED.format(arguments=arguments, words=words, server=name)
        return {"mcpServers": {name: python(tmp_path, code)}}

    before, after = config("one", "at: str", "Look"), config(name, arguments, words)
    storage, settings = f"sqlite:///{tmp_path}/runs.db", {"verification": "grounded", "approvals": "each"}
    looked = [call("look", at="x"), finish_step("looked", ("s1.1", "from one"))]

    async def answer(tools: McpServers, run: Run | str) -> Run:
        """Begin a run, or approve everything of one, with a model of its own."""
        script = one_step(looked, content="look", tools=["look"])
        async with Agent(script, [tools], storage=storage, settings=settings) as agent:
            if isinstance(run, str):
                return await agent.start("Look", settings={"confirm": run})
            while run.pending:
                run = await agent.resume(run, "approve")
            return run

    async with McpServers(before) as servers:
        runs = [await answer(servers, confirm) for confirm in ("never", "always")]
    assert "a tool of the server one" in runs[0].pending[0]["text"]
    assert "look (one)" in runs[1].pending[0]["text"]
    async with McpServers(after) as servers:
        for run in runs if why else ():
            with pytest.raises(ToolMissing, match=why) as caught:
                await answer(servers, run)
            assert "is called" not in str(caught.value)
        if not why:
            assert (await answer(servers, runs.pop(0))).status == "completed"
    async with McpServers(before) as servers:
        for run in runs:
            assert (await answer(servers, run)).status == "completed"


async def test_a_server_that_does_not_start_is_named_and_the_others_are_stopped(tmp_path: Path) -> None:
    """N32: the error says which server and why, with what it printed; no process is left."""
    alive = tmp_path / "alive"
    good = f"""
        import atexit, pathlib
        from mcp.server.mcpserver import MCPServer
        pathlib.Path({str(alive)!r}).write_text("yes")
        atexit.register(pathlib.Path({str(alive)!r}).unlink)
        MCPServer("good", log_level="ERROR").run()
    """
    config = {
        "good": python(tmp_path, good),
        "missing": {"command": "no-such-program-anywhere"},
        "broken": python(tmp_path, "raise SystemExit('the licence has expired')"),
        "quiet": {"command": "/bin/false"},
    }
    with pytest.raises(ConfigError) as caught:
        async with McpServers({"mcpServers": config}):
            raise AssertionError("it started")
    assert "'missing' did not start: FileNotFoundError" in str(caught.value)
    assert "'broken' did not start: it ended without an answer; it said: the licence has expired" in str(caught.value)
    assert str(caught.value).endswith("'quiet' did not start: it ended without an answer")
    assert "'good'" not in str(caught.value)
    assert not alive.exists()


async def test_a_server_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    """U12: people are told of it before, once."""
    silent = python(tmp_path, "import sys\nprint('waiting for a disk', file=sys.stderr, flush=True)\nsys.stdin.read()")
    slow: list[str] = []
    with pytest.raises(ConfigError, match="no answer within 2\\.5 seconds; it said: waiting for a disk"):
        async with McpServers({"silent": silent}, start_seconds=2.5, slow=slow.append):
            raise AssertionError("it started")
    assert slow == ["silent"]


async def test_a_remote_server_that_is_not_there_is_named() -> None:
    config = {"far": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}}
    with pytest.raises(ConfigError, match="'far' did not start") as caught:
        async with McpServers(config, environment={"TOKEN": "tok_4fJ9xQ2mZ8vB1nT6"}, start_seconds=10):
            raise AssertionError("it started")
    assert "4fJ9" not in str(caught.value)


def test_the_usual_forms_of_configuration_are_read(tmp_path: Path) -> None:
    """N32: mcpServers, VS Code's servers, or the bare map; variables with defaults; transports by their usual names;
    a file with the byte order mark of Windows' editors."""
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"shop": {"command": "shop"}}}', "utf-8-sig")
    assert [*read_servers(file, {})] == ["shop"]
    local = {"command": "${BIN:-uvx}", "args": ["${env:WHAT}"], "env": {"KEY": "${KEY}"}, "autoApprove": []}
    environment = {"WHAT": "mcp-server-time", "KEY": "k"}
    read = {"command": "uvx", "args": ["mcp-server-time"], "env": {"KEY": "k"}}
    for config in ({"mcpServers": {"time": local}}, {"servers": {"time": local}}, {"time": local}):
        assert read_servers(config, environment) == {"time": read}
    remote = {kind: {"url": "https://x.org/mcp", "type": kind} for kind in ("http", "streamable-http", "sse")}
    assert [each["transport"] for each in read_servers(remote, {}).values()] == [
        "streamable_http",
        "streamable_http",
        "sse",
    ]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"mcpServers": []}, "MCP servers are given as"),
        ({"a": 3}, "'a' must be an object"),
        ({"a": {}}, "'a' needs a command"),
        ({"a": {"command": "x", "args": "y"}}, "args of the MCP server 'a'"),
        ({"a": {"command": "x", "env": {"K": 1}}}, "env of the MCP server 'a'"),
        ({"a": {"url": "x", "type": "carrier pigeon"}}, "'carrier pigeon'"),
        ({"a": {"command": "x", "legacy": "true"}}, "legacy of the MCP server 'a' is true or false, not 'true'"),
        ({"a": {"url": "x", "trust": 1}}, "trust of the MCP server 'a' is true or false"),
        ({"a": {"command": "${GONE}"}}, "wants the variable GONE, which is not set"),
        ("/no/such/file.json", "/no/such/file.json cannot be read"),
        (__file__, "is not JSON"),
    ],
)
def test_a_wrong_configuration_is_a_clear_error(config: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        McpServers(config)


ODD = """
    import json, sys
    TOOLS = [{"name": name, "inputSchema": {"type": "object", "properties": {"who": about}}} for name, about in (
        ("broken", {"$ref": "http://elsewhere.example/schema.json"}), ("finish_step", {"type": "string"}))]
    for line in sys.stdin:
        message = json.loads(line)
        results = {"tools/list": {"tools": TOOLS}, "tools/call": {"content": [{"type": "text", "text": "called"}]},
                   "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                                  "serverInfo": {"name": "odd", "version": "1"}}}
        if "id" in message:
            result = results.get(message["method"])
            more = {"result": result} if result else {"error": {"code": -32601, "message": "unknown method"}}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **more}), flush=True)
"""


async def test_one_broken_tool_leaves_the_others_in_use(tmp_path: Path) -> None:
    """N42: a tool whose schema cannot be offered is left out and named; a control tool's name is taken from nobody."""
    async with McpServers({"mcpServers": {"odd": python(tmp_path, ODD)}}) as servers:
        assert [tool.name for tool in servers.tools] == ["odd_finish_step"]
        assert "http://elsewhere.example/schema.json" in servers.unusable["broken"]
        Agent("demo", servers.tools, storage="memory:")
        assert (await called(servers, "odd_finish_step", {"who": "me"})).text == "called"
