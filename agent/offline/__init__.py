"""The offline model: what plans and works by rules where no model is set."""

from donewhen.agent.offline.model import OfflineModel

__all__ = ["OfflineModel"]
