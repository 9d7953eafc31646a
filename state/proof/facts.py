"""What a result states: the numbers, dates, ids and names of files in it that nothing the step saw supports (V03)."""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate, combinations, pairwise

from donewhen.state.pattern import pattern
from donewhen.state.proof.quotes import HASH_CHARS, regrouped, tokens, undotted

SMALL = 12
"""Whole numbers up to this are counts and positions that anybody can make; they are left alone."""
MOST = 20
"""Facts that are named; a result that invents more has been marked enough."""
MOST_NUMBERS = 60
"""Confirmed numbers of a result out of which others may follow."""
PERCENT = frozenset(("%", "percent", "prozent", "pct", "per", "pour", "por"))
_COUNTS = {"k": 1e3, "tsd": 1e3, "thousand": 1e3, "万": 1e4, "m": 1e6, "mio": 1e6, "million": 1e6, "millions": 1e6,
           "億": 1e8, "亿": 1e8, "bn": 1e9, "mrd": 1e9, "billion": 1e9}  # fmt: skip
"""What a number is multiplied with by the word behind it."""
_UNITS = {
    **{word: (1 / count,) for word, count in _COUNTS.items()},
    **{f"{unit}{end}": (1000.0**-n, 1024.0**-n) for n, unit in enumerate("kmgt", 1) for end in ("", "b", "ib")},
    **dict.fromkeys(("km", "kg", "l"), (1e-3,)), **dict.fromkeys(("g", "ml", "mm", "mg", "ms"), (1e3, 1e6)),
    **dict.fromkeys(("s", "sec", "seconds", "sekunden"), (1e-3, 60.0, 3600.0)),
    **dict.fromkeys(("min", "minutes", "minuten"), (1 / 60, 60.0)),
    **dict.fromkeys(("h", "hour", "hours", "stunden"), (1 / 60, 1 / 3600)),
    "m": (1e-6, 1e3, 1e-2),
}  # fmt: skip
"""By which factors a number in this unit may differ from what was seen: 1234567 bytes are 1.2 MB, 18402 are 1.84万."""
_MONTHS = {
    name: month
    for month, names in enumerate(
        ("jan ene", "feb fév fev", "mar mär", "apr avr abr", "may mai", "jun juin giu", "jul juil lug", "aug ago aoû",
         "sep set", "oct okt ott", "nov", "dec dez déc dic"), 1
    )
    for name in names.split()
}  # fmt: skip
"""How their names begin."""
_NUMBER = pattern(r"-?\d{1,15}(?:\.\d{1,15})?")
_DATED = pattern(r"\d{1,4}[-/]\d{1,2}(?:[-/]\d{1,4})?|\d{1,2}\.\d{1,2}(?:\.(?:\d{4}|\d\d))?")
_V = pattern(r"(?<![\w.])v(?=\d+\.\d)", re.IGNORECASE)
"""Of v20.11.1, which is 20.11.1 too."""
_VERSION = pattern(r"\d+\.\d+(?=\.\d)")
_HASH = pattern(r"[0-9a-f]{7,31}")
_CLOCK = pattern(
    r"(?:下午|午後|오후)\s?(?P<after>\d{1,2})[:时時点點시]\s?(?P<after_past>\d\d)?[分분]?"
    r"|(?<![\w.,-])(?:(?P<date>(?:19|20)\d{6})t(?P<hms>\d{6})|(?<!:)(?:(?P<half>\d{1,2})(?:[:.](?P<past>\d\d))?\s?(?P<noon>[ap])\.?m\b"
    r"|(?P<hour>\d{1,2})(?:\s?h\s?(?P<minute>\d\d)(?!\w)|\.(?P<minutes>\d\d)(?=\s?uhr\b))))",
    re.IGNORECASE,
)
"""Times as calendars and people write them: 20261124T093000, 2:30 pm, 14 h 30, 9.30 Uhr."""
_ZONE = pattern(r"(?:utc|gmt)-?\d{1,2}")
_GROUPS = pattern(r"(?<![\w.,])[a-z+(]{0,2}\d+\)?(?:[ ()/-]{1,3}\d+)+(?:[.,]\d+)?(?!\d)", re.IGNORECASE)
_OBSERVATION = pattern(r"\b[^\W\d]\w*\.(?:\d+|result)\b")
_LISTED = pattern(r"^\s*(?:[-*]\s*)?\d{1,3}[.)]\s", re.MULTILINE)
_FILE = pattern(
    r"(?<![\w@.-])[\w-]+\.(?:md|txt|[ct]sv|jsonl?|ya?ml|toml|xml|html?|css|py|tsx?|jsx|java|go|rs|rb|sh|sql|pdf"
    r"|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|zip|gz|log|ini|cfg|conf|parquet|ipynb|eml)\b",
    re.IGNORECASE,
)


def unconfirmed(result: str, sources: Iterable[str], most: int = MOST, *, shares: bool = False) -> list[str]:
    """The facts in a result that stand in no source and do not follow from those that do: the first 20.

    A rounded number follows, in per cent where the result speaks of that (or `shares`), in another unit where it names
    one, and a sum, difference, product or share of numbers of the result that are confirmed. Whole numbers up to 12,
    the numbering of lists and the ids of observations are no facts.
    """
    seen, result = Sources(sources), _V.sub("", result)
    plain = _LISTED.sub("\n", _OBSERVATION.sub(lambda found: found[0] if _FILE.search(found[0]) else " ", result))
    stated = tokens(_GROUPS.sub(lambda found: seen.joined(found[0]), clocked(undotted(plain))), ("%",))
    factors = (100.0,) if shares or not PERCENT.isdisjoint(stated) else ()
    units = {token: _UNITS.get(unit, ()) for token, unit in pairwise(stated)}
    facts = [token for token in dict.fromkeys(stated) if is_fact(token)]
    open_facts = [token for token in facts if not seen.supports(token, (*factors, *units.get(token, ())))]
    if open_facts:
        known = [float(n) for n in stated if _NUMBER.fullmatch(n) and n not in open_facts and seen.supports(n, factors)]
        for _ in ("a total", "a share of it"):
            derived = sorted(_derived(known) | {abs(factor - one) for factor in factors for one in known})
            followed = [token for token in open_facts if _near(token, derived, (1.0, *factors))]
            open_facts = [token for token in open_facts if token not in followed]
            known += map(float, followed)
    files = [found[0] for found in _FILE.finditer(result) if not seen.names(found[0].casefold())]
    return list(dict.fromkeys([*open_facts, *files]))[:most]


