"""What of a streaming reply may be shown as it comes: prose at once, anything that may be a decision or a thought not."""

import re
from collections.abc import Callable

_HELD = re.compile(r"[{\[<`]")


class Speech:
    """Passes prose on piece by piece; from the first bracket, fence or tag on it waits for the whole reply.

    The pieces join back to exactly the text that `finish` is told was speech.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._text = ""
        self._said = 0
        self._holding = False

    def feed(self, text: str) -> None:
        """More of the reply arrived."""
        self._text += text
        if self._holding or not text:
            return
        held = _HELD.search(self._text, self._said)
        self._holding = held is not None
        self._emit(held.start() if held else len(self._text))

    def restart(self) -> bool:
        """The reply broke off and is asked for again; whether some of it was already said."""
        said, self._text, self._said, self._holding = self._said > 0, "", 0, False
        return said

    def finish(self, speech: str) -> None:
        """The reply is read: say what is left of its speech."""
        if speech.startswith(self._text[: self._said]):
            self._text = speech
            self._emit(len(speech))

    def _emit(self, end: int) -> None:
        if end > self._said and (piece := self._text[self._said : end]):
            self._say(piece)
            self._said = end
