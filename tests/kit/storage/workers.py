"""Real processes that work on a thread, for tests that kill, freeze and race them."""

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from langchain_core.tools import StructuredTool

from donewhen.agent.storage import open_storage
from donewhen.graph.tools.call import CallOutcome
from donewhen.graph.tools.effects import Effect, EffectLog, Place, perform
from donewhen.graph.tools.toolbox import KnownTool
from donewhen.state.errors import ThreadBusy
from donewhen.state.records import Call
from tests.kit.forking import forks

Worker = tuple[BaseProcess, Connection]


@contextmanager
def working(url: str, thread_id: str, count: int = 1) -> Iterator[list[Worker]]:
    """`count` processes that try to work on the thread as soon as told "go", all killed at the end.

    Each answers "ready", then "works" (until told to stop, then "left") or "busy"; told "fork", with the id of a child.
    """
    workers: list[Worker] = []
    try:
        for _ in range(count):
            ours, theirs = forks.Pipe()
            process = forks.Process(target=_run, args=(url, thread_id, theirs), daemon=True)
            process.start()
            theirs.close()
            workers.append((process, ours))
        for _, pipe in workers:
            assert pipe.recv() == "ready"
        yield workers
    finally:
        for process, pipe in workers:
            process.kill()
            process.join()
            process.close()
            pipe.close()


def _forked() -> int:
    """A child that outlives its parent."""
    if child := os.fork():
        return child
    signal.pause()
    os._exit(0)


def _run(url: str, thread_id: str, pipe: Connection) -> None:
    asyncio.run(_work(url, thread_id, pipe))


async def _work(url: str, thread_id: str, pipe: Connection) -> None:
    storage = open_storage(url)
    pipe.send("ready")
    pipe.recv()
    try:
        async with storage.session(thread_id) as (_, store):
            await store.aput(("worker",), "last", {"thread": thread_id})
            pipe.send("works")
            while pipe.recv() == "fork":
                pipe.send(_forked())
        pipe.send("left")
    except ThreadBusy:
        pipe.send("busy")


@contextmanager
def racing(url: str, runs: Sequence[str]) -> Iterator[list[Connection]]:
    """Processes that make one write on thread "t" as soon as told "go", each in its run, and say what became of it."""
    workers: list[Worker] = []
    try:
        for run in runs:
            ours, theirs = forks.Pipe()
            process = forks.Process(target=_race, args=(url, run, theirs), daemon=True)
            process.start()
            theirs.close()
            workers.append((process, ours))
        for _, pipe in workers:
            assert pipe.recv() == "ready"
        yield [pipe for _, pipe in workers]
    finally:
        for process, pipe in workers:
            process.kill()
            process.join()
            process.close()
            pipe.close()


def _race(url: str, run: str, pipe: Connection) -> None:
    asyncio.run(_write_once(url, run, pipe))


async def _write_once(url: str, run: str, pipe: Connection) -> None:
    tool = StructuredTool.from_function(lambda: "paid", name="pay", description="Pay.")
    call: Call = {"id": "", "name": "pay", "args": {}}
    paid: list[str] = []

    async def pay(key: str) -> CallOutcome:
        paid.append(key)
        return CallOutcome(False, "no answer", error="timeout", unknown=True)

    async with open_storage(url).writer() as (_, store):
        log = EffectLog(store, "t", Place((run,), (run,), f"c{run}"), "s1")
        pipe.send("ready")
        pipe.recv()
        outcome = await perform(log, Effect(f"key-{run}", call, KnownTool(tool, "write")), pay)
        pipe.send("made" if paid else "knows" if isinstance(outcome, CallOutcome) else "asked")
