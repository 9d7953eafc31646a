"""The workspace tools by their names, and what they say when they refuse."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, ToolException

from donewhen.workspace import workspace_tools

Tools = dict[str, BaseTool]


def by_name(root: Path, **options: Any) -> Tools:
    """Return the tools of a folder."""
    return {tool.name: tool for tool in workspace_tools(root, **options)}


def refusal(tool: BaseTool, **arguments: Any) -> str:
    """Call a tool that must refuse, and return what it says."""
    with pytest.raises(ToolException) as refused:
        tool.invoke(arguments)
    return str(refused.value)
