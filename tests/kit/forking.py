"""The command as a process that starts in milliseconds: Python's fork server imports its libraries once, then forks.

Arguments, environment, folder, session and streams are the process's own, and so are its signals and its end.
"""

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from tests.kit import everywhere as everywhere  # it names its own preload when it is imported

forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(
    [
        __name__, "donewhen.agent.agent", "donewhen.agent.cli.app", "donewhen.agent.cli.runs", "donewhen.agent.models",
        "donewhen.agent.storage.sqlite", "donewhen.agent.storage.postgres", "donewhen.agent.workspace",
        "donewhen.agent.workspace.data.child", "donewhen.graph.build", "duckdb", "langchain_openai", "rich.console",
        "tests.kit.a2a_server",
        "tests.kit.clocks",
        "tests.kit.storage.workers",
        "tests.kit.temporal",
    ]
)  # fmt: skip


class CommandProcess:
    """`donewhen WORDS`, or a program, in a process, with what `subprocess.Popen` would give of it."""

    def __init__(
        self, *words: str, env: Mapping[str, str], cwd: Path, stdin: int, stdout: int, stderr: int, program: str = ""
    ) -> None:
        streams = [Connection(os.dup(each)) for each in (stdin, stdout, stderr)]
        self._process = forks.Process(target=_become, args=(words, dict(env), str(cwd), streams, program))
        self._process.start()
        for each in streams:
            each.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code of a process that has ended."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """Return the exit code; raise TimeoutExpired, with the process ended, if it takes longer."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
            raise subprocess.TimeoutExpired("donewhen", timeout)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal to a process that has not ended."""
        if self._process.exitcode is None:
            os.kill(self.pid, number)


def _become(words: tuple[str, ...], env: dict[str, str], cwd: str, streams: list[Connection], program: str) -> None:
    """Be the command, or the program: in a session of its own, with nothing of the tests."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    encoding = env.get("PYTHONIOENCODING", "utf-8")
    sys.stdin, sys.stdout = os.fdopen(0, encoding=encoding, closefd=False), _writing(1, encoding)
    sys.stderr = _writing(2, encoding, errors="backslashreplace")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["donewhen", *words]
    from donewhen.agent.cli import main

    try:
        if program:
            exec(program, {"__name__": "__main__"})
        else:
            main()
    finally:  # multiprocessing leaves this out
        atexit._run_exitfuncs()


def _writing(number: int, encoding: str, errors: str = "strict") -> IO[str]:
    buffering = 1 if number == 2 or os.isatty(number) else -1
    return os.fdopen(number, "w", buffering, encoding=encoding, errors=errors, closefd=False)
