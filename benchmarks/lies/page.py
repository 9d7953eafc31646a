"""The page docs/verification.md: what the levels mean, and the figures of the lie test."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template

from benchmarks.lies.counting import Row
from benchmarks.lies.world import LEVELS

TEMPLATE = Path(__file__).with_name("page.md")


def page(rows: Sequence[Row], work: str) -> str:
    """The page, from the rows of a count, and a table of the honest work that was played beside."""
    lies, blind, refused = _sorts(rows)
    figures = {
        "work": work,
        "last": min(row.played for row in rows) - 1,
        "lies": sum(row.played for row in lies),
        "lie_kinds": len(lies),
        "honest": sum(row.played for row in refused),
        "honest_kinds": len(refused),
        "groups": _table("lies", _groups(lies)),
        "blind": _kinds("seen by", blind),
        "honest_sum": _table("honest claims", [_sum("**all**", refused)]),
    }
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(figures)


def every_kind(rows: Sequence[Row]) -> str:
    """Every kind of lie, and of honest claim."""
    lies, _, refused = _sorts(rows)
    return f"{_kinds('lies about', lies)}\n{_kinds('', refused)}"


def _sorts(rows: Sequence[Row]) -> tuple[list[Row], list[Row], list[Row]]:
    """The lies, those that a level cannot see, and the honest claims, counted where they were refused."""
    lies, blind, honest = ([row for row in rows if row.kind.sort == sort] for sort in ("lie", "blind", "honest"))
    return lies, blind, [_refused(row) for row in honest]


def _refused(row: Row) -> Row:
    return Row(row.kind, row.played, {level: row.played - accepted for level, accepted in row.accepted.items()})


def _groups(rows: Sequence[Row]) -> list[tuple[str, int, dict[str, int]]]:
    names = dict.fromkeys(row.kind.group for row in rows)
    sums = [_sum(name, [row for row in rows if row.kind.group == name]) for name in names]
    return [*sums, _sum("**all**", rows)]


def _sum(name: str, rows: Sequence[Row]) -> tuple[str, int, dict[str, int]]:
    return (
        name,
        sum(row.played for row in rows),
        {level: sum(row.accepted[level] for row in rows) for level in LEVELS},
    )


def _table(title: str, lines: Iterable[tuple[str, int, dict[str, int]]]) -> str:
    head = f"| {title} | n | {' | '.join(LEVELS)} |\n|---|{'---:|' * (len(LEVELS) + 1)}\n"
    rows = (f"| {name} | {n} | {' | '.join(str(counts[level]) for level in LEVELS)} |\n" for name, n, counts in lines)
    return head + "".join(rows)


def _kinds(first: str, rows: Sequence[Row]) -> str:
    """Write one line for all claims of a group that were played as often, with the same counts."""
    alike: dict[tuple[str | int, ...], list[str]] = {}
    for row in rows:
        counts = (row.accepted[level] for level in LEVELS)
        alike.setdefault((row.kind.seen_by or row.kind.group, row.played, *counts), []).append(row.kind.name)
    head = f"| {first} | n each | {' | '.join(LEVELS)} | claims |\n"
    rule = f"|---|{'---:|' * (len(LEVELS) + 1)}---|\n"
    lines = (f"| {' | '.join(map(str, cells))} | {'; '.join(names)} |\n" for cells, names in alike.items())
    return head + rule + "".join(lines)
