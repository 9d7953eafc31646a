"""MCP servers that ask in the middle of a call, in the protocol of 2026 and in the older one."""

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, McpServers
from donewhen.testing import ScriptedModel, call, finish_step, give_up
from tests.kit.flows import one_step

TODAY = """
    import sys
    from typing import Annotated, Literal
    from mcp.server.mcpserver import AcceptedElicitation, Elicit, ElicitationResult, MCPServer, Resolve
    from pydantic import BaseModel
    server = MCPServer("shop", log_level="ERROR")

    class Order(BaseModel):
        size: Literal["S", "M", "L"]
        count: int = 1

    def ask(what: str) -> Elicit[Order]:
        return Elicit(f"Which {what}?", Order)

    @server.tool()
    async def order(what: str, asked: Annotated[ElicitationResult[Order], Resolve(ask)]) -> str:
        "Order something."
        if not isinstance(asked, AcceptedElicitation):
            return f"not ordered: {asked.action}"
        with open(sys.argv[1], "a") as log:
            log.write(what + " ")
        return f"{asked.data.count} {what} in {asked.data.size}"

    server.run()
"""
FROM_CONTEXT = TODAY.replace(
    "what: str, asked: Annotated[ElicitationResult[Order], Resolve(ask)]", "what: str, ctx: Context"
)
FROM_CONTEXT = FROM_CONTEXT.replace("import AcceptedElicitation", "import Context, AcceptedElicitation").replace(
    '"Order something."', '"Order something."; asked = await ctx.elicit(f"Which {what}?", Order)'
)
BEFORE = """
    import json, sys

    FORM = {"type": "object", "required": ["size"], "properties": {
        "size": {"type": "string", "enum": ["S", "M", "L"]}, "count": {"type": "integer", "default": 1}}}
    TOOL = {"name": "order", "description": "Order something.",
            "inputSchema": {"type": "object", "properties": {"what": {"type": "string"}}}}
    waiting = {}

    def send(**message):
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

    for line in sys.stdin:
        message = json.loads(line)
        method, id = message.get("method"), message.get("id")
        if method == "initialize":
            capabilities = {"tools": {}}
            send(id=id, result={"protocolVersion": "2025-06-18", "capabilities": capabilities,
                                "serverInfo": {"name": "shop", "version": "1"}})
        elif method == "tools/list":
            send(id=id, result={"tools": [TOOL]})
        elif method == "tools/call":
            what = message["params"]["arguments"]["what"]
            waiting[f"q{id}"] = (id, what)
            params = {"message": f"Which {what}?", "requestedSchema": FORM}
            send(id=f"q{id}", method="elicitation/create", params=params)
        elif method == "notifications/cancelled":
            waiting.pop(f"q{message['params']['requestId']}", None)
        elif method is None and id in waiting:
            call, what = waiting.pop(id)
            if "error" in message:
                refusal = {"type": "text", "text": message["error"]["message"]}
                send(id=call, result={"isError": True, "content": [refusal]})
                continue
            said = message["result"]
            text = f"not ordered: {said['action']}"
            if said["action"] == "accept":
                with open(sys.argv[1], "a") as log:
                    log.write(what + " ")
                text = f"{said['content']['count']} {what} in {said['content']['size']}"
            send(id=call, result={"content": [{"type": "text", "text": text}]})
        elif id is not None:
            send(id=id, error={"code": -32601, "message": "unknown method"})
"""
SETTINGS = {"confirm": "never", "approvals": "never"}


def shop(code: str, folder: Path, **more: Any) -> dict[str, Any]:
    """The configuration of a shop; what it really sold stands in `sold.txt`."""
    (folder / "shop.py").write_text(textwrap.dedent(code))
    arguments = [str(folder / "shop.py"), str(folder / "sold.txt")]
    return {"mcpServers": {"shop": {"command": sys.executable, "args": arguments, **more}}}


@pytest.mark.parametrize(
    ("code", "legacy"),
    [(TODAY, False), (BEFORE, False), (FROM_CONTEXT, True)],
    ids=["2026-07-28", "2025-06-18", "ctx.elicit"],
)
async def test_a_question_of_a_server_is_answered_in_another_process(code: str, legacy: bool, tmp_path: Path) -> None:
    """N42: it waits in storage with its form; the server may have been stopped meanwhile; the order is made once."""
    storage, config = f"sqlite:///{tmp_path}/runs.db", shop(code, tmp_path, legacy=legacy)
    script = [call("order", what="shirt"), finish_step("ordered", "s1.2")]
    async with McpServers(config) as servers, Agent(one_step(script[:1]), servers.tools, storage=storage) as agent:
        run = await agent.start("Order a shirt", settings=SETTINGS)
        assert run.status == "waiting"
        assert run.pending[0]["question"] == "shop asks: Which shirt?"
        assert run.pending[0]["schema"]["properties"]["size"]["enum"] == ["S", "M", "L"]
        assert [row["schema"] for row in await agent.pending()] == [run.pending[0]["schema"]]
    assert not (tmp_path / "sold.txt").exists()
    later = ScriptedModel(roles={"execute": script[1:]})
    async with McpServers(config) as servers, Agent(later, servers.tools, storage=storage) as agent:
        run = await agent.resume(run, "XXL")
        assert "size" in str(run.pending[0]["problem"])
        run = await agent.resume(run, "size: L")
        assert run.status == "completed"
        told = later.requests[0].messages[-1].text
    assert "1 shirt in L" in told
    assert (tmp_path / "sold.txt").read_text().split() == ["shirt"]


