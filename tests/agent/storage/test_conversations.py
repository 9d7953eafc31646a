"""Long conversations: what a turn reads and stores does not depend on how many turns were before it."""

from pathlib import Path

import pytest

from donewhen import Agent
from donewhen.agent.storage.cipher import StrictSerializer
from donewhen.state.run import MESSAGES_EVERY
from donewhen.testing import ScriptedModel, answer, call, finish_step, submit_plan
from tests.kit.storage.cases import fresh_url

PERIOD = MESSAGES_EVERY // 2
"""Turns after which the conversation is stored whole again: a turn writes a question and an answer."""
FIRST = "note that the first question was asked"


async def note(text: str) -> str:
    """Note a text."""
    return f"noted {text}"


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_turns_of_a_conversation_read_the_same(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R11, N50: after a turn that planned and wrote, each of the next turns reads the state once.

    The last twenty turns read as many stored values as the twenty before them.
    """
    read: list[bytes] = []
    load = StrictSerializer.loads_typed

    def count(self: StrictSerializer, data: tuple[str, bytes]) -> object:
        read.append(data[1])
        return load(self, data)

    monkeypatch.setattr(StrictSerializer, "loads_typed", count)
    turns = 3 * PERIOD
    plan = submit_plan([{"content": "note it", "done_when": ["it is noted"], "tools": ["note"]}])
    script = [plan, call("note", text="x"), finish_step("noted", "s1.1")]
    model = ScriptedModel([*script, *(answer(f"the answer {n}") for n in range(1, turns))])
    agent = Agent(
        model, [note], effects={"note": "write"}, storage=fresh_url(kind, tmp_path), settings={"confirm": "never"}
    )
    values, whole = [], []
    for n in range(turns):
        read.clear()
        run = await agent.start(f"What about {n}?" if n else FIRST, thread_id="t")
        assert run.status == "completed", run
        values.append(len(read))
        whole.append(sum(b"HumanMessage" in data and FIRST.encode() in data for data in read))
    await agent.aclose()
    assert sum(values[-PERIOD:]) <= sum(values[-2 * PERIOD : -PERIOD]) * 1.05, values
    assert set(whole[-PERIOD:]) == {1}, whole
