"""A plan in the state: its shape and its revision. All proposals, of models and people, pass through `read_plan`."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import Any, NotRequired

from pydantic import ValidationError
from typing_extensions import TypedDict

from donewhen.state.criteria import add_criteria, covers, is_plain
from donewhen.state.errors import PlanError, validation_problems
from donewhen.state.plan.order import ancestors, avoid_circles
from donewhen.state.plan.revise import revise, tools_of, with_old_fields
from donewhen.state.plan.rules import Rules as Rules
from donewhen.state.plan.rules import broken_rules, choose_executor, read_calls
from donewhen.state.plan.written import Complexity, Plan, name_calls, read_fields, unwrap_plan
from donewhen.state.values import Json, fold_text, json_problem


class CriterionJson(TypedDict):
    """A `Criterion` in state."""

    text: str
    check: dict[str, Any] | None
    """`{tool, arguments, expect}`."""
    judge: bool
    call: NotRequired[int]
    """The number of the planned call whose success is all that it says."""


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
    message: NotRequired[str]
    """What the user is told if these calls show the step to be done."""


class PlanJson(TypedDict):
    """A `Plan` in state and in `Run.plan`."""

    title: str
    complexity: Complexity
    need_thinking: bool
    steps: list[StepJson]
    done_when: list[CriterionJson]
    schedule: dict[str, Any] | None
    speak: str | None
    providers: NotRequired[dict[str, str]]
    """Tools that it names and a server provides, each with the name of the server and, after a space, a digest of the
    arguments that the tool takes: its approval is for these."""
    effects: NotRequired[dict[str, str]]
    """Tools that it names and that do more than read, each with its effect: its approval is for no greater one."""
    revision: str
    """The content hash that approvals refer to."""


def read_plan(value: Any, rules: Rules) -> Json | list[str]:
    """Return the plan for the state, with ids and revision, or everything that is wrong with it.

    With `rules.approved` it is the approved plan with the changes of `value`, and `change` describes them; see
    `revise`.
    """
    try:
        return _make_plan(_parse_plan(value, rules), rules)
    except PlanError as error:
        return error.problems


def _parse_plan(value: Any, rules: Rules) -> Plan:
    """Return the plan that models and people wrote. Raises PlanError if its form is wrong."""
    if not isinstance(value, Mapping | list):
        raise PlanError(["a plan is an object with title and steps"])
    whole = unwrap_plan(value)
    if isinstance(steps := whole.get("steps"), list) and len(steps) > rules.max_steps:
        problem_text = f"the plan has {len(steps):,} steps; at most {rules.max_steps} are allowed"
        raise PlanError([f"{problem_text}. Merge steps, do not cut the end"])
    if problem := json_problem(value):
        raise PlanError([f"the plan {problem}"])
    if rules.approved:
        approved_fields = {key: rules.approved[key] for key in ("title", "complexity")}
        whole = {**approved_fields, "steps": [], **{key: item for key, item in whole.items() if item is not None}}
    fields, problems = read_fields(whole, {*rules.finished, *rules.used})
    if problems:
        raise PlanError(problems)
    schedule = fields.get("schedule")
    if isinstance(schedule, Mapping) and not schedule.get("timezone") and schedule.get("every_minutes") is None:
        fields["schedule"] = {**schedule, "timezone": rules.zone}
    if rules.approved:
        fields["steps"] = with_old_fields(fields["steps"], rules)
    try:
        plan = Plan.model_validate(fields)
    except ValidationError as error:
        raise PlanError(validation_problems(error)) from None
    if not plan.steps and not rules.approved:
        raise PlanError(["steps: a plan has at least one step"])
    if plan.schedule and not rules.repeats:
        raise PlanError(["schedule: nothing here repeats this plan; leave `schedule` out and plan the work once"])
    return plan


def _make_plan(written: Plan, rules: Rules) -> Json:
    """Return a written plan as it is stored. Raises PlanError if it breaks the rules."""
    plan = written.model_dump(mode="json")
    if not rules.approved:
        words = {fold_text(criterion["text"]) for criterion in rules.required}
        own = [criterion for criterion in plan["done_when"] if fold_text(criterion["text"]) not in words]
        plan["done_when"] = add_criteria((), (*rules.required, *own))
    steps, renamed = _rename_changed_steps(_complete_steps(plan["steps"], rules), rules)
    plan["steps"] = avoid_circles(steps)
    if problems := broken_rules(plan["steps"], plan["done_when"], rules):
        raise PlanError(problems)
    more: Json = {}
    if rules.approved:
        plan, more["change"] = revise(plan, rules, renamed)
    elif len(plan["steps"]) == 1:
        plan = _with_criteria_of_step(plan)
    stored = {key: item for key, item in plan.items() if key in PlanJson.__annotations__}
    stored["steps"] = [
        {key: item for key, item in step.items() if key != "replaces" and (item or key not in ("calls", "message"))}
        for step in plan["steps"]
    ]
    if providers := {name: by for name in tools_of(stored) if (by := rules.provider(name))}:
        stored["providers"] = providers
    stored["effects"] = {name: effect for name in tools_of(stored) if (effect := rules.effect(name)) != "read"}
    return {**stored, "revision": revision_of(stored), **more}


def _complete_steps(steps: Sequence[Json], rules: Rules) -> list[Json]:
    """Return the steps with their executors, and with the coerced arguments of their planned calls, which they name.

    Raises PlanError for arguments that a tool does not take.
    """
    whole, problems = list[Json](), list[str]()
    for step in steps:
        calls, call_problems = read_calls(step, rules)
        content = name_calls(step["content"], step["calls"], calls) if calls else step["content"]
        executor = step["executor"] or choose_executor(step, rules)
        whole.append({**step, "content": content, "executor": executor, "calls": calls})
        problems += call_problems
    if problems:
        raise PlanError(problems)
    return whole


def _rename_changed_steps(steps: Sequence[Json], rules: Rules) -> tuple[list[Json], dict[str, str]]:
    """Return the steps, with a new id for different work under the id of a started step, and old id → new id."""
    used_ids = {step["id"] for step in steps} | {*rules.finished, *rules.used, *rules.unfinished}
    names: dict[str, str] = {}
    renamed = list[Json]()
    for step in steps:
        old = id = step["id"]
        if old in rules.unfinished and fold_text(rules.unfinished[old]) != fold_text(step["content"]):
            free = (f"{old[:36]}{suffix}" for suffix in (*ascii_lowercase[1:], *(f"_{n}" for n in range(2, 1000))))
            names[old] = id = next(name for name in free if name not in used_ids)
            used_ids.add(id)
        renamed.append({**step, "id": id})
    for step in renamed:
        if step["depends_on"]:
            step["depends_on"] = [names.get(need, need) for need in step["depends_on"]]
    return renamed, names


def _with_criteria_of_step(plan: Json) -> Json:
    """Return a one-step plan with the goal's criteria at its step; a check of the goal decides what says the same."""
    (step,) = plan["steps"]
    decided = {fold_text(criterion["text"]) for criterion in plan["done_when"] if not is_plain(criterion)}
    own = [each for each in step["done_when"] if not is_plain(each) or fold_text(each["text"]) not in decided]
    return {**plan, "done_when": [], "steps": [{**step, "done_when": add_criteria(own, plan["done_when"])}]}


