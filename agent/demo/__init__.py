"""The demonstration model: it plans and works by fixed rules, and shows a run to people who have no key yet.

A room: without it, the name "demo" in `agent/models.py` goes, and the examples that the page offers for it.
"""

from donewhen.agent.demo.model import DemoModel

__all__ = ["DemoModel"]
