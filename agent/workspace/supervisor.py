"""Start one program and leave nothing of it running. A separate script: `python -I -S supervisor.py PROGRAM …`.

It ends with the program, or when its stdin is closed, which means that its parent died or wants it to stop. Before it
ends, it kills everything that the program started. On Linux this includes processes that left the process group with
`setsid`, because they become children of this process. Elsewhere only the process group is ended.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER in <linux/prctl.h>
SWEEP_SECONDS = 3.0


def main() -> None:
    """Run the program of the command line; end with its exit code or by its signal."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    try:
        child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        print(f"{sys.argv[1]} could not be started: {error}", file=sys.stderr)
        sys.exit(127)
    threading.Thread(target=_stop_at_end_of_input, args=(child.pid,), daemon=True).start()
    code = child.wait()
    sweep(child.pid)
    if code < 0:
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler to reset
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _stop_at_end_of_input(program: int) -> None:
    while os.read(0, 1024):
        pass
    sweep(program)
    os._exit(128 + signal.SIGKILL)


def sweep(program: int) -> None:
    """Kill the program's process group, and on Linux all descendants of this process, until there is none."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(program, signal.SIGKILL)
    until = time.monotonic() + SWEEP_SECONDS
    while sys.platform == "linux" and (left := _descendants()) and time.monotonic() < until:
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.005)


def _descendants() -> list[int]:
    """Return the living descendants of this process; reap its children that have ended."""
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state == b"Z" and int(parent) == os.getpid():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(int(name), os.WNOHANG)
            elif state not in b"ZX":
                parents[int(name)] = int(parent)
    family = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in family} - family:
        family |= more
    return sorted(family - {os.getpid()})


if __name__ == "__main__":
    main()
