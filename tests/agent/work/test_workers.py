"""Workers: what is submitted is carried out once, by whoever is there; nothing is lost when one of them goes."""

import asyncio
import json
import logging.handlers
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import pytest
from langgraph.types import Command

from donewhen import Agent, ConfigError, McpServers, StaleAnswer, StorageError, ThreadBusy, ThreadWaiting, UnknownThread
from donewhen.agent.cli.worker import IDLE_AGENTS
from donewhen.agent.work import worker as worker_module
from donewhen.agent.work.thread_rows import QUEUE, settings_in, update_row, write_crash
from donewhen.agent.work.worker import Worker
from donewhen.testing import ScriptedModel, answer, ask_user, call, finish_step, reply, submit_plan
from tests.kit.forking import CommandProcess, forks
from tests.kit.painting import Painting
from tests.kit.screens.shell import Shell, user_in
from tests.kit.screens.terminal import SECONDS, environment
from tests.kit.storage.cases import fresh_url, open_storage

FREE: dict[str, Any] = {"confirm": "never"}


def send(text: str) -> str:
    """Send a letter."""
    return f"sent {text}"


def writing(runs: int = 1) -> ScriptedModel:
    """Plans a letter and sends it, in so many runs."""
    work = [reply for _ in range(runs) for reply in (call("send", text="hi"), finish_step("sent", "s1.1"))]
    return ScriptedModel(
        roles={"triage": [submit_plan([{"content": "write", "tools": ["send"]}])] * runs, "execute": work}
    )


class Only:
    """As much of an agent as a worker needs: it carries out a run this way."""

    def __init__(self, run_submitted: Any) -> None:
        self.run_submitted = run_submitted

    def drain(self) -> None: ...


async def heard(agent: Agent, thread: str, cursor: str | None = None) -> list[tuple[dict[str, Any], str]]:
    """All that is watched of a run, to its outcome."""
    return [(dict(event), after) async for event, after in agent.watch(thread, cursor)]


async def test_submitted_watched_done(storage: Any) -> None:
    """M11, R04: a goal is written down at once, a worker carries it out, and it is followed, gap-free."""
    async with Agent(writing(), [send], storage=storage, settings={**FREE, "approvals": "never"}) as agent:
        thread = await agent.submit("write a letter", owner="ann", metadata={"n": 1})
        run, info = await agent.get(thread), await agent.info(thread)
        assert (run.status, run.goal, info.status, info.owner) == ("queued", "write a letter", "queued", "ann")
        async with agent.worker():
            events = await heard(agent, thread)
        kinds = [event["type"] for event, _ in events]
        told = ("started", "plan", "step_started", "tool_started", "observation", "step_finished", "outcome")
        assert [kind for kind in kinds if kind in told] == [*told]
        assert (await agent.get(thread)).status == "completed"
        at = kinds.index("observation")
        again = await heard(agent, thread, events[at][1])
        assert again == events[at + 1 :]
        assert [each async for each in agent.watch(thread, after=events[at][0]["seq"])] == again
        status = await agent.status()
        assert (status["threads"], status["workers"]) == ({"completed": 1}, [])
        for none in ("12", "{}x", '{"turn": 1}', '{"turn": 1, "plan": 5}'):
            with pytest.raises(ConfigError, match="no cursor"):
                await heard(agent, thread, none)
        with pytest.raises(UnknownThread):
            await heard(agent, "nobody")


async def test_what_is_said_is_watched(storage: Any) -> None:
    """R04, U1: what planning and steps say comes whole, once each, from wherever it is watched."""
    plan = submit_plan([{"content": "write", "tools": ["send"]}, {"content": "again", "tools": ["send"]}])
    work = [
        part
        for number in (1, 2)
        for part in (
            reply(f"Step {number} writes.", [call("send", text="hi")]),
            reply("Sent.", [finish_step("sent", f"s{number}.1")]),
        )
    ]
    roles = {"triage": [answer("Hello."), reply("Let me plan.", [plan])], "execute": work, "deliver": ["Both sent."]}
    settings = {**FREE, "approvals": "never"}
    async with Agent(ScriptedModel(roles=roles), [send], storage=storage, settings=settings) as agent:
        thread = (await agent.start("hello")).thread_id
        await agent.submit("write two letters", thread_id=thread)
        async with agent.worker():
            live = await heard(agent, thread)
        late = await heard(agent, thread)
        for events in (live, late):
            said = [(event["step"] or "", event["text"].strip()) for event, _ in events if event["type"] == "speech"]
            steps = [(f"s{number}", text) for number in (1, 2) for text in (f"Step {number} writes.", "Sent.")]
            assert sorted(said) == sorted([("", "Let me plan."), *steps])
        middle = next(after for event, after in late if event["type"] == "speech" and event["step"] == "s1")
        rest = [event["text"] for event, _ in await heard(agent, thread, middle) if event["type"] == "speech"]
        assert rest == ["Sent.\n", "Step 2 writes.\n", "Sent.\n"]


