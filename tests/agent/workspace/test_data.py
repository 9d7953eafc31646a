"""Data files as tables: what describe_data says of them, and what query_data may and may not do."""

import asyncio
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from langchain_core.tools import ToolException

from donewhen import Agent, Settings
from donewhen.agent.workspace.data.columns import likely_sql
from donewhen.agent.workspace.data.tables import QUIET_NS, SNIFFED_ROWS
from donewhen.state.criteria import meets
from donewhen.testing import call, finish_step
from donewhen.workspace import workspace_tools
from tests.kit.flows import FREE, one_step
from tests.kit.tables import Reader
from tests.kit.workspace import Tools, by_name, refusal

Ask = Callable[[str], str]


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


@pytest.fixture
def describe(reader: Reader) -> Ask:
    return reader.describe


@pytest.fixture
def query(reader: Reader) -> Ask:
    return reader.query


def shop(root: Path) -> None:
    (root / "orders.csv").write_text(
        "order_id,customer,date,net\n"
        "O1,C1,2025-07-01,100.10\nO2,C2,2025-09-30,200.20\nO3,C1,2025-06-30,999.00\n"
        "O4,C3,2025-08-15,0.30\nO5,C3,2025-10-01,50.00\n"
    )
    (root / "returns.csv").write_text(
        'order_id;amount;reason\nO1;"20,10";late\nO2;"0,20";"damaged; wet"\nO3;"9,00";x\n'
    )
    (root / "regions.csv").write_bytes("customer\tregion\nC1\tWest\nC2\tSüd\nC3\tWest\n".encode("utf-16"))


def test_net_revenue_per_region_after_returns_takes_two_queries(tmp_path: Path, tools: Tools) -> None:
    """D1: joins, a date range and exact sums over three files, written in three ways."""
    shop(tmp_path)

    def query(sql: str) -> str:
        return str(tools["query_data"].invoke({"sql": sql}))

    with pytest.raises(ToolException) as refused:
        query(
            "SELECT g.region, sum(o.net) - sum(r.amount) AS net FROM 'orders.csv' o JOIN 'regions.csv' g "
            "USING (customer) "
            "LEFT JOIN 'returns.csv' r USING (order_id) WHERE o.date BETWEEN '2025-07-01' AND '2025-09-30' GROUP BY ALL"
        )
    assert 'returns.csv: "amount" looks like numbers' in str(refused.value)
    given = str(refused.value).partition("decimal comma: ")[2]
    assert given.startswith('CAST(replace(regexp_replace("amount"')
    given = given.splitlines()[0]
    assert query(
        f"SELECT g.region, sum(o.net) - coalesce(sum({given}), 0) AS net "
        "FROM 'orders.csv' o JOIN 'regions.csv' g USING (customer) LEFT JOIN 'returns.csv' r USING (order_id) "
        "WHERE o.date BETWEEN '2025-07-01' AND '2025-09-30' GROUP BY ALL ORDER BY net DESC"
    ) == ("region | net\nSüd | 200.00\nWest | 80.30\n(2 rows)")


def test_numbers_written_in_both_ways_are_read_each_by_its_own_marks(reader: Reader, tmp_path: Path) -> None:
    """D1: one expression for all would corrupt the others; what may be either is NULL. Several currencies are said."""
    values = {
        "1.234,50 EUR": "1234.500", "USD 99,00": "99.000", "$5.00": "5.000", "1,234.50": "1234.500",
        "1,234,567": "1234567.000", "1.234.567": "1234567.000", "12,345": "NULL", "-5,5": "-5.500", "7": "7.000",
        "0,123": "0.123",
    }  # fmt: skip
    (tmp_path / "f.csv").write_text("v;w\n" + "".join(f"{value};x\n" for value in values))
    note = reader.describe("f.csv")
    assert "NOTE: several currencies: EUR, USD, $; looks like numbers" in note
    assert "NULL for those like '12,345', which may be either" in note
    each = note.partition("Each by its own marks: ")[2].partition("; NULL")[0]
    shown = reader.query(f"SELECT v, {each} AS n FROM 'f.csv'").splitlines()[1:-1]
    assert shown == [f"{value} | {number}" for value, number in values.items()]
    (tmp_path / "g.csv").write_text("v;w\n5,00 €;x\n6,00 EUR;y\n")
    assert "currencies" not in reader.describe("g.csv")


def test_a_title_above_the_header_is_noticed(reader: Reader, tmp_path: Path) -> None:
    """D1, Q50: a first line with hardly a field filled is a title; the note reads the table below it."""
    (tmp_path / "f.csv").write_text(
        "Report of 1.10.2026;;\n;;\nCustomer;Amount;Day\nA;1,50;03.04.2026\nB;-2,50;05.06.2026\n"
    )
    note = reader.describe("f.csv").partition("NOTE: line 3 is the first without an empty field: FROM ")[2]
    read = note.partition("\n")[0].partition("; ")[0]
    assert read == "read_csv('f.csv', delim = ';', skip = 2, header = true, all_varchar = true)"
    assert reader.query(f"SELECT * FROM {read}").splitlines()[0] == "Customer | Amount | Day"
    (tmp_path / "g.csv").write_text("id;;day\nA;1;2\n")
    assert "NOTE: line" not in reader.describe("g.csv")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("title", ["Umsätze;;\n", '"Umsätze\nund Stand";;\n;;\n'])
