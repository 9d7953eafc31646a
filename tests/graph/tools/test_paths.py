"""Hard paths: which arguments of a call are paths, and which only look like it."""

from typing import Annotated, Any

import pytest
from langchain_core.tools import StructuredTool
from pydantic import BaseModel, Field

from donewhen.graph.tools.toolbox import KnownTool


def tool(name: str, metadata: dict[str, Any] | None = None, **schema: Any) -> KnownTool:
    def run(**arguments: Any) -> str:
        return ""

    given = {"type": "object", "properties": schema}
    about: Any = {"description": "x", "args_schema": given, "metadata": metadata}
    return KnownTool(StructuredTool.from_function(run, name=name, **about))


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "data/../secret"},
        {"path": "database"},
        {"path": "/data/a.csv"},
        {"path": "."},
        {"file": "../data"},
        {"out_dir": "tmp"},
        {"files": ["data/a", "tmp/b"]},
        {"source": "data/a.csv", "destination": "/etc/cron.d/x"},
        {"source": "../secret.txt", "destination": "data/b"},
        {"filePath": "/etc/passwd"},
        {"edits": [{"path": "data/a"}, {"path": "tmp/b", "new": "x"}]},
        {"uri": "file:///etc/passwd"},
        {"url": "FILE:///etc/passwd"},
        {"uri": "file:///work/%2e%2e/etc"},
        {"filename": "secret"},
        {"cwd": "/"},
        {"root": "/"},
        {"options": {"output": {"directory": "out"}}},
        {"outputDir": "out"},
        {"target-file": "out"},
        {"files": {"data/a": "x", "b/c.txt": "y"}},
        {"files": [{"name": "x", "path": "b"}]},
        {"path": "~/x"},
        {"path": "data\\..\\..\\x"},
        {"src": "./secret"},
        {"output": "notes.md"},
        {"paths": [["data/a", ["../b"]]]},
        {"paths": {"report": "/etc/passwd"}},
    ],
)
def test_paths_outside_are_seen_whatever_they_are_called(arguments: dict[str, Any]) -> None:
    """P14, S6: at any depth, in any spelling, `..` resolved, also as `file:` URIs."""
    assert tool("call").path_problem(arguments, ["data/", "reports"]) is not None
    assert tool("call").path_problem(arguments, []) is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "data/a.csv"},
        {"path": "data"},
        {"path": "./data/../data/a.csv"},
        {"path": "reports/x.md", "order_id": "#7", "query": "/etc"},
        {"description": "see ../secrets/a.txt", "profile": "a/b"},
        {"xpath": "/html/body", "jsonPath": "/rows/0", "json_path": "$.rows", "css_path": "a/b"},
        {"path": "$.rows"},
        {"path": "$[0].a"},
        {"source": "en", "destination": "Paris", "root": 5},
        {"source": "https://example.com/a.csv", "url": "https://example.com/etc/passwd"},
        {"to": "bob@example.com", "from": "me@example.com", "target": "ES2020"},
        {"file_id": "/x/1", "file_type": "text/csv", "content": "/etc/passwd", "files_count": "3/4"},
        {"source": "data/a", "destination": "data/b", "edits": [{"path": "data/c"}]},
        {"uri": "file:data/a%20b"},
        {"files": {"data/a.txt": "../../x"}},
        {"files": {"Makefile": "all:\n\tcc ../a.c"}, "paths": {"in": "data/a", "out": ["data/b"]}},
        {"url_path": "/v1/users"},
        {"old": "a/b", "new": "c/d", "input": "and/or"},
        {"source": "example.com", "target": "www.bbc.co.uk"},
    ],
)
def test_what_is_no_path_is_left_alone(arguments: dict[str, Any]) -> None:
    """S6: no false alarms for texts, URLs, mail addresses and paths of other kinds."""
    assert tool("call").path_problem(arguments, ["data/", "reports"]) is None


def test_a_tool_declares_its_paths() -> None:
    """S6: by metadata, which counts alone, or by the format of its schema."""
    declared = tool("put", {"paths": ["where", "edits[].at"]})
    arguments = {"where": "a", "edits": [{"at": "b"}, {"at": "c"}], "path": "not one here"}
    assert list(declared.paths(arguments)) == ["a", "b", "c"]
    assert list(tool("request", {"paths": []}).paths({"path": "/v1/users"})) == []
    formats = tool("put", where={"type": "string", "format": "path"}, link={"type": "string", "format": "uri"})
    assert list(formats.paths({"where": "a", "link": "file:///b"})) == ["a", "/b"]
    assert list(formats.paths({"where": "a", "link": "https://b/c"})) == ["a"]
    assert list(tool("move_file").paths({"source": "a", "destination": "b"})) == ["a", "b"]
    assert list(tool("translate").paths({"source": "en", "target": "de"})) == []


def test_formats_of_inner_models_count() -> None:
    """S6: through references and optional arguments, as pydantic writes them."""

    class Place(BaseModel):
        where: Annotated[str | None, Field(json_schema_extra={"format": "file-path"})] = None

    def run(places: list[Place], one: Place | None = None) -> str:
        """Run."""
        return ""

    made = KnownTool(StructuredTool.from_function(run))
    assert list(made.paths({"places": [{"where": "x"}], "one": {"where": "y"}})) == ["x", "y"]
