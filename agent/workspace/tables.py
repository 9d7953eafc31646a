"""A CSV file as rows: separator found out, header cleaned, streamed row by row."""

import contextlib
import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from langchain_core.tools import ToolException

from donewhen.agent.workspace.amounts import Reader, reader_for
from donewhen.agent.workspace.root import Root
from donewhen.agent.workspace.text import open_text

DELIMITERS = ",;\t|"
SAMPLE_CHARS = 65_536
SAMPLE_ROWS = 200
MAX_LINE_CHARS = 1_000_000
MAX_COLUMNS = 2_000
EXCEL_HINT = re.compile(r"sep=(.)\r?\n")


@dataclass
class Row:
    """One row: its line in the file and its cells, as many as the file gave."""

    line: int
    cells: list[str]


@dataclass
class Table:
    """An open CSV file. `rows()` can be gone through once; blank lines are no rows."""

    path: str
    columns: list[str]
    delimiter: str
    sample: list[list[str]]
    """The cells of the first rows, by which columns are judged."""
    _lines: Iterator[Row]

    def rows(self) -> Iterator[Row]:
        """The rows below the header. Raises ToolException where the file is no CSV."""
        return self._lines

    def index(self, column: str) -> int:
        """Where a column stands. Case and outer blanks do not matter where that is unambiguous."""
        if column in self.columns:
            return self.columns.index(column)
        wanted = column.strip().casefold()
        same = [at for at, name in enumerate(self.columns) if name.casefold() == wanted]
        if len(same) != 1:
            raise ToolException(f"{self.path} has no column {column!r}; its columns are {names(self.columns)}.")
        return same[0]

    def reader(self, index: int) -> Reader:
        """How the numbers of a column are written."""
        return reader_for((row[index] for row in self.sample if index < len(row)), self.delimiter)


@contextlib.contextmanager
def open_table(root: Root, path: str) -> Iterator[Table]:
    """A CSV file with a header line, separated by comma, semicolon, tab or bar."""
    with root.open(path) as file, open_text(file, path) as text:
        start = text.read(SAMPLE_CHARS)
        hint = EXCEL_HINT.match(start)
        sample = start[hint.end() :] if hint else start
        delimiter = hint[1] if hint else _delimiter(sample)
        text.seek(0)
        lines = _rows(text, delimiter, path, skip=1 if hint else 0)
        header = next(lines, None)
        if header is None:
            raise ToolException(f"{path} is empty; a table needs a header line.")
        if len(header.cells) > MAX_COLUMNS:
            raise ToolException(f"{path} has {len(header.cells)} columns, more than {MAX_COLUMNS}.")
        first = [row.cells for row in itertools.islice(_sample_rows(sample, delimiter), 1, SAMPLE_ROWS + 1)]
        yield Table(path, _columns(header.cells), delimiter, first, lines)


def names(columns: list[str]) -> str:
    """Column names for a message, bounded."""
    listed = ", ".join(repr(name[:60]) for name in columns[:50])
    return listed + (f" and {len(columns) - 50} more" if len(columns) > 50 else "")


def _rows(text: io.TextIOWrapper, delimiter: str, path: str, skip: int) -> Iterator[Row]:
    reader = csv.reader(itertools.islice(_lines(text, path), skip, None), delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield Row(reader.line_num + skip, cells)
    except csv.Error as error:
        raise ToolException(f"{path} is not a valid CSV file, line {reader.line_num + skip}: {error}.") from None


def _lines(text: io.TextIOWrapper, path: str) -> Iterator[str]:
    """Lines, none of them larger than memory can hold."""
    while line := text.readline(MAX_LINE_CHARS):
        if len(line) == MAX_LINE_CHARS and not line.endswith(("\n", "\r")):
            raise ToolException(f"{path} is not a valid CSV file: a line has over {MAX_LINE_CHARS} characters.")
        yield line


def _sample_rows(sample: str, delimiter: str) -> Iterator[Row]:
    """The rows of a sample that may end in the middle of one."""
    reader = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)
    with contextlib.suppress(csv.Error):
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield Row(reader.line_num, cells)


def _delimiter(sample: str) -> str:
    """The separator that gives most rows the width of the header; of two, the wider table."""

    def fit(delimiter: str) -> tuple[float, int]:
        widths = [len(row.cells) for row in itertools.islice(_sample_rows(sample, delimiter), SAMPLE_ROWS)]
        if not widths or widths[0] < 2:
            return 0.0, 0
        return round(widths.count(widths[0]) / len(widths), 1), widths[0]

    return max(DELIMITERS, key=fit)


def _columns(header: list[str]) -> list[str]:
    """Names without outer blanks, unique, none of them empty."""
    seen: Counter[str] = Counter()
    columns = []
    for position, cell in enumerate(header, 1):
        name = cell.strip() or f"column {position}"
        seen[name] += 1
        columns.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return columns
