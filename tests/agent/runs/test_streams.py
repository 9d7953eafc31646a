"""Streams that are left: the process ends, the thread is free at once, and the run stops or goes on as was said."""

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from donewhen import Agent, DoneWhenError, ThreadBusy, wait
from donewhen.testing import call
from donewhen.types import RunStream
from tests.kit.forking import forks
from tests.kit.places import ROOT
from tests.kit.runs import Outbox, one_step, sending
from tests.kit.storage.cases import Storage, fresh_url, open_storage

ALONE = {"confirm": "never"}
HI, BYE = call("send", to="ann", text="hi"), call("send", to="ann", text="bye")


def working(storage: Storage | str) -> tuple[Agent, Outbox]:
    """An agent that sends two messages in one step."""
    outbox = Outbox()
    return Agent(sending(HI, BYE, tools=["send"]), [outbox.tool()], storage=storage, settings=ALONE), outbox


async def until(stream: RunStream, type: str) -> None:
    async for event in stream:
        if event["type"] == type:
            break


@pytest.mark.parametrize("way", ["break", "raise", "cancel"])
async def test_a_stream_that_is_left_frees_its_thread(storage: Storage, way: str) -> None:
    """L1, R08: by a break, an exception in the block or a cancellation: the run has stopped when the listener is gone,
    every other agent has the thread, and a resume goes on where it stopped; nothing happens twice."""
    agent, outbox = working(storage)
    reached = asyncio.Event()

    async def listen() -> None:
        async with agent.stream("Write to ann and bob", thread_id="t") as events:
            await until(events, "observation")
            reached.set()
            if way == "raise":
                raise LookupError
            if way == "cancel":
                await asyncio.Event().wait()

    task = asyncio.create_task(listen())
    await reached.wait()
    if way == "cancel":
        task.cancel()
    await asyncio.wait({task})
    assert task.cancelled() if way == "cancel" else isinstance(task.exception(), LookupError) == (way == "raise")
    assert (await agent.get("t")).status == "running"
    async with storage.session("t"):
        pass
    assert (await agent.resume("t")).status == "completed"
    assert [sent["text"] for sent in outbox.sent] == ["hi", "bye"]


async def test_a_plain_loop_that_breaks_frees_the_thread(storage: Storage) -> None:
    """L1, R08: without `async with`, a resume right after the break goes on where the run stopped."""
    agent, outbox = working(storage)
    await until(agent.stream("Write to ann and bob", thread_id="t"), "observation")
    assert (await agent.resume("t")).status == "completed"
    assert [sent["text"] for sent in outbox.sent] == ["hi", "bye"]


async def test_a_run_that_goes_on_unheard(storage: Storage) -> None:
    """L1: `on_leave="continue"`: the run ends by itself; until then the thread is busy."""
    sent, held = list[str](), asyncio.Event()

    async def send(to: str, text: str) -> str:
        """Send a message."""
        await held.wait()
        sent.append(text)
        return f"sent to {to}"

    agent = Agent(sending(HI, BYE, tools=["send"]), [send], storage=storage, settings=ALONE)
    stream = agent.stream("Write to ann and bob", thread_id="t", on_leave="continue")
    await until(stream, "step_started")
    await stream.aclose()
    with pytest.raises(ThreadBusy):
        await agent.resume("t")
    held.set()
    while (await agent.get("t")).status == "running":  # noqa: ASYNC110 - only the storage knows
        await asyncio.sleep(0)
    assert sent == ["hi", "bye"]


@pytest.mark.parametrize("how", ["block", "result"])
async def test_a_run_goes_on_when_its_listener_is_cancelled(storage: Storage, how: str) -> None:
    """L1: a web server cancels the block that streams when its client is gone; "continue" holds there too."""
    agent, outbox = working(storage)
    stream, listening = agent.stream("Write to ann and bob", thread_id="t", on_leave="continue"), asyncio.Event()

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
    stream = agent.stream("Write to ann and bob", thread_id="t")
    while (await asyncio.wait_for(anext(stream), 20))["type"] != "step_started":
        pass
    other = asyncio.create_task(agent.resume("t"))
    with pytest.raises(ThreadBusy):
        await other
    assert (await stream.result()).status == "completed"


