"""Save plans that worked, to start them again with other values and without planning."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from string import Template
from typing import Any
from unicodedata import normalize

from donewhen.agent.run import Run
from donewhen.agent.storage import Storage
from donewhen.agent.storage.store import ThreadStore
from donewhen.state.channels import Json
from donewhen.state.errors import PlanError, StorageError
from donewhen.state.proof.receipt import SUCCEEDED
from donewhen.state.values import similar

SPACE = ("donewhen_templates",)
_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,59}")
NAMES = ("id", "depends_on", "executor", "tools", "tool", "complexity")
_KEY = re.compile(r"[^\W\d]\w{0,39}")


class Text(Template):
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
    problem: str = ""
    """Why what is stored cannot be read; such a template has only its name."""

    def to_dict(self) -> Json:
        """Return the template in plain JSON."""
        return asdict(self)

    def fill(self, parameters: Mapping[str, Any]) -> tuple[str, Json]:
        """Return goal and plan with these values, and defaults for the others. Raises PlanError for an unknown key."""
        named = _to_texts(parameters)
        if extra := [key for key in named if key not in self.parameters]:
            valid = ", ".join(self.parameters) or "none"
            raise PlanError([f"template {self.name!r} has no parameter {', '.join(extra)}; it has: {valid}"])
        values = {**self.parameters, **named}
        return Text(self.goal).substitute(values), _map_texts(self.plan, lambda text: Text(text).substitute(values))


class Templates:
    """The templates in a storage: save, get, list, delete. Invalid ones raise PlanError."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def save(self, run: Run, name: str, parameters: Mapping[str, Any] | None = None) -> PlanTemplate:
        """Save the plan of a completed run; each value in `parameters` becomes a placeholder.

        Replaces a template of the same name.
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
        template = PlanTemplate(name, filled["goal"], filled["plan"], values, run.thread_id)
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
        templates = [PlanTemplate(name, "", {}, {}, "", problem) for name, problem in damaged.items()]
        for item in items:
            try:
                templates.append(_template_of(item.key, item.value))
            except StorageError as error:
                templates.append(PlanTemplate(item.key, "", {}, {}, "", str(error)))
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
        return PlanTemplate(**{**value, "name": name})
    except TypeError as error:
        raise StorageError(f"the stored template {name!r} is damaged ({error})") from error


def _to_template(text: str, parameters: list[tuple[str, str]]) -> str:
    """Return the text as a template: values become placeholders, dollar signs are escaped.

    A value is replaced where it stands alone, not within a longer word or number.
    """
    pattern = re.compile("|".join([r"\$", *(rf"(?<!\w){re.escape(value)}(?!\w)" for _, value in parameters)]))
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
