"""Find an exact value in what somebody wrote: an id, an address, a path, an amount or a date, as a whole. Pure."""

import posixpath
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from donewhen.state.language.quantities import (
    Date,
    Measure,
    dates_in,
    measures_in,
    same_date,
    same_measure,
    without_dates,
)
from donewhen.state.pattern import pattern
from donewhen.state.values import fold_text

HERE = (".", "*")
"""Paths that stand in a text by chance."""
SHORT_ID = 5
"""Ids of fewer characters are often ids of several things."""

_EDGES = "\"'`()[]{}<>,;:!?“”‘’„«»‹›|，。；：！？、（）【】「」『』《》"
_UNSPACED = pattern(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
"""Letters of scripts that put no space between words."""
MIXED = pattern(r"\A(?=.*\d)(?=.*[A-Z])(?=.*[a-z])[A-Za-z0-9_-]+")
"""Ids that are compared with regard to case."""
_SIGNED_ID = pattern(r"[^\w\s/\\.~*+-](?=\w*\d)(?=\w*[^\W\d_])(\w+)")


@dataclass(frozen=True)
class PersonsText:
    """A text that a person wrote or approved, and the amounts and dates in it."""

    exact: str
    folded: str
    measures: frozenset[Measure]
    dates: tuple[Date, ...]
    dateless: str
    """The folded text without its dates, so that a number in a date is not taken for an id."""

    @classmethod
    def read(cls, text: str) -> "PersonsText":
        """Read the amounts and dates in a text."""
        exact = unicodedata.normalize("NFKC", text)
        measures, dates = frozenset(measures_in(exact)), tuple(dates_in(exact))
        return cls(exact, fold(text), measures, dates, fold(without_dates(exact)))

    @classmethod
    def quantities_of(cls, text: str) -> "PersonsText":
        """Read only the amounts and dates in a text, so that its words name nothing."""
        exact = unicodedata.normalize("NFKC", text)
        return cls("", "", frozenset(measures_in(exact)), tuple(dates_in(exact)), "")

    def names(
        self, exact: str, forms: Sequence[str], measures: Collection[Measure], dates: Sequence[Date], *, named: bool
    ) -> bool:
        """Return whether the text names a value as a whole.

        `forms` are its spellings; `measures` and `dates` are its readings as an amount or a date. `named` says that its
        argument names something, so that a short number is an id.
        """
        if exact in HERE:
            return False
        if named and exact.isdigit() and len(exact) < SHORT_ID:
            return stands_in(exact, self.dateless)
        if measures:
            if any(same_measure(one, other) for one in measures for other in self.measures):
                return True
            if any(unit for _, unit in measures):
                return False
        if dates:
            return any(same_date(one, other) for one in dates for other in self.dates)
        if MIXED.fullmatch(exact):
            return stands_in(exact, self.exact)
        return any(stands_in(form, self.folded) for form in forms) or _lies_within(forms[-1], self.folded)


def _lies_within(path: str, text: str) -> bool:
    """Return whether a path lies in a folder that stands in the text, written as one: `reports/` or `./a/reports`."""
    if "/" not in path or "://" in path or path.startswith(("..", "~")):
        return False
    parts = path.split("/")
    folders = ("/".join(parts[:end]) for end in range(1, len(parts)))
    return any(
        folder and (stands_in(f"{folder}/", text) or ("/" in folder and stands_in(folder, text))) for folder in folders
    )


def fold(text: str) -> str:
    """Return a text for comparison, where forms of a character that look alike are the same."""
    return fold_text(text if text.isascii() else unicodedata.normalize("NFKC", text))


def strip_marks(text: str) -> str:
    """Return the text without surrounding brackets and marks; a leading dot may belong to a path."""
    return text.strip().lstrip(_EDGES).rstrip(f"{_EDGES}.…")


def spellings(plain: str) -> tuple[str, ...]:
    """Return a value as it is and without the marks around it, and the shortest form of a path."""
    forms = {plain: None, strip_marks(plain) or plain: None, without_sign(plain): None}
    if ("/" in plain or "\\" in plain) and "://" not in plain:
        forms[posixpath.normpath(plain.replace("\\", "/"))] = None
    return tuple(forms)


def without_sign(plain: str) -> str:
    """Return an id of letters and digits without the sign that some write before it: `#W2002` is `W2002`."""
    return match[1] if (match := _SIGNED_ID.fullmatch(plain)) else plain


def stands_in(value: str | Decimal, text: str) -> bool:
    """Return whether the text contains the value as a token of its own; an amount in any spelling."""
    if isinstance(value, Decimal):
        return any(value == number for number, _ in measures_in(text))
    start = text.find(value) if value else -1
    while start >= 0:
        end = start + len(value)
        if not _continues(text, start - 1, -1, value[0]) and not _continues(text, end, 1, value[-1]):
            return True
        start = text.find(value, start + 1)
    return False


def _continues(text: str, place: int, step: Literal[-1, 1], edge: str) -> bool:
    """Return whether a token that ends before `place`, read in the direction of `step`, continues there."""
    if not 0 <= place < len(text):
        return False
    sign, beyond = text[place], text[place + step] if 0 <= place + step < len(text) else " "
    if not edge.isalnum() and edge not in "_)" and not _UNSPACED.match(sign):
        return sign.isalnum() or sign in "_./\\~-*" or (step < 0 and sign == ":" and edge in "/\\" and beyond.isalnum())
    if sign.isalnum() or sign == "_":
        return edge.isalnum() and not _UNSPACED.match(sign) and not _UNSPACED.match(edge)
    if sign in "@\\~" or (sign == "/" and step < 0):
        return beyond != "." or (place > 1 and not text[place - 2].isspace())
    inner = "/.-+%&?#~" if step < 0 else "/.-+%&?=:"
    return sign in inner and (beyond.isalnum() or beyond in "/\\_") and not _UNSPACED.match(beyond)
