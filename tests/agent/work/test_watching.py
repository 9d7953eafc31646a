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


BEGAN, SAW, ENDED = TOLD
ORDERS: dict[str, tuple[list[tuple[str, int]], dict[str, int], list[tuple[str, str]]]] = {
    "steps that do not build on each other, by the clock": (
        [("s1.1", 5), ("s2.1", 10), ("s2.2", 20)],
        {"s1": 15, "s2": 30},
        [(BEGAN, "s1"), (SAW, "s1.1"), (BEGAN, "s2"), (SAW, "s2.1"), (ENDED, "s1"), (SAW, "s2.2"), (ENDED, "s2")],
    ),
    "reads side by side that end in another order, each once": (
        [("p.1", 9), ("p.2", 5), ("p.3", 12)],
        {},
        [(SAW, "p.1"), (SAW, "p.2"), (SAW, "p.3")],
    ),
}
"""Observations with their second, steps with that of their end, and what a late watcher is told."""


@pytest.mark.parametrize("case", ORDERS)
async def test_what_happened_side_by_side_is_told_once_and_in_order(case: str) -> None:
    """R04: none is missed: by the clock alone the second read came first, and the first was taken as told."""
    observed, ended, expected = ORDERS[case]

    def at(second: int) -> str:
        return f"2026-11-22T10:00:{second:02}+00:00"

    rest = {"tool": "send", "ok": True, "seconds": 0.0, "text": "sent"}
    journal = [{"id": id, "step": id.split(".")[0], "at": at(second), **rest} for id, second in observed]
    plan: Any = {"revision": "r", "steps": [{"id": id, "content": id, "depends_on": []} for id in ended]}
    over: Any = {id: {"status": "done", "ended": at(second)} for id, second in ended.items()}
    end: Any = {"status": "", "code": "", "text": ""}
    run = Run("thread", "completed", "goal", plan if ended else None, over, outcome=end)
    snapshot: Any = SimpleNamespace(values={"turn": 1, "journal": journal}, tasks=())

    async def look() -> Any:
        return run, snapshot

    events: list[Any] = [event async for event, _ in watch_run(look, None)]
    told = [(each["type"], each.get("id") or each["step"]) for each in events if each["type"] in TOLD]
    assert told == expected


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
