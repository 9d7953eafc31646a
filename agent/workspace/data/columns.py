"""Find the types of text columns: decimals are exact, and ambiguous values stay text, with a warning.

All values decide the type. DuckDB decides by a sample: it reads decimals as floats, swaps day and month, and takes the
first number of 24.12.25 for a year, `yes` and `T` for booleans, and the code 12E3 for a number.
"""

from dataclasses import dataclass
from typing import Any

CODES = (
    "AED|AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KRW|MXN|MYR|NOK|NZD|PHP|PLN|RMB|RON|RUB|SAR|SEK|"
    "SGD|THB|TRY|TWD|UAH|USD|VND|ZAR"
)
CURRENCY = f"[$€£¥₹]|{CODES}"
SIGNS = {"€": "EUR", "£": "GBP", "₹": "INR"}
"""Signs that stand for one code only."""
MARKS = rf"[$€£¥₹%\s\p{{Zs}}]|{CODES}"
"""Marks beside numbers: currency signs and codes, per cent, blanks."""
LIKELY = rf"([-+.,''()\d]|{MARKS})+|[\s\p{{Zs}}]*\d{{1,4}}[./-]\d{{1,2}}[./-](?s:.*)"
"""Matches every number and date of the forms below, and some texts that are neither."""
SIGNED = r"regexp_replace({0}, '^\((.*)\)$|^(.*)-$', '-\1\2')"
"""SQL that puts the sign of (100) and 100- before the number."""
CORE = SIGNED.format(f"regexp_replace(trim({{likely}}), '{MARKS}', '', 'g')")
WITH_POINT = r"[-+]?(\d+|[1-9]\d{0,2}([,'']\d{3})+)([.]\d+)?"
WITH_COMMA = r"[-+]?(\d+|[1-9]\d{0,2}([.'']\d{3})+)(,\d+)?"
POINT, COMMA = (f"regexp_full_match({{core}}, '{form}')" for form in (WITH_POINT, WITH_COMMA))
TWOFOLD = r"regexp_full_match({core}, '[-+]?([1-9]\d{0,2}([.,]\d{3})+|\d{1,3})')"
EITHER = r"[-+]?[1-9]\d{0,2}[.,]\d{3}"
"""A number whose mark may be that of thousands or of decimals."""
EACH = "TRY_CAST(replace(regexp_replace({}, '[.,]', '', 'g'), ';', '.') AS {{type}})".format(
    rf"regexp_replace(regexp_replace(regexp_replace({{bare}}, '^{EITHER}$', ''), '^([^,]*),(\d+)$', '\1;\2'), "
    r"'^([^.;]*)[.](\d+)$', '\1;\2')"
)
"""SQL that reads each number by its own marks, a single last one being that of decimals; NULL for one that can be read
in two ways."""
PARTS = (
    r"regexp_extract(trim({likely}), '^(\d{1,4})([./-])(\d{1,2})([./-])(\d{4}|\d{1,2})(?:,?[ T]+(\d.*))?$', "
    "['a', 'mark', 'b', 'other', 'c', 'time'])"
)
"""The parts of a date; all are empty if it is none."""
TIME = (
    "coalesce(TRY_CAST({parts}.time AS TIME), "
    "CAST(try_strptime({parts}.time, ['%I:%M %p', '%I:%M:%S %p', '%I:%M%p']) AS TIME))"
)
DATED = "{parts}.a <> '' AND {parts}.mark = {parts}.other"
ORDERS = {"dmy": "day{0}month{0}year", "mdy": "month{0}day{0}year", "ymd": "year{0}month{0}day"}
"""The orders in which people write dates, and how they are called."""
FORMS = {"d": "%d", "m": "%m", "y": "%Y"}
PLAIN = r"regexp_full_match({c}, '-?(?:(?:[1-9]\d*|0)(?:[.]\d*)?|[.]\d+)')"
WHOLE_NUMBERS = ("BIGINT", "HUGEINT")
POWER = r"regexp_full_match({c}, '-?(?:[1-9]\d*|0)(?:[.]\d*)?[eE][-+]?\d+')"
WHOLE = r"regexp_full_match({c}, '-?(?:[1-9]\d{0,17}|0)')"
CODED = r"count(*) FILTER (regexp_full_match(trim({c}), '[-+]?0\d.*|[+].*|.*[_xX].*'))"
"""Leading zeros and plus signs, which a number would lose, and digits that only DuckDB takes for a number."""

