"""Two steps at once: one ends, waits or goes on while the other waits for a person."""

from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, Settings
from donewhen.state.statuses import FINAL
from donewhen.testing import ask_user, call, give_up
from tests.kit.flows import FREE, steps
from tests.kit.runs import config, said, step
from tests.kit.storage.cases import fresh_url

TWO = [step("s1", depends_on=[]), step("s2", depends_on=[])]


def look() -> str:
    """Look around."""
    return "all is well"


OTHER: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "done": ([said("s1")], {}),
    "failed": ([give_up("it is lost")], {}),
    "blocked": ([give_up("no key", "blocked")], {}),
    "exhausted": ([call("look"), call("look"), call("look")], {"step_limits": {"rounds": 2}}),
    "waiting": ([ask_user("Who?"), said("s1")], {}),
}
"""What the other step does, by its status while the first waits: its replies, and the settings."""


@pytest.mark.parametrize(
    ("other", "kind"), [*((other, "memory") for other in OTHER), ("waiting", "sqlite"), ("waiting", "postgres")]
)
async def test_a_step_waits_whatever_becomes_of_the_other(other: str, kind: str, tmp_path: Path) -> None:
    """Q87: also for another process; only who waits has an open question, and only who ended has an end."""
    replies, more = OTHER[other]
    settings = Settings(**{**FREE, "on_failure": "deliver", "on_exhausted": "deliver", **more})
    url, model = fresh_url(kind, tmp_path), steps(TWO, {"s1": replies, "s2": [ask_user("Which?"), said("s2")]})
    agent = Agent(model, [look], storage=url, effects={"look": "read"}, settings=settings)
    async with agent:
        run = await agent.start("Do both")
        seen = [await records(agent, run.thread_id)]
        if kind == "memory":
            seen += await answer_all(agent, run)
    if kind != "memory":
        async with Agent(model, [look], storage=url, effects={"look": "read"}, settings=settings) as agent:
            seen += await answer_all(agent, await agent.get(run.thread_id))
    ended = "done" if other == "waiting" else other
    statuses = [{id: record["status"] for id, record in each.items()} for each in seen]
    assert (statuses[0], statuses[-1]) == ({"s1": other, "s2": "waiting"}, {"s1": ended, "s2": "done"})
    for record in (record for each in seen for record in each.values()):
        assert bool(record["waiting"]) == (record["status"] == "waiting")
        assert bool(record.get("ended")) == (record["status"] in FINAL)


async def answer_all(agent: Agent, run: Any) -> list[dict[str, Any]]:
    """Answer what is asked until the run ends; return the records of its steps after each answer."""
    seen = []
    while run.status == "waiting":
        run = await agent.resume(run, "the blue one")
        seen.append(await records(agent, run.thread_id))
    return seen


async def records(agent: Agent, thread: str) -> dict[str, Any]:
    return dict((await agent.graph.aget_state(config(thread))).values["steps"])
