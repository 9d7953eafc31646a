"""How a command ends: its exit code, an error as one line, data as one JSON object.

Every command needs it, so it loads neither an agent nor LangGraph: `--version` and `verify` are there at once.
"""

import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from errno import ENOSPC, EPIPE
from typing import Any

from donewhen import (
    ConfigError,
    DoneWhenError,
    GoalError,
    ResumeError,
    StaleAnswer,
    ThreadWaiting,
    ToolError,
    UnknownThread,
)
from donewhen.agent.cli.screen.terminal import clean
from donewhen.agent.config import is_debugging
from donewhen.clients import redact
from donewhen.errors import PlanError, ScheduleError

SCHEMA_VERSION = 1
_STEERING = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that JSON does not escape although they control a terminal."""


class Exit(IntEnum):
    """Exit codes, for scripts."""

    COMPLETED = 0
    FAILED = 1
    """The run failed or was cancelled, or an error stopped it."""
    USAGE = 2
    """Wrong options, goal, configuration, thread or question id: nothing was started."""
    WAITING = 3
    """A question is open; the command to answer it is on stderr."""
    PARTIAL = 4
    """Some of the work is done: partial, or out of budget."""
    INTERRUPTED = 130
    """Ctrl-C; finished work is kept."""
    TERMINATED = 143
    """SIGTERM; finished work is kept."""


USAGE_ERRORS = (
    ConfigError,
    GoalError,
    PlanError,
    ScheduleError,
    ToolError,
    UnknownThread,
    StaleAnswer,
)


def run_guarded(command: Callable[[], int], *, json: bool) -> int:
    """Run `command` and return its exit code. An error becomes one line and a code, never a traceback."""
    try:
        return command()
    except DoneWhenError as error:
        text = str(error)
        if isinstance(error, ResumeError) and error.remedy:  # which names calls of Python
            text = f"{error.problem}. `donewhen show` with its id says more."
        _report_error(error, text, json)
        if isinstance(error, ThreadWaiting):
            return Exit.WAITING
        return Exit.USAGE if isinstance(error, USAGE_ERRORS) else Exit.FAILED
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return Exit.INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (EPIPE, ENOSPC):  # of our own output; nothing more can be said
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if error.errno == ENOSPC:
                print("donewhen: the output cannot be written: the disk is full", file=sys.stderr)
            return Exit.FAILED
        if is_debugging():
            traceback.print_exc()
        _report_error(error, f"unexpected {type(error).__name__}: {' '.join(str(error).split())[:300]}", json)
        if not is_debugging():
            print("Run it with DONEWHEN_DEBUG=1 for the traceback.", file=sys.stderr)
        return Exit.FAILED


def _report_error(error: BaseException, text: str, json: bool) -> None:
    text, pending = redact(clean(text)), getattr(error, "pending", None)
    print(f"donewhen: {text}", file=sys.stderr)
    if json:
        row = {"kind": type(error).__name__, "text": text, **({"pending": list(pending)} if pending else {})}
        print_json({"schema_version": SCHEMA_VERSION, "status": "error", "error": row})


def print_json(value: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
    """Print one JSON object, or a list of them, on stdout, on one line."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    line = json.dumps(value, ensure_ascii=not unicode, default=str)
    sys.stdout.write(_STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", line) + "\n")
    sys.stdout.flush()


def print_row(row: Mapping[str, Any], lines: Iterable[str] = (), nothing: str = "", *, json: bool) -> Exit:
    """Print an object if `json`, else the lines; if there are none, `nothing` on stderr."""
    if json:
        print_json({"schema_version": SCHEMA_VERSION, **row})
    elif shown := list(lines):
        print(clean("\n".join(shown)))
    elif nothing:
        print(nothing, file=sys.stderr)
    return Exit.COMPLETED
