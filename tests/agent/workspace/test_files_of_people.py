"""Data files as people have them: what the tools say of each is true, and what could be read in two ways is said."""

import zipfile
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter
from langchain_core.tools import ToolException

from tests.kit.tables import Reader
from tests.kit.workspace import by_name, refusal

GERMAN = "PLZ;Ort;Datum;Umsatz;Leer\r\n01067;Köln;24.12.2025;1.234,50;\r\n80331;München;01.02.2025;7,5;\r\n"
POLISH = "Miasto;Kwota\nŁódź;1\N{NO-BREAK SPACE}234,50\nŻary;12\N{NO-BREAK SPACE}000,00\nŚwidnica;7,25\n"
TEXTS = {
    "from a German Excel": (
        GERMAN.encode("cp1252"),
        [
            "read as cp1252, which is a guess",
            '"PLZ" VARCHAR',
            "leading zeros",
            "day.month.year because of 24.12.2025",
            "written with a decimal comma",
            '"Leer" without a value; 2 null',
        ],
        "SELECT PLZ, Ort, Datum, Leer FROM '{}' WHERE PLZ = '01067'",
        "01067 | Köln | 2025-12-24 | NULL",
    ),
    "from a Polish Excel": (
        POLISH.encode("cp1250"),
        ["read as cp1250, which is a guess", "written with a decimal comma"],
        "SELECT Miasto FROM '{}' WHERE Kwota LIKE '1_234,50'",
        "Łódź",
    ),
    "Excel's Unicode text": (
        "Name\tOrt\r\nMüller\tKöln\r\n".encode("utf-16"),
        ["CSV separated by tab", "read as utf-16"],
        "SELECT Ort FROM '{}'",
        "Köln",
    ),
    "a byte order mark and sep=": (
        "sep=;\r\nid;v\r\n1;2,5\r\n".encode("utf-8-sig"),
        ['- "id" BIGINT; 0 null; e.g. 1\n', "written with a decimal comma"],
        "SELECT id FROM '{}'",
        "1",
    ),
    "American": (
        b'Date,Amount\n12/24/25,"$1,234.50"\n01/02/99,$5.00\n',
        ["month/day/year because of 12/24/25, years of two digits as 1969 to 2068", "looks like numbers"],
        "SELECT Date FROM '{}' ORDER BY 1 DESC LIMIT 1",
        "2025-12-24",
    ),
    "Japanese": (
        "都市,人口\n東京都千代田区,67000\n大阪府大阪市,2750000\n".encode("shift_jis"),
        ["read as cp932, which is a guess", '"人口" BIGINT'],
        "SELECT 都市 FROM '{}' WHERE 人口 = 67000",
        "東京都千代田区",
    ),
    "a header over two lines": (
        b"Region,Sales,\n,Q1,Q2\nWest,1,2\nOst,3,4\nNord,5,6\n",
        ['"Sales" VARCHAR', "1 of 4 values are none, such as 'Q1'", '"column2" VARCHAR', "such as 'Q2'"],
        "SELECT count(*) FROM '{}'",
        "4",
    ),
    "a title": (
        b"Report 2025\n\na,b\n1,x\n",
        ["CSV of one column", "line 3 has 2 fields separated by comma: FROM read_csv('", "skip = 2"],
        "SELECT a FROM read_csv('{}', delim = ',', skip = 2, header = true, all_varchar = true)",
        "1",
    ),
    "a remark": (
        b"# made by x\na,b\n1,2\n",
        ["CSV of one column", "line 2 has 2 fields separated by comma"],
        "SELECT count(*) FROM '{}'",
        "2",
    ),
    "dates in two forms": (
        b"d,n\n2025-12-24,1\n24.12.2025,2\n",
        ['"d" VARCHAR', "looks like dates (2025-12-24), kept as text: written in several ways"],
        "SELECT d FROM '{}' WHERE n = 2",
        "24.12.2025",
    ),
    "a total below": (
        b"item,n\na,1\nb,2\n,\nTotal,3\n",
        ["4 rows, 2 columns", '"item" VARCHAR; 1 null', '"n" BIGINT; 1 null'],
        "SELECT sum(n) FROM '{}' WHERE item <> 'Total'",
        "3",
    ),
    "lines in a value": (
        b'id,note\r\n1,"two\r\nlines"\r\n2,"a ""quote"""\r\n',
        ["2 rows, 2 columns", 'e.g. two\\nlines, a "quote"'],
        "SELECT note FROM '{}' WHERE id = 2",
        'a "quote"',
    ),
}


