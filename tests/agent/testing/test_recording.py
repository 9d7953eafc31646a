"""Recordings: a run as it was becomes a test that replays offline, and names the first thing that is different."""

import json
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import id as ids
from langgraph.checkpoint.base.id import uuid6

from donewhen import Agent, AgentOptions, ConfigError, Run
from donewhen.testing import (
    Recording,
    ReplayDifference,
    ScriptedModel,
    ask_user,
    audit,
    call,
    finish_step,
    submit_plan,
)
from tests.kit.clocks import HOUR

pytest_plugins = ["donewhen.pytest_plugin"]
EFFECTS: Any = {"look": "read", "send": "write"}
SENT: list[str] = []


def look(where: str) -> str:
    """Look somewhere."""
    if where == "cellar":
        raise ValueError("it is dark")
    return f"{where}: 3 lamps, password=Tr0ub4dor-3-horse"


def send(to: str) -> str:
    """Send a mail."""
    SENT.append(to)
    return f"sent to {to}"


def model() -> ScriptedModel:
    """A run with a look, a failure, a question, a plan to approve and a write."""
    step = {"content": "tell Ann how many lamps there are", "tools": ["send"]}
    work = [
        [call("look", where="shop"), call("look", where="cellar")],
        ask_user("To which address?"),
        call("send", to="ann@example.com"),
        finish_step("Ann knows of 3 lamps.", ("s1.4", "sent to ann@example.com")),
    ]
    triage = [call("look", where="shop"), submit_plan([step], title="Lamps")]
    return ScriptedModel(roles={"triage": triage, "execute": work, "judge": [audit()]})


async def recorded() -> Recording:
    """Record the run."""
    SENT.clear()
    async with Agent(
        model(), [look, send], effects=EFFECTS, storage="memory:", options=AgentOptions(record=True)
    ) as agent:
        run = await agent.start("Tell Ann how many lamps there are")
        run = await agent.resume(run, "approve")
        run = await agent.resume(run, "ann@example.com")
        assert run.status == "completed"
        return await Recording.of(agent, run)


async def test_a_run_replays_without_its_tools_and_its_model(tmp_path: Path) -> None:
    """R02: replies, results, failures and answers are those recorded; nothing is sent, and no model is needed."""
    recording = await recorded()
    assert SENT == ["ann@example.com"]
    recording.save(tmp_path / "lamps.jsonl")
    assert "Tr0ub4dor" not in (tmp_path / "lamps.jsonl").read_text()
    run = await Recording.load(tmp_path / "lamps.jsonl").replay()
    assert (run.status, run.answer.splitlines()[0]) == ("completed", "Ann knows of 3 lamps.")
    assert SENT == ["ann@example.com"]
    assert [entry["ok"] for entry in run.receipt["effects"]] == [True]


