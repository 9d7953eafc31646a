"""docs/performance.md, from what was measured and what is said about it in `notes.md`."""

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
NOTES = Path(__file__).parent / "notes.md"
Row = Mapping[str, float]
Measured = Mapping[tuple[str, str, int], Row]
TABLES: tuple[tuple[str, str, Sequence[tuple[str, str, int, str]]], ...] = (
    (
        "A loop of model calls",
        "CPU milliseconds a round, with a model that answers at once, and results of 500 characters. Ours plans, "
        "proves and accounts as well; its audit, one more call of a model, is off. In memory, LangGraph and "
        "create_agent have their memory saver, unless it says otherwise.",
        (
            ("10 rounds in memory", "rounds", 10, "ms"),
            ("50", "rounds", 50, "ms"),
            ("200", "rounds", 200, "ms"),
            ("10, create_agent without any saver", "unsaved", 10, "ms"),
            ("50", "unsaved", 50, "ms"),
            ("200", "unsaved", 200, "ms"),
            ("10, with a tool that writes", "writes", 10, "ms"),
            ("50", "writes", 50, "ms"),
            ("200", "writes", 200, "ms"),
            ("10 rounds on SQLite; ours and LangGraph durably", "sqlite", 10, "ms"),
            ("50", "sqlite", 50, "ms"),
            ("200", "sqlite", 200, "ms"),
            ("10, create_agent durably", "durable", 10, "ms"),
            ("50", "durable", 50, "ms"),
            ("200", "durable", 200, "ms"),
            ("10, a tool that writes; ours and create_agent durably", "durable_writes", 10, "ms"),
            ("200", "durable_writes", 200, "ms"),
        ),
    ),
    (
        "A conversation of 300 turns",
        "Each question is answered at once, durably on SQLite. CPU milliseconds a turn, the mean of twenty.",
        (
            ("turns 11 to 30", "talk", 300, "first"),
            ("turns 281 to 300", "talk", 300, "last"),
            ("stored, KB a turn", "talk", 300, "kb"),
        ),
    ),
    (
        "What it leaves and sends",
        "Megabytes. Prompts are all requests of 200 rounds in one conversation; what is the same, providers can cache.",
        (
            ("stored, 10 rounds", "sqlite", 10, "mb"),
            ("stored, 200 rounds", "sqlite", 200, "mb"),
            ("prompts, 200 rounds", "prompts", 200, "mb"),
            ("of these the same as before", "prompts", 200, "same"),
            ("memory, 50 rounds", "memory", 50, "mb"),
            ("memory, 500 rounds", "memory", 500, "mb"),
        ),
    ),
    (
        "What is waited for",
        "Cold start is CPU from nothing to the first request, resuming from opening the file to it.",
        (
            ("cold start, ms", "cold", 0, "ms"),
            ("resume after 10 rounds, ms", "resumed", 10, "ms"),
            ("resume after 1000 rounds, ms", "resumed", 1000, "ms"),
            ("the first word of a text, ms after the model's", "token", 0, "plain"),
            ("the first word inside a tool argument, ms", "token", 0, "argument"),
            ("4 side by side, s (0.4 is ideal)", "sides", 4, "s"),
            ("16 side by side, s", "sides", 16, "s"),
            ("`donewhen --help`, ms CPU", "help", 0, "ms"),
        ),
    ),
    (
        "200 rounds in 20 chained steps of 10, durably",
        "Peers have no steps; their 200 rounds are above.",
        (
            ("CPU ms a round", "steps", 200, "ms"),
            ("stored, MB", "steps", 200, "mb"),
            ("prompts, MB", "steps", 200, "prompts_mb"),
            ("of these the same as before", "steps", 200, "same"),
        ),
    ),
)
HEAD = """# How fast it is

DoneWhen beside what one would take instead, all on one machine, taking turns, in one run of `make bench`; the best of
{times}. Compare rows, not absolutes: {machine}, Python {python}, {day}. The scenarios are in `benchmarks/bench/peers`.

"""


def _cell(row: Row, key: str) -> str:
    if key not in row:
        return "–"
    value = row[key]
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def written(best: Measured, peers: Sequence[str], times: int = 3) -> None:
    """Write the page."""
    about = {"machine": f"{platform.machine()}, {platform.system()}", "python": platform.python_version()}
    text = HEAD.format(times=times, day=f"{datetime.now(UTC):%Y-%m-%d}", **about)
    for title, said, rows in TABLES:
        shown = [peer for peer in peers if any(best.get((peer, name, n)) for _, name, n, _ in rows)]
        text += f"## {title}\n\n{said}\n\n| | {' | '.join(shown)} |\n|{'---|' * (len(shown) + 1)}\n"
        for label, name, n, key in rows:
            text += f"| {label} | {' | '.join(_cell(best.get((peer, name, n), {}), key) for peer in shown)} |\n"
        text += "\n"
    PAGE.write_text(text + NOTES.read_text(encoding="utf-8"), encoding="utf-8")
