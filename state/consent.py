"""Find the source of each argument of a write. Pure; it reads structure, never the meaning of words (X25).

A source is something that a person was shown or picked: the approved plan's step, an option, a form's field, an answer
that is the value, or the goal while no plan was shown. It may also be a field that names something in a tool's result,
such as `payee.iban`, or a sum of such amounts. Free text, titles and bodies are no sources, because they may hold
injected instructions. If the model wrote a value into a call before the value came back, the result is no source of it,
unless a person wrote it, too.
"""

import posixpath
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any, Literal

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from donewhen.state.identity import (
    FORMATS,
    Field,
    fields_of,
    fits,
    holds_addresses,
    identifies,
    is_free_text,
    names_something,
    same_name,
    words_of,
)
from donewhen.state.language.mentions import (
    MIXED,
    SHORT_ID,
    PersonsText,
    fold,
    spellings,
    stands_in,
    strip_marks,
    without_sign,
)
from donewhen.state.language.quantities import amounts_of, dates_in, read_measure
from donewhen.state.language.short_replies import read_word
from donewhen.state.pattern import pattern
from donewhen.state.plan.order import ancestors
from donewhen.state.records import WRITES, JournalEntry
from donewhen.state.values import FENCE_BYTES, same_json

PROSE_WORDS = 12
"""A text with more plain words is prose, such as the body of a mail, and contains no targets."""
LONG = 10_000
"""The beginning of a longer text of several lines tells whether it is prose."""
FLAGS = frozenset(map(Decimal, (-1, 0, 1)))
"""Numbers that act as switches, or stand for none or all."""
MOST_NESTED = 60
MOST_SIBLINGS = 2_000
"""The most values of one field of a result that are compared with what the plan names."""
MOST_OPERANDS = 50
QUESTIONS = frozenset(("confirm_plan", "ask_user", "approve_tool", "extend_budget", "resolve_effect"))
"""The names of the calls that show a question to a person in the conversation."""
OF_PLAN = ("title", "done_when", "check")
"""What a plan says about all of its steps."""

_CLAUSE = pattern(r"[.,;:!。，；！、\n]")
_SPLIT = pattern(r"[\s，。；！？、（）【】「」『』《》]+")
_MOMENT = pattern(
    r"\d{4}([-/.])\d\d?\1\d\d?(?:[t ]\d\d?:\d\d(?::\d\d)?(?:\.\d+)?(?:z|[+-]\d\d:?\d\d)?)?"
    r"|\d\d?([-/.])\d\d?\2\d{4}|\d\d?:\d\d(?::\d\d)?(?:\.\d+)?(?:z|[+-]\d\d:?\d\d)?"
)
_ADDRESS = pattern(r"\A(?:mailto:)?(?:[^@]+@[^@]+\.\w+|\w{2,12}://\S+|www\.\S+)")
_APART = pattern(r"[\s<>()\[\]\"',;]+")
_PLAIN = pattern(r"[^\W\d_]+(?:[ '’-][^\W\d_]+)*")
_FRAME = pattern(rf"^<(\w+) ([0-9a-f]{{{2 * FENCE_BYTES}}})(?: [^\n]*)?>\n.*?\n</\1 \2>$", re.DOTALL | re.MULTILINE)
_SUM = pattern(r"[\d\s.,+*()-]+")
_QUOTED = pattern(r"'([^']*)'|\"([^\"]*)\"")

Words = tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """Where a value comes from."""

    kind: Literal["plan", "goal", "answer", "approved", "result", "expression", "today"]
    at: str = ""
    """The step of the plan, or the observation."""
    field: str = ""
    """The field of the result, such as `payee.iban`."""


@dataclass(frozen=True)
class Argument:
    """One value of a call, or the part of it that names something, and its source."""

    path: str
    """Such as `to` or `items[0].id`."""
    value: str
    source: Source | None
    """None if it is in nothing that a person saw, and in no field that names something."""

    def row(self, chars: int | None = None) -> dict[str, Any]:
        """Return it as a row of a question or a receipt; its value is cut after `chars` characters."""
        source = {"kind": self.source.kind, "at": self.source.at, "field": self.source.field} if self.source else None
        return {"argument": self.path, "value": self.value[:chars], "source": source}


