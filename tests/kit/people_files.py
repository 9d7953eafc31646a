"""Fifty files as programs and people write them, with what they mean, by hand and not by any code that reads them.

A value is what its author meant. A column that is read as text has to show what is written, which `written` has where
that differs; a reader that makes a number or a date of it has to find the value itself.
"""

import gzip
import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import xlsxwriter

D = Decimal
NBSP = "\N{NO-BREAK SPACE}"
Values = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class File:
    """A file, its columns with their values, and how those are written that may stay text."""

    name: str
    content: bytes
    values: Values
    written: Values = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.values.values())))


def _csv(text: str, encoding: str = "utf-8", name: str = "a.csv") -> Any:
    return lambda values, written=None: File(name, text.encode(encoding), values, written or {})


def _book(write: Any, **options: Any) -> bytes:
    made = io.BytesIO()
    with xlsxwriter.Workbook(made, {"in_memory": True, **options}) as book:
        write(book, book.add_worksheet("Data"))
    return made.getvalue()


def _parts(parts: Mapping[str, str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as packed:
        for name, text in parts.items():
            packed.writestr(name, text)
    return made.getvalue()


_MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def bare_book(rows: str, shared: str = "", styles: str = "") -> bytes:
    """Return a workbook with the few parts that other programs than Excel write; `styles` is the form of style 1."""
    kinds = "http://schemas.openxmlformats.org/package/2006"
    sheet = "application/vnd.openxmlformats-officedocument.spreadsheetml."
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{kinds}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{sheet}sheet.main+xml"/>'
        f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{sheet}worksheet+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{kinds}/relationships"><Relationship Id="r1" '
        f'Type="{_RELATED}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook {_MAIN} xmlns:r="{_RELATED}"><sheets>'
        '<sheet name="Sheet1" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{kinds}/relationships"><Relationship Id="r1" '
        f'Type="{_RELATED}/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="r2" '
        f'Type="{_RELATED}/sharedStrings" Target="sharedStrings.xml"/><Relationship Id="r3" '
        f'Type="{_RELATED}/styles" Target="styles.xml"/></Relationships>',
        "xl/sharedStrings.xml": f"<sst {_MAIN}>{shared}</sst>",
        "xl/worksheets/sheet1.xml": f"<worksheet {_MAIN}><sheetData>{rows}</sheetData></worksheet>",
    }
    parts["xl/styles.xml"] = (
        f'<styleSheet {_MAIN}><numFmts count="1"><numFmt numFmtId="164" formatCode="{styles}"/></numFmts>'
        '<cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="164" applyNumberFormat="1"/></cellXfs></styleSheet>'
    )
    return _parts(parts)


def _inline(*rows: Sequence[Any]) -> str:
    cells = [
        "".join(
            f'<c t="inlineStr"><is><t>{cell}</t></is></c>' if isinstance(cell, str) else f"<c><v>{cell}</v></c>"
            for cell in row
        )
        for row in rows
    ]
    return "".join(f"<row>{row}</row>" for row in cells)


def _days_of_1904(book: Any, sheet: Any) -> None:
    form = book.add_format({"num_format": "dd/mm/yyyy"})
    sheet.write_row(0, 0, ["day", "n"])
    for row, day in enumerate((date(2025, 12, 24), date(2026, 1, 2)), 1):
        sheet.write_datetime(row, 0, datetime(day.year, day.month, day.day), form)
        sheet.write(row, 1, row)


def _text_codes(_: Any, sheet: Any) -> None:
    for row, cells in enumerate([("code", "n"), ("007", "12"), ("0815", "7")]):
        for column, cell in enumerate(cells):
            sheet.write_string(row, column, cell)


def _shown_otherwise(book: Any, sheet: Any) -> None:
    percent, money = book.add_format({"num_format": "0.0%"}), book.add_format({"num_format": '#,##0.00 "€"'})
    sheet.write_row(0, 0, ["share", "price"])
    for row, (share, price) in enumerate(((0.052, 1234.5), (0.5, -7.25)), 1):
        sheet.write_number(row, 0, share, percent)
        sheet.write_number(row, 1, price, money)


def _computed(_: Any, sheet: Any) -> None:
    sheet.write_row(0, 0, ["n", "double", "word"])
    for row, n in enumerate((2, 5), 1):
        sheet.write_number(row, 0, n)
        sheet.write_formula(row, 1, f"=A{row + 1}*2", value=n * 2)
        sheet.write_formula(row, 2, f'="x"&A{row + 1}', value=f"x{n}")


def _as_a_table(_: Any, sheet: Any) -> None:
    columns = [{"header": "item"}, {"header": "n"}]
    sheet.add_table("C4:D6", {"data": [["lamp", 3], ["desk", 4]], "columns": columns})


_ODS = "urn:oasis:names:tc:opendocument:xmlns:"


def open_document(*rows: str) -> bytes:
    """Return a sheet of LibreOffice with these rows of cells."""
    spaces = " ".join(f'xmlns:{name}="{_ODS}{name}:1.0"' for name in ("office", "table", "text"))
    body = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)
    return _parts(
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "META-INF/manifest.xml": f'<m:manifest xmlns:m="{_ODS}manifest:1.0"></m:manifest>',
            "content.xml": f"<office:document-content {spaces}><office:body><office:spreadsheet>"
            f'<table:table table:name="T">{body}</table:table></office:spreadsheet></office:body>'
            "</office:document-content>",
        }
    )