async def test_a_recording_is_in_order_after_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q14, R02: the ids of a process's checkpoints stay ahead of a clock that was set back by half an hour; the rows of
    a recording go on with them, and it replays."""
    monkeypatch.setattr(ids, "_last_v6_timestamp", uuid6(clock_seq=-1).time + int(HOUR / 2 * 10_000_000))
    run = await (await recorded()).replay()
    assert run.status == "completed"


async def test_tools_of_ones_own_are_really_called() -> None:
    """R02: then it is a test of the tools: what they return is held against the prompts that were recorded.

    `prompts=False` holds calls and the end alone against them.
    """
    recording = await recorded()
    await recording.replay(tools=[look, send], effects=EFFECTS)
    assert SENT == ["ann@example.com"] * 2

    def other(where: str) -> str:
        """Look somewhere."""
        return f"{where}: 4 lamps"

    other.__name__ = "look"
    with pytest.raises(ReplayDifference, match=r"reply 2 of triage: .*message 4(.|\n)*\+.*4 lamps"):
        await recording.replay(tools=[other, send], effects=EFFECTS)
    with pytest.raises(ReplayDifference, match="the prompt is another one"):
        await recording.replay(instructions="Be brief.")
    assert (await recording.replay(prompts=False, instructions="Be brief.")).status == "completed"

    def more(where: str, floor: int = 0) -> str:
        """Look somewhere."""
        return where

    more.__name__ = "look"
    with pytest.raises(ReplayDifference, match=r'the tool look has another input_schema:(.|\n)*\+  "floor"'):
        await recording.replay(tools=[more, send], effects=EFFECTS)
    with pytest.raises(ReplayDifference, match="the tool send is missing"):
        await recording.replay(tools=[look], effects={"look": "read"})
    with pytest.raises(ReplayDifference, match=r"another question is asked \(question of s1: To .*recorded: plan"):
        await recording.replay(settings={"confirm": "never"})


async def test_the_first_difference_is_named() -> None:
    """R02: another call, another end and a reply too many, each in words that say what was recorded."""
    whole = await recorded()
    for change, said in (
        ({"kind": "result"}, "look is called with"),
        ({"kind": "answer"}, r"the run is waiting \(Shall I.* recorded: completed"),
        ({"kind": "end", "code": "other"}, "recorded: 'other'"),
        ({"kind": "end", "text": "Ann knows nothing."}, r"\+Ann knows of 3 lamps"),
    ):
        if len(change) == 1:
            rows = [row for row in whole.rows if row["kind"] != change["kind"]]
        else:
            rows = [{**row, **change} if row["kind"] == "end" else row for row in whole.rows]
        with pytest.raises(ReplayDifference, match=said):
            await Recording(rows).replay()


async def test_what_was_not_recorded_says_how_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P19, Q31: a run without `record=True`, a file that is no recording, and one that is cut off.

    `record=False` holds over the environment.
    """
    monkeypatch.setenv("DONEWHEN_RECORD", "1")
    async with Agent(
        model(), [look, send], effects=EFFECTS, storage="memory:", options=AgentOptions(record=False)
    ) as agent:
        run = await agent.start("Tell Ann how many lamps there are")
        with pytest.raises(ConfigError, match="DONEWHEN_RECORD=1"):
            await Recording.of(agent, run)
    with pytest.raises(ConfigError, match="no recording"):
        Recording.load(__file__)
    Recording((await recorded()).rows[:-1]).save(tmp_path / "cut.jsonl")
    with pytest.raises(ConfigError, match=r"cut\.jsonl is cut off"):
        Recording.load(tmp_path / "cut.jsonl")


async def test_it_is_redacted_as_one_likes(tmp_path: Path) -> None:
    """R02: a function goes over every text; the replay holds what was redacted alike; credentials go in any case."""
    recording = await recorded()
    recording.rows[0]["note"] = f"sk-proj-{'a1B2' * 12}"
    recording.save(tmp_path / "x.jsonl", redact=lambda text: text.replace("ann@", "eve@").replace("Ann", "Eve"))
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert "ann@example.com" not in str(rows)
    assert "a1B2" not in str(rows)
    run = await Recording(rows).replay()
    assert run.answer.splitlines()[0] == "Eve knows of 3 lamps."


REAL = {
    "real_best_region": 1, "real_report_replanned": 1, "real_two_bugs": 1, "real_refund_as_data": 1,
    "real_refunds": 3, "real_failing_test": 3, "real_refund_german": 2, "lamps": 1,
}  # fmt: skip
"""Jobs that a language model worked on, and their steps. `donewhen record` recorded the first four, with their audit.

The others are older, and nobody audited them. What the model said is as it was, but for replies that a version of then
asked for again and this one does not. The last one is of a script.
"""
AUDITED = list(REAL)[:4]


@pytest.mark.parametrize("name", REAL)
def test_jobs_of_a_real_model_replay(name: str, replay: Any) -> None:
    """R02: its plan, calls, question, proofs and answer are taken as they were; prompts may have other words since."""
    run: Run = replay(f"../../data/recordings/{name}.jsonl", prompts=False)
    assert (run.status, len(run.receipt["steps"])) == ("completed", REAL[name])
    verdicts = {row["verdict"] for step in run.receipt["steps"] for row in step["criteria"]}
    assert verdicts <= {"cited", "proven"}
    if name in AUDITED:
        assert run.receipt["audit"]["met"] == "yes"
