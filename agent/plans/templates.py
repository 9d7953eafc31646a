"""Save plans that worked, to start them again with other values and without planning."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from string import Template
from typing import Any
from unicodedata import normalize

from donewhen.agent.run import Run
from donewhen.agent.storage import Storage
from donewhen.agent.storage.store import ThreadStore
from donewhen.state.channels import Json
from donewhen.state.errors import PlanError, StorageError
from donewhen.state.language.quantities import read_date, says_date
from donewhen.state.language.texts import known_language
from donewhen.state.proof.receipt import SUCCEEDED
from donewhen.state.values import similar

SPACE = ("donewhen_templates",)
_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,59}")
NAMES = ("id", "depends_on", "executor", "tools", "tool", "complexity")
_KEY = re.compile(r"[^\W\d]\w{0,39}")
_PLACEHOLDER = re.compile(r"\$\{\w+\}")
_WORDS = re.compile(r"[^\W_]+")
SHORT = 3
"""The number of letters and digits from which a value is also looked for as a part of a word."""


class _TemplateText(Template):
    """A text with `${key}` placeholders; keys may have letters of any script."""

    idpattern = _KEY.pattern
    flags = re.NOFLAG


@dataclass(frozen=True)
class PlanTemplate:
    """A plan and its goal, with `$key` for parameters."""

    name: str
    goal: str
    plan: Json
    parameters: dict[str, str]
    """Key → its value in the saved run, which is the default."""
    thread_id: str
    """The thread of the saved run."""
    language: str = ""
    """The language of the saved run, in which it is started again; "" if that was English."""
    problem: str = ""
    """Where values of parameters still stand; or why what is stored cannot be read: then it has only its name."""

    def to_dict(self) -> Json:
        """Return the template in plain JSON."""
        return asdict(self)

    def find_left(self) -> dict[str, list[str]]:
        """Return where the saved value of a parameter still stands, by key: as part of a word, or spelled otherwise."""
        named = [(place, _PLACEHOLDER.sub("$", text)) for place, text in _named_texts(self.goal, self.plan)]
        readings = [(place, (text, _split_parts(text))) for place, text in named]  # PayPal is found by pal and paypal
        apart = [(place, _part_dates(text)) for place, text in named]
        left = dict[str, list[str]]()
        for key, value in self.parameters.items():
            spelled, dates = _spellings(value), read_date(_part_dates(value))
            found = {place for place, texts in readings if any(map(spelled.search, texts))}
            found |= {place for place, text in apart if any(says_date(text, date) for date in dates)}
            left[key] = [place for place, _ in named if place in found]
        return {key: places for key, places in left.items() if places}

    def origin(self, parameters: Mapping[str, Any]) -> Json:
        """Return what the plan's confirmation says of it: name, values, which are as saved, which saved ones stand."""
        named = _to_texts(parameters)
        replaced = {key: value for key, value in named.items() if value != self.parameters[key]}
        left = [[self.parameters[key], places] for key, places in self.find_left().items() if key in replaced]
        as_saved = [key for key in self.parameters if key not in named]
        return {"name": self.name, "values": {**self.parameters, **named}, "as_saved": as_saved, "left": left}

    def fill(self, parameters: Mapping[str, Any]) -> tuple[str, Json]:
        """Return goal and plan with these values, and defaults for the others. Raises PlanError for an unknown key."""
        named = _to_texts(parameters)
        if extra := [key for key in named if key not in self.parameters]:
            valid = ", ".join(self.parameters) or "none"
            raise PlanError([f"template {self.name!r} has no parameter {', '.join(extra)}; it has: {valid}"])
        values = {**self.parameters, **named}
        return _TemplateText(self.goal).substitute(values), _map_texts(
            self.plan, lambda text: _TemplateText(text).substitute(values)
        )


class Templates:
    """The templates in a storage: save, get, list, delete. Invalid ones raise PlanError."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def save(self, run: Run, name: str, parameters: Mapping[str, Any] | None = None) -> PlanTemplate:
        """Save the plan of a completed run; each value in `parameters` becomes a placeholder.

        Replaces a template of the same name. Its `problem` says where a value still stands, which no start replaces.
        """
        if not _NAME.fullmatch(name):
            raise PlanError(
                [f"{name[:60]!r} is not a valid name of a template: use at most 60 letters, digits, - and _"]
            )
        if run.outcome and run.outcome["code"] == "scheduled":
            raise PlanError([f"{run.thread_id} only made a schedule: save one of its runs that is completed"])
        if run.status not in SUCCEEDED or not run.plan or not run.steps:
            raise PlanError([f"only a completed run with a plan becomes a template; {run.thread_id} is {run.status}"])
        values = _to_texts(parameters or {})
        plan = {key: item for key, item in run.plan.items() if key not in ("revision", "schedule")}
        for key, value in values.items():
            if not _KEY.fullmatch(key) or not value.strip():
                raise PlanError(
                    [f"parameter {key!r} needs a name of letters and digits and a value, such as year=2025"]
                )
        longest_first = sorted(values.items(), key=lambda pair: -len(pair[1]))
        filled = _map_texts({"goal": run.goal, "plan": plan}, lambda text: _to_template(text, longest_first))
        for key, value in values.items():
            if f"${{{key}}}" not in str(filled):
                raise PlanError([f"parameter {key}: {value!r} stands nowhere in the goal or the plan"])
        language = run.language if run.language != known_language() else ""
        template = _with_left(PlanTemplate(name, filled["goal"], filled["plan"], values, run.thread_id, language))
        async with self._storage.writer() as (_, store):
            stored = {key: value for key, value in template.to_dict().items() if key != "problem"}
            await store.aput(SPACE, name, stored, index=False)
        return template

    async def get(self, name: str) -> PlanTemplate:
        """Return a template by its name."""
        async with self._storage.reader() as (_, store):
            return await _read(store, name)

    async def delete(self, name: str) -> None:
        """Forget a template."""
        async with self._storage.writer() as (_, store):
            with suppress(StorageError):  # what is damaged can be deleted
                await _read(store, name)
            await store.adelete(SPACE, name)

    async def list(self) -> list[PlanTemplate]:
        """Return all templates, by name."""
        async with self._storage.reader() as (_, store):
            items, damaged = await store.read_each(SPACE)
        templates = [PlanTemplate(name, "", {}, {}, "", problem=problem) for name, problem in damaged.items()]
        for item in items:
            try:
                templates.append(_template_of(item.key, item.value))
            except StorageError as error:
                templates.append(PlanTemplate(item.key, "", {}, {}, "", problem=str(error)))
        return sorted(templates, key=lambda template: template.name)


def _to_texts(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return parameters as texts, under names that are equal if they look equal."""
    return {normalize("NFC", key): str(value) for key, value in parameters.items()}


