"""Turn plans in the forms of other systems into ours: who works on a step, how often it runs, other names of its parts.

Only plans of models come here; what people write is read as it stands. A part that our form lacks goes into the text of
its step, or into `speak`; if it fits there neither, it is a problem for the planner. Left out are the model's thoughts,
and what says nothing about the work, such as the keys of the call by which another system makes plans.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from donewhen.state.pattern import pattern
from donewhen.state.plan.written import (
    CALLS_KEYS,
    DECISION_KEYS,
    STEP_SYNONYMS,
    SUBSTEP_KEYS,
    Plan,
    PlanStep,
    closest,
    is_call,
    unwrap_plan,
)

Json = dict[str, Any]
STEPS_KEYS_OF_MODELS = ("todo", "todos", "todo_list", "plan_items")
"""More names for the list of steps, beside `STEPS_KEYS`, which hold for people too."""
EXECUTOR_KEYS = ("agent", "agent_name", "assigned_to", "assignee", "assigned_agent", "worker", "delegate_to")
"""Names under which models say who works on a step."""
QUERY = "query"
"""The text of a task beside its title."""
TIMES = {"interval_minutes": "every_minutes", "daily_time": "at"}
"""Names of the times in a `schedule_config`."""
ONCE, RECURRING = "once", "recurring"
THOUGHTS = ("thought", "thoughts", "thinking", "reasoning", "rationale", "analysis", "explanation")
"""Keys with the model's thoughts, which, like `reason`, are not for people."""
PLACES = ("number", "index", "step_number", "order")
"""Keys of a step that number it."""
NOT_BEGUN = ("pending", "not_started", "todo", "open", "planned")
"""The statuses that a new plan may give its steps."""
OF_OTHER_CALLS = ("command", "plan_id", "step_statuses", "step_notes", "adequate")
"""Keys that belong to the call by which another system makes plans."""
MOST_CHARS = 400
"""The longest text of a key that is put into a step or into `speak`."""
_TAG = pattern(r"\A\s*\[([^\[\]\n]{1,60})\]\s*")
_ITEM = pattern(r"\A\s*(\d{1,3})[.)、]\s*(\S.*)")


def in_our_form(written: Mapping[str, Any] | list[Any], executors: Collection[str] = ()) -> tuple[Json, list[str]]:
    """Return a model's plan in our form, and problems with what cannot be put into that form."""
    source = dict(written) if isinstance(written, Mapping) else {"steps": written}
    listed = next((key for key in STEPS_KEYS_OF_MODELS if isinstance(source.get(key), list)), "")
    if listed and not isinstance(source.get("steps"), list):
        source["steps"] = source.pop(listed)
    plan = unwrap_plan(source)
    if not isinstance(plan.get("steps"), list):
        return plan, []
    names = {_folded(name): name for name in executors}
    problems: list[str] = []
    times: list[Json | None] = []
    own = [key for key in EXECUTOR_KEYS if isinstance(plan.get(key), str)]
    whole = {"executor": names.get(_folded(plan[own[0]]), plan[own[0]])} if own else {}
    steps = []
    for number, step in enumerate(plan["steps"], 1):
        read = _read_tag({"content": step} if isinstance(step, str) else step, names)
        if not isinstance(read, Mapping):
            steps.append(step)
            continue
        read, time, wrong = _read_step({**whole, **read}, names)
        plain = isinstance(step, str) and list(read) == ["content"]
        steps.append(read["content"] if plain else read)
        times.append(time)
        problems += [f"step {number}: {each}" for each in wrong]
    rest = {key: item for key, item in plan.items() if key not in ("steps", *own)}
    schedule, wrong = _read_times(rest, times)
    problems += wrong
    fields = {key: item for key, item in rest.items() if key in (*Plan.model_fields, *DECISION_KEYS)}
    texts = [str(fields["speak"])] if fields.get("speak") else []
    guidance = rest.pop("guidance_message", None)
    texts += [guidance] if isinstance(guidance, str) and guidance.strip() else []
    more, wrong = _texts_of_rest({key: item for key, item in rest.items() if key not in fields}, Plan.model_fields)
    problems += wrong
    fields |= {"speak": "\n".join([*texts, *more])} if texts or more else {}
    return {**fields, "steps": steps, **({"schedule": schedule} if schedule else {})}, problems


def _read_tag(step: Any, names: Mapping[str, str]) -> Any:
    """Return a step with the executor that its text begins with, as in `[coder] write it`; other tags stay."""
    if not isinstance(step, Mapping) or not isinstance(step.get("content"), str) or step.get("executor"):
        return step
    match = _TAG.match(step["content"])
    if not match or not (name := names.get(_folded(match[1]))) or not step["content"][match.end() :].strip():
        return step
    return {**step, "content": step["content"][match.end() :], "executor": name}


def _folded(name: str) -> str:
    return " ".join(name.replace("_", " ").replace("-", " ").casefold().split())


