"""A plan as markdown for people."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from donewhen.state.language.texts import catalogue
from donewhen.state.plan.schedule import DAYS
from donewhen.state.records import Pause


def plan_text(pending: Pause) -> str:
    """Return the full pending plan: criteria, steps, executors, granted tools, dependencies, schedule, limits.

    Tools with effects are marked with what the plan's approval covers.
    """
    plan, writes = pending.get("plan") or {}, pending.get("writes") or ()
    say = catalogue(str(pending.get("language") or "en"))["plan"]
    steps = plan.get("steps") or []
    head = say["one_step"] if len(steps) == 1 else say["steps"].format(number=len(steps))
    if plan.get("complexity"):
        head += f", {say.get(plan['complexity'], plan['complexity'])}"
    lines = [f"# {_one_line(plan.get('title') or say['title'])}", "", f"_{head}_", ""]
    if goal := [*_criteria_lines(plan.get("done_when") or [], "- ", say)]:
        lines += [*goal, ""]
    for number, step in enumerate(steps, 1):
        lines += _step_lines(number, step, say, writes)
    lines += ["", *_changes_line(pending, say)]
    if plan.get("schedule"):
        lines.append(f"**{say['schedule']}:** {schedule_text(plan['schedule'], say)}")
    if known := {key: amount for key, amount in (pending.get("limits") or {}).items() if amount is not None}:
        lines.append(f"**{say['limits']}:** {', '.join(f'{key} {_one_line(amount)}' for key, amount in known.items())}")
    return "\n".join([*lines, *schedule_lines(pending)]).rstrip() + "\n"


def _changes_line(pending: Pause, say: Mapping[str, str]) -> Iterator[str]:
    """Yield by which tools the plan may change something; a schedule says it with what its approval covers."""
    plan = pending.get("plan") or {}
    known = [f"{name} ({say['known_targets']})" for name in pending.get("writes_known") or ()]
    free = [f"{name} ({say['any_arguments']})" for name in pending.get("writes") or ()]
    alone = any(step.get("executor") for step in plan.get("steps") or ())  # its own tools are not listed
    if not plan.get("schedule") and (known or free or not alone):
        yield f"**{say['changes']}:** {', '.join([*known, *free]) or say['nothing']}"


def _step_lines(number: int, step: Mapping[str, Any], say: Mapping[str, str], writes: Collection[str]) -> Iterator[str]:
    name = f"[{step['id']}] " if step.get("id") else ""
    yield from _block(f"{number}. {name}", step.get("content"))
    yield from _criteria_lines(step.get("done_when") or [], "   - ", say)
    if step.get("executor"):
        yield f"   - {say['executor']}: {step['executor']}"
    if step.get("tools"):
        names = (f"{name} ({say['any_arguments']})" if name in writes else str(name) for name in step["tools"])
        yield f"   - {say['tools']}: {', '.join(names)}"
    depends_on = step.get("depends_on")
    if depends_on is not None:
        yield f"   - {say['after']}: {', '.join(map(str, depends_on)) or say['nothing']}"


def _criteria_lines(criteria: Iterable[Any], lead: str, say: Mapping[str, str]) -> Iterator[str]:
    for criterion in criteria:
        entry = criterion if isinstance(criterion, Mapping) else {"text": criterion}
        yield from _block(f"{lead}{say['done_when']}: ", entry.get("text"))
        if entry.get("check"):
            yield f"{lead}{say['check']}: {check_text(entry['check'])}"
        if entry.get("judge"):
            yield f"{lead}{say['judge']}: {say['second_model']}"


def _block(lead: str, text: Any) -> Iterator[str]:
    """Yield the lines of a text; all but the first are indented, so that none can pass for a field."""
    first, *rest = str(text if text is not None else "").strip().splitlines() or [""]
    yield f"{lead}{first}"
    for line in rest:
        yield f"     {line.strip()}" if line.strip() else ""


def check_text(check: Mapping[str, Any]) -> str:
    """Return a check on one line: `tool {arguments} expects <what>`, with arguments and expectation as JSON."""
    arguments = json.dumps(check.get("arguments") or {}, ensure_ascii=False, default=str)
    expect = json.dumps(check.get("expect", "ok"), ensure_ascii=False, default=str)
    return f"{check.get('tool', '?')} {arguments} expects {expect}"


def schedule_lines(pending: Pause) -> Iterator[str]:
    """Yield when the pending recurring plan runs next, and what its approval covers."""
    if not (schedule := (pending.get("plan") or {}).get("schedule")):
        return
    say = catalogue(str(pending.get("language") or "en"))["plan"]
    if runs := pending.get("next_runs"):
        yield f"**{say['upcoming']}:** {moments_text(runs)}"
    known = (f"{name} ({say['known_targets']})" for name in pending.get("writes_known") or ())
    tools = ", ".join([*sorted(pending.get("writes") or ()), *known]) or say["no_tools"]
    covers = say["covers_runs"].format(tools=tools, missed=say[schedule.get("missed") or "once"])
    yield f"**{say['covers']}:** {covers}"


def schedule_text(schedule: Mapping[str, Any], say: Mapping[str, str] | None = None) -> str:
    """Return a recurring plan's times in words."""
    say, known = say or catalogue("en")["plan"], {key: item for key, item in schedule.items() if item is not None}
    if minutes := known.get("every_minutes"):
        return say["every_minutes"].format(minutes=minutes)
    if "cron" in known:
        return say["cron"].format_map(known)
    if "weekdays" not in known:
        return say["every_day"].format_map(known)
    names = dict(zip(DAYS, say["days"].split("|"), strict=True))
    return say["on_days"].format_map({**known, "days": ", ".join(names[day] for day in known["weekdays"])})


def moments_text(moments: Iterable[str]) -> str:
    """Return moments on one line: `2026-11-23 08:30 +01:00, …`."""
    return ", ".join(f"{moment[:16].replace('T', ' ')} {moment[16:]}".strip() for moment in moments)


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())
