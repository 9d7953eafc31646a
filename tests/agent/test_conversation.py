"""The public read model of a thread: what rooms and clients read in place of the graph's state (Q31, Q90)."""

import re
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, UnknownThread
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, submit_plan
from tests.kit.places import ROOT
from tests.kit.storage.cases import fresh_url

LONG = "The lamp is blue. " * 2000
ROOMS = (
    "cli",
    "page",
    "acp",
    "a2a/server.py",
    "mcp/server.py",
    "receipts.py",
    "tracing.py",
    "demo",
    "inspect_solver.py",
)


def look(where: str) -> str:
    """Look somewhere."""
    return f"{where}: {LONG}"


def model(*texts: str) -> ScriptedModel:
    steps = [{"content": text, "tools": ["look"], "depends_on": []} for text in texts]
    works: dict[str, Any] = {
        f"s{n}": [call("look", where=text), ask_user(f"Which {text}?"), finish_step(text, (f"s{n}.1", "blue"))]
        for n, text in enumerate(texts, 1)
    }
    return ScriptedModel(roles={"triage": [submit_plan(steps)], "execute": works, "deliver": ["Done."]}, strict=False)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_conversation_has_what_two_steps_observed_before_their_end(kind: str, tmp_path: Path) -> None:
    """Q90: one reading has the run, the words, the approved plan and what steps observed that still wait; an
    observation can be read in full.
    """
    url, effects = fresh_url(kind, tmp_path), {"look": "read"}
    settings = {"confirm": "never", "verification": "claimed"}
    async with Agent(model("shop", "home"), [look], storage=url, effects=effects, settings=settings) as agent:  # type: ignore[arg-type]
        run = await agent.start("Look twice", thread_id="t")
        asked = await agent.conversation(run)
        assert asked.run == run
        assert (asked.request, asked.messages[0].text) == (1, "Look twice")
        assert asked.approved == run.plan
        assert {"s1.1", "s2.1"} <= {entry["id"] for entry in asked.observations}
        assert [row["status"] for row in asked.todos[:2]] == ["in_progress", "in_progress"]
        assert (await agent.observation("t", "s2.1"))["text"] == f"home: {LONG}"
        while (run := await agent.resume(run, "the blue one")).pending:
            pass
        ended = await agent.conversation("t")
        assert ended.run.outcome
        assert [entry["text"] for entry in ended.observations if entry["source"] == "user"] == ["the blue one"] * 2
        with pytest.raises(UnknownThread, match=r"'s9\.9' on thread 't'"):
            await agent.observation("t", "s9.9")
        with pytest.raises(UnknownThread):
            await agent.conversation("nobody")


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_read_threads_through_the_face(room: str) -> None:
    """Q90: no room reads the values of a state, or a snapshot; so the state can change without them."""
    place = ROOT / "agent" / room
    for path in [place] if place.suffix else place.rglob("*.py"):
        found = re.search(r"get_state|StateSnapshot|agent\._\w", path.read_text())
        assert found is None, f"{path}: {found[0]}"
