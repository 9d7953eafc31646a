"""Names: one class has one name, and one name is of one class."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PUBLIC = {"Ask", "Call", "Note", "Request"}
"""Names of what hooks and scripted models are given; inside, the same words name what these show."""


def test_a_class_name_names_one_class() -> None:
    """Q92: a reader who searches for a name finds one thing; once `Question`, `Session` and `Text` were several."""
    files = [file for room in ("agent", "graph", "state") for file in (ROOT / room).rglob("*.py")]
    bodies = (ast.parse(file.read_text()).body for file in files)
    names = Counter(each.name for body in bodies for each in body if isinstance(each, ast.ClassDef))
    assert {name for name, times in names.items() if times > 1} == PUBLIC
