"""Predicates hold or say what they found instead; arithmetic is exact and cannot hang."""

import json
import math
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.tools import ToolException

from donewhen.agent.workspace.arithmetic import calculate
from tests.kit.workspace import Tools, by_name
from tests.kit.workspace import refusal as said

ORDERS = {"orders": [{"id": "A-1", "total": 3}, {"id": "A-2", "total": -1}]}


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    (tmp_path / "report.md").write_text("# 总结\r\nTotal: 42\r\n", encoding="utf-8")
    (tmp_path / "orders.json").write_text(json.dumps(ORDERS))
    (tmp_path / "table.csv").write_text("name,total\na,1\nb,2\n")
    return by_name(tmp_path)


def test_file_predicates(tools: Tools, tmp_path: Path) -> None:
    """DESIGN §5: a check succeeds by returning and fails by raising what it found."""
    assert tools["file_exists"].invoke({"path": "report.md"}) == "report.md exists, 21 bytes"
    assert said(tools["file_exists"], path="raport.md") == "Not found: 'raport.md'. Did you mean report.md?"
    assert said(tools["file_exists"], path="sub").startswith("Not found: 'sub'")
    (tmp_path / "sub").mkdir()
    assert said(tools["file_exists"], path="sub") == "sub is a folder, not a file."
    assert tools["file_contains"].invoke({"path": "report.md", "text": "总结\nTotal: 42"})
    assert said(tools["file_contains"], path="report.md", text="total: 42") == (
        "report.md does not contain 'total: 42'; it does in other capitals."
    )
    assert said(tools["file_contains"], path="report.md", text="43") == "report.md does not contain '43'."


@pytest.mark.parametrize("at", [0, 65_530, 65_536, 131_070, 200_000])
def test_text_is_found_wherever_the_pieces_are_cut(tools: Tools, tmp_path: Path, at: int) -> None:
    (tmp_path / "long.txt").write_text("中" * at + "needle" + "文" * 100)
    assert tools["file_contains"].invoke({"path": "long.txt", "text": "needle"})
    assert said(tools["file_contains"], path="long.txt", text="needles")


def test_schemas(tools: Tools, tmp_path: Path) -> None:
    item = {"type": "object", "properties": {"id": {"pattern": "^A-[0-9]$"}, "total": {"minimum": -5}}}
    schema = {"properties": {"orders": {"items": {"$ref": "#/$defs/item"}}}, "$defs": {"item": item}}
    check = tools["matches_schema"]
    assert check.invoke({"path": "orders.json", "schema": schema}) == "orders.json matches the schema"
    item["properties"]["total"]["minimum"] = 0  # type: ignore[index]
    item["properties"]["id"]["pattern"] = "1$"  # type: ignore[index]
    assert said(check, path="orders.json", schema=schema) == (
        "orders.json does not match: $.orders[1].id: 'A-2' does not match '1$'; "
        "$.orders[1].total: -1 is less than the minimum of 0."
    )
    for document, problem in (
        ("{", "is not JSON"),
        ('{"a": NaN}', "NaN is not JSON"),
        ("[" * 100_000, "nested too deep"),
    ):
        (tmp_path / "bad.json").write_text(document)
        assert problem in said(check, path="bad.json", schema={})


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "nonsense"}, "The schema is not valid: $.type"),
        ({"pattern": "("}, "The schema is not valid"),
        ({"$ref": "#/missing"}, "which is not inside it"),
        ({"$ref": "http://127.0.0.1:9/schema"}, "which is not inside it"),
        ({"properties": {"a": {"patternProperties": {"((a{99}){99}){99}": {}}}}}, "repeats too much"),
        ({"$ref": "#"}, "nested too deeply"),
    ],
)
def test_schemas_that_are_refused(tools: Tools, schema: dict[str, Any], problem: str) -> None:
    assert problem in said(tools["matches_schema"], path="orders.json", schema=schema)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_schema_reads_no_other_file(tools: Tools, tmp_path: Path) -> None:
    """F12: a reference to a file or an address is not followed."""
    (tmp_path / "other.json").write_text('{"const": "canary"}')
    for uri in (f"file://{tmp_path}/other.json", "other.json", "/etc/passwd"):
        text = said(tools["matches_schema"], path="orders.json", schema={"$ref": uri})
        assert "not inside it" in text
        assert "canary" not in text


