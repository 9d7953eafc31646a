"""A plan: its shape, its rules, its revision. Whatever proposes one — a model, a person — passes through `read_plan`."""

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from state.expect import Check
from state.schedule import Schedule

Complexity = Literal["simple", "moderate", "complex"]
STEP_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
RESERVED_IDS = frozenset({"plan", "confirm", "deliver"})
CONTENT_CHARS = 4000


def _not_blank(text: str) -> str:
    if not (trimmed := text.strip()):
        raise ValueError("is blank")
    if len(trimmed) > CONTENT_CHARS:
        raise ValueError(f"is longer than {CONTENT_CHARS} characters")
    return trimmed


Text = Annotated[str, AfterValidator(_not_blank)]


class Criterion(BaseModel):
    """One thing that must hold when the step is done, and optionally the check that decides it."""

    model_config = ConfigDict(extra="forbid")

    text: Text
    check: Check | None = Field(
        default=None, description="read-only tool call that the runtime makes to decide this criterion"
    )
    judge: bool = Field(default=False, description="let a second model decide this criterion from the evidence")


def _criteria(value: Any) -> Any:
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    return [{"text": item} if isinstance(item, str) else item for item in items]


class PlanStep(BaseModel):
    """One step of a plan, as a model or a person writes it."""

    model_config = ConfigDict(extra="forbid")

    content: Text = Field(description="what to do, in one sentence")
    done_when: Annotated[list[Criterion], BeforeValidator(_criteria)] = Field(
        default_factory=list,
        description="observable criteria; attach a check wherever a listed check tool can decide one",
    )
    id: str | None = Field(default=None, description="short id such as s1; assigned when missing")
    depends_on: list[str] | None = Field(
        None,
        description="ids of steps whose results this one needs; [] = independent; omitted = after all earlier ones",
    )
    executor: str | None = None
    tools: list[str] | None = Field(default=None, description="tools this step needs; approving the plan approves them")


class Plan(BaseModel):
    """A whole plan."""

    model_config = ConfigDict(extra="forbid")

    title: Text
    complexity: Complexity = "moderate"
    need_thinking: bool = False
    steps: list[PlanStep] = Field(min_length=1)
    schedule: Schedule | None = None
    speak: str | None = Field(default=None, description="what to tell the user with the plan")


@dataclass(frozen=True)
class Rules:
    """What a plan may refer to."""

    tools: Collection[str] = ()
    executors: Collection[str] = ()
    checks: Mapping[str, Any] = field(default_factory=dict)
    """Read-only tool → function(arguments) listing what is wrong with them."""
    max_steps: int = 20
    forbidden: Collection[str] = ()
    finished: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """Steps done already; a replan keeps them by id."""


def read_plan(value: Any, rules: Rules) -> dict[str, Any] | list[str]:
    """The plan as it goes into state, with ids and revision, or everything that is wrong with it."""
    if not isinstance(value, Mapping):
        return ["a plan is an object with title and steps"]
    if isinstance(steps := value.get("steps"), list) and len(steps) > rules.max_steps:
        return [
            f"the plan has {len(steps)} steps; at most {rules.max_steps} are allowed. Merge steps, do not cut the end"
        ]
    known = {key: item for key, item in value.items() if key in Plan.model_fields}
    if known.get("complexity", "") is None:
        known.pop("complexity")
    if isinstance(known.get("steps"), list):
        known["steps"] = [_step_fields(step) for step in known["steps"]]
    try:
        plan = Plan.model_validate(known)
    except ValidationError as error:
        return said(error)
    data = plan.model_dump(mode="json")
    _assign_ids(data["steps"], rules.finished)
    if problems := [*_identity(data["steps"], rules), *_references(data["steps"], rules), *_circles(data["steps"])]:
        return problems
    return {**data, "revision": revision(data)}


def _step_fields(step: Any) -> Any:
    if isinstance(step, str):
        return {"content": step}
    return {k: v for k, v in step.items() if k in PlanStep.model_fields} if isinstance(step, Mapping) else step


def said(error: ValidationError) -> list[str]:
    """Pydantic's complaints as sentences a model can act on: where, what, and what was given."""
    lines = []
    for item in error.errors(include_url=False, include_context=False)[:10]:
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in item["loc"]).lstrip(".")
        given = json.dumps(item["input"], ensure_ascii=False, default=str)[:80]
        lines.append(f"{where or 'arguments'}: {item['msg']} (given: {given})")
    return lines


