"""What the workspace tools are: names, effects, objects, and that they run beside the event loop."""

import os
from pathlib import Path
from typing import Any

import pytest
from langchain_core.utils.function_calling import convert_to_openai_tool

from tests.kit.workspace import by_name


def test_every_tool_declares_its_effect_and_its_object(tmp_path: Path) -> None:
    """X06, DESIGN §7: what the runtime needs to know of a tool stands in its metadata."""
    tools = by_name(tmp_path, commands=["ls"])
    metadata = {name: tool.metadata or {} for name, tool in tools.items()}
    effects = {name: metadata[name]["effect"] for name, tool in tools.items()}
    writes = {"append_file": "write", "edit_file": "write", "run_command": "write", "write_file": "idempotent"}
    writes |= {"copy_file": "write", "move_file": "write", "delete_file": "write"}
    reads = [
        "list_files",
        "find_text",
        "read_file",
        "describe_data",
        "query_data",
        "calculate",
    ]
    checks = ["file_exists", "file_contains", "matches_schema"]
    assert effects == dict.fromkeys([*reads, *checks], "read") | writes
    assert [name for name, tool in tools.items() if metadata[name].get("check")] == checks
    for name, tool in tools.items():
        schema = convert_to_openai_tool(tool)["function"]["parameters"]
        paths = [one for one in ("path", "source", "destination") if one in schema["properties"]] or None
        assert metadata[name].get("targets") == metadata[name].get("paths") == paths, name
        assert not {"root", "programs"} & set(schema["properties"]), name
        assert 40 < len(tool.description) < 500, name
        assert all(argument.get("description") for argument in schema["properties"].values() if "enum" not in argument)


def test_what_was_not_asked_for_does_not_exist(tmp_path: Path) -> None:
    assert "run_command" not in by_name(tmp_path)
    writing = {"write_file", "append_file", "edit_file", "copy_file", "move_file", "delete_file"}
    assert not writing & set(by_name(tmp_path, write=False))


async def test_tools_do_not_block_the_event_loop(tmp_path: Path) -> None:
    """The development server refuses blocking calls in the event loop; file work runs in a thread."""
    from blockbuster import BlockingError, blockbuster_ctx

    tools = by_name(tmp_path, commands=["echo"])
    (tmp_path / "a.csv").write_text("n\n1\n")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("write_file", {"path": "b/c.txt", "content": "hello"}),
        ("append_file", {"path": "b/c.txt", "content": " you"}),
        ("edit_file", {"path": "b/c.txt", "old": "you", "new": "world"}),
        ("read_file", {"path": "b/c.txt"}),
        ("list_files", {}),
        ("find_text", {"query": "w.rld", "regex": True}),
        ("describe_data", {"path": "a.csv"}),
        ("query_data", {"sql": "SELECT sum(n) FROM 'a.csv'"}),
        ("copy_file", {"source": "b/c.txt", "destination": "b/e.txt"}),
        ("move_file", {"source": "b/c.txt", "destination": "b/d.txt"}),
        ("move_file", {"source": "b/d.txt", "destination": "b/c.txt"}),
        ("file_exists", {"path": "a.csv"}),
        ("file_contains", {"path": "b/c.txt", "text": "world"}),
        ("run_command", {"command": ["echo", "hi"]}),
    ]
    with blockbuster_ctx():
        with pytest.raises(BlockingError):
            os.stat(tmp_path)
        for name, arguments in calls:
            assert await tools[name].ainvoke(arguments)
    assert (tmp_path / "b" / "c.txt").read_text() == "hello world"
