"""Agents elsewhere, over the A2A protocol. Needs the extra `a2a`."""

from donewhen.graph.executors.executor import Executor
from donewhen.state.errors import ConfigError


def connected(address: str) -> Executor:
    """The executor at an address: `a2a:https://…`. Raises ConfigError for any other."""
    raise ConfigError(f"{address!r}")