async def _read(store: ThreadStore, name: str) -> PlanTemplate:
    item = await store.aget(SPACE, name)
    if item is None:
        names = [each.key for each in (await store.read_each(SPACE))[0]]
        near = similar(name, names) or names[:10]
        hint = f"there are: {', '.join(near)}" if near else "there are none"
        raise PlanError([f"there is no template {name!r}; {hint}"])
    return _template_of(item.key, item.value)


def _template_of(name: str, value: Mapping[str, Any]) -> PlanTemplate:
    """Return a stored template. Raises StorageError if it is damaged."""
    try:
        return _with_left(PlanTemplate(**{**value, "name": name}))
    except (TypeError, KeyError, AttributeError) as error:
        raise StorageError(f"the stored template {name!r} is damaged ({error})") from error


def _with_left(template: PlanTemplate) -> PlanTemplate:
    """Return the template with a problem that says where values of its parameters still stand."""
    left = template.find_left().items()
    lines = [f"{template.parameters[key]} still stands in: {', '.join(places)}" for key, places in left]
    return replace(template, problem="; ".join(lines))


def _named_texts(goal: str, plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each text of a goal and its plan that may hold a value, behind the name of its place."""

    def of_criteria(rows: Any, place: str = "") -> Iterator[tuple[str, str]]:
        for number, row in enumerate(rows or (), 1):
            check = row.get("check") or {}
            yield (
                f"{place}done_when {number}",
                f"{row['text']} {_as_text([check.get('arguments'), check.get('expect')])}",
            )

    yield from (("goal", goal), ("title", str(plan.get("title") or "")), ("speak", str(plan.get("speak") or "")))
    yield from of_criteria(plan.get("done_when"))
    for step in plan.get("steps") or ():
        yield f"{step['id']} content", str(step.get("content"))
        yield from of_criteria(step.get("done_when"), f"{step['id']} ")
        yield from (
            (f"{step['id']} call {n}", _as_text(call["arguments"])) for n, call in enumerate(step.get("calls") or (), 1)
        )


def _as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _split_parts(text: str) -> str:
    """Return the text with `_` where case begins a word, and beside letters without case, which may need no spaces."""

    def is_begun(old: str, new: str, next: str) -> bool:
        caseless = any(each.isalpha() and each.lower() == each.upper() for each in (old, new))
        cased = new.isupper() and (old.islower() or (old.isupper() and next.islower()))
        return old.isalnum() and new.isalnum() and (caseless or cased)

    triples = zip(" " + text, text, text[1:] + " ", strict=False)
    return "".join(f"_{new}" if is_begun(old, new, next) else new for old, new, next in triples)


def _part_dates(text: str) -> str:
    """Return the text in common digits and with spaces for `_`, as dates are read."""
    return normalize("NFKC", text).replace("_", " ")


def _spellings(value: str) -> re.Pattern[str]:
    """Return what finds a value's parts side by side, however joined; never within a longer word or number.

    A digit may stand beside a letter, but not if the value has only few of both.
    """
    parts = _WORDS.findall(_split_parts(value))
    spelled = r"[\W_]?".join(map(re.escape, parts)) or "(?!)"
    whole = "".join(parts)
    if len(whole) < SHORT:
        return re.compile(_alone(spelled), re.IGNORECASE)
    beside = (r"\d" if each.isdecimal() else r"[^\W\d_]" for each in (whole[0], whole[-1]))
    return re.compile(_alone(spelled, *beside), re.IGNORECASE)


def _alone(spelled: str, before: str = r"[^\W_]", after: str = r"[^\W_]") -> str:
    """Return the pattern of what is no part of a longer word or number: none of these stands before or after it."""
    return rf"(?<!{before}){spelled}(?!{after})"


def _to_template(text: str, parameters: list[tuple[str, str]]) -> str:
    """Return the text as a template: values become placeholders, dollar signs are escaped.

    A value is replaced where it stands alone, not within a longer word or number. A file's name joins words with `_`.
    """
    alone = (_alone(re.escape(value)) for _, value in parameters)
    pattern = re.compile("|".join([*alone, r"\$"]))
    keys = {value: key for key, value in parameters}
    return pattern.sub(lambda match: "$$" if match[0] == "$" else f"${{{keys[match[0]]}}}", text)


def _map_texts(value: Any, change: Callable[[str], str], free: bool = False) -> Any:
    """Return the value with its texts changed; ids and names stay, but not in a check's arguments (`free`)."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        inside = {key: free or key in ("arguments", "expect") for key in value}
        return {
            key: item if key in NAMES and not inside[key] else _map_texts(item, change, inside[key])
            for key, item in value.items()
        }
    return [_map_texts(item, change, free) for item in value] if isinstance(value, list) else value
