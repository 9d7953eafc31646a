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
from tests.kit.runs import Outbox, last_seen, sending
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
            assert monotonic() - asked_at[-1] < effects.PATIENCE
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
