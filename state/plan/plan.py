"""A plan: its shape, its ids, its revision. All proposals, of models and people, pass through `read_plan`.

It accepts synonyms of keys, and calls in place of steps. Unknown keys are problems, or are listed by
`ignored_keys`.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from string import ascii_lowercase
from typing import Annotated, Any, ClassVar, Literal, NotRequired

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from donewhen.state.criteria import Criteria, NotBlank
from donewhen.state.errors import validation_problems
from donewhen.state.pattern import pattern
from donewhen.state.plan.order import avoid_circles
from donewhen.state.plan.revise import revise, with_old_fields
from donewhen.state.plan.rules import Rules as Rules
from donewhen.state.plan.rules import broken_rules, choose_executor, read_calls
from donewhen.state.plan.schedule import Schedule
from donewhen.state.values import flaw, fold_text

Complexity = Literal["simple", "moderate", "complex"]
TITLE_CHARS = 200
STEPS_KEYS = ("steps", "plan_steps", "plan", "tasks")
"""Names for the list of steps; the first that is a list is used."""
STEP_SYNONYMS: dict[str, tuple[str, ...]] = {
    "content": ("description", "task", "instruction", "step"),
    "done_when": ("criteria", "success_criteria", "acceptance_criteria"),
}
"""Synonyms for the keys of a step."""
SUBSTEP_KEYS = ("steps", "substeps", "sub_steps", "subtasks", "children", "plan_steps")
CALLS_KEYS = ("calls", "tool_calls")
TOOL_KEYS = ("tool", "name", "tool_name", "function", "action")
ARGUMENT_KEYS = ("arguments", "args", "action_input", "input", "parameters", "tool_input")
"""Names under which models write the arguments of a call."""
DECISION_KEYS = frozenset(
    {"action", "reason", "goal_check", "tool_call", "plan_steps", "plan", "tasks", "revision", "language"}
)
"""Keys of the decision that contained the plan."""
# Escape sequences of terminals, control characters, and what makes text run in another direction than it shows.
_UNSEEN = pattern(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _without_repeats(names: list[str] | None) -> list[str] | None:
    return None if names is None else list(dict.fromkeys(names))


Names = Annotated[list[str] | None, AfterValidator(_without_repeats)]


class PlannedCall(BaseModel):
    """A call that the plan already specifies; the step begins with it."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)

    tool: str
    arguments: dict[str, Any]


class PlanStep(BaseModel):
    """One step of a plan, as a model or a person writes it."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)

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
    """A step or criterion that a new plan removes from the approved one."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)

    what: NotBlank = Field(description="the id of an open step, or a criterion of the goal in its words")
    why: NotBlank


