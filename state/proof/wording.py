"""What a sentence is about, by its words, in the languages most criteria are written in: lists to add to."""

from collections.abc import Iterable


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


DENIALS = _words(
    "not no never none neither nor without cannot isnt arent wasnt werent dont doesnt didnt cant couldnt wont "
    "nicht kein keine keinen keiner nie niemals ohne pas jamais aucun aucune sans ne nunca ningún ninguna sin "
    "non mai senza não nem sem niet geen нет не ни без 不 没 沒 无 無 未 非"
)
"""Words that turn a sentence into its opposite."""


def denies(words: Iterable[str]) -> bool:
    """Whether there is a denial among these tokens."""
    return not DENIALS.isdisjoint(words)