def _read_step(step: Mapping[str, Any], names: Mapping[str, str]) -> tuple[Json, Json | None, list[str]]:
    """Return a step in our form, its recurrence (None if it has none), and its problems."""
    read = dict(step)
    executors = [read.pop(key) for key in EXECUTOR_KEYS if key in read]
    if not read.get("executor") and (who := next((each for each in executors if isinstance(each, str) and each), "")):
        read["executor"] = names.get(_folded(who), who)
    recurs, config = read.pop("pattern", ONCE), read.pop("schedule_config", None)
    time = None if recurs == ONCE and not _times_in(config) else {"pattern": recurs, "schedule_config": config}
    if is_call(read):
        return read, time, []
    if read.get("type") == "reply" and isinstance(text := read.pop("text", None), str):
        read = {**{key: item for key, item in read.items() if key != "type"}, "content": f"Answer: {text}"}
    tools = [read.pop(key) for key in ("tool", "tool_name") if isinstance(read.get(key), str)]
    if tools and isinstance(listed := read.get("tools") or [], list):
        read["tools"] = [*listed, *tools]
    content = ("content", *STEP_SYNONYMS["content"])
    if QUERY in read and not any(read.get(key) for key in content):
        read["content"] = read.pop(QUERY)
    title = read.pop("title", None) or read.pop("name", None)
    key = next((key for key in content if isinstance(read.get(key), str)), "content")
    if isinstance(title, str) and title.strip():
        text = str(read.get(key) or "")
        read[key] = text if text.startswith(title) else f"{title}: {text}" if text else title
    synonyms = {word for words in STEP_SYNONYMS.values() for word in words}
    expected_keys = {*PlanStep.model_fields, *CALLS_KEYS, *SUBSTEP_KEYS, *synonyms}
    idle = [each for each in PLACES if isinstance(read.get(each), int)]
    idle += ["status"] if read.get("status") in NOT_BEGUN else []
    read = {each: item for each, item in read.items() if each not in idle}
    more, problems = _texts_of_rest(
        {each: read.pop(each) for each in [*read] if each not in expected_keys}, PlanStep.model_fields
    )
    if more and isinstance(read.get(key), str):
        read[key] = f"{read[key]} ({'; '.join(more)})"
    return read, time, problems


def _texts_of_rest(rest: Mapping[str, Any], fields: Collection[str]) -> tuple[list[str], list[str]]:
    """Return keys that our form lacks as texts `key: value`, and problems with those that cannot become a text."""
    texts, problems = list[str](), list[str]()
    for key, item in rest.items():
        if item in (None, "", [], {}, False) or key in (*THOUGHTS, *OF_OTHER_CALLS):
            continue
        text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, default=str)
        if close := closest(str(key), fields):
            problems.append(f"there is no key {str(key)[:40]!r}; did you mean {close}?")
        elif len(text) > MOST_CHARS:
            problems.append(f"there is no place for {str(key)[:40]!r}; say it in the content of the steps that need it")
        else:
            texts.append(f"{str(key)[:40].replace('_', ' ')}: {' '.join(text.split())}")
    return texts, problems


def _times_in(config: Any) -> Json:
    times = config if isinstance(config, Mapping) else {}
    return {TIMES.get(str(key), str(key)): item for key, item in times.items() if item not in (None, "")}


def _read_times(rest: Json, steps: Sequence[Json | None]) -> tuple[Json | None, list[str]]:
    """Take the recurrence out of a plan, and out of its steps; return it as a schedule, and what is wrong with it."""
    recurrence: Json = {key: rest.pop(key) for key in ("pattern", "schedule_config") if key in rest}
    if any(steps):
        if not all(step == steps[0] for step in steps):
            return None, ["a plan recurs as a whole: give it one `schedule`, or leave the recurrence out"]
        recurrence |= {key: item for key, item in (steps[0] or {}).items() if key not in recurrence}
    recurs, times = (
        recurrence.get("pattern") or (RECURRING if recurrence else ONCE),
        _times_in(recurrence.get("schedule_config")),
    )
    if rest.get("schedule") or (recurs == ONCE and not times):
        return None, []
    if recurs not in (ONCE, RECURRING):
        return None, [f"there is no pattern {str(recurs)[:40]!r}: give the plan a `schedule`, or leave it out"]
    if recurs == ONCE or not times:
        which = "runs once and has times" if times else "recurs without saying when"
        return None, [f"the plan {which}: give it a `schedule` with every_minutes, or at and timezone, or leave it out"]
    return times, []


def question_of_inadequate(value: Any) -> str:
    """Return the question of a planner that says that it knows too little (`adequate: false`); "" for any plan."""
    if not isinstance(value, Mapping) or value.get("adequate") is not False:
        return ""
    return str(value.get("guidance_message") or value.get("reason") or "").strip()


def lines_of_steps(text: str) -> Iterator[str]:
    """Yield the items of a text that is nothing but a numbered list, with at most one line before it."""
    lines = [line for line in text.splitlines() if line.strip()]
    items = [match for line in lines if (match := _ITEM.match(line))]
    has_first_line = bool(lines) and not _ITEM.match(lines[0])
    if len(items) < 2 or len(lines) - len(items) > has_first_line:
        return
    if [int(item[1]) for item in items] == list(range(1, len(items) + 1)):
        yield from (item[2].strip() for item in items)
