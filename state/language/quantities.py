"""Read amounts and dates as people write them: `1,200`, `€50`, `50 million EUR`, `three`, `3 December 2026`. Pure."""

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import partial

from donewhen.state.pattern import pattern
from donewhen.state.values import read_number

Measure = tuple[Decimal, str]
"""An amount and its unit, "" for none."""
Date = tuple[int, int, int]
"""Year, month and day; the year is 0 if it is not said."""

UNITS = {
    name: unit
    for unit, names in {
        "EUR": "€ eur euro euros",
        "USD": "$ usd dollar dollars us-dollar us$",
        "GBP": "£ gbp pound pounds pfund livres",
        "JPY": "¥ jpy yen 円",
        "CNY": "cny rmb yuan 元",
        "CHF": "chf franken francs",
        "INR": "₹ inr rupees",
        "%": "% percent prozent pourcent",
    }.items()
    for name in names.split()
}
SCALES = {
    name: Decimal(10) ** power
    for power, names in {
        2: "hundred hundert cent cien",
        3: "k thousand tausend mille mil 千",
        4: "万 萬",
        6: "million millions millionen mio mn millones",
        8: "億 亿",
        9: "billion billions bn milliarde milliarden milliard milliards",
        12: "trillion trillions billionen",
    }.items()
    for name in names.split()
}
NUMBERS = {
    name: Decimal(number)
    for number, names in {
        2: "two zwei deux dos",
        3: "three drei trois tres",
        4: "four vier quatre cuatro",
        5: "five fünf cinq cinco",
        6: "six sechs seis",
        7: "seven sieben sept siete",
        8: "eight acht huit ocho",
        9: "nine neun neuf nueve",
        10: "ten zehn dix diez",
        11: "eleven elf onze once",
        12: "twelve zwölf douze doce dozen dutzend",
    }.items()
    for name in names.split()
}
MONTHS = {
    name: number
    for number, names in {
        1: "january jan januar janvier enero",
        2: "february feb februar février febrero",
        3: "march mar märz mars marzo",
        4: "april apr avril abril",
        5: "may mai mayo",
        6: "june jun juni juin junio",
        7: "july jul juli juillet julio",
        8: "august aug août agosto",
        9: "september sep sept septembre septiembre",
        10: "october oct oktober okt octobre octubre",
        11: "november nov novembre noviembre",
        12: "december dec dezember dez décembre diciembre",
    }.items()
    for name in names.split()
}

