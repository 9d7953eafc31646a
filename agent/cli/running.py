"""A run at the terminal: work until a person is needed, ask, continue, and end on Ctrl-C or SIGTERM.

People are asked outside the event loop, so that Ctrl-C works while they think.
"""

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, Self, TypeVar

from donewhen.agent.agent import Agent
from donewhen.agent.cli.options import OutputOptions
from donewhen.agent.cli.result import Exit, next_text, print_json, report, resume_words
from donewhen.agent.cli.screen.asking import PROMPT, Later, Person
from donewhen.agent.cli.screen.terminal import Terminal
from donewhen.agent.cli.screen.typing import Keyboard
from donewhen.agent.cli.screen.views import Progress, View
from donewhen.agent.run import Run
from donewhen.agent.stream import RunStream
from donewhen.state import errors
from donewhen.state.records import Pause

PATIENCE = 10.0
"""Seconds that current work has to end before it is cut off; a second signal cuts it off at once."""
AGAIN = 0.3
"""Seconds after which work that was cut off and still waits is cut off again."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
Ended = TypeVar("Ended")


@dataclass(frozen=True)
class ReadyAgent:
    """An agent ready to work, and its tools that cannot leave the folder."""

    agent: Agent
    confined: Collection[str]


@dataclass
class Desk:
    """Handles a run's pauses and its end: a person, `--yes`, or nobody."""

    terminal: Terminal
    output: OutputOptions
    confined: Collection[str] = ()
    """Tools that cannot leave the root; `--yes` approves only their calls."""
    again: Callable[[Agent, str, str], RunStream] | None = None
    """Starts another request on a thread from agent, goal and thread id; None if there is only one request."""
    progress: Progress = field(default_factory=Progress)
    drafts: dict[str, str] = field(default_factory=dict)
    """Unsent edits of plans, by the pause's id."""

    def answers(self, run: Run) -> dict[str, Any] | None:
        """Return answers by id to the open questions; None if nobody answers now."""
        if run.status != "waiting":
            return None
        if self.output.yes and (
            agreed := {pause["id"]: {"type": "approve"} for pause in run.pending if self._is_agreed(pause)}
        ):
            return agreed
        if not self.terminal.interactive:
            return None
        self._discard_typed()
        self.progress.plan = None  # the person sees it now
        person = Person(self.terminal, self.terminal.read, self.output.archive.config.editor, self.drafts)
        try:
            return {run.pending[0]["id"]: person.ask(run.pending[0])}
        except Later:
            return None

    def take(self, run: Run) -> None:
        """Note the state of the run; from here on the terminal uses its language."""
        self.progress.take(run)
        self.terminal = self.terminal.in_language(run.language)

    def next_goal(self, run: Run) -> str:
        """Ask the person for the next goal; return "" for none."""
        if self.again is None or run.status in ("waiting", "running") or not self.terminal.interactive:
            return ""
        self._discard_typed()
        self.terminal.line("")
        self.terminal.line(self.terminal.say("follow_up"), "dim")
        try:
            return self.terminal.read(PROMPT).strip()
        except (EOFError, KeyboardInterrupt):
            return ""

    def _discard_typed(self) -> None:
        """Keep what was typed while the run worked from being an answer or the next goal, and say so."""
        steer = resume_words(self.progress.thread_id, self.output.archive.storage_option, "--steer", "…")
        if self.terminal.discard_typed() and steer:
            self.terminal.line(self.terminal.say("unread", command=steer), "dim", whole=True)

    def _is_agreed(self, pause: Pause) -> bool:
        """Return whether --yes covers a pause; an answer that was refused is not repeated blindly."""
        if pause.get("problem"):
            return False
        return pause["kind"] == "plan" or (pause["kind"] == "tool" and pause.get("tool") in self.confined)

    def resume(self) -> str | None:
        """Return the command that continues the run, if one can."""
        return resume_words(self.progress.thread_id, self.output.archive.storage_option)

    def say_stopping(self) -> None:
        """Say that the run will stop, below the line where the terminal shows the key."""
        self.terminal.line(f"\n{self.terminal.say('stopping')}")

    def go_on(self) -> str:
        """Return how to continue, in words."""
        return next_text(self.terminal, "go_on_with", self.resume())


