"""What the workspace tools are: names, effects, objects, and that they run beside the event loop."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.utils.function_calling import convert_to_openai_tool

from tests.kit.places import ROOT
from tests.kit.workspace import by_name


def groups_on_the_page() -> list[set[str]]:
    """Return the tools of each row of the page's table: those that read, check, write, and start programs."""
    section = (ROOT / "docs" / "tools.md").read_text("utf-8").partition("\n## A folder\n")[2].partition("\n##")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [set(re.findall(r"`(\w+)`", row)) for row in rows]


def test_every_tool_declares_its_effect_and_its_object(tmp_path: Path) -> None:
    """X06, DESIGN §7: what the runtime needs to know of a tool stands in its metadata, and agrees with docs/tools.md.

    What was not asked for does not exist: no tool that writes, no program.
    """
    tools = by_name(tmp_path, commands=["ls"])
    metadata = {name: tool.metadata or {} for name, tool in tools.items()}
    reads, checks, writes, programs = groups_on_the_page()
    effects = dict.fromkeys([*reads, *checks], "read") | dict.fromkeys([*writes, *programs], "write")
    assert {name: about["effect"] for name, about in metadata.items()} == {**effects, "write_file": "idempotent"}
    assert {name for name, about in metadata.items() if about.get("check")} == checks
    assert by_name(tmp_path).keys() == reads | checks | writes
    assert by_name(tmp_path, write=False).keys() == reads | checks
    for name, tool in tools.items():
        schema = convert_to_openai_tool(tool)["function"]["parameters"]
        paths = [one for one in ("path", "source", "destination") if one in schema["properties"]] or None
        assert metadata[name].get("targets") == metadata[name].get("paths") == paths, name
        assert not {"root", "programs"} & set(schema["properties"]), name
        assert 40 < len(tool.description) < 500, name
        assert all(argument.get("description") for argument in schema["properties"].values() if "enum" not in argument)


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
