"""Research with citations: two searches side by side, and a judge that sends back what no source shows.

Runs without a key, from a script.
"""

import asyncio

from donewhen import Agent
from donewhen.testing import ScriptedModel, audit, call, finish_step, submit_plan

PAGES = {
    "tides": "[almanac.example] The highest tides of the world, up to 16 metres, are in the Bay of Fundy.",
    "energy": "[energy.example] The tidal plant of Annapolis Royal in the Bay of Fundy closed in 2019.",
}


def search(topic: str) -> str:
    """Search for a topic, and return passages with their sources."""
    return PAGES[topic]


def model() -> ScriptedModel:
    """Look two topics up, and claim more than they say."""
    plan = submit_plan(
        [
            {"id": "tides", "content": "How high are the tides?", "depends_on": [], "tools": ["search"]},
            {"id": "energy", "content": "Is there a power plant?", "depends_on": [], "tools": ["search"]},
            {"id": "report", "content": "Write it down", "depends_on": ["tides", "energy"], "tools": []},
        ],
        title="The Bay of Fundy",
    )
    work = {
        "tides": [call("search", topic="tides"), finish_step("Up to 16 metres", ("tides.1", "up to 16 metres"))],
        "energy": [call("search", topic="energy"), finish_step("Closed in 2019", ("energy.1", "closed in 2019"))],
    }
    shown = "The highest tides are in the Bay of Fundy, up to 16 metres. Its tidal plant closed in 2019."
    judge = [audit((3, "no", "no source says why")), audit()]  # the third sentence goes back once
    said = [f"{shown} It was too expensive.", shown]
    work["report"] = [finish_step(text, "report.result") for text in said]
    return ScriptedModel(roles={"triage": [plan], "execute": work, "judge": judge})


async def main() -> None:
    """Run it, and print each claim with where it stands."""
    async with Agent(model(), [search], effects={"search": "read"}, storage="memory:") as agent:
        run = await agent.start("What about tides and power in the Bay of Fundy?", settings={"confirm": "never"})
        print(f"{run.status}: {run.answer}")
        assert run.receipt is not None
        for step in run.receipt["steps"]:
            for criterion in step["criteria"]:
                for evidence in criterion["evidence"]:
                    print(f"  {step['result']}  [{evidence['observation']}] {evidence.get('quote', '')}")
        sentences = run.receipt["audit"]["sentences"]
        print(f"audited: {sum(row['shown'] == 'yes' for row in sentences)} of {len(sentences)} sentences shown")


if __name__ == "__main__":
    asyncio.run(main())