@pytest.mark.parametrize("header", ["Straße;b;c", '"Stra\nße";b;c', '"Stra\r\nße";"b\n";c'])
def test_what_is_told_of_a_title_works(reader: Reader, tmp_path: Path, encoding: str, title: str, header: str) -> None:
    """D1: above headers of one line or more. Nothing is told of what the SQL cannot read or skip for sure."""
    content = f"{title}{header}\nÄnne;2;3\nBo;6;7\n"
    (tmp_path / "f.csv").write_bytes(content.encode(encoding))
    told = reader.describe("f.csv").partition(" is the first without an empty field: ")[2].partition("\n")[0]
    assert bool(told) == (encoding.startswith("utf-8") and title == "Umsätze;;\n")
    if told:
        read = told.partition("; ")[0]
        assert reader.query(f"SELECT c, #1 AS name {read}").splitlines()[1:3] == ["3 | Änne", "7 | Bo"]


def test_rows_come_in_the_order_of_the_file(reader: Reader, tmp_path: Path) -> None:
    """X12: “only the first are shown” is true, also where a text is read as dates."""
    rows = "".join(f"R{number};{number % 28 + 1}.12.2026\n" for number in range(30_000))
    (tmp_path / "f.csv").write_text(f"id;day\n{rows}")
    for _ in range(3):
        assert reader.query("SELECT * FROM 'f.csv'").splitlines()[1:3] == ["R0 | 2026-12-01", "R1 | 2026-12-02"]


def test_no_column_of_a_file_stands_for_another_one(reader: Reader, tmp_path: Path) -> None:
    """D1: also not if it has the name of a column that is only used inside."""
    (tmp_path / "f.csv").write_text("day;parts of 0;Parts of 0_\n31.12.2026;30.11.2026;29.10.2026\n")
    assert reader.query("SELECT * FROM 'f.csv'").splitlines()[1] == "2026-12-31 | 2026-11-30 | 2026-10-29"


# What is said of a file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("v\n1.50\n2.25\n", ['"v" DECIMAL(18,2); 0 null; e.g. 1.50, 2.25']),
        ("v,w\n1,a\n,b\n2,c\n", ['"v" BIGINT; 1 null']),
        ('v\n"$1,234.50"\n$5\n', ['"v" VARCHAR', "looks like numbers", "[,''"]),
        ("v;w\n1.234,50;x\n7,5;y\n", ["separated by semicolon", "written with a decimal comma"]),
        ("a;b\n1.234;2.500\n2.345;3.100\n", ['"a" VARCHAR', "may mark thousands or decimals, kept as text"]),
        ("a,b\n1.234,x\n2.345,y\n", ['"a" DECIMAL(18,3)', "read as decimals"]),
        ("a;b\n0.125;x\n2.345;y\n", ['"a" DECIMAL(18,3); 0 null; e.g. 0.125, 2.345']),
        ('v\n"1,234"\n"5,678"\n', ["may mean thousands or decimals"]),
        ('v\n"0,125"\n"0,250"\n', ["written with a decimal comma"]),
        ("v,w\n100,1-\n(50),2\n7.25,30\n", ['"v" DECIMAL(18,2); 0 null; e.g. 100.00, -50.00', '"w" BIGINT']),
        ("v,w\n(100),1-\n(50),2-\n", ['"v" VARCHAR', "(100) read as negative, if that is meant: CAST(", '"w" VARCHAR']),
        ('v\n"1,234.50"\n"($2,000.00)"\n', ['"v" VARCHAR', "($2,000.00) read as negative, if that is meant: CAST("]),
        ("v;w\n1.234,50;x\n(7,5);y\n", ["(7,5) read as negative, if that is meant: written with a decimal comma"]),
        ("v;w\n1.234;x\n(2.500);y\n", ['"v" VARCHAR', "may mean thousands or decimals"]),
        ("v,w\n(007),1\n008,2\n", ['"v" VARCHAR', "leading zeros"]),
        ("v,w\n(212) 555-1234,1\n(415) 555-9876,2\n", ['"v" VARCHAR; 0 null; e.g. (212) 555-1234']),
        ("v,w\n5,1\n(5),-2\n-,3\n", ["1 of 3 values are none, such as '-'"]),
        ('v\n"1.234,5"\n"1,234.5"\n', ["some have a decimal point, some a decimal comma"]),
        ("v\n5\n7\n8\nn/a\n", ["1 of 4 values are none, such as 'n/a'"]),
        ("zip,n\n01234,1\n98765,2\n", ['"zip" VARCHAR', "leading zeros"]),
        ("d\n2025-07-01\n2025-12-31\n", ['"d" DATE; 0 null; e.g. 2025-07-01, 2025-12-31']),
        ("d,n\n01/02/2025,1\n03/04/2025,2\n", ["day and month cannot be told apart (", "%m/%d/%Y"]),
        ("d,n\n01/02/2025,1\n31/12/2025,2\n", ['"d" DATE; 0 null; e.g. 2025-02-01, 2025-12-31']),
        ("d,n\n31.02.2025,1\n30.01.2025,2\n", ["looks like dates (", "%d.%m.%Y"]),
        (
            "d,n\n24.12.2025 10:30,1\n01.02.2025 09:00,2\n",
            ['"d" TIMESTAMP', "2025-12-24 10:30:00, 2025-02-01 09:00:00"],
        ),
        ("d,n\n12/24/99,1\n01/02/98,2\n", ["e.g. 1999-12-24, 1998-01-02; read as month/day/year because of 12/24/99"]),
        ("d,n\n24.12.25,1\n01.02.25,2\n", ["day, month and year cannot be told apart (", "'%d.%m.%y'", "'%y.%m.%d'"]),
        ("d,n\n25-01-02,1\n24-12-31,2\n", ['"d" VARCHAR', "cannot be told apart", "'%y-%m-%d'"]),
        ("d,n\n13.02.2025,1\n24.12.25,2\nx,3\n", ["looks like dates (", "strptime(\"d\", ['%d.%m.%y', '%d.%m.%Y'])"]),
        ("d,n\n0025-01-02,1\n2025-01-03,2\n", ['"d" VARCHAR', "years of two digits, kept as text"]),
        ("c,n\n1E10,1\n12E3,2\n", ['"c" VARCHAR; 0 null; e.g. 1E10, 12E3', "may be codes or powers of ten"]),
        ("c,n\n+49,1\n+31,2\n", ['"c" VARCHAR', "kept as text"]),
        ("a,b\nyes,T\nno,F\n", ['"a" VARCHAR; 0 null; e.g. yes, no\n', '"b" VARCHAR; 0 null; e.g. T, F']),
        ("sep=;\na;b\n1;2\n", ["1 rows, 2 columns", '"a" BIGINT']),
        ("a,b;c,d\n1,2;3,4\n", ["would separate all lines alike too"]),
        ("name,city\nAda,Paris\nBo,Rome\n", ["2 rows, 2 columns", "first line read as the header"]),
        ("a,a,\n1,2,3\n", ['"a" BIGINT', '"a_1" BIGINT', '"column2" BIGINT']),
        ("v\n1e5\n2.5\n", ['"v" DOUBLE']),
        ("id,v\nINV-1,EUR 5\nINV-2,EUR 7\n", ['"id" VARCHAR; 0 null; e.g. INV-1, INV-2\n', "looks like numbers"]),
    ],
)
def test_what_is_said_of_a_table(tmp_path: Path, describe: Ask, content: str, said: list[str]) -> None:
    """D1, Q50: every column with its type; what could be read in two ways, or is text although it looks like more.

    Letters before a number are not always a currency: ids are no amounts.
    """
    (tmp_path / "a.csv").write_text(content)
    told = describe("a.csv")
    for part in said:
        assert part in told


