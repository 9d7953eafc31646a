"""The terminal: its abilities, text made safe and wrapped for it, and what a person types."""

import asyncio
import codecs
import os
import re
import select
import signal
import sys
import termios
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self, TextIO, cast

import rich.text
from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.containers import Lines

from donewhen.clients import catalogue, say

UNICODE_MARKS = {
    "pending": "☐", "ready": "☐", "running": "◐", "waiting": "◐", "done": "☑", "failed": "✗", "blocked": "✗",
    "exhausted": "✗", "skipped": "–", "arrow": "→", "dots": "…", "dot": "·", "bar": "│",
}  # fmt: skip
ASCII_MARKS = {
    "pending": "[ ]", "ready": "[ ]", "running": "[~]", "waiting": "[~]", "done": "[x]", "failed": "[!]",
    "blocked": "[!]", "exhausted": "[!]", "skipped": "[-]", "arrow": "->", "dots": "...", "dot": "-", "bar": "|",
}  # fmt: skip
STYLES = {"done": "green", "failed": "red", "blocked": "red", "exhausted": "red", "running": "cyan", "skipped": "dim"}
BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_LEAD = re.compile(r"\s*(?:(?:[-*•→☐◐☑✗–]|\[.\]|\d{1,9}[.)])\s+)?")
"""The prefix of a line before its words; the lines below are indented by it."""
_WIDE = "\u2e80-\u2fdf\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff10-\uff19\uff21-\uff5a\U00020000-\U0003fffd"
_OPENING, _CLOSING = "（《「『【〔“", "，。、；：！？）》」』】〕”…"
_UNIT = re.compile(rf"\s*[{_OPENING}]*(?:[{_WIDE}]|[^\s{_WIDE}{_OPENING}{_CLOSING}]+)?[{_CLOSING}]*\s*")
"""A unit that is not broken: a word, or a Chinese or Japanese character, with its punctuation."""
WIDE = 120
"""The width if there is no terminal."""
TAB = "\t"
"""The prefix of typed text if Tab was pressed."""


class ShownText(rich.text.Text):
    """Rich's text with breaks between wide characters, which have no spaces."""

    def wrap(self, console: Console, width: int, **options: Any) -> Lines:
        """Return its lines, each as full as its words and characters allow."""
        lines = self.split(allow_blank=True)
        if not self.no_wrap and re.search(f"[{_WIDE}]", self.plain):
            lines = Lines(part for line in lines for part in line.divide(_breaks(line.plain, width)))
            for line in lines:
                line.rstrip_end(width)
        return rich.text.Text("\n").join(lines).wrap(console, width, **options)


def _breaks(line: str, width: int) -> Iterator[int]:
    """Yield the positions at which a line is broken; only a single word may be too wide."""
    used = 0
    for unit in _UNIT.finditer(line):
        if used and used + cell_len(unit[0].rstrip()) > width:
            yield unit.start()
            used = 0
        used += cell_len(unit[0])


@dataclass(frozen=True)
class Terminal:
    """A terminal for people, and its abilities."""

    console: Console
    """Writes to stderr."""
    live: bool
    """True if it can be redrawn: a terminal, with colours."""
    interactive: bool
    """True if a person can be asked: stdin and stderr are a terminal."""
    marks: Mapping[str, str]
    language: str = "en"
    """The language of the runtime's texts."""
    answers_here: bool = False
    """True if stdout is shown on this terminal too, so that an answer may be shown as it comes."""

    @property
    def listens(self) -> bool:
        """Return whether a person can talk to a run while it works: the line that they type has to be redrawn."""
        return self.live and self.interactive

    def say(self, key: str, **values: Any) -> str:
        """Return a text of the catalogue's section `terminal` in the person's language."""
        return say(self.language, "terminal", key, **values)

    def texts(self, section: str) -> Mapping[str, str]:
        """Return all texts of a section in the person's language."""
        texts: Mapping[str, str] = catalogue(self.language)[section]
        return texts

    def show(self, drawn: RenderableType) -> None:
        """Print a drawing as wide as the terminal, or wide if there is none."""
        self.console.print(drawn, width=None if self.console.is_terminal else WIDE)

    @property
    def columns(self) -> int:
        """Return the columns of the terminal, or many if it is none."""
        return self.console.width if self.console.is_terminal else WIDE

    @property
    def width(self) -> int:
        """Return the columns for a line that is cut to fit."""
        return max(20, self.console.width - 1) if self.console.is_terminal else WIDE

    def line(self, text: str, style: str = "", *, whole: bool = False) -> None:
        """Print plain text without markup; on a terminal wrapped between words, unless it is `whole` for copying."""
        for line in clean(text).split("\n"):
            as_it_is = whole or not self.console.is_terminal
            for part in [ShownText(line)] if as_it_is else self.wrap_line(line):
                part.style = style
                self.console.print(part, soft_wrap=True)

    def wrap_line(self, line: str) -> Iterator[ShownText]:
        """Yield the line wrapped; its parts are aligned with its first word, after a mark or number."""
        lead = match[0] if (match := _LEAD.match(line)) else ""
        room = max(10, self.columns - len(lead))
        for number, part in enumerate(ShownText(line[len(lead) :]).wrap(self.console, room) or [ShownText()]):
            part.rstrip()
            yield ShownText((" " * len(lead) if number else lead) + part.plain)

    def legend(self, text: str) -> None:
        """Print keys and their meanings, two spaces apart; a key is never separated from its words."""
        lines, width = [""], self.columns
        for part in text.split("  "):
            fits = cell_len(f"{lines[-1]}  {part}") <= width
            lines[-1:] = [f"{lines[-1]}  {part}" if lines[-1] else part] if fits or not lines[-1] else [lines[-1], part]
        for line in lines:
            self.line(line, "dim")

    def read(self, prompt: str) -> str:
        """Return what a person types after the prompt; it begins with a TAB if that was pressed.

        Pasted lines are one answer. Raises EOFError at Ctrl-D, KeyboardInterrupt at Ctrl-C.
        """
        if self.live and sys.stdin.isatty():
            return _read_line(prompt, self.console)
        self.console.print(ShownText(prompt, style="bold", end=""), end="")
        _await_line(sys.stdin)
        return input()

    def discard_typed(self) -> bool:
        """Discard what was typed before a person is asked, and return whether there was a line."""
        if not (self.interactive and sys.stdin.isatty()):
            return False
        ready = select.select([sys.stdin], [], [], 0)[0]
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        return bool(ready)

    def mark(self, status: str) -> str:
        """Return the glyph of a step's status."""
        return self.marks.get(status, self.marks["pending"])

    def shorten(self, text: str, width: int = 0) -> str:
        """Return the text on one line of at most `width` characters, by default the terminal's."""
        return shorten(text, width or self.width, self.marks["dots"])


