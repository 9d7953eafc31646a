"""The terminal: what may be written on it, text made safe and wrapped for it, and amounts in words."""

import os
import re
import select
import signal
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from donewhen.state.ledger import ESTIMATED, UNPRICED

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
_LEAD = re.compile(r"\s*(?:(?:[-*•→☐◐☑✗–]|\[.\]|\d+[.)]|done when|with {6}|after {5})\s+)?")
"""What stands before a line's words; the lines below it begin where they do."""
Spending = Mapping[str, float]


@dataclass(frozen=True)
class Terminal:
    """Where to write for people, and what it can do."""

    console: Console
    """On stderr."""
    live: bool
    """Whether it can be redrawn: a terminal, with colours wanted."""
    interactive: bool
    """Whether a person can be asked: stdin and stderr are a terminal."""
    marks: Mapping[str, str]

    @property
    def width(self) -> int:
        """Columns for a line that is cut to fit; generous where nobody looks at columns."""
        return max(20, self.console.width - 1) if self.console.is_terminal else 120

    def line(self, text: str, style: str = "", *, whole: bool = False) -> None:
        """Plain text, never read as markup; on a terminal wrapped between words. `whole`: not wrapped, to be copied."""
        for line in clean(text).split("\n"):
            if whole or not self.console.is_terminal:
                self.console.print(Text(line, style=style), soft_wrap=True)
                continue
            lead = match[0] if (match := _LEAD.match(line)) else ""
            room = max(10, self.console.width - len(lead))
            for number, part in enumerate(Text(line[len(lead) :]).wrap(self.console, room) or [Text()]):
                part.rstrip()
                before = lead if not number else " " * len(lead)
                self.console.print(Text(before + part.plain, style=style), soft_wrap=True)

    def read(self, prompt: str) -> str:
        """What a person types after the prompt. Raises EOFError at Ctrl-D, KeyboardInterrupt at Ctrl-C."""
        self.console.print(Text(prompt, style="bold", end=""), end="")
        _await_line(sys.stdin)
        return input()

    def mark(self, status: str) -> str:
        """The glyph of a step's status."""
        return self.marks.get(status, self.marks["pending"])

    def shorten(self, text: str, width: int = 0) -> str:
        """The text on one line of at most `width` characters, by default the terminal's."""
        return shorten(text, width or self.width, self.marks["dots"])


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
    interactive = may_ask and console.is_terminal and sys.stdin.isatty()
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
    """The text on one line of at most `width` columns."""
    line = " ".join(clean(text).split())
    return line if cell_len(line) <= width else set_cell_size(line, max(0, width - len(dots))).rstrip() + dots


# --- amounts

NAMES = {
    "rounds": "rounds", "model_calls": "model calls", "tool_calls": "tool calls", "input_tokens": "tokens in",
    "cached_tokens": "tokens from cache", "output_tokens": "tokens out", "cost_usd": "money", "active_seconds": "time",
    "questions": "questions", "replans": "replans",
}  # fmt: skip
_TOKENS = ("input_tokens", "cached_tokens", "output_tokens")
_SELDOM = ("questions", "replans")
"""Always limited; on the one line only when there were any."""
NEAR = 0.8
"""The share of a limit from which on it is marked."""


@dataclass(frozen=True)
class Part:
    """One amount in words."""

    text: str
    share: float = 0.0
    """How much of its limit is spent."""
    name: str = ""
    """For the table."""

    @property
    def style(self) -> str:
        """Red when the limit is reached, yellow when it is near."""
        return "red" if self.share >= 1 else "yellow" if self.share >= NEAR else ""


def meter_text(spent: Spending, limits: Spending, dot: str = "·") -> str:
    """What was spent, and of how much where there is a limit, on one line; "" when nothing was."""
    return f" {dot} ".join(part.text for part in meter_parts(spent, limits))


def meter_parts(spent: Spending, limits: Spending) -> Iterator[Part]:
    """The parts of the one line; tokens are one amount unless one of their kinds is limited."""
    about = "~" if spent.get(ESTIMATED) else ""
    cached = f" ({_cached(spent)})" if spent.get("cached_tokens") and spent.get("input_tokens") else ""
    by_kind = any(key in limits for key in _TOKENS)
    for key, name in NAMES.items():
        amount, of = spent.get(key, 0), f"/{limits[key]:g}" if key in limits else ""
        if key in _TOKENS and not by_kind:
            total = spent.get("input_tokens", 0) + spent.get("output_tokens", 0)
            if key == "input_tokens" and total:
                yield Part(f"{about}{_short(total)} token{'' if total == 1 else 's'}{cached}")
        elif key == "cost_usd" and spent.get(UNPRICED) and not amount and not of:
            yield Part("price unknown")
        elif _shown(key, spent, limits) and (amount or key not in _SELDOM):
            text = f"{amount:g}{of} {name[:-1] if amount == 1 and not of else name}"
            if key in _TOKENS:
                of = f"/{_short(limits[key])}" if of else ""
                text = f"{about}{_short(amount)}{of} {name}{cached if key == 'input_tokens' else ''}"
            elif key == "cost_usd":
                text = f"${amount:.4f}{'+?' if spent.get(UNPRICED) else ''}{of.replace('/', '/$')}"
            elif key == "active_seconds":
                text = f"{amount:.1f}{of} s"
            yield Part(text, _share(key, spent, limits))


def table(spent: Spending, limits: Spending) -> list[Part]:
    """Every amount that was spent or is limited, on a line of its own, with its name."""
    return [
        Part(_in_full(key, spent, limits), _share(key, spent, limits), name)
        for key, name in NAMES.items()
        if _shown(key, spent, limits) or (key == "cost_usd" and spent.get(UNPRICED))
    ]


def _in_full(key: str, spent: Spending, limits: Spending) -> str:
    amount, limit = spent.get(key, 0), limits.get(key)
    if key == "cost_usd":
        if spent.get(UNPRICED) and not amount:
            return "price unknown"
        unknown = f", and {_calls(spent[UNPRICED])} of unknown price" if spent.get(UNPRICED) else ""
        return f"${amount:.4f}" + (f" of ${limit:,.2f}" if limit is not None else "") + unknown
    if key == "active_seconds":
        return f"{amount:.1f}" + (f" of {limit:g}" if limit is not None else "") + " s, without waiting for people"
    form = "g" if key in _SELDOM else ",.0f"
    text = f"{amount:{form}}" + (f" of {limit:{form}}" if limit is not None else "")
    if key != "input_tokens":
        return text
    text += f" ({_cached(spent)})" if spent.get("cached_tokens") else ""
    return text + (f", of {_calls(spent[ESTIMATED])} estimated" if spent.get(ESTIMATED) else "")


def _shown(key: str, spent: Spending, limits: Spending) -> bool:
    """Whether it has a place of its own; the cached part of the input only where it is limited."""
    return key in limits or (bool(spent.get(key)) and key != "cached_tokens")


def _calls(count: float) -> str:
    return f"{count:g} call{'' if count == 1 else 's'}"


def _cached(spent: Spending) -> str:
    return f"{spent.get('cached_tokens', 0) / spent['input_tokens']:.0%} cached"


def _share(key: str, spent: Spending, limits: Spending) -> float:
    limit = limits.get(key)
    return 0.0 if limit is None else spent.get(key, 0) / limit if limit else 1.0


def _short(tokens: float) -> str:
    return f"{tokens / 1000:.1f}k" if tokens >= 1000 else f"{tokens:g}"