def _complexity(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


class Plan(BaseModel):
    """A whole plan."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)

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
    """None means all earlier steps."""
    executor: str | None
    tools: list[str] | None
    """None means any tool, with a person asked before each write."""
    calls: NotRequired[list[dict[str, Any]]]
    """`{tool, arguments}` of the calls that the step begins with, if the plan specifies them."""


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
    """The content hash that approvals refer to."""


def read_plan(value: Any, rules: Rules) -> dict[str, Any] | list[str]:
    """Return the plan for the state, with ids and revision, or everything that is wrong with it.

    With `rules.approved` it is the approved plan with the changes of `value`, and `change` describes them; see
    `revise`.
    """
    plan = _parse_plan(value, rules)
    if isinstance(plan, list):
        return plan
    data = plan.model_dump(mode="json")
    if not rules.approved:
        required = {criterion["text"]: dict(criterion) for criterion in rules.required}
        written = [criterion for criterion in data["done_when"] if criterion["text"] not in required]
        data["done_when"] = [*required.values(), *written]
    for step in data["steps"]:
        step["executor"] = step["executor"] or choose_executor(step, rules)
    if problems := [problem for step in data["steps"] for problem in read_calls(step, rules)]:
        return problems
    renamed = _rename_changed_steps(data["steps"], rules)
    avoid_circles(data["steps"])
    if problems := broken_rules(data["steps"], data["done_when"], rules):
        return problems
    change: dict[str, Any] = {}
    if rules.approved:
        if isinstance(revised := revise(data, rules, renamed), list):
            return revised
        data, change = revised[0], {"change": revised[1]}
    elif len(data["steps"]) == 1:
        _move_criteria_to_step(data)
    stored = {key: item for key, item in data.items() if key in PlanJson.__annotations__}
    stored["steps"] = [
        {key: item for key, item in step.items() if key != "replaces" and (key != "calls" or item)}
        for step in stored["steps"]
    ]
    return {**stored, "revision": revision_of(stored), **change}


def _parse_plan(value: Any, rules: Rules) -> Plan | list[str]:
    """Return the plan that models and people wrote, or what is wrong with its form."""
    if not isinstance(value, Mapping | list):
        return ["a plan is an object with title and steps"]
    whole = unwrap_plan(value)
    if isinstance(steps := whole.get("steps"), list) and len(steps) > rules.max_steps:
        said = f"the plan has {len(steps):,} steps; at most {rules.max_steps} are allowed"
        return [f"{said}. Merge steps, do not cut the end"]
    if problem := flaw(value):
        return [f"the plan {problem}"]
    if rules.approved:
        kept = {key: rules.approved[key] for key in ("title", "complexity")}
        whole = {**kept, "steps": [], **{key: item for key, item in whole.items() if item is not None}}
    used = {*rules.finished, *rules.used}
    fields, problems = _read_fields(whole, used)
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
    return plan


def _move_criteria_to_step(data: dict[str, Any]) -> None:
    """Move the goal's criteria of a one-step plan to its step (in place)."""
    (step,) = data["steps"]
    known = [criterion["text"] for criterion in step["done_when"]]
    step["done_when"] += [criterion for criterion in data["done_when"] if criterion["text"] not in known]
    data["done_when"] = []


def _rename_changed_steps(steps: list[dict[str, Any]], rules: Rules) -> dict[str, str]:
    """Give different work a new id if its id belongs to a started step (in place); return old id → new id."""
    taken = {step["id"] for step in steps} | {*rules.finished, *rules.used, *rules.unfinished}
    names: dict[str, str] = {}
    for step in steps:
        old = step["id"]
        if old in rules.unfinished and fold_text(rules.unfinished[old]) != fold_text(step["content"]):
            free = (f"{old[:36]}{suffix}" for suffix in (*ascii_lowercase[1:], *(f"_{n}" for n in range(2, 1000))))
            names[old] = step["id"] = next(name for name in free if name not in taken)
            taken.add(step["id"])
    for step in steps:
        if step["depends_on"]:
            step["depends_on"] = [names.get(need, need) for need in step["depends_on"]]
    return names


def ignored_keys(value: Any) -> list[str]:
    """Return keys of a plan and its steps that were ignored, at most ten."""
    if not isinstance(value, Mapping):
        return []
    value = unwrap_plan(value)
    steps = value.get("steps")
    found = [str(key) for key in value if key not in Plan.model_fields and key not in DECISION_KEYS]
    for step in steps if isinstance(steps, list) else ():
        found += _unknown_keys(step)
    return [key[:40] for key in dict.fromkeys(found)][:10]


def unknown_fields(edited: Mapping[str, Any], shown: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the path of each key of an edited plan that neither a plan nor the one that was `shown` has, and a problem.

    A path is such as `steps[0].done_wen`.
    """
    known = [*Plan.model_fields, "limits"]
    for key in edited:
        if key not in known and key not in shown and key not in DECISION_KEYS:
            yield str(key), f"a plan {_problem_with_key(str(key), known)}"
    seen = {key for step in shown.get("steps") or () for key in step}
    for place, step in enumerate(edited.get("steps") or ()):
        for key in _unknown_keys(step):
            if key not in seen:
                problem = _problem_with_key(key, PlanStep.model_fields)
                yield f"steps[{place}].{key}", f"step {step.get('id') or place + 1} {problem}"


def _problem_with_key(key: str, known: Iterable[str]) -> str:
    close = _closest(key, known)
    return f"has no field {key[:40]!r}" + (f" (did you mean {close}?)" if close else "")


def _closest(key: str, names: Iterable[str]) -> str:
    return next(iter(get_close_matches(key[:40].lower(), list(names), n=1, cutoff=0.62)), "")


def with_own_names(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step with synonyms of its keys replaced."""
    synonyms = {word for words in STEP_SYNONYMS.values() for word in words}
    named = {key: item for key, item in step.items() if key not in synonyms}
    for field, words in STEP_SYNONYMS.items():
        if field not in named and (item := next((step[word] for word in words if step.get(word)), None)):
            named[field] = item
    return named


def find_step(plan: Mapping[str, Any], step_id: str) -> dict[str, Any]:
    """Return the step with this id. Raises KeyError if the plan has none."""
    for step in plan["steps"]:
        if step["id"] == step_id:
            return dict(step)
    raise KeyError(step_id)


def revision_of(plan: Mapping[str, Any]) -> str:
    """Return a content hash of everything relevant for consent: criteria, steps, tools, executors, schedule.

    Title, speech and complexity only describe the plan.
    """
    content = {"steps": plan["steps"], "schedule": plan.get("schedule")}
    if plan.get("done_when"):
        content["done_when"] = plan["done_when"]
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


# --- as models and people write it


def _read_fields(value: Mapping[str, Any], used: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of an unwrapped plan with synonyms resolved, and the problems. `used` are ids of other steps.

    Ids are returned as texts, and assigned where missing.
    """
    value = strip_invisible(value)
    fields = {key: item for key, item in value.items() if key in Plan.model_fields and item is not None}
    schedule = fields.get("schedule")
    if isinstance(schedule, Mapping) and all(
        item in (None, "", []) for key, item in schedule.items() if key != "missed"
    ):
        del fields["schedule"]  # models that must fill every field of a schema write a schedule of nulls
    if not isinstance(steps := fields.get("steps"), list):
        return fields, []
    problems = [f"step {number}: {said}" for number, step in enumerate(steps, 1) for said in _find_misnamed(step)]
    fields["steps"] = _assign_ids([_read_step(step) for step in steps], used)
    title, first = fields.get("title"), next(iter(fields["steps"]), None)
    if (title is None or title == "") and isinstance(first, Mapping) and isinstance(first.get("content"), str):
        title = first["content"].strip().partition("\n")[0][:80]
    fields["title"] = title[:TITLE_CHARS] if isinstance(title, str) else title
    return fields, problems


def unwrap_plan(value: Mapping[str, Any] | list[Any]) -> dict[str, Any]:
    """Return the plan itself with its steps under `steps`, however they were named or wrapped."""
    if isinstance(value, list):
        return {"steps": value}
    whole = dict(value)
    if isinstance(inner := whole.get("plan"), Mapping) and not isinstance(whole.get("steps"), list):
        whole = {**{key: item for key, item in whole.items() if key != "plan"}, **inner}
    listed = next((whole[key] for key in STEPS_KEYS if isinstance(whole.get(key), list)), whole.get("steps"))
    return {**whole, "steps": listed}


def _unknown_keys(step: Any) -> list[str]:
    """Return the keys of a step that mean nothing: neither fields, nor calls, nor synonyms for fields that it lacks."""
    if not isinstance(step, Mapping) or _is_call(step):
        return []
    synonyms = {word for field, words in STEP_SYNONYMS.items() if field not in step for word in words}
    known = {*PlanStep.model_fields, *CALLS_KEYS, *synonyms}
    return [str(key) for key in step if key not in known]


def strip_invisible(value: Any) -> Any:
    """Return the value with invisible characters removed from its texts."""
    if isinstance(value, str):
        return _UNSEEN.sub("", value)
    if isinstance(value, Mapping):
        return {strip_invisible(key): strip_invisible(item) for key, item in value.items()}
    return [strip_invisible(item) for item in value] if isinstance(value, list) else value


def _find_misnamed(step: Any) -> Iterator[str]:
    """Yield a problem for each key that was probably misspelled, and for steps nested in a step."""
    for key in _unknown_keys(step)[:10]:
        if key in SUBSTEP_KEYS and step[key]:
            yield f"holds steps of its own under {key!r}; a plan is flat: write them as steps, joined by depends_on"
        elif close := _closest(key, (name for name in PlanStep.model_fields if name not in step)):
            yield f"there is no key {key[:40]!r}; did you mean {close}?"


def _is_call(step: Mapping[str, Any]) -> bool:
    """Return whether a step is a concrete call."""
    named = any(isinstance(step.get(key), str) for key in TOOL_KEYS)
    return named and any(isinstance(step.get(key), Mapping) for key in ARGUMENT_KEYS) and "done_when" not in step


def _read_step(step: Any) -> Any:
    if isinstance(step, str):
        return {"content": step}
    if not isinstance(step, Mapping):
        return step
    named = with_own_names(step)
    fields = {key: item for key, item in named.items() if key in PlanStep.model_fields and key not in CALLS_KEYS}
    for key in ("tools", "replaces"):
        if isinstance(fields.get(key), str):
            fields[key] = [fields[key]]
    if not (calls := _planned_calls(step)):
        return fields
    told = "; ".join(
        f"{call['tool']} with {json.dumps(call['arguments'], ensure_ascii=False)}"
        if call["arguments"]
        else call["tool"]
        for call in calls
    )
    said, names = fields.get("content"), [*(fields.get("tools") or ()), *(call["tool"] for call in calls)]
    content = f"{said} ({told})" if said else f"Call {told}"
    return {**fields, "content": content, "tools": list(dict.fromkeys(names)), "calls": calls}


def _planned_calls(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the concrete calls that a step is or begins with; [] if one of them cannot be read."""
    listed: list[Any] = next((step[key] for key in CALLS_KEYS if isinstance(step.get(key), list)), [])
    written = [step] if _is_call(step) else listed
    if not all(isinstance(call, Mapping) and _is_call(call) for call in written):
        return []
    return [
        {
            "tool": next(call[key] for key in TOOL_KEYS if isinstance(call.get(key), str)),
            "arguments": next(call[key] for key in ARGUMENT_KEYS if isinstance(call.get(key), Mapping)),
        }
        for call in written
    ]


def _assign_ids(steps: list[Any], used: Collection[str]) -> list[Any]:
    """Return the steps with ids, also in place of the numbers they depend on: step numbers, else positions."""
    objects = [step for step in steps if isinstance(step, dict)]
    by_place = not any(step.get("id") for step in objects)
    for step in objects:
        step["id"] = _as_id(step["id"]) if step.get("id") else None
    taken, number = {step["id"] for step in objects if isinstance(step["id"], str)} | set(used), 0
    for step in objects:
        while not step["id"]:
            number += 1
            step["id"] = None if f"s{number}" in taken else f"s{number}"
    places = {f"s{place}": step["id"] for place, step in enumerate(objects, 1)} if by_place else {}
    for step in objects:
        needs = step.get("depends_on")
        needs = [needs] if isinstance(needs, str | int) and not isinstance(needs, bool) else needs
        if isinstance(needs, list):
            step["depends_on"] = [
                places.get(_as_id(need), _as_id(need)) if _as_id(need) != need else need for need in needs
            ]
    return steps


def _as_id(id: Any) -> Any:
    """Return a number as an id."""
    plain = isinstance(id, int) and not isinstance(id, bool)
    return f"s{id}" if plain or (isinstance(id, str) and id.isascii() and id.isdecimal()) else id
