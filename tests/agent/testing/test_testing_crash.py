"""The kit for crashes itself: it crashes where it says, and its assertions fail when they should."""

import os
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from donewhen import Agent, StorageError, UnknownThread
from donewhen.agent.testing.crash import STORAGE, Crash, Crashed, crashing, crashing_saver, crashing_tool
from donewhen.testing import ScriptedModel, call, crash_points, finish_step, playing, submit_plan
from tests.kit.comparing import (
    EffectLedger,
    asked_again,
    drive,
    effects_at_most_once,
    ending,
    nothing_lost,
    resume_equals_uninterrupted,
)
from tests.kit.everywhere import kill_everywhere, tool_boundaries
from tests.kit.storage.cases import JOURNAL, config, graph, open_storage

PLAN = submit_plan([{"content": "Send it", "done_when": ["sent"], "tools": ["send"]}])


def _model() -> ScriptedModel:
    return ScriptedModel(
        roles={
            "triage": playing([PLAN]),
            "execute": playing([call("send", to="ann"), finish_step("Sent.", "s1.1")]),
            "deliver": playing(["Done."]),
        }
    )


def _sender(ledger: EffectLedger) -> Any:
    def send(to: str) -> str:
        """Send."""
        return str(ledger.do("send", {"to": to}, lambda number: f"sent as {number}"))

    return send


def _approve(_: Any) -> str:
    return "approve"


async def two_steps(folder: Path, crash: Crash) -> dict[str, Any]:
    """A scenario for `kill_everywhere`: one effect, one approval."""
    ledger = EffectLedger(folder / "world.jsonl")
    agent = Agent(
        _model(), [crashing_tool(_sender(ledger), crash)], storage=crashing(f"sqlite:///{folder}/runs.db", crash)
    )

    def answers(pause: Any) -> str:
        happened = pause["kind"] == "effect" and ledger.happened(pause["tool"], pause["arguments"])
        return "it happened" if happened else "it did not" if pause["kind"] == "effect" else "approve"

    await drive(agent, "Send it", "t", answers, diary=folder / "diary.jsonl", crash=crash)
    return {"ending": await ending(agent, "t"), "effects": ledger.rows}


# Crashes -------------------------------------------------------------------------------------------------------------


async def test_a_saver_fails_at_its_nth_operation_and_the_run_goes_on_from_there() -> None:
    """R02: whatever operation fails, the thread can be resumed to the same journal."""
    inner, store = InMemorySaver(), InMemoryStore()
    whole = Crash()
    await graph().compile(crashing_saver(InMemorySaver(), whole), store=store).ainvoke({}, config("t"))
    assert whole.trace.count("put") == whole.trace.count("put.done") > 5
    for at in range(1, len(whole.trace) + 1):
        inner = InMemorySaver()
        with pytest.raises(Crashed, match=f"boundary {at} "):
            await graph().compile(crashing_saver(inner, Crash(at))).ainvoke({}, config("t"), durability="sync")
        healthy = graph().compile(inner)
        begun = await healthy.aget_state(config("t"))
        await healthy.ainvoke(None if begun.created_at else {}, config("t"))
        assert (await healthy.aget_state(config("t"))).values["journal"] == JOURNAL


@pytest.mark.parametrize("kind", ["memory:", "sqlite"])
async def test_a_storage_that_fails_is_a_storage_error_and_the_run_goes_on(kind: str, tmp_path: Path) -> None:
    """F5: a failing operation reaches the caller in words, and the same thread goes on with a healthy storage."""
    ledger = EffectLedger(tmp_path / "world.jsonl")
    storage = open_storage("memory:" if kind == "memory:" else f"sqlite:///{tmp_path}/runs.db")
    agent = Agent(_model(), [_sender(ledger)], storage=crashing(storage, Crash(30)))
    with pytest.raises(StorageError, match="simulated failure at boundary 30"):
        await drive(agent, "Send it", "t", _approve)
    again = Agent(_model(), [_sender(ledger)], storage=storage)
    assert (await drive(again, "Send it", "t", _approve)).status == "completed"
    effects_at_most_once(ledger)


@pytest.mark.parametrize(("phase", "happened"), [("before", 0), ("inside", 1), ("after", 1)])
async def test_a_tool_crashes_in_the_phase_of_the_call_that_is_named(phase: Any, happened: int, tmp_path: Path) -> None:
    """The schema and the name stay; before is before its effect, inside and after are after it."""
    ledger = EffectLedger(tmp_path / "world.jsonl")
    tool = crashing_tool(_sender(ledger), Crash(2, only=[f"send.{phase}"]))
    assert tool.name == "send"
    assert await tool.ainvoke({"to": "ann"}) == "sent as 1"
    with pytest.raises(Crashed, match=rf"boundary 2 \(send\.{phase}\)"):
        await tool.ainvoke({"to": "bob"})
    assert ledger.count("send", {"to": "bob"}) == happened
    assert await tool.ainvoke({"to": "eve"}) == f"sent as {2 + happened}"


