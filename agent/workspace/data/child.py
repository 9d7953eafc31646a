"""The process in which DuckDB works: it reads below one folder, runs one SELECT, and can write nothing there.

It reads its request from a folder of its own, stores facts about files there, and prints lines of
`{"doing", "percent"}`, then `{"text"}` or `{"error"}`. It imports nothing of the project outside this folder. Limits
of time and memory end it, whatever the SQL does.
"""

import contextlib
import difflib
import json
import os
import resource
import sys
import threading
from collections.abc import Iterator
from typing import Any

from donewhen.agent.workspace.data.columns import EMPTY, quote_name, quote_text
from donewhen.agent.workspace.data.tables import ENDINGS, RefusedData, Tables, brief
from donewhen.agent.workspace.data.workbook import split_sheet
from donewhen.state.values import note_of_rest

MEMORY, ADDRESS_SPACE = "1GB", 3 << 30
"""DuckDB's memory limit, and the process's."""
MAX_ROWS = 500
MAX_CELL = 1_000
MAX_CHARS = 18_000
EXAMPLES = 4
ORDERING = ("COMPARE_LESSTHAN", "COMPARE_GREATERTHAN", "COMPARE_BETWEEN", "ORDER")
"""Kinds of expressions that compare text columns alphabetically."""
EXTREMES = ("min", "max", "arg_min", "arg_max", "min_by", "max_by")
PROGRESS_SECONDS = 1.0


def connect(root: str, scratch: str) -> Any:
    """Return an empty database in memory that may read below `root` (and `scratch`), and do nothing else."""
    import duckdb

    con = duckdb.connect(
        config={
            "memory_limit": MEMORY,
            "threads": 2,
            "temp_directory": "",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "python_enable_replacements": False,
        }
    )
    con.execute(f"SET allowed_directories = [{quote_text(root + '/')}, {quote_text(scratch + '/')}]")
    con.execute("SET TimeZone = 'UTC'")
    con.execute("SET enable_progress_bar_print = false")  # it would be printed into the answer
    con.execute("SET enable_progress_bar = true")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
    return con


def describe(tables: Tables, path: str) -> str:
    """Describe a file: how it was read, its rows, and every column with type, nulls, examples and warning."""
    names, lines = tables.names(path), list[str]()
    for name in names:
        try:
            lines += _describe_table(tables, name)
        except RefusedData as refusal:
            if len(names) == 1:
                raise
            lines.append(str(refusal))
    _write_learned(tables.learned)
    return "\n".join(_bound_lines(lines, "columns" if len(names) == 1 else "lines"))


def _describe_table(tables: Tables, path: str) -> list[str]:
    table = tables.open(path, whole=True)
    shown = tables.con.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {table.source} LIMIT 1000").fetchall()
    lines = [f"{path}: {table.rows} rows, {len(table.columns)} columns; {'; '.join(table.notes)}"]
    for at, column in enumerate(table.columns):
        examples = list(dict.fromkeys(row[at] for row in shown if row[at] is not None))[:EXAMPLES]
        shown_examples = ", ".join(_cell(each)[:60] for each in examples)
        line = f"- {quote_name(column.name)} {column.type}; {table.rows - column.filled} null; e.g. {shown_examples}"
        if not column.filled:
            type = "" if column.type.strip('"') == EMPTY else f" {column.type},"
            line = f"- {quote_name(column.name)}{type} without a value{f'; {table.rows} null' if table.rows else ''}"
        line += f"; {column.remark}" if column.remark else ""
        lines.append(line + (f"; NOTE: {column.warning}" if column.warning else ""))
    return lines


