"""Schedules: kept when they are confirmed, run at their moments by whoever looks, once, with what was approved."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from donewhen import Agent, AgentOptions, Limits, StorageError
from donewhen.agent.storage import open_storage
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.agent.work.schedules import SPACE, Schedules, due_moment
from donewhen.agent.work.thread_rows import QUEUE
from donewhen.errors import ScheduleError
from donewhen.state.language.texts import LANGUAGES, catalogue
from donewhen.state.plan.plan import revision_of
from donewhen.testing import ScriptedModel, answer, ask_user, call, finish_step, give_up, submit_plan

DAILY = {"at": "08:30", "timezone": "Europe/Berlin"}
HOURLY = {"every_minutes": 60}


class Post:
    """A letter box."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, text: str) -> str:
        """Send a letter."""
        self.sent.append(text)
        return f"sent {text}"


def reporting(schedule: dict[str, Any], runs: int = 0) -> ScriptedModel:
    """Plans a recurring letter, and writes it in so many runs."""
    plan = submit_plan([{"content": "send the report", "tools": ["send"]}], schedule=schedule)
    work = [reply for _ in range(runs) for reply in (call("send", text="report"), finish_step("sent", "s1.1"))]
    return ScriptedModel(roles={"triage": [plan], "execute": work})


async def confirmed(agent: Agent, **more: Any) -> str:
    """The id of a schedule that a person confirmed."""
    run = await agent.start("send the report", settings={"approvals": "plan"}, **more)
    assert (await agent.resume(run, "approve")).status == "completed"
    (schedule,) = await agent.schedules.list()
    return schedule.id


def hours(count: float) -> datetime:
    return datetime.now(UTC) + timedelta(hours=count)


async def test_a_confirmed_schedule_is_kept_and_runs_with_its_approval(storage: Any) -> None:
    """P18, M2: nothing runs when it is confirmed; each moment is a run of its own, without planner or question."""
    post, model = Post(), reporting(HOURLY, runs=2)
    async with Agent(model, [post.send], storage=storage) as agent:
        id = await confirmed(agent, owner="ann", metadata={"why": "habit"})
        assert post.sent == []
        shown = await agent.schedules.show(id)
        assert (shown.status, shown.when, len(shown.next_runs)) == ("active", "every 60 minutes", 3)
        assert await agent.schedules.start_due(QUEUE) == []
        (first,) = await agent.schedules.start_due(QUEUE, hours(1.01))
        assert await agent.schedules.start_due(QUEUE, hours(1.02)) == []
        queued = await agent.info(first)
        moment = ((await agent.schedules.show(id)).last or {})["at"]
        assert (queued.status, queued.owner, queued.metadata) == (
            "queued",
            "ann",
            {"why": "habit", "schedule": id, "moment": moment},
        )
        assert (await agent.get(first)).status == "queued"
        run = await agent.run_submitted(first)
        assert (run.status, post.sent) == ("completed", ["report"])
        assert "(This is the run of 20" in run.goal
        (second,) = await agent.schedules.start_due(QUEUE, hours(2.01))
        assert (await agent.run_submitted(second)).status == "completed"
        assert (await agent.run_submitted(second)).status == "completed"  # delivered again
        assert post.sent == ["report", "report"]
        assert (await agent.schedules.show(id)).last == {
            "at": (await agent.schedules.show(id)).last["at"],  # type: ignore[index]
            "thread_id": second,
            "status": "completed",
            "question": "",
            "problem": "",
        }
    model.assert_exhausted()


async def test_many_workers_start_a_moment_once(storage: Any) -> None:
    """P18, R04: eight look at once at what is due, and the moment has one thread."""
    async with Agent(reporting(HOURLY), [Post().send], storage=storage) as agent:
        await confirmed(agent)
        found = await asyncio.gather(*(Schedules(storage).start_due(QUEUE, hours(1.01)) for _ in range(8)))
        assert len([thread for threads in found for thread in threads]) == 1
        assert len(await agent.threads(status="queued")) == 1


@pytest.mark.parametrize("missed", ["once", "all"])
async def test_a_moment_that_was_run_is_behind(storage: Any, missed: str) -> None:
    """P18: what was run is not said to be missed, however often workers look; the next moment follows."""
    post, model = Post(), reporting({**HOURLY, "missed": missed}, runs=2)
    async with Agent(model, [post.send], storage=storage) as agent:
        id = await confirmed(agent)
        for hour in (1.01, 2.01):
            (thread,) = await agent.schedules.start_due(QUEUE, hours(hour))
            assert await agent.schedules.start_due(QUEUE, hours(hour)) == []  # while it runs
            assert (await agent.run_submitted(thread)).status == "completed"
            assert await agent.schedules.start_due(QUEUE, hours(hour + 0.01)) == []
        assert (await agent.schedules.show(id)).skipped == []
        assert len(await agent.threads(status="completed")) == 3
    model.assert_exhausted()


