"""Decide which targets of a write a person knows. Pure; it reads structure, never the meaning of words (X25).

A target is an address, an id, a path, a URL or a number among a call's arguments. It is known if it is in a plan that
a person approved, in a request of theirs, their whole answer to a question, or a *whole value* of a tool result: a leaf
of JSON, a cell of a table, a line of a list. Parts of a text in a tool result are not known, because text is where
injected instructions are; nor are parts of what a person said later, as “above all not prod.db” names it as well.
"""

import csv
import json
import posixpath
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from donewhen.state.language.short_replies import read_word
from donewhen.state.pattern import pattern
from donewhen.state.records import WRITES
from donewhen.state.values import fold_text, read_number

PROSE_WORDS = 12
"""A text with more plain words is prose, such as the body of a mail, and contains no targets."""
LONG = 10_000
"""The beginning of a longer text of several lines tells whether it is prose."""
MEASURE_WORDS = 2
"""A text of at most this many words is an amount, such as `900 EUR`; in longer texts short numbers are no targets."""
LONG_NUMBER = 1000
"""Numbers from here on may be an id or an amount in a longer text."""
FLAGS = frozenset(map(Decimal, (-1, 0, 1)))
"""Numbers that act as switches, or mean none or all."""
LARGEST = 2_000_000
"""The most characters of a result that are read for whole values."""
MOST_NESTED = 60
QUESTIONS = frozenset(("confirm_plan", "ask_user", "approve_tool", "extend_budget", "resolve_effect"))
"""The names of the calls that show a question to a person in the conversation."""

