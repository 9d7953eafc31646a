"""A run at the terminal: work until a person is needed, ask, continue, and end on Ctrl-C or SIGTERM.

People are asked outside the event loop, so that Ctrl-C works while they think.
"""

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Self, TypeVar

import donewhen
from donewhen import Agent, DoneWhenError, Run
from donewhen.agent.cli.exits import Exit, print_json
from donewhen.agent.cli.options import OutputOptions
from donewhen.agent.cli.result import next_text, report, resume_words
from donewhen.agent.cli.screen.asking import PROMPT, Later, Person
from donewhen.agent.cli.screen.terminal import Keyboard, Terminal
from donewhen.agent.cli.screen.views import Progress, View
from donewhen.clients import YES, Json
from donewhen.errors import PlanError
from donewhen.types import Pause, RunStream
from donewhen.workspace import WORKSPACE_TOOLS

STOP_SECONDS = 10.0
"""Seconds that current work has to end before it is cut off; a second signal cuts it off at once."""
CUT_AGAIN_SECONDS = 0.3
"""Seconds after which work that goes on after a second signal is cut off once more."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
CONFINED = frozenset(WORKSPACE_TOOLS) - {"run_command"}
"""Tools that cannot leave the folder; no MCP server may use their names. `--yes` approves no other call that asks."""
Result = TypeVar("Result")
OpenAgent = Callable[[AsyncExitStack], Coroutine[Any, Any, Agent]]
Begin = Callable[[Agent], Coroutine[Any, Any, RunStream | Run]]
"""Returns the first events of a run, or its current state."""


@dataclass
class TerminalRun:
    """A run whose questions are answered by the person at the terminal, by `--yes`, or by nobody."""

    terminal: Terminal
    output: OutputOptions
    metadata: Json | None = None
    """The metadata of further requests on the thread; None if there will be none."""
    progress: Progress = field(default_factory=Progress)
    drafts: dict[str, str] = field(default_factory=dict)
    """Unsent edits of plans, by the pause's id."""
    seen: set[str] = field(default_factory=set)
    """The ids of the plans that were shown."""
    agent: Agent = field(init=False)
    stopping: "Stopping" = field(init=False)

    def work(self, open_agent: OpenAgent, begin: Begin) -> Exit:
        """Continue the run until nobody answers its questions, and print its state."""
        view = self.output.view
        with asyncio.Runner() as runner, Stopping(runner, self._say_stopping) as stopping, mute_log(view.config.log):
            self.stopping, stack = stopping, AsyncExitStack()
            try:
                self.agent = stopping.run(open_agent(stack))
                stopping.drain = self.agent.drain
                begun = stopping.run(begin(self.agent))
                while True:
                    run = self._carry_on(begun)
                    if stopping.is_asked and run.status == "running":
                        raise KeyboardInterrupt
                    shown, quiet = self.progress.answer.whole, self.output.quiet
                    code = report(run, self.terminal, view.storage_option, json=view.json, quiet=quiet, shown=shown)
                    if stopping.is_asked:
                        return stopping.code if run.status == "waiting" else code
                    if not (goal := self._next_goal(run)):
                        return code
                    self.progress.rows = {}
                    begun = self.agent.stream(goal, thread_id=run.thread_id, metadata=self.metadata)
            except KeyboardInterrupt:
                return self._report_interrupt(stopping.code)
            except DoneWhenError:
                if self.progress.started:
                    if self._resume_command():
                        self.terminal.line(self.terminal.say("kept"))
                    self.terminal.line(self._how_to_go_on(), whole=True)
                raise
            finally:
                runner.run(stack.aclose())

    def _carry_on(self, begun: RunStream | Run) -> Run:
        """Return the run once nobody answers any more, or the command was asked to end."""
        run = begun if isinstance(begun, Run) else self._follow(begun)
        self.take(run)
        while not self.stopping.is_asked and (answered := self._answers(run)) is not None:
            answers, by = answered
            run = self._follow(self.agent.stream_resume(run.thread_id, answers, by=by))
            self.take(run)
        return run

    def take(self, run: Run) -> None:
        """Note the state of the run; from here on the terminal uses its language."""
        self.progress.take(run)
        self.terminal = replace(self.terminal, language=run.language)

    # Following events ------------------------------------------------------------------------------------------------

    def _follow(self, events: RunStream) -> Run:
        """Show the events, and return the run as they leave it."""
        with View(self.terminal, self.progress, quiet=self.output.view.json or self.output.quiet) as view:
            self.stopping.run(self._show(events, view))
        end = self.progress.end or {}
        if end.get("type") == "error":
            raise _error(end)
        return events.run or self.stopping.run(self.agent.get(self.progress.thread_id))

    async def _show(self, events: RunStream, view: View) -> None:
        async with events, self._listening(view):
            async for event in events:
                view.show(event)
                if self.output.events:
                    print_json(event)

    @asynccontextmanager
    async def _listening(self, view: View) -> AsyncIterator[None]:
        """Tell the run what a person types meanwhile, line by line; show what was not sent in the end."""
        terminal = self.terminal
        if view.live is None or not terminal.listens:
            yield
            return
        sending, in_order = list[asyncio.Task[None]](), asyncio.Lock()

        async def send(text: str) -> None:
            async with in_order:
                try:
                    await self.agent.tell(self.progress.thread_id, text)
                except DoneWhenError as error:
                    terminal.line(terminal.say("not_sent", text=text, why=error), "yellow")
                else:
                    terminal.line(terminal.say("sent", text=text), "dim")

        with Keyboard(sys.stdin.fileno(), lambda text: sending.append(asyncio.create_task(send(text)))) as keyboard:
            view.draft = lambda: keyboard.draft
            try:
                yield
            finally:
                view.draft = None
        await asyncio.gather(*sending)
        if keyboard.draft.strip():
            terminal.line(terminal.say("not_sent", text=keyboard.draft, why=terminal.say("no_enter")), "yellow")

    # Asking the person -----------------------------------------------------------------------------------------------

    def _answers(self, run: Run) -> tuple[dict[str, Any], str] | None:
        """Return answers by id to the open questions, and the name of who gives them; None if nobody answers now."""
        if run.status != "waiting":
            return None
        if self.output.yes and (approved := [pause["id"] for pause in run.pending if is_approved_by_yes(pause)]):
            return {id: {"type": "approve"} for id in approved}, YES
        if self.output.yes and any(map(repeats, run.pending)):
            self.terminal.line(self.terminal.say("yes_not_schedule"), "yellow")
        if not self.terminal.interactive:
            return None
        self._discard_typed()
        self.progress.plan = None  # the person sees it now
        person = Person(self.terminal, self.terminal.read, self.output.view.config.editor, self.drafts, self.seen)
        try:
            return {run.pending[0]["id"]: person.ask(run.pending[0])}, ""
        except Later:
            return None

    def _next_goal(self, run: Run) -> str:
        """Ask the person for the next goal; return "" for none."""
        if self.metadata is None or run.status in ("waiting", "running") or not self.terminal.interactive:
            return ""
        self._discard_typed()
        self.terminal.line("")
        self.terminal.line(self.terminal.say("follow_up"), "dim")
        try:
            return self.terminal.read(PROMPT).strip()
        except (EOFError, KeyboardInterrupt):
            return ""

    def _discard_typed(self) -> None:
        """Discard what was typed while the run worked, so that it is no answer and no next goal; say so."""
        if self.terminal.discard_typed() and (steer := self._resume_command("--steer", "…")):
            self.terminal.line(self.terminal.say("unread", command=steer), "dim", whole=True)

    # Stopping --------------------------------------------------------------------------------------------------------

    def _resume_command(self, *answer: str) -> str | None:
        """Return the command that continues the run; None if none can."""
        return resume_words(self.progress.thread_id, self.output.view.storage_option, *answer)

    def _how_to_go_on(self) -> str:
        """Return in words how to continue."""
        return next_text(self.terminal, "go_on_with", self._resume_command())

    def _say_stopping(self) -> None:
        """Say that the run will stop, below the line where the terminal shows the key."""
        self.terminal.line(f"\n{self.terminal.say('stopping')}")

    def _report_interrupt(self, code: Exit) -> Exit:
        terminal, thread_id = self.terminal, self.progress.thread_id
        terminal.line("")
        if not thread_id:
            terminal.line(terminal.say("not_started"), "yellow")
            return code
        terminal.line(terminal.say("terminated" if code is Exit.TERMINATED else "interrupted"), "yellow")
        terminal.line(self._how_to_go_on(), "yellow", whole=True)
        self.output.view.finish({"thread_id": thread_id, "status": "running", "resume": self._resume_command()})
        return code


