"""Lines that a person types at the terminal while a run works."""

import asyncio
import codecs
import os
import select
import termios
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

READ = 4096


class Keyboard:
    """While entered, reads keys in the event loop: each finished line is handed on, `draft` is the unfinished one.

    The terminal shows no key by itself meanwhile, because a live view is redrawn there; Ctrl-C stays a signal. In the
    background nothing is read.
    """

    def __init__(self, fd: int, line: Callable[[str], None]) -> None:
        from prompt_toolkit.input.vt100_parser import Vt100Parser

        self.draft: str = ""
        self._fd = fd
        self._line = line
        self._keys = Vt100Parser(lambda pressed: self._press(pressed.key, pressed.data))
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        if self._is_ours():
            self._before = termios.tcgetattr(self._fd)
            mode = termios.tcgetattr(self._fd)
            mode[3] &= ~(termios.ICANON | termios.ECHO)
            mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
            termios.tcsetattr(self._fd, termios.TCSANOW, mode)
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._before is None:
            return
        asyncio.get_running_loop().remove_reader(self._fd)
        if self._is_ours():
            self._read()
            # What is typed from here on was typed before the next question is shown, and answers nothing.
            termios.tcsetattr(self._fd, termios.TCSAFLUSH, self._before)

    def _is_ours(self) -> bool:
        """Return whether this process may use the terminal; one in the background would be stopped by it."""
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:  # it controls no job, so nothing is stopped
            return True

    def _read(self) -> None:
        if not self._is_ours() or not select.select([self._fd], [], [], 0)[0]:
            return
        if not (data := os.read(self._fd, READ)):  # the terminal is gone
            asyncio.get_running_loop().remove_reader(self._fd)
            return
        self._keys.feed(self._decoder.decode(data))

    def _press(self, key: str, data: str) -> None:
        """Edit the draft by one key; keys that move are ignored, because the draft is edited at its end only."""
        if key in ("c-m", "c-j"):
            text, self.draft = self.draft.strip(), ""
            if text:
                self._line(text)
        elif key in ("c-h", "delete"):
            self.draft = self.draft[:-1]
        elif key == "c-w":
            self.draft = self.draft.rstrip().rpartition(" ")[0]
        elif key in ("c-u", "c-c"):
            self.draft = ""
        elif key == "<bracketed-paste>" or (len(key) == 1 and key.isprintable()):
            self.draft += " ".join(data.split("\n"))
