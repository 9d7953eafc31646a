"""Data files as tables: what they hold, and one SELECT over them. DuckDB does it, in a process that can be ended."""

import json
import subprocess
import sys
from typing import Annotated, Any

from langchain_core.tools import ToolException
from pydantic import Field

from donewhen.agent.workspace import sql as reader
from donewhen.agent.workspace.root import Root

SECONDS = 30.0


def describe_data(
    root: Root, path: Annotated[str, Field(description="CSV, TSV, JSON or Parquet file, relative to the workspace")]
) -> str:
    """What a data file (CSV, TSV, JSON, JSON lines, Parquet) holds: rows, and per column type, nulls and examples.

    A NOTE names what looks like numbers or dates but is text, or could be read in two ways, and the SQL to read it.
    """
    with root.open(path):
        return _asked(root, "describe", path)


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
) -> str:
    """Run one SELECT (DuckDB SQL) over data files, named in quotes as tables: FROM 'data/orders.csv', 'logs/*.csv'.

    Joins, dates, groups and windows work; decimals of CSV files are exact, those of JSON need CAST(x AS DECIMAL(18,2)).
    describe_data shows columns and types first. The last line says how many rows there are, and what was left out.
    """
    return _asked(root, "query", sql)


def _asked(root: Root, do: str, of: str) -> str:
    inside = root.path.rstrip("/") + "/"
    path = [each for each in sys.path if each.startswith("/") and not f"{each}/".startswith(inside)]
    request = {"path": path, "root": root.path, "do": do, "of": of}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", reader.__file__],
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=SECONDS,
            env={},
        )
    except subprocess.TimeoutExpired:
        raise ToolException(f"It took longer than {SECONDS:g} seconds and was stopped; ask for less.") from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise ToolException(
            f"The query ended the reader ({done.stderr.decode(errors='replace')[-300:].strip()})."
        ) from None
    if "error" in answer:
        raise ToolException(answer["error"])
    return str(answer["text"])