_EDGES = "\"'`()[]{}<>,;:!?“”‘’„«»‹›*|，。；：！？、（）【】「」『』《》"
_CLAUSE = pattern(r"[.,;:!。，；！、\n]")
_SPLIT = pattern(r"[\s，。；！？、（）【】「」『』《》]+")
_UNSPACED = pattern(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
"""Letters of scripts that put no space between words."""
_DATE = pattern(
    r"\d{4}([-/.])\d\d?\1\d\d?(?:[t ]\d\d?:\d\d(?::\d\d)?(?:\.\d+)?(?:z|[+-]\d\d:?\d\d)?)?"
    r"|\d\d?([-/.])\d\d?\2\d{4}|\d\d?:\d\d(?::\d\d)?(?:\.\d+)?(?:z|[+-]\d\d:?\d\d)?"
)
_ID = pattern(
    r"\A(?:.*\d.*|.+@.+|[@#~]\w.*|.*://.*|.*\w_\w.*|.*\w\.\w{2,}.*|[0-9a-f]{8,}|[/\\].*|\.{1,2}[/\\].*|\w:\\.*"
    r"|.*[/\\].*[/\\].*)"
)
_CAPITALS = pattern(r"[A-Z]{2,}(?:[-_][A-Z]+)+")
_ADDRESSED = pattern(r"<[^<>\s]+@[^<>\s]+>")
_NUMBER = pattern(r"(?<![\w.,'/@#-])#?[-+]?[$€£¥₹]? ?(\d[\d.,']*)(?=%|[^\W\d_]{0,3}(?![\w@])(?![-/:]\d))")
_SPACED = pattern(r"(?<![\w.,-])\d{1,3}(?: \d{3})+(?![\w-])")
_PLAIN = pattern(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_GROUPED = (pattern(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?"), pattern(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?"), pattern(r"\A\d+,\d+"))
_FRAME = pattern(r"^<(\w+) ([0-9a-f]{6})(?: [^\n]*)?>\n.*?\n</\1 \2>$", re.DOTALL | re.MULTILINE)
_RULE = pattern(r"\A[|\s:+-]*-[|\s:+-]*")


# --- targets


def values_of(arguments: Any, schema: Any = None, depth: int = 0) -> Iterator[str]:
    """Yield the texts and numbers of a call's arguments that may contain targets, and names unknown to the schema."""
    kinds = list(_kinds(schema))
    if depth > MOST_NESTED or arguments is None or isinstance(arguments, bool) or _is_in_schema(arguments, kinds):
        return
    if isinstance(arguments, (str, int, float)):
        yield str(arguments)
    elif isinstance(arguments, Mapping):
        known = {str(name): rule for kind in kinds for name, rule in (kind.get("properties") or {}).items()}
        more = next((kind["additionalProperties"] for kind in kinds if "additionalProperties" in kind), None)
        for name, inner in arguments.items():
            if name not in known and {"@", "/"} & set(str(name)):
                yield str(name)
            yield from values_of(inner, known.get(str(name), more), depth + 1)
    elif isinstance(arguments, (list, tuple)):
        items = next((kind["items"] for kind in kinds if "items" in kind), None)
        for inner in arguments:
            yield from values_of(inner, items, depth + 1)


def _kinds(schema: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and its alternatives."""
    if isinstance(schema, Mapping) and depth < MOST_NESTED:
        yield schema
        for key in ("anyOf", "oneOf", "allOf"):
            for each in schema.get(key) or ():
                yield from _kinds(each, depth + 1)


def _is_in_schema(value: Any, kinds: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the schema itself contains the value."""
    own = [each for kind in kinds for each in (*(kind.get("enum") or ()), kind.get("const"), kind.get("default"))]
    return any(type(each) is type(value) and each == value for each in own)


def _fold_target(text: str) -> str:
    """Return a text for comparison of targets, where forms of a character that look alike are the same."""
    return fold_text(text if text.isascii() else unicodedata.normalize("NFKC", text))


def _targets_in(value: str) -> Iterator[str]:
    """Yield the targets in one value of an argument."""
    text = unicodedata.normalize("NFKC", value).strip()
    if len(text) > LONG and "\n" in text and _is_prose(_SPLIT.split(text[:LONG])):
        return
    parts = [part for each in _SPLIT.split(text) if (part := _strip_marks(each))]
    if len(parts) == 1 and not _SPLIT.search(_strip_marks(text)):
        if _is_marked(parts[0], alone=True) and not _is_flag(text) and not _DATE.fullmatch(text.casefold()):
            yield parts[0]
        return
    marked = [part for part in parts if _is_marked(part)]
    if len(parts) - len(marked) > PROSE_WORDS:
        marked = [each[0].strip("<>") for each in _ADDRESSED.finditer(text)] if "\n" not in text else []
    for part in marked:
        short = len(parts) > MEASURE_WORDS and 0 <= max(map(abs, amounts_of(part)), default=-1) < LONG_NUMBER
        if not short and not _DATE.fullmatch(part.casefold()):
            yield part


def _is_prose(words: list[str]) -> bool:
    plain = (part for each in words if (part := _strip_marks(each)) and not _is_marked(part))
    return sum(1 for _ in plain) > PROSE_WORDS


def _is_marked(part: str, *, alone: bool = False) -> bool:
    """Return whether a word looks like an address, id, path, URL or number; with `alone` it is a whole value."""
    return bool(_ID.fullmatch(part.casefold()) or _CAPITALS.fullmatch(part) or (alone and re.search(r"[/\\:]", part)))


def _strip_marks(text: str) -> str:
    """Return the text without surrounding brackets and marks; a leading dot may belong to a path."""
    return text.strip().lstrip(_EDGES).rstrip(f"{_EDGES}.…")


def _is_flag(text: str) -> bool:
    return bool(FLAGS & amounts_of(text))


def amounts_of(text: str) -> set[Decimal]:
    """Return the possible values of a number: `1,200` is 1200, in some countries 1.2; nothing for an id such as 007."""
    sign, digits = ("-", text[1:]) if text[:1] == "-" else ("", text.lstrip("+"))
    digits = digits.strip(" $€£¥₹%#").replace("'", "")
    if not digits[:1].isdigit() or (len(digits) > 1 and digits[0] == "0" and digits.isdigit()):
        return set()
    found = {digits} if _PLAIN.fullmatch(digits) else set()
    if _GROUPED[0].fullmatch(digits):
        found.add(digits.replace(",", ""))
    if _GROUPED[1].fullmatch(digits):
        found.add(digits.replace(".", "").replace(",", "."))
    if _GROUPED[2].fullmatch(digits):
        found.add(digits.replace(",", "."))
    return {number for each in found if (number := read_number(sign + each)) is not None}


# --- what is known


def known_targets(run: Mapping[str, Any]) -> "KnownTargets":
    """Collect the targets that a run makes known (see above). A plan counts once a person approved it."""
    known = KnownTargets()
    approval = run.get("approval") or {}
    if approval.get("by") == "user":
        for text in _texts(approval["plan"]):
            known.say(text)
    for text in (run.get("goal") or "", *_requests(run.get("messages") or ())):
        known.say(strip_frames(text))
    for row in run.get("approvals") or ():
        if row["by"] == "user":
            known.decide(row)
    for entry in (*(run.get("before") or ()), *(run.get("journal") or ())):
        known.observe(entry)
    return known


def _requests(messages: Sequence[BaseMessage]) -> Iterator[str]:
    """Yield what people asked for in the conversation, and not what they replied to a question."""
    asked = False
    for message in messages:
        if isinstance(message, HumanMessage) and not asked:
            yield message.text
        elif isinstance(message, AIMessage):
            asked = any(call["name"] in QUESTIONS for call in message.tool_calls)


def strip_frames(text: str) -> str:
    """Return the text without the frames of another run, which contain foreign text."""
    return _FRAME.sub(" ", text)


class KnownTargets:
    """Targets that a person knows of, in the order in which they became known. Each source is read once."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self._amounts: set[Decimal] = set()
        self._refused: set[str] = set()
        self._agreed: set[str] = set()
        self._read: dict[str | Decimal, int] = {}
        """Whole values, with the number of the first observation that had them."""
        self._wrote: list[tuple[int, str]] = []
        """Values that writes of this run sent out, with the numbers of their observations."""
        self._seen: set[str] = set()
        self._waiting: list[tuple[int, str, str]] = []
        """Results that were not read yet, each with the arguments of its call."""
        self._long: dict[str, tuple[int, str]] = {}

    def say(self, text: str) -> None:
        """Add everything in a text that a person approved, or asked for."""
        plain = _fold_target(text)
        self._said.append(plain)
        self._amounts |= _amounts_in(plain)

    def decide(self, row: Mapping[str, Any]) -> None:
        """Add the targets of calls that a person approved or edited; those of rejected ones ask from then on."""
        if row["kind"] != "tool":
            return
        if row["decision"] in ("approve", "edit"):
            calls = [row.get("edited")] if row["decision"] == "edit" else [row["arguments"]]
            calls += [each["arguments"] for each in row.get("batch") or () if row["decision"] == "approve"]
            agreed = {
                _fold_target(each)
                for call in calls
                for value in values_of(call)
                for each in (value, *_targets_in(value))
            }
            self._agreed |= agreed
            self._refused -= agreed
        else:
            self._refused |= {_fold_target(each) for each in row.get("new") or ()}

    def answer(self, text: str, question: str = "") -> None:
        """Add what a person answered if it is a value as a whole.

        A plain yes agrees to the amounts in the question; what a no was said to asks from then on.
        """
        said = read_word(_CLAUSE.split(text.strip(), maxsplit=1)[0])
        if said == "no":
            self._refused |= {_fold_target(part) for part in map(_strip_marks, _SPLIT.split(question)) if part}
        if read_word(text) == "yes":
            self._amounts |= _amounts_in(_fold_target(question))
            return
        for value in (text, *whole_values(text)):
            self._agreed |= {form for form in _spellings(_fold_target(value.strip())) if form}
            self._amounts |= amounts_of(_strip_marks(_fold_target(value)))

    def observe(self, entry: Mapping[str, Any]) -> None:
        """Add the whole values of an observation, and a person's answer. Each observation counts once."""
        if entry["id"] in self._seen or entry.get("outside"):
            return
        self._seen.add(entry["id"])
        if entry["source"] == "user":
            if entry["ok"] and entry["arguments"].get("by") == "user":
                self.answer(entry["text"], str(entry["arguments"].get("question") or ""))
            return
        if entry["source"] not in ("tool", "check") or entry.get("delegated"):
            return
        number = len(self._seen)
        given = _fold_target(" ".join(_texts(entry["arguments"])))
        if entry.get("effect") in WRITES:
            self._wrote.append((number, given))
        if not entry["ok"] or entry.get("effect") is None:
            return
        if entry.get("stored"):
            self._long[entry["id"]] = (number, given)
        else:
            self._waiting.append((number, given, entry["text"]))

    @property
    def long(self) -> list[str]:
        """Observations of which only head and tail are at hand; pass their full text to `read`."""
        return list(self._long)

    def read(self, id: str, text: str) -> None:
        """Add the whole values of a long observation, given its full text."""
        self._waiting.append((*self._long.pop(id), text))

    def new(self, arguments: Any, schema: Any = None) -> list[str]:
        """Return the unknown targets of a call, as written, each once.

        These are no targets: values that the tool's schema enumerates or has as default, truth values, 0, 1 and -1,
        dates, times, plain words, and anything in prose.
        """
        unknown = [value for value in values_of(arguments, schema) if not self.knows(value)]
        targets = dict.fromkeys(target for value in unknown for target in _targets_in(value))
        return [target for target in targets if not self.knows(target)]

    def knows(self, target: str) -> bool:
        """Return whether this value is known: numbers compare by value, paths in any spelling."""
        plain = _fold_target(target)
        amounts = amounts_of(plain)
        if plain in self._refused:
            return False
        if amounts & self._amounts or any(form in self._agreed for form in _spellings(plain)):
            return True
        if not amounts and any(_stands_in(form, text) for form in _spellings(plain) for text in self._said):
            return True
        self._look()
        return any(self._was_returned_first(form) for form in _forms(plain))

    def _look(self) -> None:
        """Read the waiting results. Arguments that a result repeats do not count."""
        for number, given, text in self._waiting:
            amounts = _amounts_in(given)
            for form in {form for value in {*whole_values(text)} for form in _forms(_fold_target(value))}:
                echo = form in amounts if isinstance(form, Decimal) else _stands_in(form, given)
                if not echo and number < self._read.get(form, number + 1):
                    self._read[form] = number
        self._waiting.clear()

    def _was_returned_first(self, value: str | Decimal) -> bool:
        """Return whether a tool returned the value before this run wrote it; the run's own writes prove nothing."""
        if (first := self._read.get(value)) is None:
            return False
        return not any(_has(text, value) for number, text in self._wrote if number <= first)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield all texts and numbers in JSON, including names."""
    if isinstance(value, Mapping) and depth < MOST_NESTED:
        for name, inner in value.items():
            yield str(name)
            yield from _texts(inner, depth + 1)
    elif isinstance(value, (list, tuple)) and depth < MOST_NESTED:
        for inner in value:
            yield from _texts(inner, depth + 1)
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield str(value)


def _forms(plain: str) -> Iterator[str | Decimal]:
    """Yield all forms in which a value is compared."""
    yield from _spellings(plain)
    yield from amounts_of(plain)


def _spellings(plain: str) -> tuple[str, ...]:
    """Return a value as it is and without surrounding marks, and the shortest form of a path."""
    forms = {plain: None, _strip_marks(plain) or plain: None}
    if "/" in plain and "://" not in plain:
        forms[posixpath.normpath(plain)] = None
    return tuple(forms)


def _has(text: str, form: str | Decimal) -> bool:
    return form in _amounts_in(text) if isinstance(form, Decimal) else _stands_in(form, text)


def _stands_in(value: str, text: str) -> bool:
    """Return whether the text contains the value as a token of its own."""
    start = text.find(value) if value else -1
    while start >= 0:
        end = start + len(value)
        if not _continues(text, start - 1, -1, value[0]) and not _continues(text, end, 1, value[-1]):
            return True
        start = text.find(value, start + 1)
    return False


def _continues(text: str, place: int, step: Literal[-1, 1], edge: str) -> bool:
    """Return whether a token that ends before `place`, read in the direction of `step`, continues there."""
    if not 0 <= place < len(text):
        return False
    sign, beyond = text[place], text[place + step] if 0 <= place + step < len(text) else " "
    if sign.isalnum() or sign == "_":
        return edge.isalnum() and not _UNSPACED.match(sign) and not _UNSPACED.match(edge)
    if sign in "@\\~" or (sign == "/" and step < 0):
        return beyond != "." or (place > 1 and not text[place - 2].isspace())
    inner = "/.-+%&?#~" if step < 0 else "/.-+%&?=:"
    return sign in inner and (beyond.isalnum() or beyond in "/_") and not _UNSPACED.match(beyond)


def _amounts_in(text: str) -> set[Decimal]:
    """Return the amounts in a text that are not part of an id."""
    apart = _UNSPACED.sub(" ", text)
    found = {amount for each in _NUMBER.finditer(apart) for amount in _signed_amounts(each)}
    return found | {amount for each in _SPACED.finditer(apart) for amount in amounts_of(each[0].replace(" ", ""))}


def _signed_amounts(number: re.Match[str]) -> set[Decimal]:
    digits = number[1].rstrip(".,'")
    return amounts_of(f"-{digits}" if "-" in number[0][: -len(number[1])] else digits)


# --- whole values of results


def whole_values(text: str) -> Iterator[str]:
    """Yield the values of a result that is data as a whole: JSON, a table, or a list with one value per line.

    Text around data makes it prose, because the author of the text may have written the data too.
    """
    if len(text) > LARGEST:
        return
    lines = [line for line in text.splitlines() if line.strip()]
    read = _json(text) if text.lstrip()[:1] in ("{", "[", '"') else None
    if read is None and lines and all(line.lstrip()[:1] in ("{", "[") for line in lines):
        read = [_json(line) for line in lines]
        read = None if None in read else read
    if read is not None:
        yield from _texts(read)
        return
    if all(len(line.split()) == 1 for line in lines):
        yield from lines
    yield from _cells(lines)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _cells(lines: list[str]) -> Iterator[str]:
    """Yield the cells of a table whose lines have equally many; a last line in brackets may count the rows."""
    if lines and lines[-1].startswith("(") and lines[-1].endswith(")"):
        lines = lines[:-1]
    for mark in ("|", "\t", ",", ";"):
        rows = [line.strip().strip("|") if mark == "|" else line for line in lines]
        try:
            table = list(csv.reader(rows, delimiter=mark)) if mark != "|" else [row.split("|") for row in rows]
        except csv.Error:
            continue
        if len(table) < 2 or len(table[0]) < 2 or len({len(row) for row in table}) > 1:
            continue
        if mark in ",;" and any(cell != cell.strip() for row in table for cell in row):
            continue  # prose has a space after a comma
        yield from (cell for line, row in zip(rows, table, strict=True) if not _RULE.fullmatch(line) for cell in row)
        return
