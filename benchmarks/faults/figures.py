"""What a measurement gives: figures with their bars, and words for the page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

SEED = 20261121


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


def problems(figures: Iterable[Figure]) -> list[str]:
    """The figures that miss their bar, in words."""
    return [f"{each.fault} {each.what}: {each.figure}, not {each.bar}" for each in figures if not each.held]