# Each measure is SQL over all values of a column, as text. count_if of nothing is NULL, a count with a filter is 0.
NUMBERS = {
    "odd": r"count(*) FILTER (NOT regexp_full_match(trim({c}), '[-+]?(\d+[.]?\d*|[.]\d+)'))",
    "digits": "max(CASE WHEN instr({c}, '.') = 0 THEN strlen(trim({c})) ELSE instr({c}, '.') - 1 END)",
    "scale": "max(CASE WHEN instr({c}, '.') > 0 THEN strlen(trim({c})) - instr(trim({c}), '.') END)",
}
POWERS = {
    "powers": r"count(*) FILTER (regexp_full_match(trim({c}), '\d+[eE]\d+'))",
    "reals": r"count(*) FILTER (regexp_matches({c}, '[.]|[eE][-+]'))",
}
"""12E3 may be a code; beside 2.5 or 1e-5 it is a number."""
TEXTS = {
    "numbers": f"count(*) FILTER ({POINT} OR {COMMA})",
    "point": f"count(*) FILTER ({POINT})",
    "comma": f"count(*) FILTER ({COMMA})",
    "twofold": f"count(*) FILTER ({TWOFOLD})",
    "codes": r"count(*) FILTER (regexp_full_match(trim({likely}), '\(?0\d+[-)]?'))",
    "signed": rf"count(*) FILTER (({POINT} OR {COMMA}) AND regexp_matches(trim({{likely}}), '[-)]$'))",
    "plain": r"count(*) FILTER (regexp_full_match(trim({likely}), '-?{0}|\(\s*{0}\s*\)|{0}\s*-'))".replace(
        "{0}", r"\d+([.]\d+)?"
    ),
    "sign": f"any_value({{c}}) FILTER (({POINT} OR {COMMA}) AND regexp_matches(trim({{likely}}), '[-)]$'))",
    "width": "max(length({core}))",
    "scale": f"max(length(regexp_extract({{core}}, '[.,](\\d*)$', 1))) FILTER ({POINT} OR {COMMA})",
    "either": f"any_value({{c}}) FILTER (regexp_full_match({{core}}, '{EITHER}'))",
    "currencies": f"list(DISTINCT regexp_extract({{likely}}, '{CURRENCY}')) FILTER ({POINT} OR {COMMA})",
    "other": f"any_value({{c}}) FILTER (({POINT} OR {COMMA}) IS NOT TRUE)",
    "marked": f"any_value({{c}}) FILTER (({POINT} OR {COMMA}) AND regexp_matches({{core}}, '[.,]'))",
    "dates": f"count(*) FILTER ({DATED})",
    "date": f"any_value({{c}}) FILTER ({DATED})",
}

SNIFFED: dict[str, dict[str, str]] = {
    "BIGINT": {"wrong": rf"count(*) FILTER (NOT {WHOLE})"},
    "DOUBLE": {
        **{name: measure.replace("trim({c})", "{c}") for name, measure in NUMBERS.items()},
        "odd": f"count(*) FILTER (NOT {PLAIN})",
    },
    "BOOLEAN": {},
    "VARCHAR": {"wrong": "count(*) FILTER (ascii({likely}) IN (34, 39))"},  # quotes, where none were seen
}
"""Measures that show whether a type that fits the first rows fits all."""
STRICT = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
"""Types for which DuckDB raises an error at any other value, so they need not be read as text."""
EMPTY = "NULL"
"""The type of an empty column, which can be used as a number, a date or a text."""


def date_sql(parts: str, order: str) -> str:
    """Return SQL for the date in these parts, in an order; NULL for none. Years of two digits are 1969 to 2068."""
    year, first, last = ("a", "b", "c") if order == "ymd" else ("c", "a", "b")
    digits = f"{parts}.{year}"
    short = f"CASE WHEN {digits} <= '68' THEN '20' ELSE '19' END || {digits}"
    whole = f"CASE length({digits}) WHEN 4 THEN {digits} WHEN 2 THEN {short} END"
    form = "-".join(FORMS[each] for each in order if each != "y") + "-%Y"
    read = f"try_strptime(concat({parts}.{first}, '-', {parts}.{last}, '-', {whole}), '{form}')"
    return f"CASE WHEN {parts}.a <> '' THEN {read} END"


def moment_sql(parts: str, order: str) -> str:
    """Return SQL for the date and time in these parts."""
    return f"CAST({date_sql(parts, order)} AS DATE) + coalesce({TIME.replace('{parts}', parts)}, TIME '00:00')"


