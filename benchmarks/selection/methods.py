"""Ways to find tools: ours, and others beside it. Each gives, for a catalogue, a function from a query to names."""

import hashlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping

from langchain_core.embeddings import Embeddings

from donewhen.state.language.selection import scores, terms

Search = Callable[[str], list[str]]
Method = Callable[[Mapping[str, str]], Search]
Split = Callable[[str], list[str]]


def words(text: str) -> list[str]:
    """Return the words between spaces and marks, without case."""
    return "".join(c if c.isalnum() else " " for c in text.casefold()).split()


def dictionary(text: str) -> list[str]:
    """Words as jieba's dictionary cuts Chinese; kana and Hangul by characters and spaces."""
    import jieba

    jieba.setLogLevel(logging.ERROR)
    return [word for word in jieba.lcut(text.casefold().replace("_", " ")) if word.strip()]


def bm25(split: Split) -> Method:
    """BM25 over these terms."""

    def method(tools: Mapping[str, str]) -> Search:
        documents = {name: Counter(split(f"{name} {text}")) for name, text in tools.items()}
        return lambda query: _ranked(split(query), documents)

    return method


def _ranked(query: list[str], documents: Mapping[str, Counter[str]]) -> list[str]:
    count, mean = len(documents), sum(sum(d.values()) for d in documents.values()) / len(documents)
    holding = Counter(term for document in documents.values() for term in document)

    def score(document: Counter[str]) -> float:
        norm = 1.2 * (0.25 + 0.75 * sum(document.values()) / mean)
        return sum(
            math.log(1 + (count - holding[t] + 0.5) / (holding[t] + 0.5)) * document[t] * 2.2 / (document[t] + norm)
            for t in set(query)
            if t in document
        )

    return sorted(documents, key=lambda name: -score(documents[name]))


def ours(tools: Mapping[str, str]) -> Search:
    """Rank like DoneWhen without embeddings."""
    documents = {name: Counter(terms(f"{name} {text}")) for name, text in tools.items()}

    def search(query: str) -> list[str]:
        fit = scores(query, documents)
        return sorted(fit, key=lambda name: -fit[name])

    return search


class HashedPairs(Embeddings):
    """A stand-in for an embedding model: pairs of characters hashed into 512 numbers. It knows no meaning."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        vector = [0.0] * 512
        plain = " ".join(text.casefold().split())
        for place in range(len(plain) - 1):
            digest = hashlib.blake2b(plain[place : place + 2].encode(), digest_size=4).digest()
            vector[int.from_bytes(digest) % 512] += 1
        return vector


METHODS: dict[str, Method] = {
    "keywords (what stands between spaces)": bm25(words),
    "a dictionary's words (jieba)": bm25(dictionary),
    "characters and pairs (ours)": ours,
}