PLAIN = "".join(f"{n},{n}\n" for n in range(25_000))
SIGNED = {
    "brackets": ("a.csv", b"v,w\n100.25,1\n(50.5),2\n", "SELECT sum(v) FROM 'a.csv'", "49.75"),
    "a minus behind, and blanks": ("a.csv", b"v;w\n100;1\n 30- ;2\n( 5 );3\n", "SELECT sum(v) FROM 'a.csv'", "65"),
    "the first in a late row": ("a.csv", f"v,w\n{PLAIN}(3),1\n".encode(), "SELECT min(v) FROM 'a.csv'", "-3"),
    "more digits than a whole number": (
        "a.csv",
        b"v,w\n12345678901234567890,1\n(12345678901234567891),2\n",
        "SELECT sum(v) FROM 'a.csv'",
        "-1",
    ),
    "many places": ("a.csv", b"v,w\n123456789012345678,1\n(0.12345),2\n", "SELECT min(v) FROM 'a.csv'", "-0.12345"),
    "texts of JSON": ("a.json", b'[{"v": "7"}, {"v": "(9)"}]', "SELECT sum(v) FROM 'a.json'", "-2"),
    "two columns": ("a.csv", b"v,w\n1,2-\n(5),7\n", "SELECT sum(v) * 100 + sum(w) FROM 'a.csv'", "-395"),
}


@pytest.mark.parametrize("kind", SIGNED)
def test_amounts_of_accountants_are_negative(kind: str, tmp_path: Path, describe: Ask, query: Ask) -> None:
    """Q50: (100) and 100- in a column in which all is a number, and not all is so; it is said, and holds when the facts
    of the file come from memory."""
    name, content, sql, value = SIGNED[kind]
    (tmp_path / name).write_bytes(content)
    assert query(sql) == value
    assert "read as negative" in describe(name)
    assert query(sql) == value


def test_what_is_told_for_amounts_of_accountants_works(tmp_path: Path, describe: Ask, query: Ask) -> None:
    """Q50: with currency and thousands they stay text; the SQL that is shown reads them, with point and comma."""
    (tmp_path / "a.csv").write_text('v,w\n"$1,234.50",1\n"($2,000.25)",2\n$5.00-,3\n')
    (tmp_path / "b.csv").write_text("v;w\n1.234,50 EUR;1\n(2.000,25 EUR);2\n")
    for name, total in (("a.csv", "-770.75"), ("b.csv", "-765.75")):
        given = "CAST(" + describe(name).partition("CAST(")[2].splitlines()[0]
        assert query(f"SELECT sum({given}) FROM '{name}'") == total