def count(path: str) -> str:
    """Count."""
    return "3"


NAMES_NOTHING: list[tuple[dict[str, Any], str]] = [
    ({"profile": {"forbidden_tools": ["cuont"]}}, "no tool 'cuont'"),
    ({"profile": {"allowed_paths": ["a/*"]}}, "not patterns"),
    ({"done_when": [{"text": "x", "check": {"tool": "cuont", "arguments": {}}}]}, "'cuont' does not exist"),
]


@pytest.mark.parametrize(("settings", "why"), NAMES_NOTHING, ids=["forbidden", "paths", "check"])
async def test_what_cannot_be_kept_is_refused_before_it_is_queued(settings: Any, why: str) -> None:
    """✗ As by `start`, and nothing is stored; an agent that lacks the tools leaves it to the worker's, which ends
    the run with the reason.
    """
    storage, effects = open_storage("memory:"), {"count": "read"}
    async with (
        Agent(ScriptedModel(roles={}), [count], effects=effects, storage=storage) as agent,
        Agent(ScriptedModel(roles={}), storage=storage) as without,
        Agent(ScriptedModel(roles={}), McpServers({"one": {"command": "none"}}), storage=storage) as closed,
    ):
        for verb in (agent.start, agent.submit):
            with pytest.raises(ConfigError, match=why):
                await verb("go", settings=settings)
        assert await agent.threads() == []
        for other in (without, closed):
            run = await agent.run_submitted(await other.submit("go", settings=settings))
            assert (run.status, why in run.answer) == ("failed", True)


async def test_a_worker_hears_what_another_process_submits(tmp_path: Path) -> None:
    """R04: PostgreSQL tells workers of what is queued; they need not look for it."""
    url = fresh_url("postgres", tmp_path)
    own = open_storage(url)
    async with Agent(ScriptedModel(roles={"triage": [answer("May.")]}), storage=url) as agent:
        worker = Worker(own, QUEUE, lambda _: nullcontext(agent), poll=60.0)
        async with worker, own.listen() as (_, hear):
            await hear(asyncio.Event(), 0.1)
            thread = await agent.submit("report")
            begun = asyncio.get_running_loop().time()
            await hear(asyncio.Event(), 55.0)
            assert asyncio.get_running_loop().time() - begun < 50
            assert (await heard(agent, thread))[-1][0]["text"].startswith("May.")


async def test_an_answer_is_submitted_and_the_run_goes_on(storage: Any) -> None:
    """M11, C04: an answer is held against what is asked at once, and taken up by a worker; twice is refused."""
    model = ScriptedModel(roles={"triage": [ask_user("Which month?"), answer("May.")]})
    async with Agent(model, storage=storage) as agent, agent.worker():
        thread = await agent.submit("report")
        async for event, _ in agent.watch(thread):
            if event["type"] == "waiting":
                with pytest.raises(StaleAnswer):
                    await agent.submit_answer(thread, {"s9.q9": "May"})
                await agent.submit_answer(thread, "May")
        assert (await agent.get(thread)).answer == "May."
        with pytest.raises(StaleAnswer):
            await agent.submit_answer(thread, "May")


async def test_an_answer_waits_for_the_step_that_works_on_another(storage: Any) -> None:
    """M11, C07: a second answer is taken while the first one's step works, once, and reaches the run after it."""
    painting = Painting()
    async with painting.agent(storage) as agent, agent.worker():
        thread = await agent.submit("hang the picture")
        async for event, _ in agent.watch(thread):
            if event["type"] == "waiting":
                break
        await agent.submit_answer(thread, {"s1.q1": "blue"})
        await painting.begun.wait()
        with pytest.raises(ThreadBusy, match="submit_answer"):
            await agent.resume(thread, {"s2.q1": "oak"})
        await agent.submit_answer(thread, {"s2.q1": "oak"}, by="mira")
        for second, id in (({"s2.q1": "pine"}, "s2.q1"), ({"s1.q1": "red"}, "s1.q1"), ("pine", "s2.q1")):
            stale = f"waits for no other answer: it is being worked on.*; {id} was answered( by mira)? already"
            with pytest.raises(StaleAnswer, match=stale):
                await agent.submit_answer(thread, second)
        painting.go_on.set()
        await heard(agent, thread)
        painting.assert_done(await agent.get(thread))


async def test_an_answer_waits_for_a_step_that_was_cut_off(storage: Any) -> None:
    """M11, R02: an answer that is given while nobody works on the thread, because its worker stopped, is not lost."""
    painting = Painting()
    async with painting.agent(storage) as agent:
        thread = await agent.submit("hang the picture")
        assert (await agent.run_submitted(thread)).status == "waiting"
        await agent.submit_answer(thread, {"s1.q1": "blue"})
        leg = asyncio.create_task(agent.run_submitted(thread))
        await painting.begun.wait()
        agent.drain()
        painting.go_on.set()
        assert (await leg).status == "queued"
        await agent.submit_answer(thread, "oak")
        with pytest.raises(StaleAnswer):
            await agent.submit_answer(thread, {"s2.q1": "pine"})
        run = await agent.run_submitted(thread)
        assert (run.status, run.pending) == ("queued", ())
        painting.assert_done(await agent.run_submitted(thread))


