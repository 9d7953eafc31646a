"""A skill at work: one line about it is in the prompt; the model reads the rest, and takes over its criterion.

Runs without a key, with a scripted model.
"""

import asyncio
from pathlib import Path

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from donewhen.workspace import Skills

SKILLS = Path(__file__).parent / "skills"
LETTER = "Your lamp is mended.\nYours, the house"


def model() -> ScriptedModel:
    """A model that reads before it writes."""
    step = {"content": "write the letter", "done_when": ["the letter ends with the line of the house"]}
    line = call("read_skill", name="house-style", file="references/line.txt")
    work = [line, finish_step(LETTER, ("s1.1", "Yours, the house"))]
    return ScriptedModel(
        roles={"triage": [call("read_skill", name="house-style"), submit_plan([step])], "execute": work}
    )


async def main() -> None:
    """Write a letter."""
    scripted, skills = model(), Skills(paths=[SKILLS], user=None)
    print("skills:", ", ".join(skills.names))
    async with Agent(scripted, skills=skills, storage="memory:", settings={"confirm": "never"}) as agent:
        run = await agent.start("Write to Ann that her lamp is mended")
    print("read:", scripted.requests[1].messages[-1].text.splitlines()[-1])
    print(f"{run.status}: {run.answer}")


if __name__ == "__main__":
    asyncio.run(main())
