"""Read a sheet of an Excel or OpenDocument workbook as a table: its header, the types of its cells, and what is odd.

The header is found by its shape, and a note says what stands above it. Nothing is filled in: a merged cell has one
value.
"""

import csv
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import chain, islice
from typing import Any
from xml.etree import ElementTree

from donewhen.agent.workspace.data.encoding import SAMPLE_BYTES, encoding_of

ENDINGS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
NAMED = re.compile(rf"(?:{'|'.join(map(re.escape, ENDINGS))})(#)(?=.)", re.IGNORECASE | re.DOTALL)
FIRST_ROWS = 100
"""The rows among which the header is looked for."""
MOST_SHOWN = 5
TYPES: dict[frozenset[type], str] = {
    frozenset({int}): "BIGINT",
    frozenset({float}): "DOUBLE",
    frozenset({int, float}): "DOUBLE",
    frozenset({bool}): "BOOLEAN",
    frozenset({date}): "DATE",
    frozenset({datetime}): "TIMESTAMP",
    frozenset({date, datetime}): "TIMESTAMP",
    frozenset({time}): "TIME",
    frozenset({timedelta}): "INTERVAL",
}
ERROR = re.compile(rb't="e"[^<>]*>')
UNSOLVED = re.compile(rb"f>\s*(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v></(?:\w+:)?v>)?\s*</(?:\w+:)?c>")
"""The end of a cell with a formula that has no stored result; in one of type str that is an empty text."""


class NoSheet(Exception):
    """An error that says why a workbook cannot be read, or has no such sheet."""


@dataclass
class Sheet:
    """What is known of a sheet that was written as CSV."""

    columns: dict[str, str]
    """The types by the names of the columns."""
    notes: list[str]
    """How it was read, and what of it is not in the rows."""


@dataclass
class Merged:
    """A merged cell: its first and last row and column, and its value."""

    top: int
    left: int
    bottom: int
    right: int
    value: Any = ""


def split_sheet(name: str) -> tuple[str, str]:
    """Return the file and the sheet of a name such as `sales.xlsx#Q1`; the sheet is empty if it names none."""
    marks = list(NAMED.finditer(name))
    return (name[: marks[-1].start(1)], name[marks[-1].end(1) :]) if marks else (name, "")


def sheet_names(file: str) -> list[str]:
    """Return the names of the sheets that are not hidden. Raises NoSheet if it is no workbook."""
    with _open(file) as book:
        return [name for name, is_hidden in _hidden_sheets(book).items() if not is_hidden]


def write_sheet(file: str, name: str, copy: str) -> Sheet:
    """Write the rows of a sheet to a CSV file without a header; without a name, of the only sheet.

    Raises NoSheet if there is no such sheet, or several without a name.
    """
    with _open(file) as book:
        hidden = _hidden_sheets(book)
        if name and name not in hidden:
            raise NoSheet(f"{file} has no sheet {name!r}; it has {_list(hidden)}.")
        sheet = book.get_sheet_by_name(name) if name else _only_sheet(file, book)
        if not sheet.height:
            raise NoSheet(f"{file}#{name} has no values.")
        written = _write_table(sheet, copy)
        written.notes.insert(0, f"sheet {sheet.name!r}{', which is hidden' if hidden[sheet.name] else ''}")
    lost = _count_lost(file, sheet.name)
    if lost:
        written.notes.append(f"NOTE: cells with an error, or a formula without a stored result, are null: {lost}")
    return written


def unique_names(names: Sequence[str]) -> list[str]:
    """Return names of columns; a name that occurred before, in whatever case, gets a number."""
    taken, unique = set[str](), list[str]()
    for wanted in names:
        ways = (wanted, *(f"{wanted}_{number}" for number in range(1, len(names) + 1)))
        unique.append(next(name for name in ways if name.casefold() not in taken))
        taken.add(unique[-1].casefold())
    return unique


def _open(file: str) -> Any:
    """Return the open workbook. Raises NoSheet if it cannot be read."""
    import python_calamine

    try:
        return python_calamine.CalamineWorkbook.from_path(file)
    except python_calamine.PasswordError:
        raise NoSheet(f"{file} is protected by a password: save it without one.") from None
    except (python_calamine.CalamineError, OSError) as error:
        raise NoSheet(f"{file} is no workbook that can be read: {_disguise(file) or error}") from None


def _disguise(file: str) -> str:
    """Return what a file with the ending of a workbook really is, as many programs write them; "" if unknown."""
    if not os.path.getsize(file):
        return "it is empty."
    with open(file, "rb") as content:
        is_text = encoding_of(content, SAMPLE_BYTES) is not None
    return "it is text. If that is a table, copy it to a file that ends in .csv, and read that." if is_text else ""


