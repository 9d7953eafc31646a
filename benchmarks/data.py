"""`python -m benchmarks.data [MB] [--json]`: questions about a CSV file, by workspace tools and plain DuckDB in turns.

Both start a process for each question. CPU seconds are the best of a few: what else the machine does counts little.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

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


def measure(size: int) -> dict[str, float]:
    """Return CPU seconds of the queries, by plain DuckDB and by a first and a later call, and of a description."""
    found = dict[str, float]()
    with tempfile.TemporaryDirectory() as folder:
        write_file(Path(folder, "big.csv"), size * 1_000_000)
        while time.time() - Path(folder, "big.csv").stat().st_ctime < 1:
            time.sleep(0.1)  # a file that changes just now is not remembered
        for name, sql in QUERIES.items():
            plain = partial(subprocess.run, [sys.executable, "-c", PLAIN, sql], cwd=folder, check=True)
            for _ in range(TIMES):
                ask = partial(_tools(folder)["query_data"].invoke, {"sql": sql})
                for what, work in (("plain", partial(plain, capture_output=True)), ("first", ask), ("later", ask)):
                    key = f"{name}, {what}"
                    found[key] = min(cpu(work)[0], found.get(key, 1e9))
        describe = partial(_tools(folder)["describe_data"].invoke, {"path": "big.csv"})
        found["described"], found["described, elapsed"] = cpu(describe)
        found["described again"], _ = cpu(describe)
    return found


def _tools(folder: str) -> dict[str, Any]:
    return {tool.name: tool for tool in workspace_tools(folder)}


def main() -> None:
    """Print the figures of a file of so many MB, as they are or as JSON."""
    found = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    for key, seconds in found.items():
        plain = found.get(f"{key.split(',')[0]}, plain")
        print(f"{key}: {seconds:.2f} s" + (f", {seconds / plain:.2f} × plain DuckDB" if plain else ""))


if __name__ == "__main__":
    main()
