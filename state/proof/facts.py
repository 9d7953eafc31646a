"""What a result states: the numbers, dates, ids and names of files in it that nothing the step saw supports (V03)."""

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate, combinations

from donewhen.state.proof.quotes import tokens

SMALL = 12
"""Whole numbers up to this are counts and positions that anybody can make; they are left alone."""
MOST = 20
"""Facts that are named; a result that invents more has been marked enough."""
MOST_NUMBERS = 60
"""Confirmed numbers of a result out of which others may follow."""
DECIMALS = range(5)
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
_DATED = re.compile(r"\d{1,4}[-/.]\d{1,2}(?:[-/.]\d{1,4})?")
_OBSERVATION = re.compile(r"\b[^\W\d]\w*\.(?:\d+|result)\b")
_LISTED = re.compile(r"^\s*(?:[-*]\s*)?\d{1,3}[.)]\s", re.MULTILINE)
_SPACED = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?:[.,]\d+)?(?!\d)")
_FILE = re.compile(
    r"(?<![\w@.-])[\w-]{2,}\.(?:md|txt|[ct]sv|jsonl?|ya?ml|toml|xml|html?|css|py|tsx?|jsx|java|go|rs|rb|sh|sql|pdf"
    r"|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|zip|gz|log|ini|cfg|conf|parquet|ipynb|eml)\b",
    re.IGNORECASE,
)


def unconfirmed(result: str, sources: Iterable[str], most: int = MOST) -> list[str]:
    """The facts in a result that stand in no source and do not follow from those that do: the first 20.

    A rounded number follows, and a sum, difference, product or share of numbers of the result that are confirmed.
    Whole numbers up to 12, the numbering of lists and the ids of observations are no facts.
    """
    seen = Sources(sources)
    plain = _LISTED.sub("\n", _OBSERVATION.sub(lambda found: found[0] if _FILE.search(found[0]) else " ", result))
    stated = tokens(_SPACED.sub(lambda found: seen.joined(found[0]), plain))
    open_facts = [token for token in dict.fromkeys(stated) if is_fact(token) and not seen.supports(token)]
    if open_facts:
        derived = _rounded(_derived([float(n) for n in stated if _NUMBER.fullmatch(n) and seen.supports(n)]))
        open_facts = [token for token in open_facts if not _among(token, derived)]
    files = [found[0] for found in _FILE.finditer(result) if not seen.names(found[0].casefold())]
    return list(dict.fromkeys([*open_facts, *files]))[:most]


class Sources:
    """What was observed or said, to look facts up in. Texts are read in order, and only as far as it takes."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._unread = iter(texts)
        self._read: list[str] = []
        self.tokens: set[str] = set()
        self.parts: set[int] = set()
        self.values: dict[int, set[float]] = {}

    def _read_on(self) -> bool:
        """Read one more text; False if there is none."""
        if (text := next(self._unread, None)) is None:
            return False
        parted = "," in text or not text.isascii()
        new = {*tokens(text), *(tokens(text, commas_part=True) if parted else ())} - self.tokens
        self._read.append(text.casefold())
        self.tokens |= new
        self.parts |= {int(part) for token in new for part in re.findall(r"\d+", token) if len(part) < 10}
        for decimals, values in _rounded(float(token) for token in new if _NUMBER.fullmatch(token)).items():
            self.values.setdefault(decimals, set()).update(values)
        return True

    def names(self, file: str) -> bool:
        """Whether a name, in lower case, stands somewhere."""
        if any(file in text for text in self._read):
            return True
        while self._read_on():
            if file in self._read[-1]:
                return True
        return False

    def joined(self, number: str) -> str:
        """Digits in groups as one number, if that was seen."""
        whole = number.replace(" ", "")
        return whole if all(map(self.supports, tokens(f" {whole} "))) else number

    def supports(self, token: str) -> bool:
        """Whether it was seen: as it is, rounded, as a share in per cent, or as a date written in another order."""
        while not (found := self._supports(token)) and self._read_on():
            pass
        return found

    def _supports(self, token: str) -> bool:
        if token in self.tokens or _among(token, self.values):
            return True
        if _DATED.fullmatch(token) and (token.count(".") != 1 or "0" in (token[0], token.partition(".")[2][0])):
            return all(int(part) in self.parts for part in re.findall(r"\d+", token))
        return token.isdigit() and len(token) == 4 and int(token) in self.parts


def is_fact(token: str) -> bool:
    """Whether a token states something that cannot be guessed: a number beyond the small ones, a date, an id."""
    if _NUMBER.fullmatch(token):
        return "." in token or abs(int(token)) > SMALL
    digits = sum(map(str.isdigit, token))
    return bool(_DATED.fullmatch(token)) or (digits > 0 and len(token) > 2 and (digits > 1 or "-" in token))


def _rounded(values: Iterable[float]) -> dict[int, set[float]]:
    """By number of decimals: the values, what they are in per cent, and without their sign."""
    known = {abs(value) for value in values}
    both = known | {value * 100 for value in known}
    return {decimals: {round(value, decimals) for value in both} for decimals in DECIMALS}


def _among(token: str, values: dict[int, set[float]]) -> bool:
    if not _NUMBER.fullmatch(token):
        return False
    decimals = len(token.partition(".")[2])
    return round(abs(float(token)), decimals) in values.get(decimals, ())


def _derived(numbers: Sequence[float]) -> set[float]:
    """What follows from numbers by simple arithmetic: sums of neighbours, and two of them taken together."""
    few = list(dict.fromkeys(numbers))[:MOST_NUMBERS]
    found = {total for start in range(len(few)) for total in accumulate(few[start:])}
    for one, other in combinations(few, 2):
        found |= {one + other, abs(one - other), one * other, *(a / b for a, b in ((one, other), (other, one)) if b)}
    return found
