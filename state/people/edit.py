"""A plan as a person edits it: YAML with explaining comments, read back and compared with what was shown.

It is plain data: no anchors, no tags, no duplicate keys, and no more than a plan can hold. A plain `08:30`, `no` or
`2026-01-01` is a text. JSON, and data from programs, are read as well. Nothing is guessed. What becomes of
what an edit leaves out is in `state/plan/edited.py`.
"""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import yaml

from donewhen.state.language.texts import Unclear, catalogue, unclear
from donewhen.state.pattern import pattern
from donewhen.state.people.amounts import read_limits
from donewhen.state.plan.edited import EditError, apply_edit
from donewhen.state.plan.text import schedule_lines
from donewhen.state.records import Pause
from donewhen.state.values import same_json

MOST_CHARS = 200_000
MOST_NODES = 10_000
DEEPEST = 30
WIDTH = 100
FENCE = pattern(r"\A\s*(```+|~~~+)[\w-]*[ \t]*\n(?P<body>.*?)\n?[ \t]*\1\s*\Z", re.DOTALL)
STEPS_LINE = pattern(r"^steps[ \t]*:", re.MULTILINE)
STEP_KEYS = ("id", "content", "done_when", "executor", "tools", "depends_on")
TEXT_KEYS = ("title", "content", "text", "id", "executor", "tool", "at", "cron", "timezone", "missed")
"""Keys whose values are texts, however they are written."""
LIST_KEYS = ("steps", "done_when", "tools", "depends_on", "weekdays", "replaces")
"""Keys whose values are texts, or lists of them."""
DATA_KEYS = ("arguments", "expect")
"""Keys below which values keep their YAML types."""


@dataclass(frozen=True)
class WrittenDocument:
    """The value of a text, and the lines of `title`, `steps[0].content`, and of each step under `step s1`."""

    value: Any
    lines: Mapping[str, int]


# --- written


def plan_document(pending: Pause) -> str:
    """Return the pending plan as YAML to be edited; explanations are comments."""
    plan, writes = pending.get("plan") or {}, sorted(pending.get("writes") or ())
    say = catalogue(str(pending.get("language") or "en"))["plan"]
    body: dict[str, Any] = {
        "title": plan.get("title") or say["title"],
        "done_when": [_short_criterion(each) for each in plan.get("done_when") or ()],
        "steps": [_short_step(step) for step in plan.get("steps") or ()],
        "schedule": {key: item for key, item in (plan.get("schedule") or {}).items() if item is not None},
        "limits": {key: amount for key, amount in (pending.get("limits") or {}).items() if amount is not None},
    }
    body = {key: item for key, item in body.items() if item}
    text = str(yaml.dump(body, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH))
    comments = [say["edit_hint"], *(line.replace("**", "") for line in schedule_lines(pending))]
    if writes and not plan.get("schedule"):
        comments.append(f"{', '.join(writes)}: {say['any_arguments']}")
    return "".join(f"# {line}\n" for line in comments) + text


def _short_step(step: Mapping[str, Any]) -> dict[str, Any]:
    shown = {key: step[key] for key in STEP_KEYS if step.get(key) is not None}
    shown["done_when"] = [_short_criterion(each) for each in step.get("done_when") or ()]
    return {key: item for key, item in shown.items() if item or key in ("content", "depends_on")}


def _short_criterion(criterion: Any) -> Any:
    """Return a criterion that is only a text as that text."""
    if not isinstance(criterion, Mapping):
        return criterion
    fields = {key: item for key, item in criterion.items() if item}
    return fields["text"] if fields.keys() == {"text"} else fields


class _Dumper(yaml.SafeDumper):
    """Writes multi-line texts as blocks, and no anchors; `_PlanLoader` reads the same values."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if "\x85" in text else "|" if "\n" in text else None  # only an escaped U+0085 is read as itself
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


# --- read


def is_plan_text(text: str) -> bool:
    """Return whether a text is a plan: it has `steps:` at the beginning of a line."""
    return bool(STEPS_LINE.search(strip_fence(text)))


def strip_fence(text: str) -> str:
    """Return the text without the fence around it; lines keep their numbers."""
    fenced = FENCE.match(text)
    return f"\n{fenced['body']}" if fenced else text


def read_document(text: str) -> WrittenDocument | Unclear:
    """Return the YAML or JSON value of a text, or why it cannot be read, with the line."""
    if len(text) > MOST_CHARS:
        return unclear("plan_long", length=f"{len(text):,}", most=f"{MOST_CHARS:,}")
    body = strip_fence(text)
    try:
        value = json.loads(body, object_pairs_hook=_unique_keys)
        return WrittenDocument(value, _lines_of(body) if "\n" in body.strip() else {})
    except (ValueError, RecursionError):
        pass  # YAML says where it goes wrong
    try:
        node = _PlanLoader(body).get_single_node()
        lines: dict[str, int] = {}
        return WrittenDocument(_read_value(node, "", "", lines) if node else None, lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        return unclear("edit", reasons=f"{where}{error.problem or error.context}")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return unclear("edit", reasons=str(error)[:200])


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(value := dict(pairs)) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return value


def _lines_of(text: str) -> dict[str, int]:
    """Return the lines of a JSON text's parts; {} if YAML reads it otherwise."""
    lines: dict[str, int] = {}
    try:
        if node := _PlanLoader(text).get_single_node():
            _read_value(node, "", "", lines)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return lines