DATES = {
    **{order: f"count({date_sql('{parts}', order)})" for order in ORDERS},
    "same": f"count(*) FILTER ({date_sql('{parts}', 'dmy')} = {date_sql('{parts}', 'mdy')})",
    "day_first": f"any_value({{c}}) FILTER ({date_sql('{parts}', 'mdy')} IS NULL)",
    "month_first": f"any_value({{c}}) FILTER ({date_sql('{parts}', 'dmy')} IS NULL)",
    "marks": "count(DISTINCT {parts}.mark)",
    "short": "count(*) FILTER (length({parts}.a) < 4 AND length({parts}.c) < 4)",
    "timed": "count(*) FILTER ({parts}.time <> '')",
    "odd_times": f"count(*) FILTER (CASE WHEN {{parts}}.time <> '' THEN {TIME} IS NULL END)",
}
"""Measures of a column in which all values are dates."""


def likely_sql(column: str) -> str:
    """Return SQL that keeps a text that may be a number or a date, or begins with a quote; NULL for any other."""
    cases = f"WHEN ascii({column}) BETWEEN 97 AND 122 THEN NULL WHEN ascii({column}) IN (34, 39) THEN {column}"
    cases += f" WHEN NOT regexp_matches({column}, '\\d') THEN NULL"  # the cheapest first
    return f"CASE {cases} WHEN regexp_full_match({column}, '{LIKELY}') THEN {column} END"


