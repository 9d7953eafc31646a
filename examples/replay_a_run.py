"""A run becomes a test: it is recorded once, with real files, and replayed without them and without a model.

The same with the command: DONEWHEN_RECORD=1 donewhen run "…", donewhen record THREAD tests/report.jsonl
"""

import asyncio
import tempfile
from pathlib import Path

from donewhen import Agent, AgentOptions
from donewhen.testing import Recording, ReplayDifference
from donewhen.workspace import workspace_tools

SHOP = Path(__file__).parent / "shop"


async def main() -> None:
    """Record a run, replay it, and show what a change would say."""
    path = Path(tempfile.mkdtemp()) / "sales.jsonl"
    async with Agent(
        "demo", workspace_tools(SHOP, write=False), storage="memory:", options=AgentOptions(record=True)
    ) as agent:
        run = await agent.start("total the amount in sales.csv by region", settings={"confirm": "never"})
        (await Recording.of(agent, run)).save(path)
    again = await Recording.load(path).replay()
    print(f"{again.status}, without the files: {again.answer == run.answer}")
    try:
        await Recording.load(path).replay(instructions="Answer in one word.")
    except ReplayDifference as difference:
        print(str(difference).partition("\n")[0])


if __name__ == "__main__":
    asyncio.run(main())
