"""The demonstration model: a planner and executor by rules, for people who want to see a run before they set a key."""

from donewhen.agent.demo.model import DemoModel

__all__ = ["DemoModel"]
