"""What the commands for work in the background do: the worker at its storage, and answers about what there is."""

import asyncio
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from json import dumps
from typing import Any

from donewhen.agent.agent import Agent
from donewhen.agent.cli.options import Choices, read_values
from donewhen.agent.cli.result import SCHEMA_VERSION, STATUSES, Exit, print_json, report, run_object, short_id
from donewhen.agent.cli.screen.terminal import clean, open_terminal, shorten
from donewhen.agent.cli.screen.views import Progress, View
from donewhen.agent.cli.session import QUEUE, configured, open_agent, reader, remembered, stored
from donewhen.agent.config import Config
from donewhen.agent.run import Run
from donewhen.agent.storage import open_storage
from donewhen.agent.work.schedules import ScheduleInfo
from donewhen.agent.work.threads import ThreadInfo
from donewhen.agent.work.worker import Worker
from donewhen.state.errors import ConfigError
from donewhen.state.plan.text import moments_text


def run_worker(*, storage: str | None, concurrency: int) -> Exit:
    """Work until a signal; what is at work then stops at a clean point, and the next worker goes on with it."""
    config = configured(storage)
    terminal = open_terminal(plain=config.plain, may_ask=False)
    if config.storage.startswith("memory:"):
        raise ConfigError("a worker needs a storage that others can reach: --storage sqlite:///… or postgresql://…")

    async def work() -> Worker:
        async with AsyncExitStack() as stack:
            agents = _Agents(stack, config)
            worker = Worker(
                open_storage(config.storage, key=config.key),
                QUEUE,
                agents.of,
                concurrency=concurrency,
                tell=lambda thread, said: terminal.line(f"{thread}: {said}"),
            )
            loop, came = asyncio.get_running_loop(), list[int]()
            task = asyncio.ensure_future(worker.run())

            def stop(number: int) -> None:
                came.append(number)
                if len(came) == 1:
                    terminal.line("Draining; once more stops at once.", "yellow")
                    worker.drain()
                else:
                    task.cancel()

            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop, number)
            terminal.line(f"Worker {worker.id} on {worker.storage.url_for_display}, {concurrency} runs at once.", "dim")
            await task
            return worker

    try:
        asyncio.run(work())
    except asyncio.CancelledError:
        return Exit.TERMINATED
    return Exit.COMPLETED


class _Agents:
    """An agent per choices, opened when first needed; MCP servers stay up with it."""

    def __init__(self, stack: AsyncExitStack, config: Config) -> None:
        self._stack, self._config = stack, config
        self._known: dict[str, Agent] = {}
        self._lock = asyncio.Lock()

    async def of(self, info: ThreadInfo) -> Agent:
        choices = Choices.read(info.metadata)
        key = dumps(vars(choices), sort_keys=True)
        async with self._lock:
            if key not in self._known:
                self._known[key] = (await open_agent(self._stack, choices, self._config)).agent
            return self._known[key]


def show_status(*, storage: str | None, json: bool) -> Exit:
    """Queue, workers, and the oldest of what waits."""
    config = configured(storage)
    found = _with(config, storage, lambda agent: agent.status()) or {}
    if json:
        print_json({"schema_version": SCHEMA_VERSION, **found})
        return Exit.COMPLETED
    for name, count in (found.get("threads") or {}).items():
        print(f"{name:10} {count}")
    for each in found.get("workers") or ():
        print(f"worker     {each['id']}  {each['active']}/{each['concurrency']} runs  seen {each['seen'][:19]}")
    for name, since in (found.get("oldest") or {}).items():
        print(f"oldest     {name} since {since[:19]}")
    if not found.get("workers"):
        print("No worker is running; start one with: donewhen worker", file=sys.stderr)
    return Exit.COMPLETED