@pytest.mark.parametrize("case", TEXTS)
def test_text_files(tmp_path: Path, case: str) -> None:
    """D1, Q50: encodings, separators, decimal commas, dates, codes, empty columns, titles: said, and read like that."""
    content, said, sql, value = TEXTS[case]
    (tmp_path / "a.csv").write_bytes(content)
    reader = Reader(tmp_path)
    told = reader.describe("a.csv")
    for part in said:
        assert part in told
    answer = reader.query(sql.format("a.csv")).splitlines()
    assert value in answer[: 2 if " | " in value else 1]


# Workbooks ----------------------------------------------------------------------------------------------------------


class Sheet:
    """A sheet that is written with the formats of dates, times and spans."""

    def __init__(self, book: Any, name: str) -> None:
        forms = {date: "dd.mm.yyyy", datetime: "dd.mm.yyyy hh:mm", time: "hh:mm", timedelta: "[h]:mm"}
        self._formats = {kind: book.add_format({"num_format": form}) for kind, form in forms.items()}
        self.sheet = book.add_worksheet(name)

    def rows(self, *rows: Sequence[Any], at: int = 0) -> None:
        """Write rows; None leaves a cell empty, text that begins with = is a formula that was never computed."""
        for number, row in enumerate(rows, at):
            for column, value in enumerate(row):
                if type(value) in self._formats:
                    self.sheet.write_datetime(number, column, value, self._formats[type(value)])
                elif isinstance(value, str) and value.startswith("="):
                    self.sheet.write_formula(number, column, value, value="")
                elif value is not None:
                    self.sheet.write(number, column, value)


def all_types(book: Any) -> None:
    names = ["code", "n", "money", "day", "moment", "at", "span", "ok", "text day"]
    row = ["007", 5, 1.1 + 2.2, date(2025, 12, 24), datetime(2025, 12, 24, 10, 30), time(9, 15)]
    Sheet(book, "All").rows(names, [*row, timedelta(hours=30), True, "24.12.2025"], ["012", 7, 4, *[None] * 6])


def two_sheets(book: Any) -> None:
    Sheet(book, "Q1").rows(["id", "v"], [1, 1.5], [2, 2.25])
    Sheet(book, "Q2's new").rows(["id", "v"], [1, 3])
    Sheet(book, "Empty")
    hidden = Sheet(book, "Old")
    hidden.rows(["id"], [9])
    hidden.sheet.hide()


def merged_header(book: Any) -> None:
    filled = Sheet(book, "Sales")
    filled.sheet.merge_range("A1:E1", "Report 2025")
    filled.sheet.merge_range("A3:A4", "Region")
    filled.sheet.merge_range("B3:C3", "Sales")
    filled.sheet.merge_range("D3:E3", "Cost")
    filled.rows([None, "Q1", "Q2", "Q1", "Q2"], ["West", 1, 2, 3, 4], [None, 5, 6, 7, 8], at=3)
    filled.sheet.merge_range("A5:A6", "West")


def numbers_below_a_merged_name(book: Any) -> None:
    filled = Sheet(book, "S")
    filled.sheet.merge_range("B1:C1", "Sales")
    filled.rows(["Region"], [None, 2024, 2025], ["West", 1, 2])
    filled.sheet.write(0, 0, "Region")


def gaps(book: Any) -> None:
    rows = [["a", "A", None, "c", "d"], [1, 2, 3, 4, 5], [None] * 5, ["Total", 2, "n/a", 4, 5]]
    Sheet(book, "S").rows(["Made by", "Ada"], [None], *rows)