async def test_an_answer_to_what_is_answered_and_queued_says_by_whom(storage: Any) -> None:
    """C04: and names no earlier decision. Of somebody who gave no name it says only that the question was answered."""
    plan = submit_plan([{"content": "Ask", "done_when": "known"}])
    model = ScriptedModel(roles={"triage": [plan] * 2, "execute": [ask_user("Which?", ["a", "b"])] * 2})
    async with Agent(model, storage=storage, settings=FREE) as agent:
        for by, says in (("mira", "s1.q1 was answered by mira already"), ("", "s1.q1 was answered already")):
            run = await agent.start("ask")
            await agent.submit_answer(run, "a", by=by)
            for verb in (agent.resume, agent.submit_answer):
                for question in ("s1.q1", None):
                    with pytest.raises(StaleAnswer, match=f"it is queued; {says}$") as late:
                        await verb(run.thread_id, "b", question=question, by="tom")
                    assert late.value.decided == [{"id": "s1.q1", "decision": "", "text": "a", "name": by, "at": ""}]


async def test_who_submits_later_leaves_the_question_to_others(storage: Any) -> None:
    """C04, C09: as with `resume`, nothing is answered, by a word or a button; an answer to another question counts."""
    painting = Painting()
    painting.go_on.set()
    async with painting.agent(storage) as agent:
        thread = (await agent.start("hang the picture")).thread_id
        for later in ("later", {"type": "later"}):
            assert await agent.submit_answer(thread, later, by="ann") == thread
            assert [pause["id"] for pause in await agent.pending()] == ["s1.q1", "s2.q1"]
        await agent.submit_answer(thread, {"s1.q1": "later", "s2.q1": "oak"}, by="ann")
        run = await agent.get(thread)
        assert (run.status, [pause["id"] for pause in run.pending]) == ("queued", ["s1.q1"])
        await agent.submit_answer(thread, "blue", by="bob")
        painting.assert_done(await agent.run_submitted(thread))


@pytest.mark.parametrize("way", ["resume", "graph"])
async def test_an_answer_given_here_takes_along_what_waits_for_a_worker(storage: Any, way: str) -> None:
    """M11, C07: `resume` displaces no answer that was submitted; a plain one is for what is still open."""
    painting = Painting()
    painting.go_on.set()
    async with painting.agent(storage) as agent:
        thread = await agent.submit("hang the picture")
        await agent.run_submitted(thread)
        await agent.submit_answer(thread, {"s1.q1": "blue"}, by="mira")
        for verb in (agent.resume, agent.submit_answer):
            with pytest.raises(StaleAnswer, match=r"nothing waits under s1.q1; s1.q1 was answered by mira already"):
                await verb(thread, {"s1.q1": "red"})
        if way == "resume":
            await agent.resume(thread, "oak")
        else:
            await agent.graph.ainvoke(Command(resume="oak"), {"configurable": {"thread_id": thread}})
        painting.assert_done(await agent.get(thread))


async def test_a_question_nobody_answers_is_answered_by_policy(storage: Any) -> None:
    """M11: a worker looks again when the settings answer; nobody has to resume it."""
    settings = {"on_question": "default", "default_answer": "June", "question_seconds": 0.0}
    model = ScriptedModel(roles={"triage": [ask_user("Which month?"), answer("June.")]})
    async with Agent(model, storage=storage, settings=settings) as agent, agent.worker():
        thread = await agent.submit("report")
        assert (await heard(agent, thread))[-1][0]["text"].startswith("June.")


