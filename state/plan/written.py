"""A plan as models and people write it, read as what it means: plain fields of a plan, still to be validated.

Nothing is dropped that was meant: what a plan has no place for is a problem, or named by `ignored`.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from donewhen.state.pattern import pattern

TITLE_CHARS = 200
CALLED = ("tool", "name", "tool_name", "function", "action")
GIVEN = ("arguments", "args", "parameters", "input", "action_input")
NESTED = ("steps", "substeps", "sub_steps", "subtasks", "children", "plan_steps")
STEPS = ("steps", "plan_steps", "plan", "tasks")
"""What the list of steps is called, the first that is one."""
CALLS = ("calls", "tool_calls")
MEANT = {
    "content": ("description", "task", "instruction", "step"),
    "done_when": ("criteria", "success_criteria", "acceptance_criteria"),
}
"""Other words for the keys of a step."""
OF_THE_REPLY = frozenset(
    {"action", "reason", "goal_check", "tool_call", "plan_steps", "plan", "tasks", "revision", "language"}
)
"""Keys of the decision that carried the plan."""
# Escape sequences of terminals, control characters, and what makes text run in another direction than it shows.
_UNSEEN = pattern(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plan_fields(
    value: Any, known: Collection[str], of_step: Collection[str], used: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
    """The fields of a plan, and what in them cannot be meant. `known` and `of_step` are the keys there are.

    `used` are ids of other steps. Ids come back as texts, assigned where there were none.
    """
    value = visible(unwrapped(value))
    fields = {key: item for key, item in value.items() if key in known and item is not None}
    schedule = fields.get("schedule")
    if isinstance(schedule, Mapping) and all(
        item in (None, "", []) for key, item in schedule.items() if key != "missed"
    ):
        del fields["schedule"]  # models that must fill every field of a schema write a schedule of nulls
    if not isinstance(steps := fields.get("steps"), list):
        return fields, []
    problems = [f"step {number}: {said}" for number, step in enumerate(steps, 1) for said in _misnamed(step, of_step)]
    fields["steps"] = _numbered([_step_fields(step, of_step) for step in steps], used)
    fields["title"] = _title(fields)
    return fields, problems


def ignored(value: Any, known: Collection[str], of_step: Collection[str]) -> list[str]:
    """Keys of a plan and of its steps that were left out, because a plan has no place for them; at most ten."""
    if not isinstance(value, Mapping):
        return []
    value = unwrapped(value)
    steps = value.get("steps")
    found = [str(key) for key in value if key not in known and key not in OF_THE_REPLY]
    for step in steps if isinstance(steps, list) else ():
        extra: Mapping[str, Any] = {} if not isinstance(step, Mapping) or _is_call(step) else step
        found += [str(key) for key in extra if key not in of_step and not _known(str(key), extra)]
    return [key[:40] for key in dict.fromkeys(found)][:10]


def unwrapped(value: Mapping[str, Any] | list[Any]) -> dict[str, Any]:
    """The plan itself: its steps under `steps`, whatever they were called or wrapped in."""
    if isinstance(value, list):
        return {"steps": value}
    whole = dict(value)
    if isinstance(inner := whole.get("plan"), Mapping) and not isinstance(whole.get("steps"), list):
        whole = {**{key: item for key, item in whole.items() if key != "plan"}, **inner}
    listed = next((whole[key] for key in STEPS if isinstance(whole.get(key), list)), whole.get("steps"))
    return {**whole, "steps": listed}


def _known(key: str, step: Mapping[str, Any]) -> bool:
    """Whether a key is another word for one that the step lacks, or holds its first calls."""
    return key in CALLS or any(key in words and right not in step for right, words in MEANT.items())


def visible(value: Any) -> Any:
    """The value, its texts without what people cannot see in them."""
    if isinstance(value, str):
        return _UNSEEN.sub("", value)
    if isinstance(value, Mapping):
        return {visible(key): visible(item) for key, item in value.items()}
    return [visible(item) for item in value] if isinstance(value, list) else value


def _misnamed(step: Any, of_step: Collection[str]) -> Iterator[str]:
    """Keys that were probably meant as others; steps within a step. Other keys (a status, a comment) mean nothing."""
    if not isinstance(step, Mapping) or _is_call(step):
        return
    strange = [str(key) for key in step if key not in of_step and not _known(str(key), step)]
    for key in strange[:10]:
        close = get_close_matches(key[:40].lower(), [name for name in of_step if name not in step], n=1, cutoff=0.62)
        if key in NESTED and step[key]:
            yield f"holds steps of its own under {key!r}; a plan is flat: write them as steps, joined by depends_on"
        elif close:
            yield f"there is no key {key[:40]!r}; did you mean {close[0]}?"


def _is_call(step: Mapping[str, Any]) -> bool:
    """A concrete call that stands for a step."""
    named = any(isinstance(step.get(key), str) for key in CALLED)
    return named and any(isinstance(step.get(key), Mapping) for key in GIVEN) and "done_when" not in step


def _step_fields(step: Any, of_step: Collection[str]) -> Any:
    if isinstance(step, str):
        return {"content": step}
    if not isinstance(step, Mapping):
        return step
    fields = {key: item for key, item in step.items() if key in of_step and key not in CALLS}
    for right, words in MEANT.items():
        if found := next((step[word] for word in words if step.get(word)), None):
            fields.setdefault(right, found)
    for key in ("tools", "replaces"):
        if isinstance(fields.get(key), str):
            fields[key] = [fields[key]]
    calls = [_call(step)] if _is_call(step) else [_call(call) for call in _calls(step)]
    if not calls:
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


def _calls(step: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The concrete calls that a step lists; [] unless all of them are."""
    listed: list[Any] = next((step[key] for key in CALLS if isinstance(step.get(key), list)), [])
    return listed if all(isinstance(call, Mapping) and _is_call(call) for call in listed) else []


def _call(written: Mapping[str, Any]) -> dict[str, Any]:
    name = next(written[key] for key in CALLED if isinstance(written.get(key), str))
    return {"tool": name, "arguments": next(written[key] for key in GIVEN if isinstance(written.get(key), Mapping))}


def _numbered(steps: list[Any], used: Collection[str]) -> list[Any]:
    """The steps with ids, and with ids where they depend on numbers: those of the steps, else their places."""
    objects = [step for step in steps if isinstance(step, dict)]
    by_place = not any(step.get("id") for step in objects)
    for step in objects:
        step["id"] = _named(step["id"]) if step.get("id") else None
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
                places.get(_named(need), _named(need)) if _named(need) != need else need for need in needs
            ]
    return steps


def _named(id: Any) -> Any:
    """A number as an id."""
    plain = isinstance(id, int) and not isinstance(id, bool)
    return f"s{id}" if plain or (isinstance(id, str) and id.isascii() and id.isdecimal()) else id


def _title(fields: Mapping[str, Any]) -> Any:
    """A plan without a title is called like its first step."""
    title, first = fields.get("title"), next(iter(fields["steps"]), None)
    if (title is None or title == "") and isinstance(first, Mapping) and isinstance(first.get("content"), str):
        return first["content"].strip().partition("\n")[0][:80]
    return title[:TITLE_CHARS] if isinstance(title, str) else title
