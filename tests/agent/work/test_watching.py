"""A run watched from anywhere: what who comes late is told, and in which order."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, ConfigError, UnknownThread
from donewhen.agent.work import watch
from donewhen.testing import ScriptedModel, answer, ask_user, call, criterion, finish_step, reply, submit_plan
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


async def test_a_cursor_is_of_its_thread(tmp_path: Path) -> None:
    """R04: with the cursor of another thread nothing is told instead of the wrong half."""
    model = ScriptedModel(roles={"triage": [answer("one"), answer("two")]})
    async with Agent(model, storage=tmp_path / "runs.db") as agent:
        first, second = [(await agent.start(goal)).thread_id for goal in ("first", "second")]
        cursors = [cursor async for _, cursor in agent.watch(first)]
        assert [event["type"] async for event, _ in agent.watch(first, cursors[-2])] == ["outcome"]
        of_before = json.dumps(
            {"of": first, "turn": 1, "plan": "", "said": "", "observed": {}, "steps": {}, "asked": ""}
        )
        assert len([event async for event, _ in agent.watch(first, of_before)]) == len(cursors)
        with pytest.raises(ConfigError, match=f"of thread '{first}', not of '{second}'"):
            [event async for event, _ in agent.watch(second, cursors[0])]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_what_was_watched_to_its_outcome_has_nothing_more(kind: str, tmp_path: Path) -> None:
    """S01, R04: after the cursor of an outcome comes nothing, twice; of the next request all, also of one that is
    cancelled while it waits or before it begins."""
    model = ScriptedModel(roles={"triage": [answer("one"), ask_user("Which?"), answer("two")]})
    async with Agent(model, storage=fresh_url(kind, tmp_path)) as agent:
        thread, last = (await agent.start("first")).thread_id, ""
        for goal in ("second", "third"):
            last = [cursor async for _, cursor in agent.watch(thread, last or None)][-1]
            for _ in range(2):
                assert [each async for each in agent.watch(thread, last)] == []
            run = await agent.start(goal, thread_id=thread)
            if run.status == "waiting":
                await agent.cancel(thread)
            events = [event async for event, _ in agent.watch(thread, last)]
            assert (events[0]["type"], events[0]["goal"], events[-1]["type"]) == ("started", goal, "outcome")
        last = [cursor async for _, cursor in agent.watch(thread)][-1]
        await agent.submit("fourth", thread_id=thread)
        await agent.cancel(thread)
        assert [event.get("status") async for event, _ in agent.watch(thread, last)][-1] == "cancelled"


@pytest.mark.parametrize("cause", ["an answer", "a drain"])
async def test_a_queued_run_that_has_begun_is_told_from_its_begin(cause: str, tmp_path: Path) -> None:
    """R04: what happened before a run came into the queue is told there too; a request that has not begun has nothing
    to tell, and the one before it is over."""
    plan = submit_plan([{"content": "write", "tools": ["leave"]}, {"content": "rest", "tools": []}])
    second = ask_user("Which?") if cause == "an answer" else plan
    model = ScriptedModel(roles={"triage": [answer("one"), second], "execute": [call("leave")]})

    def leave() -> str:
        """Let the worker go."""
        agent.drain()
        return "left"

    async with Agent(model, [leave], storage=tmp_path / "runs.db") as agent:
        await agent.start("first", thread_id="t", settings=FREE)
        await agent.submit("second", thread_id="t", settings=FREE)
        assert await told(agent) == []
        run = await agent.run_submitted("t")
        if run.status == "waiting":
            assert await told(agent) != []
            await agent.submit_answer(run, "that one")
        assert (await agent.info("t")).status == "queued"
        events = await told(agent)
        assert [event["type"] for event in events][:2] == ["started", "goal"]
        assert [event["goal"] for event in events if event["type"] == "started"] == ["second"]


@pytest.mark.parametrize("first", ["none", "one", "two"])
async def test_a_request_that_was_left_before_it_began_is_told_alone(first: str, tmp_path: Path) -> None:
    """R04: with why workers gave it up, and nothing of the requests before; once it ends, all of it is told."""
    model = ScriptedModel(roles={"triage": [answer(text) for text in ("one", "two", "three")]})
    async with Agent(model, storage=tmp_path / "runs.db") as agent:
        for goal in {"none": [], "one": ["first"], "two": ["first", "second"]}[first]:
            await agent.start(goal, thread_id="t")
        await agent.submit("next", thread_id="t", settings={"models": {"triage": "openai:gpt-5"}})
        async with agent.worker():
            (left,) = [event async for event, _ in agent.watch("t")]
        assert (left["type"], left["status"], left["run"]["goal"]) == ("outcome", "running", "next")
        assert "no key" in left["text"]
        assert [event["text"] for event in await told(agent)] == [left["text"]]
        await agent.cancel("t")
        events = await told(agent)
        assert (events[0]["type"], events[0]["goal"], events[-1]["status"]) == ("started", "next", "cancelled")


async def told(agent: Agent) -> list[Any]:
    """What a watcher of a thread on which nobody works is told within a second."""
    events = list[Any]()
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            async for event, _ in agent.watch("t"):
                events.append(event)
    return events


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


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
async def test_who_watches_reads_at_once_that_the_model_is_away(kind: str, tmp_path: Path) -> None:
    """C12, R01: the note is stored before the wait for the model, and not with what comes after it."""
    asked = asyncio.Event()

    async def away(*_: Any) -> Any:
        asked.set()
        return ConnectionRefusedError("nobody listens")

    settings = {"model_retries": 0, "outage_seconds": 600}
    agent = Agent(ScriptedModel(away), storage=fresh_url(kind, tmp_path), settings=settings)
    async with agent:
        await agent.submit("hi", thread_id="t")
        async with agent.worker():
            await asyncio.wait_for(asked.wait(), 30)
            async for event, _ in agent.watch("t"):
                if event["type"] == "note":
                    break
            assert event["text"].startswith("The model is away.")
        assert (await agent.get("t")).status == "queued"


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "sqlite-sealed"])
async def test_who_watched_while_nothing_happened_hears_all_that_happens_next(kind: str, tmp_path: Path) -> None:
    """R04: after an idle wait for an answer, and for a worker, a watcher is told each event of what others do once,
    also that the run was cancelled; and of a thread that is deleted, that there is none."""
    storage, told = open_storage(fresh_url(kind, tmp_path), key=key_of(kind)), asyncio.Queue[Any]()
    model = ScriptedModel(roles={"triage": [ask_user("One?"), ask_user("Two?"), ask_user("Three?"), answer("no")]})
    seen = list[Any]()

    async def follow() -> None:
        async for event, _ in agent.watch("t"):
            told.put_nowait(event)

    async def hear_question() -> None:
        """Hear all until the run waits again."""
        while not seen or seen[-1]["type"] != "waiting":
            seen.append(await asyncio.wait_for(told.get(), 30))
        seen.pop()  # it is made while the run waits, and not stored
        await hear_nothing()

    async def hear_nothing() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(told.get(), 2 * watch.POLL)

    async with Agent(model, storage=storage) as agent, Agent(model, storage=storage) as other:
        await other.start("first", thread_id="t")
        following = asyncio.create_task(follow())
        await hear_question()
        await other.resume("t", "1")
        await hear_question()
        await other.submit_answer("t", "2")
        await hear_nothing()
        await other.run_submitted("t")
        await hear_question()
        await other.cancel("t")
        await asyncio.wait_for(following, 30)
        seen += [told.get_nowait() for _ in range(told.qsize())]
        assert seen == [event async for event, _ in agent.watch("t")]
        await other.submit("second", thread_id="t")
        following = asyncio.create_task(follow())
        await hear_nothing()
        await other.delete("t")
        with pytest.raises(UnknownThread):
            await asyncio.wait_for(following, 30)
