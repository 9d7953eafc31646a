"""Which texts fit a query best (BM25): words where a script writes spaces, characters and pairs of them elsewhere."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping

from donewhen.state.pattern import pattern

STEM = 5
"""Characters of a word that stand for its other forms too."""
K1, B = 1.2, 0.75
"""Of BM25, the usual ones: how soon more of a word says no more, and how much a long text counts for less."""
_WORD = pattern(r"[^\W_]+")
EMPTY = frozenset(
    _WORD.findall(
        "a an and are as at be by do for from how i in is it its me my of on or please so that the then this to use "
        "using what when where which who will with you your"
    )
)
"""Words that say nothing about what is wanted."""
# Written without spaces, or with endings grown onto words: Thai to Burmese, Khmer, CJK with kana, Hangul.
_UNSPACED = pattern(r"[\u0e00-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+")


def terms(text: str) -> list[str]:
    """Return words and their first five letters, without case and accents; of unspaced scripts characters and pairs.

    docs/tool_selection.md has this beside words, a dictionary's words, and other lengths.
    """
    found: list[str] = []
    for word in _WORD.findall(_plain(text)):
        position = 0
        for run in _UNSPACED.finditer(word):
            found += _of_word(word[position : run.start()]) + _pairs(run[0])
            position = run.end()
        found += _of_word(word[position:])
    return found


def _plain(text: str) -> str:
    """Fold for comparing; `readFile` and `read_file` are two words each. Hangul and kana stay composed."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", unicodedata.normalize("NFKC", text)).casefold()
    if split.isascii():
        return split
    marks = "".join(c for c in unicodedata.normalize("NFD", split) if not "\u0300" <= c <= "\u036f")
    return unicodedata.normalize("NFC", marks)


def _of_word(word: str) -> list[str]:
    return [word, word[:STEM]] if len(word) > STEM else [word] if word and word not in EMPTY else []


def _pairs(run: str) -> list[str]:
    return [*run, *(run[i : i + 2] for i in range(len(run) - 1))]


def scores(query: str, documents: Mapping[str, Counter[str]]) -> dict[str, float]:
    """Name → how well the document fits the query, 0 where no word of it stands there."""
    count = len(documents)
    lengths = {name: sum(document.values()) for name, document in documents.items()}
    mean = sum(lengths.values()) / max(count, 1) or 1.0
    wanted = {term: min(times, 2) for term, times in Counter(terms(query)).items()}
    holding = Counter(term for document in documents.values() for term in wanted if term in document)
    rarity = {term: math.log(1 + (count - n + 0.5) / (n + 0.5)) for term, n in holding.items()}

    def score(name: str) -> float:
        document, norm = documents[name], K1 * (1 - B + B * lengths[name] / mean)
        return sum(
            rarity[term] * times * document[term] * (K1 + 1) / (document[term] + norm)
            for term, times in wanted.items()
            if term in document
        )

    return {name: score(name) for name in documents}
