"""An agent of your own in an editor over ACP; `donewhen acp` is one without code. Run: python -m examples.acp_agent"""

import asyncio

from donewhen import Agent
from donewhen.agent.acp.server import serve
from donewhen.workspace import workspace_tools


async def make(folder: str) -> Agent:
    """Return the agent for a folder of the editor."""
    return Agent("demo", workspace_tools(folder))


if __name__ == "__main__":
    asyncio.run(serve(make))
