"""A plan as a person edits it: what the edit names changes, and a key that it leaves out stays as it was shown (C14).

Lists are written whole: a step or criterion that is not listed is taken out. An edit takes a key away by `none`, by no
value, or by an empty list. What makes no sense is an error. Plans of models are read with more tolerance, in `written`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from donewhen.state.criteria import is_blank
from donewhen.state.plan.schedule import says_when, with_times
from donewhen.state.plan.written import (
    ARGUMENT_KEYS,
    CALLS_KEYS,
    TOOL_KEYS,
    as_id,
    is_call,
    name_calls,
    planned_calls,
    unknown_fields,
    with_own_names,
)

MOST_PROBLEMS = 5
NONE = "none"
"""The word that takes a key away, as a key without a value does."""
LISTS = ("done_when", "tools", "depends_on", "calls")
REFERENCE = ("id", "content")
"""The keys that refer to a shown step without changing it."""
STEP_DEFAULTS: dict[str, Any] = {"done_when": [], "depends_on": None, "executor": None, "tools": None}
CRITERION_DEFAULTS: dict[str, Any] = {"check": None, "judge": False}


class EditError(ValueError):
    """An edit that makes no sense: for each such part a path, such as `steps[0].calls`, and what is wrong there."""

    def __init__(self, *problems: tuple[str, str]) -> None:
        super().__init__(problems)
        self.problems = problems


def apply_edit(edit: Mapping[str, Any], plan: Mapping[str, Any], *, as_data: bool) -> dict[str, Any]:
    """Return the whole plan that was shown with an edit applied. Raises EditError.

    Lists are written whole: a step or criterion that is not listed is taken out. `as_data` says that the plan was shown
    as data, with the calls of its steps.
    """
    if strange := list(islice(unknown_fields(edit, plan), MOST_PROBLEMS)):
        raise EditError(*strange)
    after = {**plan, **edit, "title": edit.get("title") or plan.get("title")}
    if "done_when" in edit:
        after["done_when"] = _edit_criteria(edit["done_when"], plan.get("done_when") or ())
    if "schedule" in edit:
        after["schedule"] = _edit_schedule(edit["schedule"], plan.get("schedule"))
    if "steps" in edit:
        after["steps"], stays = _edit_steps(edit["steps"], plan.get("steps") or (), as_data=as_data)
        if plan.get("schedule") and "schedule" not in edit:
            stays.append(("", _say_what_stays("the edit", "schedule")))
        if stays and after == plan:  # perhaps what it leaves out, and nothing else, was meant to be taken away
            raise EditError(stays[0])
    return after


# --- schedule


def _edit_schedule(edit: Any, shown: Mapping[str, Any] | None) -> Any:
    if edit is None or _is_none(edit):
        return None
    if not isinstance(edit, Mapping):
        raise EditError(("schedule", f"schedule: {edit!r:.60} is no schedule; write its fields, or `none`"))
    before = {key: item for key, item in (shown or {}).items() if item is not None}
    fields = {key: None if _is_none(item) or item in ("", []) else item for key, item in edit.items()}
    merged = with_times(before, fields)
    after = {key: item for key, item in merged.items() if item is not None}
    if not says_when(after) or (after == before and all(item is None for item in fields.values())):
        hint = "leave it out to keep what was shown, or write `schedule: none` to take it away"
        raise EditError(("schedule", f"schedule: gives no time (every_minutes, at or cron): {hint}"))
    return shown if after == before else after


# --- criteria


def _edit_criteria(edit: Any, shown: Sequence[Any]) -> Any:
    """Return criteria as written; one with the words of a shown criterion keeps the keys that it leaves out."""
    if edit is None or _is_none(edit):
        return []
    old = {each["text"]: each for each in shown if isinstance(each, Mapping) and isinstance(each.get("text"), str)}
    items = [item for item in (edit if isinstance(edit, list) else [edit]) if not is_blank(item)]
    return [_edit_criterion({"text": item} if isinstance(item, str) else item, old) for item in items]


def _edit_criterion(edit: Any, old: Mapping[str, Mapping[str, Any]]) -> Any:
    if not isinstance(edit, Mapping):
        return edit
    text = edit.get("text")
    before = old.get(text.strip(), {}) if isinstance(text, str) else {}
    fields = dict(edit)
    for key, default in CRITERION_DEFAULTS.items():
        if key in edit and (edit[key] is None or _is_none(edit[key])):
            fields[key] = default
    check, shown = fields.get("check"), before.get("check")
    if isinstance(check, Mapping) and shown and check.get("tool", shown["tool"]) == shown["tool"]:
        fields["check"] = {**shown, **check}
    return {**CRITERION_DEFAULTS, **before, **fields}


# --- steps


def _edit_steps(
    edits: Sequence[Any], shown: Sequence[Mapping[str, Any]], *, as_data: bool
) -> tuple[list[Any], list[tuple[str, str]]]:
    """Return the steps; and for each that is as it was shown, its path and which tools or calls stay though left out.

    Raises EditError if an edit leaves out calls of a step but writes more of it than REFERENCE.
    """
    old = {step["id"]: step for step in shown}
    steps, stays = list[Any](), list[tuple[str, str]]()
    for place, step in enumerate(_with_ids_of_shown(edits, shown)):
        path = f"steps[{place}]"
        if not isinstance(step, Mapping):
            steps.append(step)
        elif before := old.get(step["id"]) if isinstance(step.get("id"), str) else None:
            steps.append(_edit_step(step, before, path))
            if steps[-1] == before and (note := _note_left_out(step, before, as_data=as_data)):
                stays.append((path, note))
                if before.get("calls") and len(step) > len(REFERENCE):
                    raise EditError(stays[-1])
        else:
            steps.append(_new_step(step, path))
    return steps, stays


def _with_ids_of_shown(edits: Sequence[Any], shown: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """Yield the steps with our own names of keys.

    A step without an id gets that of the shown step with the same words, if no other step names it.
    """
    steps = [{"content": step} if isinstance(step, str) else step for step in edits]
    steps = [with_own_names(step) if isinstance(step, Mapping) else step for step in steps]
    named = [as_id(step.get("id")) for step in steps if isinstance(step, Mapping)]
    free = {step["content"]: step["id"] for step in shown if step["id"] not in named}
    for step in steps:
        if isinstance(step, Mapping):
            words = step.get("content")
            id = as_id(step.get("id")) or (free.pop(words, None) if isinstance(words, str) else None)
            yield {**step, "id": id} if id else {key: item for key, item in step.items() if key != "id"}
        else:
            yield step


def _new_step(step: Mapping[str, Any], path: str) -> dict[str, Any]:
    fields = _read_step(step, (), path)
    return {**STEP_DEFAULTS, **fields, "done_when": _edit_criteria(fields.get("done_when"), ())}


def _edit_step(step: Mapping[str, Any], before: Mapping[str, Any], path: str) -> dict[str, Any]:
    old_calls = list(before.get("calls") or ())
    fields = _read_step(step, old_calls, path)
    if "done_when" in fields:
        fields["done_when"] = _edit_criteria(fields["done_when"], before.get("done_when") or ())
    after = {**before, **fields}
    calls = _calls_that_stay(after, before, fields, path)
    if calls != old_calls:  # which criterion other calls prove is decided by whoever works on the step
        after["done_when"] = [
            {key: item for key, item in each.items() if key != "call"} if isinstance(each, Mapping) else each
            for each in after["done_when"]
        ]
        after.pop("message", None)
    if calls != old_calls and after["content"] == before["content"]:
        after["content"] = name_calls(before["content"], old_calls, calls)
        if old_calls and not calls and after["content"] == before["content"]:
            raise EditError(
                (path, f"step {before['id']} is nothing but {_calls_of(old_calls)}: take the whole step out")
            )
    after.pop("calls", None)
    return {**after, "calls": calls} if calls else after


def _note_left_out(step: Mapping[str, Any], before: Mapping[str, Any], *, as_data: bool) -> str:
    """Return a note on the tools or calls that stay because they are left out; "" if there are none."""
    for key in ("tools", "calls") if as_data else ("tools",):
        if before.get(key) and key not in step:
            return _say_what_stays(f"step {before['id']}", key)
    return ""


def _say_what_stays(who: str, key: str) -> str:
    return f"{who} leaves out `{key}`, and what is left out stays: to take it away write `{key}: none`"


def _read_step(step: Mapping[str, Any], old_calls: Sequence[Mapping[str, Any]], path: str) -> dict[str, Any]:
    """Return a step with `none` read as no value, and its planned calls under `calls`.

    `old_calls` are its calls as they were shown; they keep the arguments that the edit leaves out.
    """
    fields = {key: ([] if key in LISTS else None) if key != "content" and _is_none(item) else item
            for key, item in step.items()}  # fmt: skip
    if is_call(fields):
        own = {key: item for key, item in fields.items() if key not in (*TOOL_KEYS, *ARGUMENT_KEYS)}
        return {**own, "calls": planned_calls(fields)}
    if not (keys := [key for key in CALLS_KEYS if key in fields]):
        return fields
    written = fields[keys[0]] or []
    if isinstance(written, list) and len(written) == len(old_calls):
        written = [_with_arguments(call, old) for call, old in zip(written, old_calls, strict=True)]
    calls = planned_calls({"calls": written})
    if not isinstance(written, list) or len(calls) != len(written):
        name = step.get("id") or "without an id"
        raise EditError((f"{path}.{keys[0]}", f"step {name}, calls: each is an object of `tool` and `arguments`"))
    return {**{key: item for key, item in fields.items() if key not in CALLS_KEYS}, "calls": calls}


def _with_arguments(call: Any, old: Mapping[str, Any]) -> Any:
    if not isinstance(call, Mapping) or call.get("tool") != old["tool"]:
        return call
    arguments = call.get("arguments", {})
    return {**call, "arguments": {**old["arguments"], **arguments}} if isinstance(arguments, Mapping) else call


def _calls_that_stay(
    after: Mapping[str, Any], before: Mapping[str, Any], fields: Mapping[str, Any], path: str
) -> list[Mapping[str, Any]]:
    """Return the planned calls of an edited step; old ones go with its old words, or with their tools in `fields`."""
    old_calls, calls = list(before.get("calls") or ()), list(after.get("calls") or ())
    if calls == old_calls and after["content"] != before["content"]:
        return []
    if "tools" not in fields:
        return calls
    tools = [fields["tools"]] if isinstance(fields["tools"], str) else fields["tools"] or []
    removed_tools = [call["tool"] for call in old_calls if call["tool"] not in tools]
    if calls != old_calls and (both := [call for call in calls if call["tool"] in removed_tools]):
        which = f"step {before['id']} has {_calls_of(both)}, and its `tools` do not list it"
        raise EditError((f"{path}.tools", f"{which}: write both or neither"))
    return [call for call in calls if call["tool"] not in removed_tools]


def _calls_of(calls: Sequence[Mapping[str, Any]]) -> str:
    return f"a call of {', '.join(dict.fromkeys(call['tool'] for call in calls))}"


def _is_none(value: Any) -> bool:
    return isinstance(value, str) and value.strip().casefold() == NONE
