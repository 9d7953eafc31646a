"""The words and tables of docs/reliability.md."""

import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from string import Template
from textwrap import fill
from typing import Any

from benchmarks.answers import Misuse
from benchmarks.frozen import Frozen
from benchmarks.matrix import SEED, Figures
from benchmarks.retail import Score
from benchmarks.workers import Race

TEMPLATE = Path(__file__).with_name("reliability.md")
DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "reliability.md"
PACKAGES = ("langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres")


def write(tables: Mapping[str, str]) -> None:
    """Write docs/reliability.md from the tables of all sections."""
    facts = {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": ", ".join(f"{name} {version(name)}" for name in PACKAGES),
        "machine": f"Python {platform.python_version()} on {platform.system()}, {os.cpu_count()} cores",
        "seed": str(SEED),
    }
    DOCUMENT.write_text(Template(TEMPLATE.read_text("utf-8")).substitute(facts, **tables), "utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; all columns but the first are numbers or short words, to the right."""
    lines = [f"| {' | '.join(head)} |", f"|---|{'--:|' * (len(head) - 1)}"]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def deaths(rows: Sequence[tuple[str, str, Figures]]) -> str:
    """F1, F2, F5."""
    head = ["storage: what was done", "runs", "deaths", "doubled", "lost", "other end", "asked twice", "needless",
            "people asked", "goes on after (median, slowest)"]  # fmt: skip
    cells = [
        (f"{name}: {what}", f.trials, f.deaths, f.doubled, f.lost, f.unlike, f.asked_twice, f.needless, f.asked,
         f"{f.pick_up:.2f} s, {f.slowest:.2f} s" if f.slowest else "–")
        for name, what, f in rows
    ]  # fmt: skip
    total = sum(sum(figures.places.values()) for _, _, figures in rows)
    again = sum(figures.again for _, _, figures in rows)
    note = f"{total} deaths and failures. In {again} of them an answer died with its process before anything of"
    text = f"{note} it was written; the same pause stayed open, and it was given again."
    return f"{table(head, cells)}\n\n{fill(text, 120)}"


def answers(rows: Sequence[tuple[str, Misuse]]) -> str:
    """F3."""
    groups: dict[str, list[Misuse]] = {}
    for _, one in rows:
        groups.setdefault(one.pause, []).append(one)
    cells: list[tuple[Any, ...]] = [
        (pause, len(tried), sum(one.refused for one in tried), sum(one.changed for one in tried))
        for pause, tried in groups.items()
    ]
    kinds = ", ".join(dict.fromkeys(one.what for _, one in rows if " answered before" not in one.what))
    totals = ("all", *(sum(row[n] for row in cells) for n in (1, 2, 3)))
    head = ["while this was asked", "wrong answers", "refused with a typed error", "changed anything"]
    text = f"Tried: {kinds}, and every answer given before, by its id."
    return f"{table(head, [*cells, totals])}\n\n{fill(text, 120)}"


def workers(found: tuple[Sequence[tuple[str, Race]], Sequence[tuple[str, Frozen]]]) -> str:
    """F4."""
    races, stopped = found
    groups: dict[tuple[str, int], list[Race]] = {}
    for name, one in races:
        groups.setdefault((name, one.workers), []).append(one)
    cells = [
        (f"{name}, {count} workers", len(group), sum(one.worked == 1 for one in group),
         sum(sum(n for end, n in one.ends.items() if end in ("ThreadBusy", "StaleAnswer")) for one in group),
         sum(sum(n for end, n in one.ends.items() if end not in ("ThreadBusy", "StaleAnswer")) for one in group),
         sum(len(one.problems) for one in group))
        for (name, count), group in groups.items()
    ]  # fmt: skip
    head = [
        "races",
        "n",
        "exactly one worked",
        "refused in words",
        "returned",
        "doubled, lost or other end",
    ]
    return f"{table(head, cells)}\n\n{_frozen(stopped)}"


def _frozen(stopped: Sequence[tuple[str, Frozen]]) -> str:
    groups: dict[str, list[Frozen]] = {}
    for name, one in stopped:
        what = "in a plain write, its connection lost" if one.cut and one.boundary == "send.before" else (
            "its connection lost" if one.cut else "its connection kept")  # fmt: skip
        groups.setdefault(f"{name}, {what}", []).append(one)
    cells = [
        (what, len(group), _ends(one.second for one in group), _ends(one.thawed for one in group),
         sum(len(one.problems) for one in group))
        for what, group in groups.items()
    ]  # fmt: skip
    return table(["frozen", "n", "second worker", "first one, thawed", "doubled, lost or other end"], cells)


def _ends(ends: Iterable[str]) -> str:
    return ", ".join(f"{count} {end}" for end, count in Counter(ends).items())


def retail(rows: Sequence[tuple[str, Score]]) -> str:
    """Recorded tasks."""
    head = ["tools, what was done", "runs", "deaths", "right", "doubled", "missing", "asked twice", "people asked"]
    cells = [(what, s.runs, s.deaths, s.right, s.doubled, s.missing, s.asked_twice, s.asked) for what, s in rows]
    return table(head, cells)
