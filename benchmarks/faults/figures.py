"""The results of measurements, figures with their bars and words; and the page docs/faults.md."""

import asyncio
import importlib
import logging
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from string import Template

from benchmarks.report import table

SEED = 20261121
TEMPLATE = Path(__file__).with_name("page.md")
NAMES = ("storage", "models", "provider", "tools", "plans", "tamper", "escapes", "injection", "recorded")
"""The sections of the page, in the order of the faults."""


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    fault: str
    """As `F10`."""
    what: str
    n: int
    figure: str
    bar: str
    held: bool


@dataclass(frozen=True)
class Measured:
    """One fault, measured."""

    figures: Sequence[Figure]
    told: str = ""
    """Markdown for the fault's own section of the page: what ended how."""


def of(fault: str, what: str, n: int, good: int, share: float = 1.0, words: str = "") -> Figure:
    """So many of `n` went well; at least this share has to."""
    bar = "all" if share == 1 else f"≥ {share:.0%}"
    figure = f"{good} of {n}" if good == n or n < 50 else f"{good} of {n} ({good / n:.1%})"
    return Figure(fault, what, n, f"{figure} {words}".rstrip(), bar, n > 0 and good >= share * n)


def none(fault: str, what: str, n: int, bad: int) -> Figure:
    """Nothing of this kind may happen in `n` tries."""
    return Figure(fault, what, n, str(bad), "0", n > 0 and bad == 0)


def counted(counts: Mapping[str, int]) -> str:
    """`3 a, 1 b`: the most frequent first."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda each: -each[1]))


def others(ends: Mapping[str, Mapping[str, int]]) -> str:
    """Say how the runs ended that were not completed, by what they had to bear."""
    rest = {name: counted({end: n for end, n in of.items() if end != "completed worked"}) for name, of in ends.items()}
    return f"Runs that were not completed: {'; '.join(f'{of} ({name})' for name, of in rest.items() if of) or 'none'}."


def problems(figures: Iterable[Figure]) -> list[str]:
    """The figures that miss their bar, in words."""
    return [f"{each.fault} {each.what}: {each.figure}, not {each.bar}" for each in figures if not each.held]


def page(found: Mapping[str, Measured]) -> str:
    """The page, from what was measured."""
    told = {name: found[name].told if name in found else "Not measured yet." for name in NAMES}
    facts = {
        "seed": str(SEED),
        "machine": f"Python {platform.python_version()} on {platform.system()}, {os.cpu_count()} cores",
        "version": version("langgraph"),
        "figures": figures([each for name in NAMES if name in found for each in found[name].figures]),
    }
    return Template(TEMPLATE.read_text("utf-8")).substitute(facts, **told)


def figures(found: list[Figure]) -> str:
    """The table: fault, n, figure, bar."""
    rows = [(f"{each.fault} {each.what}", f"{each.n:,}", _marked(each), each.bar) for each in found]
    return table(["fault", "n", "figure", "bar"], rows)


def _marked(each: Figure) -> str:
    return each.figure if each.held else f"**{each.figure}** (missed)"


def measure(name: str) -> tuple[str, Measured]:
    """The name, and what its module measured in a folder that needs no disk."""
    os.environ["LANGSMITH_TRACING"] = "false"
    logging.disable(logging.CRITICAL)  # the faults are meant, and the page says what came of them
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    started = time.monotonic()
    try:
        found = asyncio.run(importlib.import_module(f"benchmarks.faults.{name}").collect(folder))
    finally:
        shutil.rmtree(folder)
    print(f"{time.monotonic() - started:6.0f} s  {name}", file=sys.stderr, flush=True)
    return name, found
