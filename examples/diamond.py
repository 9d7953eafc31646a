"""A diamond: two branches side by side, one of them slow, and a step that needs both. Runs without a key.

The model answers from a script; what is shown is when each step runs.
"""

import asyncio
import time

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

PLAN = submit_plan(
    [
        {"id": "list", "content": "List the suppliers", "depends_on": [], "tools": ["fetch"]},
        {"id": "slow", "content": "Ask the slow archive", "depends_on": ["list"], "tools": ["fetch"]},
        {"id": "quick", "content": "Ask the price list", "depends_on": ["list"], "tools": ["fetch"]},
        {"id": "sum", "content": "Add up the prices", "depends_on": ["quick"], "tools": ["fetch"]},
        {"id": "report", "content": "Compare both", "depends_on": ["slow", "sum"], "tools": []},
    ],
    title="Compare two sources",
)
SECONDS = {"list": 0.05, "slow": 0.5, "quick": 0.1, "sum": 0.1}


async def fetch(what: str) -> str:
    """Fetch something, in its own time."""
    await asyncio.sleep(SECONDS[what])
    return f"{what}: 42"


def model() -> ScriptedModel:
    """Plans the diamond, and works on each step with one call."""
    work = {id: [call("fetch", what=id), finish_step(f"{id} says 42", f"{id}.1")] for id in SECONDS}
    report = [finish_step("Both sources say 42.", "report.result")]
    return ScriptedModel(roles={"triage": [PLAN], "execute": {**work, "report": report}})


async def main() -> None:
    """Run it and print when each step began and ended."""
    async with Agent(model(), [fetch], effects={"fetch": "read"}, storage="memory:") as agent:
        started = time.monotonic()
        async for event in agent.stream("Compare two sources", settings={"confirm": "never"}):
            if event["type"] in ("step_started", "step_finished"):
                print(f"{time.monotonic() - started:5.2f} s  {event['step']:6}  {event['type'].removeprefix('step_')}")
            elif event["type"] == "outcome":
                print(event["text"])


if __name__ == "__main__":
    asyncio.run(main())
