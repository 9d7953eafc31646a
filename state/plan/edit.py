"""What a person changed in a plan, applied: the result is a whole plan, still to be validated.

Accepted: a whole plan (`{"steps": [...]}`, or its JSON text); the edited text of `plan_text`; a JSON Patch
on the plan (`[{"op", "path", "value"}]`); and changes by id, `{"steps": {"s2": {"content": "…"}},
"remove": ["s3"], "add": [{…}], "title": "…"}`: a string for a step is its new content, null removes it.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonpatch

from donewhen.state.people.reply import decode_json
from donewhen.state.plan.text import plan_text, read_plan_text

MOST_COPIES = 10
"""Of one JSON Patch; each may double the plan."""


@dataclass(frozen=True)
class PlanEdit:
    """The edited plan without its revision; `changed` is False when it equals the plan that was shown."""

    plan: dict[str, Any]
    changed: bool


def edit_plan(
    fields: Mapping[str, Any], plan: Mapping[str, Any], *, limits: Mapping[str, Any] | None = None
) -> PlanEdit | str | None:
    """The plan with the edit in `fields`; a sentence if it does not apply; None if it is text but no plan."""
    edit = decode_json(fields.get("plan", fields.get("patch")))
    if isinstance(edit, str):
        return _from_text(edit, plan, limits)
    if isinstance(edit, list):
        return _patched(edit, plan)
    if isinstance(edit, Mapping):
        fields = edit
    elif edit is not None:
        return f"a plan cannot be a {type(edit).__name__}"
    if not isinstance(fields.get("steps"), list):
        return _by_id(fields, plan)
    revision = fields.get("revision")
    if revision is not None and plan.get("revision") not in (None, revision):
        return "stale: the edited plan is of another revision than the one that waits"
    steps = [{"content": step} if isinstance(step, str) else step for step in fields["steps"]]
    return _edit({**plan, **fields, "steps": steps}, plan)


def _edit(edited: Mapping[str, Any], plan: Mapping[str, Any]) -> PlanEdit:
    result = {key: copy.deepcopy(value) for key, value in edited.items() if key != "revision"}
    return PlanEdit(result, result != {key: value for key, value in plan.items() if key != "revision"})


def _from_text(text: str, plan: Mapping[str, Any], limits: Mapping[str, Any] | None) -> PlanEdit | str | None:
    if not text.strip():
        return "the edited plan is empty"
    if text.split() == plan_text(plan, limits=limits).split():
        return _edit(plan, plan)
    edited = read_plan_text(text, plan, limits=limits)
    return None if edited is None else _edit(edited, plan)


def _patched(patch: list[Any], plan: Mapping[str, Any]) -> PlanEdit | str:
    if sum(isinstance(each, Mapping) and each.get("op") == "copy" for each in patch) > MOST_COPIES:
        return f"the JSON Patch copies more than {MOST_COPIES} times"
    try:
        edited = jsonpatch.apply_patch(dict(plan), patch)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        return f"the JSON Patch does not apply: {error}"
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError):
        return "the JSON Patch does not apply: it is malformed"
    if not isinstance(edited, dict) or not isinstance(edited.get("steps"), list):
        return "the JSON Patch leaves no plan with steps"
    edit = _edit(edited, plan)
    return edit if edit.changed else "the JSON Patch changes nothing"


def _by_id(fields: Mapping[str, Any], plan: Mapping[str, Any]) -> PlanEdit | str:
    changes, removed, added = fields.get("steps") or {}, fields.get("remove") or [], fields.get("add") or []
    removed = [removed] if isinstance(removed, str) else removed
    added = [added] if isinstance(added, str | Mapping) else added
    if not isinstance(changes, Mapping) or not isinstance(removed, list) or not isinstance(added, list):
        return "an edited plan needs `steps`: a list of steps, or the changed ones by id"
    known = [str(step.get("id")) for step in plan.get("steps") or []]
    unknown = [str(name) for name in [*changes, *removed] if str(name) not in known]
    if unknown:
        return f"the plan has no step {', '.join(unknown)}; it has {', '.join(known)}"
    steps = []
    for step in plan.get("steps") or []:
        change = changes.get(step.get("id"), {})
        if change is None or step.get("id") in removed:
            continue
        if not isinstance(change, str | Mapping):
            return f"the change of step {step.get('id')} must be text or an object"
        steps.append({**step, **({"content": change} if isinstance(change, str) else change)})
    steps += [{"content": step} if isinstance(step, str) else step for step in added]
    title = {"title": fields["title"]} if isinstance(fields.get("title"), str) else {}
    edit = _edit({**plan, **title, "steps": steps}, plan)
    return edit if edit.changed else "the edit changes nothing"
