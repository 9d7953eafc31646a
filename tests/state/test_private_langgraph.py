"""What of LangGraph is private and used all the same: in one file, for the versions it was tested with."""

import ast
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.kit.places import ROOT

FOLDERS = ("agent", "graph", "state", "prompts")
OWN = "state/private_langgraph.py"
USED = {"langgraph.store.memory:InMemoryStore": ("_data",)}
"""Private attributes that `agent/storage` uses, by class."""


def private_names(path: Path) -> list[str]:
    """Return the private names of LangGraph that a file imports or spells."""
    names: list[str] = []
    text = path.read_text()
    if "langgraph" not in text and "__pregel" not in text:
        return names
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("langgraph"):
            parts = [*str(node.module).split("."), *(each.name for each in node.names)]
            names += [f"{node.module}.{part}" for part in parts if part.startswith("_")]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("__pregel"):
            names.append(node.value)
    return names


def test_private_names_are_in_one_file() -> None:
    """N62: whoever moves to another LangGraph looks into one file."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if "node_modules" not in path.parts]
    used = {str(path.relative_to(ROOT)): names for path in paths if (names := private_names(path))}
    assert list(used) == [OWN]


@pytest.mark.parametrize("name", ["langgraph", "langgraph-checkpoint-postgres"])
def test_only_versions_that_were_tested_are_allowed(name: str) -> None:
    """N62: the installed version fits, the next one with other private names does not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    given = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    [needed] = [need for need in map(Requirement, given) if need.name == name]
    major, minor, *_ = version(name).split(".")
    assert needed.specifier.contains(version(name))
    assert not needed.specifier.contains(f"{major}.{int(minor) + 1}.0")


@pytest.mark.parametrize("place", USED)
def test_private_attributes_exist(place: str) -> None:
    """N62: one that LangGraph renames would be missed only when it is used."""
    module, _, name = place.partition(":")
    owner = getattr(import_module(module), name)
    assert [each for each in USED[place] if not hasattr(owner, each)] == []
