"""A question asked once, answered with a plan; then asked again of other regions, without planning.

Run it with a model in the environment (OPENAI_API_KEY, or DONEWHEN_MODEL): `python template.py`.
"""

import asyncio

from donewhen import Agent

SALES = {"North": [120, 80], "South": [90, 45], "West": [300]}


def sales(region: str) -> str:
    """The sales of a region, one amount a line."""
    return "\n".join(map(str, SALES[region]))


def add(amounts: list[int]) -> str:
    """Add amounts up."""
    return str(sum(amounts))


TOOLS = [sales, add]
EFFECTS = {"sales": "read", "add": "read"}


async def totals(agent: Agent) -> dict[str, str]:
    """The total of each region: planned for the first, the same plan for the others."""
    first = await agent.start(
        "What is the total of sales in region North?", settings={"confirm": "never", "mode": "plan"}
    )
    await agent.templates.save(first, "total", {"region": "North"})
    answers = {"North": first.answer}
    for region in ("South", "West"):
        run = await agent.start(template="total", parameters={"region": region}, settings={"confirm": "never"})
        answers[region] = run.answer
        print(f"{region}: {run.spent['model_calls']:g} model calls instead of {first.spent['model_calls']:g}")
    return answers


async def main() -> None:
    """Print the totals."""
    async with Agent(tools=TOOLS, effects=EFFECTS, storage="memory:") as agent:
        for region, total in (await totals(agent)).items():
            print(f"{region}: {total}")


if __name__ == "__main__":
    asyncio.run(main())