class Sources:
    """What was observed or said, to look facts up in. Texts are read in order, and only as far as it takes."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._unread = iter(texts)
        self._read: list[str] = []
        self.tokens: set[str] = set()
        self.parts: set[int] = set()
        self.values: list[float] = []
        """In order, without their signs."""

    def _read_on(self) -> bool:
        """Read one more text; False if there is none."""
        if (text := next(self._unread, None)) is None:
            return False
        said = tokens(text)
        parted = "," in text or not text.isascii()
        new = {*said, *(tokens(text, commas_part=True) if parted else ())}
        for other in (regrouped(text), clocked(text), _V.sub("", text)):
            new |= set() if other == text else {*tokens(other)}
        new |= {str(int(part)) for token in new if _DATED.fullmatch(token) for part in re.findall(r"\d+", token)}
        new |= {found[0] for token in new if (found := _VERSION.match(token))}
        new -= self.tokens
        self._read.append(text.casefold())
        self.tokens |= new
        self.parts |= {int(part) for token in new for part in re.findall(r"\d+", token) if len(part) < 10}
        self.parts |= {_MONTHS[at] for token in new for at in (token[:3], token[:4]) if at in _MONTHS}
        values = {abs(float(token)) for token in new if _NUMBER.fullmatch(token)}
        values |= {
            abs(float(n)) * _COUNTS[word] for n, word in pairwise(said) if word in _COUNTS and _NUMBER.fullmatch(n)
        }
        self.values = sorted({*self.values, *values})
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
        whole = regrouped(number)
        return whole if whole != number and all(map(self.supports, tokens(f" {whole} "))) else number

    def supports(self, token: str, factors: Collection[float] = ()) -> bool:
        """Whether it was seen: as it is, rounded, times one of the factors, or as a date written in another order."""
        while not (found := self._supports(token, factors)) and self._read_on():
            pass
        return found

    def _supports(self, token: str, factors: Collection[float]) -> bool:
        if token in self.tokens or _near(token, self.values, (1.0, *factors)):
            return True
        if _DATED.fullmatch(token) and (token.count(".") != 1 or "0" in (token[0], token.partition(".")[2][0])):
            return all(int(part) in self.parts for part in re.findall(r"\d+", token))
        if _HASH.fullmatch(token) and not token.isdigit():
            return any(seen.startswith(token) for seen in self.tokens if len(seen) >= HASH_CHARS)
        return token.isdigit() and len(token) == 4 and int(token) in self.parts


def clocked(text: str) -> str:
    """The text with its times as 14:30, and compact ones with their date before them."""
    return _CLOCK.sub(_clock, text)


def _clock(found: re.Match[str]) -> str:
    if found["date"]:
        date, time = found["date"], found["hms"]
        return f"{date[:4]}-{date[4:6]}-{date[6:]} {time[:2]}:{time[2:4]}:{time[4:]}"
    if found["half"]:
        return f"{int(found['half']) % 12 + 12 * (found['noon'] in 'pP')}:{found['past'] or '00'}"
    if found["after"]:
        return f"{int(found['after']) % 12 + 12}:{found['after_past'] or '00'}"
    return f"{int(found['hour'])}:{found['minute'] or found['minutes']}"


def is_fact(token: str) -> bool:
    """Whether a token states something that cannot be guessed: a number beyond the small ones, a date, an id."""
    if _NUMBER.fullmatch(token):
        return "." in token or abs(int(token)) > SMALL
    digits = sum(map(str.isdigit, token))
    named = digits > 0 and len(token) > 2 and (digits > 1 or "-" in token)
    return bool(_DATED.fullmatch(token)) or (named and not _ZONE.fullmatch(token))


def _near(token: str, values: Sequence[float], factors: Collection[float]) -> bool:
    """Whether the token is one of the values, which are in order, times one of the factors: as exactly as it says."""
    if not _NUMBER.fullmatch(token):
        return False
    wanted, half = abs(float(token)), 0.5 * 10.0 ** -len(token.partition(".")[2]) * (1 + 1e-9)
    for factor in factors:
        at = bisect_left(values, (wanted - half) / factor)
        if at < len(values) and values[at] <= (wanted + half) / factor:
            return True
    return False


def _derived(numbers: Sequence[float]) -> set[float]:
    """What follows from numbers by simple arithmetic: sums of neighbours, two of them together, per cents added."""
    few = list(dict.fromkeys(numbers))[:MOST_NUMBERS]
    found = {total for start in range(len(few)) for total in accumulate(few[start:])}
    for one, other in combinations(few, 2):
        found |= {one + other, one - other, one * other, *(a / b for a, b in ((one, other), (other, one)) if b)}
        found |= {total for a, b in ((one, other), (other, one)) for total in (a * (1 + b / 100), a * (1 - b / 100))}
        found |= {a / b - 1 for a, b in ((one, other), (other, one)) if b}
    return {abs(total) for total in found}