@contextmanager
def mute_log(log: str) -> Iterator[None]:
    """Keep the log from repeating what the terminal shows, unless a log was asked for."""
    logger = logging.getLogger("donewhen.graph")
    logger.disabled = not log
    try:
        yield
    finally:
        logger.disabled = False


def repeats(pause: Pause) -> bool:
    """Return whether a pause asks about a plan with a schedule."""
    return pause["kind"] == "plan" and bool(pause["plan"].get("schedule"))


def is_approved_by_yes(pause: Pause) -> bool:
    """Return whether --yes approves what a pause asks about; not if that answer was refused before.

    A schedule is left to a person, also where `confirm` is `never`; so is what a hook asks, or is for somebody named.
    """
    if pause.get("problem") or repeats(pause) or pause.get("hook") or pause.get("answered_by"):
        return False
    return pause["kind"] == "plan" or (pause["kind"] == "tool" and pause.get("tool") in CONFINED)


def _error(event: Mapping[str, Any]) -> DoneWhenError:
    """Return the error in an event that ends a stream, with its own class if that is one of ours."""
    kind = getattr(donewhen, str(event.get("kind")), DoneWhenError)
    is_ours = isinstance(kind, type) and issubclass(kind, DoneWhenError) and kind is not PlanError
    return kind(str(event.get("text"))) if is_ours else DoneWhenError(str(event.get("text")))


