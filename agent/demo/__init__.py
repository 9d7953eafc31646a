"""The demonstration model: it plans and works by fixed rules, and shows a run to people who have no key yet."""

from donewhen.agent.demo.model import DemoModel

__all__ = ["DemoModel"]
