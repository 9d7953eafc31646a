"""Long results, however they are made up: no work on them holds up the event loop."""

import asyncio
import time

import pytest

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


@pytest.mark.parametrize("kind", RESULTS)
async def test_nothing_that_reads_a_long_result_holds_up_the_loop(kind: str) -> None:
    """N36: credentials are looked for in it, and quotes, one that stands there and one that does not."""

    def look() -> str:
        """Look."""
        return RESULTS[kind]

    def model() -> ScriptedModel:
        finish = [finish_step("seen", evidence=[("s1.1", quote)]) for quote in ("no such words 99", RESULTS[kind][:36])]
        plan = submit_plan([{"content": "look", "done_when": ["it is seen"], "tools": ["look"]}])
        return ScriptedModel(roles={"triage": [plan], "execute": [call("look"), *finish]})

    gaps: list[float] = []

    async def beat() -> None:
        """Note how much work there is in this thread each time that others had their turn."""
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            gaps.append(now - last)
            last = now

    for watched in (False, True):  # the first run loads what is loaded once
        agent = Agent(model(), [look], effects={"look": "read"}, storage="memory:")
        beating = asyncio.create_task(beat()) if watched else None
        await agent.start("look", settings={"confirm": "never", "verification": "grounded"})
        if beating:
            beating.cancel()
    assert max(gaps) < MOST