def query(tables: Tables, sql: str) -> str:
    """Return the rows of one SELECT under their names, bounded; the last line counts them, and says what was left out.

    One value is printed alone, so that a check can compare it.
    """
    import duckdb

    try:
        statements = tables.con.extract_statements(sql)
    except Exception as error:
        raise RefusedData(brief(error)) from None
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise RefusedData("Only one SELECT is run here: no other statement, and not several.")
    names = _find_quoted(sql)
    paths = {name.casefold(): name for name in names if os.path.isfile(split_sheet(name)[0]) or _is_pattern(name)}
    needed = None if _needs_all_columns(tables.con, sql) else sql.casefold()
    for path in paths.values():
        tables.view(path, needed)
    # Unknown names may be columns that are written in an unusual way.
    if needed and not tables.refused and not _names_are_known(tables.con, sql):
        for path in paths.values():
            tables.view(path)
    tables.doing = "running the query"
    _write_learned(tables.learned)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        tables.con.query(statements[0].query).create("result")
    except Exception as error:
        reasons = tables.refused or [f"{brief(error)}{_missing_file_hint(str(error), names)}"]
        raise RefusedData("\n".join([*reasons, *_warnings(tables, sql, everywhere=True)])) from None
    return "\n".join(
        [*_format_rows(tables.con), *sorted(tables.left_out)[:10], *_warnings(tables, sql, everywhere=False)]
    )


def _format_rows(con: Any) -> list[str]:
    total = con.execute("SELECT count(*) FROM result").fetchone()[0]
    cell = f"left(CAST(COLUMNS(*) AS VARCHAR), {MAX_CELL + 1})"
    names = [column[0] for column in con.execute("SELECT * FROM result LIMIT 0").description]
    rows = con.execute(f"SELECT {cell} FROM (SELECT * FROM result LIMIT {MAX_ROWS})").fetchall()
    lines = [" | ".join(names), *(" | ".join("NULL" if one is None else _cell(one) for one in row) for row in rows)]
    if total == len(names) == 1:
        return lines[1:]
    fitting = _bound_lines(lines, "")
    shown = len(fitting) - 1
    if shown == total:
        return [*fitting, f"({total} rows)"]
    how = "aggregate, filter, or use ORDER BY with LIMIT and OFFSET"
    return [*fitting, note_of_rest(f"{total} rows, of which the first {shown} are shown: {how}").lstrip()]


def _bound_lines(lines: list[str], what: str) -> list[str]:
    """Return the lines that fit; if `what` names them, a last line says how many are left out."""
    size = 0
    for at, line in enumerate(lines):
        size += len(line) + 1
        if size > MAX_CHARS and at:
            return [*lines[:at], *([f"({len(lines) - at} {what} are left out)"] if what else [])]
    return lines


def _cell(value: str) -> str:
    shown = value.replace("\r", "").replace("\n", "\\n")
    return shown if len(shown) <= MAX_CELL else f"{shown[:MAX_CELL]}…[cut]"