def _hidden_sheets(book: Any) -> dict[str, bool]:
    """Return whether each sheet of cells is hidden, by their names."""
    import python_calamine

    kind, seen = python_calamine.SheetTypeEnum.WorkSheet, python_calamine.SheetVisibleEnum.Visible
    return {each.name: each.visible != seen for each in book.sheets_metadata if each.typ == kind}


def _only_sheet(file: str, book: Any) -> Any:
    """Return the only sheet that can be meant. Raises NoSheet if there is none, or several."""
    names = [name for name, is_hidden in _hidden_sheets(book).items() if not is_hidden]
    seen = [sheet for sheet in map(book.get_sheet_by_name, names) if sheet.height]
    if not seen:
        raise NoSheet(f"{file} has no values in a sheet that is not hidden.")
    if len(seen) > 1:
        named = f"{file}#{seen[0].name}".replace("'", "''")
        shown = _list(sheet.name for sheet in seen)
        raise NoSheet(f"{file} has {len(seen)} sheets ({shown}): name one, as in FROM '{named}'.")
    return seen[0]


def _write_table(sheet: Any, copy: str) -> Sheet:
    """Write the rows below the header, and return what the columns are."""
    rows, width, merged = sheet.iter_rows(), sheet.width, list[Merged]()
    first = [[_blank(each) for each in row] for row in islice(rows, sheet.start[0] + FIRST_ROWS)]
    for (top, left), (bottom, right) in sheet.merged_cell_ranges or ():
        left, right = left - sheet.start[1], min(right - sheet.start[1], width - 1)
        value = first[top][left] if top < len(first) and 0 <= left < width else ""
        merged.append(Merged(top, left, bottom, right, value))
    top, bottom = _find_header(first, [each for each in merged if each.value != ""])
    header = range(top, bottom + 1)
    names = [_join_names(first, [each for each in merged if each.value != ""], header, at) for at in range(width)]
    notes = [
        f"row {top + 1} read as the header" if top == bottom else f"rows {top + 1} to {bottom + 1} read as the header"
    ]
    if not any(isinstance(each, str) and each for at in header for each in first[at]):
        names, bottom, notes = [""] * width, top - 1, ["no header: column0, column1, …"]
    above = [_text(each) for row in first[:top] for each in row if each != ""]
    notes += [f"above it: {_list(above)}"] if above else []
    below = [each for each in merged if each.top > bottom and (each.bottom, each.right) != (each.top, each.left)]
    spans = [each for each in merged if each.bottom == bottom and each.right > each.left and each.value != ""]
    if spans:
        notes.append(f"NOTE: {_text(spans[0].value)!r} stands above several columns, and the row below it is data")
    if below:
        ranges = _list(_range_of(each, sheet.start[1]) for each in below)
        notes.append(
            f"NOTE: merged cells ({ranges}) have their value in their first row and column, null in the others"
        )
    kinds, gaps = [set[type]() for _ in range(width)], list[int]()
    with open(copy, "w", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows(
            _data_rows(chain(first[bottom + 1 :], rows), bottom + 2, kinds, gaps)
        )
    if gaps:
        notes.append(f"NOTE: row {gaps[0]} is empty, and what stands below it may be another table")
    wanted = [name or f"column{at}" for at, name in enumerate(names)]
    types = [TYPES.get(frozenset(each), "VARCHAR") for each in kinds]
    return Sheet(dict(zip(unique_names(wanted), types, strict=True)), notes)


def _find_header(rows: Sequence[Sequence[Any]], merged: Sequence[Merged]) -> tuple[int, int]:
    """Return the first and the last row of the header.

    It begins with the first row that has several values above more than half of the columns. Merged cells belong to
    all rows and columns that they cover; below one that covers several columns there may be another row of names.
    """
    several = list[int]()
    start = None
    for at, row in enumerate(rows):
        covering = [each for each in merged if each.top <= at <= each.bottom]
        alone = {column for column, value in enumerate(row) if value != ""}
        if len(alone) + sum(each.top < at for each in covering) < 2:
            continue
        several.append(at)
        covered = alone.union(*(range(each.left, each.right + 1) for each in covering))
        if len(covered) * 2 > len(row):
            start = at
            break
    if start is None:
        start = several[0] if several else next(at for at, row in enumerate(rows) if any(each != "" for each in row))
    top = min([each.top for each in merged if each.top <= start <= each.bottom], default=start)
    bottom = start
    while True:
        last = max([each.bottom for each in merged if top <= each.top <= bottom], default=bottom)
        wide = [each for each in merged if each.bottom == last and top <= each.top and each.right > each.left]
        under = (
            [rows[last + 1][column] for each in wide for column in range(each.left, each.right + 1)]
            if (last + 1 < len(rows))
            else []
        )
        if under and all(isinstance(each, str) and each for each in under):
            last += 1
        if last == bottom:
            return top, bottom
        bottom = min(last, len(rows) - 1)


def _join_names(rows: Sequence[Sequence[Any]], merged: Sequence[Merged], header: range, column: int) -> str:
    """Return the name of a column: what stands above it in the rows of the header, each once."""
    names = list[str]()
    for at in header:
        over = [each.value for each in merged if each.top <= at <= each.bottom and each.left <= column <= each.right]
        name = " ".join(_text(over[0] if over else rows[at][column]).split())
        names += [name] if name and name not in names[-1:] else []
    return " ".join(names)


def _data_rows(rows: Iterable[Sequence[Any]], at: int, kinds: list[set[type]], gaps: list[int]) -> Iterator[list[str]]:
    """Yield the rows with values as text, and note the types of their values, and the empty rows between them."""
    empty, begun = 0, False
    for number, row in enumerate(rows, at):
        texts = list[str]()
        for kind, each in zip(kinds, row, strict=True):
            # Millions of cells come by: nothing is called for most of them.
            if each.__class__ is str:
                text = "" if not each or each.isspace() else each
                if text:
                    kind.add(str)
            else:
                text = _text(each)
                kind.add(int if each.__class__ is float and text.lstrip("-").isdigit() else each.__class__)
            texts.append(text)
        if not any(texts):
            empty = empty or number
            continue
        gaps += [empty] if empty and begun else []
        empty, begun = 0, True
        yield texts


def _blank(value: Any) -> Any:
    return "" if isinstance(value, str) and not value.strip() else value


def _text(value: Any) -> str:
    """Return a value as text: numbers with the digits that Excel shows, times as in ISO 8601."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 2**63 else f"{value:.15g}"
    if isinstance(value, timedelta):
        seconds = round(value.total_seconds())
        sign, seconds = "-" * (seconds < 0), abs(seconds)
        return f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat(" ") if isinstance(value, datetime) else str(value)


def _list(values: Iterable[str]) -> str:
    """Return the first values, and how many more there are."""
    shown = [repr(each) for each in values]
    more = f" and {len(shown) - MOST_SHOWN} more" if len(shown) > MOST_SHOWN else ""
    return ", ".join(shown[:MOST_SHOWN])[:300] + more


def _range_of(cell: Merged, left: int) -> str:
    return f"{_letters(cell.left + left)}{cell.top + 1}:{_letters(cell.right + left)}{cell.bottom + 1}"


def _letters(column: int) -> str:
    """Return the letters of a column, counted from 0."""
    return (_letters(column // 26 - 1) if column >= 26 else "") + chr(ord("A") + column % 26)


def _count_lost(file: str, name: str) -> int:
    """Return how many cells of a sheet have an error, or a formula without a stored result, which all read as null.

    Only files of Excel 2007 and later tell.
    """
    if not file.lower().endswith((".xlsx", ".xlsm")):
        return 0
    lost, rest = 0, b""
    with zipfile.ZipFile(file) as parts, parts.open(_part_of(parts, name)) as xml:
        while chunk := xml.read(1 << 20):
            chunk = rest + chunk
            at = max(chunk.rfind(b"<row"), chunk.rfind(b"</row"), 0)
            lost, rest = lost + _lost_in(chunk[:at]), chunk[at:]
    return lost + _lost_in(rest)


def _lost_in(rows: bytes) -> int:
    cells = (rows[rows.rfind(b" r=", 0, match.start()) : match.start()] for match in UNSOLVED.finditer(rows))
    return sum(1 for _ in ERROR.finditer(rows)) + sum(b't="str"' not in cell.partition(b">")[0] for cell in cells)


def _part_of(parts: zipfile.ZipFile, name: str) -> str:
    """Return the part of the file in which a sheet is."""
    book = ElementTree.fromstring(parts.read("xl/workbook.xml"))
    links = ElementTree.fromstring(parts.read("xl/_rels/workbook.xml.rels"))
    sheet = next(each for each in book.iter() if each.tag.endswith("}sheet") and each.get("name") == name)
    link = next(value for key, value in sheet.attrib.items() if key.endswith("}id"))
    target = next(each.get("Target", "") for each in links if each.get("Id") == link)
    return target.lstrip("/") if target.startswith("/") else os.path.normpath(f"xl/{target}")
