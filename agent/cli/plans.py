"""The commands about schedules, kept plans and templates."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from donewhen import Agent
from donewhen.agent.cli.exits import Exit
from donewhen.agent.cli.options import read_values
from donewhen.agent.cli.result import local_time, short_id
from donewhen.agent.cli.screen.terminal import clean, shorten
from donewhen.agent.cli.storage_view import StorageView
from donewhen.clients import moments_text
from donewhen.errors import ScheduleError
from donewhen.types import ScheduleInfo


def on_schedule(view: StorageView, verb: str, id: str) -> Exit:
    """Call one of the methods of `Agent.schedules`, and print the result; `id` may be the first part of one."""

    async def do(agent: Agent) -> tuple[ScheduleInfo | None, Any]:
        if not id:
            return None, await agent.schedules.list()
        found = _find_schedule(id, await agent.schedules.list())
        return found, await getattr(agent.schedules, verb)(found.id)

    found, result = view.look(do) or (None, None)
    if isinstance(result, str):
        if found and found.status == "paused" and not view.json:
            print(f"Schedule {found.id} is paused, and stays so; this run is made all the same.", file=sys.stderr)
        return view.finish({"thread_id": result}, [result])
    if isinstance(result, ScheduleInfo):
        return view.finish({"schedule": result.to_dict()}, _schedule_lines(result))
    if found:
        return view.finish({"deleted": found.id}, [f"deleted {found.id}: {shorten(found.title, 68)}"])
    lines = [
        f"{each.id}  {each.when:40}  {_next_text(each):23}  {shorten(each.problem or each.title, 50)}{_list_last(each)}"
        for each in result or ()
    ]
    return view.finish({"schedules": [each.to_dict() for each in result or ()]}, lines, "No schedules yet.")


def _find_schedule(id: str, schedules: Sequence[ScheduleInfo]) -> ScheduleInfo:
    """Return the schedule with this id, or the only one whose id begins so. Raises ScheduleError."""
    found = [each for each in schedules if each.id == id] or [each for each in schedules if each.id.startswith(id)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ScheduleError(f"several schedules begin with {id!r}: {', '.join(each.id for each in found[:5])}")
    raise ScheduleError(f"there is no schedule {id!r}; `donewhen schedules list` lists all")


def _next_text(schedule: ScheduleInfo) -> str:
    return "set aside" if schedule.problem else moments_text(schedule.next_runs[:1]) or schedule.status


def _list_last(schedule: ScheduleInfo) -> str:
    """Return what became of the last run, on a line of its own if a person should look at it; else ""."""
    looks_fine = not schedule.last or schedule.last["status"] in ("", "queued", "running", "completed", "answered")
    return "" if looks_fine else f"\n{'':10}last run {_last_text(schedule)}"


def _last_text(schedule: ScheduleInfo) -> str:
    if not (last := schedule.last):
        return ""
    state = " – ".join(filter(None, (last["status"], shorten(last["question"], 80))))
    return f"{moments_text([last['at']])} in thread {last['thread_id']}: {state or 'deleted'}"


def _schedule_lines(schedule: ScheduleInfo) -> Iterator[str]:
    rows = {
        "id": schedule.id,
        "title": schedule.title,
        "goal": schedule.goal,
        "when": schedule.when,
        "missed": schedule.schedule.get("missed") or "once",
        "status": schedule.status,
        "problem": schedule.problem,
        "next": moments_text(schedule.next_runs),
        "confirmed": f"{local_time(schedule.confirmed)} in thread {short_id(schedule.thread_id)}",
        "last run": _last_text(schedule),
    }
    yield from (f"{name:10} {clean(str(text))}" for name, text in rows.items() if text)
    yield from (f"{'not run':10} {moments_text([each['at']])}: {each['why']}" for each in schedule.skipped)
    for number, step in enumerate(schedule.plan.get("steps") or (), 1):
        yield f"{number:>10}. {clean(step['content'])}"


def on_plan(view: StorageView, verb: str, arguments: Mapping[str, Any]) -> Exit:
    """Call one of the methods of `Agent.plans`, and print the resulting plan."""

    async def do(agent: Agent) -> Any:
        result = await getattr(agent.plans, verb)(**arguments)
        return result, await agent.templates.list() if verb == "list" else []

    result, templates = (view.look(do) if verb in ("list", "get") else view.ask(do)) or ([], [])
    plans = result if isinstance(result, list) else [result] if result else []
    if verb == "delete":
        return view.finish({"deleted": arguments["id"]}, [f"deleted {arguments['id']}"])
    shown: dict[str, Any] = {"plans": [plan.to_dict() for plan in plans]}
    if verb != "list":
        return view.finish(shown, [clean(plan.text) for plan in plans])
    lines = [clean("  ".join(plan.text.splitlines()[:2])) for plan in plans]
    for each in templates:
        values = " ".join(f"{key}={value}" for key, value in each.parameters.items())
        about = f"damaged: {each.problem}" if each.problem else f"{values}  {shorten(each.goal, 60)}"
        lines.append(clean(f"template {each.name}  {about}"))
    shown_templates = {"templates": [each.to_dict() for each in templates]}
    return view.finish({**shown, **shown_templates}, lines, "No plans are kept.")


def save_template(view: StorageView, thread: str, name: str, assignments: Sequence[str]) -> Exit:
    """Save the plan of a completed run."""
    info, values = view.thread(thread), read_values(assignments)

    async def save(agent: Agent) -> Any:
        return await agent.templates.save(await agent.get(info.thread_id), name, values)

    template = view.ask(save)
    words = " ".join(f"--set {key}=…" for key in template.parameters)
    line = clean(f"donewhen run --template {name} {words}".strip())
    return view.finish({"template": template.to_dict()}, [line])


def forget_template(view: StorageView, name: str) -> Exit:
    """Forget a template."""
    view.ask(lambda agent: agent.templates.delete(name))
    return view.finish({"deleted": name}, [f"deleted {name}"])
