"""A run with two questions open at once, of which one keeps its step at work."""

import asyncio
from typing import Any

from donewhen import Agent
from donewhen.testing import ScriptedModel, ask_user, criterion, finish_step, submit_plan


class Painting:
    """A run of two steps that ask one question each; the first one's work is held up."""

    def __init__(self) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        steps = [{"content": text, "tools": [], "depends_on": []} for text in ("paint", "frame")]
        work = {
            "s1": [ask_user("Which colour?"), self._paint],
            "s2": [ask_user("Which wood?"), finish_step("framed in oak", goal_check=[criterion(1)])],
        }
        self.model = ScriptedModel(roles={"triage": [submit_plan(steps)], "execute": work, "deliver": ["Done."]})

    async def _paint(self, *_: Any) -> Any:
        self.begun.set()
        await self.go_on.wait()
        return finish_step("painted blue", goal_check=[criterion(1)])

    def agent(self, storage: Any, **more: Any) -> Agent:
        return Agent(self.model, storage=storage, settings={"confirm": "never", "verification": "claimed"}, **more)

    def assert_done(self, run: Any) -> None:
        """Both answers reached it."""
        assert run.status == "answered"  # nothing was changed or looked up
        assert sorted(row["answer"] for row in run.receipt["questions"]) == ["blue", "oak"]
        self.model.assert_exhausted()
