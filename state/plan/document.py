"""A plan as a person edits it: YAML with comments that explain, read back by PyYAML; JSON is read as well.

Plain data only: no anchors, no tags, no key twice, and no more than a plan can hold. A plain `08:30`, `no` or
`2026-01-01` is a text.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import yaml

from donewhen.state.language.texts import Unclear, catalogue, unclear
from donewhen.state.pattern import pattern
from donewhen.state.plan.text import schedule_lines

MOST_CHARS = 200_000
MOST_NODES = 10_000
DEEPEST = 30
WIDTH = 100
FENCE = pattern(r"\A\s*(```+|~~~+)[\w-]*[ \t]*\n(?P<body>.*?)\n?[ \t]*\1\s*\Z", re.DOTALL)
STEPS = pattern(r"^steps[ \t]*:", re.MULTILINE)
OF_STEP = ("id", "content", "done_when", "executor", "tools", "depends_on")
TEXTS = ("title", "content", "text", "id", "executor", "tool", "at", "cron", "timezone", "missed")
"""Keys whose values are texts, however they are written."""
LISTS = ("steps", "done_when", "tools", "depends_on", "weekdays", "replaces")
"""Keys whose values are texts, or lists of them."""
DATA = ("arguments", "expect")
"""Keys below which everything is what it is written as."""


@dataclass(frozen=True)
class Document:
    """What a text holds, and where: the line of `title`, `steps[0].content`, and of each step under `step s1`."""

    value: Any
    lines: Mapping[str, int]


# --- written


def plan_document(
    plan: Mapping[str, Any],
    *,
    limits: Mapping[str, Any] | None = None,
    writes: Collection[str] = (),
    writes_known: Collection[str] = (),
    next_runs: Sequence[str] = (),
    language: str = "en",
) -> str:
    """The plan whole, as YAML to be edited; what is only told stands in comments."""
    say = catalogue(language)["plan"]
    known = {key: amount for key, amount in (limits or {}).items() if amount is not None}
    body: dict[str, Any] = {
        "title": plan.get("title") or say["title"],
        "done_when": [_criterion(each) for each in plan.get("done_when") or ()],
        "steps": [_step(step) for step in plan.get("steps") or ()],
        "schedule": {key: item for key, item in (plan.get("schedule") or {}).items() if item is not None},
        "limits": known,
    }
    body = {key: item for key, item in body.items() if item}
    text = str(yaml.dump(body, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH))
    told = [line.replace("**", "") for line in schedule_lines(plan, (sorted(writes), writes_known), next_runs, say)]
    if writes and not plan.get("schedule"):
        told.append(f"{', '.join(sorted(writes))}: {say['any_arguments']}")
    return "".join(f"# {line}\n" for line in [say["edit_hint"], *told]) + text


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    shown = {key: step[key] for key in OF_STEP if step.get(key) is not None}
    shown["done_when"] = [_criterion(each) for each in step.get("done_when") or ()]
    return {key: item for key, item in shown.items() if item or key in ("content", "depends_on")}


def _criterion(criterion: Any) -> Any:
    """A criterion that is only words is a text."""
    if not isinstance(criterion, Mapping):
        return criterion
    given = {key: item for key, item in criterion.items() if item}
    return given["text"] if given.keys() == {"text"} else given


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text_node)


# --- read


def is_plan_text(text: str) -> bool:
    """Return whether a text is a plan and not words: it has `steps:` at the beginning of a line."""
    return bool(STEPS.search(unfenced(text)))


def unfenced(text: str) -> str:
    """Return the text out of the one fence that it stands in, each line where it was."""
    fenced = FENCE.match(text)
    return f"\n{fenced['body']}" if fenced else text


def read_document(text: str) -> Document | Unclear:
    """Return what a text holds as YAML or JSON, or why it cannot be read, with the line."""
    if len(text) > MOST_CHARS:
        return unclear("plan_long", length=f"{len(text):,}", most=f"{MOST_CHARS:,}")
    body = unfenced(text)
    try:
        return Document(json.loads(body), {})
    except (ValueError, RecursionError):
        pass  # YAML says where it goes wrong
    try:
        node = _Loader(body).get_single_node()
        lines: dict[str, int] = {}
        return Document(_value(node, "", "", lines) if node else None, lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        return unclear("edit", reasons=f"{where}{error.problem or error.context}")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return unclear("edit", reasons=str(error)[:200])


class _Loader(yaml.SafeLoader):
    """Composes plain data: scalars as JSON has them, no anchors, aliases or tags, and not more than a plan can be."""

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
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", pattern(rf"^(?:{_regex})$"), list(_first))


def _refuse(where: Any, problem: str) -> None:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=where.start_mark)


def _value(node: yaml.Node, path: str, key: str, lines: dict[str, int]) -> Any:
    """The value of a node; `key` is the last one above it, below `arguments` and `expect` one of those."""
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return dict(_pairs(node, path, key, lines))
    if isinstance(node, yaml.SequenceNode):
        return [_value(each, f"{path}[{number}]", key, lines) for number, each in enumerate(node.value)]
    kind = node.tag.rpartition(":")[2]
    if kind == "null":
        return None
    if kind == "str" or key in (*TEXTS, *LISTS):
        return node.value
    return json.loads(node.value)


def _pairs(node: yaml.MappingNode, path: str, key: str, lines: dict[str, int]) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for name, value in node.value:
        if not isinstance(name, yaml.ScalarNode):
            _refuse(name, "a key is a text")
        if name.value in seen:
            _refuse(name, f"the key {name.value!r} stands here twice")
        seen.add(name.value)
        below = f"{path}.{name.value}".lstrip(".")
        lines[below] = name.start_mark.line + 1
        found = _value(value, below, key if key in DATA else name.value, lines)
        lines[below] = name.start_mark.line + 1
        if name.value == "id" and isinstance(found, str):
            lines[f"step {found}"] = lines[path]
        yield name.value, found


def with_line(problem: str, lines: Mapping[str, int]) -> str:
    """A problem of the plan with the line that it is about, where that is known."""
    about = [where for where in lines if where and problem.startswith((f"{where} ", f"{where}:", f"{where},"))]
    return f"line {lines[max(about, key=len)]}: {problem}" if about else problem
