"""Trace each value of the structured result to the observation that contains it."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

from donewhen.state.language.quantities import dates_in, months_in
from donewhen.state.pattern import pattern
from donewhen.state.proof.quotes import (
    COMMA,
    POINT,
    Marks,
    marks_of_quote,
    pieces_of,
    read_plainly,
    shown_marks,
    token_line,
    tokens,
    tokens_of_plain,
)
from donewhen.state.proof.receipt import Evidence, FieldRow, OutputRow

MOST_FIELDS = 1_000
"""The most values that are traced."""
QUOTE_CHARS = 200
ROOT = "output"
"""The name of a result that is a single value."""
SMALL = 12
"""Whole numbers up to this occur in most texts, so they count only next to their name."""
_DAY = pattern(r"(\d{4}-\d\d(?:-\d\d(?=\Z|T))?)(?:T00:00(?::00(?:\.0+)?)?Z?)?")
"""A date, midnight or a month, as JSON has them."""
_UNCERTAIN = pattern(r"\d(?:,\d|-(?!\w)|[. ]\d{3}(?!\d))")
"""What may have another reading: one number or two, thousands or decimals, a minus behind."""
_SEPARATORS = str.maketrans("", "", ".,' ")
_POWER = pattern(r"(?<=\d)[e^].*")


class Form(NamedTuple):
    """Words and numbers that stand for a value."""

    line: str
    stems: tuple[str, ...]
    """What a text without separators has wherever it has one of them: 15 for 1.50e5 and -$1.5."""

    @classmethod
    def of(cls, line: str) -> "Form":
        """Return the form with this line of tokens."""
        return cls(line, tuple(_POWER.sub("", token.translate(_SEPARATORS).lstrip("-0")) for token in line.split()))


Forms = Mapping[Marks, Sequence[Form]]
"""The forms of a value, by what marks mean in the text."""


class NumberReading(NamedTuple):
    """A way to read the numbers of a text."""

    marks: Marks
    turned: bool


class _Piece:
    """A piece of a text. It is read word by word only if it may have a value, because that takes the most time."""

    def __init__(self, text: str) -> None:
        self.plain = read_plainly(text)
        self._bare = self.plain.translate(_SEPARATORS)

        self._lines: dict[NumberReading, str] = {}

    def read(self, reading: NumberReading) -> str:
        """Return the words and numbers in order, in this reading."""
        first = NumberReading(POINT, turned=False)
        if reading != first and not self._is_uncertain:
            return self.read(first)
        if reading not in self._lines:
            line = tokens_of_plain(self.plain, marks=reading.marks, turned=reading.turned)
            self._lines[reading] = token_line(line)
        return self._lines[reading]

    @cached_property
    def _is_uncertain(self) -> bool:
        return bool(_UNCERTAIN.search(self.plain))

    def may_say(self, stems: Iterable[str]) -> bool:
        """Return False if the piece lacks one of these."""
        return all(stem in self._bare for stem in stems)


class SourceText:
    """The text of an observation or statement, under its id."""

    def __init__(self, id: str, text: str, *, firsthand: bool = True) -> None:
        self.id = id
        self.text = text
        self.firsthand = firsthand
        """False for the agent's own words, such as the result of a step."""

    @cached_property
    def _pieces(self) -> list[_Piece]:
        return [_Piece(piece) for piece in pieces_of(self.text)]

    @cached_property
    def readings(self) -> tuple[NumberReading, ...]:
        """The ways to read its numbers: with both decimal marks unless they show which is right."""
        shown = shown_marks([piece.plain for piece in self._pieces])
        return tuple(NumberReading(*each) for each in product((shown,) if shown else (POINT, COMMA), (False, True)))

    def _read(self, reading: NumberReading) -> str:
        """Return the whole text in this reading."""
        return token_line(" ".join(piece.read(reading) for piece in self._pieces).split())

    @cached_property
    def _days(self) -> frozenset[str]:
        """The days and months that the text names; 12/10/2026 may be either of two."""
        plain = [piece.plain for piece in self._pieces]
        dates = {date for each in plain for date in dates_in(each, every_order=False) if date[0]}
        months = {f"{year:04}-{month:02}" for each in plain for year, month in months_in(each)}
        return frozenset(months | {f"{year:04}-{month:02}-{day:02}" for year, month, day in dates})

    def says(self, forms: Forms, day: str = "") -> bool:
        """Return whether the text contains the words and numbers of one of these forms in order, or the date."""
        return self._has(forms) or (bool(day) and day in self._days)

    def _has(self, forms: Forms) -> bool:
        for form in dict.fromkeys(form for each in forms.values() for form in each):
            likely = [piece for piece in self._pieces if piece.may_say(form.stems)]
            may_span = len(form.stems) > 1 and len(self._pieces) > 1
            may_span = may_span and all(any(piece.may_say([stem]) for piece in self._pieces) for stem in form.stems)
            if not likely and not may_span:
                continue
            for reading in self.readings:
                if form not in forms[reading.marks]:
                    continue
                if any(form.line in piece.read(reading) for piece in likely):
                    return True
                if may_span and form.line in self._read(reading):
                    return True
        return False