def lacks_source(traced: Sequence[Argument]) -> bool:
    """Return whether one of these arguments has no source."""
    return any(each.source is None for each in traced)


def new_values(traced: Sequence[Argument]) -> list[str]:
    """Return the values that have no source, as written, each once."""
    return [*dict.fromkeys(each.value for each in traced if each.source is None)]


# --- arguments


@dataclass(frozen=True)
class CallValue:
    """One value among a call's arguments."""

    path: str
    name: Words
    value: str | int | float
    format: str = ""

    @property
    def is_named(self) -> bool:
        """True if its name or its format says that it names something."""
        return self.format in FORMATS or names_something(self.name)


def values_of(
    arguments: Any, schema: Any = None, path: str = "", name: Words = (), depth: int = 0
) -> Iterator[CallValue]:
    """Yield the values of a call that may need a source; names of arguments that its schema lacks are among them."""
    kinds = list(_kinds(schema))
    if depth > MOST_NESTED or arguments is None or isinstance(arguments, bool) or _is_in_schema(arguments, kinds):
        return
    if isinstance(arguments, (str, int, float)):
        yield CallValue(path, name, arguments, next((str(kind["format"]) for kind in kinds if "format" in kind), ""))
    elif isinstance(arguments, Mapping):
        properties = {str(key): rule for kind in kinds for key, rule in (kind.get("properties") or {}).items()}
        more = next((kind["additionalProperties"] for kind in kinds if "additionalProperties" in kind), None)
        for key, inner in arguments.items():
            key, at = str(key), f"{path}.{key}" if path else str(key)
            if key not in properties and depth and not key.replace("_", "").isalpha():
                yield CallValue(at, ("id",), key)
            yield from values_of(inner, properties.get(key, more), at, words_of(key), depth + 1)
    elif isinstance(arguments, (list, tuple)):
        items = next((kind["items"] for kind in kinds if "items" in kind), None)
        for place, inner in enumerate(arguments):
            yield from values_of(inner, items, f"{path}[{place}]", name, depth + 1)


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


def parts_of(item: CallValue) -> list[str]:
    """Return the parts of a value that need a source.

    The whole value needs one if its argument's name or format says that it names something, or if it is a single word
    or number. In longer texts, whatever looks like an address, an id or a path needs one; in free text only addresses,
    and in prose nothing.
    """
    if not isinstance(item.value, str):
        return [] if _is_flag(str(item.value)) else [str(item.value)]
    text = unicodedata.normalize("NFKC", item.value).strip()
    if not item.is_named and is_free_text(item.name):
        return _addresses_in(text, one_line=item.name[-1] in ("subject", "title", "headline"))
    parts = [part for each in _SPLIT.split(text[: 2 * LONG]) if (part := strip_marks(each) or each.strip())]
    if len(parts) == 1:
        return [] if _is_flag(text) or _is_time(text) else [parts[0] if len(text) < LONG else text]
    if item.is_named:
        return _addresses_in(text, one_line=True) or [text]
    if _MOMENT.fullmatch(text.casefold()) or read_measure(text):
        return [text]
    if len(parts) > PROSE_WORDS or "\n" in text:
        return _addresses_in(text, one_line="\n" not in text)
    return [text]


def _as_written(item: CallValue, part: str) -> str:
    """Return a part as people are shown it: with the marks around it, if it is the whole value."""
    text = str(item.value).strip()
    return text if strip_marks(text) == part else part


def _addresses_in(text: str, *, one_line: bool) -> list[str]:
    """Return the addresses and URLs in a text; in prose none, unless `one_line`: its argument holds a single line."""
    prose = len(_SPLIT.split(text[:LONG])) > PROSE_WORDS
    if prose and not (one_line and ("\n" in text or "<" in text or len(text) < LONG)):
        return []
    return [part for each in _APART.split(text) if _ADDRESS.fullmatch(part := strip_marks(each))]