async def test_owners_take_turns(storage: Any) -> None:
    """M11: a burst of one owner does not starve another: each one's first comes before anybody's second."""
    order: list[str] = []
    model = ScriptedModel(roles={"triage": lambda messages, _: order.append(str(messages)) or answer("ok")})
    async with Agent(model, storage=storage) as agent:
        threads = [await agent.submit(f"ann-{number}", owner="ann") for number in range(6)][:2]
        threads += [await agent.submit(f"bob-{number}", owner="bob") for number in range(2)]
        threads += [await agent.submit("cy-0", owner="cy")]
        async with agent.worker(concurrency=1):
            for thread in threads:
                await heard(agent, thread)
    firsts = [next(name for name in ("ann", "bob", "cy") if f"{name}-" in text) for text in order]
    assert Counter(firsts[:3]) == Counter(["ann", "bob", "cy"])
    assert Counter(firsts[3:5]) == Counter(["ann", "bob"])


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_first_submitted_is_the_first_taken(storage: Any, workers: int) -> None:
    """M11: an owner's threads come in their order. One that is worked on elsewhere holds up none; two workers share."""
    order: list[str] = []
    model = ScriptedModel(roles={"triage": lambda messages, _: order.append(str(messages[-1].text)) or answer("ok")})
    async with Agent(model, storage=storage) as agent:
        threads = [await agent.submit(f"goal-{number:02}", owner="ann") for number in range(8)]
        async with AsyncExitStack() as stack:
            for _ in range(workers):
                await stack.enter_async_context(agent.worker(concurrency=1))
            for thread in threads:
                await heard(agent, thread)
        taken = [next(number for number in range(8) if f"goal-{number:02}" in text) for text in order]
        assert taken == sorted(taken) if workers == 1 else sorted(taken) == list(range(8))
        held, *others = [await agent.submit("once more", thread_id=thread, owner="ann") for thread in threads]
        async with agent.worker(concurrency=1):
            async with storage.session(held):
                for thread in others:
                    await heard(agent, thread)
            assert (await heard(agent, held))[-1][0]["type"] == "outcome"


async def test_a_worker_that_may_not_do_so_much_at_once_says_so(storage: Any, caplog: pytest.LogCaptureFixture) -> None:
    """R17: what it was asked for is more than one process does on its storage, as on PostgreSQL."""
    async with Agent("demo", storage=storage) as agent:
        for concurrency in (min(storage.at_once, 99), storage.at_once + 1):
            async with agent.worker(concurrency=concurrency):
                await asyncio.sleep(0)
    (text,) = [each.getMessage() for each in caplog.records if each.name == "donewhen.work"]
    most = f"at most {storage.at_once} runs at once, not {storage.at_once + 1}"
    assert text == f"A worker on this storage works on {most}: for more, start more processes."


async def test_what_is_queued_is_not_displaced(storage: Any) -> None:
    """M11: a goal on a thread that waits for a worker is refused, unless that is put away; `resume` does it here."""
    async with Agent(ScriptedModel(roles={"triage": [answer("one"), answer("three")]}), storage=storage) as agent:
        thread = await agent.submit("first")
        for verb in (agent.start, agent.submit):
            with pytest.raises(ThreadWaiting, match="not finished"):
                await verb("second", thread_id=thread)
        assert (await agent.resume(thread)).answer == "one"
        await agent.submit("second", thread_id=thread)
        assert (await agent.start("third", thread_id=thread, restart=True)).answer == "three"
        assert (await agent.info(thread)).queue == ""


async def test_a_plan_that_waits_is_no_work(storage: Any) -> None:
    """M11: a policy for questions answers no plan, so a worker does not come back to one that waits."""
    settings = {"on_question": "default", "default_answer": "x", "question_seconds": 0.0}
    async with Agent(writing(), [send], storage=storage, settings=settings) as agent:
        thread = await agent.submit("write")
        assert (await agent.run_submitted(thread)).status == "waiting"
        async with storage.reader() as (_, store):
            assert await store.threads.find_due(QUEUE, "2999", 9) == []


async def test_later_is_later(storage: Any) -> None:
    """P18: what is submitted for a moment is not taken up before it."""
    async with Agent(ScriptedModel(roles={}), storage=storage) as agent:
        thread = await agent.submit("report", at=datetime.now(UTC) + timedelta(hours=1))
        async with storage.reader() as (_, store):
            soon = (datetime.now(UTC) + timedelta(minutes=59)).isoformat(timespec="milliseconds")
            late = (datetime.now(UTC) + timedelta(minutes=61)).isoformat(timespec="milliseconds")
            assert await store.threads.find_due(QUEUE, soon, 9) == []
            assert [each[1:] for each in await store.threads.find_due(QUEUE, late, 9)] == [(thread, "")]


async def test_what_a_dead_worker_left_comes_before_all_that_is_new(storage: Any) -> None:
    """R02, R04: with a long queue the ones that were cut off are not left to chance (once 60 s were not enough)."""
    order: list[str] = []
    model = ScriptedModel(roles={"triage": lambda messages, _: order.append(str(messages)) or answer("ok")})
    async with Agent(model, storage=storage) as agent:
        threads = [await agent.submit(f"goal-{number}.") for number in range(20)]
        for thread in threads[-2:]:
            async with storage.session(thread) as (_, store):
                await store.threads.put(thread, {**(await store.threads.get(thread) or {}), "status": "running"})
        async with agent.worker(concurrency=1):
            await heard(agent, threads[0])
    first = "".join(order[:2])
    assert "goal-18." in first
    assert "goal-19." in first


