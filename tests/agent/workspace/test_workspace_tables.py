"""Sums and counts over tables as people write them: exact, honest about rows that could not be used."""

import csv
import io
import json
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.tools import BaseTool, ToolException

from donewhen.agent.workspace import workspace_tools
from donewhen.agent.workspace.amounts import read_comma, read_point

Tools = dict[str, BaseTool]
SALES = """date,Region,product,units,price
2026-01-03,North,Lamp,2,0.10
2026-01-04,south,Lamp,3,0.20
2026-02-01,North,Chair,1,"1,200.50"
2026-02-02,East,Chair,,n/a
"""


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    (tmp_path / "sales.csv").write_text(SALES)
    return {tool.name: tool for tool in workspace_tools(tmp_path)}


def aggregate(tools: Tools, operation: str, column: str | None = None, **more: Any) -> Any:
    arguments = {"path": "sales.csv", "operation": operation, "column": column, **more}
    return json.loads(tools["aggregate_csv"].invoke(arguments))


def table(tmp_path: Path, text: str | bytes) -> None:
    (tmp_path / "sales.csv").write_bytes(text.encode() if isinstance(text, str) else text)


def test_sum_is_exact_and_says_what_it_left_out(tools: Tools) -> None:
    assert aggregate(tools, "sum", "price", where={"product": "Lamp"}) == {
        "path": "sales.csv",
        "operation": "sum",
        "column": "price",
        "group_by": None,
        "rows": 2,
        "value": 0.3,
        "skipped": [],
    }
    whole = aggregate(tools, "sum", "price")
    assert (whole["value"], whole["rows"]) == (1200.8, 3)
    assert whole["skipped"] == [{"line": 5, "reason": "not a number: 'n/a'"}]
    units = tools["aggregate_csv"].invoke({"path": "sales.csv", "operation": "sum", "column": "units"})
    assert '"value": 6,' in units
    assert json.loads(units)["skipped"] == [{"line": 5, "reason": "empty"}]


@pytest.mark.parametrize(
    ("operation", "column", "value", "rows"),
    [
        ("count", None, 4, 4),
        ("count", "units", 3, 3),
        ("count", "price", 4, 4),
        ("average", "units", 2, 3),
        ("average", "price", 400.26666666666665, 3),
        ("min", "price", 0.1, 3),
        ("max", "units", 3, 3),
        ("max", "date", "2026-02-02", 4),
        ("min", " DATE ", "2026-01-03", 4),
    ],
)
def test_operations(tools: Tools, operation: str, column: str | None, value: Any, rows: int) -> None:
    result = aggregate(tools, operation, column)
    assert (result["value"], result["rows"], type(result["value"])) == (value, rows, type(value))


def test_groups_come_largest_first(tools: Tools) -> None:
    result = aggregate(tools, "sum", "units", group_by="region")
    assert (result["group_by"], result["rows"]) == ("Region", 3)
    assert result["groups"] == [
        {"key": "North", "value": 3, "rows": 2},
        {"key": "south", "value": 3, "rows": 1},
    ]
    assert [group["key"] for group in aggregate(tools, "count", group_by="product")["groups"]] == ["Chair", "Lamp"]


def test_filters_fold_case_and_compare_numbers(tools: Tools) -> None:
    assert aggregate(tools, "count", where={"region": " SOUTH "})["value"] == 1
    assert aggregate(tools, "count", where={"price": 1200.5})["value"] == 1
    assert aggregate(tools, "count", where={"units": 2, "Region": "north"})["value"] == 1
    assert aggregate(tools, "count", where={"units": ""})["value"] == 1
    none = aggregate(tools, "sum", "units", where={"region": "Nrth"})
    assert (none["value"], none["rows"]) == (0, 0)
    assert none["note"] == "no row matches where; 'Region' holds 'North', 'south', 'East'"
    assert aggregate(tools, "average", "units", where={"region": "East"})["value"] is None


def test_unknown_columns_are_told_the_ones_there_are(tools: Tools) -> None:
    """X07: the error says what to do."""
    listed = "'date', 'Region', 'product', 'units', 'price'"
    for arguments, said in (
        ({"operation": "sum", "column": "amount"}, f"sales.csv has no column 'amount'; its columns are {listed}."),
        ({"operation": "count", "group_by": "city"}, "no column 'city'"),
        ({"operation": "count", "where": {"city": "x"}}, "no column 'city'"),
        ({"operation": "sum"}, f"sum needs a column; sales.csv has {listed}."),
        ({"operation": "sum", "column": "units", "path": "sale.csv"}, "Did you mean sales.csv?"),
    ):
        with pytest.raises(ToolException) as caught:
            tools["aggregate_csv"].invoke({"path": "sales.csv", **arguments})
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("name;amount\na;1.234,50\nb;2,25\n", 1236.75),
        ("name;amount\na;1,5\nb;2,5\n", 4.0),
        ("name\tamount\na\t$1,234\nb\t(34)\n", 1200),
        ("name|amount\na|¥1,000\nb|￥２０\n", 1020),
        ('name,amount\r\n"a, b",€ 5.00\r\n"c\nd",-€1.50\r\n', 3.5),
        ("\ufeffname,amount\n甲,1 000\n乙,1'000\n丙,−1\n", 1999),
        ("sep=;\nname;amount\na;10\n", 10),
        ("\n\nname,amount\n\na,.5\nb,5.\nc,1e3\n\n", 1005.5),
        ("名称,amount\n甲,1\n".encode("gb18030"), 1),
        ("name,amount\na,7\n".encode("utf-16"), 7),
    ],
)
def test_tables_as_people_write_them(tools: Tools, tmp_path: Path, text: str | bytes, value: float) -> None:
    table(tmp_path, text)
    result = aggregate(tools, "sum", "amount")
    assert (result["value"], result["skipped"], "note" in result) == (value, [], False)


