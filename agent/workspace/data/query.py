"""Describe data files, and run one SELECT over them, with DuckDB in a process that can be ended."""

import contextlib
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Annotated, Any

from langchain_core.tools import ToolException
from langgraph.config import get_stream_writer
from pydantic import Field

from donewhen.agent.workspace.commands import Output, run_process
from donewhen.agent.workspace.data.workbook import split_sheet
from donewhen.agent.workspace.root import Root
from donewhen.state.identity import names_something, words_of
from donewhen.state.pattern import pattern

SECONDS = 50.0
KEPT_BYTES = 400_000
REMEMBERED_CHARS = 1_000_000
PROGRESS = b'{"doing"'
_SQL = pattern(r"'[^']*'|\"[^\"]*\"|\w+|[^\w\s]")
_OTHER_QUOTES = pattern(r"--|/\*|\$|\\")
"""Comments and other ways to quote, in which a quotation mark may hide SQL."""
MAKES_VALUES = frozenset(("select", "values", "union", "with", "unnest", "intersect", "except", "pivot", "unpivot"))
AFTER_TABLES = frozenset(("where", "group", "order", "limit", "having", "qualify", "window"))
NUMBERS = frozenset(("sum", "avg", "count"))
TOTALS = NUMBERS | {"min", "max"}
CHILD = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])["path"]
from donewhen.agent.workspace.data.child import main
main()
"""


class FileFacts:
    """Facts about data files that were read, as JSON by path; the oldest are dropped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[str, Any] = {}

    def all(self) -> dict[str, Any]:
        """Return all facts."""
        with self._lock:
            return dict(self._facts)

    def add(self, learned: dict[str, Any]) -> None:
        """Add facts, and drop the oldest if there are too many."""
        with self._lock:
            self._facts = {**{path: facts for path, facts in self._facts.items() if path not in learned}, **learned}
            size = sum(len(json.dumps(facts)) for facts in self._facts.values())
            while size > REMEMBERED_CHARS:
                size -= len(json.dumps(self._facts.pop(next(iter(self._facts)))))


class Reply(Output):
    """The output of the process: progress is passed to the stream of the run, and the last line is the answer."""

    def __init__(self) -> None:
        super().__init__(KEPT_BYTES)
        self._report = _stream_writer()

    def add(self, data: bytes) -> None:
        """Add the next output."""
        super().add(data)
        for line in data.splitlines():
            if line.startswith(PROGRESS):
                with contextlib.suppress(ValueError):  # half of a line
                    self._report(json.loads(line))


def _stream_writer() -> Callable[[Any], None]:
    """Return a function that writes to the stream of the run; outside of a run it does nothing."""
    try:
        return get_stream_writer()
    except (RuntimeError, KeyError):
        return lambda _: None


def describe_data(
    root: Root,
    facts: FileFacts,
    path: Annotated[str, Field(description="CSV, TSV, JSON, Parquet or Excel file, relative to the workspace")],
    *,
    stop: threading.Event | None = None,
) -> str:
    """What a data file (CSV, TSV, JSON, JSON lines, Parquet, Excel) holds: rows; per column type, nulls, examples.

    A NOTE names what looks like numbers or dates but is text, or could be read in two ways, and the SQL to read it.
    """
    with root.open(split_sheet(path)[0]):
        return _run_child(root, facts, "describe", path, stop)


def query_data(
    root: Root,
    facts: FileFacts,
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

    A sheet of a workbook is 'sales.xlsx#Q1'. Joins, dates, groups and windows work; decimals of CSV, JSON and Excel are
    exact, DOUBLE of Parquet files is not. describe_data shows columns and types first. One value is printed alone,
    anything else as rows under their names; the last line then says how many there are, and what was left out.
    """
    return _run_child(root, facts, "query", sql, stop)


def plain_columns(arguments: Mapping[str, Any]) -> list[str] | None:
    """Return which columns of a query's result may name something: [] if the SQL may make up or rename values.

    None stands for all, as the files name them. A query is plain if it selects columns of files, or totals of them.
    """
    return None if _columns_of(arguments) else []


def only_column(arguments: Mapping[str, Any]) -> str:
    """Return the name of the column of a plain query that selects one by name; "" if it may be several."""
    columns = _columns_of(arguments)
    return columns[0] if len(columns) == 1 and columns != ["*"] else ""


def _columns_of(arguments: Mapping[str, Any]) -> list[str]:
    """Return the names of the columns that a plain query selects, `*` among them; [] if it is not plain."""
    sql = str(arguments.get("sql", "")).strip().rstrip(";")
    words = _SQL.findall(sql)
    low = [word.lower() for word in words]
    if low[:1] != ["select"] or low.count("from") != 1 or MAKES_VALUES & {*low[1:]} or _OTHER_QUOTES.search(sql):
        return []
    at = low.index("from")
    end = next((place for place, word in enumerate(low) if place > at and word in AFTER_TABLES), len(low))
    items, tables = words[1 + (low[1] == "distinct") : at], low[at + 1 : end]
    if any(word == "(" and tables[place - 1] != "using" for place, word in enumerate(tables)):
        return []
    columns = [_column_of(item) for item in _split_items(items)]
    return [] if "" in columns else columns


def _split_items(words: Sequence[str]) -> list[list[str]]:
    items: list[list[str]] = [[]]
    for word in words:
        if word == ",":
            items.append([])
        else:
            items[-1].append(word)
    return items


def _column_of(item: Sequence[str]) -> str:
    """Return the name of a selected column, `*` or a total of a column; "" for anything else."""
    *words, last = item or [""]
    alias = ""
    if len(words) > 1 and words[-1].lower() == "as":
        alias, (*words, last) = last.strip('"'), words[:-1]
        if not alias.isidentifier():
            return ""
    if words[1:2] == ["("] and last == ")":
        total, of = words[0].lower(), _column_of(words[2:])
        if not of or total not in (NUMBERS if alias else TOTALS) or names_something(words_of(alias)):
            return ""
        return alias or f"{total}({of})"
    if words and not (words[-1] == "." and all(word == "." or word.strip('"').isidentifier() for word in words)):
        return ""
    name = last.strip('"')
    is_column = name == "*" or name.isidentifier()
    return name if is_column and alias.lower() in ("", name.lower()) else ""


def _run_child(root: Root, facts: FileFacts, do: str, of: str, stop: threading.Event | None) -> str:
    path = [os.path.dirname(str(files("donewhen"))), *filter(os.path.isabs, sys.path)]
    path.sort(key=lambda folder: folder == root.path)  # a file of the workspace never stands in for a library
    with tempfile.TemporaryDirectory(prefix="donewhen-", ignore_cleanup_errors=True) as scratch:
        own = os.path.realpath(scratch)
        with open(os.path.join(own, "request.json"), "w") as file:
            json.dump({"do": do, "of": of, "remembered": facts.all()}, file)
        command = [sys.executable, "-I", "-S", "-c", CHILD, json.dumps({"path": path, "root": root.path}), own]
        reply = Reply()
        ended = run_process(command, root.path, {}, SECONDS, stop, reply)
        with contextlib.suppress(OSError, ValueError), open(os.path.join(own, "learned.json")) as file:
            facts.add(json.load(file))
    if ended.code is None:
        raise ToolException(f"It took longer than {SECONDS:g} seconds and was stopped; ask for less.")
    try:
        answer: dict[str, Any] = json.loads(reply.text().splitlines()[-1])
    except (ValueError, IndexError):
        raise ToolException(f"The query ended its process: {ended.stderr.text()[-300:].strip()}") from None
    if "error" in answer:
        raise ToolException(answer["error"])
    return str(answer["text"])