async def test_the_log_says_which_threads_dead_workers_left(storage: Any, caplog: pytest.LogCaptureFixture) -> None:
    """R04: of two workers one says once of each thread what becomes of it; a run that no worker had is not theirs."""
    model = ScriptedModel(roles={"triage": lambda *_: answer("ok")})
    async with Agent(model, storage=storage) as agent, Agent(model, storage=storage) as other:
        threads = [await agent.submit("the secret report", thread_id=name) for name in ("one", "two", "three")]
        for thread, more in zip(threads, ({}, {"tries": 5}, {"queue": ""}), strict=True):
            async with storage.session(thread) as (_, store):
                row = await store.threads.get(thread) or {}
                await store.threads.put(thread, {**row, "status": "running", **more})
        async with agent.worker(), other.worker():
            await heard(agent, "one")
        assert {info.thread_id: bool(info.problem) for info in await agent.threads()} == {
            "one": False,
            "two": True,
            "three": True,
        }
    said = [record.getMessage() for record in caplog.records if record.name == "donewhen.work"]
    assert sorted(said) == [
        "one: its worker died; it is in the queue again, retry 1 of 5",
        "two: its worker died 6 times; it is left to a person",
    ]


@pytest.mark.parametrize("stop", ["worker", "task"])
async def test_work_that_stopping_workers_cut_off_is_lost_to_no_person(
    stop: str, storage: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S02: a call takes longer than a worker has when it stops: six deployments left the run to a person."""
    monkeypatch.setattr(worker_module, "GRACE", 0.0)
    at_work = asyncio.Event()

    async def work(what: str) -> str:
        """Work for long."""
        at_work.set()
        return await asyncio.Future[str]()

    model = ScriptedModel([submit_plan([{"content": "Work", "tools": ["work"]}]), call("work", what="x")])
    settings = {"confirm": "never"}
    async with Agent(model, [work], effects={"work": "read"}, storage=storage, settings=settings) as agent:
        await agent.submit("Do it", thread_id="t")
        for _ in range(7):
            at_work.clear()
            if stop == "worker":
                async with agent.worker():
                    await asyncio.wait_for(at_work.wait(), 10)
            else:
                task = asyncio.create_task(agent.run_submitted("t"))
                await asyncio.wait_for(at_work.wait(), 10)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        info = await agent.info("t")
        assert (info.status, info.queue, info.problem) == ("queued", QUEUE, "")
    said = {record.message for record in caplog.records if record.name == "donewhen.work"}
    assert said == {"t: its worker stopped and cut it off; it is in the queue again"}


@pytest.mark.parametrize("who", ["list", "worker"])
async def test_however_many_runs_died_the_time_of_grace_passes_once(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R04: a process that worked on many threads died; no worker waits for each of them before it takes work."""
    storage, waits = open_storage("memory:"), list[int]()
    find = storage.find_left

    async def find_left(thread_ids: Sequence[str]) -> list[str]:
        waits.append(len(thread_ids))
        return await find(thread_ids)

    model = ScriptedModel(roles={"triage": [answer("ok")] * 4})
    async with Agent(model, storage=storage) as agent:
        for thread in "abcd":
            await agent.start("report", thread_id=thread)
            async with storage.writer() as (_, store):
                await update_row(store, thread)  # as its process left it
        monkeypatch.setattr(storage, "find_left", find_left)
        async with storage.reader() as (_, store):
            await (agent.threads() if who == "list" else agent.worker()._sweep(store))
            assert [(await store.threads.get(thread) or {})["status"] for thread in "abcd"] == ["answered"] * 4
    assert sorted(waits)[-1:] == [4]
    assert sum(map(bool, waits)) == 1


async def test_work_that_keeps_failing_is_retried_five_times(storage: Any) -> None:
    """R04: as docs/operations.md says, after an error and after the death of its worker alike."""

    class Broken:
        async def run_submitted(self, thread_id: str) -> Any:
            raise StorageError("the disk is full")

        def drain(self) -> None: ...

    async with Agent(ScriptedModel(roles={}), storage=storage) as agent:
        for dies in (False, True):
            thread, attempts = await agent.submit("report"), 0
            worker = Worker(storage, QUEUE, lambda _: nullcontext(Broken()))
            async with storage.writer() as (_, store):
                while (row := await store.threads.get(thread) or {})["queue"]:
                    attempts += 1
                    if dies:
                        await write_crash(store, thread, row)
                    else:
                        await worker._continue_thread(thread, row)
            assert attempts == 1 + 5
            assert row["problem"] == ("its worker died 6 times" if dies else "StorageError: the disk is full")


async def test_an_error_is_tried_again_and_then_left_to_a_person(storage: Any) -> None:
    """R04: a worker tries what fails later again; what can never work it leaves at once, with the reason."""
    failing = StorageError("the disk is full")

    async def fail(_: str) -> Any:
        raise failing

    async with Agent(ScriptedModel(roles={}), storage=storage) as agent:
        thread = await agent.submit("report")
        worker = Worker(storage, QUEUE, lambda _: nullcontext(Only(fail)))
        async with storage.reader() as (_, store):
            row = await store.threads.get(thread)
            assert row is not None
            await worker._continue_thread(thread, row)
            row = await store.threads.get(thread)
        assert row is not None
        assert (row["status"], row["tries"], row["queue"]) == ("queued", 1, QUEUE)
        assert row["due"] > datetime.now(UTC).isoformat()
        failing = ConfigError("there is no model")  # type: ignore[assignment]
        await worker._continue_thread(thread, row)
        info = await agent.info(thread)
        assert (info.queue, info.status, info.problem) == ("", "running", "ConfigError: there is no model")
        run = await agent.get(thread)
        assert (run.status, run.goal, run.problem) == ("running", "report", "ConfigError: there is no model")
        ((end, cursor),) = await heard(agent, thread)
        assert await heard(agent, thread, cursor) == [(end, cursor)]
        assert (end["type"], end["status"], end["text"]) == ("outcome", "running", "ConfigError: there is no model")
    model = ScriptedModel(roles={"triage": [answer("May.")]})
    async with Agent(model, storage=storage) as agent:
        run = await agent.resume(thread, settings={"max_steps": 7})
        assert (run.status, run.answer, run.problem) == ("answered", "May.", "")
        async with storage.reader() as (_, store):
            assert settings_in(await store.threads.get(thread) or {}).max_steps == 7  # type: ignore[union-attr]


@pytest.mark.parametrize("begun", [False, True])
async def test_what_workers_gave_up_on_is_given_back_by_submitting_it_again(storage: Any, begun: bool) -> None:
    """R04: a request that is the thread's last, begun or not, is tried as often as at first, with what it has done."""
    sent: list[str] = []

    def send(text: str) -> str:
        """Send a letter."""
        sent.append(text)
        return f"sent {text}"

    async def give_up(thread: str) -> None:
        async with storage.writer() as (_, store):
            while (row := await store.threads.get(thread) or {})["queue"]:
                await write_crash(store, thread, row)

    model = writing()
    asks = {"confirm": "always" if begun else "never"}
    async with Agent(model, [send], storage=storage, settings=asks) as agent:
        for _ in range(2):
            await agent.submit("write a letter", request_id="may/1")
            await give_up("may/1")
            assert (await agent.info("may/1")).problem == "its worker died 6 times"
        if begun:  # what is submitted for it is an answer then, and stays submitted
            assert (await agent.resume("may/1")).status == "waiting"
            await agent.submit_answer("may/1", "approve")
            await give_up("may/1")
        await agent.submit("write a letter", request_id="may/1")
        info = await agent.info("may/1")
        assert (info.status, info.queue, info.problem) == ("queued", QUEUE, "")
        async with agent.worker():
            await heard(agent, "may/1")
        await agent.submit("write a letter", request_id="may/1")
        assert ((await agent.get("may/1")).status, sent) == ("completed", ["hi"])


async def test_a_worker_without_a_key_uses_nothing_up(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """R04: it leaves the answer and the request that it took to a person, as `resume` does; both go on with a key."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    settings, left = {**FREE, "approvals": "each"}, {"approved", "requested"}
    async with Agent(writing(2), [send], storage=storage, settings=settings) as agent:
        assert (await agent.start("write", thread_id="approved")).status == "waiting"
        async with Agent("openai:gpt-5", [send], storage=storage, settings=settings) as keyless:
            with pytest.raises(ConfigError, match="no key"):
                await keyless.resume("approved", "approve")
            await keyless.submit_answer("approved", "approve")
            await keyless.submit("write", thread_id="requested")
            async with keyless.worker():
                for thread in left:
                    assert (await heard(keyless, thread))[-1][0]["status"] == "running"
            for thread in left:
                assert "no key" in (await keyless.info(thread)).problem
        assert (await agent.resume("approved")).status == "completed"
        assert (await agent.resume("requested")).status == "waiting"
        assert (await agent.resume("requested", "approve")).status == "completed"


async def test_a_worker_says_that_it_cannot_reach_its_storage(tmp_path: Path) -> None:
    """R04: once, not at every try; and that the storage is there again."""
    said: asyncio.Queue[logging.LogRecord] = asyncio.Queue()
    heard = logging.handlers.QueueHandler(said)  # type: ignore[arg-type]
    own = open_storage(f"sqlite:///{tmp_path}/folder/runs.db")

    def nobody(_: Any) -> Any:
        raise AssertionError("nothing was submitted")

    logging.getLogger("donewhen.work").addHandler(heard)
    try:
        async with Worker(own, QUEUE, nobody, poll=0.01):
            assert "does not exist; create it or name another. Trying again." in (await said.get()).getMessage()
            (tmp_path / "folder").mkdir()
            assert (await said.get()).getMessage() == "The storage is there again."
    finally:
        logging.getLogger("donewhen.work").removeHandler(heard)


async def test_what_is_drained_before_it_began_stays_in_the_queue(storage: Any) -> None:
    """R02: goal and answer alike: until a checkpoint has them, the row keeps them."""
    roles = {"triage": [ask_user("Which month?"), answer("May.")]}
    async with Agent(ScriptedModel(roles=roles), storage=storage) as agent:
        thread = await agent.submit("report")
        for wanted in ("waiting", "answered"):
            async with Agent(ScriptedModel(roles={}), storage=storage) as leaving:
                task = asyncio.create_task(leaving.run_submitted(thread))
                await asyncio.sleep(0)
                leaving.drain()
                assert (await task).status == "queued"
            assert (await agent.info(thread)).status == "queued"
            run = await agent.run_submitted(thread)
            assert (run.status, run.goal) == (wanted, "report")
            if wanted == "waiting":
                await agent.submit_answer(run, "May")


def send_a_letter(url: str, pipe: Connection) -> None:
    """Be a process with a worker of its own, whose call takes a second."""

    def send(text: str) -> str:
        """Send a letter."""
        pipe.send("sending")
        time.sleep(1)
        pipe.send("sent")
        return "sent"

    async def main() -> None:
        async with Agent(writing(), [send], storage=url, settings={**FREE, "approvals": "never"}) as agent:
            await agent.submit("write a letter", thread_id="letter")
            await agent.worker().run()
            pipe.send((await agent.info("letter")).status)

    asyncio.run(main())


def test_a_worker_of_ones_own_drains_on_sigterm(tmp_path: Path) -> None:
    """R02: `await agent.worker().run()` in a process of its own: the call at work ends, its run goes back."""
    ours, theirs = forks.Pipe()
    worker = forks.Process(target=send_a_letter, args=(f"sqlite:///{tmp_path}/runs.db", theirs))
    worker.start()
    assert ours.recv() == "sending"
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGTERM)
    assert [ours.recv(), ours.recv()] == ["sent", "queued"]
    worker.join()
    assert worker.exitcode == 0


async def test_what_another_worker_ended_meanwhile_stays_ended(storage: Any) -> None:
    """R04: a worker that was frozen, or lost its connection, does not say of a run that it is to be tried again."""

    async def late(thread_id: str) -> Any:
        assert (await agent.run_submitted(thread_id)).status == "answered"  # as another worker does
        raise StorageError("the connection was lost")

    async with Agent(ScriptedModel(roles={"triage": [answer("May.")]}), storage=storage) as agent:
        thread = await agent.submit("report")
        async with storage.reader() as (_, store):
            row = await store.threads.get(thread)
        await Worker(storage, QUEUE, lambda _: nullcontext(Only(late)))._continue_thread(thread, row or {})
        info = await agent.info(thread)
        assert (info.status, info.metadata) == ("answered", {})


@contextmanager
def worker_of(shell: Shell, *options: str, **more: str) -> Iterator[tuple[CommandProcess, IO[str]]]:
    """Run `donewhen worker` as this user does, with more variables; yield the process and what it says."""
    reads, writes = os.pipe()
    with open(os.devnull, "r+") as nothing:
        none, env = nothing.fileno(), environment(shell.home, NO_COLOR="1", **more)
        worker = CommandProcess("worker", *options, env=env, cwd=shell.home, stdin=none, stdout=none, stderr=writes)
    os.close(writes)
    with open(reads, encoding="utf-8") as said:
        yield worker, said
    worker.wait(SECONDS)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
def test_the_command_worker_is_stopped_and_another_goes_on(tmp_path: Path, stop: signal.Signals) -> None:
    """R02, P18: detached goals are carried out by `donewhen worker`; drained or killed, the next one finishes them."""
    shell = user_in(tmp_path)
    thread = shell("run", "--detach", "--yes", "how many files are there?", "--dir", str(shell.work)).stdout.strip()
    for signum, said in ((stop, "taken up"), (signal.SIGTERM, "completed")):
        if " completed " in shell("threads").stdout:
            break
        with worker_of(shell) as (worker, told):
            lines = []
            for line in told:
                lines.append(line)
                if line.strip() == f"{thread}: {said}":
                    break
            worker.send_signal(signum)
            lines += told.readlines()
        assert worker.returncode == (0 if signum is signal.SIGTERM else -signal.SIGKILL), lines
    assert " completed " in shell("threads").stdout
    assert "completed  1" in shell("status").stdout


SERVER = """
import json, os, pathlib, sys
pathlib.Path(sys.argv[1], str(os.getpid())).touch()
about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "slow", "version": "1"}}
answers = {"initialize": {"result": about}, "tools/list": {"result": {"tools": []}}}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        answer = answers.get(asked["method"], {"error": {"code": -32601, "message": "unknown"}})
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


