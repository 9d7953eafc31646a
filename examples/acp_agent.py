"""An agent of your own in an editor over ACP; `donewhen acp` is one without code. Needs the extra `acp`."""

import asyncio

from donewhen import Agent
from donewhen.servers import serve_acp
from donewhen.workspace import workspace_tools


async def make(folder: str) -> Agent:
    """Return the agent for a folder of the editor."""
    return Agent("demo", workspace_tools(folder))


if __name__ == "__main__":
    asyncio.run(serve_acp(make))
