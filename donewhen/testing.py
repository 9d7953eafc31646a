"""Test your own agents as ours are tested: scripted models, a wire server, and a kit that crashes runs anywhere."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from donewhen.agent.testing import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return getattr(import_module("donewhen.agent.testing"), name)


def __dir__() -> list[str]:
    return dir(import_module("donewhen.agent.testing"))
