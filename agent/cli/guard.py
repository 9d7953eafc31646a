"""The last line of defence: whatever goes wrong in a command becomes one line and an exit code, never a traceback."""

import os
import sys
import traceback
from collections.abc import Callable

from donewhen.agent.cli.exits import Exit, error_exit, error_object
from donewhen.agent.config import debugging
from donewhen.state.errors import DoneWhenError
from donewhen.state.redaction import redact


def guarded(command: Callable[[], int], *, json: bool) -> int:
    """The exit code of `command`, or of the error it ended with."""
    try:
        return command()
    except DoneWhenError as error:
        _say(error, str(error), json)
        return error_exit(error)
    except BrokenPipeError:
        # Whoever read our output has gone; nothing more can be said, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILED
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return Exit.INTERRUPTED
    except Exception as error:
        if debugging():
            traceback.print_exc()
        text = f"unexpected {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        _say(error, text, json)
        if not debugging():
            print("Run it with DONEWHEN_DEBUG=1 for the traceback.", file=sys.stderr)
        return Exit.FAILED


def _say(error: BaseException, text: str, json: bool) -> None:
    from donewhen.agent.cli.result import print_json
    from donewhen.agent.cli.terminal import clean

    safe = redact(clean(text))
    print(f"donewhen: {safe}", file=sys.stderr)
    if json:
        print_json({"schema_version": 1, "status": "error", "error": error_object(error, safe)})
