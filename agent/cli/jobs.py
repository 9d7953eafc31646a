"""Carry out the worker, and the commands about work of others: open questions, runs, schedules, kept plans."""

import asyncio
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from json import dumps
from shlex import quote
from typing import Any, Self

from donewhen.agent.agent import Agent
from donewhen.agent.cli.archive import Archive
from donewhen.agent.cli.options import Choices, read_values
from donewhen.agent.cli.result import STATUSES, Exit, local_time, print_json, report, run_object, short_id
from donewhen.agent.cli.runs import QUEUE, open_agent
from donewhen.agent.cli.screen.terminal import clean, open_terminal, shorten
from donewhen.agent.cli.screen.views import Progress, View
from donewhen.agent.config import Config
from donewhen.agent.run import Run
from donewhen.agent.storage import open_storage
from donewhen.agent.undo import UndoneChange
from donewhen.agent.work.news import Notifier, notify_of
from donewhen.agent.work.queue import Page, ThreadInfo
from donewhen.agent.work.schedules import ScheduleInfo
from donewhen.agent.work.worker import Worker
from donewhen.state.errors import ConfigError
from donewhen.state.plan.text import moments_text

IDLE_AGENTS = 4
"""The most idle agents that a worker keeps open with their MCP servers."""


def run_worker(archive: Archive, *, concurrency: int) -> Exit:
    """Work until a signal; current work then stops at a clean point, and the next worker continues it."""
    config = archive.config
    terminal = open_terminal(plain=config.plain, may_ask=False)
    if config.storage.startswith("memory:"):
        raise ConfigError("a worker needs a storage that others can reach: --storage sqlite:///… or postgresql://…")

    async def work() -> Worker:
        async with _Agents(config) as agents:
            storage, notify = open_storage(config.storage, key=config.key), notify_of(config)
            worker = Worker(
                storage,
                QUEUE,
                agents.of,
                concurrency=concurrency,
                report=lambda thread, event: terminal.line(f"{thread}: {event}"),
                notifier=Notifier(storage, QUEUE, notify, config.secrets) if notify else None,
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
            at_once = f"{worker.concurrency} runs at once"
            terminal.line(f"Worker {worker.id} on {worker.storage.url_for_display}, {at_once}.", "dim")
            await task
            return worker

    try:
        asyncio.run(work())
    except asyncio.CancelledError:
        return Exit.TERMINATED
    return Exit.COMPLETED


class _Agents:
    """One agent, with its MCP servers, for all threads with the same choices; idle agents stay open for a while."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._open: dict[str, tuple[Agent, AsyncExitStack]] = {}
        """By choices, the most recently used last."""
        self._at_work: Counter[str] = Counter()
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close_idle(0)

    @asynccontextmanager
    async def of(self, info: ThreadInfo) -> AsyncIterator[Agent]:
        choices = Choices.read(info.metadata)
        key = dumps(vars(choices), sort_keys=True)
        async with self._lock:
            if key not in self._open:
                async with AsyncExitStack() as stack:
                    agent = await open_agent(stack, choices, self._config)
                    self._open[key] = (agent, stack.pop_all())
            self._open[key] = self._open.pop(key)
            self._at_work[key] += 1
        try:
            yield self._open[key][0]
        finally:
            self._at_work[key] -= 1
            await self._close_idle(IDLE_AGENTS)

    async def _close_idle(self, keep: int) -> None:
        """Close idle agents except the most recently used ones."""
        async with self._lock:
            idle = [key for key in self._open if not self._at_work[key]]
            for key in idle[: max(len(idle) - keep, 0)]:
                await self._open.pop(key)[1].aclose()


def show_status(archive: Archive) -> Exit:
    """Print the queue, the workers, and the oldest waiting work."""
    found = archive.look(lambda agent: agent.status()) or {}
    lines = [f"{name:10} {count}" for name, count in (found.get("threads") or {}).items()]
    for each in found.get("workers") or ():
        load = f"{each['active']}/{each['concurrency']} runs  seen {local_time(each['seen'], 'seconds')}"
        lines.append(f"worker     {each['id']}  {each['queue']:7}  {load}")
    lines += [
        f"oldest     {name} since {local_time(since, 'seconds')}" for name, since in (found.get("oldest") or {}).items()
    ]
    archive.finish(found, lines)
    served = {each["queue"] for each in found.get("workers") or ()}
    idle = [queue for queue in found.get("queues") or () if queue not in served] or ([] if served else [QUEUE])
    for queue in () if archive.json else idle:
        start = "donewhen worker" if queue == QUEUE else "agent.worker(), where the agent is made that submitted it"
        print(f"No worker serves {queue!r}; start one with: {start}", file=sys.stderr)
    return Exit.COMPLETED


def show_pending(archive: Archive, owner: str | None, limit: int, cursor: str | None) -> Exit:
    """Print the open questions of all threads, and how to see more."""
    rows = archive.look(lambda agent: agent.pending(owner=owner, limit=limit, cursor=cursor)) or Page()
    lines = []
    for row in rows:
        since, who = local_time(row["asked_at"] or ""), f"  {row['owner']}" if row["owner"] else ""
        thread = clean(short_id(row["thread_id"]))
        lines.append(f"{thread}  {row['kind']:8}  {since:16}{who}  {shorten(row['question'] or row['goal'], 80)}")
    ended = archive.finish({"pending": rows, "cursor": rows.cursor}, lines, "Nothing waits for anybody.")
    if rows.cursor and not archive.json:
        given = {"--owner": owner, "--limit": str(limit), "--cursor": rows.cursor, "--storage": archive.storage_option}
        words = [f"{option} {quote(value)}" for option, value in given.items() if value]
        print(f"More questions wait: donewhen pending {' '.join(words)}", file=sys.stderr)
    return ended


def watch_thread(archive: Archive, thread: str, cursor: str | None) -> Exit:
    """Print events as they come; end like `show`, at a pause or the end."""
    info, terminal = archive.thread(thread), open_terminal(plain=archive.config.plain, may_ask=False)

    async def follow(agent: Agent) -> Run:
        with View(terminal, Progress(), quiet=archive.json) as view:
            async for event, after in agent.watch(info.thread_id, cursor):
                if archive.json:
                    print_json({"event": event, "cursor": after})
                view.show(event)
                if event["type"] == "waiting":
                    break
        return await agent.get(info.thread_id)

    run = archive.ask(follow)
    return STATUSES[run.status] if archive.json else report(run, terminal, archive.storage, json=False)


def cancel_thread(archive: Archive, thread: str) -> Exit:
    """End a run, and print its state."""
    info = archive.thread(thread)
    run = archive.ask(lambda agent: agent.cancel(info.thread_id))
    return archive.finish(run_object(run, archive.storage), [run.status])


def undo_thread(archive: Archive, thread: str, step: str | None, *, dry_run: bool) -> Exit:
    """Put back what a run changed, and print what became of each change."""
    info = archive.thread(thread)
    report = archive.ask(lambda agent: agent.undo(info.thread_id, step, dry_run=dry_run))
    lines = [_change_line(change, dry_run=dry_run) for change in report.changes]
    lines += [f"not undone    {row['id']}  {row['tool']}: {row['why']}" for row in report.beyond]
    archive.finish(report.to_dict(), lines, "No file was changed.")
    if report.status == "refused":
        return Exit.FAILED
    return Exit.PARTIAL if any(change.result == "lost" for change in report.changes) else Exit.COMPLETED


def _change_line(change: UndoneChange, *, dry_run: bool) -> str:
    words = {"restored": "would return" if dry_run else "put back", "refused": "REFUSED", "left": "left as it is"}
    words |= {"unchanged": "nothing to do", "lost": "not undone"}
    path = f"{change.to} → {change.path}" if change.to else change.path
    why = f": {change.why}" if change.why else ""
    return f"{words[change.result]:13} {change.id}  {path}{why}"


def tell_thread(archive: Archive, thread: str, text: str) -> Exit:
    """Say something to a working run."""
    info = archive.thread(thread)
    archive.ask(lambda agent: agent.tell(info.thread_id, text))
    return archive.finish({"told": info.thread_id}, ["told"])


def prune_threads(archive: Archive, older: str) -> Exit:
    """Delete threads that ended long ago."""
    match = re.fullmatch(r"(\d+)([dhm])", older.strip())
    if match is None:
        raise ConfigError(f"--older {older!r} is no time; write 30d, 12h or 45m")
    age = timedelta(**{{"d": "days", "h": "hours", "m": "minutes"}[match[2]]: int(match[1])})
    gone = archive.look(lambda agent: agent.prune(age)) or []
    return archive.finish({"deleted": gone}, [f"{len(gone)} threads deleted"])


def on_schedule(archive: Archive, verb: str, id: str) -> Exit:
    """Call one of the methods of `Agent.schedules`, and print the result."""
    found: Any = archive.look(lambda agent: getattr(agent.schedules, verb)(*([id] if id else [])))
    if isinstance(found, str):
        return archive.finish({"thread_id": found}, [found])
    if isinstance(found, ScheduleInfo):
        return archive.finish({"schedule": found.to_dict()}, _schedule_lines(found))
    if verb != "list":
        return archive.finish({"deleted": id})
    lines = [
        f"{each.id}  {each.when:40}  {moments_text(each.next_runs[:1]) or each.status:23}  {shorten(each.title, 50)}"
        for each in found or ()
    ]
    return archive.finish({"schedules": [each.to_dict() for each in found or ()]}, lines, "No schedules yet.")


def _schedule_lines(schedule: ScheduleInfo) -> Iterator[str]:
    rows = {
        "id": schedule.id,
        "title": schedule.title,
        "goal": schedule.goal,
        "when": schedule.when,
        "missed": schedule.schedule.get("missed") or "once",
        "status": schedule.status,
        "next": moments_text(schedule.next_runs),
        "confirmed": f"{local_time(schedule.confirmed)} in thread {short_id(schedule.thread_id)}",
        "last run": f"{schedule.last['at']} in thread {schedule.last['thread_id']}" if schedule.last else "",
    }
    yield from (f"{name:10} {clean(str(text))}" for name, text in rows.items() if text)
    yield from (f"{'not run':10} {each['at']}: {each['why']}" for each in schedule.skipped)
    for number, step in enumerate(schedule.plan.get("steps") or (), 1):
        yield f"{number:>10}. {clean(step['content'])}"


def on_plan(archive: Archive, verb: str, given: Mapping[str, Any]) -> Exit:
    """Call one of the methods of `Agent.plans`, and print the resulting plan."""

    async def do(agent: Agent) -> Any:
        found = await getattr(agent.plans, verb)(**given)
        return found, await agent.templates.list() if verb == "list" else []

    found, templates = (archive.look(do) if verb in ("list", "get") else archive.ask(do)) or ([], [])
    plans = found if isinstance(found, list) else [found] if found else []
    if verb == "delete":
        return archive.finish({"deleted": given["id"]})
    said: dict[str, Any] = {"plans": [plan.to_dict() for plan in plans]}
    if verb != "list":
        return archive.finish(said, [clean(plan.text) for plan in plans])
    lines = [clean("  ".join(plan.text.splitlines()[:2])) for plan in plans]
    for each in templates:
        values = " ".join(f"{key}={value}" for key, value in each.parameters.items())
        lines.append(clean(f"template {each.name}  {values}  {shorten(each.goal, 60)}"))
    kept = {"templates": [each.to_dict() for each in templates]}
    return archive.finish({**said, **kept}, lines, "No plans are kept.")


def save_template(archive: Archive, thread: str, name: str, given: Sequence[str]) -> Exit:
    """Save the plan of a completed run."""
    info, values = archive.thread(thread), read_values(given)

    async def save(agent: Agent) -> Any:
        return await agent.templates.save(await agent.get(info.thread_id), name, values)

    template = archive.ask(save)
    words = " ".join(f"--set {key}=…" for key in template.parameters)
    line = clean(f"donewhen run --template {name} {words}".strip())
    return archive.finish({"template": template.to_dict()}, [line])


def forget_template(archive: Archive, name: str) -> Exit:
    """Forget a template."""
    archive.ask(lambda agent: agent.templates.delete(name))
    return archive.finish({"deleted": name})
