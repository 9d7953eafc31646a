"""The page docs/faults.md: the table of all figures, and a section per fault."""

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from string import Template

from benchmarks.faults.figures import SEED, Figure, Measured
from benchmarks.report import table

TEMPLATE = Path(__file__).with_name("page.md")
NAMES = ("storage", "models", "provider", "tools", "plans", "tamper", "escapes", "injection", "recorded")
"""The sections of the page, in the order of the faults."""


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