def _cell(kind: str, shown: str, **more: str) -> str:
    extra = "".join(f' {key.replace("_", ":").replace("::", "-")}="{value}"' for key, value in more.items())
    return f'<table:table-cell office:value-type="{kind}"{extra}><text:p>{shown}</text:p></table:table-cell>'


WRITTEN_DAYS = ["24.12.2025", "02.01.2026"]
DAYS = [date(2025, 12, 24), date(2026, 1, 2)]

FILES: dict[str, File] = {
    "a German bank": _csv(
        '"Konto";"Buchungstag";"Zweck";"Betrag"\r\n"DE12";"24.12.25";"Miete, Dezember";"-850,00"\r\n'
        '"DE12";"02.01.26";"Gehalt für Müller";"2.500,10"\r\n',
        "cp1252",
    )(
        {
            "Buchungstag": DAYS,
            "Zweck": ["Miete, Dezember", "Gehalt für Müller"],
            "Betrag": [D("-850.00"), D("2500.10")],
        },
        {"Buchungstag": ["24.12.25", "02.01.26"], "Betrag": ["-850,00", "2.500,10"]},
    ),
    "an app's bank": _csv(
        '"Booking Date","Partner","Amount (EUR)"\n2025-12-24,"Café ""Süd""",-12.5\n2026-01-02,Ann,100.0\n'
    )({"Booking Date": DAYS, "Partner": ['Café "Süd"', "Ann"], "Amount (EUR)": [D("-12.5"), D(100)]}),
    "PayPal": _csv(
        '"Date","Time","Name","Gross","Fee"\r\n"12/24/2025","10:30:00","Ann","1,234.56","-5.00"\r\n'
        '"01/02/2026","09:05:10","Bo","20.00","-0.35"\r\n',
        "utf-8-sig",
    )(
        {
            "Date": DAYS,
            "Time": [time(10, 30), time(9, 5, 10)],
            "Gross": [D("1234.56"), D(20)],
            "Fee": [D(-5), D("-0.35")],
        },
        {"Gross": ["1,234.56", "20.00"]},
    ),
    "Stripe": _csv(
        "id,Created (UTC),Amount,Captured,Card Last4\nch_1,2025-12-24 10:30,12.34,true,0042\n"
        "ch_2,2026-01-02 09:00,7.00,false,4242\n"
    )(
        {
            "Created (UTC)": [datetime(2025, 12, 24, 10, 30), datetime(2026, 1, 2, 9)],
            "Amount": [D("12.34"), D(7)],
            "Captured": [True, False],
            "Card Last4": ["0042", "4242"],
        }
    ),
    "Shopify": _csv("Name,Total,Lineitem sku\n#1001,12.00,00123\n#1002,7.50,9E4\n")(
        {"Name": ["#1001", "#1002"], "Total": [D(12), D("7.5")], "Lineitem sku": ["00123", "9E4"]}
    ),
    "a seller's settlement": _csv(
        "settlement-id\tposted-date\tamount\n18446744073709551616\t24.12.2025 10:30:00 UTC\t-1.99\n"
        "18446744073709551617\t02.01.2026 09:00:00 UTC\t12.00\n",
        name="a.tsv",
    )(
        {
            "settlement-id": [18446744073709551616, 18446744073709551617],
            "posted-date": ["24.12.2025 10:30:00 UTC", "02.01.2026 09:00:00 UTC"],
            "amount": [D("-1.99"), D(12)],
        }
    ),
    "answers of a form": _csv(
        '"Timestamp","Coming?","Guests"\n"12/24/2025 10:30:15","Yes","2"\n"1/2/2026 9:05:00","No","0"\n'
    )(
        {
            "Timestamp": [datetime(2025, 12, 24, 10, 30, 15), datetime(2026, 1, 2, 9, 5)],
            "Coming?": ["Yes", "No"],
            "Guests": [2, 0],
        }
    ),
    "advertisements": _csv('Campaign,Clicks,CTR\nA,"1,234",5.20%\nB,"12,345",0.50%\nC,999,1.00%\n')(
        {"Clicks": [1234, 12345, 999], "CTR": [D("5.20"), D("0.50"), D(1)]},
        {"Clicks": ["1,234", "12,345", "999"], "CTR": ["5.20%", "0.50%", "1.00%"]},
    ),
    "a German Excel": _csv("Artikel;Preis\r\nTür;1.234,50 €\r\nSchloß;7,00 €\r\n", "cp1252")(
        {"Artikel": ["Tür", "Schloß"], "Preis": [D("1234.5"), D(7)]}, {"Preis": ["1.234,50 €", "7,00 €"]}
    ),
    "a French Excel": _csv(f"Libellé;Montant\r\nDécembre;1{NBSP}234,50\r\nFévrier;-7,25\r\n", "cp1252")(
        {"Libellé": ["Décembre", "Février"], "Montant": [D("1234.5"), D("-7.25")]},
        {"Montant": [f"1{NBSP}234,50", "-7,25"]},
    ),
    "Switzerland": _csv("Konto;Saldo\n1000;1'234.50\n1001;-7.25\n")(
        {"Konto": [1000, 1001], "Saldo": [D("1234.5"), D("-7.25")]}, {"Saldo": ["1'234.50", "-7.25"]}
    ),
    "an old Mac": _csv("id,name\r1,Ann\r2,Bo\r")({"id": [1, 2], "name": ["Ann", "Bo"]}),
    "Unicode text of Excel": _csv("Stadt\tEinwohner\r\nKöln\t1087353\r\nŁódź\t670642\r\n", "utf-16")(
        {"Stadt": ["Köln", "Łódź"], "Einwohner": [1087353, 670642]}
    ),
    "LibreOffice": _csv('"id","text"\n1,"a; b"\n2,"two\nlines"\n')({"id": [1, 2], "text": ["a; b", "two\nlines"]}),
    "R": _csv('"","x","y"\n"1",1.5,NA\n"2",-2,0.25\n"3",1e-05,4\n"4",3,5\n')(
        {"x": [1.5, -2.0, 0.00001, 3.0], "y": [None, D("0.25"), 4, 5]}, {"y": ["NA", "0.25", "4", "5"]}
    ),
    "pandas": _csv(",a,b,ok\n0,1.0,x,True\n1,,y,False\n2,2.5,,True\n")(
        {"a": [1, None, D("2.5")], "b": ["x", "y", None], "ok": [True, False, True]}
    ),
    "MySQL": _csv("id\tname\tpaid\n1\tAnn\t12.50\n2\tBo\tNULL\n3\tCy\t7.00\n4\tDi\t8.00\n", name="a.tab")(
        {"id": [1, 2, 3, 4], "paid": [D("12.5"), None, D(7), D(8)]}, {"paid": ["12.50", "NULL", "7.00", "8.00"]}
    ),
    "PostgreSQL": _csv('id,ok,note\n1,t,\n2,f,""\n3,t,x\n')(
        {"id": [1, 2, 3], "ok": ["t", "f", "t"], "note": [None, None, "x"]}
    ),
    "Jira": _csv('Key,Labels,Labels,Text\nA-1,x,y,"1st line\r\n2nd, line"\nA-2,x,,z\n')(
        {"Key": ["A-1", "A-2"], "Labels": ["x", "x"], "Labels_1": ["y", None]}
    ),
    "SAP": _csv("Konto;Datum;Betrag\n0000100;20251224;1.234,50-\n0000200;20260102;7,25\n")(
        {"Konto": ["0000100", "0000200"], "Datum": [20251224, 20260102], "Betrag": [D("-1234.5"), D("7.25")]},
        {"Betrag": ["1.234,50-", "7,25"]},
    ),
    "accounts": _csv("Account,Balance\nCash,100.00\nLoan,(250.50)\nTax,(3)\n")(
        {"Account": ["Cash", "Loan", "Tax"], "Balance": [D(100), D("-250.5"), D(-3)]}
    ),
    "QuickBooks": _csv('Account,Balance\nCash,"1,100.00"\nLoan,"(2,250.50)"\n')(
        {"Balance": [D(1100), D("-2250.5")]}, {"Balance": ["1,100.00", "(2,250.50)"]}
    ),
    "telephone numbers": _csv("name,phone\nAnn,+49 170 1234567\nBo,0170 7654321\nCy,(212) 555-0100\n")(
        {"phone": ["+49 170 1234567", "0170 7654321", "(212) 555-0100"]}
    ),
    "bar codes": _csv("gtin,n\n4006381333931,1\n0012345678905,2\n")({"gtin": ["4006381333931", "0012345678905"]}),
    "cards": _csv("card,n\n4111111111111111,1\n5500000000000004,2\n")({"card": [4111111111111111, 5500000000000004]}),
    "genes": _csv("gene,p\nSEPT2,1.5e-08\nMARCH1,0.03\n")({"gene": ["SEPT2", "MARCH1"], "p": [1.5e-8, 0.03]}),
    "rooms": _csv("room,seats\n1E5,10\n2E3,20\n")({"room": ["1E5", "2E3"], "seats": [10, 20]}),
    "sizes": _csv("part,size\na,3/4\nb,1/2\nc,5/8\n")({"size": ["3/4", "1/2", "5/8"]}),
    "a time sheet": _csv("day,from,took\n2025-12-24,09:15,27:30\n2026-01-02,17:00,08:00\n")(
        {"day": DAYS, "from": [time(9, 15), time(17)], "took": ["27:30", "08:00"]}
    ),
    "places": _csv("name,lat,lon\nBerlin,52.5200,13.4050\nRio,-22.9068,-43.1729\n")(
        {"lat": [D("52.52"), D("-22.9068")], "lon": [D("13.405"), D("-43.1729")]}
    ),
    "America": _csv("when,n\n1/5/2025,1\n12/24/2025,2\n")({"when": [date(2025, 1, 5), date(2025, 12, 24)]}),
    "Britain": _csv("when,n\n05/01/2025,1\n24/12/2025,2\n")({"when": [date(2025, 1, 5), date(2025, 12, 24)]}),
    "Sweden": _csv("när;belopp\n2025-12-24;12,50\n2026-01-02;-7,25\n", "cp1252")(
        {"när": DAYS, "belopp": [D("12.5"), D("-7.25")]}, {"belopp": ["12,50", "-7,25"]}
    ),
    "months in words": _csv("d,n\n24-Dec-2025,1\n02-Jan-2026,2\n")({"d": ["24-Dec-2025", "02-Jan-2026"]}),
    "Japan": _csv("日付,金額,店\n2025/12/24,1200,東京駅前店\n2026/01/02,980,大阪本店\n", "cp932")(
        {"日付": DAYS, "金額": [1200, 980], "店": ["東京駅前店", "大阪本店"]}
    ),
    "China": _csv("日期,金额,城市\n2025-12-24,12.50,北京市朝阳区\n2026-01-02,7.00,上海市浦东新区\n", "gb18030")(
        {"日期": DAYS, "金额": [D("12.5"), D(7)], "城市": ["北京市朝阳区", "上海市浦东新区"]}
    ),
    "Korea": _csv("날짜,금액,도시\n2025-12-24,1200,서울특별시\n2026-01-02,980,부산광역시\n", "cp949")(
        {"날짜": DAYS, "금액": [1200, 980], "도시": ["서울특별시", "부산광역시"]}
    ),
    "Russia": _csv(
        "Дата;Сумма;Город\n24.12.2025;1 234,50;Москва и область\n02.01.2026;7,00;Нижний Новгород\n", "cp1251"
    )(
        {"Дата": DAYS, "Сумма": [D("1234.5"), D(7)], "Город": ["Москва и область", "Нижний Новгород"]},
        {"Сумма": ["1 234,50", "7,00"]},
    ),
    "Greece": _csv("Πόλη;Κάτοικοι\nΑθήνα και Πειραιάς;664046\nΘεσσαλονίκη;325182\n", "cp1253")(
        {"Πόλη": ["Αθήνα και Πειραιάς", "Θεσσαλονίκη"], "Κάτοικοι": [664046, 325182]}
    ),
    "packed": File("a.csv.gz", gzip.compress(b"id,v\n1,2.50\n2,-1\n"), {"id": [1, 2], "v": [D("2.5"), D(-1)]}),
    "a delimiter at each end": _csv("id;v;\n1;2;\n3;4;\n")({"id": [1, 3], "v": [2, 4]}),
    "no last line end": _csv("id,v\n1,x\n2,y")({"id": [1, 2], "v": ["x", "y"]}),
    "a header alone": _csv("id,name,amount\n")({"id": [], "name": [], "amount": []}),
    "logs": File(
        "a.jsonl",
        b'{"at": "2025-12-24T10:30:00Z", "ms": 12, "error": null}\n'
        b'{"at": "2026-01-02T09:00:00Z", "ms": 7, "error": "x"}\n',
        {"ms": [12, 7], "error": [None, "x"]},
    ),
    "an API": File(
        "a.json",
        '[{"id": "007", "price": 1.10, "ok": true}, {"id": "12", "price": 2, "ok": false}]'.encode("utf-8-sig"),
        {"id": ["007", "12"], "price": [D("1.1"), D(2)], "ok": [True, False]},
    ),
    "a workbook of a web application": File(
        "a.xlsx",
        bare_book(_inline(["id", "name"], [1, "Ann &amp; Bo"], [2, "Zoë"])),
        {"id": [1, 2], "name": ["Ann & Bo", "Zoë"]},
    ),
    "a workbook with shared texts": File(
        "a.xlsx",
        bare_book(
            '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="C1" t="s"><v>1</v></c></row>'
            '<row r="2"><c r="A2" t="s"><v>2</v></c><c r="C2"><v>1.5</v></c></row>'
            '<row r="3"><c r="A3" t="s"><v>2</v></c><c r="C3"><v>2E1</v></c></row>',
            '<si><t>item</t></si><si><t xml:space="preserve">n</t></si>'
            '<si><r><t xml:space="preserve">red </t></r><r><rPr><b/></rPr><t>lamp</t></r></si>',
        ),
        {"item": ["red lamp", "red lamp"], "n": [D("1.5"), D(20)]},
    ),
    "a workbook of an old Mac": File("a.xlsx", _book(_days_of_1904, date_1904=True), {"day": DAYS, "n": [1, 2]}),
    "numbers as text": File("a.xlsx", _book(_text_codes), {"code": ["007", "0815"], "n": [12, 7]}, {"n": ["12", "7"]}),
    "cells that show otherwise": File(
        "a.xlsx", _book(_shown_otherwise), {"share": [D("0.052"), D("0.5")], "price": [D("1234.5"), D("-7.25")]}
    ),
    "formulas": File("a.xlsx", _book(_computed), {"n": [2, 5], "double": [4, 10], "word": ["x2", "x5"]}),
    "a table in the middle": File("a.xlsx", _book(_as_a_table), {"item": ["lamp", "desk"], "n": [3, 4]}),
    "an open document": File(
        "a.ods",
        open_document(
            _cell("string", "tag") + _cell("string", "n"),
            _cell("date", "24.12.25", office_date__value="2025-12-24") + _cell("float", "1,5", office_value="1.5"),
            _cell("date", "02.01.26", office_date__value="2026-01-02") + _cell("float", "2", office_value="2"),
        ),
        {"tag": DAYS, "n": [D("1.5"), D(2)]},
    ),
}
