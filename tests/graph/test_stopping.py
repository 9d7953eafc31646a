"""Asked to stop, a run stops at a clean point and keeps everything; resumed, it goes on and repeats no call."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from donewhen import Agent, Settings
from donewhen.graph.tools import effects
from donewhen.state.errors import ModelError
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, submit_plan
from tests.kit.flows import FREE, play, steps
from tests.kit.runs import Outbox, config, last_seen, sending
from tests.kit.screens.shell import Shell, scripted, user_in

READ = {"content": "Read what comes", "done_when": ["it is read"], "tools": ["run_command"]}
ROUNDS = [call("run_command", command=["cat", "pipe"]), finish_step("read", ("s1.1", "some words"))]
SIGNALS = pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
AT_WORK = ("--yes", "--allow-command", "cat pipe", "--thread", "mine")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return user_in(tmp_path)


@contextmanager
def stopped(folder: Path, number: int, *, times: int = 1, said: str = "") -> Iterator[list[float]]:
    """While a command runs in here: signals as soon as its tool reads from a pipe, which then says something.

    Yields when it signalled.
    """
    os.mkfifo(folder / "pipe")
    ended, asked_at = threading.Event(), list[float]()

    def stop() -> None:
        with (folder / "pipe").open("w") as pipe:  # returns when there is a reader
            for _ in range(times):
                asked_at.append(monotonic())
                os.kill(os.getpid(), number)
                ended.wait(0 if said else 0.1)  # signals that come at once are one
            if not said:
                ended.wait()
            pipe.write(said)

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    try:
        yield asked_at
    finally:
        ended.set()
        thread.join(timeout=5)


@SIGNALS
def test_a_tool_at_work_may_end(shell: Shell, number: int, code: int) -> None:
    """C06, R02, R03: its effect is recorded, nothing new starts; resumed, the call is not made again."""
    with scripted(shell, triage=[submit_plan([READ])], execute=ROUNDS):
        with stopped(shell.work, number, said="some words"):
            done = shell.run(*AT_WORK)
        assert done.exit_code == code
        assert "Stopping at the next clean point" in done.stderr
        assert "Go on with: donewhen resume mine" in done.stderr
        gone_on = shell("resume", "mine")
    assert (gone_on.exit_code, gone_on.stdout) == (0, ROUNDS[-1]["args"]["result"] + "\n")


def test_asked_twice_it_waits_for_nothing(shell: Shell) -> None:
    """C06, R03: the call is cut off; whether it happened only a person can say, and it is not made again."""
    with scripted(shell, triage=[submit_plan([READ])], execute=ROUNDS[:1]):
        with stopped(shell.work, signal.SIGINT, times=2) as asked_at:
            assert shell.run(*AT_WORK).exit_code == 130
            assert monotonic() - asked_at[-1] < effects.EFFECT_PATIENCE
        asked = shell("resume", "mine")
    assert asked.exit_code == 3
    assert "Did it happen?" in asked.stderr


async def test_a_server_stops_all_its_runs_at_sigterm() -> None:
    """C06, R02, R05: `Agent.drain` as the handler; every run stops where it is, and each goes on in the next process:
    nothing is asked, called, charged or done twice."""
    outbox, arrived = Outbox(), 0

    def execute(messages: list[Any], tools: list[Any]) -> Any:
        nonlocal arrived
        arrived += 1
        if arrived == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        seen = any(message.text.startswith("[") for message in messages)
        return finish_step("sent", evidence=last_seen(messages)) if seen else call("send", to="ann", text="hi")

    plan = submit_plan([{"content": "send it", "tools": ["send"]}])
    roles = {"triage": lambda *_: plan, "execute": execute, "deliver": lambda *_: "Sent."}
    model = ScriptedModel(roles=roles)
    agent = Agent(model, [outbox.tool()], storage="memory:", settings=FREE)
    loop, threads = asyncio.get_running_loop(), [f"t{n}" for n in range(4)]
    loop.add_signal_handler(signal.SIGTERM, agent.drain)
    try:
        runs = await asyncio.gather(*(agent.start("send", thread_id=thread) for thread in threads))
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
    assert "running" in {run.status for run in runs}
    asked = len(model.requests)
    assert asked == sum(run.spent["model_calls"] for run in runs)
    for thread in threads:
        assert (await agent.resume(thread)).status == "completed"
    ended = [await agent.get(thread) for thread in threads]
    asked = len(model.requests) + len(model.audits)
    assert asked == sum(run.spent["model_calls"] for run in ended) == 4 * len(threads)
    assert len(outbox.sent) == len(threads)


PASSED = "2020-01-01T00:00+00:00"


async def test_after_the_deadline_no_round_starts() -> None:
    """D03, issue 4: it passed while a person was asked; the answer is kept, and what is done is delivered."""
    first = [finish_step("first", "s1.result")]
    model = steps(["one", "two"], {"s1": first, "s2": [ask_user("Which?")]}, deliver=["First."])
    agent = Agent(model, storage="memory:", settings=FREE)
    run = await agent.start("go")
    run = await agent.resume(run.thread_id, "this", settings={**FREE, "deadline": PASSED})
    model.assert_exhausted()
    assert (run.status, (run.outcome or {})["code"]) == ("exhausted", "out_of_budget")
    assert (run.receipt or {})["questions"][0]["answer"] == "this"
    why = f"the deadline, {PASSED}, has passed"
    assert run.answer.splitlines()[:3] == ["First.", "", f"- Not done (exhausted): two — {why}"]


LAST = "2999-12-31T00:00+00:00"


def watched() -> tuple[Settings, asyncio.Event]:
    """Settings with a deadline, and what makes it pass."""
    passed = asyncio.Event()

    class Watched(Settings):
        def is_late(self, now: datetime | None = None) -> bool:
            return passed.is_set()

    return Watched(confirm="never", deadline=LAST), passed


async def test_a_deadline_that_passes_during_a_round_lets_it_end() -> None:
    """X08: the call that was decided on is made; then nothing more is asked but the words for the answer."""
    settings, passed = watched()

    async def look() -> str:
        """Look until it is late."""
        passed.set()
        return "seen"

    model = steps([{"content": "look", "tools": ["look"]}], {"s1": [call("look")]}, deliver=[])
    flow = await play(model, [look], effects={"look": "read"}, settings=settings)
    model.assert_exhausted()
    assert (flow.status, [entry["text"] for entry in flow.journal]) == ("exhausted", ["seen"])
    assert f"the deadline, {LAST}, has passed" in flow.run.answer


@pytest.mark.parametrize("role", ["triage", "execute"])
async def test_after_the_deadline_no_request_is_repeated(role: str) -> None:
    """R01, D03: a provider that fails in passing is not asked again when it is too late; the run says why it ended."""
    settings, passed = watched()

    def fails(messages: list[Any], tools: list[Any]) -> Any:
        passed.set()
        raise ModelError("busy", code="overloaded", retryable=True, retry_after=0)

    model = ScriptedModel(roles={"triage": [submit_plan(["go"])], role: [fails]})
    flow = await play(model, settings=settings)
    model.assert_exhausted()
    assert (flow.status, (flow.run.outcome or {})["code"]) == ("exhausted", "out_of_budget")
    assert f"the deadline, {LAST}, has passed" in flow.run.answer


async def test_only_work_takes_active_seconds() -> None:
    """R05: however long a person takes, what was spent stands still."""
    agent = Agent(sending(call("send", to="ann", text="hi")), [Outbox().tool()], storage="memory:", settings=FREE)
    before = monotonic()
    run = await agent.start("send it")
    worked = monotonic() - before
    await asyncio.sleep(0.05)  # somebody thinks about it
    assert (await agent.get(run.thread_id)).spent == run.spent
    before = monotonic()
    run = await agent.resume(run.thread_id, "approve")
    worked += monotonic() - before
    assert run.status == "completed"
    assert 0 < run.spent["active_seconds"] <= worked


DID = ("pay", "note", "note")
"""What the three steps of `at_work` changed before they were stopped."""


class AtWork:
    """Three steps at once: the first pays and is done, the others note something and look; then the run is stopped."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.planner_saw = ""
        finished, looking = asyncio.Event(), list[str]()

        def pay(order: str) -> str:
            """Pay."""
            self.calls.append("pay")
            return f"paid {order}"

        def note(text: str) -> str:
            """Note."""
            self.calls.append("note")
            return f"noted {text}"

        async def look(at: str) -> str:
            """Look."""
            await finished.wait()
            looking.append(at)
            if len(looking) == 2:
                self.agent.drain()
            return f"seen {at}"

        def again(messages: list[Any], _: Any) -> Any:
            self.planner_saw = "\n".join(message.text for message in messages)
            return submit_plan(plan)

        def work(id: str) -> list[Any]:
            end = finish_step("seen", (f"{id}.3", "seen"))
            return [call("note", text=id), call("look", at=id), call("look", at=f"{id} anew"), end]

        plan = [{"id": "s1", "content": "Pay order 17", "tools": ["pay"], "depends_on": []}]
        plan += [{"id": id, "content": f"Look at {id}", "tools": ["note", "look"], "depends_on": []} for id in WORKING]
        paid = [call("pay", order="17"), finish_step("paid 17", "s1.1")]
        execute = {"s1": paid, **{id: work(id) for id in WORKING}}
        roles: dict[str, Any] = {"triage": [submit_plan(plan), again], "execute": execute, "deliver": ["Done."]}
        settings = {"confirm": "never", "approvals": "never", "verification": "grounded"}
        self.finished = finished
        self.agent = Agent(
            ScriptedModel(roles=roles, strict=False),
            [pay, note, look],
            effects={"look": "read"},
            storage="memory:",
            settings=settings,
        )

    async def stop(self) -> None:
        """Start on the thread `t`, and stop while two steps work."""
        async for event in self.agent.stream("Settle it", thread_id="t"):
            if event["type"] == "step_finished":
                self.finished.set()
        run = await self.agent.get("t")
        assert (run.status, run.spent["tool_calls"]) == ("running", 5)
        assert [run.steps[id]["status"] for id in ("s1", *WORKING)] == ["done", "running", "running"]


