"""docs/performance.md: tables and goals of what was measured, and what is said about it in `notes.md`."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
NOTES = Path(__file__).parent / "notes.md"
OURS, LANGGRAPH, CREATE_AGENT = "donewhen", "LangGraph", "create_agent"
Measured = Mapping[tuple[str, str, int], Sequence[Mapping[str, float]]]
"""(peer, scenario, n) → what was measured in each turn."""


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    label: str
    scenario: str
    n: int
    key: str
    against: str = CREATE_AGENT
    """The peer that ours is divided by."""


@dataclass(frozen=True)
class Table:
    """One table of all peers that have something in it."""

    title: str
    said: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Goal:
    """An aim, and the ratios or figures that say whether it is reached."""

    text: str
    parts: Sequence[tuple[str, Row | tuple[Row, Row], float]]
    """What it is about, a row to compare or two of ours to divide, and the most that was aimed at."""
    unit: str = " ×"


def _of(scenario: str, n: int, key: str = "ms", against: str = CREATE_AGENT) -> Row:
    return Row("", scenario, n, key, against)


def _rounds(label: str, scenario: str, *counts: int) -> list[Row]:
    return [Row(f"{n} rounds {label}", scenario, n, "ms") for n in counts]


TABLES = (
    Table(
        "A loop of model calls",
        "CPU milliseconds per round. The model answers at once and results have 500 characters. Ours also plans, "
        "proves and accounts. Its audit, one more model call, is off.",
        [
            *_rounds("in memory, with a memory saver", "rounds", 10, 50, 200),
            *_rounds("in memory, peers without any saver", "unsaved", 10, 200),
            *_rounds("in memory, a tool that writes", "writes", 10, 200),
            *_rounds("durably on SQLite", "durable", 10, 50, 200),
            *_rounds("durably, a tool that writes", "durable_writes", 10, 200),
            *_rounds("on SQLite, create_agent as it is by default", "sqlite", 10, 200),
        ],
    ),
    Table(
        "A conversation of 300 turns",
        "Each question is answered at once. CPU milliseconds per turn, the mean of twenty turns; durably on SQLite.",
        [
            Row("turns 11 to 30 on SQLite", "talk", 300, "first"),
            Row("turns 281 to 300", "talk", 300, "last"),
            Row("stored, KB a turn", "talk", 300, "kb"),
            Row("turns 11 to 30 in memory", "talk_memory", 300, "first"),
            Row("turns 281 to 300", "talk_memory", 300, "last"),
        ],
    ),
    Table(
        "Storage, prompts and memory",
        "Megabytes. Prompts are all requests of 200 rounds in one conversation. Providers cache repeated beginnings.",
        [
            Row("stored, 10 rounds", "sqlite", 10, "mb"),
            Row("stored, 200 rounds", "sqlite", 200, "mb"),
            Row("stored, 200 rounds of a tool that writes", "durable_writes", 200, "mb"),
            Row("prompts, 200 rounds", "prompts", 200, "mb"),
            Row("of these a repeated beginning", "prompts", 200, "same"),
            Row("memory, 50 rounds", "memory", 50, "mb"),
            Row("memory, 500 rounds", "memory", 500, "mb"),
        ],
    ),
    Table(
        "Waiting times",
        "Cold start is the CPU time of a new process until its first request, in our environment. Resuming starts with "
        "opening the file. For texts, the first piece of the second reply is measured.",
        [
            Row("cold start, ms", "cold", 0, "ms", LANGGRAPH),
            Row("resume after 10 rounds, ms", "resumed", 10, "ms"),
            Row("resume after 1000 rounds, ms", "resumed", 1000, "ms"),
            Row("the first word of a text, ms after the model's", "token", 0, "plain"),
            Row("the first word inside a tool argument, ms", "token", 0, "argument"),
            Row("4 side by side, s (0.4 is ideal)", "sides", 4, "s", LANGGRAPH),
            Row("16 side by side, s", "sides", 16, "s", LANGGRAPH),
            Row("`donewhen --help`, ms CPU", "help", 0, "ms"),
        ],
    ),
    Table(
        "200 rounds in 20 chained steps of 10, durably",
        "Peers have no steps. Their 200 rounds are above.",
        [
            Row("CPU ms a round", "steps", 200, "ms"),
            Row("stored, MB", "steps", 200, "mb"),
            Row("prompts, MB", "steps", 200, "prompts_mb"),
            Row("of these a repeated beginning", "steps", 200, "same"),
        ],
    ),
)
QUESTIONS = ("sums by region", "rows of one product")
GOALS = (
    Goal(
        "in memory, beside create_agent with its memory saver",
        [("10 rounds", _of("rounds", 10), 1.0), ("200", _of("rounds", 200), 0.7)],
    ),
    Goal(
        "in memory, beside create_agent without a saver",
        [("10 rounds", _of("unsaved", 10), 1.0), ("200", _of("unsaved", 200), 1.0)],
    ),
    Goal(
        "durably on SQLite, beside create_agent durably",
        [("10 rounds", _of("durable", 10), 1.0), ("200", _of("durable", 200), 0.5)],
    ),
    Goal(
        "the same with a tool that writes",
        [("10 rounds", _of("durable_writes", 10), 1.0), ("200", _of("durable_writes", 200), 0.5)],
    ),
    Goal(
        "a turn costs the same at 300 as at 10",
        [
            ("on SQLite", (_of("talk", 300, "last"), _of("talk", 300, "first")), 1.5),
            ("in memory", (_of("talk_memory", 300, "last"), _of("talk_memory", 300, "first")), 1.5),
        ],
    ),
    Goal("stored, KB a turn", [("300 turns", _of("talk", 300, "kb", ""), 45)], ""),
    Goal(
        "stored, MB",
        [
            ("200 rounds", _of("durable", 200, "mb", ""), 1.0),
            ("that write", _of("durable_writes", 200, "mb", ""), 1.0),
        ],
        "",
    ),
    Goal("prompts of 20 steps of 10 rounds, MB", [("all", _of("steps", 200, "prompts_mb", ""), 4.0)], ""),
    Goal("cold start, beside a LangGraph loop", [("in one environment", _of("cold", 0, "ms", LANGGRAPH), 1.05)]),
    Goal(
        "first word behind the model's, ms",
        [("text", _of("token", 0, "plain", ""), 2.0), ("in an argument", _of("token", 0, "argument", ""), 2.0)],
        "",
    ),
    Goal("4 steps side by side, s", [("0.4 is ideal", _of("sides", 4, "s", ""), 0.44)], ""),
    Goal(
        "resuming after 1000 rounds, beside after 10",
        [("CPU", (_of("resumed", 1000, "ms"), _of("resumed", 10, "ms")), 1.2)],
    ),
    Goal(
        "a first question about a CSV file, beside plain DuckDB",
        [
            (
                f"{mb} MB, {name}",
                (_of("data", mb, f"{name}, first"), _of("data", mb, f"{name}, plain")),
                3.0,
            )
            for mb in (200, 1000)
            for name in QUESTIONS
        ],
    ),
    Goal("1 GB of CSV described, s", [("elapsed", _of("data", 1000, "described, elapsed", ""), 20)], ""),
)
HEAD = """# How fast it is