async def test_the_last_event_comes_when_the_thread_is_free(storage: Storage) -> None:
    """L1: whoever sees the question may answer it at once, from another task."""
    agent = Agent(one_step(), storage=storage)
    async for event in agent.stream("Write to ann and bob", thread_id="t"):
        if event["type"] == "waiting":
            assert (await asyncio.create_task(agent.resume("t", "approve"))).status == "answered"


async def test_aclose_waits_for_what_runs(storage: Storage) -> None:
    """L3: leaving an agent lets the call at work end, and its thread is free."""
    agent, outbox = working(storage)
    async with agent:
        task = asyncio.create_task(agent.start("Write to ann and bob", thread_id="t"))
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
    task = asyncio.create_task(agent.start("Write to ann and bob", thread_id="t"))
    await begun.wait()
    before = perf_counter()
    await agent.aclose(patience=0.1)
    assert perf_counter() - before < 30
    with pytest.raises(DoneWhenError, match="cut off"):
        await task
    async with storage.session("t"):
        pass
    assert (await agent.get("t")).status == "running"


def leave(url: str, way: str, said: Path) -> None:
    """Leave a stream, which something still refers to, in a process of its own."""
    kept = []

    async def main() -> None:
        agent, outbox = working(url)
        stream = agent.stream(
            "Write to ann and bob", thread_id="t", on_leave="continue" if way == "continue" else "stop"
        )
        kept.append(stream)
        if way == "cancel":
            task = asyncio.create_task(until(stream, "outcome"))
            while not outbox.sent:  # noqa: ASYNC110
                await asyncio.sleep(0)
            task.cancel()
            return
        async for event in stream:
            if event["type"] == "tool_started":
                if way == "raise":
                    raise LookupError
                break

    with suppress(LookupError):
        asyncio.run(main())
    said.write_text("left")


@pytest.mark.parametrize(
    ("kind", "way"), [*(("sqlite", way) for way in ("break", "raise", "cancel", "continue")), ("postgres", "break")]
)
async def test_a_process_ends_whatever_was_left(kind: str, way: str, tmp_path: Path) -> None:
    """L1, R08: with a stream left and never closed, `asyncio.run` returns, the process ends, and others go on."""
    url, said = fresh_url(kind, tmp_path), tmp_path / "said"
    process = forks.Process(target=leave, args=(url, way, said))
    process.start()
    await asyncio.to_thread(process.join, 100)
    assert (said.read_text(), process.exitcode) == ("left", 0)
    async with open_storage(url).session("t"):
        pass


def wait_fork_wait(url: str, said: Path) -> None:
    """Wait for a run, fork, and wait for another one in the child."""
    assert wait(Agent(one_step(), storage=url).start("Write to ann and bob", thread_id="a")).status == "waiting"
    if child := os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    agent = Agent(one_step(), storage=url)
    assert wait(agent.start("Write to ann and bob", thread_id="b")).status == "waiting"
    said.write_text(wait(agent.resume("b", "approve")).answer)
    os._exit(0)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_wait_after_a_fork(kind: str, tmp_path: Path) -> None:
    """L2: a process that forks after its first `wait` (Celery, gunicorn's preload) waits in the child as well."""
    process = forks.Process(target=wait_fork_wait, args=(fresh_url(kind, tmp_path), tmp_path / "said"))
    process.start()
    process.join(100)
    assert ((tmp_path / "said").read_text(), process.exitcode) == ("done", 0)


def test_wait_in_many_threads(tmp_path: Path) -> None:
    """L2: threads wait side by side, the first time too."""
    program = "import threading\nfrom donewhen import wait\n" + (
        "async def one():\n    return 1\n"
        "found = []\n"
        "threads = [threading.Thread(target=lambda: found.append(wait(one()))) for _ in range(20)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "print(sum(found), sum(t.name == 'donewhen-sync' for t in threading.enumerate()))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.stdout == "20 1\n", done.stderr


def test_a_stream_left_in_another_thread(tmp_path: Path) -> None:
    """L1, L2: a stream of `wait`'s loop, dropped by whoever has it, wherever."""
    agent, outbox = working(f"sqlite:///{tmp_path}/runs.db")

    async def begin() -> RunStream:
        stream = agent.stream("Write to ann and bob", thread_id="t")
        await until(stream, "step_started")
        return stream

    held: list[Any] = [wait(begin())]
    dropper = threading.Thread(target=held.clear)
    dropper.start()
    dropper.join()
    wait(agent.aclose())
    assert wait(agent.resume("t")).status == "completed"
    assert len(outbox.sent) == 2
