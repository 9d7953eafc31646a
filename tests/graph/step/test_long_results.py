"""Long results, however they are made up: no work on them holds up the event loop."""

import asyncio
import time

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

SIZE = 200_000
MOST = 0.05
"""Seconds of work between two chances for others."""
LINE = "17,81,region 3,2026-01-04,1 007,5 €\n"
RESULTS = {
    "table": LINE * (SIZE // len(LINE)),
    "newlines": "\n" * SIZE,
    "letters": "a" * SIZE,
    "Chinese": "完成了吗" * (SIZE // 16),
}


async def longest_gap(text: str) -> float:
    """The longest time that a run which reads this text, and quotes from it, kept others waiting."""

    def look() -> str:
        """Look."""
        return text

    finish = [finish_step("seen", evidence=[("s1.1", quote)]) for quote in ("no such words 99", text[:36])]
    plan = submit_plan([{"content": "look", "done_when": ["it is seen"], "tools": ["look"]}])
    model = ScriptedModel(roles={"triage": [plan], "execute": [call("look"), *finish]})
    gaps: list[float] = []

    async def beat() -> None:
        """Note how much work there is in this thread each time that others had their turn."""
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            gaps.append(now - last)
            last = now

    agent = Agent(model, [look], effects={"look": "read"}, storage="memory:")
    beating = asyncio.create_task(beat())
    await agent.start("look", settings={"confirm": "never", "verification": "grounded"})
    beating.cancel()
    return max(gaps)


async def test_nothing_that_reads_a_long_result_holds_up_the_loop() -> None:
    """N36: credentials are looked for in it, and quotes, one that stands there and one that does not."""
    await longest_gap("The first run loads what is loaded once, and is quoted.")
    gaps = {kind: await longest_gap(text) for kind, text in RESULTS.items()}
    assert max(gaps.values()) < MOST, gaps
