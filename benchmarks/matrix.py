"""F1, F2 and F5 of the scenario: processes killed at its boundaries, operations that fail, and what came of it."""

import random
import signal
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scenario import UNSURE
from donewhen.agent.testing.crash import CrashMode, note
from tests.kit.comparing import asked_again, differences, doubled_writes, lost_effects
from tests.kit.everywhere import DIARY, LIVE, Point, Trial, kill_everywhere, run_forked, tool_boundaries

Points = Iterable[Point] | Callable[[Trial], Iterable[Point]]
TARGET = "benchmarks.scenario:scenario"
TOOLS = [
    boundary for name in ("look", "save", "book", "send", "charge", "refund") for boundary in tool_boundaries(name)
]
OPERATIONS = ["put", "put.done", "put_writes", "put_writes.done", "store", "store.done"]
SEED = 20261121


@dataclass(frozen=True)
class Figures:
    """The results of a series of trials; everything from `doubled` to `silent` should be 0."""

    trials: int
    deaths: int
    """Deaths of processes, or failed operations."""
    doubled: int
    lost: int
    unlike: int
    """Runs that ended unlike the undisturbed one, or not at all."""
    asked_twice: int
    needless: int
    """Questions about an effect that the tool's key or probe could have told."""
    silent: int
    """Points at which nothing died although it should have."""
    asked: int
    """Questions about the effect of a write that was interrupted."""
    again: int
    """Answers that died with their process before anything of them was written, and were given again."""
    pick_up: float
    """Median of the seconds from the start of the last process to its first write."""
    slowest: float
    places: dict[str, int]
    """Deaths by what was going on: storage, tool, model, back-off, nothing (a person is asked), or unknown."""
    problems: tuple[str, ...]


def killed(
    folder: Path,
    storage: str = "",
    *,
    points: Points | None = None,
    only: Sequence[str] | None = None,
    mode: CrashMode = "kill",
    flaky: str = "",
    side_by_side: int = 1,
    target: str = TARGET,
) -> Figures:
    """Kill the scenario at `points` (default: everywhere) and compare each run with the undisturbed one."""
    arguments = {"storage": storage, "flaky": flaky}
    whole, *trials = kill_everywhere(
        target, folder, points=points, only=only, mode=mode, arguments=arguments, side_by_side=side_by_side
    )
    if whole.error:
        raise RuntimeError(f"the scenario fails undisturbed:\n{whole.error}")
    return judge(whole, trials)


def at_moments(folder: Path, runs: int, storage: str = "", seed: int = SEED) -> Figures:
    """Kill the scenario again and again, wherever it happens to be, until it has ended; so many runs."""
    arguments = {"storage": storage, "flaky": ""}
    (whole,) = kill_everywhere(TARGET, folder, points=[], arguments=arguments)
    drawn = random.Random(f"{seed} moments")
    trials = []
    for number in range(runs):
        place, died = folder / f"moments{number}", 0
        given = {
            "target": TARGET,
            "folder": str(place),
            "at": None,
            "mode": "kill",
            "only": None,
            "arguments": arguments,
        }
        while True:
            ended = run_forked(LIVE, given, place, name=f"process{died}", seconds=drawn.uniform(0.05, 0.5 + died))
            if ended.code != -signal.SIGALRM:
                break
            died += 1
            note(place / DIARY, {"crashed": "a moment", "written": None})
        error = ended.output if ended.code else ""
        result = (ended.result or {}).get("result")
        trials.append(Trial((), ("a moment",) * died, place, result, (), 0.0, 0.0, error))
    return judge(whole, trials)


def judge(whole: Trial, trials: Sequence[Trial]) -> Figures:
    """The figures of trials against the undisturbed run."""
    ended = [trial for trial in trials if not trial.error]
    problems = [f"{trial.point} {trial.died}: did not end: {trial.error[-2000:]}" for trial in trials if trial.error]
    counts: dict[str, int] = dict.fromkeys(("doubled", "lost", "unlike", "asked_twice", "needless"), 0)
    for trial in ended:
        found = {
            "doubled": doubled_writes(trial.result["effects"], whole.result["effects"]),
            "lost": lost_effects(trial.result["effects"], whole.result["effects"]),
            "unlike": differences(trial.result["ending"], whole.result["ending"])[:1],
            "asked_twice": asked_again(trial.diary),
            "needless": [question for question in _about_effects(trial) if not _is_unsure(question)],
        }
        for name, lines in found.items():
            counts[name] += len(lines)
            problems += [f"{trial.point} {trial.died}: {name}: {line}" for line in lines]
    picked = [trial.pick_up for trial in ended if trial.pick_up]
    return Figures(
        trials=len(trials),
        deaths=sum(len(trial.died) for trial in trials),
        **{**counts, "unlike": counts["unlike"] + len(trials) - len(ended)},
        silent=sum(not trial.died and not trial.error for trial in trials),
        asked=sum(len(_about_effects(trial)) for trial in trials),
        again=sum(_given_again(trial) for trial in trials),
        pick_up=round(statistics.median(picked), 3) if picked else 0.0,
        slowest=round(max(picked, default=0.0), 3),
        places=dict(Counter(_place(boundary) for trial in trials for boundary in trial.died)),
        problems=tuple(problems),
    )


def _place(boundary: str) -> str:
    if boundary in ("model", "back-off", "a moment"):
        return boundary
    if boundary in ("open", "close"):
        return "nothing"
    return "tool" if boundary.endswith((".before", ".inside", ".after")) else "storage"


def _about_effects(trial: Trial) -> list[str]:
    """The questions about effects, each pause once."""
    asked = [row["asked"] for row in trial.diary if "asked" in row]
    return list({one["id"]: one["question"] for one in asked if one["kind"] == "effect"}.values())


def _is_unsure(question: str) -> bool:
    return any(f"call {name}(" in question for name in UNSURE)


def _given_again(trial: Trial) -> int:
    ids = [row["asked"]["id"] for row in trial.diary if "asked" in row]
    return len(ids) - len(set(ids))


def in_a_row(deaths: int, count: int, seed: int = SEED) -> Callable[[Trial], list[Point]]:
    """Draws points for so many deaths in a row: each process dies while it goes on with the work of the one before."""

    def draw(whole: Trial) -> list[Point]:
        drawn = random.Random(f"{seed} {deaths}")
        points: list[Point] = []
        for _ in range(count):
            left, point = len(whole.trace), []
            for _ in range(deaths):
                point.append(drawn.randint(1, max(2, left - 10)))
                left -= point[-1]
            points.append(tuple(point))
        return points

    return draw
