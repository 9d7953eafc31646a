"""Runs the command in a real pseudo-terminal, or with pipes, against a scripted model on loopback."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.places import ROOT

COMMAND = [sys.executable, "-c", "from donewhen.agent.cli import main; main()"]
SECONDS = 30.0


def environment(home: Path, **more: str) -> dict[str, str]:
    """A user's environment with nothing configured, and a state folder of its own."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    own = {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(home / "state"), "LANG": "C.UTF-8", "TERM": "xterm-256color"}
    return {**kept, **own, "LANGSMITH_TRACING": "false", **more}


def piped(*words: str, env: Mapping[str, str], cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """The command without any terminal."""
    return subprocess.run(
        [*COMMAND, *words], env=dict(env), cwd=cwd, input=stdin, capture_output=True, text=True, timeout=SECONDS
    )


@dataclass
class Session:
    """The command in a terminal: stdin and stderr are the terminal, stdout is a pipe."""

    process: subprocess.Popen[str]
    screen: int
    seen: str = ""

    @classmethod
    def start(cls, *words: str, env: Mapping[str, str], cwd: Path) -> Self:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*COMMAND, *words], env=dict(env), cwd=cwd, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        return cls(process, ours)

    def expect(self, text: str) -> str:
        """Everything up to and with `text`, which must appear after what was expected before."""
        until = time.monotonic() + SECONDS
        while text not in self.seen:
            if not select.select([self.screen], [], [], max(0.0, until - time.monotonic()))[0] or not self._read():
                raise AssertionError(f"{text!r} did not appear in:\n{self.seen}")
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def _read(self) -> bool:
        try:
            data = os.read(self.screen, 65536)
        except OSError:  # the other end is closed
            return False
        self.seen += data.decode("utf-8", "replace")
        return bool(data)

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self.screen, f"{text}\n".encode())

    def press(self, key: bytes) -> None:
        """Press a key, such as Ctrl-D."""
        os.write(self.screen, key)

    def interrupt(self) -> None:
        """Ctrl-C, as the terminal sends it."""
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str]:
        """Wait for the end: exit code and stdout. What the screen still showed is in `seen`."""
        while self._read():
            pass
        stdout, _ = self.process.communicate(timeout=SECONDS)
        os.close(self.screen)
        return self.process.returncode, stdout
