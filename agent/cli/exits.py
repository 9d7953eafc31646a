"""Exit codes: what a script learns without reading a word."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from donewhen.state.errors import (
    ConfigError,
    DoneWhenError,
    GoalError,
    StaleAnswer,
    ThreadWaiting,
    ToolError,
    UnknownThread,
)


class Exit(IntEnum):
    """Codes of the command."""

    COMPLETED = 0
    FAILED = 1
    """The run failed or was cancelled, or an error stopped it."""
    USAGE = 2
    """Wrong options, goal, configuration, thread or question id: nothing was started."""
    WAITING = 3
    """A person is asked; the command to answer with is on stderr."""
    PARTIAL = 4
    """Some of it is done: partial, or out of budget."""
    INTERRUPTED = 130
    """Ctrl-C; what was done is kept."""
    TERMINATED = 143
    """SIGTERM; what was done is kept."""


STATUSES: Mapping[str, Exit] = {
    "completed": Exit.COMPLETED,
    "failed": Exit.FAILED,
    "cancelled": Exit.FAILED,
    "waiting": Exit.WAITING,
    "partial": Exit.PARTIAL,
    "exhausted": Exit.PARTIAL,
    "running": Exit.FAILED,
}
USAGE_ERRORS = (ConfigError, GoalError, ToolError, UnknownThread, StaleAnswer)


def error_exit(error: DoneWhenError) -> Exit:
    """The code for an error of ours."""
    if isinstance(error, ThreadWaiting):
        return Exit.WAITING
    return Exit.USAGE if isinstance(error, USAGE_ERRORS) else Exit.FAILED


def error_object(error: BaseException, text: str) -> dict[str, Any]:
    """What `--json` says about an error."""
    pending = getattr(error, "pending", None)
    return {"kind": type(error).__name__, "text": text, **({"pending": list(pending)} if pending else {})}
