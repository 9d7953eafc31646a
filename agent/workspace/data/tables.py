"""The data files of a folder as tables: how each is read, and which cannot be read reliably."""

import contextlib
import csv
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from donewhen.agent.workspace.data.columns import EMPTY, Column, quote_name, text
from donewhen.agent.workspace.data.encoding import SAMPLE_BYTES, encoding_of, is_utf8

JSON, PARQUET, EXCEL = (".json", ".jsonl", ".ndjson"), (".parquet",), (".xlsx", ".xls")
PACKED = (".gz", ".zst")
ENDINGS = (".csv", ".tsv", ".tab", *PACKED, *JSON, *PARQUET, *EXCEL)
WORDS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
FORM = ("Delimiter", "Quote", "Escape", "HasHeader", "Columns", "DateFormat", "TimestampFormat")
HOW = " Say how to read it: read_csv('file', delim = ';', skip = 2, header = true, null_padding = true, ...)."
MAX_FILES = 200
LOOKED_AT = 1_000


class Refused(Exception):
    """An error for the model in place of a result."""


@dataclass
class Table:
    """A file as a table: the SQL that reads it, and how it is read."""

    path: str
    source: str
    how: list[str]
    columns: list[Column]


class Tables:
    """Files as tables of one connection. Types are decided by the whole file."""

    def __init__(self, con: Any, scratch: str) -> None:
        self.con = con
        self.scratch = scratch
        self.known: dict[str, Table] = {}
        self.refused: list[str] = []

    def view(self, path: str) -> None:
        """Make a file, or all files matching a pattern, readable in SQL by this name; unreliable reads fail."""
        try:
            paths = [path] if os.path.exists(path) else self._matching_files(path)
            source = " UNION ALL BY NAME ".join(f"SELECT * FROM {self.open(each).source}" for each in paths)
        except Refused as refusal:
            self.refused.append(str(refusal))
            source = f"SELECT 1 AS refused WHERE error({text(str(refusal))}) IS NULL"
        self.con.execute(f"CREATE VIEW {quote_name(path)} AS {source}")

    def open(self, path: str) -> Table:
        """Return how to read a file. Raises Refused if that would be a guess."""
        plain = os.path.normpath(path)
        if os.path.realpath(plain) != os.path.join(os.getcwd(), plain):
            raise Refused(f"{path} leads out of the workspace or through a symbolic link; neither is followed.")
        ending = os.path.splitext(path.removesuffix(".gz").removesuffix(".zst"))[1].lower()
        if ending in EXCEL:
            raise Refused(f"{path} is an Excel workbook, which cannot be read here: save its sheets as CSV files.")
        if ending in PARQUET:
            table = Table(path, f"read_parquet({text(plain)})", ["Parquet"], [])
            table.columns = self._columns(table)
        elif ending in JSON:
            table = self._json(path, plain)
        else:
            table = self._csv(path, *self._utf8(plain))
        self.known[path] = table
        return table

    def settle(self, table: Table, source: str, form: dict[str, Any] | None = None) -> None:
        """Decide the types of the columns from all values; `source` reads them as text."""
        form = form or {"Delimiter": ","}
        judged = [(column, column.measures()) for column in table.columns]
        wanted = [measure for _, measures in judged for measure in measures.values()]
        found = iter(self._one(table.path, f"SELECT {', '.join(['count(*)', *wanted])} FROM {source}")[1:])
        for column, measures in judged:
            date_form = form.get("DateFormat" if column.type == "DATE" else "TimestampFormat")
            column.settle({key: next(found) for key in measures}, form["Delimiter"], date_form or "")

    def _one(self, path: str, sql: str) -> Sequence[Any]:
        """Return the first row of what a question about a file gives."""
        try:
            row: Sequence[Any] = self.con.execute(sql).fetchone()
        except Exception as error:
            raise Refused(f"{path} is no table that can be read for sure: {brief(error)}{HOW}") from None
        return row

    def _matching_files(self, pattern: str) -> list[str]:
        """Return the files that fit a pattern; nothing hidden, no links."""
        try:
            found = self.con.execute(f"SELECT file FROM glob({text(pattern)}) ORDER BY file").fetchall()
        except Exception as error:
            raise Refused(f"{pattern!r} cannot be looked for: {brief(error).splitlines()[0]}") from None
        paths = [os.path.relpath(path) for (path,) in found if not os.path.islink(path)]
        paths = [path for path in paths if not any(name.startswith(".") for name in path.split(os.sep))]
        if not paths or len(paths) > MAX_FILES:
            raise Refused(f"{len(paths) or 'No'} files fit {pattern!r}; 1 to {MAX_FILES} can be read together.")
        return paths

    def _columns(self, table: Table) -> list[Column]:
        try:
            rows = self.con.execute(f"DESCRIBE SELECT * FROM {table.source}").fetchall()
        except Exception as error:
            raise Refused(f"{table.path} cannot be read as {table.how[0]}: {brief(error)}") from None
        return [Column(row[0], row[1]) for row in rows]

    def _json(self, path: str, file: str) -> Table:
        options = "sample_size = -1, dateformat = '%Y-%m-%d', timestampformat = 'iso'"
        table = Table(path, f"read_json({text(file)}, {options})", ["JSON"], [])
        table.columns = self._columns(table)
        self.settle(table, f"read_json({text(file)}, columns = {_types(table.columns, 'VARCHAR')})")
        table.source = f"read_json({text(file)}, {options.partition(', ')[2]}, columns = {_types(table.columns)})"
        return table

    def _csv(self, path: str, file: str, encoding: str) -> Table:
        first, second = _first_lines(file)
        if not first.strip():
            raise Refused(f"{path} is empty, or begins with an empty line.{HOW}")
        hint = re.fullmatch(r"sep=(.)\s*", first)
        skip = 1 if hint else 0
        given = f", delim = {text(hint[1])}" if hint else ""
        sniffed = f"sniff_csv({text(file)}, sample_size = -1, skip = {skip}{given})"
        values = self._one(path, f"SELECT {', '.join(FORM)} FROM {sniffed}")
        form: dict[str, Any] = {
            key: "" if value == "(empty)" else value for key, value in zip(FORM, values, strict=True)
        }
        if len(form["Columns"]) == 1 and any(mark in (second if hint else first) for mark in WORDS):
            raise Refused(f"{path} is no table that can be read for sure: {_describe_ragged(file)}{HOW}")
        how = [f"CSV separated by {WORDS.get(form['Delimiter'], form['Delimiter'])}"]
        how.append("first line read as the header" if form["HasHeader"] else "no header line: column0, column1, …")
        how += [] if encoding == "utf-8" else [f"not UTF-8, read as {encoding}"]
        how += [
            f"NOTE: {WORDS[other]} would separate all lines alike too" for other in _others(file, form["Delimiter"])
        ]
        columns = [Column(each["name"], each["type"]) for each in form["Columns"]]
        table = Table(path, "", how, columns)
        options = ", ".join(
            f"{key} = {text(form[name])}" for key, name in zip(("delim", "quote", "escape"), FORM, strict=False)
        )
        header = str(form["HasHeader"]).lower()
        options = f"auto_detect = false, {options}, comment = '', skip = {skip}, header = {header}"
        self.settle(table, f"read_csv({text(file)}, {options}, columns = {_types(columns, 'VARCHAR')})", form)
        for option, key in (("dateformat", "DateFormat"), ("timestampformat", "TimestampFormat")):
            options += f", {option} = {text(form[key])}" if form[key] else ""
        table.source = _without_types(f"read_csv({text(file)}, {options}, columns = {_types(columns)})", columns)
        return table

    def _utf8(self, path: str) -> tuple[str, str]:
        """Return the file, or a copy of it in UTF-8, and the encoding that it has."""
        if path.endswith(PACKED):
            return path, "utf-8"
        with open(path, "rb") as file:
            encoding = encoding_of(file.read(SAMPLE_BYTES))
        if encoding is None:
            raise Refused(f"{path} is a binary file, not a table in text.")
        if encoding.startswith("utf-8"):
            if is_utf8(path):
                return path, "utf-8"
            encoding = "cp1252"
        copy = os.path.join(self.scratch, f"{len(self.known)}.csv")
        with (
            open(path, encoding=encoding, errors="replace", newline="") as old,
            open(copy, "w", encoding="utf-8", newline="") as new,
        ):
            while chunk := old.read(SAMPLE_BYTES):
                new.write(chunk)
        return copy, encoding


