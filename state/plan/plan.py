"""A plan: its shape, its ids, its revision. Whatever proposes one — a model, a person — passes through `read_plan`."""

import hashlib
import json
from collections.abc import Mapping
from string import ascii_lowercase
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from donewhen.state.errors import validation_problems
from donewhen.state.plan.order import in_order
from donewhen.state.plan.revise import revise, with_old_fields
from donewhen.state.plan.rules import Rules as Rules
from donewhen.state.plan.rules import broken_rules, folded, only_executor, read_calls
from donewhen.state.plan.schedule import Schedule
from donewhen.state.plan.written import ignored, plan_fields, unwrapped
from donewhen.state.proof.expect import Check
from donewhen.state.values import flaw

Complexity = Literal["simple", "moderate", "complex"]


def _not_blank(text: str) -> str:
    if not (trimmed := text.strip()):
        raise ValueError("is blank")
    return trimmed


NotBlank = Annotated[str, AfterValidator(_not_blank)]


class Criterion(BaseModel):
    """One thing that must hold when the step is done, and optionally the check that decides it."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    text: NotBlank
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


class PlannedCall(BaseModel):
    """A call that a plan makes out already; the step begins with it."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    tool: str
    arguments: dict[str, Any]


class PlanStep(BaseModel):
    """One step of a plan, as a model or a person writes it."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    content: NotBlank = Field(description="what to do, in one sentence")
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
    calls: Annotated[list[PlannedCall], Field(max_length=32)] | None = Field(
        default=None, description="concrete calls that it begins with"
    )
    replaces: Names = Field(default=None, description="steps of the approved plan in whose place it stands")


class Dropped(BaseModel):
    """What a new plan takes out of the approved one."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    what: NotBlank = Field(description="the id of an open step, or a criterion of the goal in its words")
    why: NotBlank


def _complexity(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


class Plan(BaseModel):
    """A whole plan."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    title: NotBlank
    complexity: Annotated[Complexity, BeforeValidator(_complexity)] = "moderate"
    need_thinking: bool = False
    done_when: Criteria = Field(
        default_factory=list, description="what the user holds in hand at the end, whatever the steps are"
    )
    steps: list[PlanStep]
    schedule: Schedule | None = None
    drop: list[Dropped] = Field(default_factory=list, description="what of the approved plan goes; in a replan")
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
    calls: NotRequired[list[dict[str, Any]]]
    """`{tool, arguments}`: what it begins with, where the plan made that out."""


class PlanJson(TypedDict):
    """A `Plan` in state and in `Run.plan`."""

    title: str
    complexity: Complexity
    need_thinking: bool
    steps: list[StepJson]
    done_when: list[CriterionJson]
    schedule: dict[str, Any] | None
    speak: str | None
    revision: str
    """Its content hash; approval is bound to it."""


def read_plan(value: Any, rules: Rules) -> dict[str, Any] | list[str]:
    """Return the plan as it goes into state, with ids and revision, or everything that is wrong with it.

    With `rules.approved` it is the approved plan with the changes that `value` makes, and `change` says which these
    are; see `revise`.
    """
    if not isinstance(value, Mapping | list):
        return ["a plan is an object with title and steps"]
    whole = unwrapped(value)
    if isinstance(steps := whole.get("steps"), list) and len(steps) > rules.max_steps:
        said = f"the plan has {len(steps):,} steps; at most {rules.max_steps} are allowed"
        return [f"{said}. Merge steps, do not cut the end"]
    if problem := flaw(value):
        return [f"the plan {problem}"]
    if rules.approved:
        kept = {key: rules.approved[key] for key in ("title", "complexity")}
        whole = {**kept, "steps": [], **{key: item for key, item in whole.items() if item is not None}}
    used = {*rules.finished, *rules.used}
    fields, problems = plan_fields(whole, Plan.model_fields, PlanStep.model_fields, used)
    if problems:
        return problems
    if rules.approved:
        fields["steps"] = with_old_fields(fields["steps"], rules)
    try:
        plan = Plan.model_validate(fields)
    except ValidationError as error:
        return validation_problems(error)
    if not plan.steps and not rules.approved:
        return ["steps: a plan has at least one step"]
    if plan.schedule and not rules.repeats:
        return ["schedule: nothing here repeats this plan; leave `schedule` out and plan the work once"]
    data = plan.model_dump(mode="json")
    for step in data["steps"]:
        step["executor"] = step["executor"] or only_executor(step, rules)
    if problems := [problem for step in data["steps"] for problem in read_calls(step, rules)]:
        return problems
    renamed = _renamed(data["steps"], rules)
    in_order(data["steps"])
    if problems := broken_rules(data["steps"], data["done_when"], rules):
        return problems
    change: dict[str, Any] = {}
    if rules.approved:
        if isinstance(revised := revise(data, rules, renamed), list):
            return revised
        data, change = revised[0], {"change": revised[1]}
    elif len(data["steps"]) == 1:
        _as_of_the_step(data)
    stored = {key: item for key, item in data.items() if key in PlanJson.__annotations__}
    stored["steps"] = [_stored(step) for step in stored["steps"]]
    return {**stored, "revision": revision(stored), **change}


def _stored(step: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in step.items() if key != "replaces" and (key != "calls" or item)}


def _as_of_the_step(data: dict[str, Any]) -> None:
    """Let the criteria of a plan of one step be those of its step (in place)."""
    (step,) = data["steps"]
    known = [criterion["text"] for criterion in step["done_when"]]
    step["done_when"] += [criterion for criterion in data["done_when"] if criterion["text"] not in known]
    data["done_when"] = []


def _renamed(steps: list[dict[str, Any]], rules: Rules) -> dict[str, str]:
    """Give other work under the id of a step that was begun an id of its own (in place), and return old id → new id."""
    taken = {step["id"] for step in steps} | {*rules.finished, *rules.used, *rules.begun}
    names: dict[str, str] = {}
    for step in steps:
        old = step["id"]
        if old in rules.begun and folded(rules.begun[old]) != folded(step["content"]):
            free = (f"{old[:36]}{suffix}" for suffix in (*ascii_lowercase[1:], *(f"_{n}" for n in range(2, 1000))))
            names[old] = step["id"] = next(name for name in free if name not in taken)
            taken.add(step["id"])
    for step in steps:
        if step["depends_on"]:
            step["depends_on"] = [names.get(need, need) for need in step["depends_on"]]
    return names


def left_out(value: Any) -> list[str]:
    """Keys in what was written as a plan that were left out of it, because a plan has no place for them."""
    return ignored(value, Plan.model_fields, PlanStep.model_fields)


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