def test_rows_that_do_not_fit_are_reported_not_guessed(tools: Tools, tmp_path: Path) -> None:
    """A thousands separator without quotes moves every later cell; such a row counts nowhere."""
    table(tmp_path, "name,amount,year\na,1,2026\nb,1,200,2026\nc,inf,2026\nd,12 kg,2026\ne,5\nf,2,2026,\n")
    result = aggregate(tools, "sum", "amount")
    assert (result["value"], result["rows"]) == (8, 3)
    assert result["skipped"] == [
        {"line": 3, "reason": "4 fields, the header has 3"},
        {"line": 4, "reason": "not a number: 'inf'"},
        {"line": 5, "reason": "not a number: '12 kg'"},
    ]
    table(tmp_path, "n\n" + "x\n" * 50)
    result = aggregate(tools, "sum", "n")
    assert (len(result["skipped"]), result["skipped_total"]) == (20, 50)
    assert result["note"] == "no row had a usable value in this column"


def test_mixed_units_are_pointed_out(tools: Tools, tmp_path: Path) -> None:
    table(tmp_path, "amount,rate\n$5,5%\n€5,0.05\n5,7%\n")
    assert aggregate(tools, "sum", "amount")["note"] == "the column mixes units: $, none, €"
    assert "mixes units" in aggregate(tools, "average", "rate")["note"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ('a,b\n1,"2\n3,4\n', "line 3: unexpected end of data"),
        ('a,b\n"1"x,2\n', "line 2"),
        ("a,b\n" + "1" * 140_000 + ",2\n", "field larger than field limit"),
        ("a,b\n" + "1" * 1_200_000 + ",2\n", "a line has over 1000000 characters"),
        (",".join(map(str, range(3000))) + "\n", "has 3000 columns"),
    ],
    ids=["empty", "open quote", "after quote", "field", "line", "columns"],
)
def test_what_is_no_table_is_refused(tools: Tools, tmp_path: Path, text: str, said: str) -> None:
    table(tmp_path, text)
    with pytest.raises(ToolException, match=said):
        aggregate(tools, "count")


def test_columns_are_described(tools: Tools, tmp_path: Path) -> None:
    described = json.loads(tools["describe_csv"].invoke({"path": "sales.csv"}))
    assert described["rows"] == 4
    assert described["columns"] == [
        {"name": "date", "type": "date", "example": "2026-01-03"},
        {"name": "Region", "type": "text", "example": "North"},
        {"name": "product", "type": "text", "example": "Lamp"},
        {"name": "units", "type": "integer", "example": "2"},
        {"name": "price", "type": "text", "example": "0.10"},
    ]
    table(tmp_path, "x,x,,y\n1,1.5,,2\n2,2,,\n")
    described = json.loads(tools["describe_csv"].invoke({"path": "sales.csv"}))
    assert [(column["name"], column["type"]) for column in described["columns"]] == [
        ("x", "integer"), ("x (2)", "number"), ("column 3", "empty"), ("y", "integer"),
    ]  # fmt: skip


def test_a_large_table_is_streamed(tools: Tools, tmp_path: Path) -> None:
    with (tmp_path / "sales.csv").open("w") as file:
        file.write("key,amount\n")
        for number in range(20_000):
            file.write(f"{number % 700},{number}.01\n")
    tracemalloc.start()
    try:
        result = aggregate(tools, "sum", "amount", group_by="key")
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()
    assert (len(result["groups"]), result["groups_total"], result["rows"]) == (500, 700, 20_000)
    assert aggregate(tools, "sum", "amount")["value"] == 199990200.0


@pytest.mark.parametrize(
    "cell", ["", "-", "$", "()", "1.2.3", "1,2,3", "--1", "(-1)", "$1€", "1e9999", "0x10", "nan", "(1"]
)
def test_what_is_no_number(cell: str) -> None:
    assert read_point(cell) is None


@given(value=st.decimals(min_value=-(10**12), max_value=10**12, places=2, allow_nan=False))
def test_numbers_are_read_however_they_are_written(value: Decimal) -> None:
    grouped = f"{value:,}"
    swapped = grouped.translate(str.maketrans(",.", ".,"))
    for written in (str(value), grouped, f"${abs(value):,}" if value >= 0 else f"-${abs(value):,}", f" {grouped} € "):
        assert (amount := read_point(written)) is not None
        assert amount.value == value
    for written in (swapped, swapped.replace(".", "\u202f"), swapped.replace(".", "’")):
        assert (amount := read_comma(written)) is not None
        assert amount.value == value


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.text("ab\"',;\n\t é数", max_size=6), st.integers(-(10**6), 10**6)), min_size=1, max_size=20
    ),
    delimiter=st.sampled_from(",;\t|"),
)
def test_any_written_table_sums_up(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int]], delimiter: str
) -> None:
    """Whatever the names hold and whatever separates the columns, the sum is Python's own."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([("name", "amount"), *rows])
    root = tmp_path_factory.getbasetemp()
    table(root, text.getvalue())
    result = aggregate({tool.name: tool for tool in workspace_tools(root)}, "sum", "amount")
    assert result["value"] == sum(amount for _, amount in rows)
    assert result["rows"] == len(rows)