def brief(error: Exception) -> str:
    """Return DuckDB's message without hints about its settings."""
    message = str(error).split("\n\tCandidate functions")[0].split("Possible fixes:")[0].split("\n  file = ")[0]
    return message.replace(os.getcwd() + "/", "").strip()[:1_000]


def _types(columns: list[Column], type: str | None = None) -> str:
    named = [(column.name, type or column.type) for column in columns]
    return "{" + ", ".join(f"{text(name)}: {text('VARCHAR' if type == EMPTY else type)}" for name, type in named) + "}"


def _without_types(source: str, columns: list[Column]) -> str:
    """Return the source with columns of NULL where there are no values, so that it joins files with types."""
    empty = ", ".join(f"NULL AS {quote_name(column.name)}" for column in columns if column.type == EMPTY)
    return f"(SELECT * REPLACE ({empty}) FROM {source})" if empty else source


def _first_lines(file: str) -> tuple[str, str]:
    if file.endswith(PACKED):
        return "packed", ""
    with open(file, encoding="utf-8-sig", errors="replace") as lines:
        return lines.readline(SAMPLE_BYTES), lines.readline(SAMPLE_BYTES)


def _widths(file: str, delimiter: str, rows: int) -> dict[int, int]:
    """Return how many fields the first rows have: width → the line on which that width is first seen."""
    widths: dict[int, int] = {}
    with open(file, encoding="utf-8-sig", errors="replace", newline="") as lines, contextlib.suppress(csv.Error):
        reader = csv.reader(lines, delimiter=delimiter)
        for _, row in zip(range(rows), reader, strict=False):
            if row:
                widths.setdefault(len(row), reader.line_num)
    return widths


def _others(file: str, chosen: str) -> list[str]:
    """Return other separators that would also split the file into a table."""
    if file.endswith(PACKED):
        return []
    found = {other: _widths(file, other, LOOKED_AT) for other in WORDS if other != chosen}
    return [other for other, widths in found.items() if len(widths) == 1 and 1 not in widths]


def _describe_ragged(file: str) -> str:
    """Return which line has another number of fields than the first."""
    delimiter = max(WORDS, key=_first_lines(file)[0].count)
    (width, _), *others = _widths(file, delimiter, 10_000_000).items()
    if not others:
        return "no separator fits all lines."
    return f"separated by {WORDS[delimiter]}, line {others[0][1]} has {others[0][0]} fields, the first {width}."