OFFERED: dict[str, tuple[str, list[str]]] = {
    "a comma": ("v;w\n1.234,50;x\n7,5;y\n5 EUR;y\nn/a;z\n01.02.2026;z\n", ["1247.00"]),
    "a point": ('v\n"$1,234.50"\n7\n8\nn/a\n1.2.3\n', ["1249.50"]),
    "both": ('v\n"1.234,5"\n"1,234.5"\n7\nn/a\n01.02.26\n', ["2476.0"]),
    "either": ('v\n"1,234"\n"5,678"\n"2,000"\nx\n1.2.3\n', ["8912.000", "8.912"]),
    "brackets": ("v;w\n1.234,50;x\n(7,5);y\n-;z\n", ["1227.00"]),
    "many digits": ('v\n"$12,345,678,901,234,567,890.50"\n$1\n', ["12345678901234567891.50"]),
    "days": ("v,n\n13.02.2025,1\n24.12.25,2\nx,3\n", ["2025-12-24 00:00:00"]),
    "a day that is none": ("v,n\n31.02.2025,1\n30.01.2025,2\n", ["2025-01-30 00:00:00"]),
    "days or months": ("v,n\n01/02/2025,1\n03/04/2025,2\nx,3\n", ["2025-04-03 00:00:00", "2025-03-04 00:00:00"]),
}


def sql_in(note: str) -> Iterator[str]:
    """Yield each cast and strptime of a note, up to the bracket that closes it."""
    for begin in re.finditer(r"(try_)?(cast|strptime)\(", note, re.IGNORECASE):
        depth, marks = 1, re.compile(r"'[^']*'|[()]").finditer(note, begin.end())
        while depth:
            mark = next(marks)
            depth += {"(": 1, ")": -1}.get(mark[0], 0)
        yield note[begin.start() : mark.end()]


@pytest.mark.parametrize("kind", OFFERED)
def test_every_sql_that_a_note_offers_reads_its_column(kind: str, tmp_path: Path, describe: Ask, query: Ask) -> None:
    """Q50: it reads the values that are meant, and no others; the note says how many become NULL."""
    content, found = OFFERED[kind]
    (tmp_path / "a.csv").write_text(content)
    line = next(line for line in describe("a.csv").splitlines() if line.startswith('- "v"'))
    offered = [*sql_in(line)]
    total = "max" if "strptime" in line else "sum"
    assert [query(f"SELECT {total}({sql}) FROM 'a.csv'") for sql in offered] == found
    empty = query(f"SELECT count(*) - count({offered[0]}) FROM 'a.csv'")
    assert empty == "0" or f"{empty} of {content.strip().count(chr(10))} values" in line


def test_a_text_without_a_digit_is_not_examined_as_a_number() -> None:
    """Q50: a column of currencies, or of names, costs one look at each value and no more."""
    values = "(VALUES ('EUR'), ('-'), ('5 EUR'), ('24.12.25'), ('five'))"
    rows = duckdb.sql(f"SELECT {likely_sql('v')} FROM {values} t(v)").fetchall()
    assert [row[0] for row in rows] == [None, None, "5 EUR", "24.12.25", None]


EMPTY = {
    "one column": ("a,b\n1,\n2,\n", 2, '- "b" without a value; 2 null'),
    "quoted": ('a,b\n1,""\n2,""\n', 2, '- "b" without a value; 2 null'),
    "the first column": ("b,a\n,1\n,2\n", 2, '- "b" without a value; 2 null'),
    "every column": ("a,b\n,\n,\n", 2, '- "b" without a value; 2 null'),
    "beside dates": ("a,b\n2025-01-02,\n", 1, '- "b" without a value; 1 null'),
    "header only": ("id,day,b\n", 0, '- "b" without a value'),
    "header without a line end": ("id;b", 0, '- "b" without a value'),
    "a header of one column": ("b\n", 0, '- "b" without a value'),
    "tabs": ("id\tb\n", 0, '- "b" without a value'),
}


def test_columns_without_values_are_read_like_any_other(tmp_path: Path, describe: Ask, query: Ask) -> None:
    """N26, R12: described, counted, summed, compared with dates, and joined with a file that has values."""
    for case, (content, rows, said) in EMPTY.items():
        for name in (f"{case}.csv", f"{case}.tsv"):
            (tmp_path / name).write_text(content)
        told = describe(f"{case}.csv")
        assert told.startswith(f"{case}.csv: {rows} rows"), case
        assert told.splitlines()[-1 if "first" not in case else 1] == said, case
    (tmp_path / "more.csv").write_text("b\n1.10\n2.20\n")
    asked, expected = list[str](), list[str]()
    for case, (_, rows, _) in EMPTY.items():
        for name in (f"{case}.csv", f"{case}.tsv"):
            asked += [f"SELECT count(*) FROM '{name}'", f"SELECT count(*) FROM read_csv('{name}')"]
            asked.append(f"SELECT coalesce(sum(b), 0) FROM '{name}' WHERE b IS NULL OR b > DATE '2025-01-01'")
            expected += [str(rows), str(rows), "0"]
        asked.append(f"SELECT sum(b) FROM (FROM '{case}.csv' UNION ALL BY NAME FROM 'more.csv')")
        expected.append("3.30")
    found = query("SELECT " + ", ".join(f"CAST(({each}) AS VARCHAR)" for each in asked))
    assert found.splitlines()[1].split(" | ") == expected
    for name in (path.name for path in tmp_path.glob("*.tsv")):
        (tmp_path / name).unlink()
    assert query("SELECT sum(b) FROM '*.csv'") == "3.30"