async def test_a_run_fails_wherever_its_storage_can_and_goes_on() -> None:
    """F5, R03: every point (without EVERY only those after an entry of the store) is reached once, in order; after each
    the run ends as the undisturbed one, and a write that may have happened is asked about and not repeated.
    """
    sent, asked = list[str](), list[str]()

    def send(to: str) -> str:
        """Send."""
        sent.append(to)
        return "sent as 1"

    async def work(storage: Any) -> Any:
        agent = Agent(_model(), [send], effects={"send": "write"}, storage=storage)
        try:
            run = await agent.resume("t")
        except UnknownThread:
            run = await agent.start("Send it", thread_id="t")
        while run.status == "waiting":
            asked.append(run.pending[0]["kind"])
            effect_known = "it happened" if sent else "it did not"
            run = await agent.resume("t", effect_known if asked[-1] == "effect" else "approve")
        return run

    points, tried = list[str](), STORAGE if os.environ.get("EVERY") else ("store.done",)
    async for point, run in crash_points(work, only=tried):
        points.append(point)
        assert (run.status, run.answer) == ("completed", "Sent.")
        assert sent == ["ann"]
        sent.clear()
    assert points[0] == ""
    assert set(points[1:]) == set(tried)
    assert len(points) > 5
    assert "effect" in asked


async def test_answers_may_be_submitted_in_a_crashing_memory() -> None:
    """R02: what `submit_answer` stores in memory reaches the storage under the crashes, at boundaries of its own."""
    sent, crash = list[str](), Crash(0)

    def send(to: str) -> str:
        """Send it."""
        sent.append(to)
        return "sent"

    agent = Agent(_model(), [send], storage=crashing("memory:", crash), settings={"approvals": "plan"})
    run = await agent.start("Send it to ann")
    before = len(crash.trace)
    await agent.submit_answer(run, "approve")
    assert "store.done" in crash.trace[before:]
    assert ((await agent.run_submitted(run.thread_id)).status, sent) == ("completed", ["ann"])


# Processes -----------------------------------------------------------------------------------------------------------


def test_a_scenario_survives_being_killed_everywhere(tmp_path: Path) -> None:
    """F1, R02, R03: a sample here; every boundary of a larger scenario in benchmarks."""
    only = [*STORAGE, *tool_boundaries("send")]
    whole, *trials = kill_everywhere(
        "tests.agent.testing.test_testing_crash:two_steps", tmp_path, points=[1, 41, (41, 5)], only=only
    )
    assert not whole.error
    assert whole.trace.count("send.before") == 1
    assert set(whole.trace) == set(only)
    for trial in trials:
        assert not trial.error
        assert len(trial.died) == len(trial.point)
        assert [row["crashed"] for row in trial.diary if "crashed" in row] == list(trial.died)
        effects_at_most_once(trial.result["effects"], whole.result["effects"])
        nothing_lost(trial.result["effects"], whole.result["effects"])
        resume_equals_uninterrupted(trial.result["ending"], whole.result["ending"])
        assert asked_again(trial.diary) == []
        assert 0 < trial.pick_up < trial.seconds


# Assertions ----------------------------------------------------------------------------------------------------------


def _row(tool: str, effect: str = "write", **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments, "effect": effect, "key": None, "result": ""}


def test_doubled_and_lost_effects_are_named() -> None:
    """Only writes may not repeat; what an uninterrupted run did twice may be done twice."""
    once, twice = [_row("send", to="ann")], [_row("send", to="ann"), _row("send", to="ann")]
    saved = [_row("save", "idempotent", to="x")]
    with pytest.raises(AssertionError, match=r'send\{"to":"ann"\}: 2 times'):
        effects_at_most_once(twice)
    effects_at_most_once(twice, twice)
    effects_at_most_once([*saved, *saved, *once])
    with pytest.raises(AssertionError, match="save"):
        nothing_lost(once, [*once, *saved])
    with pytest.raises(AssertionError, match="send"):
        nothing_lost(once, twice)
    nothing_lost([*saved, *once], [*once, *saved, *saved])


async def test_endings_are_compared_in_everything_but_time(tmp_path: Path) -> None:
    """R05: the same run twice is the same; another result, text, approval or spend is a difference."""
    ends = []
    for name in ("a", "b"):
        ledger = EffectLedger(tmp_path / name)
        agent = Agent(_model(), [_sender(ledger)], storage="memory:")
        await drive(agent, "Send it", "t", _approve)
        ends.append(await ending(agent, "t"))
    resume_equals_uninterrupted(*ends)
    for change, word in (
        ({"status": "partial"}, "partial"),
        ({"journal": {}}, "observation s1.1"),
        ({"approvals": []}, "approvals"),
        ({"spent": {**ends[0]["spent"], "rounds": 9}}, "spent rounds"),
    ):
        with pytest.raises(AssertionError, match=word):
            resume_equals_uninterrupted({**ends[0], **change}, ends[1])
    known = {**ends[0]["journal"]["s1.1"], "text": "A person confirmed that this call took effect before …"}
    resume_equals_uninterrupted({**ends[0], "journal": {**ends[0]["journal"], "s1.1": known}}, ends[1])


def _asked(id: str, question: str = "Which?", written: int = 0, kind: str = "question") -> dict[str, Any]:
    return {"asked": {"id": id, "kind": kind, "step": "s1", "question": question}, "written": written}


def test_who_was_asked_twice_is_named() -> None:
    """An answer that died with its process unwritten may be given again to the same pause; any other may not."""
    died = {"crashed": "put_writes", "at": 7}
    assert asked_again([_asked("s1.q1"), {**died, "written": 0}, _asked("s1.q1")]) == []
    assert asked_again([_asked("s1.q1"), {**died, "written": 1}, _asked("s1.q1")]) == ["s1.q1 was asked again"]
    assert asked_again([_asked("s1.q1"), _asked("s1.q2")]) == ["s1.q2 asks again what s1.q1 asked"]
    assert asked_again([_asked("s1.q1"), _asked("s1.q2", "Why?")]) == []
    effects = [_asked("s1.e1", kind="effect"), {**died, "written": 3}, _asked("s1.e1~2", kind="effect")]
    assert asked_again(effects) == []
