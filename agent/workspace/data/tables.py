"""Read the data files of a folder as tables, and refuse those that cannot be read reliably."""

import contextlib
import csv
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from donewhen.agent.workspace.data.columns import (
    CORE,
    EMPTY,
    SNIFFED,
    STRICT,
    Column,
    likely_sql,
    quote_name,
    quote_text,
)
from donewhen.agent.workspace.data.encoding import SAMPLE_BYTES, encoding_of

JSON, PARQUET, EXCEL = (".json", ".jsonl", ".ndjson"), (".parquet",), (".xlsx", ".xls")
PACKED = (".gz", ".zst")
ENDINGS = (".csv", ".tsv", ".tab", *PACKED, *JSON, *PARQUET, *EXCEL)
WORDS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
FORM = ("Delimiter", "Quote", "Escape", "HasHeader", "Columns", "DateFormat", "TimestampFormat")
HINT = " Say how to read it: read_csv('file', delim = ';', skip = 2, header = true, null_padding = true, ...)."
MAX_FILES = 200
LOOKED_AT = 1_000
SNIFFED_ROWS = 20_480
"""Rows by which the form of a large file is guessed, before one read of all shows whether that holds."""
SAMPLED_ROWS = SNIFFED_ROWS // 2
FEW_BYTES = "buffer_size = 4_000_000"
"""The bytes read at once if only the first rows are wanted."""
FILLED, LIKELY = {"filled": "count({c})"}, {"likely": "count({likely})"}
QUIET_NS = 50_000_000
"""The time without a change that a file needs: two changes within a tick of the file system's clock look like one."""


class Refused(Exception):
    """An error for the model in place of a result."""


@dataclass
class Table:
    """A file as a table: how DuckDB reads it, and its columns."""

    path: str
    file: str
    """The file that is read: the original, or a copy of it in UTF-8."""
    reader: str
    notes: list[str]
    options: str = ""
    columns: list[Column] = field(default_factory=list)
    encoding: str = "utf-8"
    rows: int = -1
    """-1 until all of it was read."""
    delimiter: str = ","
    proven: bool = False
    """True if the types fit all values, because all rows were sniffed, or the file names them."""

    @property
    def native(self) -> bool:
        """Return whether the file itself declares the types of its columns."""
        return self.reader == "read_parquet"

    @property
    def source(self) -> str:
        """Return the SQL that reads the columns with a settled type."""
        if self.native:
            return f"(FROM read_parquet({quote_text(self.file)}))"
        names = ", ".join(
            f"{'NULL AS ' if column.type == EMPTY else ''}{quote_name(column.name)}"
            for column in self.columns
            if column.settled
        )
        return f"(SELECT {names} FROM {self.read({column.name: column.type for column in self.columns})})"

    def read(self, types: Mapping[str, str], few: bool = False) -> str:
        """Return the SQL that reads the file with these types; `few`: only its first rows are needed."""
        options = f"{self.options}, {FEW_BYTES}" if few and self.reader == "read_csv" else self.options
        return f"{self.reader}({quote_text(self.file)}, {options}, columns = {_type_map(types)})"

    def read_to_measure(self, few: bool = False) -> str:
        """Return the SQL that reads columns as text if their text decides the type."""
        if self.native:
            return self.source
        return self.read({column.name: column.read_as for column in self.columns}, few)


