"""F1, F2 and F5 of the scenario: processes killed at its boundaries, operations that fail, and what came of it."""

import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.testing import Trial, asked_again, kill_everywhere
from agent.testing.comparing import differences, doubled, lost
from agent.testing.crash import Mode, tool_boundaries
from agent.testing.everywhere import Point
from agent.testing.forks import ForkServer
from benchmarks.scenario import UNSURE

Points = Iterable[Point] | Callable[[Trial], Iterable[Point]]
TARGET = "benchmarks.scenario:scenario"
TOOLS = [
    boundary for name in ("look", "save", "book", "send", "charge", "refund") for boundary in tool_boundaries(name)
]
OPERATIONS = ["put", "put.done", "put_writes", "put_writes.done", "store", "store.done"]
SEED = 20261121


@dataclass(frozen=True)
class Figures:
    """What a series of trials came to; everything from `doubled` to `silent` should be 0."""

    trials: int
    deaths: int
    """Of processes, or operations that failed."""
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
    problems: tuple[str, ...]


def killed(
    folder: Path,
    storage: str = "",
    *,
    points: Points | None = None,
    only: Sequence[str] | None = None,
    mode: Mode = "kill",
    flaky: str = "",
    servers: Sequence[ForkServer] = (),
) -> Figures:
    """Kill the scenario at `points` (default: everywhere) and compare each run with the undisturbed one."""
    arguments = {"storage": storage, "flaky": flaky}
    whole, *trials = kill_everywhere(
        TARGET, folder, points=points, only=only, mode=mode, arguments=arguments, servers=servers
    )
    if whole.error:
        raise RuntimeError(f"the scenario fails undisturbed:\n{whole.error}")
    return judge(whole, trials)


def judge(whole: Trial, trials: Sequence[Trial]) -> Figures:
    """The figures of trials against the undisturbed run."""
    ended = [trial for trial in trials if not trial.error]
    problems = [f"{trial.point} {trial.died}: did not end: {trial.error[-2000:]}" for trial in trials if trial.error]
    counts: dict[str, int] = dict.fromkeys(("doubled", "lost", "unlike", "asked_twice", "needless"), 0)
    for trial in ended:
        found = {
            "doubled": doubled(trial.result["effects"], whole.result["effects"]),
            "lost": lost(trial.result["effects"], whole.result["effects"]),
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
        problems=tuple(problems),
    )


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


def merged(figures: Sequence[Figures]) -> Figures:
    """Several series as one."""
    summed: dict[str, Any] = {
        name: sum(getattr(one, name) for one in figures)
        for name in (
            "trials",
            "deaths",
            "doubled",
            "lost",
            "unlike",
            "asked_twice",
            "needless",
            "silent",
            "asked",
            "again",
        )
    }
    return Figures(
        **summed,
        pick_up=statistics.median(one.pick_up for one in figures),
        slowest=max(one.slowest for one in figures),
        problems=tuple(problem for one in figures for problem in one.problems),
    )
