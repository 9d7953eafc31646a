"""Read the fields of a tool's result that name something, such as an id, an address or a path. Pure.

Only a result that is data as a whole is read: JSON, JSON lines, or a table whose lines have equally many cells. Data
within a text are not read, because the author of the text may have written them, too. The tool's output schema or its
metadata say which fields name something; without them, the names of the fields do. Titles and bodies never name
something.
"""

import csv
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from donewhen.state.pattern import pattern

LARGEST = 2_000_000
"""The most characters of a result that are read."""
LONGEST = 300
"""The most characters of a value that names something."""
MOST_NESTED = 60
EMPTY = "NULL"


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


FORMATS = _set(
    "email idn-email uri url uri-reference iri uuid path file-path directory-path hostname ipv4 ipv6 phone tel iban id "
    "identifier"
)
"""Formats of JSON Schema whose values name something."""
NAMES_SOMETHING = _set(
    "id uid uuid guid key email mail iban bic path file filename folder directory url uri href link phone tel "
    "telephone mobile number no nr sku account handle login username sender from recipient participant to cc bcc "
    "address address1 address2 street zip postcode host hostname domain ip branch commit sha hash ref slug user payee "
    "channel owner"
)
"""The last words, in the singular, of the names of fields that name something, for tools without a schema."""
FREE_TEXT = _set(
    "subject title body text message content description summary comment note reason caption headline detail "
    "instruction review feedback explanation question answer prompt bio about remark memo html markdown snippet old new"
)
"""The last words, in the singular, of the names of fields and arguments that hold free text."""
FAMILIES = {
    "people": "email mail sender from to cc bcc recipient participant user username login handle owner payee",
    "money": "iban bic account payee recipient sender from to",
    "web": "url uri href link host hostname domain",
    "files": "path file filename folder directory",
    "phones": "phone tel telephone mobile",
    "places": "address address1 address2 street zip postcode location",
    "rooms": "channel",
    "code": "branch commit sha hash ref",
}
"""Kinds of things, each with the words that name them; a value of one kind is never taken for one of another."""
DERIVED = NAMES_SOMETHING - {
    "email",
    "emails",
    "mail",
    "mails",
    "file",
    "files",
    "folder",
    "from",
    "to",
    "link",
    "path",
}
"""Words in a tool's name that name its bare values. “Mail” and “file” are not among them: they may mean a text, too."""