def lost(book: Any) -> None:
    filled = Sheet(book, "S")
    filled.rows(["a", "b"], [1, "=A2+1"], [2, 5], [3])
    filled.sheet.write_formula("B4", "=1/0", value="#DIV/0!")


WORKBOOKS: dict[str, tuple[Callable[[Any], None], list[str], str, str]] = {
    "every type": (
        all_types,
        [
            "2 rows, 9 columns; sheet 'All'; row 1 read as the header\n",
            '"code" VARCHAR',
            "leading zeros",
            '"n" BIGINT',
            '"money" DECIMAL(18,1); 0 null; e.g. 3.3, 4.0',
            '"day" DATE; 1 null; e.g. 2025-12-24\n',
            '"span" INTERVAL',
            '"moment" TIMESTAMP; 1 null; e.g. 2025-12-24 10:30:00',
            '"at" TIME; 1 null; e.g. 09:15:00',
            '"ok" BOOLEAN; 1 null; e.g. true',
            '"text day" DATE; 1 null; e.g. 2025-12-24; read as day.month.year',
        ],
        "SELECT sum(money), max(span), max(day) + 1 FROM 'a.xlsx' WHERE code <> '7'",
        "7.3 | 30:00:00 | 2025-12-25",
    ),
    "two sheets": (
        two_sheets,
        [
            "a.xlsx#Q1: 2 rows, 2 columns; sheet 'Q1'",
            "a.xlsx#Q2's new: 1 rows, 2 columns",
            "\na.xlsx#Empty has no values.",
        ],
        "SELECT x.v, y.v, z.id FROM 'a.xlsx#Q1' x JOIN 'a.xlsx#Q2''s new' y USING (id), 'a.xlsx#Old' z",
        "1.50 | 3 | 9",
    ),
    "a merged header": (
        merged_header,
        [
            "sheet 'Sales'; rows 3 to 4 read as the header; above it: 'Report 2025'",
            '"Sales Q1" BIGINT',
            '"Cost Q2"',
            "merged cells ('A5:A6') have their value in their first row and column, null in the others",
        ],
        'SELECT sum("Sales Q1"), sum("Cost Q2"), count("Region") FROM \'a.xlsx\'',
        "6 | 12 | 1",
    ),
    "numbers below a merged name": (
        numbers_below_a_merged_name,
        ["row 1 read as the header", "'Sales' stands above several columns, and the row below it is data"],
        'SELECT "Sales", "Sales_1" FROM \'a.xlsx\' LIMIT 1',
        "2024 | 2025",
    ),
    "no header": (
        lambda book: Sheet(book, "S").rows([1, 2.5], [3, 4]),
        ["no header: column0, column1", '"column1" DECIMAL(18,1)'],
        "SELECT column0, column1 FROM 'a.xlsx' LIMIT 1",
        "1 | 2.5",
    ),
    "gaps": (
        gaps,
        [
            "row 3 read as the header; above it: 'Made by', 'Ada'",
            "row 5 is empty, and what stands below it may be",
            '"a" VARCHAR',
            '"A_1" BIGINT',
            '"column2" VARCHAR',
        ],
        "SELECT a, column2 FROM 'a.xlsx' WHERE a = 'Total'",
        "Total | n/a",
    ),
    "errors, and formulas without a result": (
        lost,
        ["with an error, or a formula without a stored result, are null: 2\n", '"b" BIGINT; 2 null; e.g. 5'],
        "SELECT sum(a), sum(b) FROM 'a.xlsx'",
        "6 | 5",
    ),
}


@pytest.mark.parametrize("case", WORKBOOKS)
def test_workbooks(tmp_path: Path, case: str) -> None:
    """D1, Q50: sheets, merged cells, titles, types of cells: what was made of them is said; nothing is filled in."""
    write, said, sql, row = WORKBOOKS[case]
    with xlsxwriter.Workbook(str(tmp_path / "a.xlsx")) as book:
        write(book)
    reader = Reader(tmp_path)
    told = reader.describe("a.xlsx")
    for part in said:
        assert part in told
    for _ in range(2):  # the second time its types are remembered
        assert reader.query(sql).splitlines()[1] == row