async def test_pause_resume_run_and_delete(storage: Any) -> None:
    """P18: people stop a schedule, go on with it, run it once beside its times, and forget it; overlap is refused."""
    async with Agent(reporting(HOURLY), [Post().send], storage=storage) as agent:
        id = await confirmed(agent)
        assert (await agent.schedules.pause(id)).next_runs == []
        assert await agent.schedules.start_due(QUEUE, hours(5)) == []
        assert (await agent.schedules.resume(id)).status == "active"
        thread = await agent.schedules.run(id)
        with pytest.raises(ScheduleError, match=thread):
            await agent.schedules.run(id)
        assert await agent.schedules.start_due(QUEUE, hours(1.01)) == []
        (skipped,) = (await agent.schedules.show(id)).skipped
        assert skipped["why"] == "the run before had not ended"
        await agent.schedules.delete(id)
        assert await agent.schedules.list() == []
        for verb in (agent.schedules.show, agent.schedules.pause, agent.schedules.run, agent.schedules.delete):
            with pytest.raises(ScheduleError, match="there is no schedule"):
                await verb(id)


async def test_each_run_sees_the_picture_of_its_request(storage: Any) -> None:
    """P18: what was attached to the request of a schedule is shown to the model in each of its runs."""
    picture = {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"}
    model = reporting(HOURLY, runs=2)
    async with Agent(model, [Post().send], storage=storage) as agent:
        run = await agent.start([{"type": "text", "text": "send it"}, picture], settings={"approvals": "plan"})
        await agent.resume(run, "approve")
        for late in (1.01, 2.01):
            (thread,) = await agent.schedules.start_due(QUEUE, hours(late))
            assert (await agent.run_submitted(thread)).status == "completed"
            assert "aGVsbG8=" in str(model.requests[-1].messages)


async def test_a_deleted_thread_takes_its_schedule_along(storage: Any) -> None:
    """P18: whoever deletes all threads of a person has deleted what would have sent in their name; others' stays."""
    post = Post()
    plan = submit_plan([{"content": "send the report", "tools": ["send"]}], schedule=HOURLY)
    model = ScriptedModel(roles={"triage": [plan, plan]})
    async with Agent(model, [post.send], storage=storage) as agent:
        for name in ("ann", "bob"):
            await agent.resume(await agent.start(f"send it for {name}", owner=name, thread_id=name), "approve")
        ids = {each.owner: each.id for each in await agent.schedules.list()}
        (queued, _) = sorted(await agent.schedules.start_due(QUEUE, hours(1.01)), key=lambda id: id[:8] != ids["ann"])
        assert await agent.delete("ann") == [ids["ann"]]
        assert [each.owner for each in await agent.schedules.list()] == ["bob"]
        assert (await agent.info(queued)).status == "cancelled"
        assert await agent.delete(queued) == []
        assert await agent.threads(owner="ann") == []
        (thread,) = [each.thread_id for each in await agent.threads(status="queued")]
        await agent.cancel(thread)
        assert [id[:8] for id in await agent.schedules.start_due(QUEUE, hours(2.01))] == [ids["bob"]]
    assert post.sent == []


async def test_pruning_keeps_the_approval_of_a_living_schedule(storage: Any) -> None:
    """P18, S04: the thread that confirmed a schedule stays as long as the schedule does, however old it is."""
    plan = submit_plan([{"content": "send the report", "tools": ["send"]}], schedule=HOURLY)
    async with Agent(ScriptedModel(roles={"triage": [plan, plan]}), [Post().send], storage=storage) as agent:
        for name in ("one", "two"):
            await agent.resume(await agent.start(f"send {name}", thread_id=name), "approve")
        one, _ = await agent.schedules.list()
        await agent.schedules.delete(one.id)
        assert await agent.prune(timedelta(0)) == [one.thread_id]
        assert [each.thread_id for each in await agent.threads()] == ["two"]


async def test_the_receipt_of_a_run_names_the_approval_of_its_schedule(storage: Any) -> None:
    """P18, X15: every run says who approved it, when, in which thread, and which plan: the one with the schedule."""
    post = Post()
    async with Agent(reporting(HOURLY, runs=2), [post.send], storage=storage) as agent:
        asked = await agent.start("send the report", settings={"approvals": "plan"}, thread_id="asked")
        confirming = await agent.resume(asked, "approve", by="mira")
        assert confirming.receipt
        (shown,) = confirming.receipt["approvals"]
        for hour in (1.01, 2.01):
            (thread,) = await agent.schedules.start_due(QUEUE, hours(hour))
            run = await agent.run_submitted(thread)
            assert run.receipt
            assert run.plan
            (row,) = run.receipt["approvals"]
            assert row == {
                **shown,
                "decision": "carried over",
                "thread": "asked",
                "approved_revision": run.plan["revision"],
            }
            assert (row["name"], row["revision"] == row["approved_revision"]) == ("mira", False)
            assert row["revision"] == asked.pending[0]["revision"]


async def test_times_owner_and_settings_change_without_a_new_plan(storage: Any) -> None:
    """P18: one schedule at other times; it keeps who changed what, and its runs have the new owner and settings."""
    post = Post()
    async with Agent(reporting(DAILY, runs=1), [post.send], storage=storage) as agent:
        id = await confirmed(agent, owner="ann")
        await agent.schedules.change(id, {"every_minutes": 60}, by="mira")
        shown = await agent.schedules.change(id, owner="bob", settings={"limits": {"rounds": 7}}, by="ben")
        assert (shown.when, len(shown.next_runs), shown.owner) == ("every 60 minutes", 3, "bob")
        assert [(each["by"], sorted(each["changed"])) for each in shown.changes] == [
            ("mira", ["schedule"]),
            ("ben", ["owner", "settings"]),
        ]
        assert shown.changes[1]["changed"]["owner"] == ["ann", "bob"]
        (thread,) = await agent.schedules.start_due(QUEUE, hours(1.01))
        run = await agent.run_submitted(thread)
        assert (run.status, run.limits["rounds"], (await agent.info(thread)).owner) == ("completed", 7, "bob")
        assert len(await agent.schedules.list()) == 1


async def test_what_the_approval_covers_is_not_changed(storage: Any) -> None:
    """P18, M2: ✗ times that are none, and settings by which more would be done unasked; nothing changes then."""
    async with Agent(reporting(DAILY), [Post().send], storage=storage) as agent:
        run = await agent.start("send the report")
        await agent.resume(run, "approve")
        (before,) = await agent.schedules.list()
        for change, why in (
            ({"schedule": {"at": "25:00"}}, "25:00"),
            ({"schedule": "08:30"}, "a mapping such as"),
            ({"schedule": {"every": 5}}, "every"),
            ({"schedule": {"at": "08:30"}}, "nothing"),
            ({"settings": {"approvals": "never"}}, "new plan"),
            ({"settings": {"approvals": "plan"}}, "new plan"),
            ({"settings": {"on_question": "assume"}}, "on_question was 'wait'"),
            ({"settings": {"answered_by": {"tool": "eve"}}}, "answered_by"),
            ({}, "nothing"),
        ):
            with pytest.raises(ScheduleError, match=why):
                await agent.schedules.change(before.id, **change)
        assert await agent.schedules.list() == [before]
        later = await agent.schedules.change(before.id, {"at": "09:00", "weekdays": "mon-fri"})
        assert later.when == "Mon, Tue, Wed, Thu, Fri at 09:00 (Europe/Berlin)"
        assert (await agent.schedules.change(before.id, {"cron": "0 7 1 * *"})).schedule["weekdays"] is None


async def test_a_failed_run_is_made_again_for_its_own_time(storage: Any) -> None:
    """P18: a moment that failed, or was skipped, gets its run; one that succeeded, works or is none is refused."""
    post, plan = Post(), submit_plan([{"content": "send the report", "tools": ["send"]}], schedule=HOURLY)
    work = [give_up("no paper", "failed"), call("send", text="report"), finish_step("sent", "s1.1")]
    model = ScriptedModel(roles={"triage": [plan], "plan": [give_up("no paper", "failed")], "execute": work})
    async with Agent(model, [post.send], storage=storage, settings={"on_failure": "deliver"}) as agent:
        id = await confirmed(agent)
        await rewind(agent, id, hours=5)
        (failed,) = await agent.schedules.start_due(QUEUE)
        assert (await agent.run_submitted(failed)).status == "failed"
        shown = await agent.schedules.show(id)
        assert shown.last
        moment, skipped = (datetime.fromisoformat(text) for text in (shown.last["at"], shown.skipped[0]["at"]))
        again = await agent.schedules.run(id, moment=moment.replace(second=0))
        assert (again, (await agent.info(again)).metadata["moment"]) == (f"{failed}-2", shown.last["at"])
        with pytest.raises(ScheduleError, match=again):
            await agent.schedules.run(id, moment=moment)
        run = await agent.run_submitted(again)
        assert (run.status, moment.isoformat(" ", "minutes")[:16] in run.goal) == ("completed", True)
        for wrong, why in ((moment, "completed"), (moment - timedelta(minutes=7), "no time"), (hours(3), "not past")):
            with pytest.raises(ScheduleError, match=why):
                await agent.schedules.run(id, moment=wrong)
        other = await agent.schedules.run(id, moment=skipped)
        info = await agent.info(other)
        assert (other != again, info.schedule, info.moment) == (True, id, shown.skipped[0]["at"])
        assert (await agent.info(other)).metadata["moment"] == shown.skipped[0]["at"]


@pytest.mark.parametrize("who", ["list", "worker"])
async def test_a_schedule_is_kept_though_its_process_dies_once_it_was_confirmed(who: str) -> None:
    """P18, R02: who lists the schedules finds it, and so does a worker that nobody asks anything."""
    ended = 0
    for at in count(1):
        crash, storage = Crash(at), open_storage("memory:")
        async with Agent(reporting(HOURLY), [Post().send], storage=storage) as agent:
            waiting = await agent.start("send the report", settings={"approvals": "plan"})
        async with Agent(ScriptedModel([]), [Post().send], storage=crashing(storage, crash)) as dying:
            with suppress(StorageError):
                await dying.resume(waiting, "approve")
        async with Agent(ScriptedModel([]), [Post().send], storage=storage) as agent:
            if who == "worker":
                async with storage.reader() as (_, store):
                    await agent.worker()._sweep(store)
                kept = await Schedules(storage).list()
            else:
                kept = await agent.schedules.list()
            run = await agent.get(waiting.thread_id)
        assert len(kept) == (run.status == "completed"), crash.trace
        ended += run.status == "completed"
        if len(crash.trace) < at:
            break
    assert ended > 3


@pytest.mark.parametrize("minutes", [0, 60], ids=["at once", "at the next time"])
@pytest.mark.parametrize("missed", ["once", "all"])
async def test_a_time_that_was_cut_off_is_queued_once(missed: str, minutes: int) -> None:
    """P18: however its worker dies between the schedule and its run, no two are queued, and none is called missed."""
    for at in count(1):
        crash, storage = Crash(at), open_storage("memory:")
        async with Agent(reporting({**HOURLY, "missed": missed}), [Post().send], storage=storage) as agent:
            id = await confirmed(agent)
            with suppress(StorageError):
                await Schedules(crashing(storage, crash)).start_due(QUEUE, hours(1.01))
            queued = [each.thread_id for each in await agent.threads(status="queued")]
            await agent.schedules.start_due(QUEUE, hours(1.02) + timedelta(minutes=minutes))
            (run,) = await agent.threads(status="queued")
            shown = await agent.schedules.show(id)
            last = shown.last or {}
            assert (last["thread_id"], queued in ([], [run.thread_id])) == (run.thread_id, True), crash.trace
            if queued or not minutes:
                assert last["at"] not in [each["at"] for each in shown.skipped], crash.trace
        if len(crash.trace) < at:
            break
    assert at > 8


async def test_each_call_of_run_is_a_run_of_its_own(storage: Any) -> None:
    """P18: what a person runs twice within a second runs twice; a time that was skipped and then run is not skipped."""
    post = Post()
    async with Agent(reporting(HOURLY, runs=4), [post.send], storage=storage) as agent:
        id, threads = await confirmed(agent), list[str]()
        for _ in range(2):
            threads.append(await agent.schedules.run(id))
            assert (await agent.run_submitted(threads[-1])).status == "completed"
        assert (len({*threads}), len(post.sent)) == (2, 2)
        await rewind(agent, id, hours=5)
        (due,) = await agent.schedules.start_due(QUEUE)
        await agent.run_submitted(due)
        before = (await agent.schedules.show(id)).skipped
        await agent.schedules.run(id, moment=datetime.fromisoformat(before[1]["at"]))
        assert (await agent.schedules.show(id)).skipped == [each for each in before if each != before[1]]


async def rewind(agent: Agent, id: str, hours: int) -> None:
    """Let a schedule be confirmed that long ago."""
    async with agent.storage.writer() as (_, store):
        item = await store.aget(SPACE, id)
        assert item
        since = (datetime.fromisoformat(item.value["confirmed"]) - timedelta(hours=hours)).isoformat()
        await store.aput(SPACE, id, {**item.value, "confirmed": since, "seen": since}, index=False)
        await store.threads.put_due_time(id, QUEUE, "")


async def test_a_deleted_schedule_stays_deleted(storage: Any) -> None:
    """P18: what is called on the thread that confirmed it afterwards brings no schedule back; a new plan is another."""
    plan = submit_plan([{"content": "send the report", "tools": ["send"]}], schedule=HOURLY)
    async with Agent(ScriptedModel(roles={"triage": [plan, plan]}), [Post().send], storage=storage) as agent:
        await agent.resume(await agent.start("send the report", thread_id="asked"), "approve")
        (first,) = await agent.schedules.list()
        await agent.schedules.delete(first.id)
        for verb in (agent.cancel, agent.audit):
            await verb("asked")
            assert await agent.schedules.list() == []
        await agent.resume(await agent.start("send it all the same", thread_id="asked"), "approve")
        assert [each.thread_id for each in await agent.schedules.list()] == ["asked"]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_second_schedule_of_a_thread_is_said_at_its_confirmation(language: str) -> None:
    """P18, Q11: whoever asks for another time in the thread is shown, before they approve, that both will run."""
    times = {"at": "09:00", "timezone": "Europe/Berlin"}
    plans = [
        submit_plan([{"content": "send the report", "tools": ["send"]}], schedule=each)
        for each in (DAILY, DAILY, times, times)
    ]
    model = ScriptedModel(roles={"triage": plans})
    settings = {"profile": {"language": language}}
    async with Agent(model, [Post().send], storage="memory:", settings=settings) as agent:
        first = await agent.start("send it at 8:30", thread_id="one")
        assert "living" not in first.pending[0]
        await agent.resume(first, "approve")
        other = await agent.start("send it at 8:30", thread_id="two")
        assert "living" not in other.pending[0]
        await agent.resume(other, "approve")
        one, two = await agent.schedules.list()
        asked = await agent.start("send it at 9:00 instead", thread_id="one")
        assert [each["id"] for each in asked.pending[0]["living"]] == [one.id]
        text = asked.pending[0]["text"]
        assert (one.id in text, two.id in text, text.count("08:30")) == (True, False, 1)
        await agent.resume(asked, "cancel")
        await agent.schedules.delete(one.id)
        assert "living" not in (await agent.start("send it at 9:00", thread_id="one")).pending[0]


async def test_what_has_not_begun_ends_with_its_schedule(storage: Any) -> None:
    """P18: a queued run of a deleted schedule is cancelled and sends nothing; one that waits for a person goes on."""
    post, work = Post(), [ask_user("Which month?"), call("send", text="May"), finish_step("sent", "s1.2")]
    plan = submit_plan([{"content": "send the report", "tools": ["send"]}], schedule=HOURLY)
    model = ScriptedModel(roles={"triage": [plan, plan], "execute": work})
    async with Agent(model, [post.send], storage=storage, settings={"approvals": "plan"}) as agent:
        for name in ("one", "two"):
            await agent.resume(await agent.start(f"send {name}", thread_id=name), "approve")
        one, two = await agent.schedules.list()
        begun, queued = await agent.schedules.run(one.id), await agent.schedules.run(two.id)
        assert (await agent.run_submitted(begun)).status == "waiting"
        assert not hasattr(agent.worker(), "schedules")  # it could not cancel the run
        for each in (one, two):
            await agent.schedules.delete(each.id)
        run = await agent.run_submitted(queued)
        assert (run.status, run.outcome and run.outcome["reason"]) == (
            "cancelled",
            "its schedule was deleted before it began",
        )
        assert post.sent == []
        assert (await agent.resume(begun, "May")).status == "completed"
        assert post.sent == ["May"]


async def test_a_run_that_asks_waits_for_its_person(tmp_path: Path) -> None:
    """P18: what the approval does not cover is asked, in the run's own thread; the next moment waits no less."""
    plan = submit_plan([{"content": "look around", "tools": []}], schedule=HOURLY)
    model = ScriptedModel(roles={"triage": [plan], "execute": [ask_user("Which month?")]})
    async with Agent(model, storage=f"sqlite:///{tmp_path}/runs.db") as agent:
        await confirmed(agent)
        (thread,) = await agent.schedules.start_due(QUEUE, hours(1.01))
        assert (await agent.run_submitted(thread)).status == "waiting"
        (info,) = await agent.threads(status="waiting")
        assert [pause["question"] for pause in info.pending] == ["Which month?"]
        assert await agent.schedules.start_due(QUEUE, hours(2.01)) == []
        (shown,) = await agent.schedules.list()
        assert shown.last
        assert (shown.last["status"], shown.last["question"]) == ("waiting", "Which month?")
        await agent.resume(thread, {"type": "cancel"})
        ended = {"status": "cancelled", "question": "", "problem": "cancelled when asked a question"}
        assert (await agent.schedules.show(shown.id)).last == {**shown.last, **ended}
        assert (await agent.info(thread)).problem == "cancelled when asked a question"
        assert len(await agent.schedules.start_due(QUEUE, hours(3.01))) == 1


async def test_a_schedule_shows_no_question_while_its_run_is_at_work(tmp_path: Path) -> None:
    """P18: the other one is open meanwhile; it is shown when the run waits for it."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def look(*_: Any) -> Any:
        begun.set()
        await go_on.wait()
        return ask_user("Which day?")

    steps = [{"content": text, "tools": [], "depends_on": []} for text in ("look", "read")]
    work = {"s1": [ask_user("Which month?"), look], "s2": [ask_user("Which year?")]}
    model = ScriptedModel(roles={"triage": [submit_plan(steps, schedule=HOURLY)], "execute": work})
    async with Agent(model, storage=f"sqlite:///{tmp_path}/runs.db") as agent:
        await confirmed(agent)
        (thread,) = await agent.schedules.start_due(QUEUE, hours(1.01))
        await agent.run_submitted(thread)
        leg = asyncio.create_task(agent.resume(thread, {"s1.q1": "May"}))
        await begun.wait()
        (shown,) = await agent.schedules.list()
        assert shown.last
        assert (shown.last["status"], shown.last["question"]) == ("running", "")
        go_on.set()
        await leg
        again = await agent.schedules.show(shown.id)
        assert again.last
        assert (again.last["status"], again.last["question"]) == ("waiting", "Which day?")


async def test_a_run_at_the_budget_of_a_day_waits_for_its_person(tmp_path: Path) -> None:
    """P18: the schedule shows what its last run waits for; no worker continues that run, not even on another day.

    Its person does, once, and the next moment follows.
    """
    budgets = {"owner": Limits(model_calls=1)}
    post, model = Post(), reporting(HOURLY, runs=1)
    storage = f"sqlite:///{tmp_path}/runs.db"
    async with Agent(model, [post.send], storage=storage, options=AgentOptions(budgets=budgets)) as agent:
        id = await confirmed(agent, owner="ann")
        (thread,) = await agent.schedules.start_due(QUEUE, hours(1.01))
        assert (await agent.run_submitted(thread)).status == "waiting"
        last = (await agent.schedules.show(id)).last or {}
        assert (last["thread_id"], last["status"], "For 20" in last["question"]) == (thread, "waiting", True)
        assert await agent.schedules.start_due(QUEUE, hours(48)) == []
        info = await agent.info(thread)
        assert (info.status, info.due, post.sent) == ("waiting", "", [])
        assert (await agent.resume(thread, "extend 9 model calls")).status == "completed"
        assert post.sent == ["report"]
        assert len(await agent.schedules.start_due(QUEUE, hours(49.01))) == 1


async def test_a_plan_whose_tool_is_gone_says_so(tmp_path: Path) -> None:
    """P18: the saved plan keeps today's rules; what cannot be done is an honest end, not another plan."""
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Agent(reporting(HOURLY), [Post().send], storage=url) as agent:
        await confirmed(agent)
        (thread,) = await agent.schedules.start_due(QUEUE, hours(1.01))
    async with Agent(ScriptedModel(roles={}), storage=url) as agent:
        run = await agent.run_submitted(thread)
        assert (run.status, run.outcome and run.outcome["code"]) == ("failed", "no_plan")
        assert "send" in run.answer


async def test_a_plan_whose_tool_is_another_servers_is_shown_again(tmp_path: Path) -> None:
    """P18, X15: a plan is approved for the servers that it was shown with; its own server's runs ask nobody."""
    url, posts = f"sqlite:///{tmp_path}/runs.db", {"mail": Post(), "other": Post()}

    def tools(server: str) -> list[StructuredTool]:
        return [StructuredTool.from_function(posts[server].send, metadata={"server": server, "effect": "write"})]

    async with Agent(reporting(HOURLY, runs=1), tools("mail"), storage=url) as agent:
        await confirmed(agent)
        (thread,) = await agent.schedules.start_due(QUEUE, hours(1.01))
        assert (await agent.run_submitted(thread)).status == "completed"
        (thread,) = await agent.schedules.start_due(QUEUE, hours(2.01))
    async with Agent(reporting(HOURLY, runs=1), tools("other"), storage=url) as agent:
        run = await agent.run_submitted(thread)
        assert (run.status, run.pending[0]["kind"], posts["other"].sent) == ("waiting", "plan", [])
        assert (await agent.resume(run, "approve")).status == "completed"
    assert (posts["mail"].sent, posts["other"].sent) == (["report"], ["report"])


async def test_a_tool_is_no_less_than_when_its_schedule_was_confirmed(tmp_path: Path) -> None:
    """P18, Q104: a tool that calls itself a reader since then is asked about in every run, as in a plan that runs once;
    a tool that was shown as a reader asks nobody.
    """
    url, post = f"sqlite:///{tmp_path}/runs.db", Post()
    plan = submit_plan([{"content": "send the report", "tools": ["send", "look"]}], schedule=HOURLY)
    work = [call("look", text="out"), call("send", text="to m@evil.example")]

    def agent(effect: str) -> Agent:
        tools = [
            StructuredTool.from_function(post.send, metadata={"effect": effect}),
            StructuredTool.from_function(post.send, name="look", metadata={"effect": "read"}),
        ]
        return Agent(ScriptedModel(roles={"triage": [plan], "execute": work * 2}, strict=False), tools, storage=url)

    async with agent("write") as before:
        await before.resume(await before.start("send the report"), "approve")
    async with agent("read") as after:
        for hour in (1.01, 2.01):
            (thread,) = await after.schedules.start_due(QUEUE, hours(hour))
            run = await after.run_submitted(thread)
            assert (run.status, [pause["kind"] for pause in run.pending]) == ("waiting", ["tool"])
            await after.cancel(run)
    assert post.sent == ["out", "out"]


@pytest.mark.parametrize("rounds", [1, 7])
async def test_limits_edited_at_the_approval_are_those_of_each_run(storage: Any, rounds: int) -> None:
    """P18: the schedule shows them, its runs have them, and a later change replaces them."""
    async with Agent(reporting(HOURLY, runs=2), [Post().send], storage=storage) as agent:
        given = {"approvals": "plan", "on_question": "assume", "limits": {"rounds": 4, "tool_calls": 9}}
        run = await agent.start("send the report", settings=given)
        assert run.pending[0]["limits"]["rounds"] == 4
        run = await agent.resume(run, {"type": "edit", "plan": {"limits": {"rounds": rounds}}})
        (schedule,) = await agent.schedules.list()
        assert {**schedule.settings["limits"], "rounds": rounds} == schedule.settings["limits"]
        for hour, most in ((1.01, rounds), (2.01, 5)):
            (thread,) = await agent.schedules.start_due(QUEUE, hours(hour))
            run = await agent.run_submitted(thread)
            assert (run.limits["rounds"], run.limits["tool_calls"]) == (most, 9)
            assert run.spent["rounds"] <= most
            assert (run.status == "completed") == (most > 1)
            if most == rounds:
                await agent.schedules.change(schedule.id, settings={"limits": {"rounds": 5}})


@pytest.mark.parametrize(("declared", "language"), [("de", "de"), ("pl", "en"), (None, "en")])
async def test_the_runs_speak_the_language_of_the_confirmed_plan(
    storage: Any, declared: str | None, language: str
) -> None:
    """P18, P14: in each run the runtime's texts and the model's answer are in the language that the plan declared."""
    plan = submit_plan(
        [{"content": "send it", "tools": []}], schedule=HOURLY, **({"language": declared} if declared else {})
    )
    model = ScriptedModel(roles={"triage": [plan], "execute": [ask_user("Which month?"), ask_user("Which month?")]})
    async with Agent(model, storage=storage) as agent:
        await agent.resume(await agent.start("Jede Stunde schicken"), "approve")
        for hour in (1.01, 2.01):
            (thread,) = await agent.schedules.start_due(QUEUE, hours(hour))
            run = await agent.run_submitted(thread)
            assert (run.status, run.language) == ("waiting", language)
            prompt = model.requests[-1].messages[0].text
            assert f"in this language: {declared}" in prompt if declared else "in this language:" not in prompt
            run = await agent.cancel(run)
            assert catalogue(language)["reason"]["outside"] == run.outcome["reason"]  # type: ignore[index]


async def test_the_runs_speak_the_language_of_a_plan_that_words_changed(storage: Any) -> None:
    """P18, P14: so it is where only the plan before was declared to be in that language."""
    plan = submit_plan([{"content": "senden", "tools": []}], schedule=HOURLY, language="de")
    again = submit_plan([{"content": "später senden", "tools": []}], schedule=DAILY)
    model = ScriptedModel(roles={"triage": [plan], "plan": [again], "execute": [ask_user("Which month?")]})
    async with Agent(model, storage=storage) as agent:
        run = await agent.resume(await agent.start("Jede Stunde senden"), "einmal am Tag, halb neun")
        run = await agent.resume(run, "approve")
        (schedule,) = await agent.schedules.list()
        assert (await agent.run_submitted(await agent.schedules.run(schedule.id))).language == run.language == "de"


@pytest.mark.parametrize("way", ["submit", "start"])
async def test_a_later_request_in_the_thread_of_a_run_is_no_run_of_the_schedule(way: str) -> None:
    """P18: it holds up no time, leaves the run's end as it was, may be cancelled, and outlives the schedule."""
    post = Post()
    plan = submit_plan([{"content": "send the report", "tools": ["send"]}], schedule=HOURLY)
    work = [call("send", text="report"), finish_step("sent", "s1.1")]
    model = ScriptedModel(roles={"triage": [plan, *[ask_user("Of which week?")] * 4], "execute": work * 3})

    async def ask(thread: str) -> str:
        if way == "start":
            return (await agent.start("And last week?\n\nAnd before?", thread_id=thread)).thread_id
        return await agent.submit("And last week?\n\nAnd before?", thread_id=thread)

    async with Agent(model, [post.send], storage="memory:") as agent:
        id = await confirmed(agent)
        await rewind(agent, id, hours=5)
        (first,) = await agent.schedules.start_due(QUEUE)
        await agent.run_submitted(first)
        assert (await agent.info(first)).schedule == id
        await ask(first)
        shown = await agent.schedules.show(id)
        assert shown.last
        assert (shown.last["status"], shown.last["question"], (await agent.info(first)).schedule) == (
            "completed",
            "",
            "",
        )
        if way == "submit":
            assert (await agent.run_submitted(first)).status == "waiting"
        for again in (False, True):
            await agent.cancel(first)
            with pytest.raises(ScheduleError, match=f"is completed: thread {first}"):
                await agent.schedules.run(id, moment=datetime.fromisoformat(shown.last["at"]))
            if not again:
                await ask(first)
        (second,) = await agent.schedules.start_due(QUEUE, hours(1.01))
        await agent.run_submitted(second)
        await ask(second)
        (third,) = await agent.schedules.start_due(QUEUE, hours(2.01))
        assert (await agent.schedules.show(id)).skipped == shown.skipped
        await agent.cancel(third)
        await ask(third)
        await agent.schedules.delete(id)
        assert (await agent.info(third)).status == ("queued" if way == "submit" else "waiting")
    assert post.sent == ["report", "report"]


async def test_a_run_whose_place_another_request_takes_was_cancelled(tmp_path: Path) -> None:
    """P18: a request that closes a waiting run with `restart` frees its schedule, and its time can be run again."""
    plan = submit_plan([{"content": "send the report", "tools": ["send"]}], schedule=HOURLY)
    model = ScriptedModel(roles={"triage": [plan, answer("Hello.")], "execute": [ask_user("Whom?")] * 2})
    async with Agent(model, [Post().send], storage=f"sqlite:///{tmp_path}/runs.db") as agent:
        id = await confirmed(agent)
        thread = await agent.schedules.run(id)
        assert (await agent.run_submitted(thread)).status == "waiting"
        await agent.start("Hello", thread_id=thread, restart=True)
        last = (await agent.schedules.show(id)).last
        assert last
        assert last["status"] == "cancelled"
        again = await agent.schedules.run(id, moment=datetime.fromisoformat(last["at"]))
        assert (again, (await agent.run_submitted(again)).status) == (f"{thread}-2", "waiting")


@pytest.mark.parametrize("days", [5, True, {"mon": True}], ids=str)
async def test_days_of_a_wrong_type_are_refused_wherever_they_are_written(days: Any, tmp_path: Path) -> None:
    """P18: ✗ by a model it is sent back; in an edit the question stays open; a change changes nothing."""
    wrong = submit_plan(["report"], schedule={**DAILY, "weekdays": days})
    model = ScriptedModel(roles={"triage": [wrong, submit_plan(["report"], schedule=DAILY)]})
    edit = {"type": "edit", "plan": {"schedule": {"weekdays": days}}}
    async with Agent(model, storage=f"sqlite:///{tmp_path}/runs.db") as agent:
        run = await agent.start("report every day", thread_id="t")
        assert "weekdays are a list" in str(model.requests[-1].messages)
        for _ in range(2):
            run = await agent.resume(run, edit)
            assert (run.status, "weekdays are a list" in run.problem) == ("waiting", True)
        await agent.submit_answer(run, edit)
        run = await agent.run_submitted(run)
        assert (run.status, "weekdays are a list" in run.problem) == ("waiting", True)
        assert (await agent.resume(run, "approve")).outcome["code"] == "scheduled"  # type: ignore[index]
        (schedule,) = await agent.schedules.list()
        with pytest.raises(ScheduleError, match="weekdays are a list"):
            await agent.schedules.change(schedule.id, {"weekdays": days})
        assert await agent.schedules.show(schedule.id) == schedule


@pytest.mark.parametrize("kept", ["today", "by an earlier version"])
async def test_a_plan_whose_tool_does_more_now_is_shown_again(kept: str, tmp_path: Path) -> None:
    """P18, Q104: a schedule is approved for no greater effect; one that an earlier version kept runs as it did."""
    url, post = f"sqlite:///{tmp_path}/runs.db", Post()

    def tools(effect: str) -> list[StructuredTool]:
        return [StructuredTool.from_function(post.send, metadata={"effect": effect})]

    async with Agent(reporting(HOURLY, runs=1), tools("idempotent"), storage=url) as agent:
        id = await confirmed(agent)
        if kept != "today":
            async with agent.storage.writer() as (_, store):
                item = await store.aget(SPACE, id)
                assert item is not None
                once = {key: each for key, each in item.value["plan"].items() if key != "effects"}
                await store.aput(
                    SPACE, id, {**item.value, "plan": {**once, "revision": revision_of(once)}}, index=False
                )
        (thread,) = await agent.schedules.start_due(QUEUE, hours(1.01))
        assert (await agent.run_submitted(thread)).status == "completed"
        (thread,) = await agent.schedules.start_due(QUEUE, hours(2.01))
    async with Agent(reporting(HOURLY, runs=1), tools("write"), storage=url) as agent:
        run = await agent.run_submitted(thread)
        assert (run.status, post.sent) == (
            ("waiting", ["report"]) if kept == "today" else ("completed", ["report"] * 2)
        )


async def test_work_that_has_begun_is_not_repeated(tmp_path: Path) -> None:
    """P18: a plan in the place of one at work has no schedule; the planner is told."""
    gone = ScriptedModel(
        roles={
            "triage": [submit_plan(["a"])],
            "execute": [give_up("no", "failed")],
            "plan": [submit_plan(["b"], schedule=HOURLY), lambda request: submit_plan(["c"])],
        }
    )
    async with Agent(gone, storage="memory:", settings={"confirm": "never"}) as agent:
        await agent.start("do it", settings={"limits": {"model_calls": 4}, "on_exhausted": "stop"})
    assert "nothing here repeats this plan" in gone.requests[-1].text


def row(schedule: dict[str, Any], **more: Any) -> dict[str, Any]:
    begun = "2026-11-20T08:00:00+00:00"
    return {"schedule": schedule, "seen": begun, "confirmed": begun, "skipped": [], **more}


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-{text}:00+00:00")


@pytest.mark.parametrize(
    ("policy", "now", "is_open", "run", "skipped"),
    [
        ("once", "20T08:59", False, None, 0),
        ("once", "20T09:00", False, "20T09:00", 0),
        ("once", "20T11:30", False, "20T11:00", 2),
        ("once", "20T11:30", True, None, 3),
        ("skip", "20T11:30", False, None, 3),
        ("skip", "20T11:03", False, "20T11:00", 2),
        ("all", "20T11:30", False, "20T09:00", 0),
        ("all", "20T11:30", True, None, 0),
    ],
)
def test_what_becomes_of_missed_moments(policy: str, now: str, is_open: bool, run: str | None, skipped: int) -> None:
    """P18: missed moments are left out, made up for by one run, or by all of them one after the other."""
    kept = row({**HOURLY, "missed": policy})
    moment, change = due_moment(kept, at(now), is_open=is_open)
    assert moment == (at(run) if run else None)
    assert len(change.get("skipped", ())) == skipped
    if policy == "all" and moment:
        following, _ = due_moment({**kept, **change}, at(now), is_open=False)
        assert following == at("20T10:00")


def test_a_year_of_rest_is_made_up_for_by_one_run() -> None:
    """P18: however long nothing ran, every look is short, and one run follows."""
    kept, now = row({"every_minutes": 1}), datetime(2027, 11, 20, tzinfo=UTC)
    moment: datetime | None = None
    looks = 0
    while moment is None:
        moment, change = due_moment(kept, now, is_open=False)
        kept, looks = {**kept, **change}, looks + 1
    assert (moment, looks) == (now, 53)
    assert len(kept["skipped"]) == 10