def _is_time(text: str) -> bool:
    return ":" in text[:3] and bool(_MOMENT.fullmatch(text.casefold()))


def _is_flag(text: str) -> bool:
    return bool(FLAGS & amounts_of(text)) or text.casefold() in ("true", "false")


# --- sources


def sources_of(run: Mapping[str, Any], step: str = "", today: str = "") -> "Sources":
    """Collect the sources for the arguments of a step's writes.

    If a person approved the plan, they are what the plan says for the step and for the steps that it depends on;
    otherwise the goal and the earlier requests.
    """
    sources = Sources()
    approval = run.get("approval") or {}
    if approval.get("by") == "user":
        sources.add_plan(approval["plan"], step)
    else:
        sources.add_text(strip_frames(run.get("goal") or ""))
    for text, asked in _words(run.get("messages") or ()):
        if asked == "ask_user":
            sources.add_reply(text)
        elif not (asked or sources.has_plan):
            sources.add_text(strip_frames(text))
    if today:
        sources.add_text(today[:10], Source("today"))
    for row in run.get("approvals") or ():
        if row["by"] == "user":
            sources.add_decision(row)
    for entry in (*(run.get("before") or ()), *(run.get("journal") or ())):
        sources.add_observation(entry)
    return sources


def _words(messages: Sequence[BaseMessage]) -> Iterator[tuple[str, str]]:
    """Yield what people wrote in the conversation, each with the name of the question that it replies to, or ""."""
    question = ""
    for message in messages:
        if isinstance(message, HumanMessage):
            yield message.text, question
        elif isinstance(message, AIMessage):
            question = next((call["name"] for call in message.tool_calls if call["name"] in QUESTIONS), "")


def _first_word(reply: str) -> str | None:
    return read_word(_CLAUSE.split(reply.strip(), maxsplit=1)[0])


def strip_frames(text: str) -> str:
    """Return the text without the frames of another run, which contain foreign text."""
    return _FRAME.sub(" ", text)


@dataclass(frozen=True)
class ResultValue:
    """A value of a result."""

    number: int
    """The number of its observation."""
    entry: str
    field: Field
    names_something: bool
    """True if the field does."""
    tool: str = ""
    declared: bool = False
    """True if its tool declares which fields name something."""


