"""Runs as OpenTelemetry spans."""

from donewhen.agent.tracing import Tracing

__all__ = ["Tracing"]


def __dir__() -> list[str]:
    return list(__all__)
