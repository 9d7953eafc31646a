"""Plans that are kept beside runs: people, agents and programs tick off their steps."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from donewhen.agent.plans.plan_tools import plan_tools
    from donewhen.agent.plans.store import PlanStore

__all__ = ["PlanStore", "plan_tools"]
_HOME = {"PlanStore": "store", "plan_tools": "plan_tools"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"donewhen.agent.plans.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