def test_the_command_worker_keeps_few_idle_servers(tmp_path: Path) -> None:
    """N29: MCP servers of threads with other choices end while the worker lives; at its end none is left."""
    shell, pids, config = user_in(tmp_path), tmp_path / "pids", tmp_path / "mcp.json"
    pids.mkdir()
    server = {"command": sys.executable, "args": ["-c", SERVER, str(pids)]}
    config.write_text(json.dumps({"mcpServers": {"slow": server}}))
    for number in range(IDLE_AGENTS + 2):
        options = ["--detach", "--yes", "--mcp", str(config), "--limit", f"rounds={50 + number}"]
        begun = shell("run", *options, "how many files are there?", "--dir", str(shell.work))
        assert begun.exit_code == 0, begun.stderr
    with worker_of(shell, "--concurrency", "1") as (worker, told):
        ended = 0
        for line in told:
            ended += line.strip().endswith(": completed")
            if ended == IDLE_AGENTS + 2:
                break
        begun_servers = [int(path.name) for path in pids.iterdir()]
        assert len(begun_servers) == IDLE_AGENTS + 2
        assert len(_alive(begun_servers)) <= IDLE_AGENTS + 1, "the last one may still be closing"
        worker.send_signal(signal.SIGTERM)
        told.read()
    assert _alive(begun_servers) == []


