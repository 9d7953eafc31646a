"""Tools that are added and removed while an agent lives: by its owner, and by MCP servers that change."""

import asyncio
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from donewhen import Agent, McpServers, ToolError
from donewhen.agent.work.thread_rows import QUEUE
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, give_up, submit_plan
from tests.kit.flows import FREE, one_step

PLAN = submit_plan([{"content": "look", "tools": ["look"]}, {"content": "take", "tools": ["take"]}])


def look() -> str:
    """Look."""
    return "three apples"


def take(what: str) -> str:
    """Take something."""
    return f"took {what}"


def count() -> str:
    """Count."""
    return "three"


def notes(events: list[Any]) -> list[str]:
    """The texts of notes and corrections."""
    return [event["text"] for event in events if event["type"] in ("note", "correction")]


async def test_tools_are_added_and_removed_while_an_agent_lives() -> None:
    """N45: the next run has what is there then; a name is there once, and what cannot be offered changes nothing."""
    model = one_step([call("count"), finish_step("three", ("s1.1", "three"))], tools=["count"])
    async with Agent(model, [look], storage="memory:", effects={"look": "read"}) as agent:
        assert [tool.name for tool in agent.tools] == ["look"]
        agent.tools.add(
            count, {"ask": {"description": "Ask.", "input_schema": {}}}, caller=print, effects={"count": "read"}
        )
        with pytest.raises(ToolError, match="look"):
            agent.tools.add(look)
        with pytest.raises(ToolError, match="'gone'"):
            agent.tools.remove("gone")
        assert [tool.name for tool in agent.tools] == ["look", "count", "ask"]
        agent.tools.remove("look", "ask")
        assert len(agent.tools) == 1
        assert "count" in agent.tools
        run = await agent.start("Count", settings=FREE)
        assert run.status == "completed"
    asked = next(request for request in model.requests if request.role == "execute")
    assert {tool["function"]["name"] for tool in asked.tools} & {"look", "count", "ask"} == {"count"}


async def test_a_tool_that_a_profile_forbids_may_go_and_come() -> None:
    """N45: its name is no misspelling then; when it is back it is forbidden as before."""
    model = one_step([call("look"), finish_step("seen", ("s1.1", "apples"))], tools=["look"])
    profile = {"forbidden_tools": ["take"]}
    async with Agent(model, [look, take], storage="memory:", settings={**FREE, "profile": profile}) as agent:
        agent.tools.remove("take")
        assert (await agent.start("Look")).status == "completed"
        agent.tools.add(take)
    refused = one_step([call("take", what="it"), finish_step("not taken", "s1.result")])
    async with Agent(refused, [look], storage="memory:", settings={**FREE, "limits": {"model_calls": 4}}) as agent:
        agent.tools.add(take)
        stream = agent.stream("Take it", settings={"profile": profile, "on_exhausted": "stop"})
        assert any("there is no tool 'take'" in text for text in notes([event async for event in stream]))


@pytest.mark.parametrize("way", ["waits", "submitted", "scheduled", "its graph"])
async def test_what_a_profile_forbids_later_holds_for_runs_from_before(tmp_path: Path, way: str) -> None:
    """Q34: the profile of the agent that goes on holds, however the run was kept; nothing forbidden is called."""
    storage, taken = f"sqlite:///{tmp_path}/runs.db", []

    def take(what: str) -> str:
        """Take something."""
        taken.append(what)
        return "took it"

    step = {"content": "take", "tools": ["take"]}
    plan = submit_plan([step], schedule={"every_minutes": 60}) if way == "scheduled" else submit_plan([step])
    first: dict[str, Any] = {"storage": storage, "settings": {"profile": {"role": "clerk"}, "approvals": "plan"}}
    async with Agent(ScriptedModel(roles={"triage": [plan]}), [take], **first) as agent:
        begin = agent.submit if way == "submitted" else agent.start
        run = await begin("Take it", thread_id="t", settings={"confirm": "never" if way == "submitted" else "always"})
        if way == "scheduled":
            await agent.resume(run, "approve")
            (thread,) = await agent.schedules.start_due(QUEUE, datetime.now(UTC) + timedelta(hours=1.1))
    replies = [call("take", what="it"), give_up("I may not take it")]
    model = ScriptedModel(roles={"triage": [plan], "execute": replies}, strict=False)
    later = {"profile": {"forbidden_tools": ["take"]}}
    async with Agent(model, [take], storage=storage, settings=later) as agent:
        if way == "waits":
            await agent.resume(run, "approve")
        elif way == "its graph":
            await agent.graph.ainvoke(Command(resume="approve"), {"configurable": {"thread_id": "t"}})
        else:
            ended = await agent.run_submitted(thread if way == "scheduled" else "t")
    asked = [tool["function"]["name"] for request in model.requests for tool in request.tools]
    assert "take" not in asked
    if way == "scheduled":  # its kept plan is refused before any request
        assert ended.outcome is not None
        assert "the profile forbids" in ended.outcome["reason"]
    else:
        assert asked
    assert taken == []


