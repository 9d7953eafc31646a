"""Rank texts by a query (BM25), by words or, for scripts without spaces, by characters and pairs of them."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping

from donewhen.state.pattern import pattern

STEM = 5
"""The length of the word prefix that also matches other forms of the word."""
K1, B = 1.2, 0.75
"""BM25's usual constants: how soon repetitions of a word stop counting, and how much long texts count less."""
_WORD = pattern(r"[^\W_]+")
STOP_WORDS = frozenset(
    _WORD.findall(
        "a an and are as at be by do for from how i in is it its me my of on or please so that the then this to use "
        "using what when where which who will with you your"
    )
)
"""Words that carry no meaning in a query."""
# Written without spaces, or with endings grown onto words: Thai to Burmese, Khmer, CJK with kana, Hangul.
_UNSPACED = pattern(r"[\u0e00-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+")


def terms(text: str) -> list[str]:
    """Return words and their first five letters, without case and accents; for unspaced scripts characters and pairs.

    docs/tool_selection.md compares this with other methods.
    """
    parts: list[str] = []
    for word in _WORD.findall(_plain(text)):
        position = 0
        for run in _UNSPACED.finditer(word):
            parts += _of_word(word[position : run.start()]) + _pairs(run[0])
            position = run.end()
        parts += _of_word(word[position:])
    return parts


def _plain(text: str) -> str:
    """Fold for comparison; `readFile` and `read_file` are two words each. Hangul and kana stay composed."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", unicodedata.normalize("NFKC", text)).casefold()
    if split.isascii():
        return split
    marks = "".join(c for c in unicodedata.normalize("NFD", split) if not "\u0300" <= c <= "\u036f")
    return unicodedata.normalize("NFC", marks)


def _of_word(word: str) -> list[str]:
    return [word, word[:STEM]] if len(word) > STEM else [word] if word and word not in STOP_WORDS else []


def _pairs(run: str) -> list[str]:
    return [*run, *(run[i : i + 2] for i in range(len(run) - 1))]


def scores(query: str, documents: Mapping[str, Counter[str]]) -> dict[str, float]:
    """Return how well each document fits the query, by name; 0 if it has no word of it."""
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
