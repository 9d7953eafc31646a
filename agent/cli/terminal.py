"""The terminal: what may be drawn on it, and text of models made safe for it."""

import os
import select
import signal
import sys
import unicodedata
from dataclasses import dataclass
from typing import IO

from rich.console import Console
from rich.text import Text

UNICODE_MARKS = {
    "pending": "☐", "ready": "☐", "running": "◐", "waiting": "◐", "done": "☑", "failed": "✗", "blocked": "✗",
    "exhausted": "✗", "skipped": "–", "arrow": "→", "dots": "…", "dot": "·",
}  # fmt: skip
ASCII_MARKS = {
    "pending": "[ ]", "ready": "[ ]", "running": "[~]", "waiting": "[~]", "done": "[x]", "failed": "[!]",
    "blocked": "[!]", "exhausted": "[!]", "skipped": "[-]", "arrow": "->", "dots": "...", "dot": "-",
}  # fmt: skip
STYLES = {"done": "green", "failed": "red", "blocked": "red", "exhausted": "red", "running": "cyan", "skipped": "dim"}
BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True)
class Terminal:
    """Where to write for people, and what it can do."""

    console: Console
    """On stderr."""
    live: bool
    """Whether it can be redrawn: a terminal, with colours wanted."""
    interactive: bool
    """Whether a person can be asked: stdin and stderr are a terminal."""
    marks: dict[str, str]

    def line(self, text: str, style: str = "") -> None:
        """One line (or several) of plain text; never read as markup."""
        self.console.print(Text(clean(text), style=style), soft_wrap=True)

    def read(self, prompt: str) -> str:
        """What a person types after the prompt. Raises EOFError at Ctrl-D, KeyboardInterrupt at Ctrl-C."""
        self.console.print(Text(prompt, style="bold", end=""), end="")
        _await_line(sys.stdin)
        return input()

    def mark(self, status: str) -> str:
        """The glyph of a step's status."""
        return self.marks.get(status, self.marks["pending"])


def _await_line(stream: IO[str]) -> None:
    """Wait until there is something to read.

    A signal that comes between Python's last look at signals and a read that blocks is noticed when the read ends; one
    that comes before or in this wait ends it.
    """
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    before = signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    try:
        while stream.fileno() not in select.select([stream.fileno(), wake], [], [])[0]:
            os.read(wake, 1)
    finally:
        signal.set_wakeup_fd(before)
        os.close(wake)
        os.close(woken)


def open_terminal(*, plain: bool, may_ask: bool = True, stream: IO[str] | None = None) -> Terminal:
    """The terminal on `stream` (default stderr). `plain`: no colours, nothing moves."""
    console = Console(file=stream or sys.stderr, no_color=plain or None, highlight=False, emoji=False, markup=False)
    interactive = may_ask and console.is_terminal and sys.stdin is not None and sys.stdin.isatty()
    marks = UNICODE_MARKS if _can_write(console, "".join(UNICODE_MARKS.values())) else ASCII_MARKS
    return Terminal(console, console.is_terminal and not plain and not console.is_dumb_terminal, interactive, marks)


def _can_write(console: Console, text: str) -> bool:
    try:
        text.encode(console.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def clean(text: str) -> str:
    """Text that only shows: no escape sequences, no other control characters, no reversed reading order."""
    return "".join(
        character
        for character in text.replace("\r\n", "\n")
        if character in "\n\t" or (unicodedata.category(character) not in ("Cc", "Cs") and character not in BIDI)
    )


def shorten(text: str, width: int, dots: str = "…") -> str:
    """The text on one line of at most `width` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= width else line[: max(0, width - len(dots))] + dots