def show_pending(owner: str | None, *, storage: str | None, json: bool) -> Exit:
    """Open questions over all threads, with the thread to answer in."""
    rows = _with(configured(storage), storage, lambda agent: agent.pending(owner=owner)) or []
    if json:
        print_json({"schema_version": SCHEMA_VERSION, "pending": rows})
        return Exit.COMPLETED
    for row in rows:
        since, who = str(row["asked_at"] or "")[:16], f"  {row['owner']}" if row["owner"] else ""
        thread = clean(short_id(row["thread_id"]))
        print(f"{thread}  {row['kind']:8}  {since:16}{who}  {shorten(row['question'] or row['goal'], 80)}")
    if not rows:
        print("Nothing waits for anybody.", file=sys.stderr)
    return Exit.COMPLETED


def watch_thread(thread: str, cursor: str | None, *, storage: str | None, json: bool) -> Exit:
    """Events as they come; ends as `show` would, at a pause or the end."""
    config = configured(storage)
    info, terminal = remembered(thread, config, storage), open_terminal(plain=config.plain, may_ask=False)

    async def follow(agent: Agent) -> Run:
        with View(terminal, Progress(), quiet=json) as view:
            async for event, after in agent.watch(info.thread_id, cursor):
                if json:
                    print_json({"event": event, "cursor": after})
                view.show(event)
                if event["type"] == "waiting":
                    break
        return await agent.get(info.thread_id)

    run = asyncio.run(_asked(config, follow))
    return STATUSES[run.status] if json else report(run, terminal, storage, json=False)


def cancel_thread(thread: str, *, storage: str | None, json: bool) -> Exit:
    """End a run, and say how it stands."""
    config = configured(storage)
    info = remembered(thread, config, storage)
    run = asyncio.run(_asked(config, lambda agent: agent.cancel(info.thread_id)))
    if json:
        print_json(run_object(run, storage))
    else:
        print(run.status)
    return Exit.COMPLETED


def tell_thread(thread: str, text: str, *, storage: str | None, json: bool) -> Exit:
    """Say something to a run at work."""
    config = configured(storage)
    info = remembered(thread, config, storage)
    asyncio.run(_asked(config, lambda agent: agent.tell(info.thread_id, text)))
    if json:
        print_json({"schema_version": SCHEMA_VERSION, "told": info.thread_id})
    else:
        print("told")
    return Exit.COMPLETED


def prune_threads(older: str, *, storage: str | None, json: bool) -> Exit:
    """Delete what ended long ago."""
    match = re.fullmatch(r"(\d+)([dhm])", older.strip())
    if match is None:
        raise ConfigError(f"--older {older!r} is no time; write 30d, 12h or 45m")
    age = timedelta(**{{"d": "days", "h": "hours", "m": "minutes"}[match[2]]: int(match[1])})
    gone = _with(configured(storage), storage, lambda agent: agent.prune(age)) or []
    if json:
        print_json({"schema_version": SCHEMA_VERSION, "deleted": gone})
    else:
        print(f"{len(gone)} threads deleted")
    return Exit.COMPLETED


def on_schedule(verb: str, id: str, *, storage: str | None, json: bool) -> Exit:
    """One of the verbs of `Agent.schedules`, and what came of it."""
    config = configured(storage)
    found: Any = _with(config, storage, lambda agent: getattr(agent.schedules, verb)(*([id] if id else [])))
    if isinstance(found, str):
        said: dict[str, Any] = {"thread_id": found}
    elif isinstance(found, ScheduleInfo):
        said = {"schedule": found.to_dict()}
    else:
        said = {"schedules": [each.to_dict() for each in found or ()]} if verb == "list" else {"deleted": id}
    if json:
        print_json({"schema_version": SCHEMA_VERSION, **said})
    elif "thread_id" in said:
        print(found)
    elif isinstance(found, ScheduleInfo):
        _print_schedule(found)
    else:
        for each in found or ():
            following = moments_text(each.next_runs[:1]) or each.status
            print(f"{each.id}  {each.when:40}  {following:23}  {shorten(each.title, 50)}")
        if verb == "list" and not found:
            print("No schedules yet.", file=sys.stderr)
    return Exit.COMPLETED


