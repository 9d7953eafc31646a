"""Every field of the state and of its records is read somewhere."""

import ast
from collections.abc import Iterator

import pytest

from tests.kit.places import ROOT

DECLARED = ("state/channels.py", "state/records.py")
FLOORS = ("agent", "graph", "state")


def _classes(path: str) -> Iterator[tuple[str, set[str]]]:
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.ClassDef):
            names = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
            yield node.name, {name.id for name in names if isinstance(name, ast.Name)}


def _keys_read(node: ast.AST) -> Iterator[object]:
    """Yield the names that an expression reads: a key, an attribute, or one of a collection of keys."""
    match node:
        case ast.Subscript(slice=ast.Constant(value), ctx=ast.Load()):
            yield value
        case ast.Call(func=ast.Attribute(attr="get" | "pop"), args=[ast.Constant(value), *_]):
            yield value
        case ast.Compare(left=ast.Constant(value)):
            yield value
        case ast.Tuple(elts) | ast.List(elts) | ast.Set(elts):
            yield from (each.value for each in elts if isinstance(each, ast.Constant))
        case ast.Attribute(attr=name, ctx=ast.Load()):
            yield name


@pytest.mark.parametrize("path", DECLARED)
def test_no_field_is_kept_that_nobody_reads(path: str) -> None:
    """Q96: what is stored in every checkpoint is there for somebody: no field that is written, and never read."""
    files = [file for floor in FLOORS for file in (ROOT / floor).rglob("*.py")]
    read = {key for file in files for node in ast.walk(ast.parse(file.read_text())) for key in _keys_read(node)}
    dead = {f"{name}.{field}" for name, fields in _classes(path) for field in fields - read}
    assert sum(len(fields) for _, fields in _classes(path)) > 90
    assert dead == set()
