"""What the offline model decided: speech and calls, before it becomes a message."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Decision:
    """Calls of tools with their arguments, or words alone."""

    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    text: str = ""


def call(name: str, **arguments: Any) -> Decision:
    """A decision for one call."""
    return Decision(((name, arguments),))
