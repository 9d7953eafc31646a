"""Threads of version 1 of the state, with tables of version 2: each goes on where it was cut off or waited."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from donewhen import Agent, Settings
from donewhen.state.graph_state import VERSION
from donewhen.testing import ScriptedModel, call, criterion, finish_step, submit_plan
from tests.kit.places import ROOT
from tests.kit.runs import config

PLAN = submit_plan([{"content": title, "done_when": ["it was seen"]} for title in ("first", "second")])
LOOK = call("look", what="z")


def look(what: str) -> str:
    """Look something up."""
    return f"{what}: value 12345"


def done(id: str) -> Any:
    return finish_step("12345", goal_check=[criterion(1, id)])


THREADS = {
    "step": ([LOOK, done("s2.1"), "Done."], {}, ["b", "c", "die"], ["a", "b", "c", "die", "z"]),
    "waiting": ([LOOK, done("s1.3"), LOOK, done("s1.1"), "Done."], {"answer": "this one"}, ["a"], ["a", "z", "z"]),
    "again": ([LOOK, done("s1.3"), LOOK, done("s2.1"), "Done."], {}, ["a", "b", "die"], ["a", "b", "die", "z", "z"]),
    "planning": ([PLAN, LOOK, done("p.1"), LOOK, done("s2.1"), "Done."], {}, ["p", "die"], ["p", "die", "z", "z"]),
}
"""Thread → what the model says from there, what it is resumed with, what its first prompt shows as looked up, and what
was looked up in all."""


def rounds(messages: list[BaseMessage]) -> list[str]:
    """What a prompt shows of the calls made before, in order."""
    return [str(one["args"]["what"]) for m in messages for one in getattr(m, "tool_calls", ()) if one["name"] == "look"]


@pytest.mark.parametrize("thread", THREADS)
async def test_a_thread_of_version_1_goes_on(thread: str, tmp_path: Path) -> None:
    """R06, K7: it held all that a step was given; what is read from the run is the same, and nothing is there twice.

    `step` was cut off in its second step, `again` after it had waited, `planning` while planning looked.
    """
    path = tmp_path / "threads.db"
    path.write_bytes(gzip.decompress((ROOT / "tests/data/threads_v1.db.gz").read_bytes()))
    script, more, shown, looked = THREADS[thread]
    model = ScriptedModel(script)
    settings = Settings(confirm="never")
    async with Agent(model, [look], effects={"look": "read"}, storage=f"sqlite:///{path}", settings=settings) as agent:
        assert (await agent.get(thread)).status in ("running", "waiting")
        run = await agent.resume(thread, **more)
        assert run.status == "completed", run.outcome
        values = (await agent.graph.aget_state(config(thread))).values
    assert values["version"] == VERSION
    assert [entry["arguments"]["what"] for entry in values["journal"] if entry["tool"] == "look"] == looked
    assert rounds(model.requests[0].messages) == shown
    model.assert_exhausted()