def test_json_and_parquet_without_values(tmp_path: Path, describe: Ask, query: Ask) -> None:
    """N26: no rows, and columns of nulls."""
    (tmp_path / "none.json").write_text("[]")
    (tmp_path / "none.jsonl").write_text("")
    (tmp_path / "nulls.json").write_text('[{"a": 1, "b": null}]')
    duckdb.sql(f"COPY (SELECT NULL::VARCHAR AS t, 1 AS n) TO '{tmp_path}/nulls.parquet'")
    duckdb.sql(f"COPY (SELECT 'x' AS t, 1 AS n WHERE false) TO '{tmp_path}/none.parquet'")
    counts = list[str]()
    for name, rows, said in (
        ("none.json", 0, ""),
        ("none.jsonl", 0, ""),
        ("nulls.json", 1, '- "b" without a value; 1 null'),
        ("nulls.parquet", 1, '- "t" VARCHAR, without a value; 1 null'),
        ("none.parquet", 0, '- "t" VARCHAR, without a value'),
    ):
        told = describe(name)
        assert told.startswith(f"{name}: {rows} rows")
        assert said in told
        counts.append(f"(SELECT count(*) FROM '{name}') AS c{len(counts)}")
    assert query(f"SELECT {', '.join(counts)}").splitlines()[1] == "0 | 0 | 1 | 1 | 0"


def test_a_linked_folder_is_refused_in_words(tmp_path: Path) -> None:
    """N26: whether it leads out or not, in every way to name it; no traceback, and nothing of what lies outside."""
    inside, outside = tmp_path / "workspace", tmp_path / "outside"
    for folder in (inside / "real", outside):
        folder.mkdir(parents=True)
        (folder / "x.csv").write_text("secret\n42\n")
    (inside / "out").symlink_to(outside)
    (inside / "in").symlink_to("real")
    (inside / "x.csv").symlink_to("real/x.csv")
    tools, reader = by_name(inside), Reader(inside)
    ways = [f"FROM '{path}'" for path in ("in/x.csv", "in/*.csv", "in", "x.csv")]
    for path in ("out/x.csv", "out/*.csv", "out", "out/", "o*/x.csv"):
        ways += [f"FROM '{path}'", f"FROM read_csv('{path}')", f"FROM read_text('{path}')"]
    refused = [refusal(tools["describe_data"], path=path) for path in ("out/x.csv", "in/x.csv", "out", "x.csv")]
    for sql in ways:
        with pytest.raises(ToolException) as caught:
            reader.query(sql)
        refused.append(str(caught.value))
    for said in refused:
        assert not [part for part in ("Traceback", 'File "', "ended its process", "42") if part in said], said
    folder_named = "'real' is a folder: name its files, as FROM 'real/*.csv'"
    assert folder_named in refusal(tools["query_data"], sql="FROM 'real'")


def test_one_value_is_printed_alone_so_that_a_check_can_compare_it(tmp_path: Path, query: Ask) -> None:
    """K5, V07: what a planner is told of the tool is enough to write an expectation."""
    (tmp_path / "q3.csv").write_text("amount\n-1204.50\n4.00\n")
    found = query("SELECT sum(amount) AS q3 FROM 'q3.csv'")
    for expect in ({"number": -1200.5}, {"equals": -1200.5}, {"contains": "-1200.50"}, {"matches": r"^-1200\.50?$"}):
        assert meets(expect, True, found)[0], expect
    assert query("SELECT amount FROM 'q3.csv' WHERE amount > 9") == "amount\n(0 rows)"
    assert query("SELECT NULL") == "NULL"
    # After two seconds DuckDB can print a progress bar, which is no part of a result.
    assert query("SELECT current_setting('enable_progress_bar_print')") == "false"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is empty"),
        ("a,b,c\n1,2,3\n4,5\n6,7,8,9\n", "separated by comma, line 3 has 2 fields, the first 3"),
    ],
)
def test_what_is_no_table_is_not_read_as_one(tmp_path: Path, describe: Ask, query: Ask, content: str, why: str) -> None:
    """D1: no row is passed over in silence; how to read the file has to be said."""
    (tmp_path / "a.csv").write_text(content)
    for ask, what in ((describe, "a.csv"), (query, "SELECT count(*) FROM 'a.csv'")):
        with pytest.raises(ToolException, match=why):
            ask(what)


