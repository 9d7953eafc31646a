"""Read the data files of a folder as tables, and refuse those that cannot be read reliably."""

import codecs
import contextlib
import csv
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from donewhen.agent.workspace.data.columns import (
    CORE,
    PARTS,
    SNIFFED,
    STRICT,
    Column,
    likely_sql,
    quote_name,
    quote_text,
)
from donewhen.agent.workspace.data.encoding import OTHER_TOOL, SAMPLE_BYTES, encoding_of
from donewhen.agent.workspace.data.workbook import ENDINGS as WORKBOOKS
from donewhen.agent.workspace.data.workbook import NoSheet, Sheet, sheet_names, split_sheet, unique_names, write_sheet

JSON, PARQUET = (".json", ".jsonl", ".ndjson"), (".parquet",)
PACKED = (".gz", ".zst")
ENDINGS = (".csv", ".tsv", ".tab", *PACKED, *JSON, *PARQUET, *WORKBOOKS)
WORDS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
FORM = ("Delimiter", "Quote", "Escape", "HasHeader", "Columns", "DateFormat", "TimestampFormat")
HINT = (
    " Say how to read it: read_csv('file', delim = ';', skip = 2, header = true, null_padding = true, "
    "all_varchar = true, ...)."
)
ELSEWHERE = "{} leads out of the workspace or through a symbolic link; neither is followed."
_NO_ACCESS = re.compile(r'\APermission Error: Cannot access (?:file|directory) "([^"]*)"')
"""What DuckDB says of a path that its settings, which it names, do not let it read."""
MAX_FILES = 200
MOST_COLUMNS = 40
"""The most columns that are measured at once."""
LOOKED_AT = 1_000
SNIFFED_ROWS = 20_480
"""Rows by which the form of a large file is guessed, before one read of all shows whether that holds."""
SAMPLED_ROWS = SNIFFED_ROWS // 2
FEW_BYTES = "buffer_size = 4_000_000"
"""The bytes read at once if only the first rows are wanted."""
PARTS_OF = "parts of "
"""The beginning of the name of a column with the parts of dates, which no view shows."""
FILLED, LIKELY = {"filled": "count({c})"}, {"likely": "count({likely})"}
QUIET_NS = 50_000_000
"""How long a file must be unchanged to be remembered; two changes in one tick of the file system look like one."""


class RefusedData(Exception):
    """An error for the model in place of a result."""