def find_step(plan: Mapping[str, Any], step_id: str) -> dict[str, Any]:
    """Return the step with this id. Raises KeyError if the plan has none."""
    for step in plan["steps"]:
        if step["id"] == step_id:
            return dict(step)
    raise KeyError(step_id)


def answering_step(plan: Mapping[str, Any]) -> str:
    """Return the step whose result is the run's answer, "" if a model writes the answer from the results of several.

    It is the only step, or the only one without tools (`tools: []`), which words what all others did; and the goal has
    no criteria but its own (Q76, D05).
    """
    steps: Sequence[Mapping[str, Any]] = plan.get("steps") or ()
    wording = [step for step in steps if step.get("tools") == []]
    joins = len(wording) == 1 and len(ancestors(plan, wording[0]["id"])) == len(steps) - 1
    for step in steps if len(steps) == 1 else wording if joins else ():
        if len(_goal_in_step(plan, step)) == len(plan.get("done_when") or ()):
            return str(step["id"])
    return ""


def verdicts_on_goal(plan: Mapping[str, Any], step: Mapping[str, Any], verdicts: Sequence[Json]) -> list[Json]:
    """Return what the step's verdicts say about the goal's criteria, which are all among its own."""
    by_criterion = {verdict["criterion"]: verdict for verdict in verdicts}
    pairs = enumerate(_goal_in_step(plan, step), 1)
    return [{**by_criterion[number], "criterion": goal} for goal, number in pairs if number in by_criterion]


def _goal_in_step(plan: Mapping[str, Any], step: Mapping[str, Any]) -> list[int]:
    """Return the numbers of the step's criteria that are criteria of the goal, in the order of the goal."""
    own = list(enumerate(step.get("done_when") or (), 1))
    found = (next((n for n, each in own if covers(each, goal)), None) for goal in plan.get("done_when") or ())
    return [number for number in found if number]


def revision_of(plan: Mapping[str, Any]) -> str:
    """Return a content hash of all that consent is about: criteria, steps, tools as they are, executors, schedule.

    Title, speech and complexity only describe the plan.
    """
    content = {"steps": plan["steps"], "schedule": plan.get("schedule")}
    content |= {key: plan[key] for key in ("done_when", "providers", "effects") if plan.get(key)}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
