"""What a person changed in a plan, applied: the result is a whole plan, still to be validated.

Accepted: a whole plan (`{"steps": [...]}`, or its JSON text), and the edited text of `plan_text` in any language.
What the person did not touch of that text keeps its value. Sentences above or below the plan are feedback beside the
edit; a line that cannot be read is named, and nothing is guessed.
"""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from donewhen.state.language.texts import LANGUAGES, Unclear, catalogue, unclear
from donewhen.state.language.words import only_words, plain, refuses, substance, word
from donewhen.state.pattern import pattern
from donewhen.state.people.amounts import read_limits
from donewhen.state.people.shapes import decode_json
from donewhen.state.people.sheet import HEADING, STEP_LINE, PlanSheet, StepText, read_sheet
from donewhen.state.plan.schedule import DAYS

CRON = pattern(r"cron\s+([^(]+)\(")
CHECK_LINE = pattern(r"^(?P<tool>[\w.\-]+)\s+(?P<rest>\{.*)$", re.DOTALL)


@dataclass(frozen=True)
class PlanEdit:
    """An edit as it was read."""

    plan: dict[str, Any]
    """The edited plan, without its revision."""
    changed: bool
    """False where it equals the plan that was shown."""
    limits: dict[str, float] = field(default_factory=dict)
    """What each limit that was changed should be."""
    feedback: str = ""
    """What was written beside the plan."""


def edit_plan(
    fields: Mapping[str, Any], plan: Mapping[str, Any], *, shown: str, limits: Mapping[str, Any] | None = None
) -> PlanEdit | Unclear | None:
    """The plan with the edit in `fields`; the reason if it does not apply; None if it is text but no plan.

    `shown` is the text of the plan as the person saw it, with `limits`.
    """
    edit = decode_json(fields.get("plan"))
    if isinstance(edit, str):
        return _from_text(edit, plan, shown, limits)
    if isinstance(edit, Mapping):
        fields = edit
    elif edit is not None:
        return unclear("plan_type", type=type(edit).__name__)
    if not isinstance(fields.get("steps"), list):
        return unclear("plan_steps")
    asked = _changed_limits(fields.get("limits") or {}, limits)
    if isinstance(asked, Unclear):
        return asked
    steps = [{"content": step} if isinstance(step, str) else step for step in fields["steps"]]
    kept = {key: item for key, item in fields.items() if key != "limits"}
    return _edit({**plan, **kept, "steps": steps}, plan, asked)


def is_plan_text(text: str, plan: Mapping[str, Any]) -> bool:
    """Whether a text is this plan and not words about one of its steps: steps by their ids, all of them or a title."""
    lines, ids = text.splitlines(), {step.get("id") for step in plan.get("steps") or []}
    found = {step["id"] for line in lines if (step := STEP_LINE.match(line))} & ids
    return found == ids or bool(found and any(map(HEADING.match, lines)))


def _edit(edited: Mapping[str, Any], plan: Mapping[str, Any], limits: dict[str, float], feedback: str = "") -> PlanEdit:
    result = {key: copy.deepcopy(value) for key, value in edited.items() if key != "revision"}
    changed = result != {key: value for key, value in plan.items() if key != "revision"}
    return PlanEdit(result, changed, limits, feedback)


def _changed_limits(given: Any, shown: Mapping[str, Any] | None) -> dict[str, float] | Unclear:
    """Limits that are not as they were shown; one that is left out stays."""
    asked = read_limits(given)
    if isinstance(asked, Unclear):
        return asked
    known = {key: amount for key, amount in (shown or {}).items() if amount is not None}
    if strange := [key for key in asked if key not in known]:
        return unclear("limit_not_shown", keys=", ".join(strange), known=", ".join(known) or "—")
    return {key: amount for key, amount in asked.items() if amount != known[key]}