WORKING = ("s2", "s3")


@pytest.mark.parametrize("typed", ["and be quick", "continue", None])
async def test_a_run_that_is_steered_keeps_all_that_its_working_steps_did(typed: str | None) -> None:
    """U4, R03, N21: the finished step stays finished, the others go on with what they saw, the receipt has what they
    changed and spent, and no observation gets an id twice. So it is if it is typed into the chat."""
    work = AtWork()
    await work.stop()
    if typed:
        await work.agent.graph.ainvoke({"messages": [("user", typed)]}, config("t"))
        run = await work.agent.get("t")
    else:
        run = await work.agent.resume("t", steer="and be quick")
    assert (run.status, run.answer.split("\n")[0]) == ("completed", "Done."), run.pending
    assert ('"id": "s1", "status": "done"' in work.planner_saw) is (typed != "continue")
    assert sorted(work.calls) == sorted(DID)
    assert run.receipt is not None
    assert sorted(row["id"] for row in run.receipt["effects"]) == ["s1.1", "s2.1", "s3.1"]
    assert run.receipt["spent"]["tool_calls"] == 7
    ids = [entry["id"] for entry in (await work.agent.conversation("t")).observations]
    assert len(set(ids)) == len(ids)


async def test_a_claim_that_was_cut_off_in_its_check_is_not_made_again() -> None:
    """U4: “continue”, typed after a stop within the check of two steps' criteria, repeats the checks and no round."""
    checking, blocked = list[str](), asyncio.Event()

    async def seen(what: str) -> str:
        """See."""
        checking.append(what)
        if len(checking) == 2:
            blocked.set()
        if len(checking) <= 2:
            await asyncio.Event().wait()
        return "ok"

    def watched(id: str) -> dict[str, Any]:
        check = {"tool": "seen", "arguments": {"what": id}, "expect": "ok"}
        return {"id": id, "content": id, "depends_on": [], "done_when": [{"text": "it is so", "check": check}]}

    plan, execute = submit_plan([watched("s1"), watched("s2")]), {id: [finish_step(id)] for id in ("s1", "s2")}
    model = ScriptedModel(roles={"triage": [plan], "execute": execute, "deliver": ["Both."]})
    async with Agent(model, [seen], effects={"seen": "read"}, storage="memory:", settings=FREE) as agent:
        working = asyncio.create_task(agent.start("Look", thread_id="t"))
        await blocked.wait()
        working.cancel()
        await asyncio.wait([working])
        await agent.graph.ainvoke({"messages": [("user", "continue")]}, config("t"))
        assert (await agent.get("t")).answer == "Both."
    model.assert_exhausted()


