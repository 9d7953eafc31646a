"""A CI job: a goal without a person. It keeps its limits, and says by its exit code how it ended.

What must hold at the end is checked by code, whatever the model plans and says. A call that needs a person's consent
would leave the run waiting, which is no success either.

Runs without a key, with the demo model; the same on the command line:
donewhen run "…" --yes --confirm never --limit rounds=20 --on-question assume --json
    --done-when '{"text": "…", "check": {"tool": "file_exists", "arguments": {"path": "report.md"}}}'
"""

import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from donewhen import Agent
from donewhen.workspace import workspace_tools

SHOP = Path(__file__).parent / "shop"
EXIT = {"completed": 0, "answered": 0, "partial": 4, "exhausted": 4}
TOTAL = {"tool": "file_contains", "arguments": {"path": "report.md", "text": "West: 939.00"}}
SETTINGS: dict[str, Any] = {
    "confirm": "never",
    "on_question": "assume",
    "on_exhausted": "deliver",
    "limits": {"rounds": 20},
    "done_when": [{"text": "The report has the total of West", "check": TOTAL}],
}


async def job(folder: Path) -> int:
    """Write the report; print what a later job reads, and return the exit code."""
    async with Agent("demo", workspace_tools(folder), settings=SETTINGS, storage="memory:") as agent:
        run = await agent.start("total the amount in sales.csv by region, then write a report to report.md")
    receipt = run.receipt or {}
    rows = [row for part in (receipt, *receipt["steps"]) for row in part["criteria"]]  # of the goal, and of the steps
    proven = [row["verdict"] for row in rows if row["text"] == SETTINGS["done_when"][0]["text"]]
    print(json.dumps({"status": run.status, "rounds": run.spent["rounds"], "proven": proven}))
    return EXIT.get(run.status, 1)


def main() -> int:
    """Work on a copy."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(SHOP, folder, dirs_exist_ok=True)
        return asyncio.run(job(Path(folder)))


if __name__ == "__main__" and (code := main()):
    raise SystemExit(code)
