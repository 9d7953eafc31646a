"""What of a streaming reply may be shown as it comes: prose at once; what may be a decision or a thought, not."""

import re
from collections.abc import Callable

# Where something may begin that is no speech: an object, a list of values, a fence, a tag. `[s1.2]`, `a < b` and
# `code` are prose; what stands at the very end may still become any of them.
_OTHER = re.compile(
    r"""\{|\[(?=\s*(?:["'“{\[\]/#\d-]|true|false|null|True|False|None|THINK|\Z))|<(?=[/|\w]|\Z)|`(?=[`{\[]|\Z)"""
)
_UNDECIDED = re.compile(r"(?:\[\s*|<|`)\Z")
# A line of at most two words may turn out to be the label of a decision, as in "Action:".
_LABEL = re.compile(r"\n\W*\w*(?: \w*)?\W*\Z")
_LABEL_CHARS = 80


class Speech:
    """Passes prose on piece by piece; from the first bracket, fence or tag on it waits for the whole reply.

    The pieces join back to exactly the text that `finish` is told was speech. Where what was said turns out to be
    none (a thought without its opening tag), it is taken back with `retract`, and all is said anew.
    """

    def __init__(self, say: Callable[[str], None], retract: Callable[[], None] | None = None) -> None:
        self._say = say
        self._retract = retract or (lambda: None)
        self._pieces: list[str] = []
        self._tail = ""
        """What arrived and was not said, as long as nothing is held."""
        self._holding = False

    def feed(self, text: str) -> None:
        """More of the reply arrived."""
        if self._holding or not text:
            return
        self._tail += text
        other = _OTHER.search(self._tail)
        self._holding = other is not None and not _UNDECIDED.match(self._tail, other.start())
        free = self._tail[: other.start()] if other else self._tail
        shown = _settled(free if self._pieces else "\n" + free.lstrip())
        shown = shown if self._pieces else shown.lstrip()
        if shown:
            self._tail = self._tail[self._tail.index(shown) + len(shown) :]
            self._emit(shown)

    def restart(self) -> bool:
        """The reply broke off and is asked for again; whether some of it was already said, which is taken back."""
        said = bool(self._pieces)
        if said:
            self._retract()
        self._pieces, self._tail, self._holding = [], "", False
        return said

    def finish(self, speech: str) -> None:
        """The reply is read: say what is left of its speech."""
        said = "".join(self._pieces)
        if not speech.startswith(said):
            self.restart()
            said = ""
        self._emit(speech[len(said) :])

    def _emit(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)
            self._say(piece)


def _settled(text: str) -> str:
    """The text without what may still turn out not to be said: white space at its end, a line that may be a label."""
    label = _LABEL.search(text, max(0, len(text) - _LABEL_CHARS))
    return (text[: label.start()] if label else text).rstrip()
