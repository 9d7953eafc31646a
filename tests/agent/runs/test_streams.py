"""Streams that are left: the process ends, the thread is free at once, and the run stops or goes on as was said."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from donewhen import Agent, DoneWhenError, RunStream, ThreadBusy, wait
from donewhen.agent.storage import Storage, open_storage
from donewhen.testing import call
from tests.kit.places import ROOT
from tests.kit.runs import Outbox, one_step, sending
from tests.kit.storage.cases import fresh_url

ALONE = {"confirm": "never"}
STORAGES = ["memory", "sqlite", "postgres"]
HI, BYE = call("send", to="ann", text="hi"), call("send", to="ann", text="bye")


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return open_storage(fresh_url(request.param, tmp_path))


def working(storage: Storage | str) -> tuple[Agent, Outbox]:
    """An agent that sends two messages in one step."""
    outbox = Outbox()
    return Agent(sending(HI, BYE, tools=["send"]), [outbox.tool()], storage=storage, settings=ALONE), outbox


async def until(stream: RunStream, type: str) -> None:
    async for event in stream:
        if event["type"] == type:
            break


async def test_break_frees_the_thread(storage: Storage) -> None:
    """L1, R08: a resume right after a break goes on where the run stopped; nothing happens twice."""
    agent, outbox = working(storage)
    async for event in agent.stream("do it", thread_id="t"):
        if event["type"] == "observation":
            break
    assert (await agent.resume("t")).status == "completed"
    assert [sent["text"] for sent in outbox.sent] == ["hi", "bye"]


async def test_break_out_of_a_stream_with_a_name(storage: Storage) -> None:
    """L1, R08: likewise while something still refers to the stream."""
    agent, outbox = working(storage)
    stream = agent.stream("do it", thread_id="t")
    await until(stream, "observation")
    assert (await agent.resume("t")).status == "completed"
    assert stream.run is not None
    assert (stream.run.status, len(outbox.sent)) == ("running", 2)


async def test_an_exception_in_the_body(storage: Storage) -> None:
    """L1, R08: in an `async with` the run has stopped when the block is left, for every other agent too."""
    agent, outbox = working(storage)

    async def broken() -> None:
        async with agent.stream("do it", thread_id="t") as events:
            await until(events, "tool_started")
            raise LookupError

    with pytest.raises(LookupError):
        await broken()
    assert (await agent.get("t")).status == "running"
    assert len(outbox.sent) <= 1
    async with storage.session("t"):
        pass
    assert (await agent.resume("t")).status == "completed"
    assert [sent["text"] for sent in outbox.sent] == ["hi", "bye"]


async def test_a_cancelled_listener(storage: Storage) -> None:
    """L1, R08: who is cancelled while listening has left."""
    agent, outbox = working(storage)
    reached = asyncio.Event()

    async def listen() -> None:
        async for event in agent.stream("do it", thread_id="t"):
            if event["type"] == "observation":
                reached.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(listen())
    await reached.wait()
    task.cancel()
    await asyncio.wait({task})
    assert (await agent.resume("t")).status == "completed"
    assert len(outbox.sent) == 2


async def test_a_run_that_goes_on_unheard(storage: Storage) -> None:
    """L1: `on_leave="continue"`: the run ends by itself; until then the thread is busy."""
    agent, outbox = working(storage)
    stream = agent.stream("do it", thread_id="t", on_leave="continue")
    await until(stream, "step_started")
    await stream.aclose()
    with pytest.raises(ThreadBusy):
        await agent.resume("t")
    while (await agent.get("t")).status == "running":  # noqa: ASYNC110 - only the storage knows
        await asyncio.sleep(0)
    assert len(outbox.sent) == 2


@pytest.mark.parametrize("how", ["block", "result"])
async def test_a_run_goes_on_when_its_listener_is_cancelled(storage: Storage, how: str) -> None:
    """L1: a web server cancels the block that streams when its client is gone; "continue" holds there too."""
    agent, outbox = working(storage)
    stream, listening = agent.stream("do it", thread_id="t", on_leave="continue"), asyncio.Event()

    async def listen() -> None:
        async with stream as events:
            await until(events, "step_started")
            listening.set()
            await (stream.result() if how == "result" else asyncio.Event().wait())

    task = asyncio.create_task(listen())
    await listening.wait()
    task.cancel()
    await asyncio.wait({task})
    async with storage.session("t", patience=20):
        pass
    assert ((await agent.get("t")).status, len(outbox.sent)) == ("completed", 2)


async def test_listening_is_not_leaving(storage: Storage) -> None:
    """R04: while somebody listens, from whichever task, nobody else gets the thread."""
    agent, _ = working(storage)
    stream = agent.stream("do it", thread_id="t")
    while (await asyncio.wait_for(anext(stream), 20))["type"] != "step_started":
        pass
    other = asyncio.create_task(agent.resume("t"))
    with pytest.raises(ThreadBusy):
        await other
    assert (await stream.result()).status == "completed"


async def test_the_last_event_comes_when_the_thread_is_free(storage: Storage) -> None:
    """L1: whoever sees the question may answer it at once, from another task."""
    agent = Agent(one_step(), storage=storage)
    async for event in agent.stream("do it", thread_id="t"):
        if event["type"] == "waiting":
            assert (await asyncio.create_task(agent.resume("t", "approve"))).status == "completed"


async def test_aclose_waits_for_what_runs(storage: Storage) -> None:
    """L3: leaving an agent lets the call at work end, and its thread is free."""
    agent, outbox = working(storage)
    async with agent:
        task = asyncio.create_task(agent.start("do it", thread_id="t"))
        while not outbox.sent:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert task.done() or (await task).status == "running"
    async with storage.session("t"):
        pass
    assert len(outbox.sent) == 1


async def test_aclose_waits_no_longer_than_it_is_told(storage: Storage) -> None:
    """L3: a call that never ends is cut off, its thread is free, and the run can go on from there."""
    begun = asyncio.Event()

    async def send(to: str, text: str) -> str:
        """Send."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    free: Any = {"settings": {"confirm": "never"}, "effects": {"send": "read"}}
    agent = Agent(sending(tools=["send"]), [send], storage=storage, **free)
    task = asyncio.create_task(agent.start("do it", thread_id="t"))
    await begun.wait()
    before = perf_counter()
    await agent.aclose(patience=0.1)
    assert perf_counter() - before < 5
    with pytest.raises(DoneWhenError, match="cut off"):
        await task
    async with storage.session("t"):
        pass
    assert (await agent.get("t")).status == "running"