class Tables:
    """Files as tables of one connection. The whole file decides its types, once: `remembered` has the earlier facts.

    They are used as long as path, inode, size and times of the file are the same.
    """

    def __init__(self, con: Any, scratch: str, remembered: Mapping[str, Any] | None = None) -> None:
        self.con = con
        self.scratch = scratch
        self.known: dict[str, Table] = {}
        self.refused: list[str] = []
        self.remembered: Mapping[str, Any] = remembered or {}
        self.learned: dict[str, Any] = {}
        """New facts to remember, by path."""
        self.doing = "reading"
        """The current work, in words for people."""

    def view(self, path: str, sql: str | None = None) -> None:
        """Make a file, or all files that match a pattern, a view of this name; an unreliable one fails when it is read.

        The view has at least the columns that `sql` (casefolded) contains; without it, all.
        """
        try:
            paths = [path] if os.path.exists(path) else self._matching_files(path)
            source = " UNION ALL BY NAME ".join(f"FROM {self.open(each, sql).source}" for each in paths)
        except Refused as refusal:
            self.refused.append(str(refusal))
            source = f"SELECT 1 AS refused WHERE error({quote_text(str(refusal))}) IS NULL"
        self.con.execute(f"CREATE OR REPLACE VIEW {quote_name(path)} AS {source}")

    def open(self, path: str, sql: str | None = None, *, whole: bool = False) -> Table:
        """Return a file as a table in which the columns that `sql` contains have a settled type; without it, all.

        `whole`: count its rows too. Raises Refused if the types would be a guess.
        """
        plain = os.path.normpath(path)
        if os.path.realpath(plain) != os.path.join(os.getcwd(), plain):
            raise Refused(f"{path} leads out of the workspace or through a symbolic link; neither is followed.")
        state = _file_state(plain)
        recalled = self._from_memory(path, plain, state)
        table = recalled or self._read(path, plain)
        try:
            read = self._settle_types(table, sql, whole=whole)
        except Refused:
            if table.proven:
                raise
            table = self._sniff_all_rows(table, plain)
            read = self._settle_types(table, sql, whole=whole)
        if state and (read or recalled is None):
            self.learned[plain] = {"state": state, "table": asdict(table)}
        self.known[path] = table
        return table

    def _from_memory(self, path: str, plain: str, state: list[int]) -> Table | None:
        """Return the table of a file from the earlier facts; None if there are none, or the file has changed."""
        kept = self.remembered.get(plain)
        if not kept or kept["state"] != state:
            return None
        table = Table(**{**kept["table"], "path": path})
        table.columns = [Column(**column) for column in kept["table"]["columns"]]
        if table.encoding != "utf-8":
            table.file = self._copy_as_utf8(plain, table.encoding)
        return table

    def _read(self, path: str, plain: str) -> Table:
        ending = os.path.splitext(path.removesuffix(".gz").removesuffix(".zst"))[1].lower()
        if ending in EXCEL:
            raise Refused(f"{path} is an Excel workbook, which cannot be read here: save its sheets as CSV files.")
        if ending in PARQUET:
            table = Table(path, plain, "read_parquet", ["Parquet"], proven=True)
            table.columns = self._describe_columns(table, table.source)
            return table
        return self._read_json(path, plain) if ending in JSON else self._read_csv(path, plain)

    def _settle_types(self, table: Table, sql: str | None, *, whole: bool) -> bool:
        """Settle the types of columns by all their values; return whether the file was read for that.

        Columns are needed whose names `sql` contains; without it, all. Raises Refused if a type does not fit a value.
        """
        if table.native and not whole:
            return False
        needed = [not column.settled and (sql is None or column.name.casefold() in sql) for column in table.columns]
        if not any(column.settled for column in table.columns):
            needed[0] = True  # to count rows, at least one column has to be readable
        if not any(needed):
            return False
        proven, types = table.proven, [column.type for column in table.columns]
        texts = [wanted and type == "VARCHAR" for wanted, type in zip(needed, types, strict=True)]
        measures = [
            {} if not wanted else column.measures(proven=proven) if is_text or not table.native else {**FILLED}
            for column, wanted, is_text in zip(table.columns, needed, texts, strict=True)
        ]
        source, sample = table.read_to_measure(), f"(FROM {table.read_to_measure(few=True)} LIMIT {SAMPLED_ROWS})"
        _, first = self._measure(table, sample, [{**FILLED, **LIKELY} if is_text else {} for is_text in texts])
        for column, measured, each in zip(table.columns, measures, first, strict=True):
            if each.get("likely"):
                measured.update(column.closer_measures(each, proven=proven))
            if each and not each["filled"] and not proven:
                measured.update({"wrong": measured["filled"]})  # later rows may have values of another type
        self.doing = f"reading {table.path}"
        rows, found = self._measure(table, source, measures)
        closer = [
            column.closer_measures(each, proven=proven) if each else {}
            for column, each in zip(table.columns, found, strict=True)
        ]
        missing = [{} if wanted.keys() <= each.keys() else wanted for wanted, each in zip(closer, found, strict=True)]
        _, more = self._measure(table, source, missing)
        if any(each.get("wrong") for each in (*found, *more)):
            raise Refused(f"{table.path} has values in later rows that its first rows do not show.")
        table.rows = rows
        for column, type, each, rest in zip(table.columns, types, found, more, strict=True):
            if each:
                column.settle({**each, **rest}, table.delimiter)
                column.type = type if table.native else column.type
        return True

    def _measure(
        self, table: Table, source: str, measures: Sequence[Mapping[str, str]]
    ) -> tuple[int, list[dict[str, Any]]]:
        """Return the number of rows and the measurements of each column; read nothing if none is to be measured."""
        columns, looks, cores, wanted = list[str](), list[str](), list[str](), list[str]()
        for at, (column, needed) in enumerate(zip(table.columns, measures, strict=True)):
            sql = " ".join(needed.values())
            columns += [f"{quote_name(column.name)} AS c{at}"] if needed else []
            looks += [f"{likely_sql(f'c{at}')} AS l{at}"] if "{likely}" in sql or "{core}" in sql else []
            cores += [f"{CORE.replace('{likely}', f'l{at}')} AS v{at}"] if "{core}" in sql else []
            for measure in needed.values():
                measure = measure.replace("{c}", f"c{at}").replace("{likely}", f"l{at}").replace("{core}", f"v{at}")
                wanted.append(measure)
        if not columns:
            return 0, [{} for _ in measures]
        source = f"(SELECT {', '.join(columns)} FROM {source})"
        for more in (looks, cores):
            source = f"(SELECT *, {', '.join(more)} FROM {source})" if more else source
        rows, *values = self._first_row(table.path, f"SELECT {', '.join(['count(*)', *wanted])} FROM {source}")
        left = iter(values)
        return rows, [{name: next(left) for name in needed} for needed in measures]

    def _first_row(self, path: str, sql: str) -> Sequence[Any]:
        """Return the first row of the result of this SQL. Raises Refused if the file cannot be read by it."""
        try:
            row: Sequence[Any] = self.con.execute(sql).fetchone()
        except Exception as error:
            raise Refused(f"{path} is no table that can be read for sure: {brief(error)}{HINT}") from None
        return row

    def _matching_files(self, pattern: str) -> list[str]:
        """Return the files that match a pattern, without hidden files and links."""
        try:
            found = self.con.execute(f"SELECT file FROM glob({quote_text(pattern)}) ORDER BY file").fetchall()
        except Exception as error:
            raise Refused(f"{pattern!r} cannot be looked for: {brief(error).splitlines()[0]}") from None
        paths = [os.path.relpath(path) for (path,) in found if not os.path.islink(path)]
        paths = [path for path in paths if not any(name.startswith(".") for name in path.split(os.sep))]
        if not paths or len(paths) > MAX_FILES:
            raise Refused(f"{len(paths) or 'No'} files fit {pattern!r}; 1 to {MAX_FILES} can be read together.")
        return paths

    def _describe_columns(self, table: Table, source: str) -> list[Column]:
        try:
            rows = self.con.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
        except Exception as error:
            raise Refused(f"{table.path} cannot be read as {table.notes[0]}: {brief(error)}") from None
        return [Column(row[0], row[1]) for row in rows]

    def _read_json(self, path: str, plain: str) -> Table:
        options = "dateformat = '%Y-%m-%d', timestampformat = 'iso'"
        table = Table(path, plain, "read_json", ["JSON"], options, proven=True)
        table.columns = self._describe_columns(table, f"read_json({quote_text(plain)}, sample_size = -1, {options})")
        return table

    def _read_csv(self, path: str, plain: str) -> Table:
        """Return a CSV file as a table, sniffed by its first rows if they suffice, else by all rows."""
        encoding = "utf-8" if plain.endswith(PACKED) else _encoding_of(path, plain, SAMPLE_BYTES)
        encoding = encoding if encoding == "utf-8" else _encoding_of(path, plain, os.path.getsize(plain))
        file = plain if encoding == "utf-8" else self._copy_as_utf8(plain, encoding)
        table = Table(path, file, "read_csv", [], encoding=encoding)
        try:
            return self._sniff(table, SNIFFED_ROWS)
        except Refused:
            return self._sniff_all_rows(table, plain)

    def _sniff_all_rows(self, table: Table, plain: str) -> Table:
        """Return a CSV file as a table, sniffed by all rows."""
        file, encoding = table.file, table.encoding
        if file == plain and not plain.endswith(PACKED):  # what comes late in a large file
            encoding = _encoding_of(table.path, plain, os.path.getsize(plain))
            file = plain if encoding == "utf-8" else self._copy_as_utf8(plain, encoding)
        return self._sniff(Table(table.path, file, "read_csv", [], encoding=encoding), -1)

    def _sniff(self, table: Table, rows: int) -> Table:
        """Return the table with its format and columns, sniffed by so many rows; -1 for all."""
        path, file = table.path, table.file
        first, second = _first_lines(file)
        if not first.strip():
            raise Refused(f"{path} is empty, or begins with an empty line.{HINT}")
        hint = re.fullmatch(r"sep=(.)\s*", first)
        skip = 1 if hint else 0
        given = f", delim = {quote_text(hint[1])}" if hint else ""
        given += f", {FEW_BYTES}" if rows > 0 else ""
        sniffed = f"sniff_csv({quote_text(file)}, sample_size = {rows}, skip = {skip}{given})"
        values = self._first_row(path, f"SELECT {', '.join(FORM)} FROM {sniffed}")
        form: dict[str, Any] = {
            key: "" if value == "(empty)" else value for key, value in zip(FORM, values, strict=True)
        }
        if len(form["Columns"]) == 1 and any(mark in (second if hint else first) for mark in WORDS):
            raise Refused(f"{path} is no table that can be read for sure: {_describe_ragged(file)}{HINT}")
        table.notes = [f"CSV separated by {WORDS.get(form['Delimiter'], form['Delimiter'])}"]
        table.notes.append(
            "first line read as the header" if form["HasHeader"] else "no header line: column0, column1, …"
        )
        table.notes += [] if table.encoding == "utf-8" else [_encoding_note(table.encoding)]
        table.notes += [
            f"NOTE: {WORDS[other]} would separate all lines alike too"
            for other in _other_separators(file, form["Delimiter"])
        ]
        if rows > 0:  # the first rows may have no quotes, and later ones do
            form["Quote"] = form["Quote"] or '"'
            form["Escape"] = form["Escape"] or ('"' if form["Quote"] == '"' else "")
        header = str(form["HasHeader"]).lower()
        options = ", ".join(
            f"{key} = {quote_text(form[name])}" for key, name in zip(("delim", "quote", "escape"), FORM, strict=False)
        )
        table.options = f"auto_detect = false, {options}, comment = '', skip = {skip}, header = {header}"
        for option, key in (("dateformat", "DateFormat"), ("timestampformat", "TimestampFormat")):
            table.options += f", {option} = {quote_text(form[key])}" if form[key] else ""
        for each in form["Columns"]:
            dates = {"DATE": form["DateFormat"]}.get(each["type"], form["TimestampFormat"])
            timed = each["type"] in ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
            table.columns.append(Column(each["name"], each["type"], date_form=(dates or "") if timed else ""))
        if rows > 0 and any(column.type not in (*SNIFFED, *STRICT) for column in table.columns):
            raise Refused(f"{path} has values of a type that only all rows can show.")
        table.delimiter, table.proven = form["Delimiter"], rows < 0
        return table

    def _copy_as_utf8(self, path: str, encoding: str) -> str:
        """Return a copy of the file in UTF-8."""
        copy = os.path.join(self.scratch, f"{len(os.listdir(self.scratch))}.csv")
        with (
            open(path, encoding=encoding, errors="replace", newline="") as old,
            open(copy, "w", encoding="utf-8", newline="") as new,
        ):
            while chunk := old.read(SAMPLE_BYTES):
                new.write(chunk)
        return copy


