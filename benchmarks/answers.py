"""F3: answers that come twice, late, to nobody, or after the end. None of them may change anything."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig

from benchmarks.scenario import GOAL, Stage, stage, truthful
from donewhen import Run
from donewhen.agent.testing.crash import Crash
from donewhen.state.errors import DoneWhenError, ResumeError, StaleAnswer, StorageError, ThreadBusy, UnknownThread


class FailsAfterSend(Crash):
    """A storage that fails to keep the outcome of the first `send`, so that the run has to ask what became of it."""

    def __init__(self) -> None:
        super().__init__(only=("store",))

    def reach(self, boundary: str) -> None:
        if boundary == "send.inside" and self.at is None:
            self.at = len(self.trace) + 1
        super().reach(boundary)


@dataclass(frozen=True)
class Misuse:
    """One wrong answer: what was tried, and whether it was refused without any change."""

    pause: str
    """The kind of pause at which it was tried, or `end`."""
    what: str
    refused: bool
    """With a ResumeError."""
    changed: bool
    """True if anything differed afterwards."""


async def misuses(folder: Path, storage: str = "") -> list[Misuse]:
    """Lead the scenario through a pause of every kind to its end, and try every wrong answer at each."""
    crash = FailsAfterSend()
    on = stage(folder, crash, storage)
    run = await on.agent.start(GOAL, thread_id=on.thread)
    found: list[Misuse] = []
    earlier: list[Mapping[str, Any]] = []
    while run.status == "waiting":
        pause = run.pending[0]
        found += [await _tried(on, pause["kind"], what, given) for what, given in _wrong(on, run, earlier).items()]
        run, more = await _answered_twice(on, run)
        found += more
        earlier.append(pause)
    found += [await _tried(on, "end", what, given) for what, given in _wrong(on, run, earlier).items()]
    return found


async def _answered_twice(on: Stage, run: Run) -> tuple[Run, list[Misuse]]:
    """Answer rightly, twice at the same time, then once more; a storage that fails meanwhile is gone on with."""
    pause, kind = run.pending[0], run.pending[0]["kind"]
    answer = {pause["id"]: truthful(on.world, pause)}
    both = await asyncio.gather(*(on.agent.resume(on.thread, answer) for _ in range(2)), return_exceptions=True)
    taken = sum(isinstance(one, Run | StorageError) for one in both)
    refused = sum(isinstance(one, ThreadBusy | StaleAnswer) for one in both)
    at_once = Misuse(kind, "the same answer twice at once", refused == 1, taken != 1)
    now = await on.agent.get(on.thread)
    while now.status == "running":
        now = await on.agent.resume(on.thread)
    later = await _tried(on, kind, "the same answer once more", lambda: on.agent.resume(on.thread, answer))
    shown = await _tried(on, kind, "an answer to what was shown before", lambda: on.agent.resume(run, "approve"))
    return now, [at_once, later, shown]


Attempt = Callable[[], Awaitable[Any]]


def _wrong(on: Stage, run: Run, earlier: list[Mapping[str, Any]]) -> dict[str, Attempt]:
    """Wrong answers by name, each still to be given."""

    def answering(answer: Any, thread: str = on.thread) -> Attempt:
        return lambda: on.agent.resume(thread, answer)

    tries = {
        "an unknown thread": answering("approve", "no-such-thread"),
        "an unknown id": answering({"s9.q7": "approve"}),
        "an unknown interrupt": answering({"0" * 32: "approve"}),
        "a new goal": lambda: on.agent.start(GOAL, thread_id=on.thread),
    }
    for pause in earlier:
        tries[f"the {pause['kind']} answered before, by id"] = answering({pause["id"]: "approve"})
        tries[f"the {pause['kind']} answered before, with another id"] = answering(
            {pause["id"]: "approve", **({run.pending[0]["id"]: "approve"} if run.pending else {})}
        )
    if run.pending and run.pending[0]["kind"] == "plan":
        tries["another revision of the plan"] = answering({"type": "approve", "revision": "0123456789abcdef"})
    if not run.pending:
        tries["an answer after the end"] = answering("approve")
        del tries["a new goal"]
    return tries


async def _tried(on: Stage, pause: str, what: str, attempt: Attempt) -> Misuse:
    before = await _print(on)
    refused = False
    try:
        await attempt()
    except (ResumeError, UnknownThread):
        refused = True
    except DoneWhenError:
        pass
    return Misuse(pause, what, refused, before != await _print(on))


async def _print(on: Stage) -> tuple[Any, ...]:
    """All that a wrong answer could change: the thread's last checkpoint, the threads there are, the world."""
    config: RunnableConfig = {"configurable": {"thread_id": on.thread}}
    snapshot = await on.agent.graph.aget_state(config)
    threads = sorted(info.thread_id for info in await on.agent.threads())
    waits = tuple(interrupt.id for interrupt in snapshot.interrupts)
    return (snapshot.config["configurable"].get("checkpoint_id"), waits, tuple(threads), len(on.world.rows))
