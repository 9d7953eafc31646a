"""Reads columns of text: exact decimals, and what could be read in two ways stays text, with a warning.

DuckDB's own guesses (floats for decimals, a day for a month) are settled here by all values, not by some of them.
"""

from dataclasses import dataclass
from typing import Any

CODES = (
    "AED|AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KRW|MXN|MYR|NOK|NZD|PHP|PLN|RMB|RON|RUB|SAR|SEK|"
    "SGD|THB|TRY|TWD|UAH|USD|VND|ZAR"
)
MARKS = rf"[$€£¥₹%\s]|{CODES}"
"""Marks beside numbers: currency signs and codes, per cent, blanks."""
CORE = f"regexp_replace(trim({{c}}), '{MARKS}', '', 'g')"
POINT = r"regexp_full_match({v}, '[-+]?(\d+|[1-9]\d{0,2}([,'']\d{3})+)([.]\d+)?')"
COMMA = r"regexp_full_match({v}, '[-+]?(\d+|[1-9]\d{0,2}([.'']\d{3})+)(,\d+)?')"
TWOFOLD = r"regexp_full_match({v}, '[-+]?([1-9]\d{0,2}([.,]\d{3})+|\d{1,3})')"
DATE = r"regexp_full_match(trim({c}), '\d{1,2}[./-]\d{1,2}[./-]\d{2,4}([ T].*)?')"
EARLY = r"regexp_full_match(trim({c}), '(0?[1-9]|1[0-2])[./-](0?[1-9]|1[0-2])[./-].*')"
FRACTION = f"length(regexp_extract({CORE}, '[.,](\\d*)$', 1))"

# count_if of nothing is NULL, a count with a filter is 0.
NUMBERS = {
    "odd": r"count(*) FILTER (NOT regexp_full_match(trim({c}), '[-+]?(\d+[.]?\d*|[.]\d+)'))",
    "digits": r"max(length(regexp_extract(trim({c}), '^[-+]?0*(\d*)', 1)))",
    "scale": f"max({FRACTION})",
    "twofold": f"bool_and({TWOFOLD.replace('{v}', 'trim({c})')})",
}
_POINT, _COMMA, _TWOFOLD = (form.replace("{v}", CORE) for form in (POINT, COMMA, TWOFOLD))
TEXTS = {
    "filled": "count({c})",
    "numbers": f"count(*) FILTER ({_POINT} OR {_COMMA})",
    "point": f"count(*) FILTER ({_POINT})",
    "comma": f"count(*) FILTER ({_COMMA})",
    "twofold": f"count(*) FILTER ({_TWOFOLD})",
    "codes": r"count(*) FILTER (regexp_full_match(trim({c}), '0\d+'))",
    "scale": f"max({FRACTION}) FILTER ({_POINT} OR {_COMMA})",
    "other": f"any_value({{c}}) FILTER (NOT ({_POINT} OR {_COMMA}))",
    "marked": f"any_value({{c}}) FILTER (({_POINT} OR {_COMMA}) AND regexp_matches({CORE}, '[.,]'))",
    "dates": f"count(*) FILTER ({DATE})",
    "date": f"any_value({{c}}) FILTER ({DATE})",
}
DATES = {"filled": "count({c})", "early": f"count(*) FILTER ({EARLY})", "date": "any_value({c})"}
KINDS = {"DOUBLE": NUMBERS, "VARCHAR": TEXTS, "DATE": DATES, "TIMESTAMP": DATES, "TIMESTAMP WITH TIME ZONE": DATES}
EMPTY = "NULL"
"""The type of an empty column: it fits where a number, a date or a text does."""


@dataclass
class Column:
    """One column: its SQL type, and warnings for computing with it."""

    name: str
    type: str
    warning: str = ""

    def measures(self) -> dict[str, str]:
        """Return what has to be known of all values, taken as text, to settle the type: name → SQL."""
        kind = KINDS.get(self.type, {})
        return {key: measure.replace("{c}", quote_name(self.name)) for key, measure in kind.items()}

    def settle(self, found: dict[str, Any], delimiter: str = ",", date_form: str = "") -> None:
        """Decide the type from the measurements. `date_form` is the format of dates, such as `%d/%m/%Y`."""
        if self.type == "DOUBLE":
            self._settle_number(found, delimiter)
        elif self.type == "VARCHAR" and not found["filled"]:
            self.type = EMPTY
        elif self.type == "VARCHAR":
            self.warning = _as_date(self.name, found) or _as_number(self.name, found)
        elif found and date_form and not date_form.startswith("%Y") and found["filled"] == found["early"] > 0:
            self.type = "VARCHAR"
            swapped = date_form.replace("%d", "%_").replace("%m", "%d").replace("%_", "%m")
            ways = " or ".join(f"strptime({quote_name(self.name)}, {text(form)})" for form in (date_form, swapped))
            self.warning = f"day and month cannot be told apart ({found['date']}), kept as text: {ways}"

    def _settle_number(self, found: dict[str, Any], delimiter: str) -> None:
        digits, scale = found["digits"] or 0, found["scale"] or 0
        kept = found["twofold"] and delimiter != ","
        if kept:
            self.type = "VARCHAR"
        elif not found["odd"] and digits + scale <= 38:
            self.type = f"DECIMAL({18 if digits + scale <= 18 else 38},{scale})"
        if found["twofold"]:
            plain = quote_name(self.name)
            self.warning = (
                f"the point before three digits may mark thousands or decimals, "
                f"{'kept as text' if kept else 'read as decimals'}. Decimals: CAST({plain} AS DECIMAL(18,3)); "
                f"thousands: CAST(replace({plain}::VARCHAR, '.', '') AS BIGINT)"
            )


def _as_date(name: str, found: dict[str, Any]) -> str:
    if found["dates"] * 2 <= found["filled"] or not found["dates"]:
        return ""
    mark = next(char for char in str(found["date"]) if not char.isdigit())
    ways = " or ".join(
        f"strptime({quote_name(name)}, '{mark.join(form)}')" for form in (("%d", "%m", "%Y"), ("%m", "%d", "%Y"))
    )
    return f"looks like dates ({found['date']}), kept as text: {ways}, whichever is meant"


def _as_number(name: str, found: dict[str, Any]) -> str:
    filled, numbers = found["filled"], found["numbers"]
    if found["codes"]:
        return "digits with leading zeros, kept as text"
    if not numbers or numbers * 2 <= filled:
        return ""
    type = f"DECIMAL(18,{min(found['scale'] or 0, 18)})"
    point = f"CAST(regexp_replace({quote_name(name)}, '[,'']|{MARKS}', '', 'g') AS {type})"
    comma = f"CAST(replace(regexp_replace({quote_name(name)}, '[.'']|{MARKS}', '', 'g'), ',', '.') AS {type})"
    if found["twofold"] == numbers and found["marked"] is not None:
        how = f"{found['marked']} may mean thousands or decimals. Decimal point: {point}; decimal comma: {comma}"
    elif found["point"] == numbers:
        how = point
    elif found["comma"] == numbers:
        how = f"written with a decimal comma: {comma}"
    else:
        how = f"some have a decimal point, some a decimal comma. Point: {point}; comma: {comma}"
    rest = (
        f", but {filled - numbers} of {filled} values are none, such as {found['other']!r}" if numbers < filled else ""
    )
    return f"looks like numbers, kept as text{rest}: {how}"


def quote_name(name: str) -> str:
    """Return a name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return a text in SQL."""
    return "'" + value.replace("'", "''") + "'"
