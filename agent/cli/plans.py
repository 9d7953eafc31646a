"""The commands about schedules, kept plans and templates."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from json import dumps
from typing import Any

from donewhen import Agent, ConfigError
from donewhen.agent.cli.exits import Exit
from donewhen.agent.cli.options import add_assignments, read_limits, read_values
from donewhen.agent.cli.result import short_id
from donewhen.agent.cli.screen.asking import UNASKED, ask_consent
from donewhen.agent.cli.screen.terminal import clean, open_terminal, shorten
from donewhen.agent.cli.storage_view import StorageView
from donewhen.clients import ROLES
from donewhen.errors import ScheduleError
from donewhen.types import ScheduleInfo


def on_schedule(view: StorageView, verb: str, id: str, **more: Any) -> Exit:
    """Call one of the methods of `Agent.schedules`, and print the result; `id` may be the first part of one."""
    if moment := more.get("moment"):
        day, _, clock = moment.strip().partition(" ")  # lists print `2026-11-23 08:30 +01:00`
        try:
            more = {"moment": datetime.fromisoformat(f"{day} {clock.replace(' ', '')}".strip())}
        except ValueError:
            raise ConfigError(f"--for {moment!r} is no time; write 2026-11-23T08:30, or with +01:00") from None

    async def do(agent: Agent) -> tuple[ScheduleInfo | None, Any]:
        if not id:
            return None, await agent.schedules.list()
        found = _find_schedule(id, await agent.schedules.list())
        return found, await getattr(agent.schedules, verb)(found.id, **more)

    found, result = view.look(do) or (None, None)
    if isinstance(result, str):
        if found and found.status == "paused" and not view.json:
            print(f"Schedule {found.id} is paused, and stays so; this run is made all the same.", file=sys.stderr)
        return view.finish({"thread_id": result}, [result])
    if isinstance(result, ScheduleInfo):
        return view.finish({"schedule": result.to_dict()}, _schedule_lines(view, result))
    if found:
        return view.finish({"deleted": found.id}, [f"deleted {found.id}: {shorten(found.title, 68)}"])
    lines = [
        f"{each.id}  {each.when:40}  {_next_text(view, each, 1):26}  {shorten(each.problem or each.title, 50)}"
        f"{_list_last(view, each)}"
        for each in result or ()
    ]
    return view.finish({"schedules": [each.to_dict() for each in result or ()]}, lines, "No schedules yet.")


def change_schedule(
    view: StorageView, id: str, options: Mapping[str, Any], assignments: Sequence[str], by: str
) -> Exit:
    """Change the times, owner, model, limits and other settings of a schedule; print it with its next times."""
    settings = add_assignments({"limits": options["limits"]}, read_values(assignments))
    settings = {**settings, "limits": read_limits(settings["limits"])}
    times = {name: value for name, value in options["times"].items() if value is not None}
    if "timezone" not in times and view.config.timezone and times.keys() & {"at", "cron"}:
        times["timezone"] = view.config.timezone
    model = options["model"]

    async def change(agent: Agent) -> ScheduleInfo:
        found, more = _find_schedule(id, await agent.schedules.list()), dict[str, Any](by=by)
        if model and "dir" in found.metadata:  # of the command, which keeps the model there
            more["metadata"] = {"model": model}
        elif model:
            settings["models"] = {**dict.fromkeys(ROLES, model), **(settings.get("models") or {})}
        more["settings"] = {name: value for name, value in settings.items() if value}
        return await agent.schedules.change(found.id, times, owner=options["owner"], **more)

    result = view.ask(change)
    return view.finish({"schedule": result.to_dict()}, _schedule_lines(view, result))


def delete_with_runs(view: StorageView, id: str, *, yes: bool) -> Exit:
    """Delete a schedule and the threads of its runs if the person agrees; with `yes` nobody is asked."""
    terminal = open_terminal(plain=view.config.plain, may_ask=not view.json)

    async def find(agent: Agent) -> tuple[ScheduleInfo, list[str]]:
        found, cursor, runs = _find_schedule(id, await agent.schedules.list()), None, list[str]()
        while True:
            page = await agent.threads(500, prefix=found.id, cursor=cursor)
            runs += [info.thread_id for info in page if info.schedule == found.id]
            if (cursor := page.cursor) is None:
                return found, runs

    async def delete(agent: Agent) -> None:
        await agent.schedules.delete(schedule.id)
        for thread_id in runs:
            await agent.delete(thread_id)

    schedule, runs = view.ask(find)
    if yes and schedule.id != id:
        raise ScheduleError(f"there is no schedule {id!r}; to delete {schedule.id!r}, give the whole id with --yes")
    about = f"Schedule {schedule.id}: {shorten(schedule.title, 68)}; runs: {len(runs)}"
    legend = "[y] delete it and its runs with all their data  [n] keep all"
    if not (yes or ask_consent(terminal, about, legend, UNASKED.format("runs are"))):
        return Exit.FAILED
    view.ask(delete)
    line = f"deleted {schedule.id}: {shorten(schedule.title, 68)}; runs deleted: {len(runs)}"
    return view.finish({"deleted": schedule.id, "runs": runs}, [line])


def _find_schedule(id: str, schedules: Sequence[ScheduleInfo]) -> ScheduleInfo:
    """Return the schedule with this id, or the only one whose id begins so. Raises ScheduleError."""
    found = [each for each in schedules if each.id == id] or [each for each in schedules if each.id.startswith(id)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ScheduleError(f"several schedules begin with {id!r}: {', '.join(each.id for each in found[:5])}")
    raise ScheduleError(f"there is no schedule {id!r}; `donewhen schedules list` lists all")


def _next_text(view: StorageView, schedule: ScheduleInfo, most: int) -> str:
    """Return the next times, or what keeps them from being run."""
    if schedule.problem:
        return "set aside"
    last = schedule.last or {}
    if last.get("status") == "waiting" and schedule.status == "active":
        return f"held up by thread {last['thread_id']}"
    return ", ".join(view.time(each, own=True) for each in schedule.next_runs[:most]) or schedule.status


def _list_last(view: StorageView, schedule: ScheduleInfo) -> str:
    """Return what became of the last run, on a line of its own if a person should look at it; else ""."""
    looks_fine = not schedule.last or schedule.last["status"] in ("", "queued", "running", "completed", "answered")
    return "" if looks_fine else f"\n{'':10}last run {_last_text(view, schedule)}"


def _last_text(view: StorageView, schedule: ScheduleInfo) -> str:
    if not (last := schedule.last):
        return ""
    state = " – ".join(filter(None, (last["status"], shorten(last["question"] or last["problem"], 80))))
    return f"{view.time(last['at'], own=True)} in thread {last['thread_id']}: {state or 'deleted'}"


def _schedule_lines(view: StorageView, schedule: ScheduleInfo) -> Iterator[str]:
    settings, metadata = schedule.settings, schedule.metadata
    limits = {key: amount for key, amount in (settings.get("limits") or {}).items() if amount is not None}
    models = dict.fromkeys([metadata.get("model"), *(settings.get("models") or {}).values()])
    approved_by = f" by {schedule.approved_by}" if schedule.approved_by else ""
    rows = {
        "id": schedule.id,
        "title": schedule.title,
        "goal": schedule.goal,
        "when": schedule.when,
        "missed": schedule.schedule.get("missed") or "once",
        "status": schedule.status,
        "problem": schedule.problem,
        "next": _next_text(view, schedule, 3),
        "confirmed": f"{view.time(schedule.confirmed)}{approved_by} in thread {short_id(schedule.thread_id)}",
        "owner": schedule.owner,
        "model": ", ".join(str(each) for each in models if each),
        "folder": metadata.get("dir"),
        "limits": ", ".join(f"{key} {amount:g}" for key, amount in limits.items()),
        "last run": _last_text(view, schedule),
    }
    yield from (f"{name:10} {clean(str(text))}" for name, text in rows.items() if text)
    yield from (f"{'not run':10} {view.time(each['at'], own=True)}: {each['why']}" for each in schedule.skipped)
    for each in schedule.changes:
        changed = "; ".join(f"{name}: {dumps(old)} → {dumps(new)}" for name, (old, new) in each["changed"].items())
        who = f" by {each['by']}" if each["by"] else ""
        yield clean(f"{'changed':10} {view.time(each['at'])}{who}: {shorten(changed, 300)}")
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
        about = f"{values}  {shorten(each.goal, 60)}" if each.plan else f"damaged: {each.problem}"
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
    if template.problem and not view.json:
        print(clean(template.problem), file=sys.stderr)
    return view.finish({"template": template.to_dict()}, [line])


def forget_template(view: StorageView, name: str) -> Exit:
    """Forget a template."""
    view.ask(lambda agent: agent.templates.delete(name))
    return view.finish({"deleted": name}, [f"deleted {name}"])