def _alive(processes: list[int]) -> list[int]:
    found = []
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, 0)
            found.append(process)
    return found


async def test_a_worker_that_was_stopped_works_again(storage: Any) -> None:
    """N29: the same one is entered twice, and does both times what is in the queue."""
    async with Agent(ScriptedModel(roles={"triage": lambda *_: answer("yes")}), storage=storage) as agent:
        worker = agent.worker()
        for thread in ("one", "two"):
            await agent.submit("later", thread_id=thread)
            async with worker:
                await heard(agent, thread)
            assert (await agent.info(thread)).status == "answered"


async def test_all_workers_of_an_agent_end_with_it() -> None:
    """N29: however many there are; none takes up more, and what was not begun waits for others."""
    agent = Agent(ScriptedModel(roles={"triage": lambda *_: answer("yes")}), storage="memory:")
    workers = [agent.worker(concurrency=1) for _ in range(2)]
    for worker in workers:
        worker.start()
    await agent.aclose()
    thread = await agent.submit("later")
    tasks = [worker._task for worker in workers]
    assert all(task is not None and task.done() for task in tasks)
    assert (await agent.info(thread)).status == "queued"


async def test_a_question_that_a_worker_cannot_answer_by_its_policy_stays_asked(storage: Any) -> None:
    """R04, M11: a worker without a key leaves it in the list, with why; who has the key answers it by the policy."""
    policy: Any = {"on_question": "default", "default_answer": "June", "question_seconds": 0.1}
    model = ScriptedModel(roles={"triage": [ask_user("Which month?"), answer("June.")]})
    agent = Agent(model, storage=storage, settings=policy)
    run = await agent.run_submitted(await agent.submit("report"))
    keyless = Agent("openai:gpt-5", storage=storage, settings=policy)
    async with asyncio.timeout(20), keyless.worker():
        while not (await agent.info(run)).problem:  # noqa: ASYNC110 - another worker writes it
            await asyncio.sleep(0.05)
    assert [pause["id"] for pause in await agent.pending()] == ["plan.q1"]
    assert ((await agent.info(run)).status, (await agent.get(run)).status) == ("waiting", "waiting")
    async with agent.worker():
        assert (await heard(agent, run.thread_id))[-1][0]["text"].startswith("June.")


