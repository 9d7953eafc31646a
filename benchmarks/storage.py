"""`python -m benchmarks.storage`: what a long plan leaves in a SQLite file; regenerates docs/storage.md."""

import asyncio
import os
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

from donewhen import Agent, Limits, Settings
from donewhen.testing import ScriptedModel, call, criterion, finish_step, submit_plan

PAGE = Path(__file__).parents[1] / "docs" / "storage.md"
SIZES = ((7, 4), (13, 4), (27, 4), (54, 4), (108, 4), (20, 10), (1, 200))
"""Steps, and rounds of each."""
HEAD = """# What a run leaves in storage

Chained steps on a SQLite file. Each round reads something of 500 characters, each step depends on all earlier steps,
and each checkpoint is written before the next round begins. Written by `make storage`.

Storage grows with the numbers of rounds and steps, not with their squares. A step stores only its own rounds and its
record; its rounds are deleted with its result. So a file is at its largest during a long step. When it is closed, free
space of more than a quarter is returned to the disk.

| steps | rounds | MB left | MB in the last round | KB a round, left | CPU ms a round |
|---|---|---|---|---|---|
"""


async def measure(steps: int, rounds: int) -> tuple[float, float, float]:
    """Megabytes left on disk, megabytes of the file in the last round, and CPU milliseconds a round."""
    text, pages = "value 12345 of item " * 25, list[int]()

    def look(what: str) -> str:
        """Look something up."""
        if what.endswith(f"-{rounds - 1}"):
            with closing(sqlite3.connect(Path(folder) / "runs.db")) as file:
                pages.append(file.execute("PRAGMA page_count").fetchone()[0])
        return f"{what}: {text}"

    done = [{"content": f"work {n}", "done_when": ["it was seen"]} for n in range(1, steps + 1)]
    script: list[object] = [submit_plan(done)]
    for n in range(1, steps + 1):
        script += [call("look", what=f"{n}-{k}") for k in range(1, rounds)]
        script.append(finish_step(f"result {n}", goal_check=[criterion(1, f"s{n}.1")]))
    free = Limits(rounds=None)
    settings = Settings(confirm="never", limits=free, step_limits=free, max_steps=200)
    with tempfile.TemporaryDirectory() as folder:
        model = ScriptedModel([*script, "Done."])
        started = time.process_time()
        storage = f"sqlite:///{folder}/runs.db"
        async with Agent(model, tools=[look], effects={"look": "read"}, storage=storage, settings=settings) as agent:
            run = await agent.start("go")
        seconds = time.process_time() - started
        assert run.status == "completed", run.outcome
        size = sum(entry.stat().st_size for entry in os.scandir(folder))
    return size / 1e6, 4096 * max(pages) / 1e6, 1000 * seconds / (steps * rounds)


def main() -> None:
    """Measure and write the page."""
    rows = []
    for steps, rounds in SIZES:
        size, most, cpu = asyncio.run(measure(steps, rounds))
        each = 1000 * size / (steps * rounds)
        rows.append(f"| {steps} | {steps * rounds} | {size:.2f} | {most:.2f} | {each:.1f} | {cpu:.1f} |")
        print(rows[-1])
    PAGE.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
