"""DuckDB over the data files of one folder: what a table holds, and one SELECT. Runs in a process of its own.

The process gets a request as its argument and writes `{"text"}` or `{"error"}` to stdout. It needs nothing but the
standard library and duckdb, can write nothing, and dies with its time or its memory, whatever the SQL does.
"""

import codecs
import contextlib
import csv
import glob
import json
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

SAMPLE_BYTES = 256_000
MEMORY = "1GB"
MAX_ROWS = 500
MAX_CELL = 1_000
MAX_CHARS = 18_000
MAX_FILES = 200
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
LAYOUT = frozenset(b"\t\n\r\f\b\x1b")
JSON, PARQUET, EXCEL = (".json", ".jsonl", ".ndjson"), (".parquet",), (".xlsx", ".xls")
TABLES = (".csv", ".tsv", ".tab", ".txt", ".gz", ".zst", *JSON, *PARQUET, *EXCEL)
WORDS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
FORM = ("Delimiter", "Quote", "Escape", "HasHeader", "Columns", "DateFormat", "TimestampFormat")
HOW = " Name what is unusual: read_csv('file', delim = ';', skip = 2, header = true, null_padding = true, ...)."
CORE = r"regexp_replace(trim({c}), '^[(]|[)]$|[$€£¥₹%\s]|EUR|USD|GBP|CHF|CNY|JPY|INR', '', 'g')"
POINT = r"regexp_full_match({v}, '[-+]?(\d+|\d{1,3}(,\d{3})+)([.]\d+)?')"
COMMA = r"regexp_full_match({v}, '[-+]?(\d+|\d{1,3}([.'']\d{3})+)(,\d+)?')"
TWOFOLD = r"regexp_full_match({v}, '[-+]?([1-9]\d{0,2}([.,]\d{3})+|\d{1,3})')"
DAY_FIRST = r"regexp_full_match({v}, '\d{1,2}[./-]\d{1,2}[./-]\d{2,4}([ T].*)?')"
EARLY = r"regexp_full_match({v}, '(0?[1-9]|1[0-2])[./-](0?[1-9]|1[0-2])[./-].*')"


class Refused(Exception):
    """What the model is told instead of a result."""


def encoding_of(sample: bytes) -> str | None:
    """The codec of a file that begins with `sample` (at most SAMPLE_BYTES); None when it is no text."""
    for mark, encoding in MARKS:
        if sample.startswith(mark):
            return encoding
    if b"\0" in sample:
        return None
    if _decodes(sample, "utf-8"):
        return "utf-8"
    control = sum(byte < 32 and byte not in LAYOUT for byte in sample)
    if control > len(sample) / 50:
        return None
    return "gb18030" if _looks_chinese(sample) else "cp1252"


