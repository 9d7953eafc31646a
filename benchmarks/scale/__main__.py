"""Kill, freeze, cut off and restart under load; a crowd; how it grows: `make scale` writes docs/scale.md.

`python -m benchmarks.scale killed crowd` measures these parts only; what was measured of the others before stays.
"""

import asyncio
import json
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from benchmarks.scale.cases import Outcome, cut_off, frozen, killed, restarted, restarting, run_attack, terminating
from benchmarks.scale.crowd import crowd
from benchmarks.scale.growth import begun_seconds, grown, look_seconds, with_waiting
from benchmarks.scale.load import measure_load
from tests.kit.storage.servers import fresh_postgres_url

PAGE, MEASURED = Path("docs/scale.md"), Path(__file__).with_name("measured.json")
KINDS = ("SQLite", "PostgreSQL")
SIZES = [1_000, 10_000, 100_000]
WAITING = 10_000
Row = dict[str, str]


def attack(kind: str, runs: int, made: Callable[[str], Any]) -> Outcome:
    """The attack, made for a URL, on a database of its own."""
    with _place(kind) as (url, folder):
        return run_attack(url, folder, runs, made(url))


def _told(one: Outcome) -> Row:
    return {
        "completed": f"{one.completed} of {one.runs}",
        "charged": f"{one.charged} of {10 * one.runs}",
        "doubled": str(one.doubled),
        "forked": str(one.forked),
        "taken over after": "–" if one.taken_over is None else f"{one.taken_over:.1f} s",
        "all done after": f"{one.seconds:.0f} s",
    }


def growth(kind: str) -> dict[str, Row]:
    """A row per verb."""
    with _place(kind) as (url, folder):
        found = asyncio.run(grown(url, folder, SIZES))
    return {
        f"{kind} {verb}": {f"{size:,}": f"{ms:.0f}" for size, ms in zip(SIZES, each, strict=True)}
        for verb, each in found.items()
    }


def idle(kind: str) -> Row:
    """Measure a poll, and the time until queued work starts."""
    with _place(kind) as (url, _):
        before = asyncio.run(look_seconds(url))
        asyncio.run(with_waiting(url, WAITING))
        after, begun = asyncio.run(look_seconds(url)), asyncio.run(begun_seconds(url))
    return {
        "a look, none": f"{1000 * before:.1f} ms",
        f"a look, {WAITING:,}": f"{1000 * after:.1f} ms",
        "from submit to the first request": f"{1000 * begun:.0f} ms",
    }


def measure_crowd(kind: str, runs: int, each: int) -> Row:
    """A thousand at once."""
    with _place(kind) as (url, folder):
        return {"at work at once": str(4 * each), **crowd(url, folder, runs, each)}


def together(kind: str, runs: int) -> Row:
    """Many in one process, and a plain loop."""
    with _place(kind) as (url, folder):
        return {"at once": str(runs), **measure_load(url, folder, runs)}


def parts(runs: int, many: int) -> dict[str, Callable[[], dict[str, Row]]]:
    """Return the parts that can be measured, by name."""

    def attacks(name: str, made: Callable[[str], Any], kinds: tuple[str, ...]) -> Callable[[], dict[str, Row]]:
        return lambda: {f"{name}, {kind}": _told(attack(kind, runs, made)) for kind in kinds}

    def both(case: Callable[[str], Row]) -> Callable[[], dict[str, Row]]:
        return lambda: {kind: case(kind) for kind in KINDS}

    return {
        "killed": attacks("SIGKILL of one of two workers", lambda _: killed, KINDS),
        "frozen": attacks("frozen 12 s and thawed", lambda _: frozen, KINDS),
        "cut": attacks("frozen, its connections cut, thawed", lambda url: cut_off(terminating(url)), KINDS[1:]),
        "restarted": attacks("database restarted", lambda url: restarted(restarting(url)), KINDS[1:]),
        "crowd": both(lambda kind: measure_crowd(kind, many, 16)),
        "all": lambda: {"SQLite, all at work": measure_crowd("SQLite", many, many // 4)},
        "load": both(lambda kind: together(kind, runs)),
        "idle": both(idle),
        "growth": lambda: growth("SQLite") | growth("PostgreSQL"),
    }


SECTIONS = {
    "attacks": ("what happens", ("killed", "frozen", "cut", "restarted")),
    "looks": ("", ("idle",)),
    "growth": ("", ("growth",)),
}
TURNED = {"crowd": ("crowd", "all"), "load": ("load",)}


def render_page(measured: dict[str, dict[str, Row]]) -> str:
    """The page."""
    found = {
        section: _table(head, {name: row for part in names for name, row in measured.get(part, {}).items()})
        for section, (head, names) in SECTIONS.items()
    }
    found |= {section: _turned(measured, names) for section, names in TURNED.items()}
    when = measured.get("", {}).get("when", {})
    said = ", ".join(sorted({day[:10] for day in when.values()}))
    page = Template((files("benchmarks.scale") / "page.md").read_text("utf-8"))
    return page.substitute(found, waiting=f"{WAITING:,}", when=said)


def _turned(measured: dict[str, dict[str, Row]], names: tuple[str, ...]) -> str:
    """A table with a column for each row."""
    rows = {name: row for part in names for name, row in measured.get(part, {}).items()}
    titles = next(iter(rows.values()), {})
    return _table("", {title: {name: row[title] for name, row in rows.items()} for title in titles})


def _table(head: str, rows: dict[str, Row]) -> str:
    titles = list(next(iter(rows.values()), {}))
    lines = [[head, *titles], ["---"] * (1 + len(titles)), *([name, *row.values()] for name, row in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@contextmanager
def _place(kind: str) -> Iterator[tuple[str, Path]]:
    with tempfile.TemporaryDirectory(prefix="donewhen-scale-") as folder:
        yield (f"sqlite:///{folder}/runs.db" if kind == "SQLite" else fresh_postgres_url()), Path(folder)


def main() -> int:
    """1 if anything was doubled or lost."""
    parser = ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--runs", type=int, default=200, help="under attack, and at once beside a plain loop")
    parser.add_argument("--many", type=int, default=1000, help="in the crowd")
    given = parser.parse_args()
    known = parts(given.runs, given.many)
    measured: dict[str, dict[str, Row]] = json.loads(MEASURED.read_text("utf-8")) if MEASURED.exists() else {}
    for part in given.parts or known:
        print(part, flush=True)
        measured[part] = known[part]()
        measured.setdefault("", {}).setdefault("when", {})[part] = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
        MEASURED.write_text(json.dumps(measured, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        PAGE.write_text(render_page(measured), encoding="utf-8")
        for name, row in measured[part].items():
            print(f"  {name}: {row}", flush=True)
    rows = [(part, row) for part in SECTIONS["attacks"][1] for row in measured.get(part, {}).values()]
    lost = [row for _, row in rows if len(set(row["completed"].split(" of "))) > 1]
    # What was cut off may make the call that was on its way to the tool; the page says so.
    return 1 if lost or any((row["doubled"], row["forked"]) != ("0", "0") for part, row in rows if part != "cut") else 0


if __name__ == "__main__":
    sys.exit(main())
