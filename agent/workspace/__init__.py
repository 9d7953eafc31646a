"""Tools that read, search, write and check files within one folder."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from donewhen.agent.workspace.toolset import workspace_tools

__all__ = ["workspace_tools"]
WORKSPACE_TOOLS = (
    *("list_files", "find_text", "read_file", "describe_data", "query_data", "file_exists", "file_contains"),
    *("matches_schema", "calculate", "write_file", "append_file", "edit_file", "delete_file", "copy_file", "move_file"),
    "run_command",
)
"""The names of all workspace tools, so that a profile may forbid one that is not present."""


def __getattr__(name: str) -> Any:
    """Import `workspace_tools` on use: the process that reads data needs this package without the tools."""
    if name == "workspace_tools":
        from donewhen.agent.workspace.toolset import workspace_tools

        return workspace_tools
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
