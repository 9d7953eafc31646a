"""Tools of an MCP server that asks in the middle of a call; the answer may come days later, from another process.

This file is both ends: with `server` as argument it is a shop on stdin and stdout. Needs the extra `mcp`.
"""

import asyncio
import sys
from typing import Annotated, Literal

from mcp.server.mcpserver import AcceptedElicitation, Elicit, ElicitationResult, MCPServer, Resolve
from pydantic import BaseModel

from donewhen import Agent, McpServers
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

shop = MCPServer("shop", log_level="ERROR")
SERVERS = {"mcpServers": {"shop": {"command": sys.executable, "args": [__file__, "server"]}}}


class Size(BaseModel):
    """What the shop wants to know."""

    size: Literal["S", "M", "L"]
    count: int = 1


def which_size(what: str) -> Elicit[Size]:
    """Return the shop's question."""
    return Elicit(f"Which size of {what}?", Size)


@shop.tool()
def order(what: str, asked: Annotated[ElicitationResult[Size], Resolve(which_size)]) -> str:
    """Order something."""
    if not isinstance(asked, AcceptedElicitation):
        return f"not ordered: {asked.action}"
    return f"ordered {asked.data.count} {what} in {asked.data.size}"


async def main() -> None:
    """Order a shirt; the plan, and then the shop, ask."""
    plan = submit_plan([{"content": "Order a shirt", "done_when": "It is ordered", "tools": ["order"]}])
    work = [call("order", what="shirt"), finish_step("The shirt is ordered.", ("s1.2", "in L"))]
    model = ScriptedModel(roles={"triage": [plan], "execute": work})  # in place of Agent("openai:…", …)
    async with McpServers(SERVERS) as servers, Agent(model, [servers], storage="memory:") as agent:
        run = await agent.start("Order a shirt")
        run = await agent.resume(run, "approve")
        print(run.pending[0]["question"], run.pending[0]["schema"]["properties"]["size"]["enum"])
        run = await agent.resume(run, {"size": "L"})
        print(run.status, run.answer)


if __name__ == "__main__":
    shop.run() if sys.argv[1:] == ["server"] else asyncio.run(main())