def _read_line(prompt: str, console: Console) -> str:
    """Return a line, with the editing keys of a shell."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.formatted_text import FormattedText
    from prompt_toolkit.input import create_input
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output.vt100 import Vt100_Output

    keys = KeyBindings()

    @keys.add("tab")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=TAB + event.current_buffer.text)

    output = Vt100_Output.from_pty(cast(TextIO, console.file), term=os.environ.get("TERM"))
    output.enable_cpr = False  # nothing below the line is drawn, so nobody has to know how much room there is
    session: PromptSession[str] = PromptSession(input=create_input(sys.stdin), output=output, key_bindings=keys)
    return session.prompt(FormattedText([("bold", prompt)]))


def _await_line(stream: IO[str]) -> None:
    """Wait until there is something to read.

    Python would notice a signal that comes right before a blocking read only after the read. A signal before or during
    this wait ends it.
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


class Keyboard:
    """Reads what a person types while a run works, and passes each finished line on; `draft` is the unfinished line.

    Meanwhile the terminal does not echo keys, because a live view is redrawn there; Ctrl-C is still a signal. A process
    in the background reads nothing.
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
            # Lines that are typed from here until the next question is shown do not answer it.
            termios.tcsetattr(self._fd, termios.TCSAFLUSH, self._before)

    def _is_ours(self) -> bool:
        """Return whether this process may use the terminal; one in the background would be stopped by it."""
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:  # no job control, so no process is stopped
            return True

    def _read(self) -> None:
        if not self._is_ours() or not select.select([self._fd], [], [], 0)[0]:
            return
        if not (data := os.read(self._fd, 4096)):  # the terminal is gone
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


def open_terminal(
    *, plain: bool, may_ask: bool = True, stream: IO[str] | None = None, language: str = "en"
) -> Terminal:
    """Return the terminal on `stream` (default stderr). With `plain` there are no colours and no movement."""
    width = 80 if os.environ.get("COLUMNS") == "0" else None  # as containers say that they do not know
    plainly: Any = {"no_color": plain or None, "highlight": False, "emoji": False, "markup": False}
    console = Console(file=stream or sys.stderr, width=width, **plainly)
    interactive = may_ask and console.is_terminal and sys.stdin.isatty()
    marks = UNICODE_MARKS if _can_write(console, "".join(UNICODE_MARKS.values())) else ASCII_MARKS
    live = console.is_terminal and not plain and not console.is_dumb_terminal
    here = console.is_terminal and sys.stdout.isatty() and _same_place(sys.stdout, console.file)
    return Terminal(console, live, interactive, marks, language, here)


def _same_place(one: IO[str], other: IO[str]) -> bool:
    try:
        return os.fstat(one.fileno()).st_rdev == os.fstat(other.fileno()).st_rdev
    except (OSError, ValueError):
        return False


def _can_write(console: Console, text: str) -> bool:
    try:
        text.encode(console.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def clean(text: str) -> str:
    """Return text without escape sequences, other control characters, and reversed reading order."""
    return "".join(
        character
        for character in text.replace("\r\n", "\n")
        if character in "\n\t" or (unicodedata.category(character) not in ("Cc", "Cs") and character not in BIDI)
    )


def shorten(text: str, width: int, dots: str = "…") -> str:
    """Return the text on one line of at most `width` columns."""
    line = " ".join(clean(text).split())
    return line if cell_len(line) <= width else set_cell_size(line, max(0, width - len(dots))).rstrip() + dots