class _Leaf:
    """One value of the result."""

    def __init__(self, path: str, key: str, value: Any) -> None:
        self.path = path
        value_text = "" if isinstance(value, bool) else value if isinstance(value, str) else json.dumps(value)
        small = isinstance(value, int) and abs(value) <= SMALL
        self.quote: str = f"{key} {value_text}" if small and value_text else value_text
        is_text = isinstance(value, str)
        self.forms = _forms(self.quote, is_text)
        match = _DAY.fullmatch(value_text)
        self.day = match[1] if match else ""
        self.bare_forms: Forms = _forms(value_text, is_text) if small else self.forms
        """Those of the value without its name."""
        self.is_figure: bool = any(map(str.isdigit, value_text))
        """True for numbers, dates and ids: what is not a conclusion in words."""


def _forms(value: str, is_text: bool) -> Forms:
    """Return the forms of a value for each meaning of marks in a source; those in a number have only one meaning."""
    return {marks: _forms_in(value, marks_of_quote(marks) if is_text else (POINT,)) for marks in (POINT, COMMA)}


def _forms_in(value: str, marks: Sequence[Marks]) -> tuple[Form, ...]:
    ways = product(marks, (False, True))
    lines = (token_line(tokens(f" {value} ", marks=each, commas_part=part)) for each, part in ways)
    return tuple(map(Form.of, dict.fromkeys(filter(None, lines))))


def trace_values(data: Any, sources: Sequence[SourceText], known: Sequence[SourceText] = ()) -> OutputRow:
    """Return the row of the result, with a row for each value.

    If several sources have a value, one is named: an observation rather than the agent's words, then the source of most
    values, then the latest. A value that is nowhere verbatim, such as a rating or a sum, has no evidence. Numbers,
    dates and ids that stand in no observation and in none of the `known` texts are `unsourced`; the audit judges all.
    """
    values = list(leaf_values(data))
    leaves = [_Leaf(path, key, value) for path, key, value in values[:MOST_FIELDS]]
    ids_of_leaves = [[source.id for source in sources if source.says(leaf.forms, leaf.day)] for leaf in leaves]
    counts = Counter(id for ids in ids_of_leaves for id in ids)
    rank = {source.id: (source.firsthand, counts[source.id], place) for place, source in enumerate(sources)}
    firsthand = [source for source in sources if source.firsthand]
    rows, unsourced = list[FieldRow](), list[str]()
    for leaf, ids in zip(leaves, ids_of_leaves, strict=True):
        best: list[Evidence] = [{"observation": max(ids, key=rank.__getitem__)}] if ids else []
        if best:
            best[0]["quote"] = leaf.quote[:QUOTE_CHARS]
        rows.append({"path": leaf.path, "evidence": best})
        is_found = best and rank[best[0]["observation"]][0]
        looked_at = (*firsthand, *known) if firsthand and leaf.is_figure and not is_found else ()
        if looked_at and not any(source.says(leaf.bare_forms, leaf.day) for source in looked_at):
            unsourced.append(leaf.path or ROOT)
    return {"problem": "", "fields": rows, "more": len(values) - len(rows), "unsourced": unsourced}


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
