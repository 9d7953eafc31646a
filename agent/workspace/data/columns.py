"""Find the types of text columns: decimals are exact, and ambiguous values stay text, with a warning.

All values decide the type, not a sample as in DuckDB, which reads decimals as floats and may swap day and month.
"""

from dataclasses import dataclass
from typing import Any

CODES = (
    "AED|AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KRW|MXN|MYR|NOK|NZD|PHP|PLN|RMB|RON|RUB|SAR|SEK|"
    "SGD|THB|TRY|TWD|UAH|USD|VND|ZAR"
)
MARKS = rf"[$€£¥₹%\s]|{CODES}"
"""Marks beside numbers: currency signs and codes, per cent, blanks."""
LIKELY = rf"([-+.,''\d\p{{Zs}}]|{MARKS})+|[\s\p{{Zs}}]*\d{{1,2}}[./-]\d{{1,2}}[./-](?s:.*)"
"""Matches every number and date of the forms below, and some texts that are neither."""
CORE = f"regexp_replace(trim({{likely}}), '{MARKS}', '', 'g')"
POINT = r"regexp_full_match({core}, '[-+]?(\d+|[1-9]\d{0,2}([,'']\d{3})+)([.]\d+)?')"
COMMA = r"regexp_full_match({core}, '[-+]?(\d+|[1-9]\d{0,2}([.'']\d{3})+)(,\d+)?')"
TWOFOLD = r"regexp_full_match({core}, '[-+]?([1-9]\d{0,2}([.,]\d{3})+|\d{1,3})')"
DATE = r"regexp_full_match(trim({likely}), '\d{1,2}[./-]\d{1,2}[./-]\d{2,4}([ T].*)?')"
EARLY = r"regexp_full_match(trim({c}), '(0?[1-9]|1[0-2])[./-](0?[1-9]|1[0-2])[./-].*')"
PLAIN = r"regexp_full_match({c}, '-?(?:(?:[1-9]\d*|0)(?:[.]\d*)?|[.]\d+)')"
POWER = r"regexp_full_match({c}, '-?(?:[1-9]\d*|0)(?:[.]\d*)?[eE][-+]?\d+')"

# Each measure is SQL over all values of a column, as text. count_if of nothing is NULL, a count with a filter is 0.
NUMBERS = {
    "odd": r"count(*) FILTER (NOT regexp_full_match(trim({c}), '[-+]?(\d+[.]?\d*|[.]\d+)'))",
    "digits": "max(CASE WHEN instr({c}, '.') = 0 THEN strlen(trim({c})) ELSE instr({c}, '.') - 1 END)",
    "scale": "max(CASE WHEN instr({c}, '.') > 0 THEN strlen(trim({c})) - instr(trim({c}), '.') END)",
}
TEXTS = {
    "numbers": f"count(*) FILTER ({POINT} OR {COMMA})",
    "point": f"count(*) FILTER ({POINT})",
    "comma": f"count(*) FILTER ({COMMA})",
    "twofold": f"count(*) FILTER ({TWOFOLD})",
    "codes": r"count(*) FILTER (regexp_full_match(trim({likely}), '0\d+'))",
    "scale": f"max(length(regexp_extract({{core}}, '[.,](\\d*)$', 1))) FILTER ({POINT} OR {COMMA})",
    "other": f"any_value({{c}}) FILTER (({POINT} OR {COMMA}) IS NOT TRUE)",
    "marked": f"any_value({{c}}) FILTER (({POINT} OR {COMMA}) AND regexp_matches({{core}}, '[.,]'))",
    "dates": f"count(*) FILTER ({DATE})",
    "date": f"any_value({{c}}) FILTER ({DATE})",
}
DATES = {"early": f"count(*) FILTER ({EARLY})", "date": "any_value({c})"}
SNIFFED = {
    "BIGINT": {"wrong": r"count(*) FILTER (NOT regexp_full_match({c}, '-?(?:[1-9]\d{0,17}|0)'))"},
    "DOUBLE": {
        **{name: measure.replace("trim({c})", "{c}") for name, measure in NUMBERS.items()},
        "odd": f"count(*) FILTER (NOT {PLAIN})",
    },
    "BOOLEAN": {"wrong": "count(*) FILTER ({c} IS NOT NULL AND (TRY_CAST({c} AS BOOLEAN) IS NULL OR ascii({c}) < 65))"},
    "VARCHAR": {"wrong": "count(*) FILTER (ascii({likely}) IN (34, 39))"},  # quotes, where none were seen
}
"""Measures that show whether a type that fits the first rows fits all."""
STRICT = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
"""Types for which DuckDB raises an error at any other value, so they need not be read as text."""
EMPTY = "NULL"
"""The type of an empty column, which can be used as a number, a date or a text."""


