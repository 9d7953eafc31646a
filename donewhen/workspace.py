"""Tools for one folder: list, read, search and check files, query tables, write, edit and move, run programs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from donewhen.agent.workspace import WORKSPACE_TOOLS
    from donewhen.agent.workspace.skills import Skills
    from donewhen.agent.workspace.toolset import workspace_tools

__all__ = ["WORKSPACE_TOOLS", "Skills", "workspace_tools"]
_HOME = {"Skills": ".skills", "WORKSPACE_TOOLS": "", "workspace_tools": ".toolset"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"donewhen.agent.workspace{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