def _assign_ids(steps: list[dict[str, Any]], finished: Collection[str]) -> None:
    taken = {step["id"] for step in steps if step["id"]} | set(finished)
    number = 0
    for step in steps:
        if not step["id"]:
            while f"s{(number := number + 1)}" in taken:
                continue
            step["id"] = f"s{number}"


def _identity(steps: Sequence[dict[str, Any]], rules: Rules) -> list[str]:
    problems: list[str] = []
    seen: set[str] = set()
    for step in steps:
        if not STEP_ID.fullmatch(step["id"]) or step["id"] in RESERVED_IDS:
            problems.append(f"step id {step['id'][:50]!r} is not allowed: use a letter, then letters, digits, - or _")
        if step["id"] in seen:
            problems.append(f"two steps have the id {step['id']!r}; ids are unique")
        seen.add(step["id"])
    return problems


def near(name: str, names: Collection[str]) -> str:
    """A hint at what was probably meant, for corrections."""
    matches = get_close_matches(name, list(names), n=3, cutoff=0.5)
    return (
        f"; did you mean {', '.join(matches)}?"
        if matches
        else f"; there are: {', '.join(sorted(names)[:20]) or 'none'}"
    )


def _references(steps: Sequence[dict[str, Any]], rules: Rules) -> list[str]:
    ids = [step["id"] for step in steps]
    allowed_ids = {*ids, *rules.finished}
    problems = []
    for step in steps:
        where = f"step {step['id']}"
        for other in step["depends_on"] or ():
            if other == step["id"]:
                problems.append(f"{where} depends on itself")
            elif other not in allowed_ids:
                problems.append(f"{where} depends on {other!r}, which is not a step{near(other, ids)}")
        if step["executor"] is not None and step["executor"] not in rules.executors:
            problems.append(f"{where} names the executor {step['executor']!r}{near(step['executor'], rules.executors)}")
        for tool in step["tools"] or ():
            if tool in rules.forbidden:
                problems.append(f"{where} lists the tool {tool!r}, which the profile forbids")
            elif tool not in rules.tools:
                problems.append(f"{where} lists the tool {tool!r}, which does not exist{near(tool, rules.tools)}")
        for number, criterion in enumerate(step["done_when"], 1):
            problems += [f"{where}, criterion {number}: {p}" for p in _check_problems(criterion["check"], rules)]
    return problems


def _check_problems(check: dict[str, Any] | None, rules: Rules) -> list[str]:
    if check is None:
        return []
    if check["tool"] not in rules.checks:
        why = "is not read-only, so it cannot check" if check["tool"] in rules.tools else "does not exist"
        return [f"the check's tool {check['tool']!r} {why}{near(check['tool'], rules.checks)}"]
    return [f"the check's arguments: {problem}" for problem in rules.checks[check["tool"]](check["arguments"])]


def depends(plan: Mapping[str, Any], step_id: str) -> list[str]:
    """Ids the step needs: as declared, else every step before it in plan order."""
    earlier: list[str] = []
    for step in plan["steps"]:
        if step["id"] == step_id:
            declared = step.get("depends_on")
            return earlier if declared is None else list(declared)
        earlier.append(step["id"])
    return []


def ancestors(plan: Mapping[str, Any], step_id: str) -> list[str]:
    """All steps the step builds on, directly or not, in plan order."""
    direct = {step["id"]: depends(plan, step["id"]) for step in plan["steps"]}
    found: set[str] = set()
    stack = list(direct.get(step_id, ()))
    while stack:
        if (current := stack.pop()) not in found:
            found.add(current)
            stack.extend(direct.get(current, ()))
    return [step["id"] for step in plan["steps"] if step["id"] in found]


def _circles(steps: Sequence[dict[str, Any]]) -> list[str]:
    needs = {step["id"]: set(depends({"steps": steps}, step["id"])) & {s["id"] for s in steps} for step in steps}
    while ready := [step for step, missing in needs.items() if not missing]:
        for step in ready:
            del needs[step]
        for missing in needs.values():
            missing.difference_update(ready)
    return [f"the steps {', '.join(needs)} depend on each other in a circle"] if needs else []


def step_of(plan: Mapping[str, Any], step_id: str) -> dict[str, Any]:
    """The step with this id; KeyError if the plan has none."""
    for step in plan["steps"]:
        if step["id"] == step_id:
            return dict(step)
    raise KeyError(step_id)


def revision(plan: Mapping[str, Any]) -> str:
    """Content hash of everything that matters for consent: steps, criteria, tools, executors, schedule.

    Title, speech and complexity are words about the plan, not the plan.
    """
    content = {"steps": plan["steps"], "schedule": plan.get("schedule")}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