def likely_sql(column: str) -> str:
    """Return SQL that keeps a text that may be a number or a date, or begins with a quote; NULL for any other."""
    cases = f"WHEN ascii({column}) BETWEEN 97 AND 122 THEN NULL WHEN ascii({column}) IN (34, 39) THEN {column}"
    return f"CASE {cases} WHEN regexp_full_match({column}, '{LIKELY}') THEN {column} END"  # the cheapest first


@dataclass
class Column:
    """One column: its SQL type, and a warning if computing with it is unsafe."""

    name: str
    type: str
    warning: str = ""
    filled: int = 0
    """The number of its values."""
    date_form: str = ""
    """The format of its dates, such as `%d/%m/%Y`, if it must be given."""
    settled: bool = False
    """True once all values were examined; until then the type is a guess, and the column is not shown."""

    @property
    def is_local_date(self) -> bool:
        """Return whether its dates begin with a day or a month."""
        return bool(self.date_form) and not self.date_form.startswith("%Y")

    @property
    def read_as(self) -> str:
        """Return the type with which its values are read to examine them."""
        return self.type if self.type in STRICT and not self.is_local_date else "VARCHAR"

    def measures(self, *, proven: bool) -> dict[str, str]:
        """Return the measures of all values that settle the type; more of them if the type is not `proven` to fit.

        Raises KeyError for a type that only sniffing all rows can prove.
        """
        needed = {"filled": "count({c})"}
        if self.is_local_date:
            wrong = f"count(*) FILTER ({{c}} IS NOT NULL AND try_strptime({{c}}, {quote_text(self.date_form)}) IS NULL)"
            return {**needed, **DATES, "wrong": wrong}
        if self.type == "VARCHAR":
            needed["likely"] = "count({likely})"
        if proven:
            return {**needed, **(NUMBERS if self.type == "DOUBLE" else {})}
        return {**needed, **(SNIFFED[self.type] if self.read_as == "VARCHAR" else {})}

    def closer_measures(self, found: dict[str, Any], *, proven: bool) -> dict[str, str]:
        """Return further measures, depending on the first ones."""
        if self.type == "DOUBLE" and not proven and found["odd"]:
            return {"wrong": f"count(*) FILTER (NOT ({PLAIN} OR {POWER}))"}
        if self.type == "VARCHAR" and found["likely"]:
            return TEXTS
        if self.type == "DOUBLE" and found.get("scale") == 3 and found["digits"] <= 4 and not found["odd"]:
            return {"twofold": f"bool_and({TWOFOLD.replace('{core}', 'trim({c})')})"}
        return {}

    def settle(self, found: dict[str, Any], delimiter: str = ",") -> None:
        """Decide the type from the measurements."""
        self.filled, self.settled = found["filled"], True
        if self.type == "DOUBLE" and "odd" in found:
            self._settle_number(found, delimiter)
        elif self.type == "VARCHAR" and not self.filled:
            self.type = EMPTY
        elif self.type == "VARCHAR":
            self.warning = (
                (_date_warning(self.name, found) or _number_warning(self.name, found)) if "numbers" in found else ""
            )
        elif self.is_local_date and self.filled == found["early"] > 0:
            self.type = "VARCHAR"
            swapped = self.date_form.replace("%d", "%_").replace("%m", "%d").replace("%_", "%m")
            ways = " or ".join(
                f"strptime({quote_name(self.name)}, {quote_text(form)})" for form in (self.date_form, swapped)
            )
            self.warning = f"day and month cannot be told apart ({found['date']}), kept as text: {ways}"

    def _settle_number(self, found: dict[str, Any], delimiter: str) -> None:
        digits, scale, twofold = found["digits"] or 0, found["scale"] or 0, found.get("twofold")
        kept = twofold and delimiter != ","
        if kept:
            self.type = "VARCHAR"
        elif not found["odd"] and digits + scale <= 38:
            self.type = f"DECIMAL({18 if digits + scale <= 18 else 38},{scale})"
        if twofold:
            plain = quote_name(self.name)
            self.warning = (
                f"the point before three digits may mark thousands or decimals, "
                f"{'kept as text' if kept else 'read as decimals'}. Decimals: CAST({plain} AS DECIMAL(18,3)); "
                f"thousands: CAST(replace({plain}::VARCHAR, '.', '') AS BIGINT)"
            )


def _date_warning(name: str, found: dict[str, Any]) -> str:
    if found["dates"] * 2 <= found["filled"] or not found["dates"]:
        return ""
    mark = next(char for char in str(found["date"]) if not char.isdigit())
    ways = " or ".join(
        f"strptime({quote_name(name)}, '{mark.join(form)}')" for form in (("%d", "%m", "%Y"), ("%m", "%d", "%Y"))
    )
    return f"looks like dates ({found['date']}), kept as text: {ways}, whichever is meant"


def _number_warning(name: str, found: dict[str, Any]) -> str:
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
    """Return a name, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(value: str) -> str:
    """Return a text, quoted for SQL."""
    return "'" + value.replace("'", "''") + "'"
