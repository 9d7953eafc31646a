"""A plan as models and people write it: the form of a proposal, synonyms of its keys, and calls in place of steps.

The synonyms here hold for both; those that only models may use, from other systems, are in `elsewhere`. Keys that our
form lacks are dropped. What a model wrote under them, `elsewhere` has put into texts before.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import count
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from donewhen.state.criteria import Criteria, NotBlank
from donewhen.state.pattern import pattern
from donewhen.state.plan.schedule import Schedule

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
# Escape sequences of terminals, control characters, and characters that change the direction of text.
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
    message: str | None = Field(default=None, description="what the user is told once all its `calls` succeeded")
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


def read_fields(value: Mapping[str, Any], used: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of an unwrapped plan with synonyms resolved, and its problems. `used` are ids of other steps.

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
    problems = [f"step {number}: {problem}" for number, step in enumerate(steps, 1) for problem in _find_misnamed(step)]
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
    if not isinstance(step, Mapping) or is_call(step):
        return []
    synonyms = {word for field, words in STEP_SYNONYMS.items() if field not in step for word in words}
    expected_keys = {*PlanStep.model_fields, *CALLS_KEYS, *synonyms}
    return [str(key) for key in step if key not in expected_keys]


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
        elif close := closest(key, (name for name in PlanStep.model_fields if name not in step)):
            yield f"there is no key {key[:40]!r}; did you mean {close}?"


def is_call(step: Mapping[str, Any]) -> bool:
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
    if not (calls := planned_calls(step)):
        return fields
    names = [*(fields.get("tools") or ()), *(call["tool"] for call in calls)]
    content = fields.get("content") or f"Call {calls_text(calls)}"
    return {**fields, "content": content, "tools": list(dict.fromkeys(names)), "calls": calls}


def name_calls(content: str, before: Sequence[Mapping[str, Any]], calls: Sequence[Mapping[str, Any]]) -> str:
    """Return the content of a step with its calls named at the end, in place of those of `before`."""
    old, new = calls_text(before), calls_text(calls)
    if content == f"Call {old}":
        return f"Call {new}" if new else content
    bare = content.removesuffix(f" ({new})").removesuffix(f" ({old})")
    return f"{bare} ({new})" if new else bare


def calls_text(calls: Sequence[Mapping[str, Any]]) -> str:
    """Return planned calls as a step's content names them."""
    return "; ".join(
        f"{call['tool']} with {json.dumps(call['arguments'], ensure_ascii=False)}"
        if call["arguments"]
        else str(call["tool"])
        for call in calls
    )


def with_own_names(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step with synonyms of its keys replaced."""
    synonyms = {word for words in STEP_SYNONYMS.values() for word in words}
    named = {key: item for key, item in step.items() if key not in synonyms}
    for field, words in STEP_SYNONYMS.items():
        if field not in named and (item := next((step[word] for word in words if step.get(word)), None)):
            named[field] = item
    return named


def planned_calls(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the concrete calls that a step is or begins with; [] if one of them cannot be read."""
    listed: list[Any] = next((step[key] for key in CALLS_KEYS if isinstance(step.get(key), list)), [])
    written = [step] if is_call(step) else listed
    if not all(isinstance(call, Mapping) and is_call(call) for call in written):
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
    objects = [step for step in steps if isinstance(step, Mapping)]
    own_ids = [as_id(step.get("id")) if step.get("id") else None for step in objects]
    used_ids = {*used, *(id for id in own_ids if isinstance(id, str))}
    free = (f"s{number}" for number in count(1) if f"s{number}" not in used_ids)
    ids = [id or next(free) for id in own_ids]
    by_place = not any(own_ids)
    places = {f"s{place}": id for place, id in enumerate(ids, 1)} if by_place else {}
    left = iter(ids)
    return [_with_ids(step, next(left), places) if isinstance(step, Mapping) else step for step in steps]


def _with_ids(step: Mapping[str, Any], id: Any, places: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step with its id, and with ids in place of the numbers it depends on."""
    needs = step.get("depends_on")
    if isinstance(needs, str | int) and not isinstance(needs, bool):
        needs = [needs]
    if not isinstance(needs, list):
        return {**step, "id": id}
    named = [need if (other := as_id(need)) == need else places.get(other, other) for need in needs]
    return {**step, "id": id, "depends_on": named}


def as_id(id: Any) -> Any:
    """Return a number as an id."""
    plain = isinstance(id, int) and not isinstance(id, bool)
    return f"s{id}" if plain or (isinstance(id, str) and id.isascii() and id.isdecimal()) else id


def unknown_fields(edited: Mapping[str, Any], shown: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the path of each key of an edited plan that neither a plan nor the one that was `shown` has, and a problem.

    A path is such as `steps[0].done_wen`.
    """
    names = [*(key for key in Plan.model_fields if key != "drop"), "limits"]
    for key in edited:
        if key not in names and key not in shown:
            yield str(key), f"a plan {_problem_with_key(str(key), names)}"
    shown_keys = {key for step in shown.get("steps") or () for key in step}
    for place, step in enumerate(edited.get("steps") or ()):
        for key in _unknown_keys(step):
            if key not in shown_keys:
                problem = _problem_with_key(key, PlanStep.model_fields)
                yield f"steps[{place}].{key}", f"step {step.get('id') or place + 1} {problem}"


def _problem_with_key(key: str, names: Iterable[str]) -> str:
    close = closest(key, names)
    return f"has no field {key[:40]!r}" + (f" (did you mean {close}?)" if close else "")


def closest(key: str, names: Iterable[str]) -> str:
    """Return the name that a misspelled key was probably meant as; "" if none is near."""
    return next(iter(get_close_matches(key[:40].lower(), list(names), n=1, cutoff=0.62)), "")