def test_other_encodings_and_formats(tmp_path: Path, describe: Ask, query: Ask) -> None:
    """D1: cp1252, JSON, JSON lines and Parquet are read, and a title above the header when told to."""
    (tmp_path / "a.csv").write_bytes("name;v\nMüller;1\n".encode("cp1252"))
    (tmp_path / "b.json").write_text('[{"price": 0.1, "d": "2025-07-01"}, {"price": 0.2, "d": "2025-07-02"}]')
    (tmp_path / "c.jsonl").write_text('{"a": 1, "b": {"c": [1, 2]}}\n{"a": null}\n')
    duckdb.sql("SELECT 1 AS id, '$5' AS price").write_parquet(str(tmp_path / "d.parquet"))
    (tmp_path / "e.csv").write_text("Report 2025\n\na,b,c\n1,2,3\n")
    for name, said in {
        "a.csv": "not UTF-8, read as cp1252",
        "b.json": '"price" DECIMAL(18,1)',
        "c.jsonl": "2 rows, 2 columns; JSON",
        "d.parquet": '"id" INTEGER; 0 null; e.g. 1',
        "e.csv": '- "Report 2025" VARCHAR',
    }.items():
        assert said in describe(name)
    assert "looks like numbers" in describe("d.parquet")
    assert query("SELECT name FROM 'a.csv'") == "Müller"
    assert query("SELECT sum(price) AS s, max(d) AS d FROM 'b.json'") == "s | d\n0.3 | 2025-07-02\n(1 rows)"
    assert query("SELECT * FROM 'd.parquet'") == "id | price\n1 | $5\n(1 rows)"
    assert query("FROM read_csv('e.csv', skip = 2)") == "a | b | c\n1 | 2 | 3\n(1 rows)"


def test_a_wide_table_and_keys_that_differ_in_case(tmp_path: Path, describe: Ask, query: Ask) -> None:
    """Q50: six hundred columns need no more memory than some, and each key of an object keeps its values."""
    names = [f"c{at}" for at in range(600)]
    (tmp_path / "wide.csv").write_text("\n".join([",".join(names), *[",".join(map(str, range(600)))] * 3]) + "\n")
    assert describe("wide.csv").startswith("wide.csv: 3 rows, 600 columns")
    assert query("SELECT sum(c599) FROM (SELECT * FROM 'wide.csv')") == "1797"
    (tmp_path / "case.json").write_text('[{"Id": 1, "id": 2, "a/b": {"X": 1, "x": 2}}]')
    assert 'NOTE: "id_1" is the key "id"' in describe("case.json")
    assert query("FROM 'case.json'").splitlines()[1] == '1 | 2 | {"X":1,"x":2}'


# What is known of a file is remembered -------------------------------------------------------------------------------


def read_bytes() -> int:
    """What this process and the ended ones that it started have read."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar"))


def age(path: Path) -> None:
    """Make a file old enough to be remembered."""
    while time.time_ns() - path.stat().st_ctime_ns <= QUIET_NS:
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="reads are counted in /proc")
def test_a_file_is_read_once_to_settle_its_types_and_then_only_by_its_queries(tmp_path: Path) -> None:
    """N51: twice by a first query, once by the next; once more for columns that none has named yet.

    A few blocks of it come on top.
    """
    row = "{n},2026-01-02,region{r},{n}.25,some words about it\n"
    path = tmp_path / "big.csv"
    path.write_text("id,day,region,amount,note\n" + "".join(row.format(n=n, r=n % 7) for n in range(10_000)) * 60)
    age(path)
    size = path.stat().st_size

    def reads(tool: str, argument: str) -> float:
        before = read_bytes()
        try:
            tools[tool].invoke({"sql" if tool == "query_data" else "path": argument})
        except ToolException:
            assert "nothing" in argument
        return (read_bytes() - before - idle) / size

    tools, idle, total = by_name(tmp_path), 0, "SELECT region, sum(amount) FROM 'big.csv' GROUP BY ALL"
    idle = int(reads("query_data", "SELECT 1") * size)
    assert reads("query_data", total) < 2.9
    assert reads("query_data", total) < 1.6
    assert reads("describe_data", "big.csv") < 2.6
    assert reads("describe_data", "big.csv") < 1.1
    for tool, argument in (("query_data", "SELECT nothing FROM 'big.csv'"), ("describe_data", "big.csv")):
        tools = by_name(tmp_path)
        assert reads(tool, argument) < 2.9
        assert reads("query_data", total) < 1.6


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT sum(n) AS s FROM 'late.csv'", ["30003"]),
        ("SELECT n FROM 'late.csv' ORDER BY code DESC LIMIT 1", ["30000"]),
        ("SELECT max(code) AS m FROM 'late.csv'", ["x7"]),
        ('SELECT "the ""name""" AS m FROM \'late.csv\' WHERE n = 2', ["b"]),
        ("SELECT l.code FROM 'late.csv' l NATURAL JOIN 'names.csv' WHERE l.code = 'x7'", ["x7"]),
        ("SELECT l FROM 'late.csv' l WHERE N = 30000", ["{'n': 30000, 'code': x7, 'the \"name\"': c}"]),
        ("FROM 'late.csv' WHERE n = 2", ['n | code | the "name"', "2 | 1 | b", "(1 rows)"]),
        ("SELECT #2 FROM 'late.csv' WHERE n = 2", ["1"]),
    ],
)
def test_a_column_is_looked_at_when_a_query_needs_it(tmp_path: Path, query: Ask, sql: str, rows: list[str]) -> None:
    """N51: by its name or without it; what only its last value shows counts, also after a query that did without."""
    lines = ['n,code,"the ""name"""', "1,1,a", "2,1,b", *["0,1,a"] * 29_998]
    (tmp_path / "late.csv").write_text("\n".join([*lines, "30000,x7,c"]) + "\n")
    (tmp_path / "names.csv").write_text("code\nx7\n")
    age(tmp_path / "late.csv")
    assert query("SELECT count(n) AS c FROM 'late.csv'") == "30001"
    assert query(sql).splitlines()[: len(rows)] == rows


