"""Kill a scenario everywhere: a real process dies at each of its boundaries, and another one finishes the run.

Processes start in milliseconds, because Python's fork server imports the runtime once and forks each one. POSIX only.
"""

import asyncio
import inspect
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, get_args

from donewhen.agent.testing.crash import Crash, Crashed, CrashMode, ToolPhase, notes
from donewhen.state.errors import StorageError

DIARY = "diary.jsonl"
"""The file in a trial's folder with all questions and crashes, in order."""
LIVE = f"{__name__}:live"
MOST = 10_000
Point = int | tuple[int, ...]

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    [__name__, "donewhen.agent.agent", "donewhen.agent.storage.sqlite", "donewhen.agent.storage.postgres"]
)
_starting = threading.Lock()
"""Starting a process also polls all others, which is not safe in several threads."""


@dataclass(frozen=True)
class ProcessEnd:
    """The end of a process."""

    code: int
    """0: it returned; 1: it raised; -n: signal n ended it."""
    result: Any
    """The function's return value as JSON; None if it did not return."""
    output: str
    """The printed output, including a traceback."""


def run_forked(
    target: str, arguments: Mapping[str, Any], folder: Path, *, name: str = "process", seconds: float = 60.0
) -> ProcessEnd:
    """Call `"module:function"`, which may be a coroutine function, with JSON arguments in a process of its own.

    `folder` (created) gets its output and result as files called `name`. After `seconds` SIGALRM ends it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    result, output = folder / f"{name}.json", folder / f"{name}.txt"
    process = _forks.Process(target=_run_and_exit, args=(target, dict(arguments), seconds, result, output))
    with _starting:
        process.start()
    wait([process.sentinel])
    with _starting:
        process.join()
    returned = json.loads(result.read_text("utf-8")) if result.exists() else None
    printed = output.read_text("utf-8", "replace") if output.exists() else "it ended before it began"
    return ProcessEnd(process.exitcode or 0, returned, printed)


def resolve(target: str) -> Any:
    """Return the function that `"module:function"` names."""
    module, _, function = target.partition(":")
    return getattr(import_module(module), function)


def _run_and_exit(
    target: str, arguments: Mapping[str, Any], seconds: float, result_file: Path, output_file: Path
) -> None:
    """Run in a forked process; never returns."""
    signal.setitimer(signal.ITIMER_REAL, seconds)  # nobody handles SIGALRM, so it ends the process
    output = os.open(output_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = 1
    try:
        result = resolve(target)(**arguments)
        result = asyncio.run(result) if inspect.iscoroutine(result) else result
        result_file.write_text(json.dumps(result, default=str), "utf-8")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@dataclass(frozen=True)
class Trial:
    """One run of the scenario: the processes that died, and the one that finished."""

    point: tuple[int, ...]
    """The boundaries at which the first, second, … process was to die; () for the undisturbed run."""
    died: tuple[str, ...]
    """The boundaries at which they died."""
    folder: Path
    result: Any
    """The scenario's final return value as JSON; None if there is none."""
    trace: tuple[str, ...]
    """The boundaries reached by the last process."""
    seconds: float
    """The duration of the last process, from its fork to its end."""
    pick_up: float
    """Seconds from its start to its first write: the time to resume."""
    error: str = ""
    """The output, if it did not finish."""

    @property
    def diary(self) -> list[dict[str, Any]]:
        """Return what people were asked and where processes died, in order."""
        return notes(self.folder / DIARY)


