"""A world whose effects can be counted: a file of what tools really did, which survives the death of the runtime."""

import fcntl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from donewhen.agent.testing.crash import midway, note, notes
from donewhen.state.proof.journal import canonical

Row = dict[str, Any]


class EffectLedger:
    """Call `do` in a test's tool in place of the real effect; every row is on disk before it returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def rows(self) -> list[Row]:
        """What happened, oldest first: `{tool, arguments, effect, key, result}`."""
        return notes(self.path)

    def do(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        result: Any = "done",
        *,
        effect: str = "write",
        key: str | None = None,
    ) -> Any:
        """Let an effect happen and return its result; a `key` that was seen before is answered, not repeated.

        After the effect it calls `midway`, so that a tool can be killed with its effect done and its result lost.
        A `result` that is callable gets the number of the row, from 1.
        """
        with self.path.with_name(self.path.name + ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            rows = self.rows
            if key is not None and (before := next((row for row in rows if row["key"] == key), None)):
                return before["result"]
            said = _said(result, len(rows) + 1)
            note(self.path, {"tool": tool, "arguments": dict(arguments), "effect": effect, "key": key, "result": said})
        midway()
        return said

    def happened(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether this very call ever took effect."""
        return self.count(tool, arguments) > 0

    def count(self, tool: str, arguments: Mapping[str, Any]) -> int:
        """How often this very call took effect."""
        return sum(row["tool"] == tool and canonical(row["arguments"]) == canonical(arguments) for row in self.rows)


def _said(result: Any | Callable[[int], Any], number: int) -> Any:
    return result(number) if callable(result) else result
