"""What a person changed in a plan, applied: the result is a whole plan, still to be validated.

A plan is edited as data, written as YAML or JSON or given as it is. Nothing of it is guessed, and nothing dropped.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from donewhen.state.language.texts import Unclear, unclear
from donewhen.state.people.amounts import read_limits
from donewhen.state.plan.document import read_document
from donewhen.state.plan.plan import left_out

STEP: dict[str, Any] = {"done_when": [], "depends_on": None, "executor": None, "tools": None}
CRITERION: dict[str, Any] = {"check": None, "judge": False}


@dataclass(frozen=True)
class PlanEdit:
    """An edit as it was read."""

    plan: dict[str, Any]
    """The edited plan, without its revision."""
    changed: bool
    """False where it equals the plan that was shown."""
    limits: dict[str, float] = field(default_factory=dict)
    """What each limit that was changed should be."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Where the parts of a plan stand that was written as text."""


def edit_plan(
    fields: Mapping[str, Any], plan: Mapping[str, Any], limits: Mapping[str, Any] | None = None
) -> PlanEdit | Unclear:
    """Return the plan with the edit in `fields`, or the reason why it does not apply.

    A key of the plan that the edit does not name stays as it is; a step is as the edit says. What a plan has no place
    for is a problem of what a person wrote, and means nothing in the data of a program. `limits` are those shown.
    """
    edit, lines = fields.get("plan"), dict[str, int]()
    if isinstance(edit, str):
        document = read_document(edit)
        if isinstance(document, Unclear):
            return document
        edit, lines = document.value, dict(document.lines)
    elif edit is None:
        edit = fields
    if not isinstance(edit, Mapping):
        return unclear("plan_type", type="text" if isinstance(edit, str) else type(edit).__name__)
    if not isinstance(edit.get("steps"), list):
        return unclear("plan_steps")
    given = {key: item for key, item in edit.items() if key not in ("limits", "revision")}
    if isinstance(fields.get("plan"), str) and (strange := left_out(given)):
        said = (f"line {lines[where]}: {key}" if (where := _where(key, lines)) else key for key in strange)
        return unclear("edit", reasons=f"a plan has no place for {', '.join(said)}")
    if plan.get("schedule") and "schedule" not in given:
        return unclear("schedule_left_out")
    asked = _changed_limits(edit.get("limits"), limits)
    if isinstance(asked, Unclear):
        return asked
    before = {key: item for key, item in plan.items() if key != "revision"}
    after = _whole({**before, **given}, plan)
    return PlanEdit(copy.deepcopy(after), after != _whole(before, plan), asked, lines)


def _whole(given: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """The plan with every field of its steps and criteria."""
    old = {step.get("id"): step for step in plan.get("steps") or ()}
    return {
        **given,
        "title": given.get("title") or plan.get("title"),
        "done_when": _criteria(given.get("done_when")),
        "steps": [_step(step, old) for step in given.get("steps") or ()],
        "schedule": _schedule(given.get("schedule"), plan.get("schedule")),
    }


def _where(key: str, lines: Mapping[str, int]) -> str:
    return next((where for where in lines if where.rpartition(".")[2] == key), "")


def _step(step: Any, old: Mapping[Any, Mapping[str, Any]]) -> Any:
    """The step as it is written; the calls with which it began go where its words say something else now."""
    if not isinstance(step, Mapping):
        return {"content": step} if isinstance(step, str) else step
    before = old.get(step.get("id"), {})
    calls = {"calls": before["calls"]} if "calls" in before else {}
    written = {**STEP, **calls, **step, "done_when": _criteria(step.get("done_when"))}
    if calls and written["calls"] == before["calls"] and written.get("content") != before.get("content"):
        del written["calls"]
    return written


def _criteria(given: Any) -> Any:
    items = [given] if isinstance(given, str | Mapping) else given
    if not isinstance(items, list):
        return items or []
    texts = ({"text": item} if isinstance(item, str) else item for item in items)
    return [{**CRITERION, **item} if isinstance(item, Mapping) else item for item in texts]


def _schedule(given: Any, before: Any) -> Any:
    """The schedule as it is written; the one that was shown, fields without a value aside, is itself."""
    if not isinstance(given, Mapping) or not isinstance(before, Mapping):
        return given
    said, shown = ({key: item for key, item in each.items() if item is not None} for each in (given, before))
    return before if said == shown else given


def _changed_limits(given: Any, shown: Mapping[str, Any] | None) -> dict[str, float] | Unclear:
    """Limits that are not as they were shown; one that is left out stays."""
    asked = read_limits(given)
    if isinstance(asked, Unclear):
        return asked
    known = {key: amount for key, amount in (shown or {}).items() if amount is not None}
    if strange := [key for key in asked if key not in known]:
        return unclear("limit_not_shown", keys=", ".join(strange), known=", ".join(known) or "—")
    return {key: amount for key, amount in asked.items() if amount != known[key]}
