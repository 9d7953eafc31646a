"""F4: a worker that is frozen while it holds the thread, and thawed when nobody expects it any more."""

import asyncio
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.scenario import APART, GOAL, stage, truthful
from benchmarks.workers import finish, forked_process, problems_of
from donewhen.agent.testing.crash import Crash
from donewhen.state.errors import DoneWhenError
from tests.kit.comparing import drive
from tests.kit.everywhere import run_forked

Json = dict[str, Any]
BOUNDARIES = ("model", "put", "put_writes.done", "store.done", "charge.before", "charge.inside", "send.inside")


@dataclass(frozen=True)
class Frozen:
    """The results of a worker that was frozen and thawed."""

    boundary: str
    """The boundary at which it was frozen."""
    cut: bool
    """True if it lost its connection meanwhile, and another worker completed the thread."""
    second: str
    """How the other worker's `resume` ended meanwhile."""
    thawed: str
    """How the first worker ended after the thaw."""
    problems: tuple[str, ...]


def freeze(folder: Path, boundary: str, like: Json, storage: str = "", *, cut: bool = False) -> Frozen:
    """Freeze a worker at the boundary, let another one try, thaw the first, and bring the thread to its end."""
    given = {"folder": str(folder), "storage": storage, "boundary": boundary, "cut": cut}
    ran = run_forked("benchmarks.frozen:frozen", given, folder, name="frozen", seconds=120)
    if ran.code:
        raise RuntimeError(f"frozen at {boundary}: {ran.output}")
    return Frozen(boundary, cut, **ran.result, problems=problems_of(folder, like, storage))


# In processes of their own -------------------------------------------------------------------------------------------


def frozen(folder: str, storage: str, boundary: str, cut: bool) -> Json:
    """Return how the second worker and the thawed first one ended."""
    first = forked_process(_first, folder, storage, boundary)
    _, status = os.waitpid(first, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        raise RuntimeError(f"the first worker never came to {boundary}: {status}")
    if cut:
        _cut_off(storage)
    second = forked_process(_second, folder, storage, cut)
    os.waitpid(second, 0)
    os.kill(first, signal.SIGCONT)
    os.waitpid(first, 0)
    return {name: json.loads((Path(folder) / f"{name}.json").read_text()) for name in ("second", "thawed")}


def _first(folder: str, storage: str, boundary: str) -> None:
    # All in the middle of the run, where one step works alone: a thread that is frozen in the world keeps its lock.
    at = {"model": 9, "put": 33, "put_writes.done": 30, "store.done": 17}.get(boundary, 1)
    on = stage(Path(folder), Crash(at, mode="freeze", only=[boundary]), storage)
    work = drive(on.agent, GOAL, on.thread, lambda pause: truthful(on.world, pause), patience=0.0)
    _told(folder, "thawed", work)


def _second(folder: str, storage: str, cut: bool) -> None:
    if cut:
        _told(folder, "second", finish(folder, storage))
        return
    on = stage(Path(folder), Crash(), storage)
    _told(folder, "second", on.agent.resume(on.thread))


def _told(folder: str, name: str, work: Any) -> None:
    try:
        result = asyncio.run(work)
        said = result["ending"]["status"] if isinstance(result, dict) else result.status
    except DoneWhenError as error:
        said = type(error).__name__
    (Path(folder) / f"{name}.json").write_text(json.dumps(said))


def _cut_off(storage: str) -> None:
    """End the frozen worker's connection, as a server does that hears nothing from it for long."""
    import psycopg

    with psycopg.connect(storage.removeprefix(APART), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'donewhen' AND datname = current_database()"
        )