class _PlanLoader(yaml.SafeLoader):
    """Composes plain data: JSON scalars, no anchors, aliases or tags, and bounded in size."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}
    nodes = depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        self.nodes += 1
        self.depth += 1
        if isinstance(event, yaml.AliasEvent) or event.anchor or getattr(event, "tag", None):
            _refuse(event, "anchors, aliases and tags are not read")
        if self.nodes > MOST_NODES or self.depth > DEEPEST:
            _refuse(event, "this is more than a plan can hold")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _tag, _regex, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"~|null|", ["~", "n", ""]),
    ("int", r"-?(?:0|[1-9][0-9]*)", "-0123456789"),
    ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", "-0123456789"),
):
    for _either in (_PlanLoader, _Dumper):  # which quotes a text that would be read as another value
        _either.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", pattern(rf"^(?:{_regex})$"), list(_first))


def _refuse(where: Any, problem: str) -> None:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=where.start_mark)


def _read_value(node: yaml.Node, path: str, key: str, lines: dict[str, int]) -> Any:
    """Return the value of a node; `key` is the nearest key above it, but below one of DATA_KEYS it is that one."""
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return dict(_read_pairs(node, path, key, lines))
    if isinstance(node, yaml.SequenceNode):
        return [_read_value(each, f"{path}[{number}]", key, lines) for number, each in enumerate(node.value)]
    kind = node.tag.rpartition(":")[2]
    if kind == "null":
        return None
    if kind == "str" or key in (*TEXT_KEYS, *LIST_KEYS):
        return node.value
    return json.loads(node.value)


def _read_pairs(node: yaml.MappingNode, path: str, key: str, lines: dict[str, int]) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for name, value in node.value:
        if not isinstance(name, yaml.ScalarNode):
            _refuse(name, "a key is a text")
        if name.value in seen:
            _refuse(name, f"the key {name.value!r} stands here twice")
        seen.add(name.value)
        below = f"{path}.{name.value}".lstrip(".")
        lines[below] = name.start_mark.line + 1
        item = _read_value(value, below, key if key in DATA_KEYS else name.value, lines)
        lines[below] = name.start_mark.line + 1
        if name.value == "id" and isinstance(item, str):
            lines[f"step {item}"] = lines[path]
        yield name.value, item


def add_line_number(problem: str, lines: Mapping[str, int]) -> str:
    """Return a problem of the plan with its line number, if that is known."""
    about = [where for where in lines if where and problem.startswith((f"{where} ", f"{where}:", f"{where},"))]
    return f"line {lines[max(about, key=len)]}: {problem}" if about else problem


# --- compared with what was shown


@dataclass(frozen=True)
class PlanEdit:
    """A parsed edit."""

    plan: dict[str, Any]
    """The edited plan, without its revision."""
    changed: bool
    """False if it equals the plan that was shown."""
    limits: dict[str, float] = field(default_factory=dict)
    """The new value of each changed limit."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """The lines of the plan's parts, if it was written as text."""


def edit_plan(
    fields: Mapping[str, Any], plan: Mapping[str, Any], limits: Mapping[str, Any] | None = None
) -> PlanEdit | Unclear:
    """Return the plan with the edit in `fields`, or the reason why it cannot be applied.

    `apply_edit` says what an edit may be. `limits` are those that were shown with the plan.
    """
    written = fields if fields.get("plan") is None else fields["plan"]
    document = read_document(written) if isinstance(written, str) else WrittenDocument(written, {})
    if isinstance(document, Unclear):
        return document
    edit, lines = document.value, document.lines
    if not isinstance(edit, Mapping):
        return unclear("plan_type", type="text" if isinstance(edit, str) else type(edit).__name__)
    if not isinstance(edit.get("steps", []), list) or not edit:
        return unclear("plan_steps")
    changes = {key: item for key, item in edit.items() if key not in ("limits", "revision")}
    before = {key: item for key, item in plan.items() if key != "revision"}
    try:
        after = apply_edit(copy.deepcopy(changes), before, as_data=not isinstance(written, str))
    except EditError as error:
        return unclear("edit", reasons="; ".join(_with_line(path, problem, lines) for path, problem in error.problems))
    changed_limits = _read_changed_limits(edit.get("limits", {}), limits)
    if isinstance(changed_limits, Unclear):
        return changed_limits
    return PlanEdit(copy.deepcopy(after), not same_json(after, before), changed_limits, lines)


def _with_line(path: str, problem: str, lines: Mapping[str, int]) -> str:
    """Return a problem with the line of its path, or of the nearest part that contains it."""
    while path and path not in lines:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return f"line {lines[path]}: {problem}" if path in lines else problem


def _read_changed_limits(limits: Any, shown: Mapping[str, Any] | None) -> dict[str, float] | Unclear:
    """Return the limits that differ from those shown; omitted ones are kept."""
    shown_limits = {key: amount for key, amount in (shown or {}).items() if amount is not None}
    removed = (
        shown_limits
        if limits is None
        else [key for key in shown_limits if isinstance(limits, Mapping) and limits.get(key, 0) is None]
    )
    if removed:
        return unclear("limit_taken_away", keys=", ".join(removed))
    wanted = read_limits(limits)
    if isinstance(wanted, Unclear):
        return wanted
    if not_shown := [key for key in wanted if key not in shown_limits]:
        return unclear("limit_not_shown", keys=", ".join(not_shown), known=", ".join(shown_limits) or "—")
    return {key: amount for key, amount in wanted.items() if amount != shown_limits[key]}
