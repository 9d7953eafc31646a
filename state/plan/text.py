"""A plan as the markdown a person reads, and that markdown, edited by hand, back as a plan.

Reading compares with the text that was shown: whatever the person did not touch keeps its original value.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

STEP_LINE = re.compile(r"^ {0,2}\d+[.)]\s+(?:\[(?P<id>[^\]\s]+)\]\s*)?(?P<text>.*)$")
FIELD_LINE = re.compile(r"^ {1,4}[-*]\s+(?P<name>done when|check|judge|executor|tools|after)\s*:\s*(?P<text>.*)$")
CHECK_LINE = re.compile(r"^(?P<tool>[\w.\-]+)\s+(?P<rest>\{.*)$", re.DOTALL)
COUNT_LINE = re.compile(r"^_\d+ steps?(?:, \w+)?_\s*$")
NOTE_LINE = re.compile(r"^\*\*(?:Schedule|Limits):\*\*")


def plan_text(plan: Mapping[str, Any], *, limits: Mapping[str, Any] | None = None) -> str:
    """The plan whole: steps, criteria, checks, executors, tools granted, dependencies, schedule, limits."""
    steps = plan.get("steps") or []
    head = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
    if plan.get("complexity"):
        head += f", {plan['complexity']}"
    lines = [f"# {_one_line(plan.get('title') or 'Plan')}", "", f"_{head}_", ""]
    for number, step in enumerate(steps, 1):
        lines += _step_lines(number, step)
    lines += ["", *_footer(plan, limits)]
    return "\n".join(lines).rstrip() + "\n"


def _step_lines(number: int, step: Mapping[str, Any]) -> Iterator[str]:
    name = f"[{step['id']}] " if step.get("id") else ""
    yield from _block(f"{number}. {name}", step.get("content"))
    for criterion in step.get("done_when") or []:
        entry = criterion if isinstance(criterion, Mapping) else {"text": criterion}
        yield from _block("   - done when: ", entry.get("text"))
        if entry.get("check"):
            yield f"   - check: {check_text(entry['check'])}"
        if entry.get("judge"):
            yield "   - judge: a second model decides"
    if step.get("executor"):
        yield f"   - executor: {step['executor']}"
    if step.get("tools"):
        yield f"   - tools: {', '.join(map(str, step['tools']))}"
    depends_on = step.get("depends_on")
    if depends_on is not None:
        yield f"   - after: {', '.join(map(str, depends_on)) or 'nothing'}"


def _block(lead: str, text: Any) -> Iterator[str]:
    """Text of one or several lines; those after the first are indented, so that none is taken for a field."""
    first, *rest = str(text if text is not None else "").strip().splitlines() or [""]
    yield f"{lead}{first}"
    for line in rest:
        yield f"     {line.strip()}" if line.strip() else ""


def check_text(check: Mapping[str, Any]) -> str:
    """A check on one line: `tool {arguments} expects <what>`, arguments and expectation as JSON."""
    arguments = json.dumps(check.get("arguments") or {}, ensure_ascii=False, default=str)
    expect = json.dumps(check.get("expect", "ok"), ensure_ascii=False, default=str)
    return f"{check.get('tool', '?')} {arguments} expects {expect}"


def _footer(plan: Mapping[str, Any], limits: Mapping[str, Any] | None) -> Iterator[str]:
    if plan.get("schedule"):
        yield f"**Schedule:** {schedule_text(plan['schedule'])}"
    known = {k: v for k, v in (limits or {}).items() if v is not None}
    if known:
        yield f"**Limits:** {', '.join(f'{key} {_one_line(amount)}' for key, amount in known.items())}"


def schedule_text(schedule: Mapping[str, Any]) -> str:
    """When a recurring plan runs, in words."""
    if schedule.get("every_minutes"):
        return f"every {schedule['every_minutes']} minutes"
    return f"every day at {schedule.get('at')} ({schedule.get('timezone')})"


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())


@dataclass
class _Written:
    """One step as it stands in the text; `fields` are (name, text) in their order."""

    id: str | None
    content: str
    fields: list[tuple[str, str]] = field(default_factory=list)


def read_plan_text(
    text: str, plan: Mapping[str, Any], *, limits: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """The plan that an edited `plan_text` says, or None where a line cannot be understood.

    A step without `[id]` is new. Schedule and limits must be as they were shown: no edit changes them.
    """
    before, after = _parse(plan_text(plan, limits=limits)), _parse(text)
    if before is None or after is None or not after[1] or after[2] != before[2]:
        return None
    originals = zip(before[1], plan.get("steps") or [], strict=False)
    known: dict[str | None, tuple[_Written, Any]] = {shown.id: (shown, step) for shown, step in originals}
    steps = [_read_step(written, *known.get(written.id if written.id else "", (None, {}))) for written in after[1]]
    if any(step is None for step in steps):
        return None
    title = plan.get("title") if after[0] in (None, before[0]) else after[0]
    return {**plan, "title": title, "steps": steps}


def _parse(text: str) -> tuple[str | None, list[_Written], set[str]] | None:
    """Title, steps, and the lines about schedule and limits; None when a line is none of these."""
    title: str | None = None
    steps: list[_Written] = []
    notes: set[str] = set()
    for line in text.replace("\t", "    ").splitlines():
        step, entry = STEP_LINE.match(line), FIELD_LINE.match(line)
        if not line.strip() or COUNT_LINE.match(line):
            continue
        if NOTE_LINE.match(line):
            notes.add(line.strip())
        elif line.startswith("# ") and not steps and title is None:
            title = line[2:].strip()
        elif step:
            steps.append(_Written(step["id"], step["text"].strip()))
        elif entry and steps:
            steps[-1].fields.append((entry["name"], entry["text"].strip()))
        elif steps and line.startswith("   "):
            _continue(steps[-1], line.strip())
        else:
            return None
    return title, steps, notes


def _continue(step: _Written, line: str) -> None:
    if step.fields:
        name, text = step.fields[-1]
        step.fields[-1] = (name, f"{text}\n{line}")
    else:
        step.content = f"{step.content}\n{line}"


def _read_step(written: _Written, before: _Written | None, step: Mapping[str, Any]) -> dict[str, Any] | None:
    """The step as written; None if a field cannot be read. `step` is the original, {} for a new one."""
    result = dict(step)
    if written.id:
        result["id"] = written.id
    if before is None or written.content != before.content:
        result["content"] = written.content
    if before is not None and written.fields == before.fields:
        return result
    criteria = _read_criteria(written, before, step.get("done_when") or [])
    if criteria is None:
        return None
    result["done_when"] = criteria
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
    names = [part.strip() for part in ",".join(values).split(",") if part.strip()]
    return [] if name == "after" and [n.casefold() for n in names] == ["nothing"] else names


def _criteria_lines(written: _Written) -> list[list[tuple[str, str]]]:
    """The lines of each criterion: its text, then its check and its judge."""
    groups: list[list[tuple[str, str]]] = []
    for name, text in written.fields:
        if name == "done when" or (name in ("check", "judge") and not groups):
            groups.append([(name, text)])
        elif name in ("check", "judge"):
            groups[-1].append((name, text))
    return groups


def _read_criteria(written: _Written, before: _Written | None, originals: list[Any]) -> list[Any] | None:
    """The criteria; one whose lines are untouched is the original itself."""
    shown = _criteria_lines(before) if before else []
    criteria: list[Any] = []
    for lines in _criteria_lines(written):
        criteria.append(originals[shown.index(lines)] if lines in shown else _read_criterion(lines))
    return None if None in criteria else criteria


def _read_criterion(lines: list[tuple[str, str]]) -> dict[str, Any] | None:
    values = dict(lines)
    if len(values) != len(lines) or "done when" not in values:
        return None
    criterion: dict[str, Any] = {"text": values["done when"], "check": None, "judge": "judge" in values}
    if "check" in values:
        criterion["check"] = _read_check(values["check"])
        if criterion["check"] is None:
            return None
    return criterion


def _read_check(text: str) -> dict[str, Any] | None:
    found = CHECK_LINE.match(text)
    if not found:
        return None
    decoder = json.JSONDecoder()
    try:
        arguments, end = decoder.raw_decode(found["rest"])
        word, _, expected = found["rest"][end:].strip().partition(" ")
        expect = json.loads(expected) if word == "expects" else None
    except (ValueError, RecursionError):
        return None
    return {"tool": found["tool"], "arguments": arguments, "expect": expect} if expect is not None else None