def kill_everywhere(
    target: str,
    folder: Path,
    *,
    points: Iterable[Point] | Callable[["Trial"], Iterable[Point]] | None = None,
    mode: CrashMode = "kill",
    only: Sequence[str] | None = None,
    arguments: Mapping[str, Any] | None = None,
    side_by_side: int = 1,
    seconds: float = 60.0,
) -> list[Trial]:
    """Run a scenario undisturbed, then once for every boundary it has, killed there and resumed in a new process.

    `target` is `"module:function"`; the function, async or not, has the signature
    `(folder: Path, crash: Crash, **arguments) -> JSON`. It starts a run, or continues the one in `folder`, to the end;
    `drive` does that. It wraps its storage and tools with `crash`, which counts their boundaries.

    The first result is the undisturbed run. Then follow the boundaries 1, 2, … until a run survives. `points` names
    other boundaries to try: a list, or a function of the first result; a tuple in it kills several processes in a row.
    In mode `raise`, operations fail in place of the process, and may raise only a StorageError. `only` names the
    boundaries that count. `side_by_side` is the number of trials at the same time.
    """
    common = {
        "target": target,
        "mode": mode,
        "only": None if only is None else list(only),
        "arguments": dict(arguments or {}),
    }

    def trial(point: tuple[int, ...]) -> Trial:
        return _run_trial(common, point, folder, seconds)

    whole = trial(())
    if whole.error:
        return [whole]
    if only is not None and not whole.trace:
        raise ValueError(f"the scenario reaches none of these boundaries: {', '.join(only)}")
    with ThreadPoolExecutor(side_by_side) as pool:
        if points is not None:
            named = points(whole) if callable(points) else points
            return [whole, *pool.map(trial, [p if isinstance(p, tuple) else (p,) for p in named])]
        found = list(pool.map(trial, [(n,) for n in range(1, len(whole.trace) + 1)]))
    more = _until_one_survives(trial, len(whole.trace) + 1)
    return [whole, *(each for each in [*found, *more] if each.died or each.error)]


def _until_one_survives(trial: Any, start: int) -> Iterator[Trial]:
    """Yield trials at later boundaries until a process survives, because parallel steps vary between runs."""
    for number in range(start, MOST):
        found: Trial = trial((number,))
        if not found.died:
            return
        yield found


def _run_trial(common: Mapping[str, Any], point: tuple[int, ...], folder: Path, seconds: float) -> Trial:
    """Run processes that die one after the other, and then one that finishes."""
    place = folder / ("-".join(map(str, point)) or "undisturbed")
    died: list[str] = []
    ended = ProcessEnd(0, None, "")
    took = 0.0
    for number, at in enumerate([*point, None], 1):
        given = {**common, "folder": str(place), "at": at}
        started = time.perf_counter()
        ended = run_forked(LIVE, given, place, name=f"process{number}", seconds=seconds)
        took = time.perf_counter() - started
        if (where := _find_crash(ended, place, len(died))) is None:
            break
        died.append(where)
    result = ended.result or {}
    error = f"exit code {ended.code}\n{ended.output}" if ended.code else result["failed"]
    trace, pick_up = tuple(result.get("trace", ())), result.get("first_write", 0.0)
    return Trial(point, tuple(died), place, result.get("result"), trace, took, pick_up, error)


def _find_crash(ended: ProcessEnd, place: Path, before: int) -> str | None:
    """Return the boundary at which a process died as planned; None if it ended otherwise."""
    crashes = [row["crashed"] for row in notes(place / DIARY) if "crashed" in row]
    if len(crashes) <= before or (ended.code != -signal.SIGKILL and not (ended.code == 0 and ended.result["failed"])):
        return None
    return str(crashes[-1])


async def live(
    target: str, folder: str, at: int | None, mode: CrashMode, only: Sequence[str] | None, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Run the scenario in one process, with a crash at boundary `at`."""
    crash = Crash(at, mode=mode, only=only, log=Path(folder) / DIARY)
    started, failed, result = time.perf_counter(), "", None
    try:
        result = resolve(target)(Path(folder), crash, **arguments)
        result = await result if inspect.isawaitable(result) else result
    except (StorageError, Crashed) as error:
        if mode == "kill":
            raise
        failed = f"{type(error).__name__}: {error}"
    first_write = max(0.0, crash.first_write - started)
    return {"result": result, "trace": crash.trace, "failed": failed, "first_write": first_write}


def tool_boundaries(name: str) -> list[str]:
    """Return the boundaries of one tool."""
    return [f"{name}.{phase}" for phase in get_args(ToolPhase)]
