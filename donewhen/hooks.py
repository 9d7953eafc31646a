"""Policies of an organisation: functions that are asked before and after a call, before a question and an end."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from donewhen.graph.tools.hooks import Ask, Call, End, Hooks, Note, Question, Refuse

__all__ = ["Ask", "Call", "End", "Hooks", "Note", "Question", "Refuse"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("donewhen.graph.tools.hooks"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