def test_a_file_that_has_changed_is_read_anew(tmp_path: Path, tools: Tools) -> None:
    """N51: in place, with the same size and time of change, and replaced by another."""
    path = tmp_path / "a.csv"

    def describe() -> str:
        age(path)
        return str(tools["describe_data"].invoke({"path": "a.csv"}))

    path.write_text("v\n1\n2\n")
    assert '"v" BIGINT' in describe()
    assert '"v" BIGINT' in describe()
    old = path.stat()
    path.write_text("v\na\nb\n")
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert '"v" VARCHAR' in describe()
    (tmp_path / "b.csv").write_text("v\n0.5\n")
    (tmp_path / "b.csv").rename(path)
    assert '"v" DECIMAL(18,1)' in describe()
    assert tools["query_data"].invoke({"sql": "SELECT sum(v) FROM 'a.csv'"}) == "0.5"
    path.unlink()
    path.symlink_to(tmp_path.parent / "out.csv")
    with pytest.raises(ToolException, match="symbolic link"):
        tools["describe_data"].invoke({"path": "a.csv"})


def test_links_in_a_pattern(tmp_path: Path) -> None:
    """R17: what leads out is named in the words of this runtime, whoever finds the files, and two of them are; the
    other files of a pattern are read.
    """
    root = tmp_path / "ws"
    root.mkdir()
    query = {tool.name: tool for tool in workspace_tools(root)}["query_data"]
    (tmp_path / "out.csv").write_text("v\n7\n")
    (root / "a.csv").write_text("v\n1\n")
    (root / "same.csv").symlink_to("a.csv")
    for name in ("b.csv", "c.csv"):
        (root / name).symlink_to(tmp_path / "out.csv")
    said = "leads out of the workspace or through a symbolic link; neither is followed."
    assert query.invoke({"sql": "SELECT sum(v) FROM '*.csv'"}).splitlines() == [
        "1",
        f"NOTE *.csv: b.csv {said}",
        f"NOTE *.csv: c.csv {said}",
    ]
    for file, named in (("*.csv", "[bc].csv"), ("../out.csv", "../out.csv"), ("/etc/passwd", "/etc/passwd")):
        with pytest.raises(ToolException, match=f"\\A{named} {said}\\Z"):
            query.invoke({"sql": f"SELECT sum(v) FROM read_csv('{file}')"})


LATE = {
    "a leading zero": ("1", "007", "leading zeros"),
    "decimals": ("1", "1.5", '"v" DECIMAL(18,1)'),
    "more decimals": ("1.5", "1.125", '"v" DECIMAL(18,3)'),
    "an exponent": ("1.5", "1e5", '"v" DOUBLE'),
    "a zero before decimals": ("1.5", "007.5", '"v" VARCHAR'),
    "an underscore": ("1", "1_000", '"v" VARCHAR'),
    "no number": ("1", "x", "values are none, such as 'x'"),
    "a large number": ("1", "9" * 20, '"v" HUGEINT'),
    "a day after twelve": ("01/02/2025", "31/12/2025", '"v" DATE'),
    "the month first": ("01/02/2025", "12/31/2025", '"v" DATE'),
    "a short year": ("13.02.2025", "24.12.25", "x, 2025-12-24"),
    "a code": ("1E5", "12E3", "x, 12E3"),
    "no date": ("2025-01-02", "2025-02-30", '"v" VARCHAR'),
    "a number among yes and no": ("true", "1", '"v" VARCHAR'),
    "a quote": ("x", '"y"', "x, y"),
    "a single quote": ("x", "'y'", "x, y"),
    "a comma in quotes": ("x", '"y, z"', "x, y, z"),
    "a value at last": ("", "5", '"v" BIGINT'),
    "another encoding": ("x", "y\udcff", "read as cp1252"),
    "code after words": ("x", "007", "leading zeros"),
}


@pytest.mark.parametrize("case", LATE)
def test_what_only_the_last_row_shows_counts(tmp_path: Path, describe: Ask, query: Ask, case: str) -> None:
    """D1, N51: beyond the rows by which the form of a file is guessed."""
    first, last, said = LATE[case]
    rows = SNIFFED_ROWS + 10_000
    content = "n,v\n" + f"5,{first}\n" * rows + f"6,{last}\n"
    (tmp_path / "a.csv").write_bytes(content.encode("utf-8", "surrogateescape"))
    told = describe("a.csv")
    assert told.startswith(f"a.csv: {rows + 1} rows, 2 columns")
    value = query("SELECT v FROM 'a.csv' WHERE n = 6")
    assert said in f"{told}\nx, {value}"


# What a query may do ------------------------------------------------------------------------------------------------