def _from_text(
    text: str, plan: Mapping[str, Any], shown_text: str, limits: Mapping[str, Any] | None
) -> PlanEdit | Unclear | None:
    sheet, shown = read_sheet(text), read_sheet(shown_text)
    if not sheet.steps:
        return None
    steps = _read_steps(sheet, shown, plan)
    goal = _read_criteria(sheet.goal, shown.goal, plan.get("done_when") or [], sheet.problems)
    schedule = _read_schedule(sheet, shown, plan.get("schedule"))
    asked = _read_limits_line(sheet, limits)
    feedback = _beside(sheet, {_bare(line) for line in shown_text.splitlines()}, {step.id for step in shown.steps})
    if sheet.problems:
        return unclear("edit", reasons=sheet.problems[:5])
    title = plan.get("title") if sheet.title in (None, shown.title) else sheet.title
    edited = {**plan, "title": title, "done_when": goal, "steps": steps, "schedule": schedule}
    return _edit(edited, plan, asked, feedback)


def _read_steps(sheet: PlanSheet, shown: PlanSheet, plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The steps as written; one without an id that reads as one that was shown is that one."""
    pairs = list(zip(shown.steps, plan.get("steps") or [], strict=False))
    written = {step.id for step in sheet.steps}
    by_id = {step.id: (step, original) for step, original in pairs}
    by_content = {step.content: (step, original) for step, original in pairs if step.id not in written}
    steps = []
    for step in sheet.steps:
        found = by_id.get(step.id) if step.id else by_content.pop(step.content, None)
        before, original = found or (None, {})
        steps.append(_read_step(step, before, original, sheet.problems))
    return steps


def _read_limits_line(sheet: PlanSheet, limits: Mapping[str, Any] | None) -> dict[str, float]:
    """Limits as their line says, or one beside the plan that says nothing but limits; without such a line, none."""
    number, said = sheet.notes.get("limits", (0, ""))
    if not said:
        alone = [(at, line) for at, line in sheet.beside if isinstance(read_limits(line), dict)]
        sheet.beside = [each for each in sheet.beside if each not in alone]
        number, said = (alone[0][0], ", ".join(line for _, line in alone)) if alone else (0, "")
    asked = _changed_limits(said, limits)
    if isinstance(asked, Unclear):
        sheet.problems.append(unclear("limits_line", line=number, reasons=[asked]))
        return {}
    return asked


def _bare(line: str) -> str:
    """A line's words without its marks."""
    return " ".join(re.sub(r"[*_#>`\\]|^\s*[-•]", " ", line).split())


def _beside(sheet: PlanSheet, shown: set[str], ids: set[str | None]) -> str:
    """What stands above and below the plan; words that only agree or thank say nothing beside the edit.

    Lines of the plan that lost their marks are no feedback; one that names a step's id was meant as that step.
    """
    lines = [(number, line) for number, line in sheet.beside if _bare(line) not in shown]
    for number, line in lines:
        if any(f"[{id}]" in line for id in ids):
            sheet.problems.append(unclear("line", line, line=number))
    text = "\n".join(line for _, line in lines)
    courtesy = word(text) == "yes" or (only_words(text) and not refuses(text) and word(text) is None)
    if lines and not courtesy and not substance(text):
        sheet.problems.append(unclear("beside", text, line=lines[0][0]))
    return "" if courtesy else text


def _read_schedule(sheet: PlanSheet, shown: PlanSheet, schedule: Any) -> Any:
    """The schedule as its line says; without the line, none. What becomes of missed runs stands in no line."""
    number, said = sheet.notes.get("schedule", (0, ""))
    if said == shown.notes.get("schedule", (0, ""))[1]:
        return schedule
    kept = {"missed": schedule["missed"]} if (schedule or {}).get("missed") else {}
    clock, zone, minutes = re.search(r"\d{1,2}:\d{2}", said), re.search(r"\(([^)]+)\)", said), re.search(r"\d+", said)
    if (cron := CRON.search(said)) and zone:
        return {"cron": cron[1].strip(), "timezone": zone[1], **kept}
    if clock and zone:
        days = _read_days(said[: said.index("(")])
        return {"at": clock[0], "timezone": zone[1], **({"weekdays": days} if days else {}), **kept}
    if minutes and not clock:
        return {"every_minutes": int(minutes[0]), **kept}
    if said:
        sheet.problems.append(unclear("schedule_line", said, line=number))
    return None


def _read_days(text: str) -> list[str] | None:
    """The days of the week that a text names, in whatever language, as days and ranges; None for none."""
    named = {name.rstrip("."): day for language in LANGUAGES for day, name in _days_in(language)}
    named |= {day: day for day in DAYS}
    english = re.sub(r"\w+", lambda word: named.get(word[0], named.get(word[0][:3], "")), text.casefold())
    found = re.findall(r"([a-z]{3})(\s*[-–—]\s*[a-z]{3})?", english)
    days = [re.sub(r"\W+", "-", first + rest) for first, rest in found]
    return days or (["weekdays"] if "weekday" in text.casefold() else None)


def _days_in(language: str) -> Iterator[tuple[str, str]]:
    return zip(DAYS, catalogue(language)["plan"]["days"].casefold().split("|"), strict=True)


def _read_step(
    written: StepText, before: StepText | None, step: Mapping[str, Any], problems: list[Unclear]
) -> dict[str, Any]:
    """The step as written. `before` and `step` are the original as shown and as it is; none for a new one."""
    result = dict(step)
    if written.id:
        result["id"] = written.id
    if before is None or written.content != before.content:
        result["content"] = written.content
        result.pop("calls", None)  # the words say now what is to be done
    result["done_when"] = _read_criteria(written, before, step.get("done_when") or [], problems)
    for name, key in (("executor", "executor"), ("tools", "tools"), ("after", "depends_on")):
        values = [text for field_name, text in written.fields if field_name == name]
        if before is None or values != [text for field_name, text in before.fields if field_name == name]:
            result[key] = _read_field(name, values)
    return result


def _read_field(name: str, values: list[str]) -> Any:
    if not values:
        return None
    if name == "executor":
        return values[-1] or None
    names = [re.sub(r"\s*[(（][^)）]*[)）]", "", part).strip() for part in re.split(r"[,，、]", ",".join(values))]
    nothing = {plain(catalogue(language)["plan"]["nothing"]) for language in LANGUAGES}
    return [] if name == "after" and {plain(each) for each in names} <= nothing else [each for each in names if each]


def _criteria_lines(written: StepText) -> list[list[tuple[str, str]]]:
    """The lines of each criterion: its text, then its check and its judge."""
    groups: list[list[tuple[str, str]]] = []
    for name, text in written.fields:
        if name == "done_when" or (name in ("check", "judge") and not groups):
            groups.append([(name, text)])
        elif name in ("check", "judge"):
            groups[-1].append((name, text))
    return groups


def _read_criteria(
    written: StepText, before: StepText | None, originals: list[Any], problems: list[Unclear]
) -> list[Any]:
    """The criteria; one whose lines are untouched is the original itself."""
    shown = _criteria_lines(before) if before else []
    criteria: list[Any] = []
    for lines in _criteria_lines(written):
        criterion = originals[shown.index(lines)] if lines in shown else _read_criterion(lines)
        if criterion is None:
            wrong = next((line for line in lines if line[0] == "check"), lines[0])
            problems.append(unclear("check_line", wrong[1], line=written.lines[written.fields.index(wrong)]))
        criteria.append(criterion)
    return criteria


def _read_criterion(lines: list[tuple[str, str]]) -> dict[str, Any] | None:
    values = dict(lines)
    if len(values) != len(lines) or "done_when" not in values:
        return None
    check = _read_check(values["check"]) if "check" in values else None
    fits = check is not None or "check" not in values
    return {"text": values["done_when"], "check": check, "judge": "judge" in values} if fits else None


def _read_check(text: str) -> dict[str, Any] | None:
    found = CHECK_LINE.match(text)
    if not found:
        return None
    decoder = json.JSONDecoder()
    try:
        arguments, end = decoder.raw_decode(found["rest"])
        expects, _, expected = found["rest"][end:].strip().partition(" ")
        expect = json.loads(expected) if expects == "expects" else None
    except (ValueError, RecursionError):
        return None
    return {"tool": found["tool"], "arguments": arguments, "expect": expect} if expect is not None else None