async def test_a_tool_of_the_plan_that_went_away_is_named(tmp_path: Path) -> None:
    """N45: in the process that goes on, people and the model are told which tool is not there; a call is corrected."""
    storage = f"sqlite:///{tmp_path}/runs.db"
    first = ScriptedModel(roles={"triage": [PLAN], "execute": {"s1": [ask_user("Which basket?")]}})
    async with Agent(first, [look, take], storage=storage, settings={"confirm": "never"}) as agent:
        run = await agent.start("Look and take")
    work = {
        "s1": [call("look"), finish_step("three apples", ("s1.2", "three"))],
        "s2": [call("take", what="an apple"), call("take_apple", what="an apple"), finish_step("took it", "s2.1")],
    }
    model = ScriptedModel(roles={"execute": work, "deliver": ["Done."]})

    def take_apple(what: str) -> str:
        """Take an apple."""
        return take(what)

    async with Agent(model, [look], storage=storage) as agent:
        agent.tools.add(take_apple)
        stream = agent.stream_resume(run, "the red one", settings={"approvals": "never"})
        told = notes([event async for event in stream])
    assert "Step s2 names tools that are not here: take." in told
    assert any("there is no tool 'take'" in text for text in told)
    brief = next(request for request in model.requests if request.step == "s2").messages[-1].text
    assert "not there now: take." in brief
    assert stream.run is not None
    assert "took an apple" in model.requests[-2].messages[-1].text + model.requests[-1].messages[-1].text


async def test_a_tool_that_went_away_while_its_call_waited_is_not_called() -> None:
    """N45, X15: the approved call is refused, the model is told, and the step goes on."""
    finished = finish_step("three apples", ("s1.2", "three"), unchanged="there is no tool for it")
    work = [call("take", what="an apple"), call("look"), finished]
    model = one_step(work, tools=["take"])
    settings = {"confirm": "never", "approvals": "each", "verification": "grounded"}
    async with Agent(model, [look, take], storage="memory:", effects={"look": "read"}, settings=settings) as agent:
        run = await agent.start("Take an apple")
        assert run.pending[0]["tool"] == "take"
        agent.tools.remove("take")
        run = await agent.resume(run, "approve")
    model.assert_exhausted()
    assert "there is no tool take any more" in " ".join(request.messages[-1].text for request in model.requests)


async def test_a_call_at_work_is_not_disturbed() -> None:
    """N45: a tool that is removed while it works ends its call; what it returned counts."""
    at_work, removed = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        """Take a while."""
        at_work.set()
        await removed.wait()
        return "ready at last"

    model = one_step([call("slow"), finish_step("ready", ("s1.1", "at last"))])
    async with Agent(model, [slow], storage="memory:", effects={"slow": "read"}) as agent:
        working = asyncio.ensure_future(agent.start("Wait", settings=FREE))
        await at_work.wait()
        agent.tools.remove("slow")
        removed.set()
        assert (await working).status == "completed"
        assert list(agent.tools) == []


MODERN = """
    from mcp.server.mcpserver import Context, MCPServer
    server = MCPServer("shop", log_level="ERROR")

    def second() -> str:
        "The second."
        return "two"

    @server.tool()
    async def grow(context: Context) -> str:
        "Grow."
        server.add_tool(second)
        await context.notify_tools_changed()
        return "grown"

    @server.tool()
    async def shrink(context: Context) -> str:
        "Shrink."
        server.remove_tool("second")
        await context.notify_tools_changed()
        return "shrunk"

    server.run()
"""
BEFORE = """
    import json, sys
    names = ["grow", "shrink"]

    def send(**message):
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

    for line in sys.stdin:
        message = json.loads(line)
        method, id = message.get("method"), message.get("id")
        if method == "initialize":
            send(id=id, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}},
                                "serverInfo": {"name": "shop", "version": "1"}})
        elif method == "tools/list":
            send(id=id, result={"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]})
        elif method == "tools/call":
            names = ["grow", "shrink"] + ["second"] * (message["params"]["name"] == "grow")
            send(method="notifications/tools/list_changed")
            send(id=id, result={"content": [{"type": "text", "text": "done"}]})
        elif id is not None:
            send(id=id, error={"code": -32601, "message": "unknown method"})
"""


@pytest.mark.parametrize("code", [MODERN, BEFORE], ids=["2026-07-28", "2025-06-18"])
async def test_a_server_that_changes_its_tools(code: str, tmp_path: Path) -> None:
    """N42: the agent has the tools that the server has now; they go when the servers are closed."""
    (tmp_path / "shop.py").write_text(textwrap.dedent(code))
    config = {"mcpServers": {"shop": {"command": sys.executable, "args": [str(tmp_path / "shop.py")]}}}
    changed, loop = asyncio.Queue[list[str]](), asyncio.get_running_loop()
    servers = McpServers(config)
    agent = Agent(
        one_step([call("grow"), call("shrink"), finish_step("done", "s1.2")]), [servers, look], storage="memory:"
    )
    servers.subscribe(lambda: loop.call_soon_threadsafe(changed.put_nowait, [tool.name for tool in agent.tools]))
    assert [tool.name for tool in agent.tools] == ["look"]
    async with agent:
        async with servers:
            assert await changed.get() == ["look", "grow", "shrink"]
            by_name = {tool.name: tool for tool in agent.tools}
            await by_name["grow"].ainvoke({})
            assert await changed.get() == ["look", "grow", "shrink", "second"]
            await by_name["shrink"].ainvoke({})
            assert await changed.get() == ["look", "grow", "shrink"]
        assert await changed.get() == ["look"]
        agent.tools.remove(servers)


async def test_servers_that_do_not_start_may_be_left_out(tmp_path: Path) -> None:
    """N42: with `optional` the others work, and what is missing is named."""
    (tmp_path / "shop.py").write_text(textwrap.dedent(BEFORE))
    good = {"command": sys.executable, "args": [str(tmp_path / "shop.py")]}
    async with McpServers({"good": good, "bad": {"command": "no-such-program"}}, optional=True) as servers:
        assert [tool.name for tool in servers.tools] == ["grow", "shrink"]
        (missing,) = servers.missing
        assert "the MCP server 'bad' did not start" in missing