LEFT = """
import asyncio, sys
from tests.agent.runs.test_streams import until, working

kept = []

async def main(url, way):
    agent, outbox = working(url)
    stream = agent.stream("do it", thread_id="t", on_leave="continue" if way == "continue" else "stop")
    if way == "break":
        async for event in stream:
            if event["type"] == "tool_started":
                break
    elif way == "raise":
        async for event in stream:
            if event["type"] == "tool_started":
                raise RuntimeError("left")
    elif way == "cancel":
        task = asyncio.create_task(until(stream, "outcome"))
        while not outbox.sent:
            await asyncio.sleep(0)
        task.cancel()
    else:
        await until(stream, "tool_started")
    kept.append(stream)
    print("left", flush=True)

try:
    asyncio.run(main(*sys.argv[1:]))
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize("way", ["break", "raise", "cancel", "continue"])
@pytest.mark.parametrize("kind", STORAGES)
async def test_a_process_ends_whatever_was_left(kind: str, way: str, tmp_path: Path) -> None:
    """L1, R08: with a stream left and never closed, `asyncio.run` returns, the process ends, and others go on."""
    url = fresh_url(kind, tmp_path)
    command = [sys.executable, "-c", LEFT, url, way]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=30,
    )  # fmt: skip
    assert (done.stdout.strip(), done.returncode) == ("left", 0), done.stderr
    if kind != "memory":
        async with open_storage(url).session("t"):
            pass


FORKED = """
import os, sys
from donewhen import Agent, wait
from tests.kit.runs import one_step

agent = Agent(one_step(), storage=sys.argv[1])
assert wait(agent.start("do it", thread_id="a")).status == "waiting"
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
agent = Agent(one_step(), storage=sys.argv[1])
assert wait(agent.start("do it", thread_id="b")).status == "waiting"
print(wait(agent.resume("b", "approve")).answer, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_wait_after_a_fork(kind: str, tmp_path: Path) -> None:
    """L2: a process that forks after its first `wait` (Celery, gunicorn's preload) waits in the child as well."""
    command = [sys.executable, "-c", FORKED, fresh_url(kind, tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=30
    )
    assert (done.stdout.strip(), done.returncode) == ("done", 0), done.stderr


def test_wait_in_many_threads(tmp_path: Path) -> None:
    """L2: threads wait side by side, the first time too."""
    program = "import threading\nfrom donewhen import wait\n" + (
        "async def one():\n    return 1\n"
        "found = []\n"
        "threads = [threading.Thread(target=lambda: found.append(wait(one()))) for _ in range(20)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "print(sum(found), sum(t.name == 'donewhen-sync' for t in threading.enumerate()))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.stdout == "20 1\n", done.stderr


def test_a_stream_left_in_another_thread(tmp_path: Path) -> None:
    """L1, L2: a stream of `wait`'s loop, dropped by whoever has it, wherever."""
    agent, outbox = working(f"sqlite:///{tmp_path}/runs.db")

    async def begin() -> RunStream:
        stream = agent.stream("do it", thread_id="t")
        await until(stream, "step_started")
        return stream

    held: list[Any] = [wait(begin())]
    dropper = threading.Thread(target=held.clear)
    dropper.start()
    dropper.join()
    wait(agent.aclose())
    assert wait(agent.resume("t")).status == "completed"
    assert len(outbox.sent) == 2
