"""Long conversations: what a turn reads and stores does not depend on how many turns were before it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from langchain_core.messages import AnyMessage

from donewhen import Agent
from donewhen.agent.storage.serializer import StrictSerializer
from donewhen.graph import receive
from donewhen.graph.receive import clean_message
from donewhen.state.channels import MESSAGES_EVERY
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

    The last twenty turns read as many stored values as the twenty before them. Of the conversation, each looks for
    characters that cannot be stored only in the answer before it and in its own question.
    """
    read, cleaned = list[bytes](), list[str]()
    load = StrictSerializer.loads_typed

    def count(self: StrictSerializer, data: tuple[str, bytes]) -> object:
        read.append(data[1])
        return load(self, data)

    def count_cleaned(message: AnyMessage) -> AnyMessage:
        cleaned.append(message.text)
        return clean_message(message)

    monkeypatch.setattr(StrictSerializer, "loads_typed", count)
    monkeypatch.setattr(receive, "clean_message", count_cleaned)
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
        assert run.status == ("answered" if n else "completed"), run
        values.append(len(read))
        whole.append(sum(b"HumanMessage" in data and FIRST.encode() in data for data in read))
    await agent.aclose()
    assert sum(values[-PERIOD:]) <= sum(values[-2 * PERIOD : -PERIOD]) * 1.05, values
    assert set(whole[-PERIOD:]) == {1}, whole
    assert cleaned[-2:] == [f"the answer {turns - 2}", f"What about {turns - 1}?"]
    assert len(cleaned) < 3 * turns


async def test_a_turn_does_not_store_the_conversation_again(tmp_path: Path) -> None:
    """N50: what was said is stored with its own turn, and not with those after it, whose prompts show it."""

    def rows_with(text: str) -> int:
        with closing(sqlite3.connect(tmp_path / "x.db")) as file:
            values = [*file.execute("SELECT value FROM writes"), *file.execute("SELECT checkpoint FROM checkpoints")]
        return sum(text.encode() in (value or b"") for (value,) in values)

    model = ScriptedModel([answer(f"the answer {n}") for n in range(4)])
    async with Agent(model, storage=f"sqlite:///{tmp_path}/x.db") as agent:
        await agent.start(FIRST, thread_id="t")
        first = rows_with(FIRST)
        for n in range(1, 4):
            await agent.start(f"What about {n}?", thread_id="t")
            assert FIRST in model.requests[n].text
    assert rows_with(FIRST) == first > 0
