"""Find the tools that fit a query best: by words, and by embeddings if they are given."""

import logging
import math
from collections.abc import Collection, Sequence

from langchain_core.embeddings import Embeddings

from donewhen.graph.tools.toolbox import Toolbox
from donewhen.state.language.selection import scores

FUSE = 60
"""The constant of reciprocal rank fusion: the higher it is, the less the first ranks count."""
REMEMBERED = 256
"""The number of query vectors kept."""
_log = logging.getLogger("donewhen.tools")


class ToolFinder:
    """Rank tools by BM25, and with `embeddings` (LangChain) by the fusion of both rankings.

    Each text is embedded once per process. If embedding fails, BM25 alone is used and the failure is logged.
    Embeddings report no usage, so their cost is not in the ledger.
    """

    def __init__(self, embeddings: Embeddings | None = None) -> None:
        self._embeddings = embeddings
        self._texts: dict[str, Sequence[float]] = {}
        self._queries: dict[str, Sequence[float]] = {}

    async def best(self, query: str, toolbox: Toolbox) -> list[str]:
        """Return the names of all tools of the toolbox, best first; ties go to the earlier."""
        fit = scores(query, {name: toolbox[name].terms for name in toolbox})
        by_words = sorted(fit, key=lambda name: -fit[name])
        if self._embeddings is None or not query.strip():
            return by_words
        try:
            similar = await self._similarities(self._embeddings, query, toolbox)
        except Exception as error:
            _log.warning("tools are found by words alone: %s: %s", type(error).__name__, error)
            return by_words
        by_meaning = sorted(by_words, key=lambda name: -similar[name])
        orders = ([name for name in by_words if fit[name] > 0], by_meaning)
        places = [{name: place for place, name in enumerate(order)} for order in orders]
        fused = {name: sum(1 / (FUSE + place[name]) for place in places if name in place) for name in fit}
        return sorted(by_words, key=lambda name: -fused[name])

    async def _similarities(self, embeddings: Embeddings, query: str, toolbox: Toolbox) -> dict[str, float]:
        texts = {name: toolbox[name].description for name in toolbox}
        if new := [text for text in dict.fromkeys(texts.values()) if text not in self._texts]:
            self._texts |= zip(new, await embeddings.aembed_documents(new), strict=True)
        if query not in self._queries:
            self._queries[query] = await embeddings.aembed_query(query)
            while len(self._queries) > REMEMBERED:
                del self._queries[next(iter(self._queries))]
        wanted = self._queries[query]
        return {name: _cosine(wanted, self._texts[text]) for name, text in texts.items()}

    async def choose(self, query: str, toolbox: Toolbox, top: int, always: Collection[str] = ()) -> list[str]:
        """Return the `top` best names, those in `always` first, in the toolbox's order; all if there are few."""
        if len(toolbox) <= top:
            return list(toolbox)
        order = await self.best(query, toolbox)
        first = [name for name in order if name in always]
        best = {*first, *[name for name in order if name not in always][: max(top - len(first), 0)]}
        return [name for name in toolbox if name in best]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = math.sqrt(sum(x * x for x in one) * sum(y * y for y in other))
    return sum(x * y for x, y in zip(one, other, strict=True)) / lengths if lengths else 0.0
