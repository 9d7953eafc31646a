"""Compare two questions. Strict: what differs in a word, a number or its options is another question."""

from collections.abc import Sequence

from donewhen.state.proof.quotes import fold


def same_question(
    one: str, other: str, options: Sequence[str] | None = None, other_options: Sequence[str] | None = None
) -> bool:
    """Return whether two questions are the same but for case and punctuation, with the same options."""
    if options and other_options and set(map(_words, options)) != set(map(_words, other_options)):
        return False
    return _words(one) == _words(other)


def _words(text: str) -> str:
    words = (word.lstrip("\"'(¿¡").rstrip("\"'),;:.?!…。？！，、；：") for word in fold(text).split())
    return " ".join(word for word in words if word)