def test_patterns_join_files_and_a_name_that_is_wrong_names_the_near_ones(tmp_path: Path, query: Ask) -> None:
    """D1: what is hidden is left out."""
    for name in ("logs/a.csv", "logs/deep/b.csv", ".trash/c.csv", "orders.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("n\n1\n")
    assert query("SELECT count(*) AS c FROM '**/*.csv'") == "3"
    assert query("SELECT count(*) AS c FROM 'logs/*.csv'") == "1"
    with pytest.raises(ToolException, match=r"There is no file 'order.csv'. Near: orders.csv"):
        query("SELECT * FROM 'order.csv'")
    with pytest.raises(ToolException, match="Files are named in quotes"):
        query("SELECT * FROM orders")


def test_text_that_is_compared_as_such_is_pointed_out(tmp_path: Path, query: Ask) -> None:
    """D1: by letters `9` comes after `10`; where a column is cast, nothing is said."""
    (tmp_path / "a.csv").write_text('v;d\n"9,5";01/02/2025\n"10,5";03/04/2025\n')
    for sql in ("SELECT max(v) FROM 'a.csv'", "SELECT * FROM 'a.csv' ORDER BY v", "FROM 'a.csv' WHERE d >= '2025'"):
        assert "\nNOTE a.csv: " in query(sql)
    for sql in ("SELECT v, d FROM 'a.csv'", "SELECT max(strptime(d, '%d/%m/%Y')) FROM 'a.csv'"):
        assert "NOTE" not in query(sql)


def test_results_are_bounded_and_say_so(query: Ask) -> None:
    """X12, V04: how many rows there are, and how many are left out."""
    told = query("SELECT * FROM range(10000)")
    assert told.startswith("range\n0\n1\n")
    assert "… the result had 10000 rows, of which the first 500 are shown: aggregate" in told
    assert meets({"contains": "\n600\n"}, True, told)[0] is None
    told = query("SELECT repeat('x', 900) AS x FROM range(100)")
    assert len(told) < 20_000
    assert "… the result had 100 rows, of which the first" in told
    assert "…[cut]" in query("SELECT repeat('x', 100000) AS x")


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO 'new.csv'",
        "ATTACH 'new.db'",
        "PRAGMA database_list",
        "SET threads = 1",
        "INSTALL excel",
        "LOAD excel",
        "CREATE TABLE t AS SELECT 1",
        "SELECT 1; SELECT 2",
        "CALL pragma_version()",
        "EXPORT DATABASE 'new'",
        "",
        "SELECT getenv('HOME')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_text('/proc/self/environ')",
        "SELECT * FROM read_csv('../out.csv')",
        "SELECT * FROM '../out.csv'",
        "SELECT * FROM 'link.csv'",
        "SELECT * FROM read_csv('link.csv')",
        "SELECT * FROM 'folder/out.csv'",
        "SELECT * FROM read_csv('folder/*.csv')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM glob('../*')",
        "SELECT * FROM query('COPY (SELECT 1) TO ''new.csv''')",
        "SELECT * FROM enable_logging(storage = 'file', storage_path = 'new')",
        "SELECT * FROM 'https://example.com/a.csv'",
        "SELECT * FROM 's3://bucket/a.csv'",
        "SELECT * FROM arrow_scan(1::UBIGINT::POINTER, 2, 3)",
        "SELECT repeat('x', 4000000000) || repeat('y', 4000000000)",
        "SELECT 1 FROM 'gone.csv'",
    ],
)
def test_what_leads_out_or_changes_something_is_refused(tmp_path: Path, query: Ask, sql: str) -> None:
    """D1, F12: only one SELECT, only below the folder, no links, nothing is written."""
    root = tmp_path
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "out.csv").write_text("secret\n4711\n")
    (root / "link.csv").symlink_to(outside / "out.csv")
    (root / "folder").symlink_to(outside)
    with pytest.raises(ToolException) as refused:
        query(sql)
    assert "4711" not in str(refused.value)
    assert sorted(path.name for path in root.iterdir()) == ["folder", "link.csv"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the process in /proc")
async def test_a_cancelled_query_ends(tmp_path: Path) -> None:
    """D1: whatever it computes."""
    tool = by_name(tmp_path)["query_data"]
    sql = "SELECT count(*) FROM range(100000000000) a, range(10000) b WHERE a.range * 7 = b.range"
    task = asyncio.create_task(tool.ainvoke({"sql": sql}))
    await asyncio.sleep(0.3)
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 20
    assert not await asyncio.to_thread(running, str(tmp_path))


def running(part: str) -> list[Path]:
    """The processes in whose command line this stands."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            if part.encode() in path.read_bytes():
                found.append(path)
    return found


async def test_who_streams_a_run_hears_how_far_a_long_query_is(tmp_path: Path) -> None:
    """N51, S01: as of any tool that writes to the stream; the query ends with the stream."""
    sql = "SELECT count(*) FROM range(100000000000) a, range(10000) b WHERE a.range * 7 = b.range"
    model = one_step([call("query_data", sql=sql), finish_step("x", "s1.1")], tools=["query_data"])
    agent = Agent(model, workspace_tools(tmp_path), storage="memory:", settings=Settings(**FREE))
    heard: asyncio.Queue[Any] = asyncio.Queue()

    async def listen() -> None:
        async with agent.stream("go") as stream:
            async for event in stream:
                if event["type"] == "custom":
                    await heard.put(event["data"])

    listening = asyncio.create_task(listen())
    told = await heard.get()
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    assert told["doing"] == "running the query"
    assert 0 <= told["percent"] <= 100
    assert not await asyncio.to_thread(running, str(tmp_path))