_WORDS = pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*|\d+")
_RULE = pattern(r"\A[|\s:+-]*-[|\s:+-]*")
_PLAIN_KEY = pattern(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Field:
    """One value of a result."""

    path: str
    """Such as `items[2].id`."""
    group: str
    """The path without positions in lists and keys of records: siblings have the same."""
    name: tuple[str, ...]
    """The words of its name."""
    value: str | int | float
    is_key: bool = False
    """True if it is the key of a record."""
    is_derived: bool = False
    """True if its name is derived from its tool's, because the value is bare."""

    @property
    def owner(self) -> set[str]:
        """Return the words, in the singular, of the name of the thing that it is part of."""
        return {word.removesuffix("s") for part in self.group.split(".") for word in words_of(part)}


def words_of(name: str) -> tuple[str, ...]:
    """Return the words of a name: `payment_method_id`, `paymentMethodId` and `payment-method ID` have the same."""
    return tuple(word.casefold() for word in _WORDS.findall(name))


def names_something(words: Sequence[str]) -> bool:
    """Return whether a field of this name names something."""
    return bool(words) and bool({words[-1], words[-1].removesuffix("s")} & NAMES_SOMETHING)


def is_free_text(words: Sequence[str]) -> bool:
    """Return whether a field of this name holds free text."""
    return bool(words) and bool({words[-1], words[-1].removesuffix("s")} & FREE_TEXT)


def same_name(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two names are about the same thing: `orders`, `order` and `order_id` are."""
    return bool(one and other) and _core(one) == _core(other)


def fits(field: Field, name: Sequence[str]) -> bool:
    """Return whether a field's value may be used for an argument of this name: a channel is not used as an address."""
    its, theirs = _families(field.name if field.is_derived else field.name[-1:]), _families(name[-1:])
    return not its or not theirs or bool(its & theirs)


def holds_addresses(words: Sequence[str]) -> bool:
    """Return whether a field of this name holds mail addresses or URLs."""
    return bool(_families(words) & {"people", "web"})


def _families(words: Sequence[str]) -> set[str]:
    last = {*words, *(word.removesuffix("s") for word in words)}
    return {family for family, names in FAMILIES.items() if last & {*names.split()}}


def _core(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a name in the singular, without those for an id or a number."""
    core = [word for word in words if word not in ("id", "ids", "number", "numbers", "no", "nr", "key")]
    return tuple(word[:-1] if len(word) > 3 and word.endswith("s") else word for word in core or words)


def fields_of(text: str, tool: str = "", column: str = "") -> Iterator[Field]:
    """Yield the values of a result that is data as a whole. A bare value is named by the words of its tool's name.

    `column`: the result is a table with only this column, or its only value.
    """
    if len(text) > LARGEST:
        return
    lines = [line for line in text.splitlines() if line.strip()]
    if column:
        yield from _column(column, lines if len(lines) == 1 else lines[1:-1])
        return
    read = _json(text) if text.lstrip()[:1] in ("{", "[", '"') else None
    if read is None and len(lines) > 1 and all(line.lstrip()[:1] in ("{", "[") for line in lines):
        read = [_json(line) for line in lines]
        read = None if None in read else read
    if read is not None:
        yield from _leaves(read, "", "", words_of(tool), derived=True)
    elif len(lines) == 1 and len(text.split()) == 1:
        yield Field("", "", words_of(tool), text.strip(), is_derived=True)
    else:
        yield from _cells(lines)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _leaves(
    value: Any, path: str, group: str, name: tuple[str, ...], depth: int = 0, *, derived: bool = False
) -> Iterator[Field]:
    if depth > MOST_NESTED or value is None or isinstance(value, bool):
        return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            named = bool(_PLAIN_KEY.fullmatch(key))
            is_record = isinstance(inner, (Mapping, list)) and (not named or any(map(str.isdigit, key)))
            part = key if named and not is_record else "*"
            at, within = (f"{each}.{last}" if each else last for each, last in ((path, key), (group, part)))
            if is_record:
                yield Field(at, within, name, key, is_key=True)
            if part == "*":
                yield from _leaves(inner, at, within, name, depth + 1, derived=derived)
            else:
                yield from _leaves(inner, at, within, words_of(key), depth + 1)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{place}]", f"{group}[]", name, depth + 1, derived=derived)
    elif isinstance(value, (str, int, float)) and len(str(value)) <= LONGEST:
        yield Field(path, group, name, value, is_derived=derived)


def _cells(lines: list[str]) -> Iterator[Field]:
    """Yield the cells of a table whose lines have equally many; a last line in brackets may count the rows."""
    if lines and lines[-1].startswith("(") and lines[-1].endswith(")"):
        lines = lines[:-1]
    for mark in ("|", "\t", ",", ";"):
        rows = [line.strip().strip("|") if mark == "|" else line for line in lines]
        table = _split(rows, mark)
        if len(table) < 2 or len(table[0]) < 2 or len({len(row) for row in table}) > 1:
            continue
        if mark in ",;" and any(cell != cell.strip() for row in table for cell in row):
            continue  # prose has a space after a comma
        names = [cell.strip() for cell in table[0]]
        body = [row for line, row in zip(rows[1:], table[1:], strict=True) if not _RULE.fullmatch(line)]
        for at, name in enumerate(names):
            yield from _column(name, [row[at].strip() for row in body])
        return


def _column(name: str, cells: Sequence[str]) -> Iterator[Field]:
    """Yield the values of a column, as numbers if all are; an empty cell, also as databases print it, is none."""
    cells = ["" if cell == EMPTY else cell for cell in cells]
    numbers = [_number(cell) for cell in cells]
    typed = all(number is not None for number, cell in zip(numbers, cells, strict=True) if cell)
    for place, (cell, number) in enumerate(zip(cells, numbers, strict=True)):
        if cell and len(cell) <= LONGEST:
            value = number if typed and number is not None else cell
            yield Field(f"{name}[{place}]", f"{name}[]", words_of(name), value)


def _split(rows: Sequence[str], mark: str) -> list[list[str]]:
    """Return the cells of each line; [] for lines that are no table."""
    if mark == "|":
        return [row.split("|") for row in rows]
    try:
        return list(csv.reader(rows, delimiter=mark))
    except csv.Error:
        return []


def _number(cell: str) -> float | int | None:
    if not re.fullmatch(r"-?(0|[1-9]\d{0,14})(\.\d{1,9})?", cell):
        return None
    return float(cell) if "." in cell else int(cell)


def schema_fields(schema: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the paths in an output schema whose `format` says that they name something, as `payees[].iban`."""
    if not isinstance(schema, Mapping) or depth > MOST_NESTED:
        return
    if str(schema.get("format", "")) in FORMATS:
        yield path
    for key in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(key) or ():
            yield from schema_fields(each, path, depth + 1)
    for name, inner in (schema.get("properties") or {}).items():
        yield from schema_fields(inner, f"{path}.{name}" if path else str(name), depth + 1)
    yield from schema_fields(schema.get("items"), f"{path}[]", depth + 1)


def identifies(field: Field, declared: Collection[str] | None) -> bool:
    """Return whether a field names something: as its tool declares, by path or by name; else by its plain name."""
    if declared is not None:
        last = field.group.replace("[]", "").rpartition(".")[2]
        return field.group in declared or field.group.replace("[]", "") in declared or last in declared
    if field.is_derived:
        return bool({*field.name, *(word.removesuffix("s") for word in field.name)} & DERIVED)
    return field.is_key or names_something(field.name)