Open = Callable[[AsyncExitStack], Coroutine[Any, Any, ReadyAgent]]
Carry = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs the agent to its next pause or end."""
Begin = Callable[[Agent, Progress], Coroutine[Any, Any, RunStream | Run]]


def work(open_agent: Open, begin: Begin, desk: Desk) -> Exit:
    """Carry a run on until nobody answers any more. `begin` returns its first events, or its current state."""
    archive = desk.output.archive
    with asyncio.Runner() as runner, Stopping(desk.say_stopping) as stopping, mute_log(archive.config.log):
        stack = AsyncExitStack()
        try:
            opened = stopping.run(runner, open_agent(stack))
            desk.confined = opened.confined
            carry = partial(stopping.run, runner, drain=opened.agent.drain)
            while True:
                run = _carry_on(carry, opened.agent, begin, desk, lambda: stopping.is_asked)
                if stopping.is_asked and run.status == "running":
                    raise stopping.error()
                shown = desk.progress.answer.whole
                code = report(
                    run, desk.terminal, archive.storage_option, json=archive.json, quiet=desk.output.quiet, shown=shown
                )
                if not (goal := desk.next_goal(run)):
                    return code
                begin = partial(_again, desk, goal, run.thread_id)
        except KeyboardInterrupt as stop:
            return _report_interrupt(desk, Exit.TERMINATED if isinstance(stop, Terminated) else Exit.INTERRUPTED)
        except errors.DoneWhenError:
            if desk.progress.started:
                if desk.resume():
                    desk.terminal.line(desk.terminal.say("kept"))
                desk.terminal.line(desk.go_on(), whole=True)
            raise
        finally:
            runner.run(stack.aclose())


@contextmanager
def mute_log(log: str) -> Iterator[None]:
    """Keep the log from repeating what the terminal shows, unless a log was asked for."""
    logger = logging.getLogger("donewhen.graph")
    logger.disabled = not log
    try:
        yield
    finally:
        logger.disabled = False


async def _again(desk: Desk, goal: str, thread_id: str, agent: Agent, progress: Progress) -> RunStream:
    assert desk.again is not None
    progress.rows = {}
    return desk.again(agent, goal, thread_id)


def _carry_on(carry: Carry, agent: Agent, begin: Begin, desk: Desk, ended: Callable[[], bool]) -> Run:
    """Return the run once nobody answers any more, or the command was asked to end."""
    first = carry(begin(agent, desk.progress))
    run = first if isinstance(first, Run) else _follow_events(carry, agent, first, desk)
    desk.take(run)
    while not ended() and (answers := desk.answers(run)) is not None:
        run = _follow_events(carry, agent, agent.stream_resume(run.thread_id, answers), desk)
        desk.take(run)
    return run


def _follow_events(carry: Carry, agent: Agent, events: RunStream, desk: Desk) -> Run:
    with View(desk.terminal, desk.progress, quiet=desk.output.archive.json or desk.output.quiet) as view:
        carry(_follow(events, view, agent, desk))
    end = desk.progress.end or {}
    if end.get("type") == "error":
        raise _error(end)
    return events.run or carry(agent.get(desk.progress.thread_id))


async def _follow(events: RunStream, view: View, agent: Agent, desk: Desk) -> None:
    async with events, _listening(view, agent, desk):
        async for event in events:
            view.show(event)
            if desk.output.events:
                print_json(event)


@asynccontextmanager
async def _listening(view: View, agent: Agent, desk: Desk) -> AsyncIterator[None]:
    """Tell the run what a person types meanwhile, line by line; show what was not sent in the end."""
    if view.live is None or not view.terminal.listens:
        yield
        return
    sending, in_order = list[asyncio.Task[None]](), asyncio.Lock()

    async def send(text: str) -> None:
        async with in_order:
            try:
                await agent.tell(desk.progress.thread_id, text)
            except errors.DoneWhenError as error:
                desk.terminal.line(desk.terminal.say("not_sent", text=text, why=error), "yellow")
            else:
                desk.terminal.line(desk.terminal.say("sent", text=text), "dim")

    with Keyboard(sys.stdin.fileno(), lambda text: sending.append(asyncio.create_task(send(text)))) as keyboard:
        view.draft = lambda: keyboard.draft
        try:
            yield
        finally:
            view.draft = None
    await asyncio.gather(*sending)
    if keyboard.draft.strip():
        desk.terminal.line(
            desk.terminal.say("not_sent", text=keyboard.draft, why=desk.terminal.say("no_enter")), "yellow"
        )


def _error(event: Mapping[str, Any]) -> errors.DoneWhenError:
    """Return the error of a terminal event; one of ours by its name, if it is one."""
    kind = getattr(errors, str(event.get("kind")), errors.DoneWhenError)
    known = isinstance(kind, type) and issubclass(kind, errors.DoneWhenError) and kind is not errors.PlanError
    return kind(str(event.get("text"))) if known else errors.DoneWhenError(str(event.get("text")))


def _report_interrupt(desk: Desk, code: Exit) -> Exit:
    say = desk.terminal.say
    desk.terminal.line("")
    if not desk.progress.thread_id:
        desk.terminal.line(say("not_started"), "yellow")
        return code
    desk.terminal.line(say("terminated" if code is Exit.TERMINATED else "interrupted"), "yellow")
    desk.terminal.line(desk.go_on(), "yellow", whole=True)
    desk.output.archive.finish({"thread_id": desk.progress.thread_id, "status": "running", "resume": desk.resume()})
    return code


class Terminated(KeyboardInterrupt):
    """The command was ended by SIGTERM."""


class Stopping:
    """While entered, both signals interrupt the command; while the agent runs, they ask it to stop first.

    The first signal lets the current call end, and `say` tells the person; the second one stops at once.
    """

    def __init__(self, say: Callable[[], None]) -> None:
        self._say = say
        self._came: list[int] = []
        self._drain: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._before: dict[int, Any] = {}

    @property
    def is_asked(self) -> bool:
        """Return whether the command was asked to end."""
        return bool(self._came)

    def error(self) -> KeyboardInterrupt:
        """Return the exception that ends the command."""
        return Terminated() if signal.SIGTERM in self._came else KeyboardInterrupt()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(
        self, runner: asyncio.Runner, work: Coroutine[Any, Any, Ended], drain: Callable[[], None] | None = None
    ) -> Ended:
        """Run a coroutine to its end, which may come early. Raises `error` if it had to be cut off.

        Without `drain` it is cut off at once.
        """
        self._drain, self._loop = drain, runner.get_loop()
        try:
            return runner.run(self._remember(work))
        except asyncio.CancelledError:
            if self._came:
                raise self.error() from None
            raise
        finally:
            self._loop = self._task = None

    async def _remember(self, work: Coroutine[Any, Any, Ended]) -> Ended:
        self._task = asyncio.current_task()
        return await work

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._came.append(number)
        if self._loop is None or len(self._came) > len(SIGNALS):
            raise self.error()
        self._loop.call_soon_threadsafe(self._stop, len(self._came) > 1)

    def _stop(self, again: bool) -> None:
        """Ask the run to stop, in the loop; cut it off later, or on a second request."""
        if self._drain is not None:
            self._drain()
        if self._loop is None or self._task is None:
            return  # it ended meanwhile
        waits = self._drain is not None and not again
        if waits:
            self._say()
        self._loop.call_later(PATIENCE if waits else 0.0, self._task.cancel)
        if again:
            self._loop.call_later(AGAIN, self._task.cancel)
