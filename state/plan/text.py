"""A plan as markdown for people."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from donewhen.state.language.texts import catalogue
from donewhen.state.plan.schedule import DAYS, iso_text
from donewhen.state.records import Pause
from donewhen.state.settings import LIMITS
from donewhen.state.values import Json


def plan_text(pending: Pause, before: Mapping[str, Any] | None = None) -> str:
    """Return the pending plan for people: criteria, steps by number, tools, what it may change, schedule, limits.

    Tools with effects are marked with what the plan's approval covers. Of steps that are as in `before`, the plan that
    was shown last, only the words are shown; criteria that are as before are left out.
    """
    plan, language = pending.get("plan") or {}, str(pending.get("language") or "en")
    say = catalogue(language)["plan"]
    lines = [f"# {_one_line(plan.get('title') or say['title'])}", ""]
    goal, earlier = plan.get("done_when") or [], (before or {}).get("done_when") or []
    if goal != earlier:
        lines += [*_criteria_lines(goal or [say["nothing"]], "- ", say), ""]
    numbers, same = step_numbers(plan), unchanged_steps(plan, before)
    for number, step in enumerate(plan.get("steps") or [], 1):
        if number in same:
            lines.append(f"{number}. {_one_line(step.get('content'))} _({say['as_before']})_")
        else:
            lines += _step_lines(number, step, say, pending, numbers)
    lines += [*_gone_lines(plan, before, language), ""]
    if text := may_change(pending, say):
        lines.append(f"**{say['changes']}:** {text}")
    if template := pending.get("template"):
        lines += [f"**{line}**" for line in template_lines(template, language)]
    if plan.get("schedule"):
        lines.append(f"**{say['schedule']}:** {schedule_text(plan['schedule'], say)}")
    if chosen := chosen_limits(pending):
        names = catalogue(language)["amounts"]
        limit_texts = (
            f"${amount:g}" if key == "cost_usd" else f"{names[key]} {amount:g}" for key, amount in chosen.items()
        )
        lines.append(f"**{say['limits']}:** {', '.join(limit_texts)}")
    return "\n".join([*lines, *schedule_lines(pending)]).rstrip() + "\n"


def template_lines(template: Mapping[str, Any], language: str) -> Iterator[str]:
    """Yield the values with which a template was started, and where values of the saved run still stand."""
    say = catalogue(language)["plan"]
    as_saved = dict.fromkeys(template["as_saved"], f" ({say['as_saved']})")
    values = (f"{key} = {_one_line(value)}{as_saved.get(key, '')}" for key, value in template["values"].items())
    yield f"{say['template'].format(name=template['name'])}: {', '.join(values) or say['nothing']}"
    for value, places in template["left"]:
        yield say["left"].format(value=_one_line(value), places=", ".join(places))


def step_numbers(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the numbers by which people know the steps of a plan, by id."""
    return {str(step.get("id")): str(number) for number, step in enumerate(plan.get("steps") or (), 1)}


def unchanged_steps(plan: Mapping[str, Any], before: Mapping[str, Any] | None) -> set[int]:
    """Return the numbers of the steps that were shown under the same number in the plan before, word for word."""
    pairs = zip(plan.get("steps") or (), (before or {}).get("steps") or (), strict=False)
    numbers, earlier = step_numbers(plan), step_numbers(before or {})
    return {at for at, (new, old) in enumerate(pairs, 1) if _as_shown(new, numbers) == _as_shown(old, earlier)}


def _gone_lines(plan: Mapping[str, Any], before: Mapping[str, Any] | None, language: str) -> Iterator[str]:
    """Yield the steps of the previous plan that are gone."""
    steps, earlier = plan.get("steps") or [], (before or {}).get("steps") or []
    gone = catalogue(language)["changed"]["dropped"]
    contents = [step.get("content") for step in steps]
    for number, step in enumerate(earlier if len(steps) < len(earlier) else [], 1):
        if step.get("content") not in contents:
            yield f"- {gone.format(id=number, content=_one_line(step.get('content')))}"


def _as_shown(step: Mapping[str, Any], numbers: Mapping[str, str]) -> Json:
    needs = step.get("depends_on")
    after = None if needs is None else [numbers.get(str(need), need) for need in needs]
    return {**{key: step[key] for key in step if key != "id"}, "depends_on": after}


def chosen_limits(pending: Pause) -> dict[str, float]:
    """Return the limits that somebody chose: those that are not the defaults."""
    limits = (pending.get("limits") or {}).items()
    return {key: amount for key, amount in limits if amount is not None and amount != getattr(LIMITS, key, None)}


