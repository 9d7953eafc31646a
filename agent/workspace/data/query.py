"""Describe data files, and run one SELECT over them, with DuckDB in a process that can be ended."""

import json
import os
import sys
import threading
from importlib.resources import files
from typing import Annotated, Any

from langchain_core.tools import ToolException
from pydantic import Field

from donewhen.agent.workspace.commands import run_process
from donewhen.agent.workspace.root import Root

SECONDS = 50.0
KEPT_BYTES = 400_000
CHILD = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])["path"]
from donewhen.agent.workspace.data.child import main
main()
"""


def describe_data(
    root: Root,
    path: Annotated[str, Field(description="CSV, TSV, JSON or Parquet file, relative to the workspace")],
    *,
    stop: threading.Event | None = None,
) -> str:
    """What a data file (CSV, TSV, JSON, JSON lines, Parquet) holds: rows, and per column type, nulls and examples.

    A NOTE names what looks like numbers or dates but is text, or could be read in two ways, and the SQL to read it.
    """
    with root.open(path):
        return _ask(root, "describe", path, stop)


def query_data(
    root: Root,
    sql: Annotated[
        str,
        Field(
            max_length=20_000,
            description="e.g. SELECT r.region, sum(o.net) AS net FROM 'orders.csv' o JOIN 'regions.csv' r USING (id) "
            "WHERE o.date BETWEEN '2025-07-01' AND '2025-09-30' GROUP BY ALL ORDER BY net DESC",
        ),
    ],
    *,
    stop: threading.Event | None = None,
) -> str:
    """Run one SELECT (DuckDB SQL) over data files, named in quotes as tables: FROM 'data/orders.csv', 'logs/*.csv'.

    Joins, dates, groups and windows work; decimals of CSV and JSON files are exact, DOUBLE of Parquet files is not.
    describe_data shows columns and types first. One value is printed alone, anything else as rows under their names;
    the last line then says how many there are, and what was left out.
    """
    return _ask(root, "query", sql, stop)


def _ask(root: Root, do: str, of: str, stop: threading.Event | None) -> str:
    path = [os.path.dirname(str(files("donewhen"))), *filter(os.path.isabs, sys.path)]
    path.sort(key=lambda folder: folder == root.path)  # a file of the workspace never stands in for a library
    request = json.dumps({"path": path, "root": root.path, "do": do, "of": of})
    command = [sys.executable, "-I", "-S", "-c", CHILD, request]
    ended = run_process(command, root.path, {}, SECONDS, stop, KEPT_BYTES)
    if ended.code is None:
        raise ToolException(f"It took longer than {SECONDS:g} seconds and was stopped; ask for less.")
    try:
        answer: dict[str, Any] = json.loads(ended.stdout.text().splitlines()[-1])
    except (ValueError, IndexError):
        raise ToolException(f"The query ended its process: {ended.stderr.text()[-300:].strip()}") from None
    if "error" in answer:
        raise ToolException(answer["error"])
    return str(answer["text"])