def _file_state(path: str) -> list[int]:
    """Return values that change whenever the file does; [] for a file that has changed just now."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        changed = max(found.st_mtime_ns, found.st_ctime_ns)
        if time.time_ns() - changed > QUIET_NS:
            return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    return []


def _encoding_of(path: str, plain: str, most: int) -> str:
    with open(plain, "rb") as file:
        encoding = encoding_of(file, most)
    if encoding is None:
        raise Refused(f"{path} is a binary file, not a table in text.")
    return "utf-8" if encoding.codec.startswith("utf-8") else encoding.codec


def _encoding_note(codec: str) -> str:
    guess = "" if codec.startswith("utf-") else ", which is a guess"
    return f"not UTF-8, read as {codec}{guess}"


def brief(error: Exception) -> str:
    """Return DuckDB's message without hints about its settings."""
    message = str(error).split("\n\tCandidate functions")[0].split("Possible fixes:")[0].split("\n  file = ")[0]
    return message.replace(os.getcwd() + "/", "").strip()[:1_000]


def _type_map(types: Mapping[str, str]) -> str:
    named = [f"{quote_text(name)}: {quote_text('VARCHAR' if type == EMPTY else type)}" for name, type in types.items()]
    return "{" + ", ".join(named) + "}"


def _first_lines(file: str) -> tuple[str, str]:
    if file.endswith(PACKED):
        return "packed", ""
    with open(file, encoding="utf-8-sig", errors="replace") as lines:
        return lines.readline(SAMPLE_BYTES), lines.readline(SAMPLE_BYTES)


def _field_counts(file: str, delimiter: str, rows: int) -> dict[int, int]:
    """Return the numbers of fields in the first rows, each with the first line that has so many."""
    widths: dict[int, int] = {}
    with open(file, encoding="utf-8-sig", errors="replace", newline="") as lines, contextlib.suppress(csv.Error):
        reader = csv.reader(lines, delimiter=delimiter)
        for _, row in zip(range(rows), reader, strict=False):
            if row:
                widths.setdefault(len(row), reader.line_num)
    return widths


def _other_separators(file: str, chosen: str) -> list[str]:
    """Return other separators that would also split the file into a table."""
    if file.endswith(PACKED):
        return []
    found = {other: _field_counts(file, other, LOOKED_AT) for other in WORDS if other != chosen}
    return [other for other, widths in found.items() if len(widths) == 1 and 1 not in widths]


def _describe_ragged(file: str) -> str:
    """Return which line is the first with another number of fields than the first line."""
    delimiter = max(WORDS, key=_first_lines(file)[0].count)
    (width, _), *others = _field_counts(file, delimiter, 10_000_000).items()
    if not others:
        return "no separator fits all lines."
    return f"separated by {WORDS[delimiter]}, line {others[0][1]} has {others[0][0]} fields, the first {width}."
