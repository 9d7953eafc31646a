"""Numbers as people write them in tables: separators, currency signs, brackets for negatives. Exact."""

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal

MAX_CHARS = 64
LIMIT = Decimal("1e300")
UNIT = r"[$€£¥₹₩₽元]|USD|EUR|GBP|CNY|RMB|JPY|CHF|INR"
SHAPE = re.compile(
    rf"(?P<open>\()?(?P<sign>[-+])? ?(?P<before>{UNIT})? ?(?P<inner>[-+])?"
    rf"(?P<digits>[\d.,' ]*\d[.,]?)(?P<exponent>[eE][-+]?\d{{1,3}})? ?(?P<after>{UNIT}|%)?(?P<close>\))?"
)
PLAIN = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,20})?")
POINT = re.compile(r"(?:\d+|\d{1,3}(?:[, ']\d{2,3})*[, ']\d{3})?(?:\.\d*)?")
COMMA = re.compile(r"(?:\d+|\d{1,3}(?:[. ']\d{2,3})*[. ']\d{3})?(?:,\d*)?")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[-+]\d{2}:?\d{2})?)?")


@dataclass(frozen=True, slots=True)
class Amount:
    """A number and the sign that came with it ("" when none did)."""

    value: Decimal
    unit: str = ""

    @property
    def whole(self) -> bool:
        """Whether it was written without decimals."""
        return self.value.as_tuple().exponent == 0


Reader = Callable[[str], Amount | None]


def reader_for(cells: Iterable[str], delimiter: str) -> Reader:
    """How to read a column, judged by some of its cells: `1,234.5` or `1.234,5`.

    Cells that fit both ways (`1,234`) follow the others; alone they are thousands, between semicolons decimals.
    """
    digits = [shape["digits"].strip() for cell in cells if (shape := _shape(cell))]
    point = any(POINT.fullmatch(one) and not COMMA.fullmatch(one) for one in digits)
    comma = any(COMMA.fullmatch(one) and not POINT.fullmatch(one) for one in digits)
    if not point and not comma:
        comma = delimiter == ";" and any("," in one for one in digits)
    return read_comma if comma and not point else read_point


def read_point(cell: str) -> Amount | None:
    """`1,234.50` → 1234.50; None when the cell is no number."""
    return _read(cell, POINT, ".")


def read_comma(cell: str) -> Amount | None:
    """`1.234,50` → 1234.50; None when the cell is no number."""
    return _read(cell, COMMA, ",")


def is_date(cell: str) -> bool:
    """An ISO 8601 date or moment; such texts sort by time."""
    return DATE.fullmatch(cell.strip()) is not None


def _shape(cell: str) -> re.Match[str] | None:
    text = unicodedata.normalize("NFKC", cell).strip().replace("\u2212", "-").replace("\u2019", "'")
    return SHAPE.fullmatch(text) if 0 < len(text) <= MAX_CHARS else None


def _read(cell: str, form: re.Pattern[str], point: str) -> Amount | None:
    if point == "." and PLAIN.fullmatch(cell):
        return Amount(Decimal(cell))
    shape = _shape(cell)
    if shape is None or (shape["open"] is None) != (shape["close"] is None):
        return None
    digits = shape["digits"].strip()
    signs = [sign for sign in (shape["sign"], shape["inner"], shape["open"]) if sign]
    if not form.fullmatch(digits) or len(signs) > 1 or (shape["before"] and shape["after"]):
        return None
    plain = "".join(char for char in digits if char.isdigit() or char == point).replace(point, ".")
    value = Decimal(plain + (shape["exponent"] or ""))
    if abs(value) >= LIMIT:
        return None
    negative = signs in (["-"], ["("])
    return Amount(-value if negative else value, shape["before"] or shape["after"] or "")
