"""A report every weekday at 8:30: planned and confirmed once, then written by a worker at its times.

Run it with a model in the environment (OPENAI_API_KEY, or DONEWHEN_MODEL): `python daily_report.py`. It works until
Ctrl-C; in production a process with the same agent and `agent.worker()` does.
"""

import asyncio
from pathlib import Path

from donewhen import Agent

HERE = Path(__file__).parent
GOAL = "Every weekday at 8:30 in Berlin, write the number of open tickets in tickets.csv to report.md."


def open_tickets(path: str) -> str:
    """Count the open tickets in a CSV file."""
    rows = (HERE / path).read_text(encoding="utf-8").splitlines()[1:]
    return f"{sum(row.endswith(',open') for row in rows)} open tickets"


def write_report(text: str) -> str:
    """Write report.md."""
    (HERE / "report.md").write_text(text, encoding="utf-8")
    return f"report.md: {text}"


TOOLS = [open_tickets, write_report]
EFFECTS = {"open_tickets": "read", "write_report": "idempotent"}


async def schedule(agent: Agent) -> str:
    """Plan it, show when it would run next, and confirm. Gives the schedule's id."""
    run = await agent.start(GOAL)
    print("Next runs:", *run.pending[0]["next_runs"], sep="\n  ")
    run = await agent.resume(run, "approve")
    print(run.answer)
    return (await agent.schedules.list())[-1].id


async def main() -> None:
    """Schedule the report, then work."""
    async with Agent(tools=TOOLS, effects=EFFECTS, storage="sqlite:///daily_report.db") as agent:
        if not await agent.schedules.list():
            await schedule(agent)
        await agent.worker().run()


if __name__ == "__main__":
    asyncio.run(main())
