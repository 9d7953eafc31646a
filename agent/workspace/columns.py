"""What a CSV file holds: its columns, their types, an example of each, and how many rows."""

import json
from collections import Counter
from typing import Any

from donewhen.agent.workspace.aggregate import TablePath
from donewhen.agent.workspace.amounts import Reader, is_date
from donewhen.agent.workspace.root import Root
from donewhen.agent.workspace.tables import open_table

MAX_SHOWN_COLUMNS = 200
EXAMPLE_CHARS = 80


def describe_csv(root: Root, path: TablePath) -> str:
    """Show a CSV file's columns, with type (integer, number, date, text, empty) and example, and its row count."""
    with open_table(root, path) as table:
        readers = [table.reader(index) for index in range(len(table.columns))]
        kinds: list[Counter[str]] = [Counter() for _ in readers]
        examples = [""] * len(readers)
        rows = 0
        for row in table.rows():
            rows += 1
            for index, cell in enumerate(row.cells[: len(readers)]):
                if text := cell.strip():
                    kinds[index][_kind(text, readers[index])] += 1
                    examples[index] = examples[index] or text[:EXAMPLE_CHARS]
        columns: list[dict[str, Any]] = [
            {"name": name, "type": _type(kind), "example": example}
            for name, kind, example in zip(table.columns, kinds, examples, strict=True)
        ]
    described: dict[str, Any] = {"path": path, "columns": columns[:MAX_SHOWN_COLUMNS], "rows": rows}
    if len(columns) > MAX_SHOWN_COLUMNS:
        described["columns_total"] = len(columns)
    return json.dumps(described, ensure_ascii=False)


def _kind(cell: str, reader: Reader) -> str:
    if is_date(cell):
        return "date"
    amount = reader(cell)
    if amount is None:
        return "text"
    return "integer" if amount.whole else "number"


def _type(kinds: Counter[str]) -> str:
    if not kinds:
        return "empty"
    if len(kinds) == 1:
        return next(iter(kinds))
    return "number" if set(kinds) == {"integer", "number"} else "text"