async def test_a_run_that_is_cancelled_keeps_all_that_its_working_steps_did() -> None:
    """C06, N21: the finished step counts as done, and the receipt has what all steps changed and spent."""
    work = AtWork()
    await work.stop()
    run = await work.agent.cancel("t", "enough")
    assert "1 of 3 steps done" in run.answer
    assert run.receipt is not None
    assert [row["status"] for row in run.receipt["steps"]] == ["done", "skipped", "skipped"]
    assert sorted(row["id"] for row in run.receipt["effects"]) == ["s1.1", "s2.1", "s3.1"]
    assert (run.receipt["spent"]["tool_calls"], run.receipt["spent"]["rounds"]) == (5, 6)
    assert [row["spent"].get("tool_calls") for row in run.receipt["steps"]] == [1, 2, 2]


async def test_a_request_in_place_of_a_working_one_can_recall_what_all_its_steps_saw() -> None:
    """N21: also what the finished step saw, whose end the run had not taken in yet."""
    work = AtWork()
    await work.stop()
    await work.agent.start("Something else", thread_id="t", restart=True)
    state = await work.agent.graph.aget_state(config("t"))
    before = {entry["id"] for entry in state.values["before"]}
    assert before >= {"1:s1.1", "1:s2.1", "1:s2.2", "1:s3.1", "1:s3.2"}