@dataclass
class Table:
    """A file as a table: the way DuckDB reads it, and its columns."""

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
    keys: dict[str, str] = field(default_factory=dict)
    """The keys of a JSON file by the names of their columns, where DuckDB would take two keys for one."""
    is_sheet: bool = False
    """True for a sheet of a workbook."""
    mixed: bool = False
    """True for a text whose lines end in different ways; they all end alike in its copy."""

    @property
    def native(self) -> bool:
        """Return whether the file itself declares the types of its columns."""
        return self.reader == "read_parquet"

    @property
    def typed(self) -> bool:
        """Return whether the file itself says what is a number, a truth or a text."""
        return self.is_sheet or self.reader != "read_csv"

    @property
    def is_copied(self) -> bool:
        """Return whether a copy of a text is read, as DuckDB would not read the file itself."""
        return self.encoding != "utf-8" or self.mixed

    @property
    def source(self) -> str:
        """Return the SQL that reads the columns with a settled type."""
        if self.native:
            return f"(FROM read_parquet({quote_text(self.file)}))"
        settled = [column for column in self.columns if column.settled]
        parts_of = PARTS_OF
        while any(column.name.casefold().startswith(parts_of) for column in self.columns):
            parts_of += "_"
        values = ", ".join(column.source(f'"{parts_of}{at}"') for at, column in enumerate(settled))
        rows = self.read({column.name: column.stored_as for column in self.columns})
        # Not a subquery for each value: DuckDB joins those, and the rows lose their order.
        parts = [f'{column.parts} AS "{parts_of}{at}"' for at, column in enumerate(settled) if column.parts]
        rows = f"(SELECT *, {', '.join(parts)} FROM {rows})" if parts else rows
        return f"(SELECT {values} FROM {rows})"

    def read(self, types: Mapping[str, str], few: bool = False) -> str:
        """Return the SQL that reads the file with these types; `few`: only its first rows are needed."""
        if self.keys:
            values = (
                f"CAST(json ->> {quote_text(_pointer(self.keys[name]))} AS {type}) AS {quote_name(name)}"
                for name, type in types.items()
            )
            return f"(SELECT {', '.join(values)} FROM read_json_objects({quote_text(self.file)}))"
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
        self.opened: dict[str, Table] = {}
        self.refused: list[str] = []
        self.left_out: set[str] = set()
        """What fits a pattern and is not read, in words for the model."""
        self.remembered: Mapping[str, Any] = remembered or {}
        self.learned: dict[str, Any] = {}
        """New facts to remember, by path."""
        self.doing: str = "reading"
        """The current work, in words for people."""

    def view(self, path: str, sql: str | None = None) -> None:
        """Create a view with this name of a file or of all files that match a pattern; a refused file fails when read.

        The view has at least the columns that `sql` (casefolded) contains; without it, all.
        """
        try:
            file, sheet = split_sheet(path)
            paths = [file] if os.path.exists(file) else self._matching_files(file)
            names = [f"{each}#{sheet}" if sheet else each for each in paths]
            source = " UNION ALL BY NAME ".join(f"FROM {self.open(each, sql).source}" for each in names)
        except RefusedData as refusal:
            self.refused.append(str(refusal))
            source = f"SELECT 1 AS refused WHERE error({quote_text(str(refusal))}) IS NULL"
        self.con.execute(f"CREATE OR REPLACE VIEW {quote_name(path)} AS {source}")

    def names(self, path: str) -> list[str]:
        """Return the names of the tables in a file: of each sheet of a workbook, else its path."""
        file, sheet = split_sheet(path)
        if sheet or not file.lower().endswith(WORKBOOKS):
            return [path]
        _check_path(path, file)
        try:
            return [f"{path}#{name}" for name in sheet_names(file)] or [path]
        except NoSheet as error:
            raise RefusedData(str(error)) from None

    def open(self, path: str, sql: str | None = None, *, whole: bool = False) -> Table:
        """Return a file as a table in which the columns that `sql` contains have a settled type; without it, all.

        `whole`: count its rows too. Raises Refused if the types would be a guess.
        """
        file, sheet = split_sheet(path)
        plain = _check_path(path, file)
        state = _file_state(plain)
        plain = f"{plain}#{sheet}" if sheet else plain
        recalled = self._from_memory(path, plain, state)
        table = recalled or self._read(path, plain)
        try:
            read = self._settle_types(table, sql, whole=whole)
        except RefusedData:
            if table.proven:
                raise
            table = self._sniff_all_rows(table, plain)
            read = self._settle_types(table, sql, whole=whole)
        if state and (read or recalled is None):
            self.learned[plain] = {"state": state, "table": asdict(table)}
        self.opened[path] = table
        return table

    def _from_memory(self, path: str, plain: str, state: list[int]) -> Table | None:
        """Return the table of a file from the earlier facts; None if there are none, or the file has changed."""
        fact = self.remembered.get(plain)
        if not fact or fact["state"] != state:
            return None
        table = Table(**{**fact["table"], "path": path})
        table.columns = [Column(**column) for column in fact["table"]["columns"]]
        if table.is_sheet:
            table.file, _ = self._copy_sheet(plain)
        elif table.is_copied:
            table.file = self._copy_as_utf8(plain, table.encoding, mixed=table.mixed)
        return table

    def _read(self, path: str, plain: str) -> Table:
        ending = os.path.splitext(split_sheet(path)[0].removesuffix(".gz").removesuffix(".zst"))[1].lower()
        if ending in WORKBOOKS:
            return self._read_sheet(path, plain)
        if ending in PARQUET:
            table = Table(path, plain, "read_parquet", ["Parquet"], proven=True)
            table.columns = self._describe_columns(table, table.source)
            return table
        return self._read_json(path, plain) if ending in JSON else self._read_csv(path, plain)

    def _read_sheet(self, path: str, plain: str) -> Table:
        copy, sheet = self._copy_sheet(plain)
        options = """auto_detect = false, delim = ',', quote = '"', escape = '"', comment = '', header = false"""
        table = Table(path, copy, "read_csv", sheet.notes, options, proven=True, is_sheet=True)
        table.columns = [Column(name, type) for name, type in sheet.columns.items()]
        return table

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
            {}
            if not wanted
            else column.measures(proven=proven, typed=table.typed)
            if is_text or not table.native
            else {**FILLED}
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
        rows, results = self._measure(table, source, measures)
        closer = [
            column.closer_measures(each, proven=proven) if each else {}
            for column, each in zip(table.columns, results, strict=True)
        ]
        missing = [{} if wanted.keys() <= each.keys() else wanted for wanted, each in zip(closer, results, strict=True)]
        _, more = self._measure(table, source, missing)
        if any(each.get("wrong") for each in (*results, *more)):
            raise RefusedData(f"{table.path} has values in later rows that its first rows do not show.")
        table.rows = rows
        for column, type, each, rest in zip(table.columns, types, results, more, strict=True):
            if each:
                column.settle({**each, **rest}, table.delimiter)
                if table.native:
                    column.keep_native(type)
        return True

    def _measure(
        self, table: Table, source: str, measures: Sequence[Mapping[str, str]]
    ) -> tuple[int, list[dict[str, Any]]]:
        """Return the number of rows and the measurements of each column; read nothing if none is to be measured.

        Some columns at a time: each pattern takes memory of its own.
        """
        asked, rows, results = (
            [at for at, needed in enumerate(measures) if needed],
            0,
            [dict[str, Any]() for _ in measures],
        )
        for first in range(0, len(asked), MOST_COLUMNS):
            rows, few = self._measure_some(table, source, {at: measures[at] for at in asked[first:][:MOST_COLUMNS]})
            for at, values in few.items():
                results[at] = values
        return rows, results

    def _measure_some(
        self, table: Table, source: str, measures: Mapping[int, Mapping[str, str]]
    ) -> tuple[int, dict[int, dict[str, Any]]]:
        columns, looks, cores, dates, wanted = list[str](), list[str](), list[str](), list[str](), list[str]()
        for at, needed in measures.items():
            sql = " ".join(needed.values())
            columns += [f"{quote_name(table.columns[at].name)} AS c{at}"]
            is_looked_at = any(each in sql for each in ("{likely}", "{core}", "{parts}"))
            looks += [f"{likely_sql(f'c{at}')} AS l{at}"] if is_looked_at else []
            cores += [f"{CORE.replace('{likely}', f'l{at}')} AS v{at}"] if "{core}" in sql else []
            dates += [f"{PARTS.replace('{likely}', f'l{at}')} AS p{at}"] if "{parts}" in sql else []
            for measure in needed.values():
                measure = measure.replace("{c}", f"c{at}").replace("{likely}", f"l{at}").replace("{core}", f"v{at}")
                wanted.append(measure.replace("{parts}", f"p{at}"))
        source = f"(SELECT {', '.join(columns)} FROM {source})"
        for more in (looks, [*cores, *dates]):
            source = f"(SELECT *, {', '.join(more)} FROM {source})" if more else source
        rows, *values = self._first_row(table.path, f"SELECT {', '.join(['count(*)', *wanted])} FROM {source}")
        left = iter(values)
        return rows, {at: {name: next(left) for name in needed} for at, needed in measures.items()}

    def _first_row(self, path: str, sql: str) -> Sequence[Any]:
        """Return the first row of the result of this SQL. Raises Refused if the file cannot be read by it."""
        try:
            row: Sequence[Any] = self.con.execute(sql).fetchone()
        except Exception as error:
            hint = "" if path.lower().endswith(JSON) else HINT
            raise RefusedData(f"{path} is no table that can be read for sure: {brief(error)}{hint}") from None
        return row

    def _matching_files(self, pattern: str) -> list[str]:
        """Return the files that match a pattern, without hidden files and links."""
        try:
            matches = self.con.execute(f"SELECT file FROM glob({quote_text(pattern)}) ORDER BY file").fetchall()
        except Exception as error:
            raise RefusedData(f"{pattern!r} cannot be looked for: {brief(error).splitlines()[0]}") from None
        links = [path for (path,) in matches if os.path.islink(path)]
        self.left_out |= {f"NOTE {pattern}: {ELSEWHERE.format(each)}" for each in links if _leads_out(each)}
        paths = [os.path.relpath(path) for (path,) in matches if path not in links]
        paths = [path for path in paths if not any(name.startswith(".") for name in path.split(os.sep))]
        if not paths or len(paths) > MAX_FILES:
            raise RefusedData(f"{len(paths) or 'No'} files fit {pattern!r}; 1 to {MAX_FILES} can be read together.")
        return paths

    def _describe_columns(self, table: Table, source: str) -> list[Column]:
        return [Column(row[0], row[1]) for row in self._rows(table, f"DESCRIBE SELECT * FROM {source}")]

    def _rows(self, table: Table, sql: str) -> list[Sequence[Any]]:
        try:
            rows: list[Sequence[Any]] = self.con.execute(sql).fetchall()
        except Exception as error:
            raise RefusedData(f"{table.path} cannot be read as {table.notes[0]}: {brief(error)}") from None
        return rows

    def _read_json(self, path: str, plain: str) -> Table:
        options = "dateformat = '%Y-%m-%d', timestampformat = 'iso'"
        encoding = self._encoding_of_json(path, plain)
        notes = ["JSON", *([] if encoding.startswith("utf-8") else [_encoding_note(encoding)])]
        file = plain if encoding == "utf-8" else self._copy_as_utf8(plain, encoding)
        table = Table(path, file, "read_json", notes, options, encoding=encoding, proven=True)
        try:
            source = f"read_json({quote_text(file)}, sample_size = -1, {options})"
            table.columns = self._describe_columns(table, source)
        except RefusedData:  # for keys below others that differ only in case, too
            with contextlib.suppress(RefusedData):
                table.columns = self._columns_by_key(table)
                return table
            raise
        names = {column.name.casefold() for column in table.columns}
        if any(re.sub(r"_\d+$", "", name) in names - {name} for name in names):  # DuckDB may have numbered them
            table.columns = self._columns_by_key(table)
        return table

    def _encoding_of_json(self, path: str, plain: str) -> str:
        """Return the encoding of a JSON file, which DuckDB reads as UTF-8 without a mark."""
        if plain.endswith(PACKED):
            return "utf-8"
        with open(plain, "rb") as file:
            if file.read(3) == codecs.BOM_UTF8:
                return "utf-8-sig"
        encoding = _encoding_of(path, plain, SAMPLE_BYTES)
        return encoding if encoding == "utf-8" else _encoding_of(path, plain, os.path.getsize(plain))

    def _columns_by_key(self, table: Table) -> list[Column]:
        """Return the columns of a JSON file, one for each key in whatever case, with types by the values."""
        columns = list[Column]()
        keys = "unnest(json_keys(json)) AS key, generate_subscripts(json_keys(json), 1) AS place"
        objects = f"SELECT json, row_number() OVER () AS line FROM read_json_objects({quote_text(table.file)})"
        kind = "json_type(json, concat('/', replace(replace(key, '~', '~0'), '/', '~1')))"
        key_rows = self._rows(
            table,
            f"SELECT key, list(DISTINCT kind) FILTER (kind <> 'NULL') FROM (SELECT *, {kind} AS kind FROM "
            f"(SELECT json, line, {keys} FROM ({objects}))) GROUP BY key ORDER BY min((line, place))",
        )
        for name, (key, kinds) in zip(unique_names([key for key, _ in key_rows]), key_rows, strict=True):
            table.keys[name] = key
            table.notes += [] if name == key else [f"NOTE: {quote_name(name)} is the key {quote_name(key)}"]
            columns.append(Column(name, _type_of_kinds(set(kinds or ()))))
        return columns

    def _read_csv(self, path: str, plain: str) -> Table:
        """Return a CSV file as a table, sniffed by its first rows if they suffice, else by all rows."""
        encoding = "utf-8" if plain.endswith(PACKED) else _encoding_of(path, plain, SAMPLE_BYTES)
        encoding = encoding if encoding == "utf-8" else _encoding_of(path, plain, os.path.getsize(plain))
        file = plain if encoding == "utf-8" else self._copy_as_utf8(plain, encoding)
        table = Table(path, file, "read_csv", [], encoding=encoding)
        try:
            return self._sniff(table, SNIFFED_ROWS)
        except RefusedData:
            return self._sniff_all_rows(table, plain)

    def _sniff_all_rows(self, table: Table, plain: str) -> Table:
        """Return a CSV file as a table, sniffed by all rows."""
        file, encoding = table.file, table.encoding
        if file == plain and not plain.endswith(PACKED):  # what comes late in a large file
            encoding = _encoding_of(table.path, plain, os.path.getsize(plain))
            file = plain if encoding == "utf-8" else self._copy_as_utf8(plain, encoding)
        try:
            return self._sniff(Table(table.path, file, "read_csv", [], encoding=encoding), -1)
        except RefusedData:
            if not _mixes_line_ends(file):
                raise
            file = self._copy_as_utf8(plain, encoding, mixed=True)
        mended = self._sniff(Table(table.path, file, "read_csv", [], encoding=encoding, mixed=True), -1)
        mended.notes.append("its lines end in different ways")
        return mended

    def _sniff(self, table: Table, rows: int) -> Table:
        """Return the table with its format and columns, sniffed by so many rows; -1 for all."""
        path, file = table.path, table.file
        first, second = _first_lines(file)
        if not first.strip():
            raise RefusedData(f"{path} is empty, or begins with an empty line.{HINT}")
        hint = re.fullmatch(r"sep=(.)\s*", first)
        skip = 1 if hint else 0
        extra = f", delim = {quote_text(hint[1])}" if hint else ""
        extra += f", {FEW_BYTES}" if rows > 0 else ""
        sniffed = f"sniff_csv({quote_text(file)}, sample_size = {rows}, skip = {skip}, comment = ''{extra})"
        values = self._first_row(path, f"SELECT {', '.join(FORM)} FROM {sniffed}")
        form: dict[str, Any] = {
            key: "" if value == "(empty)" else value for key, value in zip(FORM, values, strict=True)
        }
        if len(form["Columns"]) == 1 and any(mark in (second if hint else first) for mark in WORDS):
            raise RefusedData(f"{path} is no table that can be read for sure: {_describe_ragged(file)}{HINT}")
        is_list = len(form["Columns"]) == 1
        table.notes = [
            "CSV of one column" if is_list else f"CSV separated by {WORDS.get(form['Delimiter'], form['Delimiter'])}"
        ]
        table.notes.append(
            "first line read as the header" if form["HasHeader"] else "no header line: column0, column1, …"
        )
        table.notes += [] if table.encoding == "utf-8" else [_encoding_note(table.encoding)]
        if not table.is_copied:  # the notes have SQL that reads the file itself
            table.notes += _later_tables(path, file) if is_list else _header_below(path, file, form["Delimiter"])
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
        for each in form["Columns"]:
            # Of the dates only those of ISO 8601 are read by DuckDB.
            guessed = {"DATE": form["DateFormat"], "TIMESTAMP": form["TimestampFormat"]}.get(each["type"]) or "%Y-%m-%d"
            table.columns.append(Column(each["name"], each["type"] if guessed.startswith("%Y-%m-%d") else "VARCHAR"))
        if rows > 0 and any(column.type not in (*SNIFFED, *STRICT) for column in table.columns):
            raise RefusedData(f"{path} has values of a type that only all rows can show.")
        table.delimiter, table.proven = form["Delimiter"], rows < 0
        return table

    def _copy_sheet(self, name: str) -> tuple[str, Sheet]:
        """Return a copy of a sheet as CSV, and what is known of it."""
        copy = self._new_copy()
        try:
            return copy, write_sheet(*split_sheet(name), copy)
        except NoSheet as error:
            raise RefusedData(str(error)) from None

    def _new_copy(self) -> str:
        return os.path.join(self.scratch, f"{len(os.listdir(self.scratch))}.csv")

    def _copy_as_utf8(self, path: str, encoding: str, *, mixed: bool = False) -> str:
        """Return a copy of the file in UTF-8; if its line ends are `mixed`, with one kind of them."""
        copy, encoding = self._new_copy(), "utf-8-sig" if encoding == "utf-8" else encoding
        with (
            open(path, encoding=encoding, errors="replace", newline=None if mixed else "") as old,
            open(copy, "w", encoding="utf-8", newline="") as new,
        ):
            while chunk := old.read(SAMPLE_BYTES):
                new.write(chunk)
        return copy


