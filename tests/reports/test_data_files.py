"""Reports about readers of data files, each tried with a file as reported: every value is there, as it was written."""

from pathlib import Path

import pytest

from tests.kit.tables import Reader

PALERMO = "Cariche;Competenze\r\nSindaco;Rappresenta\nla città\r\nAssessore;Bilancio\r\n"
ROWS = '[{"name": "Müller", "n": 12}, {"name": "Ann", "n": 7}]'
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
