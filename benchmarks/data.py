"""`python -m benchmarks.data [MB]`: questions about a CSV file, by workspace tools and by plain DuckDB, taking turns.

Both start a process for each question. CPU seconds are the best of a few: what else the machine does counts little.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from donewhen.agent.workspace import workspace_tools

TIMES = 3
PLAIN = (
    "import duckdb, sys; duckdb.sql('SET enable_progress_bar = false'); print(duckdb.sql(sys.argv[1]).fetchall()[:3])"
)
QUERIES = {
    "sums by region": "SELECT region, sum(amount) AS total, count(*) FROM 'big.csv' GROUP BY ALL ORDER BY total DESC",
    "rows of one product": "SELECT count(*) FROM 'big.csv' WHERE product = 'product 7'",
}


def write_file(path: Path, size: int) -> None:
    """Write a CSV file of seven columns: numbers, decimals, dates and texts."""
    with path.open("w") as file:
        file.write("id,date,region,product,quantity,amount,note\n")
        n = 0
        while file.tell() < size:
            file.write(
                "".join(
                    f"{k},2026-{k % 12 + 1:02d}-{k % 28 + 1:02d},region{k % 50},product {k % 1000},{k % 9 + 1},"
                    f"{k % 100000 / 100:.2f},some note about row {k}\n"
                    for k in range(n, n + 1000)
                )
            )
            n += 1000


def cpu(work: Callable[[], object]) -> tuple[float, float]:
    """Return the CPU seconds of the work and of the processes that it started, and its seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.perf_counter() - began


def main() -> None:
    """Print what each question takes, and how many times what plain DuckDB takes."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        write_file(Path(folder, "big.csv"), size * 1_000_000)
        print(f"{size} MB of CSV, CPU seconds (in brackets: × plain DuckDB)")
        for name, sql in QUERIES.items():
            plain, first, again = [], [], []
            command = [sys.executable, "-c", PLAIN, sql]
            for _ in range(TIMES):
                tool = {each.name: each for each in workspace_tools(folder)}["query_data"]
                plain.append(cpu(partial(subprocess.run, command, cwd=folder, check=True, capture_output=True))[0])
                first.append(cpu(partial(tool.invoke, {"sql": sql}))[0])
                again.append(cpu(partial(tool.invoke, {"sql": sql}))[0])
            base = min(plain)
            ours = (
                f"first {min(first):.2f} ({min(first) / base:.2f} ×), then {min(again):.2f} ({min(again) / base:.2f} ×)"
            )
            print(f"{name}: plain DuckDB {base:.2f}, {ours}", flush=True)
        tool = {each.name: each for each in workspace_tools(folder)}["describe_data"]
        for what in ("described", "described again"):
            used, seconds = cpu(partial(tool.invoke, {"path": "big.csv"}))
            print(f"{what}: {used:.2f} CPU seconds, {seconds:.1f} seconds", flush=True)


if __name__ == "__main__":
    main()
