"""Whether a quote stands in a text: as a reader would see it, and never with a number cut into another."""

import re
import unicodedata
from collections.abc import Sequence

_TYPOGRAPHY = str.maketrans("‘’‚‛“”„‟«»‐‑‒–—−⁄", '\'\'\'\'""""""------/')
_SPACES = re.compile(r"\s+")
_SMALL = re.compile(r"[\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u209c\u2150-\u215f\u2189\u2460-\u249b]")
_APART = {"<super>": "^", "<sub>": "_", "<fraction>": "_", "<circle>": " "}
"""Digits that stand for something else than a digit: 10² is not 102, and 1½ not 11/2."""
_ESCAPE = re.compile(r"((?:\\u[0-9a-fA-F]{4})+)|\\([\"\\/])|\\[nrt]")
_WRAPPING = " \"'`."
_NUMBER_BEFORE = r"(?<!\d)(?<!\d[.,'_^])(?<!(?<!\w)-)"
_NUMBER_AFTER = r"(?!\d|[.,']\d|\^|_\d|e[+-]?\d+(?!\w))"


def fold(text: str) -> str:
    """Text for comparing quotes: Unicode form, case, white space and typographic quotes do not matter."""
    normal = unicodedata.normalize("NFKC", _SMALL.sub(_apart, text))
    return _SPACES.sub(" ", normal.translate(_TYPOGRAPHY).casefold()).strip()


def _apart(small: re.Match[str]) -> str:
    kind = unicodedata.decomposition(small[0]).partition(" ")[0]
    return _APART.get(kind, "") + unicodedata.normalize("NFKC", small[0])


def readings(text: str) -> tuple[str, ...]:
    """The folded forms in which a text may be quoted: as it stands, and with the escapes of JSON read."""
    plain = _ESCAPE.sub(_unescaped, text) if "\\" in text else text
    return (fold(text),) if plain == text else (fold(text), fold(plain))


def _unescaped(escape: re.Match[str]) -> str:
    if escape[1]:
        units = bytes.fromhex(escape[1].replace("\\u", ""))
        return units.decode("utf-16-be", "surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return escape[2] or " "


def occurs(quote: str, text: str) -> bool:
    """Whether a quote really stands in a text, as a reader would see it."""
    return stands_in(quote, readings(text))


def stands_in(quote: str, wholes: Sequence[str]) -> bool:
    """As `occurs`, in the readings of a text.

    Quotation marks and dots around the quote are the model's own, and it may have escaped what it quotes. What begins
    or ends with a number must begin or end with the whole of it: "5 files" does not stand in "15 files".
    """
    needles = {needle for reading in readings(quote) for needle in _bare(reading)}
    return any(needle in whole and _whole_numbers(needle, whole) for needle in needles if needle for whole in wholes)


def _bare(needle: str) -> tuple[str, str]:
    return needle, needle.strip(_WRAPPING)


def _whole_numbers(needle: str, whole: str) -> bool:
    """Whether the needle stands somewhere in the text without cutting a number."""
    before = _NUMBER_BEFORE if re.match(r"[.,]?\d", needle) else ""
    after = _NUMBER_AFTER if re.search(r"\d[.,]?\Z", needle) else ""
    return not (before or after) or re.search(before + re.escape(needle) + after, whole) is not None