def may_change(pending: Pause, say: Mapping[str, str]) -> str:
    """Return the tools and executors by which the pending plan may change something, each with what is approved.

    "" if that is not known, and for a schedule, of which `schedule_lines` says it.
    """
    plan = pending.get("plan") or {}
    known_writes = [f"{name} ({say['known_targets']})" for name in pending.get("writes_known") or ()]
    free = [f"{name} ({say['any_arguments']})" for name in pending.get("writes") or ()]
    covered = {*(pending.get("writes_known") or ()), *(pending.get("writes") or ())}
    asking = [f"{name} ({say['asks_first']})" for name in pending.get("effects") or () if name not in covered]
    alone = any(step.get("executor") for step in plan.get("steps") or ())  # its own tools are not listed
    if plan.get("schedule"):
        return ""
    return ", ".join([*known_writes, *free, *asking, *_agents(pending, say)]) or ("" if alone else say["nothing"])


def _agents(pending: Pause, say: Mapping[str, str]) -> list[str]:
    return [f"{name} ({say['on_its_own']})" for name in pending.get("agents") or ()]


def _step_lines(
    number: int, step: Mapping[str, Any], say: Mapping[str, str], pending: Pause, numbers: Mapping[str, str]
) -> Iterator[str]:
    yield from _block(f"{number}. ", step.get("content"))
    yield from _criteria_lines(step.get("done_when") or [], "   - ", say)
    if step.get("executor"):
        yield f"   - {say['executor']}: {step['executor']}"
    if step.get("tools"):
        yield f"   - {say['tools']}: {', '.join(tool_texts(step, pending, say))}"
    depends_on = step.get("depends_on")
    if depends_on is not None:
        names = (numbers.get(str(each), str(each)) for each in depends_on)
        yield f"   - {say['after']}: {', '.join(names) or say['nothing']}"


def server_of(provider: str) -> str:
    """Return the name of the server of a tool's provider, as `KnownTool.provider` has it."""
    return provider.rpartition(" ")[0]


def tool_texts(step: Mapping[str, Any], pending: Pause, say: Mapping[str, str]) -> list[str]:
    """Return the tools of a step of the pending plan, each with its server and whether any arguments are approved."""
    providers, writes = (pending.get("plan") or {}).get("providers") or {}, pending.get("writes") or ()
    texts = list[str]()
    for name in step.get("tools") or ():
        notes = [
            *([server_of(providers[name])] if name in providers else []),
            *([say["any_arguments"]] if name in writes else []),
        ]
        texts.append(f"{name} ({', '.join(notes)})" if notes else str(name))
    return texts


def _criteria_lines(criteria: Iterable[Any], lead: str, say: Mapping[str, str]) -> Iterator[str]:
    """Yield the criteria in their words. The call of a check is data of the plan, and shown only without words."""
    for criterion in criteria:
        entry = criterion if isinstance(criterion, Mapping) else {"text": criterion}
        check, text = entry.get("check"), str(entry.get("text") or "").strip()
        notes = [*([say["checked"]] if check else []), *([say["second_model"]] if entry.get("judge") else [])]
        if not text and check:
            text = check_text(check)
        yield from _block(f"{lead}{say['done_when']}: ", f"{text} ({', '.join(notes)})" if notes else text)


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
    for each in pending.get("living") or ():
        yield f"**{say['both_run'].format(id=each['id'], when=schedule_text(each['schedule'], say))}**"
    known_writes = (f"{name} ({say['known_targets']})" for name in pending.get("writes_known") or ())
    tools = ", ".join([*sorted(pending.get("writes") or ()), *known_writes, *_agents(pending, say)]) or say["no_tools"]
    covers = say["covers_runs"].format(tools=tools, missed=say[schedule.get("missed") or "once"])
    yield f"**{say['covers']}:** {covers}"


def schedule_text(schedule: Mapping[str, Any], say: Mapping[str, str] | None = None) -> str:
    """Return a recurring plan's times in words."""
    say, times = say or catalogue("en")["plan"], {key: item for key, item in schedule.items() if item is not None}
    if minutes := times.get("every_minutes"):
        return say["every_minutes"].format(minutes=minutes)
    if "cron" in times:
        return say["cron"].format_map(times)
    if "weekdays" not in times:
        return say["every_day"].format_map(times)
    names = dict(zip(DAYS, say["days"].split("|"), strict=True))
    return say["on_days"].format_map({**times, "days": ", ".join(names[day] for day in times["weekdays"])})


def moments_text(moments: Iterable[str]) -> str:
    """Return moments on one line: `2026-11-23 08:30 +01:00, …`."""
    return ", ".join(_moment_text(datetime.fromisoformat(moment)) for moment in moments)


def _moment_text(moment: datetime) -> str:
    local = iso_text(moment.replace(tzinfo=None))
    return f"{local.replace('T', ' ')} {iso_text(moment).removeprefix(local)}".strip()


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())
