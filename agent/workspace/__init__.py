"""Tools that read, search, write and check files inside one folder, and nothing outside it."""

from donewhen.agent.workspace.tools import workspace_tools

__all__ = ["workspace_tools"]
