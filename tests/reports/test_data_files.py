"""Reports about readers of data files, each tried with a file as reported: every value is there, as it was written."""

from pathlib import Path

import pytest

from tests.kit.people_files import bare_book, open_document
from tests.kit.tables import Reader

PALERMO = "Cariche;Competenze\r\nSindaco;Rappresenta\nla città\r\nAssessore;Bilancio\r\n"
ROWS = '[{"name": "Müller", "n": 12}, {"name": "Ann", "n": 7}]'
STYLED = '<row><c t="inlineStr"><is><t>day</t></is></c></row><row><c s="1"><v>44095</v></c></row>'
TEXT = '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
SPANNED = TEXT.format("x").replace("table-cell ", 'table-cell table:number-columns-spanned="2" ')
HIDDEN = TEXT.format("hidden").replace("table-cell", "covered-table-cell")
RATES = "data;1USD\r\n20250102;4,10\r\n20250103;4,12\r\n;\r\nkod ISO;USD\r\nnazwa;dolar amerykański\r\n"
REPORTS: dict[str, tuple[str, bytes, str, list[str]]] = {
    "python/cpython#142188": ("a.csv", b"User,ID\rAlice,001\nBob,002", "SELECT ID FROM '{}'", ["001", "002"]),
    "mholt/PapaParse#1123": (
        "a.csv",
        b"name,city\nAlice,NYC\r\nBob,LA\r\nCarol,SF",
        "SELECT city FROM '{}' WHERE city IN ('NYC', 'LA', 'SF')",
        ["NYC", "LA", "SF"],
    ),
    "AIObjectives/tttc-light-js#567": (
        "a.csv",
        b'id,text\r\n1,"one, two"\r\n2,three\n',
        "SELECT text FROM '{}' ORDER BY id",
        ["one, two", "three"],
    ),
    "frictionlessdata/frictionless-py#803": (
        "a.csv",
        PALERMO.replace("Rappresenta\nla città", '"Rappresenta\nla città"').encode("iso8859-1"),
        "SELECT Cariche FROM '{}' WHERE Competenze LIKE '%città'",
        ["Sindaco"],
    ),
    "microsoft/vscode-data-wrangler#219": ("a.csv", b"c,n\nNA,1\nDE,2\n", "SELECT c FROM '{}' WHERE n = 1", ["NA"]),
    "OasisLMF/OasisLMF#307": ("a.csv", b"c,n\nNone,1\nNULL,2\nnan,3\n", "SELECT c FROM '{}'", ["None", "NULL", "nan"]),
    "jqlang/jq#2351": ("a.json", ROWS.encode("utf-16"), "SELECT name FROM '{}' WHERE n = 12", ["Müller"]),
    "szwacz/fs-jetpack#100": ("a.json", ROWS.encode("utf-8-sig"), "SELECT name FROM '{}' WHERE n = 12", ["Müller"]),
    "EricZimmerman/LECmd#2": (
        "a.jsonl",
        '{"n": 12}\r\n{"n": 7}\r\n'.encode("utf-8-sig"),
        "SELECT sum(n) FROM '{}'",
        ["19"],
    ),
    "duckdb/duckdb#17093": (
        "a.csv",
        b'"text","number"\n"ab","100,000.00"\n"cd","7.50"\n',
        "SELECT number FROM '{}'",
        ["100,000.00", "7.50"],
    ),
    "duckdb/duckdb#12856": (
        "a.csv",
        b"text|number\n" + b"foo|123,000\n" * 2_500 + b"foo|1,5\n",
        "SELECT count(*), any_value(number) FILTER (number LIKE '1,5') FROM '{}'",
        ["2501 | 1,5"],
    ),
    "duckdb/duckdb#17291": (
        "a.csv",
        RATES.encode("cp1250"),
        "SELECT \"1USD\" FROM '{}' WHERE data LIKE '2025%'",
        ["4,10", "4,12"],
    ),
    "dbeaver/dbeaver#7839": (
        "a.csv",
        "Částka;n\n10 237,65;1\n0,50;2\n".encode("cp1250"),
        "SELECT * EXCLUDE n FROM '{}'",
        ["10 237,65", "0,50"],
    ),
    "tidyverse/readr#449": ("a.csv", b"share;n\n20 %;1\n0,5 %;2\n", "SELECT share FROM '{}'", ["20 %", "0,5 %"]),
    "ngrunwald/meta-csv#5": (
        "a.csv",
        b"cases;change;rate\n2.155;+546;19,47\n3.021;-7;20,01\n",
        "SELECT cases, change, rate FROM '{}'",
        ["2.155 | +546 | 19,47", "3.021 | -7 | 20,01"],
    ),
    "SheetJS/sheetjs#2112": (
        "a.xlsx",
        bare_book(STYLED, styles="d.m"),
        "SELECT day FROM '{}'",
        ["2020-09-21"],
    ),
    "shuchkin/simplexlsx#142": (
        "a.xlsx",
        bare_book(STYLED.replace("44095", "23275"), styles="dd.mm.yyyy"),
        "SELECT day FROM '{}'",
        ["1963-09-21"],
    ),
    "SheetJS/sheetjs#1365": (
        "a.ods",
        open_document("".join(map(TEXT.format, "abc")), SPANNED + HIDDEN + TEXT.format("z")),
        "SELECT a, c FROM '{}'",
        ["x | z"],
    ),
    "JSON of an older program": ("a.json", ROWS.encode("cp1252"), "SELECT name FROM '{}' WHERE n = 12", ["Müller"]),
    "long numbers": (
        "a.csv",
        b"id,v\n9007199254740993,1\n12345678901234567890,2\n",
        "SELECT id FROM '{}' ORDER BY v",
        ["9007199254740993", "12345678901234567890"],
    ),
}


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_about_a_data_file_holds(report: str, tmp_path: Path) -> None:
    """D1, Q50: two lines of a file end differently, a code looks like nothing, JSON is written by PowerShell: it is
    described, and read, a second time as the first."""
    name, content, sql, values = REPORTS[report]
    (tmp_path / name).write_bytes(content)
    reader = Reader(tmp_path)
    told = reader.describe(name)
    for _ in range(2):
        answer = reader.query(sql.format(name)).splitlines()
        assert (answer[1:-1] if len(answer) > 1 else answer) == values
    assert ("lines end in different ways" in told) == (report.split("#")[0] in MIXED)


MIXED = ("python/cpython", "mholt/PapaParse", "AIObjectives/tttc-light-js")