def test_schemas_that_never_end_are_stopped(tools: Tools, tmp_path: Path) -> None:
    """F8, S8: neither a pattern, a web of references nor a comparison of each with each holds anything up."""
    (tmp_path / "a.json").write_text(json.dumps("a" * 5000 + "!"))
    began = time.monotonic()
    assert "takes too long" in said(tools["matches_schema"], path="a.json", schema={"pattern": "^(a|aa)+$"})
    assert time.monotonic() - began < 60
    (tmp_path / "a.json").write_text(json.dumps([{"n": n} for n in range(200_000)] + [{"n": 7}]))
    began = time.monotonic()
    assert "item 200000 is there twice" in said(tools["matches_schema"], path="a.json", schema={"uniqueItems": True})
    assert time.monotonic() - began < 60
    deep: Any = {}
    for _ in range(100):
        deep = {"not": deep}
    assert "nested more than 60 deep" in said(tools["matches_schema"], path="a.json", schema=deep)


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("0.1 + 0.2", "0.3"),
        ("1200 * 3 + 45.5", "3645.5"),
        ("10 / 4", "2.5"),
        ("-7 % 3", "2"),
        ("2 ^ 10", "1024"),
        ("(1/3) * 3", "1"),
        ("round(2/3, 2)", "0.67"),
        ("sqrt(16) + sqrt(2.25)", "5.5"),
        ("max(1, 2.5, -3) - min(4, 5)", "-1.5"),
        ("abs(-3) + floor(2.9) + ceil(2.1)", "8"),
        ("round(pi, 4)", "3.1416"),
        ("（3 × 4 − 2）÷ 5 =", "2"),
        ("123456789012345678901234567890 + 0.5 - 0.5", "123456789012345678901234567890"),
        ("10 ** 400 / 3", "3.3333333333333333E+399"),
    ],
)
def test_arithmetic(tools: Tools, expression: str, result: str) -> None:
    assert tools["calculate"].invoke({"expression": expression}) == result


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "is not arithmetic"),
        ("1 / 0", "divides by zero"),
        ("9 ** 9 ** 9", "too large"),
        ("(10 ** 1000) ** 1000", "too large"),
        ("1e999", "is not arithmetic"),
        ("(1 + 1e-300) ** 5000", "too large"),
        ("(-8) ** 0.5", "negative"),
        ("log(0)", "has no result"),
        ("1,200 * 3", "without thousands separators"),
        ("round(1.5, 10 ** 9)", "digits"),
        ("max()", "max takes 1 to 100 numbers"),
        ("__import__('os').system('true')", "is not arithmetic"),
        ("(1).__class__", "is not arithmetic"),
        ("'a' * 10 ** 9", "is not arithmetic"),
        ("x", "is not arithmetic"),
        ("True + 1", "no numbers"),
        ("max(*[1, 2])", "is not arithmetic"),
        ("1\0", "is not arithmetic"),
        ("(" * 400 + "1" + ")" * 400, "is not arithmetic"),
        ("1+" * 800 + "1", "at most 1000 characters"),
    ],
)
def test_arithmetic_that_is_refused(tools: Tools, expression: str, problem: str) -> None:
    """X07, F8: every refusal is a message and comes at once."""
    assert problem in said(tools["calculate"], expression=expression)


@given(expression=st.text("0123456789.+-*/%()e, pisqrtlog^", max_size=60))
def test_any_text_is_answered_or_refused_at_once(expression: str) -> None:
    try:
        answer = calculate(expression)
    except ToolException:
        return
    assert math.isfinite(Fraction(answer))
