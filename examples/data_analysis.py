"""Data analysis: questions about CSV files, answered by SQL over them. Runs without a key, with the demo model.

The tools come with the package: `query_data` reads CSV, Parquet, JSON and Excel through DuckDB, and nothing else.
"""

import asyncio
from pathlib import Path

from donewhen import Agent
from donewhen.workspace import workspace_tools

SHOP = Path(__file__).parent / "shop"


async def main() -> None:
    """Ask, approve the plan, and print the answer with the rows that show it."""
    async with Agent("demo", workspace_tools(SHOP, write=False), storage="memory:") as agent:
        run = await agent.start("total the amount in sales.csv by region")
        if run.status == "waiting":
            run = await agent.resume(run, "approve")
        print(f"{run.status}:\n{run.answer}")
        assert run.receipt is not None
        for step in run.receipt["steps"]:
            for criterion in step["criteria"]:
                print(*(evidence.get("quote") for evidence in criterion["evidence"]), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
