"""Test your own agents as ours are tested: scripted models, recordings, and runs that fail wherever they can."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from donewhen.agent.testing import *  # noqa: F403
    from donewhen.agent.testing import __all__ as __all__


def __getattr__(name: str) -> Any:
    return getattr(import_module("donewhen.agent.testing"), name)


def __dir__() -> list[str]:
    return list(import_module("donewhen.agent.testing").__all__)