_UNSPACED = pattern(
    r"(?![元円千万萬億亿])[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]"
)
"""Letters of scripts that put no space between words, but for units."""
_BEFORE = pattern(r"(?<![^\W\d_])([^\W\d_]{2,4}) ?\Z")
_SIGNS = "$€£¥₹"
_NUMBER = pattern(
    r"(?<![\w.,'/@#-])#?([-+]?)([$€£¥₹]?) ?(\d[\d.,']*)(%?)"
    r"(?:(?=[^\w@%/:-]|[/:-](?!\d)|\Z)|(?<=\d)(?=[^\W\d_]{1,3}(?![\w@])(?![-/:]\d))|(?<=[\d%])(?=[\u3040-\u9fff]))"
)
_SPACED = pattern(r"(?<![\w.,-])\d{1,3}(?: \d{3})+(?![\w-])")
_AFTER = pattern(r"[ -]?([^\W\d_]+|[$€£¥₹%元円])")
_PLAIN = pattern(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_GROUPED = (pattern(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?"), pattern(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?"), pattern(r"\A\d+,\d+"))
_WORD = pattern(r"[^\W\d_]+")
_NUMBERS = pattern(
    r"(?<!\d)(?<!(?<![^\W\d_])[vV])(?<!\d\.)(?!\d+\.\d+\.\d+\.\d|\d\d?/\d\d?/\d\d?/\d|\d\d?-\d\d?-\d\d?-\d)"
    r"(\d{1,4})([-/.])(\d\d?)\2(\d{1,4})(?!\d)"
)
"""Not the address 10.12.10.15, nor the version v2.11.30, but INV2026-10-23; of 1/3/10/2026 the date at the end."""
_SHORT = pattern(r"(?<![\d.])(\d\d?)\.(\d\d?)\.(?!\d)")
_DAY_MONTH = pattern(r"(?<!\d)(\d\d?)(?:st|nd|rd|th|\.|er)?(?: of| de)? ([^\W\d_]{3,10})\.?(?:,? (?:de )?(\d{4}))?")
_MONTH_DAY = pattern(r"([^\W\d_]{3,10})\.? (\d\d?)(?:st|nd|rd|th)?(?!\d)(?:,? (\d{4}))?")
_CJK = pattern(r"(\d\d?)月(\d\d?)日")
_YEAR_MONTH_DAY = pattern(r"(?<!\d)(\d{4}) *年 *(\d\d?) *月 *(\d\d?)(?!\d)")
_MONTH_YEAR = pattern(r"(?<![^\W\d_])([^\W\d_]{3,10})\.?,?(?: of| de)? (\d{4})(?!\d)")
_YEAR_MONTH = pattern(r"(?<![\d.,/-])(\d{4})(?: *年 *|[-/](?=\d\d))(\d\d?)(?![\d/-])")
_MONTH_ALONE = pattern(
    r"(?<![^\W\d_])[^\W\d_]{3,10}(?![^\W\d_])(?!\W{0,3}(?:(?:of|de) )?(?:\d\d?(?:st|nd|rd|th)?,? )?\d{4}(?!\d))"
)
_CJK_MONTH_ALONE = pattern(r"(?<![\d年])(?<!年 )(\d\d?)月")
_SHORT_NAME = 4
_OF_DATES = ("of", "de", "st", "nd", "rd", "th", "er", "年", "月", "日")
_NUMBER_YEAR = pattern(r"(?<![\d.,/-])(\d\d?)[./](\d{4})(?![/\d-]|[.,]\d)")
MOST_DIGITS = 15
"""A number with more digits is an id, and compared as a text."""


def amounts_of(text: str) -> set[Decimal]:
    """Return the possible values of a number: `1,200` is 1200, in some countries 1.2; nothing for an id such as 007."""
    sign, digits = ("-", text[1:]) if text[:1] == "-" else ("", text.lstrip("+"))
    digits = digits.strip(" $€£¥₹%#").replace("'", "")
    if not digits[:1].isdigit() or (len(digits) > 1 and digits[0] == "0" and digits.isdigit()):
        return set()
    if sum(map(str.isdigit, digits)) > MOST_DIGITS:
        return set()
    amounts = {digits} if _PLAIN.fullmatch(digits) else set()
    if _GROUPED[0].fullmatch(digits):
        amounts.add(digits.replace(",", ""))
    if _GROUPED[1].fullmatch(digits):
        amounts.add(digits.replace(".", "").replace(",", "."))
    if _GROUPED[2].fullmatch(digits):
        amounts.add(digits.replace(",", "."))
    return {number for each in amounts if (number := read_number(sign + each)) is not None}


def measures_in(text: str) -> set[Measure]:
    """Return the amounts in a text that are not part of an id, each with its unit; written-out ones as well."""
    measures = set[Measure]()
    text = _UNSPACED.sub(" ", text)
    for each in _NUMBER.finditer(text):
        digits = each[3].rstrip(".,'")
        numbers = amounts_of(f"-{digits}" if each[1] == "-" else digits)
        before = each[2] or (word[1].casefold() if (word := _BEFORE.search(text[: each.start()][-8:])) else "")
        measures |= _with_unit(numbers, text, each.start(3) + len(digits), before)
    for spaced in _SPACED.finditer(text):
        measures |= _with_unit(amounts_of(spaced[0].replace(" ", "")), text, spaced.end(), "")
    written = (each[0].casefold() for each in _WORD.finditer(text))
    return measures | {(NUMBERS[each], "") for each in written if each in NUMBERS}


def _with_unit(numbers: set[Decimal], text: str, end: int, before: str) -> set[Measure]:
    unit = UNITS.get(before, "")
    scale = Decimal(1)
    while after := _AFTER.match(text, end):
        word = after[1].casefold()
        if word in SCALES and scale == 1:
            scale = SCALES[word]
        elif word in UNITS:
            unit = unit or UNITS[word]
            break
        else:
            break
        end = after.end()
    return {(number * scale, unit) for number in numbers}


def read_measure(text: str) -> set[Measure]:
    """Return what a text means that is an amount as a whole, such as `50 million EUR`; nothing for any other text."""
    rest = text.strip()
    number = _NUMBER.match(rest)
    if not number or len(rest.split()) > 4:
        return set()
    tail = rest[number.end(3) :].strip(" %.,").casefold()
    words = _WORD.findall(tail)
    if any(word not in SCALES and word not in UNITS for word in words) or len("".join(words)) < len(
        re.sub(rf"[\s{re.escape(_SIGNS)}-]", "", tail)
    ):
        return set()
    return measures_in(rest)


def same_measure(one: Measure, other: Measure) -> bool:
    """Return whether two amounts are equal; an amount without a unit fits any."""
    return one[0] == other[0] and (one[1] == other[1] or "" in (one[1], other[1]))


def dates_in(text: str, *, every_order: bool = True) -> Iterator[Date]:
    """Yield the dates in a text; of `03/04/2026` both readings.

    With `every_order`, so it is with dots and hyphens, and `2026.10.3` is a date, too. Without it, with these the day
    comes before the month, as in `3.4.2026`.
    """
    for each in _NUMBERS.finditer(text):
        yield from _dates_of(each, every_order=every_order)
    for each in _YEAR_MONTH_DAY.finditer(text):
        yield int(each[1]), int(each[2]), int(each[3])
    for each in _SHORT.finditer(text):
        yield 0, int(each[2]), int(each[1])
    for each in _CJK.finditer(text):
        yield 0, int(each[1]), int(each[2])
    yield from _dates_with_names(text)


def _dates_of(numbers: re.Match[str], *, every_order: bool = True) -> list[Date]:
    """Return the dates that three numbers with the same mark between them may be."""
    one, two, three = (int(numbers[group]) for group in (1, 3, 4))
    mark, lengths = numbers[2], (len(numbers[1]), len(numbers[4]))
    dates = list[Date]()
    if lengths[0] == 4 and lengths[1] <= 2 and (every_order or mark != "."):
        dates.append((one, two, three))
    elif lengths[0] <= 2 and lengths[1] == 4:
        dates.append((three, two, one))
        if every_order or mark == "/":
            dates.append((three, one, two))
    elif lengths[0] <= 2 and lengths[1] == 2 and mark == ".":
        dates.append((2000 + three, two, one))
    return [date for date in dates if 1 <= date[1] <= 12 and 1 <= date[2] <= 31]


def months_in(text: str) -> Iterator[tuple[int, int]]:
    """Yield year and month where they stand together: `October 2026`, `10/2026`, `2026-10`, `2026年10月`."""
    for each in _MONTH_YEAR.finditer(text):
        if number := MONTHS.get(each[1].casefold()):
            yield int(each[2]), number
    for each in _YEAR_MONTH.finditer(text):
        yield int(each[1]), int(each[2])
    for each in _NUMBER_YEAR.finditer(text):
        yield int(each[2]), int(each[1])


def read_date(text: str) -> list[Date]:
    """Return the dates that a text as a whole may be; of a month the day is 0, as in `2026-10` or `Oktober`."""
    if any(word.casefold() not in MONTHS and word not in _OF_DATES for word in _WORD.findall(text)):
        return []
    months = [*months_in(text), *((0, month) for month in _months_alone(text))]
    return [*dates_in(text)] or [(year, month, 0) for year, month in months]


def says_date(text: str, date: Date) -> bool:
    """Return whether a text has this date, or a date in this month if its day is 0; what lacks a year fits any."""
    year, month, day = date
    if day:
        return any(same_date(date, each) for each in dates_in(text))
    months = {*months_in(text), *(each[:2] for each in dates_in(text) if each[0])}
    months |= {(0, alone) for alone in _months_alone(text)}
    return any(each[1] == month and (each[0] == year or 0 in (each[0], year)) for each in months)


def _months_alone(text: str) -> Iterator[int]:
    """Yield the months named without a year. Short names need a capital: “the file may be missing”."""
    for each in _MONTH_ALONE.finditer(text):
        if (number := MONTHS.get(each[0].casefold())) and (len(each[0]) > _SHORT_NAME or each[0].istitle()):
            yield number
    yield from (int(each[1]) for each in _CJK_MONTH_ALONE.finditer(text))


def _dates_with_names(text: str) -> Iterator[Date]:
    for pattern_, day, month in ((_DAY_MONTH, 1, 2), (_MONTH_DAY, 2, 1)):
        for each in pattern_.finditer(text):
            if number := MONTHS.get(each[month].casefold()):
                yield int(each[3] or 0), number, int(each[day])


def same_date(one: Date, other: Date) -> bool:
    """Return whether two dates are equal; one without a year fits any."""
    return one[1:] == other[1:] and (one[0] == other[0] or 0 in (one[0], other[0]))


def without_dates(text: str) -> str:
    """Return the text without its dates."""
    text = _NUMBERS.sub(lambda numbers: " " if _dates_of(numbers) else numbers[0], text)
    for each in (_YEAR_MONTH_DAY, _SHORT, _CJK):
        text = each.sub(" ", text)
    for each, month in ((_DAY_MONTH, 2), (_MONTH_DAY, 1)):
        text = each.sub(partial(_without_month, month), text)
    return text


def _without_month(month: int, match: re.Match[str]) -> str:
    return " " if match[month].casefold() in MONTHS else match[0]
