"""Fifty files of programs and people: each value is read as it was meant, or shown as it is written, with a note."""

import json
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.kit.people_files import FILES, File
from tests.kit.tables import Reader


def read_as(value: Any) -> Any:
    """Return a reader of the text of such a value."""
    if isinstance(value, bool):
        return lambda text: {"true": True, "false": False}[text]
    kinds = {int: Decimal, float: float, Decimal: Decimal, date: date.fromisoformat, time: time.fromisoformat}
    return kinds.get(type(value), datetime.fromisoformat if isinstance(value, datetime) else str)


def read(reader: Reader, file: File) -> dict[str, Any]:
    """Return the type and the values of each column, as text."""
    columns = ", ".join(f"""list(CAST("{name}" AS VARCHAR)), list(typeof("{name}"))""" for name in file.values)
    answer = json.loads(reader.query(f"SELECT to_json([{columns}]) FROM '{file.name}'"))
    return dict(zip(file.values, zip(answer[::2], answer[1::2], strict=True), strict=True))


def differs(values: Sequence[Any], written: Sequence[str], got: Sequence[str | None], type: str, told: str) -> str:
    """Return what is silently not as it was meant; "" if nothing is."""
    if type != "VARCHAR" or (all(isinstance(value, str | None) for value in values) and written == values):
        meant = [None if text is None else read_as(value)(text) for value, text in zip(values, got, strict=True)]
        return "" if meant == list(values) else f"{type} {got}"
    if [*got] != [*written]:
        return f"text {got}"
    return "" if "NOTE" in told else f"text without a note: {told}"


@pytest.mark.parametrize("case", FILES)
def test_a_file_means_what_its_author_meant(case: str, tmp_path: Path) -> None:
    """D1, Q50: values were written down by hand, beside the bytes; what is not sure stays as it is written, and a note
    says that it looks like more."""
    file = FILES[case]
    (tmp_path / file.name).write_bytes(file.content)
    reader = Reader(tmp_path)
    told = reader.describe(file.name)
    assert f"{file.rows} rows" in told
    if not file.rows:
        return
    lines = {name: next(line for line in told.splitlines() if line.startswith(f'- "{name}"')) for name in file.values}
    wrong = {
        name: problem
        for name, (got, types) in read(reader, file).items()
        if (
            problem := differs(file.values[name], file.written.get(name, file.values[name]), got, types[0], lines[name])
        )
    }
    assert wrong == {}


def test_there_are_fifty() -> None:
    """Q50: as the issue promises."""
    assert len(FILES) >= 50