@pytest.mark.parametrize("code", [TODAY, BEFORE], ids=["2026-07-28", "2025-06-18"])
async def test_a_question_may_be_declined(code: str, tmp_path: Path) -> None:
    """N42: the server is told that the user declined, and the model what the server made of it."""
    model = one_step([call("order", what="shirt"), finish_step("not wanted", "s1.2")])
    async with McpServers(shop(code, tmp_path)) as servers, Agent(model, servers.tools, storage="memory:") as agent:
        run = await agent.start("Order a shirt", settings=SETTINGS)
        run = await agent.resume(run, {"type": "ignore"})
        assert run.status == "completed"
    assert "not ordered: decline" in model.requests[-1].messages[-1].text
    assert not (tmp_path / "sold.txt").exists()


CHANGING = (
    BEFORE.replace('f"Which {what}?"', 'f"Which {what}? {len(seen)}"')
    .replace("what = message", "seen.append(id); what = message")
    .replace("waiting = {}", "waiting, seen = {}, []")
)


async def test_an_answer_is_for_the_question_that_was_asked(tmp_path: Path) -> None:
    """N42, X26: a server that asks something else when it is called again is not given the answer of before."""
    model = one_step([call("order", what="shirt"), finish_step("ordered", "s1.2")])
    async with McpServers(shop(CHANGING, tmp_path)) as servers, Agent(model, servers.tools, storage="memory:") as agent:
        run = await agent.start("Order a shirt", settings=SETTINGS)
        assert run.pending[0]["question"] == "shop asks: Which shirt? 1"
        run = await agent.resume(run, {"size": "L"})
        assert (run.status, run.pending[0]["question"]) == ("waiting", "shop asks: Which shirt? 2")
    assert not (tmp_path / "sold.txt").exists()


READING = BEFORE.replace(
    '"description": "Order something."', '"description": "Look up.", "annotations": {"readOnlyHint": True}'
)


async def test_calls_at_the_same_time_that_ask_in_the_older_protocol(tmp_path: Path) -> None:
    """N42: where the server cannot say which of them asks, those that only read are made again, one after the other."""
    both = [call("order", what="shirt"), call("order", what="hat")]
    model = one_step([both, finish_step("looked up", "s1.3")], tools=["order"])
    async with McpServers(shop(READING, tmp_path)) as servers, Agent(model, servers.tools, storage="memory:") as agent:
        run = await agent.start("Look both up", settings=SETTINGS)
        asked = []
        while run.status == "waiting":
            asked.append(run.pending[0]["question"])
            run = await agent.resume(run, {"size": "L" if "shirt" in asked[-1] else "S"})
        assert sorted(asked) == ["shop asks: Which hat?", "shop asks: Which shirt?"]
        assert run.status == "completed"
    told = str([message.text for message in model.requests[-1].messages])
    assert "1 shirt in L" in told
    assert "1 hat in S" in told


async def test_a_form_that_nobody_could_fill_is_refused(tmp_path: Path) -> None:
    """N42: the server and the model read why; no person is asked for an answer that would count as none."""
    long = BEFORE.replace('{"type": "integer", "default": 1}', '{"type": "integer", "description": "x" * 30_000}')
    model = one_step(
        [call("order", what="shirt"), finish_step("not ordered", ("s1.1", "too long")), give_up("no form")]
    )
    async with McpServers(shop(long, tmp_path)) as servers, Agent(model, [servers], storage="memory:") as agent:
        run = await agent.start("Order a shirt", settings=SETTINGS)
    assert "shop asks" not in str(run.pending)
    assert "this form is too long for people" in str([message.text for message in model.requests[-1].messages])
    assert not (tmp_path / "sold.txt").exists()


async def test_no_request_is_open_while_a_question_waits(tmp_path: Path) -> None:
    """N42: a server of the older protocol is told that the call is cancelled, so no time limit runs for days."""
    pop = """waiting.pop(f"q{message['params']['requestId']}", None)"""
    logging = BEFORE.replace(pop, f"{pop}\n            open(sys.argv[1] + '.log', 'a').write('cancelled ')")
    model = one_step([call("order", what="shirt"), finish_step("ordered", "s1.2")])
    async with McpServers(shop(logging, tmp_path)) as servers, Agent(model, [servers], storage="memory:") as agent:
        run = await agent.start("Order a shirt", settings={**SETTINGS, "tool_seconds": 30})
        run = await agent.resume(run, {"size": "L"})
        assert run.status == "completed"
    assert (tmp_path / "sold.txt.log").read_text().split() == ["cancelled"]