@dataclass
class Column:
    """One column: its SQL type, and a warning if computing with it is unsafe."""

    name: str
    type: str
    warning: str = ""
    filled: int = 0
    """The number of its values."""
    order: str = ""
    """The order of day, month and year if its text has to be read as dates: `dmy`, `mdy` or `ymd`."""
    signed: bool = False
    """True if its text has to be read as numbers, some of which are negative by brackets or by a minus behind them."""
    remark: str = ""
    """How its values were read, and which value decided that."""
    settled: bool = False
    """True once all values were examined; until then the type is a guess, and the column is not shown."""

    @property
    def read_as(self) -> str:
        """Return the type with which its values are read to examine them."""
        return self.type if self.type in STRICT and not self.order else "VARCHAR"

    @property
    def stored_as(self) -> str:
        """Return the type with which its values are read to be used."""
        return "VARCHAR" if self.order or self.signed or self.type == EMPTY else self.type

    @property
    def parts(self) -> str:
        """Return the SQL for the parts of its dates; "" if its text is not read as dates."""
        return PARTS.replace("{likely}", quote_name(self.name)) if self.order else ""

    def source(self, parts: str) -> str:
        """Return the SQL for its values; `parts` is the name of the column with the parts of its dates."""
        name = quote_name(self.name)
        if self.type == EMPTY:
            return f"NULL AS {name}"
        if self.signed:
            bare = f"regexp_replace({name}, '\\s', '', 'g')"
            return f"CAST({SIGNED.format(bare)} AS {self.type}) AS {name}"
        if not self.order:
            return name
        made = moment_sql(parts, self.order) if self.type == "TIMESTAMP" else f"{date_sql(parts, self.order)}::DATE"
        return f"{made} AS {name}"

    def measures(self, *, proven: bool, typed: bool = False) -> dict[str, str]:
        """Return the measures of all values that settle the type; more of them if the type is not `proven` to fit.

        `typed`: the file says what is a number, a truth or a text. Raises KeyError for a type that only sniffing all
        rows can prove.
        """
        needed = {"filled": "count({c})"}
        if self.type == "VARCHAR":
            needed["likely"] = "count({likely})"
        if self.type in ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"):
            needed["early"] = "count(*) FILTER (year({c}) < 1000)"
        if self.type == "BOOLEAN" and not typed:
            needed["words"] = "count(*) FILTER (lower(trim({c})) NOT IN ('true', 'false'))"
        if self.type == "DOUBLE":
            needed |= NUMBERS if typed else {**NUMBERS, "coded": CODED, **POWERS}
        if self.type in WHOLE_NUMBERS and proven and not typed:
            needed["coded"] = CODED
        if proven:
            return needed
        return {**needed, **(SNIFFED[self.type] if self.read_as == "VARCHAR" else {})}

    def closer_measures(self, measured: dict[str, Any], *, proven: bool) -> dict[str, str]:
        """Return further measures, depending on the first ones."""
        if self.type == "DOUBLE" and not proven and measured["odd"]:
            return {"wrong": f"count(*) FILTER (NOT ({PLAIN} OR {POWER}))"}
        if self.type == "VARCHAR" and measured["likely"]:
            return {**TEXTS, **DATES}
        if self.type == "DOUBLE" and measured.get("scale") == 3 and measured["digits"] <= 4 and not measured["odd"]:
            return {"twofold": f"bool_and({TWOFOLD.replace('{core}', 'trim({c})')})"}
        return {}

    def settle(self, measured: dict[str, Any], delimiter: str = ",") -> None:
        """Decide the type from the measurements."""
        self.filled, self.settled = measured["filled"], True
        may_be_codes = measured.get("powers") and not measured["reals"]
        if measured.get("coded") or measured.get("words") or measured.get("early") or may_be_codes:
            self._keep_text(measured)
        elif self.type == "DOUBLE" and "odd" in measured:
            self._settle_number(measured, delimiter)
        elif self.type == "VARCHAR" and not self.filled:
            self.type = EMPTY
        elif self.type == "VARCHAR" and "numbers" in measured:
            self._settle_date(measured)
            self._settle_signed(measured)
            settled = self.warning or self.order or self.signed
            self.warning = self.warning if settled else _number_warning(self.name, measured)

    def keep_native(self, type: str) -> None:
        """Keep the type that the file declares; what the values look like becomes a warning."""
        if self.order or self.signed:
            what = "dates" if self.order else "numbers"
            self.warning = f"looks like {what}, kept as text{f'; {self.remark}' if self.remark else ''}"
        self.type, self.order, self.signed, self.remark = type, "", False, ""

    def _keep_text(self, measured: dict[str, Any]) -> None:
        number, plain = self.type, quote_name(self.name)
        self.type = "VARCHAR"
        if measured.get("coded"):
            self.warning = (
                f"digits with leading zeros or signs, kept as text; as numbers: TRY_CAST({plain} AS {number})"
            )
        elif measured.get("powers"):
            self.warning = f"may be codes or powers of ten, kept as text; as numbers: TRY_CAST({plain} AS DOUBLE)"
        elif measured.get("early"):
            self.warning = "looks like dates with years of two digits, kept as text"

    def _settle_date(self, measured: dict[str, Any]) -> None:
        """Decide the order of day, month and year: it is right if it is the only one in which all values are dates."""
        fitting = [order for order in ORDERS if measured[order] == self.filled]
        same = measured["same"] == self.filled and fitting == ["dmy", "mdy"]
        if not fitting or measured["marks"] > 1 or measured["odd_times"]:
            if measured["dates"] * 2 > self.filled:
                most = max(measured[order] for order in ORDERS)
                likely = [order for order in ORDERS if measured[order] == most]
                how = "written in several ways" if measured["marks"] > 1 else self._ways(measured, likely)
                rest = _rest(most, self.filled) if measured["marks"] <= 1 else ""
                self.warning = f"looks like dates ({measured['date']}), kept as text{rest}: {how}"
        elif len(fitting) > 1 and not same:
            what = "day, month and year" if "ymd" in fitting else "day and month"
            self.warning = (
                f"{what} cannot be told apart ({measured['date']}), kept as text: {self._ways(measured, fitting)}"
            )
        else:
            self.order, self.type = fitting[0], "TIMESTAMP" if measured["timed"] else "DATE"
            remarks = []
            if self.order != "ymd" and not same:
                because = measured["day_first" if self.order == "dmy" else "month_first"]
                remarks = [f"read as {ORDERS[self.order].format(_mark_of(measured['date']))} because of {because}"]
            self.remark = ", ".join([*remarks, *["years of two digits as 1969 to 2068"] * bool(measured["short"])])

    def _settle_signed(self, measured: dict[str, Any]) -> None:
        """Read (100) and 100- as negative if all values are numbers, some of them without such a sign."""
        unclear = measured["codes"] or (measured["twofold"] == self.filled and measured["marked"] is not None)
        some, width, scale = 0 < measured["signed"] < self.filled, measured["width"] or 0, measured["scale"] or 0
        if measured["plain"] == self.filled and some and not unclear and width + scale <= 38:
            self.signed, short = True, width + scale <= 18
            self.type = f"DECIMAL({18 if short else 38},{scale})" if scale else WHOLE_NUMBERS[not short]
            self.remark = f"numbers like {measured['sign']} read as negative"

    def _ways(self, measured: dict[str, Any], orders: list[str]) -> str:
        """Return SQL that reads the text as dates, for each of these orders."""
        mark, plain = _mark_of(measured["date"]), quote_name(self.name)
        plain = f"regexp_extract({plain}, '[^ T]+')" if measured["timed"] else plain
        years = ["%y"] * bool(measured["short"]) + ["%Y"] * (measured["short"] < measured["dates"])
        ways = list[str]()
        for order in orders:
            forms = ", ".join(f"'{mark.join({**FORMS, 'y': year}[each] for each in order)}'" for year in years)
            read = "strptime" if measured[order] == self.filled else "try_strptime"
            ways.append(f"{read}({plain}, {forms if len(years) == 1 else f'[{forms}]'})")
        return " or ".join(ways) + (", whichever is meant" if len(ways) > 1 else "")

    def _settle_number(self, measured: dict[str, Any], delimiter: str) -> None:
        digits, scale, twofold = measured["digits"] or 0, measured["scale"] or 0, measured.get("twofold")
        keeps_text = twofold and delimiter != ","
        if keeps_text:
            self.type = "VARCHAR"
        elif not measured["odd"] and digits + scale <= 38:
            self.type = f"DECIMAL({18 if digits + scale <= 18 else 38},{scale})"
        if twofold:
            plain = quote_name(self.name)
            self.warning = (
                f"the point before three digits may mark thousands or decimals, "
                f"{'kept as text' if keeps_text else 'read as decimals'}. Decimals: CAST({plain} AS DECIMAL(18,3)); "
                f"thousands: CAST(replace({plain}::VARCHAR, '.', '') AS BIGINT)"
            )


