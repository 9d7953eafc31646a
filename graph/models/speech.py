"""What of a streaming reply may be shown as it comes: prose, and texts for people inside of arguments, at once; what
may be a decision or a thought, not."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from pydantic_core import from_json

from donewhen.graph.models.forms import WORDING
from donewhen.state.pattern import pattern

SPOKEN = {**WORDING, "submit_plan": "speak"}
"""Decisions with a text for people among their arguments."""

# Where something may begin that is no speech: an object, a list of values, a fence, a tag. `[s1.2]`, `a < b` and
# `code` are prose; what stands at the very end may still become any of them.
_OTHER = pattern(
    r"""\{|\[(?=\s*(?:["'“{\[\]/#\d-]|true|false|null|True|False|None|THINK|\Z))|<(?=[/|\w]|\Z)|`(?=[`{\[]|\Z)"""
)
_BRACKETS = pattern(r"[\[\]{}]")
_DECIDES = pattern(r"action|tool|name|function|arg|input|param|step|speak|think|reason|thought", re.IGNORECASE)
"""What every decision has in it, and every tag of a thought."""
# A line of at most two words may turn out to be the label of a decision, as in "Action:".
_LABEL = pattern(r"\n\W*\w*(?: \w*)?\W*\Z")
_LABEL_CHARS = 80
_ASIDE_CHARS = 2000
"""Of a bracket, a fence or a tag that does not end; then the rest of the reply waits to be read."""

LATE = 50_000
"""Characters of arguments before the text for people begins, from which on they are read in large pieces."""


class Say(Protocol):
    """Hears a piece of speech; `argument` is "" for prose, else where it stands, such as `ask_user.question`."""

    def __call__(self, text: str, argument: str = "") -> None: ...


class Retract(Protocol):
    """Hears that what was said of this reply, as prose or as an argument, is void."""

    def __call__(self, argument: str = "") -> None: ...


class SpeechStream:
    """Passes speech on piece by piece. A bracket, a fence or a tag waits until it is closed and seen to be prose; from
    what may be a decision on, all waits for the whole reply.

    The pieces join back to exactly the text that `finish` is told was speech, and those of an argument to its text.
    Where what was said turns out to be none (a thought without its opening tag), it is retracted and said anew.
    """

    def __init__(self, say: Say, retract: Retract | None = None) -> None:
        self._say = say
        self._retract = retract or (lambda argument="": None)
        self._said: dict[str, list[str]] = {}
        """What was said, by argument; prose under ""."""
        self._clear()

    def _clear(self) -> None:
        self._said.clear()
        self._tail = ""
        """Prose that arrived and was not said, as long as nothing is held."""
        self._passed = 0
        """How much of the tail is known to be prose."""
        self._holding = False
        self._written: dict[Any, _Written | None] = {}

    def feed(self, text: str) -> None:
        """More of the reply's text arrived."""
        if self._holding or not text:
            return
        self._tail += text
        free = self._tail[: self._prose()]
        shown = _settled(free if self._said.get("") else "\n" + free.lstrip())
        shown = shown if self._said.get("") else shown.lstrip()
        if shown:
            end = self._tail.index(shown) + len(shown)
            self._tail, self._passed = self._tail[end:], max(0, self._passed - end)
            self._emit(shown)

    def _prose(self) -> int:
        """Where the prose of the tail ends for now; from there on it waits, or the rest of the reply does."""
        while other := _OTHER.search(self._tail, self._passed):
            end = _aside(self._tail, other.start())
            if end is None:
                self._holding = len(self._tail) - other.start() > _ASIDE_CHARS
            elif _DECIDES.search(self._tail, other.start(), end):
                self._holding = True
            else:
                self._passed = end
                continue
            return other.start()
        self._passed = len(self._tail)
        return len(self._tail)

    def feed_call(self, chunk: Mapping[str, Any]) -> None:
        """More of a tool call arrived: of the first whose argument is a text for people, that text is said."""
        index, name = chunk.get("index"), chunk.get("name")
        if index not in self._written:
            first = not any(self._written.values())
            self._written[index] = _Written(name, SPOKEN[name]) if first and name in SPOKEN else None
        if (written := self._written[index]) and (piece := written.feed(chunk.get("args") or "")):
            self._emit(piece, written.argument)

    def restart(self) -> None:
        """The reply broke off and is asked for again: what was said of it is taken back."""
        for argument in self._said:
            self._retract(argument)
        self._clear()

    def finish(self, speech: str, name: str = "", arguments: Mapping[str, Any] | None = None) -> None:
        """The reply is read: say what is left of its speech, and of the text in the decision `name` it came to."""
        argument = f"{name}.{SPOKEN[name]}" if name in SPOKEN else ""
        self._come_to({"": speech, **({argument: str((arguments or {}).get(SPOKEN[name]) or "")} if argument else {})})

    def come_to(self, text: str) -> None:
        """The reply came to this one text, whichever way it was written: say what is left of it."""
        written = next((each for each, said in self._said.items() if text.startswith("".join(said).strip())), "")
        before = "".join(self._said.get(written, ()))
        self._come_to({written: before + text[len(before.strip()) :]})

    def _come_to(self, texts: Mapping[str, str]) -> None:
        for wrong in [each for each, said in self._said.items() if not texts.get(each, "").startswith("".join(said))]:
            self._retract(wrong)
            del self._said[wrong]
        for each, text in texts.items():
            self._emit(text[len("".join(self._said.get(each, ()))) :], each)

    def _emit(self, piece: str, argument: str = "") -> None:
        if piece:
            self._said.setdefault(argument, []).append(piece)
            self._say(piece, argument)


def _aside(text: str, start: int) -> int | None:
    """Where the bracket, fence or tag that begins there ends; None if it does not end yet."""
    opening = text[start]
    if opening == "<":
        end = text.find(">", start)
        return end + 1 if end >= 0 else None
    if opening == "`":
        fence = "```" if text.startswith("```", start) else "`"
        undecided = len(text) - start < 3
        end = -1 if undecided else text.find(fence, start + len(fence))
        return end + len(fence) if end >= 0 else None
    depth = 0
    for bracket in _BRACKETS.finditer(text, start, start + 2 * _ASIDE_CHARS):
        depth += 1 if bracket[0] in "[{" else -1
        if depth == 0:
            return bracket.end()
    return None


def _settled(text: str) -> str:
    """The text without what may still turn out not to be said: white space at its end, a line that may be a label."""
    label = _LABEL.search(text, max(0, len(text) - _LABEL_CHARS))
    return (text[: label.start()] if label else text).rstrip()


class _Written:
    """One text argument, read while the JSON of the arguments is still being written."""

    def __init__(self, name: str, key: str) -> None:
        self.argument = f"{name}.{key}"
        self._key = key
        self._json = ""
        self._read = self._said = 0

    def feed(self, piece: str) -> str:
        """What this adds to the text; "" also for what no JSON is, and waits for the whole reply to be read."""
        self._json += piece
        # The longer, the larger the pieces, as each reading begins anew; larger still where the text begins very late.
        if len(self._json) - self._read < self._read // (2048 if self._said or self._read < LATE else 8):
            return ""
        self._read = len(self._json)
        with suppress(ValueError):
            arguments = from_json(self._json, allow_partial="trailing-strings")
            if isinstance(arguments, dict) and isinstance(text := arguments.get(self._key), str):
                new, self._said = text[self._said :], len(text)
                return new
        return ""
