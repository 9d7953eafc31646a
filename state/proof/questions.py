"""When two questions are the same. Strict: what differs in a word, a number or its options is another question."""

from collections.abc import Sequence

from donewhen.state.language.words import opening, word
from donewhen.state.pattern import pattern
from donewhen.state.proof.quotes import fold

_POLITE = pattern(
    r"\b(?:please |kindly )?(?:could|can|would) you (?:please |kindly )?(?:tell me|let me know|say)\b"
    r"|^(?:please |kindly )?(?:tell me|let me know)\b|请问|請問|请|請|[吗嗎呢](?=[？?。.\s]|$)"
)
"""What is said around a question and asks nothing."""
_FILLERS = frozenset(("the", "please", "kindly"))


def same_question(
    one: str, other: str, options: Sequence[str] | None = None, other_options: Sequence[str] | None = None
) -> bool:
    """Whether two questions are the same but for case, punctuation and politeness, and out of the same options."""
    if options and other_options and set(map(_words, options)) != set(map(_words, other_options)):
        return False
    return _words(one) == _words(other)


def is_leave(text: str) -> bool:
    """Whether an answer is a yes or a no, which says nothing about any other thing."""
    return bool({word(text), opening(text)} & {"yes", "no"})


def _words(text: str) -> str:
    plain = _POLITE.sub(" ", fold(text))
    words = (word.lstrip("\"'(¿¡").rstrip("\"'),;:.?!…。？！，、；：") for word in plain.split())
    return " ".join(word for word in words if word and word not in _FILLERS)
