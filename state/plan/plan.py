"""A plan: its shape, its ids, its revision. Whatever proposes one — a model, a person — passes through `read_plan`."""

import hashlib
import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from donewhen.state.plan.rules import Rules as Rules
from donewhen.state.plan.rules import broken_rules
from donewhen.state.plan.rules import near as near
from donewhen.state.plan.schedule import Schedule
from donewhen.state.proof.expect import Check
from donewhen.state.values import flaw

Complexity = Literal["simple", "moderate", "complex"]
TITLE_CHARS = 200


def _not_blank(text: str) -> str:
    if not (trimmed := text.strip()):
        raise ValueError("is blank")
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


def _once(names: list[str] | None) -> list[str] | None:
    return None if names is None else list(dict.fromkeys(names))


Criteria = Annotated[list[Criterion], BeforeValidator(_criteria)]
Names = Annotated[list[str] | None, AfterValidator(_once)]


class PlanStep(BaseModel):
    """One step of a plan, as a model or a person writes it."""

    model_config = ConfigDict(extra="forbid")

    content: Text = Field(description="what to do, in one sentence")
    done_when: Criteria = Field(
        default_factory=list,
        description="observable criteria; attach a check wherever a listed check tool can decide one",
    )
    id: str | None = Field(default=None, description="short id such as s1; assigned when missing")
    depends_on: Names = Field(
        None,
        description="ids of steps whose results this one needs; [] = independent; omitted = after all earlier ones",
    )
    executor: str | None = None
    tools: Names = Field(default=None, description="tools this step needs; approving the plan approves them")


def _complexity(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


class Plan(BaseModel):
    """A whole plan."""

    model_config = ConfigDict(extra="forbid")

    title: Text
    complexity: Annotated[Complexity, BeforeValidator(_complexity)] = "moderate"
    need_thinking: bool = False
    done_when: Criteria = Field(
        default_factory=list, description="what the user holds in hand at the end, whatever the steps are"
    )
    steps: list[PlanStep] = Field(min_length=1)
    schedule: Schedule | None = None
    speak: str | None = Field(default=None, description="what to tell the user with the plan")


class CriterionJson(TypedDict):
    """A `Criterion` in state."""

    text: str
    check: dict[str, Any] | None
    """`{tool, arguments, expect}`."""
    judge: bool


class StepJson(TypedDict):
    """A `PlanStep` in state."""

    id: str
    content: str
    done_when: list[CriterionJson]
    depends_on: list[str] | None
    """None: on all earlier steps."""
    executor: str | None
    tools: list[str] | None
    """None: whatever it needs, with a person asked before each write."""


class PlanJson(TypedDict):
    """A `Plan` in state and in `Run.plan`."""

    title: str
    complexity: Complexity
    need_thinking: bool
    steps: list[StepJson]
    schedule: dict[str, Any] | None
    speak: str | None
    revision: str
    """Its content hash; approval is bound to it."""


def read_plan(value: Any, rules: Rules) -> dict[str, Any] | list[str]:
    """The plan as it goes into state, with ids and revision, or everything that is wrong with it."""
    if not isinstance(value, Mapping):
        return ["a plan is an object with title and steps"]
    steps = value.get("steps")
    if isinstance(steps, list) and len(steps) > rules.max_steps:
        said = f"the plan has {len(steps):,} steps; at most {rules.max_steps} are allowed"
        return [f"{said}. Merge steps, do not cut the end"]
    if problem := flaw(dict(value)):
        return [f"the plan {problem}"]
    fields, problems = _fields(value)
    if problems:
        return problems
    try:
        plan = Plan.model_validate(fields)
    except ValidationError as error:
        return said_by(error)
    data = plan.model_dump(mode="json")
    for step in data["steps"]:
        step["executor"] = step["executor"] or rules.executor
    _assign_ids(data["steps"], {*rules.finished, *rules.used})
    if problems := broken_rules(data["steps"], data["done_when"], rules):
        return problems
    return {**data, "revision": revision(data)}


def _fields(value: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What belongs to a plan, and keys that were probably meant to; other keys (a status, a comment) mean nothing."""
    known = {key: item for key, item in value.items() if key in Plan.model_fields and item is not None}
    schedule = known.get("schedule")
    if isinstance(schedule, Mapping) and not any(item not in (None, "") for item in schedule.values()):
        del known["schedule"]  # models that must fill every field of a schema write a schedule of nulls
    if not isinstance(steps := known.get("steps"), list):
        return known, []
    problems: list[str] = []
    for number, step in enumerate(steps, 1):
        strange = [key for key in step if key not in PlanStep.model_fields] if isinstance(step, Mapping) else []
        problems += [f"step {number}: {said}" for key in strange[:10] if (said := _misnamed(key, step))]
    known["steps"] = [_step_fields(step) for step in steps]
    known["title"] = _title(known)
    return known, problems


def _misnamed(key: Any, step: Mapping[str, Any]) -> str:
    close = get_close_matches(str(key)[:40].lower(), set(PlanStep.model_fields) - set(step), n=1, cutoff=0.62)
    return f"there is no key {str(key)[:40]!r}; did you mean {close[0]}?" if close else ""


def _title(fields: Mapping[str, Any]) -> Any:
    """A plan without a title is called like its first step."""
    title, first = fields.get("title"), next(iter(fields["steps"]), None)
    if (title is None or title == "") and isinstance(first, Mapping) and isinstance(first.get("content"), str):
        return first["content"].strip().partition("\n")[0][:80]
    return title[:TITLE_CHARS] if isinstance(title, str) else title


def _step_fields(step: Any) -> Any:
    if isinstance(step, str):
        return {"content": step}
    return {k: v for k, v in step.items() if k in PlanStep.model_fields} if isinstance(step, Mapping) else step


def said_by(error: ValidationError) -> list[str]:
    """Pydantic's complaints as sentences a model can act on: where, what, and what was given."""
    lines = []
    for item in error.errors(include_url=False, include_context=False)[:10]:
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in item["loc"]).lstrip(".")
        given = json.dumps(item["input"], ensure_ascii=False, default=str)[:80]
        lines.append(f"{where or 'arguments'}: {item['msg']} (given: {given})")
    return lines


def _assign_ids(steps: list[dict[str, Any]], used: set[str]) -> None:
    taken = {step["id"] for step in steps if step["id"]} | used
    number = 0
    for step in steps:
        if not step["id"]:
            while f"s{(number := number + 1)}" in taken:
                continue
            step["id"] = f"s{number}"


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


def step_of(plan: Mapping[str, Any], step_id: str) -> dict[str, Any]:
    """The step with this id; KeyError if the plan has none."""
    for step in plan["steps"]:
        if step["id"] == step_id:
            return dict(step)
    raise KeyError(step_id)


def revision(plan: Mapping[str, Any]) -> str:
    """Content hash of everything that matters for consent: criteria, steps, tools, executors, schedule.

    Title, speech and complexity are words about the plan, not the plan.
    """
    content = {"steps": plan["steps"], "schedule": plan.get("schedule")}
    if plan.get("done_when"):
        content["done_when"] = plan["done_when"]
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
