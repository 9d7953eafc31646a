"""`python -m benchmarks.briefs`: the characters of all prompts of a long plan, of which briefs are what can grow.

Twenty steps of ten rounds, each of which looks something up that has a thousand characters; each step builds on all
before it. The model is scripted. Needs no key and no network.
"""

import asyncio
import re
import sys
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from donewhen import Agent, Limits, Settings
from donewhen.testing import ScriptedModel, call, criterion, deliver, finish_step, submit_plan

STEPS, ROUNDS, RESULT_CHARS = 20, 10, 1_000
MOST_CHARS = 2_700_000


def lookup(key: str) -> str:
    """Look a key up."""
    return f"value of {key} is {sum(map(ord, key))}; ".ljust(RESULT_CHARS, "x")


class Prompts:
    """Plays the model, and counts what it is sent."""

    def __init__(self, steps: int, rounds: int) -> None:
        self.total = self.briefs = 0
        self._steps, self._rounds = steps, rounds

    def plan(self, messages: Sequence[BaseMessage], tools: Sequence[Any]) -> Any:
        """Submit a plan whose steps follow each other."""
        self._count(messages)
        steps = [
            {"content": f"Look up all of part {number}", "tools": ["lookup"], "done_when": ["the values are known"]}
            for number in range(1, self._steps + 1)
        ]
        return submit_plan(steps, title="Look up")

    def execute(self, messages: Sequence[BaseMessage], tools: Sequence[Any]) -> Any:
        """Look one thing up a round, and finish in the last."""
        self._count(messages)
        self.briefs += len(messages[1].text)
        step, rounds = re.search(r'<step id="(s\d+)">', messages[1].text), (len(messages) - 2) // 2
        assert step is not None
        if rounds < self._rounds - 1:
            return call("lookup", key=f"{step[1]} {rounds}")
        found = lookup(f"{step[1]} 0").split(";")[0]
        return finish_step(f"Part {step[1]}: {found}.", goal_check=[criterion(1, (f"{step[1]}.1", found))])

    def deliver(self, messages: Sequence[BaseMessage], tools: Sequence[Any]) -> Any:
        """Deliver in a few words."""
        self._count(messages)
        return deliver("All parts are looked up.", None)

    def _count(self, messages: Sequence[BaseMessage]) -> None:
        self.total += sum(len(message.text) for message in messages)


async def run(steps: int = STEPS, rounds: int = ROUNDS) -> Prompts:
    """Run a plan of so many steps and rounds; return what was counted."""
    prompts = Prompts(steps, rounds)
    limits = Limits(rounds=2 * steps * rounds)
    settings = Settings(confirm="never", verification="grounded", limits=limits, max_steps=max(steps, 20))
    model = ScriptedModel(
        roles={"triage": prompts.plan, "plan": prompts.plan, "execute": prompts.execute, "deliver": prompts.deliver}
    )
    async with Agent(model, tools=[lookup], effects={"lookup": "read"}, storage="memory:", settings=settings) as agent:
        result = await agent.start("Look up all parts")
    if result.status != "completed":
        raise RuntimeError(f"the run ended as {result.status}: {result.outcome}")
    return prompts


async def main() -> int:
    """Print the figures; return 1 if the prompts have more than 2.7 million characters."""
    prompts = await run()
    print(
        f"{STEPS} steps × {ROUNDS} rounds of {RESULT_CHARS:,} characters: {prompts.total / 1e6:.2f} million characters"
    )
    print(f"of them briefs: {prompts.briefs / 1e6:.2f} million, {prompts.briefs / STEPS / ROUNDS:,.0f} each")
    return 0 if prompts.total <= MOST_CHARS else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
