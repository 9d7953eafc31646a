"""A CI job: a goal without a person. It asks nothing, keeps its limits, and says by its exit code how it ended.

Runs without a key, with the demo model; the same on the command line:
donewhen run "…" --yes --confirm never --limit rounds=20 --on-question assume --json
"""

import asyncio
import json
import shutil
import tempfile
from pathlib import Path

from donewhen import Agent, Limits, Settings
from donewhen.workspace import workspace_tools

SHOP = Path(__file__).parent / "shop"
EXIT = {"completed": 0, "partial": 4, "exhausted": 4}
SETTINGS = Settings(confirm="never", on_question="assume", on_exhausted="deliver", limits=Limits(rounds=20))


async def job(folder: Path) -> int:
    """Write the report; print what a later job reads, and return the exit code."""
    async with Agent("demo", workspace_tools(folder), settings=SETTINGS, storage="memory:") as agent:
        run = await agent.start("total the amount in sales.csv by region, then write a report to report.md")
    print(json.dumps({"status": run.status, "rounds": run.spent["rounds"], "report": (folder / "report.md").exists()}))
    return EXIT.get(run.status, 1)


def main() -> int:
    """Work on a copy."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(SHOP, folder, dirs_exist_ok=True)
        return asyncio.run(job(Path(folder)))


if __name__ == "__main__" and (code := main()):
    raise SystemExit(code)
