"""A run at the terminal, leg by leg: work until a person is needed, ask, go on.

People are asked outside the event loop, so that Ctrl-C works while they think.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from donewhen.agent.agent import Agent
from donewhen.agent.cli.asking import Later, Person
from donewhen.agent.cli.exits import STATUSES, Exit
from donewhen.agent.cli.progress import Progress
from donewhen.agent.cli.result import SCHEMA_VERSION, print_json, resume_words, run_object, show_run
from donewhen.agent.cli.session import Opened
from donewhen.agent.cli.stopping import Stopping, Terminated
from donewhen.agent.cli.terminal import Terminal
from donewhen.agent.cli.views import View, open_view
from donewhen.agent.run import Run
from donewhen.agent.stream import RunStream
from donewhen.state import errors


@dataclass
class Desk:
    """Where a run's pauses and its end land: a person, `--yes`, or nobody."""

    terminal: Terminal
    json: bool = False
    yes: bool = False
    storage: str | None = None
    """As given on the command line, for the commands that are printed."""
    person: Person | None = None
    confined: Collection[str] = ()
    """Tools that cannot leave the root: `--yes` approves calls of these only."""
    progress: Progress = field(default_factory=Progress)

    def answers(self, run: Run) -> dict[str, Any] | None:
        """Answers by id to what the run waits for; None if nobody answers now."""
        if run.status != "waiting":
            return None
        if self.yes and (agreed := {pause["id"]: {"type": "approve"} for pause in run.pending if self._agreed(pause)}):
            return agreed
        if self.person is None or not self.terminal.interactive:
            return None
        try:
            return {run.pending[0]["id"]: self.person.ask(run.pending[0])}
        except Later:
            return None

    def _agreed(self, pause: Mapping[str, Any]) -> bool:
        """Whether --yes covers it; what it was refused for once is not approved blindly again."""
        if pause.get("problem"):
            return False
        return pause["kind"] == "plan" or (pause["kind"] == "tool" and pause.get("tool") in self.confined)

    def report(self, run: Run) -> Exit:
        """Say how it stands: the object of --json, or words."""
        if self.json:
            print_json(run_object(run, self.storage))
        else:
            show_run(run, self.terminal, self.storage)
        return STATUSES[run.status]


def _error(event: Mapping[str, Any]) -> errors.DoneWhenError:
    """The error that a terminal event tells of; one of ours by its name where there is one."""
    kind = getattr(errors, str(event.get("kind")), errors.DoneWhenError)
    known = isinstance(kind, type) and issubclass(kind, errors.DoneWhenError) and kind is not errors.PlanError
    return kind(str(event.get("text"))) if known else errors.DoneWhenError(str(event.get("text")))


Open = Callable[[AsyncExitStack], Coroutine[Any, Any, Opened]]
Carry = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a leg to its end."""
Begin = Callable[[Agent, Progress], Coroutine[Any, Any, RunStream | Run]]


def work(open_agent: Open, begin: Begin, desk: Desk) -> Exit:
    """Carry a run through all its legs. `begin` gives the events of the first one, or the run as it stands."""
    with asyncio.Runner() as runner, Stopping(desk.progress.at_work, desk.terminal.line) as stopping:
        stack = AsyncExitStack()
        try:
            opened = stopping.run(runner, open_agent(stack))
            desk.confined = opened.confined
            carry = partial(stopping.run, runner, drain=opened.agent.drain)
            run = _legs(carry, opened.agent, begin, desk, lambda: stopping.asked)
            if stopping.asked and run.status == "running":
                raise stopping.error()
            return desk.report(run)
        except KeyboardInterrupt as stop:
            return _interrupted(desk, Exit.TERMINATED if isinstance(stop, Terminated) else Exit.INTERRUPTED)
        except errors.DoneWhenError:
            if desk.progress.started:
                desk.terminal.line(f"What was done is kept. Go on with: {_resume(desk)}")
            raise
        finally:
            runner.run(stack.aclose())


def _legs(carry: Carry, agent: Agent, begin: Begin, desk: Desk, ended: Callable[[], bool]) -> Run:
    """The run as it stands when nobody answers any more, or when the command was asked to end."""
    first = carry(begin(agent, desk.progress))
    run = first if isinstance(first, Run) else _leg(carry, agent, first, desk)
    desk.progress.take(run)
    while not ended() and (answers := desk.answers(run)) is not None:
        run = _leg(carry, agent, agent.stream_resume(run.thread_id, answers), desk)
        desk.progress.take(run)
    return run


def _leg(carry: Carry, agent: Agent, events: RunStream, desk: Desk) -> Run:
    with open_view(desk.terminal, desk.progress, quiet=desk.json) as view:
        carry(_follow(events, view))
    end = desk.progress.end or {}
    if end.get("type") == "error":
        raise _error(end)
    return events.run or carry(agent.get(desk.progress.thread_id))


async def _follow(events: RunStream, view: View) -> None:
    async with events:
        async for event in events:
            view.show(event)


def _interrupted(desk: Desk, code: Exit) -> Exit:
    thread = desk.progress.thread_id
    desk.terminal.line("")
    if not thread:
        desk.terminal.line("Interrupted before anything was started.", "yellow")
        return code
    words = _resume(desk)
    said = "Terminated" if code is Exit.TERMINATED else "Interrupted"
    desk.terminal.line(f"{said}; what was done is kept. Go on with: {words}", "yellow")
    if desk.json:
        print_json({"schema_version": SCHEMA_VERSION, "thread_id": thread, "status": "running", "resume": words})
    return code


def _resume(desk: Desk) -> str:
    return resume_words(desk.progress.thread_id, desk.storage)