DoneWhen and its alternatives, measured in turns on one machine in one run of `make bench`. Each figure is the best of
{times} turns. Compare rows with each other, not with other machines: {machine}, Python {python}, {day}. The last column
divides DoneWhen's figure by the named peer's of the same turn: the median, and in parentheses the least and the most,
which is the noise that another run has to agree within. The scenarios are in `benchmarks/bench/peers`. The machine's
load was {load:.1f} on {cores} cores, 1 of it by the measurement itself.

"""


def write_page(measured: Measured, peers: Sequence[str], times: int) -> None:
    """Write the page."""
    about: dict[str, Any] = {"load": os.getloadavg()[2], "cores": os.cpu_count()}
    about |= {"machine": f"{platform.machine()}, {platform.system()}", "python": platform.python_version()}
    text = HEAD.format(times=times, day=f"{datetime.now(UTC):%Y-%m-%d}", **about)
    text += "## Aims\n\n| | at most | measured |\n|---|---|---|\n"
    text += "".join(_goal_line(measured, goal) for goal in GOALS)
    for table in TABLES:
        text += f"\n## {table.title}\n\n{table.said}\n\n{_table(measured, table, peers)}"
    text += f"\n## Data files\n\n{_data_table(measured)}"
    PAGE.write_text(f"{text}\n{NOTES.read_text(encoding='utf-8')}", encoding="utf-8")


def _table(measured: Measured, table: Table, peers: Sequence[str]) -> str:
    shown = [peer for peer in peers if any(_value(measured, peer, row) is not None for row in table.rows)]
    compared = any(_ratio(measured, row) for row in table.rows)
    heads = [*shown, *(["ours ÷"] if compared else [])]
    lines = [f"| | {' | '.join(heads)} |", f"|{'---|' * (len(heads) + 1)}"]
    for row in table.rows:
        cells = [_figure(_value(measured, peer, row)) for peer in shown]
        lines.append(f"| {row.label} | {' | '.join([*cells, *([_ratio(measured, row)] if compared else [])])} |")
    return "\n".join(lines) + "\n"


def _data_table(measured: Measured) -> str:
    lines = [
        "CPU seconds for questions about a CSV file of seven columns, and for its description, each in a process;",
        "the best of three. The first question reads all values of the columns it names; later ones do not.",
        "",
        "| | plain DuckDB | first | later |",
        "|---|---|---|---|",
    ]
    for mb in (200, 1000):
        (found,) = measured.get((OURS, "data", mb)) or [{}]
        for name in QUESTIONS if found else ():
            plain = found[f"{name}, plain"]
            cells = [
                f"{found[f'{name}, {what}']:.2f}, {found[f'{name}, {what}'] / plain:.2f} ×"
                for what in ("first", "later")
            ]
            lines.append(f"| {name}, {mb} MB | {plain:.2f} | {' | '.join(cells)} |")
        if found:
            clock = f"{found['described']:.2f}, {found['described, elapsed']:.1f} elapsed"
            lines.append(f"| described, {mb} MB | – | {clock} | {found['described again']:.2f} |")
    return "\n".join(lines) + "\n"


def _goal_line(measured: Measured, goal: Goal) -> str:
    aims, found = list[str](), list[str]()
    for what, rows, most in goal.parts:
        pair = rows if isinstance(rows, tuple) else (rows, rows)
        below = OURS if isinstance(rows, tuple) else pair[1].against
        ratios = _ratios(measured, OURS, pair[0], below, pair[1])
        value = median(ratios) if ratios else None if below else _value(measured, OURS, pair[0])
        if value is not None:
            said = "yes" if value <= most else "no"
            aims.append(f"{most:g}{goal.unit}")
            found.append(f"{what}: {_figure(value)}{goal.unit}{_range(ratios)}, {said}")
    return f"| {goal.text} | {', '.join(dict.fromkeys(aims))} | {'; '.join(found)} |\n" if found else ""


def _value(measured: Measured, peer: str, row: Row) -> float | None:
    """Return the best of all turns."""
    return min(
        (turn[row.key] for turn in measured.get((peer, row.scenario, row.n), ()) if row.key in turn), default=None
    )


def _ratio(measured: Measured, row: Row) -> str:
    ratios = _ratios(measured, OURS, row, row.against, row) if row.key != "same" else []
    return f"{_figure(median(ratios))} ×{_range(ratios)} {row.against}" if ratios else ""


def _ratios(measured: Measured, ours: str, above: Row, theirs: str, below: Row) -> list[float]:
    """Return one figure divided by another for each turn; [] if one of them was not measured."""
    left, right = (
        [turn.get(row.key) for turn in measured.get((peer, row.scenario, row.n), ())]
        for peer, row in ((ours, above), (theirs, below))
    )
    return [one / other for one, other in zip(left, right, strict=False) if one and other]


def _range(ratios: Sequence[float]) -> str:
    """Return the least and the most of several turns."""
    least, most = (_figure(value) for value in (min(ratios, default=0), max(ratios, default=0)))
    return f" ({least}–{most})" if least != most else ""


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