def _decodes(sample: bytes, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        decoder.decode(sample, final=len(sample) < SAMPLE_BYTES)
    except UnicodeDecodeError:
        return False
    return True


def _looks_chinese(sample: bytes) -> bool:
    """GB text has its high bytes in pairs; in Western text a high byte stands alone among letters."""
    if not _decodes(sample, "gb18030"):
        return False
    high = bytes(byte >= 0x80 for byte in sample)
    alone = sum(len(run) == 1 for run in high.split(b"\0"))
    return alone <= 0.1 * sum(high)


@dataclass
class Column:
    """One column: its type in SQL, and what somebody who computes with it has to know."""

    name: str
    type: str
    warning: str = ""


@dataclass
class Table:
    """A file as a table: the SQL that reads it, and how it was read."""

    path: str
    source: str
    how: list[str]
    columns: list[Column]


class Tables:
    """The files of the current folder as tables of one connection, each under its path."""

    def __init__(self, con: Any, scratch: str) -> None:
        self.con = con
        self.scratch = scratch
        self.known: dict[str, Table] = {}
        self.refused: list[str] = []

    def view(self, path: str) -> None:
        """Let SQL read a file, or all that fit a pattern, under this name. What cannot be read for sure, fails."""
        try:
            paths = [path] if os.path.exists(path) else self._fitting(path)
            source = " UNION ALL BY NAME ".join(f"SELECT * FROM {self.open(each).source}" for each in paths)
        except Refused as refusal:
            self.refused.append(str(refusal))
            source = f"SELECT 1 AS refused WHERE error({_text(str(refusal))}) IS NULL"
        self.con.execute(f"CREATE VIEW {_name(path)} AS {source}")

    def open(self, path: str) -> Table:
        """How to read a file, every type settled by all of it. Raises Refused."""
        plain = os.path.normpath(path)
        if os.path.realpath(plain) != os.path.join(os.getcwd(), plain):
            raise Refused(f"{path} leads out of the workspace or through a symbolic link; neither is followed.")
        ending = os.path.splitext(path.removesuffix(".gz").removesuffix(".zst"))[1].lower()
        if ending in EXCEL:
            raise Refused(f"{path} is an Excel workbook, which cannot be read here. Save its sheets as CSV files.")
        if ending in PARQUET:
            table = self._typed(path, f"read_parquet({_text(plain)})", "Parquet")
        elif ending in JSON:
            table = self._typed(path, f"read_json({_text(plain)}, sample_size = -1)", "JSON")
        else:
            table = self._csv(path, *self._utf8(plain))
        self.known[path] = table
        return table

    def _fitting(self, pattern: str) -> list[str]:
        """The files that fit a pattern; nothing hidden, no links."""
        found = self.con.execute(f"SELECT file FROM glob({_text(pattern)}) ORDER BY file").fetchall()
        paths = [os.path.relpath(path) for (path,) in found if not os.path.islink(path)]
        paths = [path for path in paths if not any(name.startswith(".") for name in path.split(os.sep))]
        if not paths or len(paths) > MAX_FILES:
            raise Refused(f"{len(paths) or 'No'} files fit {pattern!r}; 1 to {MAX_FILES} can be read together.")
        return paths

    def _typed(self, path: str, source: str, kind: str) -> Table:
        try:
            rows = self.con.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
        except Exception as error:
            raise Refused(f"{path} cannot be read as {kind}: {_brief(error)}") from None
        return Table(path, source, [kind], [Column(row[0], row[1]) for row in rows])

    def _utf8(self, path: str) -> tuple[str, str]:
        """The file, or a copy of it in UTF-8, and the encoding that it has."""
        if path.endswith((".gz", ".zst")):
            return path, "utf-8"
        with open(path, "rb") as file:
            encoding = encoding_of(file.read(SAMPLE_BYTES))
        if encoding is None:
            raise Refused(f"{path} is a binary file, not a table in text.")
        if encoding.startswith("utf-8"):
            if _all_utf8(path):
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

    def _csv(self, path: str, file: str, encoding: str) -> Table:
        first, second = _first_lines(file)
        if not first.strip():
            raise Refused(f"{path} is empty, or begins with an empty line.{HOW}")
        hint = re.fullmatch(r"sep=(.)\s*", first)
        form = self._form(path, file, skip=1 if hint else 0, delimiter=hint[1] if hint else None)
        if len(form["Columns"]) == 1 and any(mark in (second if hint else first) for mark in WORDS):
            raise Refused(f"{path} is no table that can be read for sure: {_ragged(file)}{HOW}")
        columns = [Column(each["name"], each["type"]) for each in form["Columns"]]
        options = _options(form, 1 if hint else 0)
        self._settle(path, columns, f"read_csv({_text(file)}, {options}, columns = {_types(columns, 'VARCHAR')})", form)
        how = [f"CSV separated by {WORDS.get(form['Delimiter'], form['Delimiter'])}"]
        how.append("first line read as the header" if form["HasHeader"] else "no header line: column0, column1, …")
        if encoding != "utf-8":
            how.append(f"not UTF-8, read as {encoding}")
        for option, key in (("dateformat", "DateFormat"), ("timestampformat", "TimestampFormat")):
            options += f", {option} = {_text(form[key])}" if form[key] else ""
        return Table(path, f"read_csv({_text(file)}, {options}, columns = {_types(columns)})", how, columns)

    def _form(self, path: str, file: str, skip: int, delimiter: str | None) -> dict[str, Any]:
        """Separator, quotes, header and types, found over the whole file; no line is skipped for it."""
        given = f", delim = {_text(delimiter)}" if delimiter else ""
        sniffed = f"sniff_csv({_text(file)}, sample_size = -1, skip = {skip}{given})"
        try:
            found = self.con.execute(f"SELECT {', '.join(FORM)} FROM {sniffed}").fetchone()
        except Exception as error:
            raise Refused(f"{path} is no table that can be read for sure: {_brief(error)}{HOW}") from None
        return {key: "" if value == "(empty)" else value for key, value in zip(FORM, found, strict=True)}

    def _settle(self, path: str, columns: list[Column], source: str, form: dict[str, Any]) -> None:
        """Exact decimals instead of floats, text instead of what could be read in two ways; and the warnings."""
        judged = [(column, _measures(column.type)) for column in columns]
        wanted = [one.replace("{c}", _name(column.name)) for column, measures in judged for one in measures]
        try:
            found = iter(self.con.execute(f"SELECT {', '.join(['count(*)', *wanted])} FROM {source}").fetchone()[1:])
        except Exception as error:
            raise Refused(f"{path} is no table that can be read for sure: {_brief(error)}{HOW}") from None
        for column, measures in judged:
            values = [next(found) for _ in measures]
            if column.type == "DOUBLE":
                _settle_number(column, form["Delimiter"], *values)
            elif column.type == "VARCHAR":
                _settle_text(column, *values)
            elif measures:
                _settle_date(column, form["DateFormat" if column.type == "DATE" else "TimestampFormat"], *values)


def _measures(kind: str) -> list[str]:
    """What has to be counted over all rows, to know how a column can be read."""
    core = CORE
    if kind == "DOUBLE":
        return [
            r"count_if(NOT regexp_full_match(trim({c}), '[-+]?(\d+[.]?\d*|[.]\d+)'))",
            r"max(length(regexp_extract(trim({c}), '^[-+]?0*(\d*)', 1)))",
            r"max(length(regexp_extract(trim({c}), '[.](\d*)$', 1)))",
            f"bool_and({TWOFOLD.replace('{v}', 'trim({c})')})",
        ]
    if kind == "VARCHAR":
        point, comma, both = (form.replace("{v}", core) for form in (POINT, COMMA, TWOFOLD))
        day = DAY_FIRST.replace("{v}", "trim({c})")
        return [
            "count({c})",
            f"count_if({point} OR {comma})",
            f"count_if({point})",
            f"count_if({comma})",
            f"count_if({both})",
            r"count_if(regexp_full_match(trim({c}), '0\d+'))",
            f"max(length(regexp_extract({core}, '[.,](\\d*)$', 1)))",
            f"any_value({{c}}) FILTER (NOT ({point} OR {comma}))",
            f"any_value({{c}}) FILTER (regexp_matches({core}, '[.,]'))",
            f"count_if({day})",
            f"any_value({{c}}) FILTER ({day})",
        ]
    if kind in ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"):
        return ["count({c})", f"count_if({EARLY.replace('{v}', 'trim({c})')})", "any_value({c})"]
    return []


def _settle_number(column: Column, delimiter: str, odd: int, digits: int, scale: int, twofold: bool) -> None:
    if twofold and delimiter != ",":
        column.type = "VARCHAR"
    elif not odd and digits + scale <= 38:
        column.type = f"DECIMAL({18 if digits + scale <= 18 else 38}, {scale})"
    if twofold:
        read = "kept as text" if column.type == "VARCHAR" else "read with a decimal point"
        column.warning = (
            f"`.` before three digits may separate thousands or decimals: {read}. Decimals: "
            f"CAST({_name(column.name)} AS DECIMAL(18,3)); thousands: "
            f"CAST(replace({_name(column.name)}::VARCHAR, '.', '') AS BIGINT)"
        )


def _settle_text(
    column: Column,
    filled: int,
    numbers: int,
    point: int,
    comma: int,
    twofold: int,
    codes: int,
    scale: int,
    other: Any,
    example: Any,
    days: int,
    day: Any,
) -> None:
    quoted = _name(column.name)
    if days * 2 > filled:
        mark = next(char for char in str(day) if not char.isdigit())
        forms = " or ".join(f"strptime({quoted}, '{form.replace('/', mark)}')" for form in ("%d/%m/%Y", "%m/%d/%Y"))
        column.warning = f"looks like dates ({day}), kept as text: {forms}, whichever is meant"
    elif numbers * 2 > filled and not codes:
        cleaned = f"regexp_replace({quoted}, '[^0-9.-]', '', 'g')"
        german = f"replace(regexp_replace({quoted}, '[^0-9,-]', '', 'g'), ',', '.')"
        type = f"DECIMAL(18,{scale})"
        either = f"decimal point: CAST({cleaned} AS {type}); decimal comma: CAST({german} AS {type})"
        if twofold == numbers and example is not None:
            how = f"may be thousands or decimals ({example}). {either}"
        elif point == numbers:
            how = f"CAST({cleaned} AS {type})"
        elif comma == numbers:
            how = f"written with a decimal comma: CAST({german} AS {type})"
        else:
            how = f"some have a decimal point, some a decimal comma. {either}"
        rest = f", {filled - numbers} of {filled} values are none, such as {_cell(other)!r}" if numbers < filled else ""
        column.warning = f"looks like numbers, kept as text{rest}: {how}"
    elif codes:
        column.warning = "digits with leading zeros, kept as text"


def _settle_date(column: Column, form: str, filled: int, early: int, example: Any) -> None:
    if form and not form.startswith("%Y") and filled and early == filled:
        column.type = "VARCHAR"
        swapped = form.replace("%d", "%_").replace("%m", "%d").replace("%_", "%m")
        column.warning = (
            f"day and month cannot be told apart ({example}), kept as text: strptime({_name(column.name)}, "
            f"{_text(form)}) or strptime({_name(column.name)}, {_text(swapped)})"
        )


def describe(tables: Tables, path: str) -> str:
    """What a file holds: how it was read, its rows, and every column with type, examples, nulls and warning."""
    table = tables.open(path)
    con = tables.con
    rows = con.execute(f"SELECT count(*) FROM {table.source}").fetchone()[0]
    if table.how[0] in ("JSON", "Parquet"):
        tables._settle(path, table.columns, table.source, {})
    lines = [f"{path}: {rows} rows, {len(table.columns)} columns; {'; '.join(table.how)}"]
    for column in table.columns:
        quoted = _name(column.name)
        some = f"SELECT {quoted}::VARCHAR AS v FROM {table.source} WHERE {quoted} IS NOT NULL LIMIT 1000"
        nulls, examples = con.execute(
            f"SELECT count(*) - count({quoted}), (SELECT list(v) FROM (SELECT DISTINCT v FROM ({some}) LIMIT 4))"
            f" FROM {table.source}"
        ).fetchone()
        shown = ", ".join(_cell(each)[:60] for each in examples or ())
        lines.append(
            f"- {quoted} {column.type}; {nulls} null; e.g. {shown}"
            + (f"; NOTE: {column.warning}" if column.warning else "")
        )
    return "\n".join(lines)


def query(tables: Tables, sql: str) -> str:
    """The result of one SELECT: its rows, bounded, under their names."""
    import duckdb

    try:
        statements = tables.con.extract_statements(sql)
    except Exception as error:
        raise Refused(_brief(error)) from None
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise Refused("Only a single SELECT is run here: no other statement, and not several.")
    for path in _named(sql):
        tables.view(path)
    try:
        tables.con.query(statements[0].query).create("result")
    except Exception as error:
        raise Refused(" ".join(tables.refused) or _brief(error) + _noted(tables, sql)) from None
    return _shown(tables.con)


def _noted(tables: Tables, sql: str) -> str:
    notes = [
        f"{path}: {_name(column.name)} {column.warning}"
        for path, table in tables.known.items()
        for column in table.columns
        if column.warning and column.name.casefold() in sql.casefold()
    ]
    return "".join(f"\n{note}" for note in notes[:10])


def _shown(con: Any) -> str:
    total = con.execute("SELECT count(*) FROM result").fetchone()[0]
    cursor = con.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM result LIMIT {MAX_ROWS}")
    lines = [" | ".join(column[0] for column in cursor.description)]
    size = len(lines[0])
    for row in cursor.fetchall():
        line = " | ".join("NULL" if cell is None else _cell(cell) for cell in row)
        size += len(line) + 1
        if size > MAX_CHARS:
            break
        lines.append(line)
    shown = len(lines) - 1
    if shown == total:
        return "\n".join([*lines, f"({total} rows)"])
    left = f"{total} rows in all, only the first {shown} are shown, {total - shown} are left out"
    return "\n".join([*lines, f"({left}: aggregate, filter, or use ORDER BY with LIMIT and OFFSET)"])


def _named(sql: str) -> list[str]:
    """The files, and patterns of files, that stand in the SQL as names or texts."""
    import duckdb

    data = sql.encode()
    tokens = duckdb.tokenize(sql)
    ends = [start for start, _ in tokens[1:]] + [len(data)]
    found: dict[str, str] = {}
    for (start, _), end in zip(tokens, ends, strict=True):
        token = data[start:end].decode(errors="replace").strip()
        quote = token[:1]
        if quote not in ("'", '"') or len(token) < 3 or not token.endswith(quote):
            continue
        path = token[1:-1].replace(quote * 2, quote)
        inside = not os.path.isabs(path) and ".." not in path.split("/") and "\0" not in path
        named = inside and (os.path.isfile(path) or (glob.has_magic(path) and path.lower().endswith(TABLES)))
        if named and found.setdefault(path.casefold(), path) != path:
            raise Refused(f"{path} and {found[path.casefold()]} differ only by capitals; query them one by one.")
    return list(found.values())


def _first_lines(file: str) -> tuple[str, str]:
    if file.endswith((".gz", ".zst")):
        return "compressed", ""
    with open(file, encoding="utf-8-sig", errors="replace") as lines:
        return lines.readline(SAMPLE_BYTES), lines.readline(SAMPLE_BYTES)


def _ragged(file: str) -> str:
    """Which line has another number of fields than the first."""
    with open(file, encoding="utf-8-sig", newline="") as lines:
        first = lines.readline(SAMPLE_BYTES)
        delimiter = max(WORDS, key=first.count)
        lines.seek(0)
        reader = csv.reader(lines, delimiter=delimiter)
        width = 0
        with contextlib.suppress(csv.Error):
            for row in reader:
                width = width or len(row)
                if row and len(row) != width:
                    split = f"separated by {WORDS[delimiter]}"
                    return f"{split}, line {reader.line_num} has {len(row)} fields, the first {width}."
    return "no separator fits all lines."


def _all_utf8(path: str) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with open(path, "rb") as file:
        try:
            while chunk := file.read(1 << 20):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def _options(form: dict[str, Any], skip: int) -> str:
    marks = ", ".join(
        f"{key} = {_text(form[name])}"
        for key, name in (("delim", "Delimiter"), ("quote", "Quote"), ("escape", "Escape"))
    )
    return f"auto_detect = false, {marks}, comment = '', skip = {skip}, header = {str(form['HasHeader']).lower()}"


def _types(columns: list[Column], type: str | None = None) -> str:
    return "{" + ", ".join(f"{_text(column.name)}: {_text(type or column.type)}" for column in columns) + "}"


def _brief(error: Exception) -> str:
    """DuckDB's message without what only concerns its own settings."""
    message = str(error).split("Possible fixes:")[0].split("\n  file = ")[0]
    return message.strip()[:1500]


def _cell(value: object) -> str:
    shown = str(value).replace("\r", "").replace("\n", "\\n")
    return shown if len(shown) <= MAX_CELL else f"{shown[:MAX_CELL]}… ({len(shown)} characters)"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def connect(root: str, scratch: str) -> Any:
    """An empty database in memory that may read below `root` (and `scratch`), and do nothing else."""
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
    con.execute(f"SET allowed_directories = [{_text(root + '/')}, {_text(scratch + '/')}]")
    con.execute("SET TimeZone = 'UTC'")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
    return con


def main() -> None:
    """One request on the command line, one answer on stdout."""
    request = json.loads(sys.argv[1])
    sys.path[:] = request["path"]
    os.chdir(request["root"])
    with tempfile.TemporaryDirectory() as scratch:
        try:
            tables = Tables(connect(request["root"], os.path.realpath(scratch)), os.path.realpath(scratch))
            done = {"describe": describe, "query": query}[request["do"]](tables, request["of"])
            answer = {"text": done}
        except Refused as refusal:
            answer = {"error": str(refusal)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