def _print_schedule(schedule: ScheduleInfo) -> None:
    rows = {
        "id": schedule.id,
        "title": schedule.title,
        "goal": schedule.goal,
        "when": schedule.when,
        "missed": schedule.schedule.get("missed") or "once",
        "status": schedule.status,
        "next": moments_text(schedule.next_runs),
        "confirmed": f"{schedule.confirmed[:19]} in thread {short_id(schedule.thread_id)}",
        "last run": f"{schedule.last['at']} in thread {schedule.last['thread_id']}" if schedule.last else "",
    }
    for name, text in rows.items():
        if text:
            print(f"{name:10} {clean(str(text))}")
    for each in schedule.skipped:
        print(f"{'not run':10} {each['at']}: {each['why']}")
    for number, step in enumerate(schedule.plan.get("steps") or (), 1):
        print(f"{number:>10}. {clean(step['content'])}")


def on_plan(verb: str, given: Mapping[str, Any], *, storage: str | None, json: bool) -> Exit:
    """One of the verbs of `Agent.plans`, and the plan as it then stands."""
    config = configured(storage)

    async def do(agent: Agent) -> Any:
        found = await getattr(agent.plans, verb)(**given)
        return found, await agent.templates.list() if verb == "list" else []

    reads = verb in ("list", "get")
    found, templates = (_with(config, storage, do) if reads else asyncio.run(_asked(config, do))) or ([], [])
    plans = found if isinstance(found, list) else [found] if found else []
    if json:
        said = {"plans": [plan.to_dict() for plan in plans]} if verb != "delete" else {"deleted": given["id"]}
        kept = {"templates": [each.to_dict() for each in templates]} if verb == "list" else {}
        print_json({"schema_version": SCHEMA_VERSION, **said, **kept})
        return Exit.COMPLETED
    for plan in plans:
        print(clean("  ".join(plan.text.splitlines()[:2]) if verb == "list" else plan.text))
    for template in templates:
        values = " ".join(f"{key}={value}" for key, value in template.parameters.items())
        print(clean(f"template {template.name}  {values}  {shorten(template.goal, 60)}"))
    if verb == "list" and not plans and not templates:
        print("No plans are kept.", file=sys.stderr)
    return Exit.COMPLETED


def save_template(thread: str, name: str, given: Sequence[str], *, storage: str | None, json: bool) -> Exit:
    """Save the plan of a completed run."""
    config = configured(storage)
    info = remembered(thread, config, storage)
    values = read_values(given)

    async def save(agent: Agent) -> Any:
        return await agent.templates.save(await agent.get(info.thread_id), name, values)

    template = asyncio.run(_asked(config, save))
    if json:
        print_json({"schema_version": SCHEMA_VERSION, "template": template.to_dict()})
    else:
        words = " ".join(f"--set {key}=…" for key in template.parameters)
        print(clean(f"donewhen run --template {name} {words}".strip()))
    return Exit.COMPLETED


def forget_template(name: str, *, storage: str | None, json: bool) -> Exit:
    """Forget a template."""
    asyncio.run(_asked(configured(storage), lambda agent: agent.templates.delete(name)))
    if json:
        print_json({"schema_version": SCHEMA_VERSION, "deleted": name})
    return Exit.COMPLETED


async def _asked(config: Config, ask: Callable[[Agent], Coroutine[Any, Any, Any]]) -> Any:
    async with reader(config) as agent:
        return await ask(agent)


def _with(config: Config, storage: str | None, ask: Callable[[Agent], Coroutine[Any, Any, Any]]) -> Any:
    """What an agent that only reads says; None where there is no database yet."""
    return asyncio.run(_asked(config, ask)) if stored(config, storage) else None