def _check_path(path: str, file: str) -> str:
    """Return the normal path of a file. Raises Refused if it leads elsewhere."""
    plain = os.path.normpath(file)
    if os.path.realpath(plain) != os.path.join(os.getcwd(), plain):
        raise RefusedData(ELSEWHERE.format(path))
    return plain


def _leads_out(path: str) -> bool:
    """Return whether what a link names is not in the workspace, so that no other name of it is read."""
    return not os.path.realpath(path).startswith(os.getcwd() + os.sep)


def _file_state(path: str) -> list[int]:
    """Return values that change whenever the file does; [] for a file that has changed just now."""
    with contextlib.suppress(OSError):
        stat = os.stat(path)
        changed = max(stat.st_mtime_ns, stat.st_ctime_ns)
        if time.time_ns() - changed > QUIET_NS:
            return [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    return []


def _encoding_of(path: str, plain: str, most: int) -> str:
    with open(plain, "rb") as file:
        encoding = encoding_of(file, most)
    if encoding is None:
        raise RefusedData(f"{path} is a binary file, not a table in text; {OTHER_TOOL}")
    return "utf-8" if encoding.codec.startswith("utf-8") else encoding.codec


def _encoding_note(codec: str) -> str:
    guess = "" if codec.startswith("utf-") else ", which is a guess"
    return f"not UTF-8, read as {codec}{guess}"


def brief(error: Exception) -> str:
    """Return DuckDB's message without hints about its settings."""
    if elsewhere := _NO_ACCESS.search(str(error)):
        return ELSEWHERE.format(elsewhere[1])
    message = str(error).split("\n\tCandidate functions")[0].split("Possible fixes:")[0].split("\n  file = ")[0]
    return message.replace(os.getcwd() + "/", "").strip()[:1_000]


def _pointer(key: str) -> str:
    """Return the JSON pointer to a key."""
    return "/" + key.replace("~", "~0").replace("/", "~1")


def _type_of_kinds(kinds: set[str]) -> str:
    """Return the SQL type for these kinds of JSON values."""
    if kinds and kinds <= {"BIGINT", "UBIGINT", "DOUBLE"}:
        return "DOUBLE" if "DOUBLE" in kinds else "HUGEINT" if "UBIGINT" in kinds else "BIGINT"
    if kinds and kinds <= {"OBJECT", "ARRAY"}:
        return "JSON"
    return "BOOLEAN" if kinds == {"BOOLEAN"} else "VARCHAR"


def _type_map(types: Mapping[str, str]) -> str:
    named = [f"{quote_text(name)}: {quote_text(type)}" for name, type in types.items()]
    return "{" + ", ".join(named) + "}"


def _first_lines(file: str) -> tuple[str, str]:
    if file.endswith(PACKED):
        return "packed", ""
    with open(file, encoding="utf-8-sig", errors="replace") as lines:
        return lines.readline(SAMPLE_BYTES), lines.readline(SAMPLE_BYTES)


def _mixes_line_ends(file: str) -> bool:
    """Return whether a file has lines that end with and without a carriage return, or with nothing but one."""
    if file.endswith(PACKED):
        return False
    with open(file, encoding="utf-8", errors="replace") as lines:
        while lines.read(SAMPLE_BYTES):
            if isinstance(lines.newlines, tuple):
                return True
    return False


def _numbered_rows(file: str, delimiter: str, most: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the first rows, each with the line where it begins; a field in quotes may have several lines."""
    with open(file, encoding="utf-8-sig", errors="replace", newline="") as lines, contextlib.suppress(csv.Error):
        reader, line = csv.reader(lines, delimiter=delimiter), 1
        for _, row in zip(range(most), reader, strict=False):
            yield line, row
            line = reader.line_num + 1


def _field_counts(file: str, delimiter: str, rows: int) -> dict[int, int]:
    """Return the numbers of fields in the first rows, each with the first line that has so many."""
    widths: dict[int, int] = {}
    for line, row in _numbered_rows(file, delimiter, rows):
        if row:
            widths.setdefault(len(row), line)
    return widths


def _other_separators(file: str, chosen: str) -> list[str]:
    """Return other separators that would also split the file into a table."""
    if file.endswith(PACKED):
        return []
    counts = {other: _field_counts(file, other, LOOKED_AT) for other in WORDS if other != chosen}
    return [other for other, widths in counts.items() if len(widths) == 1 and 1 not in widths]


def _header_below(path: str, file: str, mark: str) -> list[str]:
    """Return how to read what stands below a title: a first line with few fields filled, and one with all of them."""
    if file.endswith(PACKED):
        return []
    first: list[str] = []
    for number, (line, row) in enumerate(_numbered_rows(file, mark, LOOKED_AT), 1):
        first = first or row
        if line != number or sum(map(bool, map(str.strip, first))) * 2 >= len(first):
            return []  # DuckDB may skip lines or rows, so it is told neither where they differ
        if len(row) == len(first) and all(map(str.strip, row)):
            return [f"NOTE: line {line} is the first without an empty field: {_read_from(path, mark, line)}"]
    return []


def _read_from(path: str, mark: str, line: int) -> str:
    """Return the SQL that reads a file from its header in this line on."""
    form = f"delim = {quote_text(mark)}, skip = {line - 1}, header = true, all_varchar = true"
    return f"FROM read_csv({quote_text(path)}, {form})"


def _later_tables(path: str, file: str) -> list[str]:
    """Return how to read what stands below a title, for each separator by which it may be a table."""
    notes = list[str]()
    for mark in WORDS if not file.endswith(PACKED) else ():
        widths = _field_counts(file, mark, LOOKED_AT)
        width, line = max(widths.items())
        if len(widths) == 2 and 1 in widths and line > widths[1]:
            how = _read_from(path, mark, line)
            notes.append(f"NOTE: line {line} has {width} fields separated by {WORDS[mark]}: {how}")
    return notes


def _describe_ragged(file: str) -> str:
    """Return which line is the first with another number of fields than the first line."""
    delimiter = max(WORDS, key=_first_lines(file)[0].count)
    (width, _), *others = _field_counts(file, delimiter, 10_000_000).items()
    if not others:
        return "no separator fits all lines."
    return f"separated by {WORDS[delimiter]}, line {others[0][1]} has {others[0][0]} fields, the first {width}."