def test_sheets_are_named_and_never_guessed(tmp_path: Path) -> None:
    """Q50: of two sheets one has to be named; what is no workbook is refused in words, and so is what is not there."""
    for name in ("a.xlsx", "b.xlsx"):
        with xlsxwriter.Workbook(str(tmp_path / name)) as book:
            two_sheets(book)
    with xlsxwriter.Workbook(str(tmp_path / "empty.xlsx")) as book:
        Sheet(book, "S")
    (tmp_path / "text.xls").write_text("<table><tr><td>1</td></tr></table>")
    (tmp_path / "broken.xlsx").write_bytes(b"PK\0\1")
    (tmp_path / "link.xlsx").symlink_to("a.xlsx")
    reader, tools = Reader(tmp_path), by_name(tmp_path)
    assert reader.query("SELECT sum(v) FROM '[ab].xlsx#Q1'") == "7.50"
    for asked, why in {
        "a.xlsx": "a.xlsx has 2 sheets ('Q1', \"Q2's new\"): name one, as in FROM 'a.xlsx#Q1'",
        "a.xlsx#Q3": "has no sheet 'Q3'; it has 'Q1', \"Q2's new\", 'Empty', 'Old'",
        "a.xlsx#Empty": "a.xlsx#Empty has no values",
        "empty.xlsx": "has no values in a sheet that is not hidden",
        "text.xls": "is no workbook that can be read: it is text",
        "broken.xlsx": "is no workbook that can be read",
        "link.xlsx#Q1": "symbolic link",
        "c.xlsx#Q1": "There is no file 'c.xlsx'. Near: ",
    }.items():
        with pytest.raises(ToolException) as refused:
            reader.query(f"SELECT * FROM '{asked}'")
        assert why in str(refused.value), asked
    with xlsxwriter.Workbook(str(tmp_path / "one.xlsx")) as book:
        Sheet(book, "S").rows(["id"], [1])
    assert "named in quotes: FROM 'sales.xlsx#Q1'" in refusal(tools["query_data"], sql="FROM read_xlsx('one.xlsx')")
    assert "2 rows, 2 columns; sheet 'Q1'" in tools["describe_data"].invoke({"path": "a.xlsx#Q1"})
    assert "symbolic link" in refusal(tools["describe_data"], path="link.xlsx#Q1")


def test_a_workbook_that_has_changed_is_read_anew(tmp_path: Path) -> None:
    """N51, Q50: its sheets are remembered as long as the file stays the same."""
    reader = Reader(tmp_path)
    for value in (1, 2):
        with xlsxwriter.Workbook(str(tmp_path / "a.xlsx")) as book:
            Sheet(book, "S").rows(["v"], [value])
        assert reader.query("SELECT v FROM 'a.xlsx'") == str(value)


def test_an_open_document(tmp_path: Path) -> None:
    """Q50: sheets of LibreOffice are read too."""
    cells = [('office:value-type="string"', "id"), ('office:value-type="float" office:value="5"', "5")]
    rows = "".join(
        f"<table:table-row><table:table-cell {kind}><text:p>{shown}</text:p></table:table-cell></table:table-row>"
        for kind, shown in cells
    )
    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
    )
    with zipfile.ZipFile(tmp_path / "a.ods", "w") as parts:
        parts.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        parts.writestr(
            "META-INF/manifest.xml",
            '<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"></m:manifest>',
        )
        parts.writestr(
            "content.xml",
            f"<office:document-content {spaces}><office:body><office:spreadsheet>"
            f'<table:table table:name="S">{rows}</table:table>'
            "</office:spreadsheet></office:body></office:document-content>",
        )
    reader = Reader(tmp_path)
    assert '- "id" BIGINT; 0 null; e.g. 5' in reader.describe("a.ods")
    assert reader.query("SELECT id FROM 'a.ods#S'") == "5"
