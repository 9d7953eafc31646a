"""Which texts fit a query best: words, and pairs of characters for scripts that write no spaces."""

import math
import re
from collections import Counter
from collections.abc import Mapping

_WORD = re.compile(r"[a-z0-9]+|[^\W\d_a-z]+", re.IGNORECASE)


def terms(text: str) -> list[str]:
    """Lower-case words and their stems of five letters; bigrams of everything that is not Latin."""
    found: list[str] = []
    for word in _WORD.findall(text.replace("_", " ").casefold()):
        if word.isascii():
            found += [word] if len(word) <= 5 else [word, word[:5]]
        else:
            found += [word[i : i + 2] for i in range(len(word) - 1)] or [word]
    return found


def most_relevant(query: str, texts: Mapping[str, str], top: int) -> list[str]:
    """The names of the `top` texts that fit the query best, in their given order; ties go to the earlier."""
    if len(texts) <= top:
        return list(texts)
    documents = {name: Counter(terms(text)) for name, text in texts.items()}
    frequency = Counter(term for document in documents.values() for term in document)
    wanted = Counter(terms(query))
    scores = {
        name: sum(math.log(1 + len(texts) / frequency[t]) * min(wanted[t], 2) for t in document if t in wanted)
        for name, document in documents.items()
    }
    best = set(sorted(texts, key=lambda name: -scores[name])[:top])
    return [name for name in texts if name in best]
