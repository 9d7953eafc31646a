"""A run watched from anywhere: what who comes late is told, and in which order."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from donewhen import Agent, ConfigError, Run
from donewhen.agent.work.watch import watch_run
from donewhen.testing import ScriptedModel, answer, call, criterion, finish_step, reply, submit_plan
from tests.kit.storage.cases import fresh_url, key_of, open_storage

FREE: dict[str, Any] = {"confirm": "never", "approvals": "never", "verification": "claimed"}
TOLD = ("step_started", "observation", "step_finished")


def send(text: str) -> str:
    """Send a letter."""
    return f"sent {text}"


def order(events: list[Any], kinds: tuple[str, ...] = TOLD) -> list[tuple[str, str]]:
    """Kind and step of these events."""
    return [(event["type"], event["step"]) for event in events if event["type"] in kinds]


async def test_who_comes_late_is_told_in_the_order_in_which_it_happened(tmp_path: Path) -> None:
    """R04: a step's end comes before the beginning of what builds on it, also of one that observed nothing."""
    steps = [{"content": text, "tools": ["send"]} for text in ("write", "think", "write again")]
    work: list[Any] = [
        reply("Writing.", [call("send", text="one")]),
        call("send", text="two"),
        finish_step("sent", "s1.1"),
        reply("Thinking.", [finish_step("thought", goal_check=[criterion(1)])]),
        reply("Once more.", [call("send", text="three")]),
        finish_step("sent", "s3.1"),
    ]
    model = ScriptedModel(roles={"triage": [submit_plan(steps)], "execute": work, "deliver": ["Sent."]})
    async with Agent(model, [send], storage=tmp_path / "runs.db", settings=FREE) as agent:
        stream = agent.stream("write letters")
        live = [event async for event in stream]
        late = [event async for event, _ in agent.watch(stream.thread_id)]
    assert order(late) == order(live)
    heard = order(late, ("step_started", "speech", "step_finished"))
    assert heard == [(kind, id) for id in ("s1", "s2", "s3") for kind in ("step_started", "speech", "step_finished")]


async def test_what_ended_while_others_worked_is_told_between_what_they_saw() -> None:
    """R04: steps that do not build on each other are told by the clock."""

    def entry(id: str, second: int) -> dict[str, Any]:
        row = {"id": id, "step": id[:2], "tool": "send", "ok": True, "seconds": 0.0, "text": "sent"}
        return {**row, "at": f"2026-11-22T10:00:{second:02}+00:00"}

    plan: Any = {"revision": "r", "steps": [{"id": id, "content": id, "depends_on": []} for id in ("s1", "s2")]}
    over: Any = {id: {"status": "done", "ended": f"2026-11-22T10:00:{at}+00:00"} for id, at in (("s1", 15), ("s2", 30))}
    journal = [entry("s1.1", 5), entry("s2.1", 10), entry("s2.2", 20)]
    run = Run("thread", "completed", "goal", plan, over, outcome={"status": "", "code": "", "text": ""})  # type: ignore[typeddict-item]
    snapshot: Any = SimpleNamespace(values={"turn": 1, "journal": journal}, tasks=())

    async def look() -> Any:
        return run, snapshot

    told = [event async for event, _ in watch_run(look, None)]
    began, saw, ended = TOLD
    first = [(began, "s1"), (saw, "s1"), (began, "s2"), (saw, "s2"), (ended, "s1"), (saw, "s2"), (ended, "s2")]
    assert order(told) == first


async def test_a_cursor_is_of_its_thread(tmp_path: Path) -> None:
    """R04: with the cursor of another thread nothing is told instead of the wrong half."""
    model = ScriptedModel(roles={"triage": [answer("one"), answer("two")]})
    async with Agent(model, storage=tmp_path / "runs.db") as agent:
        first, second = [(await agent.start(goal)).thread_id for goal in ("first", "second")]
        cursors = [cursor async for _, cursor in agent.watch(first)]
        assert [event["type"] async for event, _ in agent.watch(first, cursors[0])] == ["outcome"]
        with pytest.raises(ConfigError, match=f"of thread '{first}', not of '{second}'"):
            [event async for event, _ in agent.watch(second, cursors[0])]


async def test_a_run_at_work_is_read_whole(tmp_path: Path) -> None:
    """R04: who looks while a step ends, whose rounds then go, sees it before or after; with a key it was an error."""
    steps = [{"content": f"write {number}", "tools": ["send"]} for number in range(4)]
    work = {
        f"s{number}": [*(call("send", text=str(n)) for n in range(5)), finish_step("sent", f"s{number}.1")]
        for number in range(1, 5)
    }
    model = ScriptedModel(roles={"triage": [submit_plan(steps)], "execute": work, "deliver": ["Sent."]})
    storage = open_storage(fresh_url("sqlite-sealed", tmp_path), key=key_of("sqlite-sealed"))
    async with Agent(model, [send], storage=storage, settings=FREE) as agent:
        thread = await agent.submit("write letters")
        carried = asyncio.create_task(agent.run_submitted(thread))
        while not carried.done():
            assert (await agent.get(thread)).goal == "write letters"
        assert (await carried).status == "completed"


async def test_reads_side_by_side_that_end_in_another_order() -> None:
    """R04: none is missed, and each comes once: by the clock the second came first, and the first was taken as told."""

    def entry(number: int, second: int) -> dict[str, Any]:
        row = {"id": f"p.{number}", "step": "p", "tool": "read", "ok": True, "seconds": 0.0, "text": "read"}
        return {**row, "at": f"2026-11-22T10:00:{second:02}+00:00"}

    journal = [entry(1, 9), entry(2, 5), entry(3, 12)]
    run = Run("thread", "completed", "goal", outcome={"status": "", "code": "", "text": ""})  # type: ignore[typeddict-item]
    snapshot: Any = SimpleNamespace(values={"turn": 1, "journal": journal}, tasks=())

    async def look() -> Any:
        return run, snapshot

    told = [event["id"] async for event, _ in watch_run(look, None) if event["type"] == "observation"]
    assert told == ["p.1", "p.2", "p.3"]