class Sources:
    """The values that a step's writes may use, each with its source, in the order in which they were added."""

    def __init__(self) -> None:
        self._persons_texts: list[tuple[PersonsText, Source]] = []
        self._replies: list[PersonsText] = []
        """Sentences in which a person may name an id that the model then looks up."""
        self._planned: dict[str, list[Mapping[str, Any]]] = {}
        """The calls that the step's plan specifies, by tool."""
        self._step = ""
        self.has_plan: bool = False
        """True if a person was shown a plan; else plain words need no source."""
        self._refused: set[str] = set()
        self._picked: dict[str, Source] = {}
        self._rows: dict[str | Decimal, list[ResultValue]] = {}
        """Values of results; numbers under their value."""
        self._siblings: dict[tuple[str, str], dict[str, None]] = {}
        """The values of one field of a result."""
        self._narrowed: dict[tuple[str, str], bool] = {}
        self._sent_arguments: list[tuple[int, str]] = []
        """The arguments of the calls of this run, with the numbers of their observations."""
        self._written: set[str] = set()
        """The targets of this run's writes."""
        self._ids: set[str] = set()
        self._unread: list[tuple[int, JournalEntry, str]] = []
        """Results that were not read yet."""
        self._long: dict[str, tuple[int, JournalEntry]] = {}

    # what people said

    def add_plan(self, plan: Mapping[str, Any], step: str) -> None:
        """Add what an approved plan says for a step; all that it says if it has no such step."""
        steps = {each["id"]: each for each in plan.get("steps") or ()}
        about = [step, *sorted(ancestors(plan, step))] if step in steps else [*steps]
        for text in _texts([plan[key] for key in OF_PLAN if plan.get(key)]):
            self.add_text(text, Source("plan"))
        for id in about:
            for text in _texts({key: item for key, item in steps[id].items() if key != "id"}):
                self.add_text(text, Source("plan", id))
        self._step, self.has_plan = step, True
        for call in (steps.get(step) or {}).get("calls") or ():
            self._planned.setdefault(call["tool"], []).append(call["arguments"])

    def add_text(self, text: str, source: Source = Source("goal")) -> None:
        """Add everything in a text that a person asked for, or approved."""
        self._persons_texts.append((PersonsText.read(text), source))
        self._narrowed.clear()

    def add_reply(self, reply: str) -> None:
        """Add a sentence that answered a question. It is no source, but what is looked up by an id in it is one."""
        if _first_word(reply) != "no":
            self._replies.append(PersonsText.read(reply))

    def add_decision(self, row: Mapping[str, Any]) -> None:
        """Add the values of calls that a person approved or edited; those of rejected calls are asked about again."""
        if row["kind"] != "tool":
            return
        if row["decision"] in ("approve", "edit"):
            calls = [row.get("edited")] if row["decision"] == "edit" else [row["arguments"]]
            calls += [each["arguments"] for each in row.get("batch") or () if row["decision"] == "approve"]
            for call in calls:
                for item in values_of(call):
                    self._pick(str(item.value), Source("approved", row.get("step") or ""))
                    for part in parts_of(item):
                        self._pick(part, Source("approved", row.get("step") or ""))
        else:
            self._refuse(row.get("new") or ())

    def _refuse(self, values: Iterable[str]) -> None:
        self._refused.update(form for each in values for form in spellings(fold(each)))

    def _pick(self, value: str, source: Source) -> None:
        for form in spellings(fold(value)):
            self._picked.setdefault(form, source)
            self._refused.discard(form)

    def add_answer(self, text: str, question: str = "", at: str = "") -> None:
        """Add a person's answer if it is a value as a whole, an option, or the fields of a form.

        A plain yes agrees to the values that the question shows; after a no, these are asked about from now on.
        """
        source = Source("answer", at)
        if _first_word(text) == "no":
            self._refuse(part for part in map(strip_marks, _SPLIT.split(question)) if part)
        self.add_reply(text)
        if read_word(text) == "yes":
            self.add_text(question, source)
            return
        for field in fields_of(text):
            self._pick(str(field.value), source)
        self._pick(text.strip(), source)
        if len(text.split()) <= 2 or read_measure(text):
            self._persons_texts.append((PersonsText.quantities_of(strip_marks(text)), source))

    # what tools returned

    def is_new(self, id: str) -> bool:
        """Return whether this id was not added before, and add it."""
        seen = id in self._ids
        self._ids.add(id)
        return not seen

    def add_observation(self, entry: JournalEntry) -> None:
        """Add an observation, or a person's answer. Each observation counts once."""
        if entry.get("outside") or not self.is_new(entry["id"]):
            return
        if entry["source"] == "user":
            question = entry["arguments"]
            if entry["ok"] and question.get("by") == "user":
                if entry["text"] in (question.get("options") or ()) and read_word(entry["text"]) is None:
                    self.add_text(entry["text"], Source("answer", entry["id"]))
                self.add_answer(entry["text"], str(question.get("question") or ""), entry["id"])
            return
        if entry["source"] not in ("tool", "check") or entry.get("delegated"):
            return
        number = len(self._ids)
        self._sent_arguments.append((number, fold(" ".join(_texts(entry["arguments"])))))
        readable = entry["ok"] and entry["effect"] is not None and not self._reads_own_writing(entry)
        if entry["effect"] in WRITES:
            self._written |= {posixpath.normpath(each) for each in entry["targets"] if each}
        if not readable or entry.get("identity") == []:
            return
        if entry["stored"]:
            self._long[entry["id"]] = (number, entry)
        else:
            self._unread.append((number, entry, entry["text"]))

    def _reads_own_writing(self, entry: JournalEntry) -> bool:
        """Return whether a call is about what this run wrote, such as a file that it made."""
        if not self._written:
            return False
        texts = [*_texts(entry["arguments"]), *entry["targets"]]
        quoted = [one or other for text in texts for one, other in _QUOTED.findall(text)]
        named = [posixpath.normpath(each) for each in (*texts, *quoted) if each and len(each) < LONG]
        return any(
            own == each or fnmatchcase(own, each) or fnmatchcase(own, f"{each}/*")
            for own in self._written
            for each in named
        )

    @property
    def long(self) -> list[str]:
        """Return the ids of observations whose stored text is shortened; give their full text to `add_long_text`."""
        return list(self._long)

    def add_long_text(self, id: str, text: str) -> None:
        """Add a long observation, given its full text."""
        self._unread.append((*self._long.pop(id), text))

    def _read_results(self) -> None:
        """Read the results that were not read yet."""
        unread, self._unread = self._unread, []
        for number, entry, text in unread:
            tool = entry["tool"] or ""
            if entry.get("calculated"):
                self._add_sum(number, entry, text)
                continue
            for field in fields_of(text, tool, entry.get("column", "")):
                row = ResultValue(
                    number, entry["id"], field, identifies(field, entry.get("identity")), tool, "identity" in entry
                )
                self._add(row)

    def _add(self, row: ResultValue) -> None:
        value = row.field.value
        if isinstance(value, str):
            for form in {folded := fold(value), without_sign(folded)}:
                self._rows.setdefault(form, []).append(row)
        else:
            self._rows.setdefault(str(value), []).append(row)
            for amount in amounts_of(str(value)):
                self._rows.setdefault(amount, []).append(row)
        siblings = self._siblings.setdefault((row.entry, row.field.group), {})
        if (
            row.names_something
            and len(siblings) < MOST_SIBLINGS
            and not _PLAIN.fullmatch(str(value))
            and len(str(value)) > 3
        ):
            siblings[fold(str(value))] = None

    def _add_sum(self, number: int, entry: JournalEntry, text: str) -> None:
        """Add the result of a calculation whose amounts have sources; each amount may be used as often as it occurs."""
        (expression,) = _texts([*entry["arguments"].values()]) if len(entry["arguments"]) == 1 else ("",)
        operands = Counter(re.findall(r"\d[\d.]*", expression))
        if not operands or not _SUM.fullmatch(expression) or "**" in expression or operands.total() > MOST_OPERANDS:
            return
        fields = []
        for operand, count in operands.items():
            source = self.find(operand, before=number)
            if source is None or count > max(1, *(len(self._rows.get(each, ())) for each in amounts_of(operand))):
                return
            fields.append(f"{source.at} {source.field}".strip() or operand)
        for amount in amounts_of(text.strip()):
            field = Field(", ".join(fields), "", (), float(amount))
            self._rows.setdefault(amount, []).append(ResultValue(number, entry["id"], field, True))

    # the look-up

    def trace(self, arguments: Any, schema: Any = None, tool: str = "") -> list[Argument]:
        """Return the arguments of a call that need a source, each with its own.

        A tool whose calls the plan specifies has exactly these; of another call each difference has no source.
        """
        if (planned := self._planned.get(tool)) is not None:
            return self._trace_planned(arguments, planned)
        traced: dict[tuple[str, str], Argument] = {}
        for item in values_of(arguments, schema):
            for part in parts_of(item):
                if not (self.has_plan or item.is_named) and _PLAIN.fullmatch(part):
                    continue  # no plan was shown, so there is nothing to compare its words with
                source = self.find(part, item.name, item.format)
                traced.setdefault((item.path, part), Argument(item.path, _as_written(item, part), source))
        return list(traced.values())

    def _trace_planned(self, arguments: Mapping[str, Any], planned: Sequence[Mapping[str, Any]]) -> list[Argument]:
        nearest = max(planned, key=lambda each: sum(same_json(item, each.get(key)) for key, item in arguments.items()))
        source, traced = Source("plan", self._step), []
        for key, item in arguments.items():
            values = [str(each.value) for each in values_of(item)] or [str(item)]
            as_planned = key in nearest and same_json(item, nearest[key])
            traced += [Argument(key, each, source if as_planned else None) for each in values]
        return traced

    def find(self, value: str, name: Words = (), format: str = "", before: int = 0) -> Source | None:
        """Return the source of a value of an argument with this name; None if it has none."""
        plain, exact = fold(value), unicodedata.normalize("NFKC", value).strip()
        forms = spellings(plain)
        if any(form in self._refused for form in forms):
            return None
        if picked := next((self._picked[form] for form in forms if form in self._picked), None):
            return picked
        measures, dates = read_measure(exact), [*dates_in(exact)] if _MOMENT.fullmatch(plain) else []
        for text, source in self._persons_texts:
            if text.names(exact, forms, measures, dates, named=names_something(name)):
                return source
        self._read_results()
        keys: list[str | Decimal] = [*forms]
        if not (format in FORMATS or names_something(name)) or before:
            keys += [number for number, unit in measures if not unit]
        for key in keys:
            for row in self._rows.get(key, ()):
                if (not before or row.number < before) and self._admits(row, key, exact, name):
                    is_sum = not (row.field.group or row.field.name)
                    return Source("expression" if is_sum else "result", row.entry, row.field.path)
        return None

    def _admits(self, row: ResultValue, key: str | Decimal, exact: str, name: Words) -> bool:
        """Return whether a value of a result may be an argument of this name."""
        field = row.field
        typed = isinstance(key, Decimal) and not isinstance(field.value, str)
        own = not (field.is_derived or is_free_text(field.name))
        like = own and same_name(field.name, name)
        moment = own and isinstance(field.value, str) and bool(_MOMENT.fullmatch(field.value.casefold()))
        if not ((row.names_something and fits(field, name)) or like or typed or moment):
            return False
        if MIXED.fullmatch(exact) and str(field.value) != exact:
            return False
        if _ADDRESS.fullmatch(exact) and not (field.is_key or holds_addresses(field.name) or row.declared):
            return False
        if len(exact) < SHORT_ID and not typed and name[-1:] == ("id",) and not like and not _is_of(row, name):
            return False  # 13 may be the id of anything
        if (field.group or field.name) and self._is_echo(row, key) and not self._did_person_write(row, exact):
            return False
        return typed or moment or not self._is_ruled_out(row)

    def _is_echo(self, row: ResultValue, key: str | Decimal) -> bool:
        """Return whether the model wrote the value before it came back."""
        bare = without_sign(key) if isinstance(key, str) else key
        return any(number <= row.number and stands_in(bare, text) for number, text in self._sent_arguments)

    def _did_person_write(self, row: ResultValue, exact: str) -> bool:
        """Return whether a person wrote the value as well, in an answer, so that it is theirs and not the model's.

        Short numbers and plain words stand in sentences by chance.
        """
        if not row.names_something or _PLAIN.fullmatch(exact) or (exact.isdigit() and len(exact) < SHORT_ID):
            return False
        forms = spellings(fold(exact))
        return any(each.names(exact, forms, (), (), named=True) for each in self._replies)

    def _is_ruled_out(self, row: ResultValue) -> bool:
        """Return whether the plan names other values of the same field of the result, which rules this one out."""
        place = (row.entry, row.field.group)
        if place not in self._narrowed:
            values = self._siblings.get(place, {})
            self._narrowed[place] = any(
                stands_in(value, text.folded) for text, _ in self._persons_texts for value in values
            )
        return self._narrowed[place]


def _is_of(row: ResultValue, name: Words) -> bool:
    """Return whether a value belongs to the thing that an argument of this name identifies."""
    about = row.field.owner | {word.removesuffix("s") for word in words_of(row.tool)}
    return len(name) < 2 or bool(about & {word.removesuffix("s") for word in name[:-1]})


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