def _needs_all_columns(con: Any, sql: str) -> bool:
    """Return whether the SQL may need columns that it does not name, as `*`, a natural join or a whole row do."""
    tree = json.loads(con.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0][0])
    nodes = list(_nodes(tree))
    tables = {str(node.get(key)).casefold() for node in nodes for key in ("alias", "table_name") if "class" not in node}
    named = [node["column_names"] for node in nodes if "column_names" in node]
    return (
        bool(tree["error"])
        or any(node.get("class") in ("STAR", "POSITIONAL_REFERENCE") for node in nodes)
        or any(node.get("ref_type") == "NATURAL" or node.get("type") in ("PIVOT", "SHOW_REF") for node in nodes)
        or any(len(names) == 1 and names[0].casefold() in tables for names in named)
    )


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a syntax tree."""
    if isinstance(tree, dict):
        yield tree
    for each in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _nodes(each)


def _names_are_known(con: Any, sql: str) -> bool:
    """Return whether all names in the SQL are known."""
    try:
        con.execute(f"EXPLAIN {sql}").fetchall()
    except Exception:
        return False
    return True


def _find_quoted(sql: str) -> list[str]:
    """Return the quoted names and texts in the SQL; names of files are among them."""
    import duckdb

    data, tokens = sql.encode(), duckdb.tokenize(sql)
    ends = [start for start, _ in tokens[1:]] + [len(data)]
    quoted = []
    for (start, _), end in zip(tokens, ends, strict=True):
        token = data[start:end].decode(errors="replace").strip()
        if len(token) > 2 and token[0] in "'\"" and token[-1] == token[0]:
            quoted.append(token[1:-1].replace(token[0] * 2, token[0]))
    return [name for name in quoted if "\0" not in name and not os.path.isabs(name) and ".." not in name.split("/")]


def _is_pattern(name: str) -> bool:
    file, _ = split_sheet(name)
    return any(mark in file for mark in "*?[") and file.lower().endswith(ENDINGS)


def _missing_file_hint(error: str, names: list[str]) -> str:
    """Return a hint for an error about a missing table, else ""."""
    if "read_xlsx" in error:
        return "\nA sheet of a workbook is named in quotes: FROM 'sales.xlsx#Q1'."
    if "Table with name" not in error and "No files found" not in error:
        return ""
    for name in filter(os.path.isdir, names):
        return f"\n{name!r} is a folder: name its files, as FROM {quote_text(os.path.join(name, '*.csv'))}."
    files = [split_sheet(name)[0] for name in names]
    missing = [name for name in files if name.lower().endswith(ENDINGS) and not os.path.exists(name)]
    for name in missing:
        folder = os.path.dirname(name)
        there = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
        near = difflib.get_close_matches(os.path.basename(name), there, n=3)
        return f"\nThere is no file {name!r}." + (
            f" Near: {', '.join(os.path.join(folder, each) for each in near)}" * bool(near)
        )
    return "\nFiles are named in quotes, relative to the workspace: FROM 'orders.csv'."


def _warnings(tables: Tables, sql: str, *, everywhere: bool) -> list[str]:
    """Return the warnings of columns that the SQL compares, sorts or searches for extremes as text.

    `everywhere`: of all columns that the SQL names.
    """
    warned = {
        column.name.casefold(): f"NOTE {path}: {quote_name(column.name)} {column.warning}"
        for path, table in tables.opened.items()
        for column in table.columns
        if column.warning
    }
    if everywhere:
        return [note for name, note in warned.items() if name in sql.casefold()][:10]
    tree = json.loads(tables.con.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()[0]) if warned else {}
    return [warned[name] for name in dict.fromkeys(_ordered_columns(tree, False)) if name in warned][:10]


def _ordered_columns(node: Any, ordering: bool) -> list[str]:
    """Return the columns of a syntax tree that are direct operands of a comparison or ordering."""
    if isinstance(node, list):
        return [name for each in node for name in _ordered_columns(each, ordering)]
    if not isinstance(node, dict):
        return []
    kind = str(node.get("type", ""))
    if kind == "COLUMN_REF":
        return [str(node["column_names"][-1]).casefold()] if ordering else []
    if kind.startswith(ORDERING) or node.get("function_name") in EXTREMES or "null_order" in node:
        return _ordered_columns(list(node.values()), True)
    within = ordering and "type" not in node
    return [name for each in node.values() for name in _ordered_columns(each, within)]


def _write_learned(learned: dict[str, Any]) -> None:
    """Write the facts about files for the caller, before the query runs, so that they are kept if it fails."""
    if learned:
        with open(os.path.join(sys.argv[2], "learned.json"), "w") as file:
            json.dump(learned, file)


@contextlib.contextmanager
def _print_progress(tables: Tables) -> Iterator[None]:
    """Print the current work and its progress every second."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(PROGRESS_SECONDS):
            line = {"doing": tables.doing, "percent": max(0, int(tables.con.query_progress()))}
            print(json.dumps(line), flush=True)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    yield
    done.set()
    watching.join()


def main() -> None:
    """Serve the request in the folder that the command line names, with one answer on stdout."""
    with contextlib.suppress(OSError, ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    root, own = json.loads(sys.argv[1])["root"], sys.argv[2]
    with open(os.path.join(own, "request.json")) as file:
        request = json.load(file)
    os.chdir(root)
    copies = os.path.join(own, "copies")
    os.mkdir(copies)
    tables = Tables(connect(root, copies), copies, request["remembered"])
    with _print_progress(tables):
        try:
            answer = {"text": {"describe": describe, "query": query}[request["do"]](tables, request["of"])}
        except RefusedData as refusal:
            answer = {"error": str(refusal)}
        except Exception as error:
            answer = {"error": f"This cannot be read ({type(error).__name__}): {brief(error)}"}
    print("\n" + json.dumps(answer))
