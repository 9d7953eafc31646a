"""Crashes on demand: a count of boundaries, and wrappers of storage, tools and models that reach them.

A boundary is a moment before or after something lasting: a checkpoint, its writes, a store entry, a tool, a model.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

from langchain_core.tools import BaseTool

from donewhen.agent.testing.script import Policy
from donewhen.agent.tools import as_tools
from donewhen.graph.tools.call import with_class, wrap_bodies

CrashMode = Literal["raise", "kill", "freeze"]
ToolPhase = Literal["before", "inside", "after"]
STORAGE = ("open", "put", "put.done", "put_writes", "put_writes.done", "store", "store.done", "close")
"""Boundaries of a storage; `.done` is right after the operation, before the caller gets its result."""
WRITTEN = ("put.done", "put_writes.done", "store.done")

_midway: ContextVar[Callable[[], None] | None] = ContextVar("midway", default=None)


class Crashed(Exception):
    """The exception of a crash in mode `raise`; from a storage it reaches callers as a StorageError."""


class Crash:
    """Counts the boundaries that a run reaches, from 1, and crashes at number `at`; None: never.

    `kill` sends SIGKILL to the own process, `freeze` SIGSTOP (whoever started it may send SIGCONT), `raise` raises
    `Crashed`, once. `only` names the boundaries that count (default: all). With `log`, a crash leaves a line there:
    `{"crashed", "at", "written"}`.
    """

    def __init__(
        self,
        at: int | None = None,
        *,
        mode: CrashMode = "raise",
        only: Iterable[str] | None = None,
        log: Path | None = None,
    ) -> None:
        self.at = at
        self.mode = mode
        self.only: frozenset[str] | None = None if only is None else frozenset(only)
        self.log = log
        self.trace: list[str] = []
        """The counted boundaries reached, in order."""
        self.written: int = 0
        """The number of checkpoints and writes; an answer is safe after the next one."""
        self.first_write: float = 0.0
        """The time of the first storage operation, by `time.perf_counter`; 0.0 for none."""
        self._lock = threading.Lock()

    def reach(self, boundary: str) -> None:
        """Report that a boundary is reached; crash if it is the chosen one."""
        with self._lock:
            self.written += boundary in ("put.done", "put_writes.done")
            if boundary in WRITTEN:
                self.first_write = self.first_write or time.perf_counter()
            if self.only is not None and boundary not in self.only:
                return
            self.trace.append(boundary)
            if len(self.trace) != self.at:
                return
            if self.log is not None:
                note(self.log, {"crashed": boundary, "at": self.at, "written": self.written})
            if self.mode != "raise":
                os.kill(os.getpid(), signal.SIGKILL if self.mode == "kill" else signal.SIGSTOP)
                return
        raise Crashed(f"simulated failure at boundary {self.at} ({boundary})")

    def policy(self, policy: Policy) -> Policy:
        """Return the policy of a ScriptedModel with a boundary `model` before each of its replies."""

        def reply(messages: list[Any], tools: list[dict[str, Any]]) -> Any:
            self.reach("model")
            return policy(messages, tools)

        return reply


def note(path: Path, row: dict[str, Any]) -> None:
    """Append a line of JSON that survives a SIGKILL right after."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
        file.flush()
        os.fsync(file.fileno())


def notes(path: Path) -> list[dict[str, Any]]:
    """Return all lines written by `note`, oldest first."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def midway() -> None:
    """Call it inside a tool where its effect has happened and its result is not out: the boundary `<tool>.inside`.

    Does nothing where no crash is wanted.
    """
    if (reached := _midway.get()) is not None:
        reached()


def crashing_tool(tool: BaseTool | Callable[..., Any], crash: Crash) -> BaseTool:
    """Return the tool with boundaries `<name>.before`, `<name>.inside` (where it calls `midway`) and `<name>.after`."""
    made = as_tools([tool])[0]

    @contextmanager
    def around(tool: BaseTool) -> Iterator[None]:
        _midway.set(lambda: crash.reach(f"{tool.name}.inside"))
        crash.reach(f"{tool.name}.before")
        yield
        crash.reach(f"{tool.name}.after")

    return with_class(wrap_bodies(type(made), around), made)
