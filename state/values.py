"""Values that may be stored: finite numbers, valid characters, bounded nesting. Also comparisons of texts and names."""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from difflib import get_close_matches
from typing import Any
from zoneinfo import ZoneInfo

Json = dict[str, Any]
"""A JSON object."""
FENCE_BYTES = 3
"""The length of the random word that frames foreign text: guessing it takes 16 million tries."""
DEEPEST = 64
"""The most nested levels of objects and lists, because later code recurses."""
MOST_ITEMS = 100_000
CERTAIN = 2**53
"""From here on, a floating-point number stands for several whole ones."""
NUMBER_CHARS = 100
"""The most characters of a number, and the largest exponent; what is longer or larger is compared as text."""
NAME_CHARS = 100
"""The most characters of a person's name before their words."""


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a copy of a JSON value with every text changed, except keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_texts(item, change) for item in value]
    return {key: map_texts(item, change) for key, item in value.items()} if isinstance(value, dict) else value


def is_too_deep(value: Any, deepest: int = DEEPEST) -> bool:
    """Return whether more than `deepest` lists and objects are nested."""
    level = [value]
    for _ in range(deepest):
        parts = [each for each in level if isinstance(each, dict | list)]
        level = [inner for each in parts for inner in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return False
    return any(isinstance(each, dict | list) for each in level)


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON value, keys included; numbers and the like as texts."""
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            stack += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple):
            stack += part
        else:
            yield part if isinstance(part, str) else str(part)


def json_problem(value: Any) -> str | None:
    """Return why a JSON value cannot be stored and shown; None if it can. Linear."""
    stack: list[tuple[Any, int]] = [(value, 0)]
    items = 0
    while stack:
        current, depth = stack.pop()
        items += 1
        if items > MOST_ITEMS:
            return f"holds more than {MOST_ITEMS:,} values"
        if isinstance(current, str):
            if clean_text(current) != current:
                return "holds half a character (a lone surrogate such as \\ud83d)"
        elif isinstance(current, float):
            if not math.isfinite(current):
                return f"holds {current}, which is no JSON number"
        elif isinstance(current, dict | list | tuple):
            if depth >= DEEPEST:
                return f"is nested deeper than {DEEPEST} levels"
            children = [*current, *current.values()] if isinstance(current, dict) else current
            stack.extend((child, depth + 1) for child in children)
        elif isinstance(current, int) and not -(2**63) <= current < 2**64:
            return "holds a whole number of more than 64 bits"
        elif not (current is None or isinstance(current, bool | int)):
            return f"holds a {type(current).__name__}, which is no JSON value"
    return None


def plain_json(value: Any) -> Any:
    """Return the value as it is read again after it was stored as JSON. Raises ValueError if that is another value."""
    try:
        plain = json.loads(json.dumps(value, allow_nan=False))
        problem = json_problem(plain)
        changed = not same_json(storable(plain), value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if problem or changed:
        raise ValueError(problem or "it holds a key that is no text, or a character that cannot be stored")
    return plain


def as_whole(number: float) -> int | None:
    """Return a number such as 7.0, as models write it, as the whole number that it certainly is; None for others."""
    return int(number) if abs(number) < CERTAIN and number == int(number) else None


def read_number(text: str) -> Decimal | None:
    """Return a number that can be compared; None for any other text, and for a number too long to be taken for one."""
    try:
        number = Decimal(text) if len(text) <= NUMBER_CHARS else None
    except ArithmeticError:  # 1e9999999999999999999
        return None
    return number.normalize() if number is not None and abs(number.adjusted()) <= NUMBER_CHARS else None


def same_json(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; 1 is equal to 1.0, and true to neither."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


def clean_text(text: str) -> str:
    """Return the text with lone surrogates replaced, so that it can be stored and sent."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def storable(value: Any) -> Any:
    """Return a JSON value as every database and client takes it: halves of characters, and NUL, are replaced by U+FFFD,
    and a float that is no number by None.
    """
    if isinstance(value, str):
        return clean_text(value).replace("\0", "\ufffd")
    if isinstance(value, Mapping):
        return {storable(name): storable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def storable_text(value: Any) -> str:
    """Return `storable(value)` as JSON. The value is copied only if its JSON shows that something is to be replaced."""
    with suppress(TypeError, ValueError):
        text = _compact.encode(value)
        if "\\ud" not in text and "\\u0000" not in text:
            return text
    return json.dumps(storable(value), separators=(",", ":"), default=str)


_compact = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


_RESULT_HAD, _NOT_KEPT = "the result had ", "; the rest was not kept"
_NOTE_OF_REST = re.compile(rf"\n… ({_RESULT_HAD}.*{_NOT_KEPT})$", re.MULTILINE)
_END_CHARS = 10_000
"""What a text says of the rest stands among its last characters; notes of other kinds may follow."""


def note_of_rest(size: str) -> str:
    """Return the line that ends the text of a result of this size if only its beginning was kept."""
    return f"\n… {_RESULT_HAD}{size}{_NOT_KEPT}"


def split_kept(text: str) -> tuple[str, str]:
    """Return what was kept of a result, and what its text says of the rest; "" if that is all of it."""
    notes = [*_NOTE_OF_REST.finditer(text, max(len(text) - _END_CHARS, 0))]
    return (text[: notes[-1].start()], notes[-1][1]) if notes else (text, "")


def fold_text(text: str) -> str:
    """Return a text for comparison, regardless of case and white space. 10² and 102 stay two texts."""
    return " ".join(text.casefold().split())


def similar(name: str, names: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """Return up to three similar names, best first."""
    by_folded = {other.casefold(): other for other in names}
    wanted = name[:100].casefold()
    tail = [other for other in by_folded if other and wanted.endswith((f".{other}", f":{other}", f"/{other}"))]
    inside = [other for other in by_folded if len(wanted) > 2 and (wanted in other or other in wanted)]
    return [
        by_folded[other]
        for other in dict.fromkeys([*tail, *get_close_matches(wanted, by_folded, cutoff=cutoff), *inside])
    ][:3]


def name_hint(name: str, names: Collection[str]) -> str:
    """Return a hint at the probably intended name, for corrections."""
    if matches := similar(name, names, 0.5):
        return f"; did you mean {', '.join(matches)}?"
    return f"; there are: {', '.join(sorted(names)[:20])}" if names else "; there are none"


def check_zone(text: str) -> str:
    """Return the name of a time zone unchanged; raise ValueError for any other text."""
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{text[:40]!r} is not a time zone such as Europe/Berlin") from None
    return text


def with_name(name: object, text: str) -> str:
    """Return a person's words with their name before them, as in `bob: only the blue ones`; without one as they are."""
    known = " ".join(str(name or "").split())[:NAME_CHARS]
    return f"{known}: {text}" if known else text


def store_label(thread_id: str) -> str:
    """Return a thread's id, or an owner, as a label of a store namespace, which may be neither empty nor contain dots.

    Different texts have different labels.
    """
    return "%2D" if thread_id == "-" else thread_id.replace("%", "%25").replace(".", "%2E") or "-"
