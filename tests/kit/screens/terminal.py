"""Runs the command in a real pseudo-terminal, or with pipes, against a scripted model on loopback."""

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Self

import pyte
from rich.console import Console

from donewhen.agent.cli.screen.terminal import UNICODE_MARKS, Terminal
from tests.kit.forking import CommandProcess
from tests.kit.places import ROOT


def screen(
    *, live: bool = False, marks: Mapping[str, str] = UNICODE_MARKS, width: int = 100, language: str = "en"
) -> Terminal:
    """A terminal that keeps what is written on it."""
    console = Console(file=io.StringIO(), width=width, force_terminal=live, highlight=False, emoji=False, markup=False)
    return Terminal(console, live, True, marks, language)


def written(where: Terminal) -> str:
    """What was written on a `screen`."""
    assert isinstance(where.console.file, io.StringIO)
    return where.console.file.getvalue()


COMMAND = [sys.executable, "-c", "from donewhen.agent.cli import main; main()"]
SECONDS = 90.0
ROWS = 200
"""More than anything scrolls in a test."""
EDITED, PLAIN = "\x1b[?2004h", "\x1b[1m> \x1b[0m"
"""What a terminal is sent where a line is read."""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def environment(home: Path, **more: str) -> dict[str, str]:
    """A user's environment with nothing configured, and a state folder of its own."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    own = {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(home / "state"), "LANG": "C.UTF-8", "TERM": "xterm-256color"}
    return {**kept, **own, "LANGSMITH_TRACING": "false", **more}


def piped(
    *words: str, env: Mapping[str, str], cwd: Path, stdin: str = "", program: str = ""
) -> subprocess.CompletedProcess[str]:
    """The command, or a program, without any terminal."""
    with TemporaryFile() as given, TemporaryFile() as said, TemporaryFile() as errors:
        given.write(stdin.encode())
        given.seek(0)
        files = {"stdin": given.fileno(), "stdout": said.fileno(), "stderr": errors.fileno()}
        code = CommandProcess(*words, env=env, cwd=cwd, program=program, **files).wait(SECONDS)
        for file in (said, errors):
            file.seek(0)
        return subprocess.CompletedProcess(words, code, said.read().decode(), errors.read().decode())


def drawn(raw: str, columns: int) -> list[str]:
    """What a terminal shows that was sent this: its lines, the empty ones left out."""
    shown = pyte.Screen(columns, ROWS)
    pyte.Stream(shown).feed(re.sub("\r?\n", "\r\n", raw))
    return [line.rstrip() for line in shown.display if line.strip()]


@dataclass
class Session:
    """The command in a terminal: stdin and stderr are the terminal, stdout is a pipe."""

    process: CommandProcess
    screen: int
    stdout: int
    seen: str = ""
    raw: str = ""
    """All that it was sent."""

    @classmethod
    def start(
        cls, *words: str, env: Mapping[str, str], cwd: Path, columns: int = 80, answers_here: bool = False
    ) -> Self:
        """`answers_here`: stdout is the terminal too, as it is for a person."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
        reads, writes = os.pipe()
        stdout = theirs if answers_here else writes
        process = CommandProcess(*words, env=env, cwd=cwd, stdin=theirs, stdout=stdout, stderr=theirs)
        os.close(theirs)
        os.close(writes)
        return cls(process, ours, reads)

    def expect(self, *texts: str) -> str:
        """Everything up to and with one of the texts, which must appear after what was expected before."""
        until = time.monotonic() + SECONDS
        while not (found := next((text for text in texts if text in self.seen), "")):
            if not select.select([self.screen], [], [], max(0.0, until - time.monotonic()))[0] or not self._read():
                raise AssertionError(f"{texts!r} did not appear in:\n{self.seen}")
        before, _, self.seen = self.seen.partition(found)
        return before + found

    def asked(self) -> str:
        """Everything that is seen up to where a line is read, with or without a line editor."""
        return ESCAPES.sub("", self.expect(EDITED, PLAIN))

    def _read(self) -> bool:
        try:
            data = os.read(self.screen, 65536)
        except OSError:  # the other end is closed
            return False
        self.seen += data.decode("utf-8", "replace")
        self.raw += data.decode("utf-8", "replace")
        return bool(data)

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self.screen, f"{text}\n".encode())

    def reply(self, text: str) -> str:
        """Wait until something is asked, type a line, and return what was seen."""
        seen = self.asked()
        self.type(text)
        return seen

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
        with open(self.stdout, encoding="utf-8") as answers:
            stdout = answers.read()
        os.close(self.screen)
        return self.process.wait(SECONDS), stdout
