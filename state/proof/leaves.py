"""Where the values of delivered data come from: for each, the observation that says it; and what nothing says (V03)."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from donewhen.state.proof.facts import SMALL, Sources, is_fact, unconfirmed
from donewhen.state.proof.quotes import token_line, tokens
from donewhen.state.proof.receipt import Evidence, FieldRow

MOST_FIELDS = 1_000
"""Values of which the source is looked up."""
QUOTE_CHARS = 200


class SourceText:
    """Something that was observed or said, under its id."""

    def __init__(self, id: str, text: str, *, firsthand: bool = True) -> None:
        self.id = id
        self.text = text
        self.firsthand = firsthand
        """Not the agent's own words, such as the result of a step."""

    @cached_property
    def _readings(self) -> tuple[str, ...]:
        """Its words and numbers in a row, in both ways in which a comma between digits can be read."""
        return tuple({token_line(tokens(self.text)), token_line(tokens(self.text, commas_part=True))})

    @cached_property
    def _facts(self) -> Sources:
        return Sources([self.text])

    def says(self, leaf: "_Leaf") -> bool:
        """Whether the value stands here, by its words and numbers in order."""
        return any(form in reading for form in leaf.forms for reading in self._readings)

    def dates(self, leaf: "_Leaf") -> bool:
        """Whether its dates stand here, perhaps written in another way."""
        return all(map(self._facts.supports, leaf.facts))


class _Leaf:
    """One value of the data."""

    def __init__(self, path: str, key: str, value: Any) -> None:
        self.path = path
        said = value if isinstance(value, str) else json.dumps(value)
        self.facts = [token for token in tokens(said) if is_fact(token)]
        self.dated = any(sum(map(fact.count, "-/.")) == 2 for fact in self.facts)
        # A small number stands everywhere: it is found only beside its name.
        small = isinstance(value, int) and abs(value) <= SMALL
        self.quote = "" if isinstance(value, bool) else f"{key} {said}" if small else said
        forms = {token_line(tokens(f" {self.quote} ", commas_part=part)) for part in (False, True)}
        self.forms = tuple(form for form in forms if form)


def traced(data: Any, sources: Sequence[SourceText], told: Sequence[str] = ()) -> tuple[list[FieldRow], int]:
    """A row for each value of the data, and how many more there are. `told`: what supports values and has no id.

    Of several sources the one that says most of the data is named, first hand before second, the latest of equals. A
    value that is nobody's words, such as a rating, has no evidence; one that states a number, a date, an id or a file
    that nothing supports is unconfirmed.
    """
    values = list(_values(data))
    leaves = [_Leaf(path, key, value) for path, key, value in values[:MOST_FIELDS]]
    found = [[source.id for source in sources if source.says(leaf)] for leaf in leaves]
    often = Counter(id for said in found for id in said)
    rank = {source.id: (source.firsthand, often[source.id], place) for place, source in enumerate(sources)}
    loose: set[str] = set()
    if any(leaf.facts for leaf, said in zip(leaves, found, strict=True) if not said):
        stated = "\n".join(str(value) for _, _, value in values if isinstance(value, str | int | float))
        loose = set(unconfirmed(stated, [*told, *(source.text for source in sources)], MOST_FIELDS, shares=True))
    files = [fact for fact in loose if "." in fact and any(map(str.isalpha, fact))]
    rows: list[FieldRow] = []
    for leaf, said, (path, _, value) in zip(leaves, found, values, strict=False):
        is_open = not said and bool(loose.intersection([*leaf.facts, *(name for name in files if name in str(value))]))
        elsewhere = not said and leaf.dated and not is_open
        said = said or [source.id for source in sources if elsewhere and source.dates(leaf)]
        evidence: list[Evidence] = [{"observation": max(said, key=rank.__getitem__)}] if said else []
        if evidence and not elsewhere:
            evidence[0]["quote"] = leaf.quote[:QUOTE_CHARS]
        rows.append({"path": path, "evidence": evidence, "unconfirmed": is_open})
    return rows, len(values) - len(rows)


def _values(data: Any, path: str = "", key: str = "") -> Iterator[tuple[str, str, Any]]:
    """Path, nearest name and value of everything in the data that is neither object nor list, nor null."""
    if isinstance(data, Mapping):
        for name, below in data.items():
            yield from _values(below, f"{path}.{name}" if path else str(name), str(name))
    elif isinstance(data, list):
        for number, below in enumerate(data):
            yield from _values(below, f"{path}[{number}]", key)
    elif data is not None:
        yield path, key, data