class Stopping:
    """Handles SIGINT and SIGTERM: they interrupt the command, but first ask a working agent to stop.

    The first signal lets the current call end, and `say` tells the person; the second one stops at once.
    """

    def __init__(self, runner: asyncio.Runner, say: Callable[[], None]) -> None:
        self.drain: Callable[[], None] | None = None
        """Asks the agent to stop at a clean point; without it, work is cut off at once."""
        self._runner = runner
        self._say = say
        self._signals: list[int] = []
        """Those that came, in order."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._handlers: dict[int, Any] = {}
        """The handlers that these signals had before."""

    @property
    def is_asked(self) -> bool:
        """Return whether the command was asked to end."""
        return bool(self._signals)

    @property
    def code(self) -> Exit:
        """The exit code of the command if its run is not over."""
        return Exit.TERMINATED if signal.SIGTERM in self._signals else Exit.INTERRUPTED

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._handlers = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine to its end. Raises KeyboardInterrupt if it had to be cut off."""
        self._loop = self._runner.get_loop()
        try:
            return self._runner.run(self._remember(work))
        except asyncio.CancelledError:
            if self._signals:
                raise KeyboardInterrupt from None
            raise
        finally:
            self._loop = self._task = None

    async def _remember(self, work: Coroutine[Any, Any, Result]) -> Result:
        self._task = asyncio.current_task()
        return await work

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)
        if self._loop is None or len(self._signals) > len(SIGNALS):
            raise KeyboardInterrupt
        self._loop.call_soon_threadsafe(self._stop, len(self._signals) > 1)

    def _stop(self, again: bool) -> None:
        """Ask the run to stop, in the loop; cut it off later, or on a second request."""
        if self.drain is not None:
            self.drain()
        if self._loop is None or self._task is None:
            return  # it ended meanwhile
        may_end = self.drain is not None and not again
        if may_end:
            self._say()
        self._loop.call_later(STOP_SECONDS if may_end else 0.0, self._task.cancel)
        if again:
            self._loop.call_later(CUT_AGAIN_SECONDS, self._task.cancel)
