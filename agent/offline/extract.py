"""An extract of a text: its most telling sentences, word for word, in their order. No model, no rewriting."""

import re
from collections import Counter

from donewhen.agent.offline.vocabulary import words

MOST, SHORT = 5, 3
SENTENCE_CHARS = 280
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[A-Z0-9\"'(“\[])|(?<=[。！？])|\n\s*\n|\n(?=\s*(?:[-*•#>]|\d+[.)])\s)")
_LEAD = re.compile(r"^\s*(?:[-*•>]\s+|#{1,6}\s+|\d+[.)]\s+)+")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]{3,}|[\u4e00-\u9fff]{2}")
_COMMON = words(
    """
    this that with from have been will were they their there which when what where your about into than then them
    these those would could should also more most some such only other over very just each both after before
    because between while
    """
)


def key_sentences(text: str, most: int = MOST) -> list[str]:
    """Up to `most` sentences of the text, each a piece of it and at most half of it; three or fewer come whole."""
    pieces = [_LEAD.sub("", piece or "").strip() for piece in _END.split(text)]
    headings = {_LEAD.sub("", line).strip() for line in text.splitlines() if line.lstrip().startswith("#")}
    sentences = list(
        dict.fromkeys(p for p in pieces if 3 <= len(p) <= SENTENCE_CHARS and p not in headings and p in text)
    )
    if not sentences:
        return [line.strip()[:SENTENCE_CHARS] for line in text.splitlines() if line.strip()][:most]
    most = min(most, max(SHORT, -(-len(sentences) // 2)))
    if len(sentences) <= most:
        return sentences
    weights = Counter(word for sentence in sentences for word in set(_words(sentence)))
    scores = {s: _score(s, position, weights) for position, s in enumerate(sentences)}
    best = set(sorted(sentences, key=lambda s: -scores[s])[:most])
    return [sentence for sentence in sentences if sentence in best]


def _words(sentence: str) -> list[str]:
    return [word for word in (w.lower() for w in _WORD.findall(sentence)) if not _COMMON.fullmatch(word)]


def _score(sentence: str, position: int, weights: Counter[str]) -> float:
    """Words that the text keeps coming back to count; the first sentence and figures help."""
    own = set(_words(sentence))
    density = sum(weights[word] for word in own) / (len(own) + 3)
    return density + (1.0 if position == 0 else 0.0) + (0.3 if re.search(r"\d", sentence) else 0.0)