def _mark_of(date: str) -> str:
    return next(char for char in date.strip() if not char.isdigit())


def _rest(read: int, filled: int, which: str = ", which") -> str:
    """Return words for values that the SQL of a warning does not read; "" if it reads all."""
    return f", but {filled - read} of {filled} values are none{which} become NULL" if read < filled else ""


def _number_warning(name: str, measured: dict[str, Any]) -> str:
    filled, numbers = measured["filled"], measured["numbers"]
    if measured["codes"]:
        return "digits with leading zeros, kept as text"
    if not numbers or numbers * 2 <= filled:
        return ""
    scale = min(measured["scale"] or 0, 18)
    type, plain = f"DECIMAL({18 if measured['width'] + scale <= 18 else 38},{scale})", quote_name(name)

    def bare(marks: str, form: str) -> str:
        """Return SQL for the bare number of this form, without `marks`; if some values are none, "" for these."""
        if numbers == filled:
            text = f"regexp_replace({plain}, '[{marks}'']|{MARKS}', '', 'g')"
            return SIGNED.format(text) if measured["signed"] else text
        text = f"regexp_replace({plain}, '{MARKS}', '', 'g')"
        text = f"regexp_extract({SIGNED.format(text) if measured['signed'] else text}, '^({form})$')"
        return f"regexp_replace({text}, '[{marks}'']', '', 'g')"

    cast = "CAST" if numbers == filled else "TRY_CAST"
    point = f"{cast}({bare(',', WITH_POINT)} AS {type})"
    comma = f"{cast}(replace({bare('.', WITH_COMMA)}, ',', '.') AS {type})"
    if measured["twofold"] == numbers and measured["marked"] is not None:
        how = f"{measured['marked']} may mean thousands or decimals. Decimal point: {point}; decimal comma: {comma}"
    elif measured["point"] == numbers:
        how = point
    elif measured["comma"] == numbers:
        how = f"written with a decimal comma: {comma}"
    else:
        each = EACH.replace("{bare}", bare("", f"{WITH_POINT}|{WITH_COMMA}")).replace("{type}", type)
        how = f"some have a decimal point, some a decimal comma. Each by its own marks: {each}"
        how += f"; NULL for those like {measured['either']!r}, which may be either" if measured["either"] else ""
    rest = _rest(numbers, filled, f", such as {measured['other']!r}, which")
    if measured["signed"]:
        how = f"{measured['sign']} read as negative, if that is meant: {how}"
    currencies = sorted(filter(None, measured["currencies"]), key=lambda each: (len(each) == 1, each))
    several = len({SIGNS.get(each, each) for each in currencies}) > 1
    first = f"several currencies: {', '.join(currencies)}; " if several else ""
    return f"{first}looks like numbers, kept as text{rest}: {how}"


def quote_name(name: str) -> str:
    """Return a name, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(value: str) -> str:
    """Return a text, quoted for SQL."""
    return "'" + value.replace("'", "''") + "'"
