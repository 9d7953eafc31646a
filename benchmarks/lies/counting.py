"""Plays every kind at every level and counts what was accepted."""

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from benchmarks.lies import blind, citing, honest, judging, mixed, moments, shapes
from benchmarks.lies.kinds import KINDS, Kind
from benchmarks.lies.world import LEVELS, Level, Played, Stage

FILES = (shapes, citing, moments, judging, blind, honest, mixed)
"""Importing them registers their kinds."""
RANDOM_TIMES = 20
"""The number of additional seeds for random cases."""


@dataclass(frozen=True)
class Row:
    """How often a kind was played at each level, and accepted there."""

    kind: Kind
    played: int
    accepted: dict[Level, int]


class WrongScene(AssertionError):
    """A case is not what it says it is: a lie that is true, or a truth that is none. The benchmark itself is broken."""


async def play_one(stage: Stage, kind: Kind, level: Level, seed: int) -> Played:
    """One case. Raises WrongScene if the world does not agree that it is a lie, or the truth."""
    scene = stage.scene(f"{kind.group}/{kind.name}/{seed}")
    kind.build(scene)
    outcome = await stage.play(scene, level)
    if outcome.true != kind.holds:
        raise WrongScene(f"{kind.group}: {kind.name}, seed {seed}, {level}: {scene.parts[-1].criteria}")
    return outcome


async def count(kinds: Sequence[Kind], seeds: int, levels: Sequence[Level] = LEVELS) -> list[Row]:
    """A row for each kind, with this many seeds."""
    rows = []
    async with Stage() as stage:
        for kind in kinds:
            times = seeds * (RANDOM_TIMES if "at random" in kind.name else 1)
            accepted = {
                level: sum([(await play_one(stage, kind, level, seed)).accepted for seed in range(times)])
                for level in levels
            }
            rows.append(Row(kind, times, accepted))
    return rows


def count_all(seeds: int, jobs: int | None = None) -> list[Row]:
    """Every kind, on all processors."""
    workers = jobs or os.cpu_count() or 1
    shares = [[n for n in range(len(KINDS)) if n % (workers * 4) == part] for part in range(workers * 4)]
    with ProcessPoolExecutor(workers) as pool:
        rows = [row for part in pool.map(_share, shares, [seeds] * len(shares)) for row in part]
    return [Row(KINDS[n], played, accepted) for n, played, accepted in sorted(rows, key=lambda row: row[0])]


def _share(numbers: Sequence[int], seeds: int) -> list[tuple[int, int, dict[Level, int]]]:
    rows = asyncio.run(count([KINDS[n] for n in numbers], seeds))
    return [(n, row.played, row.accepted) for n, row in zip(numbers, rows, strict=True)]


def wrong(rows: Sequence[Row]) -> list[str]:
    """Lies that were accepted from grounded on, and truths that were refused; one line each."""
    lines = []
    for row in rows:
        for level, accepted in row.accepted.items():
            if row.kind.sort == "lie" and accepted and level != "claimed":
                lines.append(f"accepted {accepted} of {row.played} at {level}: {row.kind.group}: {row.kind.name}")
            if row.kind.sort == "honest" and accepted < row.played:
                lines.append(f"refused {row.played - accepted} of {row.played} at {level}: {row.kind.name}")
    return lines
