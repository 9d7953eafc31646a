"""F4: many workers on one thread at once. One works, the others are refused in words."""

import asyncio
import json
import os
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.scenario import GOAL, Stage, stage, truthful
from donewhen.agent.testing.crash import Crash
from donewhen.state.errors import DoneWhenError
from tests.kit.comparing import differences, doubled_writes, drive, ending, lost_effects
from tests.kit.everywhere import run_forked

Json = dict[str, Any]
MOMENTS = ("a plan to approve", "a question to answer", "a worker that died", "a worker that died in a write")


@dataclass(frozen=True)
class Race:
    """The results of workers that resumed one thread at the same moment."""

    moment: str
    workers: int
    worked: int
    """How many of them wrote anything; 1 is right."""
    ends: dict[str, int]
    """How the calls of `resume` ended: a status, or the name of an error."""
    problems: tuple[str, ...]
    """Doubled and lost effects, and what is unlike the undisturbed run."""


def undisturbed(folder: Path, storage: str = "") -> Json:
    """The run that the others are compared with."""
    ended = run_forked("benchmarks.workers:finish", {"folder": str(folder), "storage": storage}, folder)
    if ended.code:
        raise RuntimeError(ended.output)
    result: Json = ended.result
    return result


def race(folder: Path, moment: str, workers: int, like: Json, storage: str = "") -> Race:
    """Bring a thread to the moment, let the workers at it, then bring it to its end."""
    common = {"folder": str(folder), "storage": storage}
    led = run_forked("benchmarks.workers:lead", {**common, "moment": moment}, folder, name="lead")
    given = {**common, "workers": workers, "answer": led.result}
    ran = run_forked("benchmarks.workers:compete", given, folder, name="race", seconds=300)
    if ran.code:
        raise RuntimeError(f"{moment}, {workers} workers: {led.output} {ran.output}")
    ends = Counter(worker["end"] for worker in ran.result)
    worked = sum(worker["wrote"] for worker in ran.result)
    return Race(moment, workers, worked, dict(ends), problems_of(folder, like, storage))


def problems_of(folder: Path, like: Json, storage: str) -> tuple[str, ...]:
    """Bring the thread to its end and say what is not as in the undisturbed run."""
    ended = run_forked("benchmarks.workers:finish", {"folder": str(folder), "storage": storage}, folder, name="end")
    if ended.code:
        return (f"did not end: {ended.output[-2000:]}",)
    found = {
        "doubled": doubled_writes(ended.result["effects"], like["effects"]),
        "lost": lost_effects(ended.result["effects"], like["effects"]),
        "unlike": differences(ended.result["ending"], like["ending"]),
    }
    return tuple(f"{name}: {line}" for name, lines in found.items() for line in lines)


# In processes of their own -------------------------------------------------------------------------------------------


async def lead(folder: str, storage: str, moment: str) -> Json | None:
    """Work up to the moment; the answer to give there. Two of the moments are deaths."""
    boundary = {MOMENTS[2]: "save.before", MOMENTS[3]: "send.inside"}.get(moment)
    crash = Crash(1, mode="kill", only=[boundary]) if boundary else Crash()
    on = stage(Path(folder), crash, storage)
    run = await on.agent.start(GOAL, thread_id=on.thread)
    kind = {MOMENTS[0]: "plan", MOMENTS[1]: "question"}.get(moment)
    while run.pending[0]["kind"] != kind:
        run = await on.agent.resume(on.thread, {run.pending[0]["id"]: truthful(on.world, run.pending[0])})
    return {run.pending[0]["id"]: truthful(on.world, run.pending[0])}


def compete(folder: str, storage: str, workers: int, answer: Json | None) -> list[Json]:
    """Fork the workers, let all go at the same moment, and gather how each fared."""
    start, go = os.pipe()
    place = Path(folder)

    def worker(number: int) -> None:
        os.close(go)
        crash = Crash()
        on = stage(place, crash, storage)
        os.read(start, 1)  # returns when the last one that could write has closed its end
        end = asyncio.run(_resumed(on, answer))
        (place / f"worker{number}.json").write_text(json.dumps({"end": end, "wrote": crash.first_write > 0}))

    started = [forked_process(worker, number) for number in range(workers)]
    os.close(go)
    for pid in started:
        os.waitpid(pid, 0)
    return [json.loads((place / f"worker{number}.json").read_text()) for number in range(workers)]


def forked_process(work: Callable[..., None], *arguments: Any) -> int:
    """Fork a process that works and ends; its id."""
    if (pid := os.fork()) == 0:
        try:
            work(*arguments)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    return pid


async def _resumed(on: Stage, answer: Json | None) -> str:
    try:
        given = () if answer is None else (answer,)
        return (await on.agent.resume(on.thread, *given)).status
    except DoneWhenError as error:
        return type(error).__name__


async def finish(folder: str, storage: str) -> Json:
    """Bring the thread to its end, from wherever it is."""
    on = stage(Path(folder), Crash(), storage)
    await drive(on.agent, GOAL, on.thread, lambda pause: truthful(on.world, pause))
    return {"ending": await ending(on.agent, on.thread), "effects": on.world.rows}