async def test_a_sweep_finds_that_a_run_had_ended_when_its_worker_died(storage: Any) -> None:
    """R04: its end is written, and its thread is free for the next request."""
    async with Agent(ScriptedModel(roles={"triage": [answer("May."), answer("June.")]}), storage=storage) as agent:
        thread = await agent.submit("report")
        await agent.run_submitted(thread)
        async with storage.writer() as (_, store):
            await update_row(store, thread, queue=QUEUE, request={})  # as its worker left it after the last checkpoint
            await agent.worker()._sweep(store)
        assert (await agent.info(thread)).status == "answered"
        assert (await agent.start("the next", thread_id=thread)).answer == "June."


async def test_a_run_that_a_sweep_cannot_settle_is_left_to_a_person(storage: Any) -> None:
    """R04: after five retries, as after any error, so that no thread is at work for ever; two workers that try at the
    same time are one retry."""
    both = asyncio.Barrier(2)

    async def settle(threads: Sequence[str], report: Any) -> None:
        await both.wait()
        for each in threads:
            report(each, StorageError("its state is damaged"))

    async with Agent(ScriptedModel(roles={}), storage=storage) as agent:
        thread = await agent.submit("report")
        for tries in range(1, 7):
            async with storage.writer() as (_, store):
                await update_row(store, thread)
                workers = [Worker(storage, QUEUE, lambda _: nullcontext(agent), settle=settle) for _ in range(2)]
                await asyncio.gather(*(worker._sweep(store) for worker in workers))
                row = await store.threads.get(thread) or {}
                assert row["tries"] == tries
        assert (row["queue"], row["problem"]) == ("", "StorageError: its state is damaged")
