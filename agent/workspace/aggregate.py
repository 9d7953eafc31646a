"""Sums, averages, counts and extremes over a CSV file, and a description of its columns."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Annotated, Any, Literal

from langchain_core.tools import ToolException
from pydantic import Field

from donewhen.agent.workspace.amounts import Amount, Reader, is_date
from donewhen.agent.workspace.root import Root
from donewhen.agent.workspace.tables import Row, Table, names, open_table

Operation = Literal["sum", "average", "count", "min", "max"]
Value = str | int | float | bool
EXACT = Context(prec=400)
MAX_GROUPS = 100_000
MAX_SHOWN_GROUPS = 500
MAX_SHOWN_SKIPPED = 20
MAX_SHOWN_VALUES = 10

TablePath = Annotated[str, Field(description="CSV file with a header line, relative to the workspace")]
Column = Annotated[str | None, Field(description="the column to work on; only count can do without")]
Group = Annotated[str | None, Field(description="a column; gives one value for each of its different cells")]
Filter = Annotated[dict[str, Value] | None, Field(description="only rows whose cells equal these: {column: value}")]


@dataclass
class Tally:
    """What one group has seen so far. Text (ISO dates) only has extremes."""

    rows: int = 0
    total: Decimal = Decimal(0)
    low: Decimal | str | None = None
    high: Decimal | str | None = None
    whole: bool = True

    def add(self, value: Amount | str | None) -> None:
        """Count a row and, where it has one, its value."""
        self.rows += 1
        if value is None:
            return
        if isinstance(value, Amount):
            self.total = EXACT.add(self.total, value.value)
            self.whole &= value.whole
        found: Any = value.value if isinstance(value, Amount) else value
        self.low = found if self.low is None else min(self.low, found)
        self.high = found if self.high is None else max(self.high, found)

    def value(self, operation: Operation) -> int | float | str | None:
        """The result: an integer when all cells were, null when there was no row to look at."""
        if operation == "count":
            return self.rows
        if operation in ("min", "max"):
            return self._plain(self.low if operation == "min" else self.high)
        if operation == "sum":
            return self._plain(self.total)
        return self._plain(EXACT.divide(self.total, Decimal(self.rows))) if self.rows else None

    def _plain(self, value: Decimal | str | None) -> int | float | str | None:
        if not isinstance(value, Decimal):
            return value
        return int(value) if self.whole and value == value.to_integral_value() else float(value)


@dataclass
class Aggregation:
    """One pass over the rows of a table."""

    table: Table
    operation: Operation
    column: int | None
    group: int | None
    conditions: list[tuple[int, Value, Reader]]
    groups: dict[str, Tally] = field(default_factory=dict)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    skipped_total: int = 0
    units: set[str] = field(default_factory=set)
    filtered: dict[int, dict[str, None]] = field(default_factory=dict)
    """By column of the filter, some cells that did not equal it."""

    def run(self) -> None:
        """Read everything once."""
        dates = self.operation in ("min", "max") and self.column is not None and self._holds_dates(self.column)
        reader = self.table.reader(self.column) if self.column is not None else None
        for row in self.table.rows():
            if len(row.cells) > len(self.table.columns) and any(row.cells[len(self.table.columns) :]):
                self._skip(row, f"{len(row.cells)} fields, the header has {len(self.table.columns)}")
            elif self._wanted(row):
                self._take(row, reader, dates)

    def _take(self, row: Row, reader: Reader | None, dates: bool) -> None:
        value: Amount | str | None = None
        if self.column is not None and reader is not None:
            cell = _cell(row, self.column)
            if not cell:
                return self._skip(row, "empty")
            if dates:
                value = cell if is_date(cell) else None
            elif self.operation != "count":
                value = reader(cell)
            if value is None and self.operation != "count":
                return self._skip(row, f"not a {'date' if dates else 'number'}: {cell[:80]!r}")
        if isinstance(value, Amount):
            self.units.add(value.unit)
        key = _cell(row, self.group) if self.group is not None else ""
        tally = self.groups.setdefault(key, Tally())
        if len(self.groups) > MAX_GROUPS:
            raise ToolException(f"More than {MAX_GROUPS} groups; choose another group_by or filter with where.")
        return tally.add(value)

    def _wanted(self, row: Row) -> bool:
        for index, wanted, reader in self.conditions:
            cell = _cell(row, index)
            if not _equal(cell, wanted, reader):
                others = self.filtered.setdefault(index, {})
                if len(others) < MAX_SHOWN_VALUES:
                    others[cell[:60]] = None
                return False
        return True

    def _skip(self, row: Row, reason: str) -> None:
        self.skipped_total += 1
        if len(self.skipped) < MAX_SHOWN_SKIPPED:
            self.skipped.append({"line": row.line, "reason": reason})

    def _holds_dates(self, index: int) -> bool:
        cells = [cell for row in self.table.sample if index < len(row) and (cell := row[index].strip())]
        return bool(cells) and all(is_date(cell) for cell in cells)


def aggregate_csv(
    root: Root,
    path: TablePath,
    operation: Operation,
    column: Column = None,
    group_by: Group = None,
    where: Filter = None,
) -> str:
    """Sum, average, count, min or max over the rows of a CSV file, exactly, as a whole or per group.

    Reads 1,234.50, $5 and (3) as numbers; min and max also work on ISO dates. `rows` is how many rows went into
    the value; rows that could not be used are in `skipped`, with line and reason.
    """
    if column is None and operation != "count":
        with open_table(root, path) as table:
            raise ToolException(f"{operation} needs a column; {path} has {names(table.columns)}.")
    with open_table(root, path) as table:
        index = {name: table.index(name) for name in (column, group_by, *(where or {})) if name is not None}
        run = Aggregation(
            table,
            operation,
            index.get(column or ""),
            index.get(group_by or ""),
            [(index[name], value, table.reader(index[name])) for name, value in (where or {}).items()],
        )
        run.run()
    return json.dumps(_report(run, group_by is not None), ensure_ascii=False)


def _report(run: Aggregation, grouped: bool) -> dict[str, Any]:
    columns, tallies = run.table.columns, run.groups
    rows = sum(tally.rows for tally in tallies.values())
    report: dict[str, Any] = {
        "path": run.table.path,
        "operation": run.operation,
        "column": columns[run.column] if run.column is not None else None,
        "group_by": columns[run.group] if run.group is not None else None,
        "rows": rows,
    }
    if grouped:
        values: list[dict[str, Any]] = [
            {"key": key, "value": tally.value(run.operation), "rows": tally.rows}
            for key, tally in sorted(tallies.items())
        ]
        values.sort(key=lambda one: one["value"], reverse=True)
        report["groups"] = values[:MAX_SHOWN_GROUPS]
        if len(values) > MAX_SHOWN_GROUPS:
            report["groups_total"] = len(values)
    else:
        report["value"] = tallies.get("", Tally()).value(run.operation)
    report["skipped"] = run.skipped
    if run.skipped_total > len(run.skipped):
        report["skipped_total"] = run.skipped_total
    if notes := list(_notes(run, rows)):
        report["note"] = "; ".join(notes)
    return report


def _notes(run: Aggregation, rows: int) -> Iterator[str]:
    if len(run.units - {""}) > 1 or ("%" in run.units and len(run.units) > 1):
        yield f"the column mixes units: {', '.join(sorted(unit or 'none' for unit in run.units))}"
    if not rows and run.skipped_total:
        yield "no row had a usable value in this column"
    elif not rows:
        for index, cells in run.filtered.items():
            yield f"no row matches where; {run.table.columns[index]!r} holds {', '.join(map(repr, cells))}"


def _cell(row: Row, index: int) -> str:
    return row.cells[index].strip() if index < len(row.cells) else ""


def _equal(cell: str, wanted: Value, reader: Reader) -> bool:
    if cell.casefold() == str(wanted).strip().casefold():
        return True
    if isinstance(wanted, bool | str):
        return False
    amount = reader(cell)
    return amount is not None and amount.value == Decimal(str(wanted))
