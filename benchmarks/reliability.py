"""Measures what a crash, a wrong answer or a second worker can do, and writes docs/reliability.md. Some 20 minutes.

`python -m benchmarks.reliability deaths answers workers retail` measures only what is named and prints its tables. With
`clocks` before `deaths` or `workers`, the clocks of a run's processes are an hour apart.
"""

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.answers import Misuse, misuses
from benchmarks.frozen import BOUNDARIES, Frozen, freeze
from benchmarks.matrix import OPERATIONS, TOOLS, Figures, at_moments, in_a_row, killed
from benchmarks.retail import Score, Way, score
from benchmarks.retail_world import FULL
from benchmarks.scenario import APART
from benchmarks.workers import MOMENTS, Race, race, undisturbed
from tests.kit.storage.servers import fresh_postgres_url

CORES = 2
ROUNDS = 3
"""Races of each kind."""
WAYS = (("clean", 0.0, 0), ("killed 5 times each", 0.0, 5), ("killed 3 times each, 30 % of calls fail", 0.3, 3))
"""The ways to run recorded tasks: name, share of failing calls, deaths."""
Json = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """The place of measurements: a folder in memory, and the storages."""

    folder: Path
    storages: Mapping[str, str]
    """Name → URL; "": a SQLite file per run."""

    def fresh(self) -> Path:
        """A new folder."""
        return Path(tempfile.mkdtemp(dir=self.folder))

    def told(self, what: str, work: Callable[[], Any]) -> Any:
        """Do the work, and say on standard error how long it took and what went wrong."""
        started = time.monotonic()
        result = work()
        print(f"{time.monotonic() - started:6.0f} s  {what}", file=sys.stderr, flush=True)
        for problem in getattr(result, "problems", ()):
            print(f"          {problem}", file=sys.stderr, flush=True)
        return result


def deaths(bench: Bench) -> list[tuple[str, str, Figures]]:
    """F1, F2, F5: rows of storage, what was done, and what came of it."""
    rows = []
    for name, storage in bench.storages.items():
        count = 50 if _is_server(storage) else 100
        ways: list[tuple[str, Json]] = [
            ("killed at every boundary", {}),
            ("killed twice in a row, drawn", {"points": in_a_row(2, count)}),
            ("killed three times in a row, drawn", {"points": in_a_row(3, count // 2)}),
            ("killed twice around tools, drawn", {"points": in_a_row(2, count // 2), "only": TOOLS}),
            *((f"killed in a back-off of {who}", _backing_off(who)) for who in ("triage", "s3", "deliver")),
            ("every operation fails", {"only": OPERATIONS, "mode": "raise"}),
        ]
        if not storage.startswith(APART):
            apart = {"points": in_a_row(3, count // 2), "storage": APART + storage}
            ways.append(("killed three times in a row, clocks an hour apart", apart))
        for what, options in ways:
            given = {"side_by_side": CORES, "storage": storage, **options}
            found = bench.told(f"{name}: {what}", partial(killed, bench.fresh(), **given))
            rows.append((name, what, found))
        what = "killed at moments drawn by lot until it ended"
        work = partial(at_moments, bench.fresh(), count // 2, storage)
        rows.append((name, what, bench.told(f"{name}: {what}", work)))
    what = "killed three times in a row, drawn"
    given = {"points": in_a_row(3, 25), "side_by_side": CORES}
    found = bench.told(f"sealed SQLite: {what}", partial(killed, bench.fresh(), "sealed", **given))
    return [*rows, ("SQLite, encrypted", what, found)]


def _is_server(storage: str) -> bool:
    return bool(storage.removeprefix(APART))


def _backing_off(who: str) -> Json:
    return {"points": [1, (1, 1)], "only": ["back-off"], "flaky": who}


def answers(bench: Bench) -> list[tuple[str, Misuse]]:
    """F3: every wrong answer, at a pause of every kind and after the end."""
    found = []
    for name, storage in bench.storages.items():
        tried = bench.told(f"{name}: wrong answers", partial(asyncio.run, misuses(bench.fresh(), storage)))
        found += [(name, one) for one in tried]
    return found


def workers(bench: Bench) -> tuple[list[tuple[str, Race]], list[tuple[str, Frozen]]]:
    """F4: races of 2, 8 and 32 workers, and frozen ones."""
    races: list[tuple[str, Race]] = []
    stopped: list[tuple[str, Frozen]] = []
    for name, storage in bench.storages.items():
        like = undisturbed(bench.fresh(), storage)
        for moment in MOMENTS:
            for count in (2, 8, 32):
                work = partial(_races, bench, moment, count, like, storage)
                races += [(name, one) for one in bench.told(f"{name}: {count} workers, {moment}", work)]
        cuts = (False, True) if _is_server(storage) else (False,)
        stopped += [(name, freeze(bench.fresh(), b, like, storage, cut=c)) for c in cuts for b in BOUNDARIES]
        if _is_server(storage):
            stopped.append((name, freeze(bench.fresh(), "send.before", like, storage, cut=True)))
    return races, stopped


def _races(bench: Bench, moment: str, count: int, like: Json, storage: str) -> list[Race]:
    return [race(bench.fresh(), moment, count, like, storage) for _ in range(ROUNDS)]


def retail(bench: Bench) -> list[tuple[str, Score]]:
    """The recorded tasks: clean, killed, and with tools that fail."""
    rows = []
    for keyed in (False, True):
        kind = "tools that take a key" if keyed else "plain tools"
        for what, errors, times in WAYS:
            way = Way(keyed, errors, full=FULL.exists())
            work = partial(score, bench.fresh(), way, times, side_by_side=CORES)
            rows.append((f"{kind}, {what}", bench.told(f"retail: {kind}, {what}", work)))
    return rows


SECTIONS: dict[str, tuple[Callable[[Bench], Any], Callable[[Any], str]]] = {
    "deaths": (deaths, report.deaths),
    "answers": (answers, report.answers),
    "workers": (workers, report.workers),
    "retail": (retail, report.retail),
}


def main(names: Sequence[str]) -> None:
    """Measure the sections that are named and print them; without names all, and write the document."""
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(dir=where))
    try:
        # The server may lose its last commits if it dies; only its clients die here.
        storages = {"SQLite": "", "PostgreSQL": f"{fresh_postgres_url()}&options=-csynchronous_commit%3Doff"}
        if "clocks" in names:
            storages = {f"{name}, clocks an hour apart": APART + storage for name, storage in storages.items()}
            names = [name for name in names if name != "clocks"] or ["deaths", "workers"]
        bench = Bench(folder, storages)
        tables = {name: SECTIONS[name][1](SECTIONS[name][0](bench)) for name in names or SECTIONS}
    finally:
        shutil.rmtree(folder)
    if names:
        print("\n\n".join(tables.values()))
    else:
        report.write(tables)


if __name__ == "__main__":
    main(sys.argv[1:])
