"""Trace each value of the structured result to the observation that contains it."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from donewhen.state.proof.quotes import token_line, tokens
from donewhen.state.proof.receipt import Evidence, FieldRow

MOST_FIELDS = 1_000
"""The most values that are traced."""
QUOTE_CHARS = 200
SMALL = 12
"""Whole numbers up to this occur in most texts, so they count only next to their name."""


class SourceText:
    """The text of an observation or statement, under its id."""

    def __init__(self, id: str, text: str, *, firsthand: bool = True) -> None:
        self.id = id
        self.text = text
        self.firsthand = firsthand
        """False for the agent's own words, such as the result of a step."""

    @cached_property
    def _readings(self) -> tuple[str, ...]:
        """The words and numbers in order, for both readings of a comma between digits."""
        return tuple({token_line(tokens(self.text)), token_line(tokens(self.text, commas_part=True))})

    def says(self, leaf: "_Leaf") -> bool:
        """Return whether the text contains the value's words and numbers in order."""
        return any(form in reading for form in leaf.forms for reading in self._readings)


class _Leaf:
    """One value of the result."""

    def __init__(self, path: str, key: str, value: Any) -> None:
        self.path = path
        value_text = value if isinstance(value, str) else json.dumps(value)
        small = isinstance(value, int) and abs(value) <= SMALL
        self.quote: str = "" if isinstance(value, bool) else f"{key} {value_text}" if small else value_text
        forms = {token_line(tokens(f" {self.quote} ", commas_part=part)) for part in (False, True)}
        self.forms: tuple[str, ...] = tuple(form for form in forms if form)


def trace_values(data: Any, sources: Sequence[SourceText]) -> tuple[list[FieldRow], int]:
    """Return a row for each value, and how many more there are.

    If several sources have a value, one is named: an observation rather than the agent's words, then the source of most
    values, then the latest. A value that is nowhere verbatim, such as a rating or a sum, has no evidence; the audit
    judges it.
    """
    values = list(leaf_values(data))
    leaves = [_Leaf(path, key, value) for path, key, value in values[:MOST_FIELDS]]
    ids_of_leaves = [[source.id for source in sources if source.says(leaf)] for leaf in leaves]
    counts = Counter(id for ids in ids_of_leaves for id in ids)
    rank = {source.id: (source.firsthand, counts[source.id], place) for place, source in enumerate(sources)}
    rows: list[FieldRow] = []
    for leaf, ids in zip(leaves, ids_of_leaves, strict=True):
        best: list[Evidence] = [{"observation": max(ids, key=rank.__getitem__)}] if ids else []
        if best:
            best[0]["quote"] = leaf.quote[:QUOTE_CHARS]
        rows.append({"path": leaf.path, "evidence": best})
    return rows, len(values) - len(rows)


def leaf_values(data: Any, path: str = "", key: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yield path, nearest name and value of everything in the result except objects, lists and null."""
    if isinstance(data, Mapping):
        for name, below in data.items():
            yield from leaf_values(below, f"{path}.{name}" if path else str(name), str(name))
    elif isinstance(data, list):
        for number, below in enumerate(data):
            yield from leaf_values(below, f"{path}[{number}]", key)
    elif data is not None:
        yield path, key, data
