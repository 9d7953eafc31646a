"""Policies of an organisation: functions that are asked before a call, after it, and before the end of a run."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from donewhen.graph.tools.hooks import Ask, Call, End, Hooks, Note, Refuse

__all__ = ["Ask", "Call", "End", "Hooks", "Note", "Refuse"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("donewhen.graph.tools.hooks"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
