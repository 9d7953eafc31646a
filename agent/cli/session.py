"""From options to work: what a run was told, which thread is meant, and the agent for it.

The thread keeps its choices, so that resuming needs only the id.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from donewhen.agent.agent import Agent
from donewhen.agent.cli.options import NO_ANSWER, AnswerOptions, Choices, RunOptions, absolute, attached, chosen
from donewhen.agent.cli.result import SCHEMA_VERSION, Exit, print_json
from donewhen.agent.cli.running import Desk, ReadyAgent, work
from donewhen.agent.cli.screen.asking import PROMPT
from donewhen.agent.cli.screen.terminal import Terminal, open_terminal
from donewhen.agent.cli.screen.views import Progress
from donewhen.agent.config import DEMO, Config, read_config
from donewhen.agent.logs import set_up
from donewhen.agent.storage import open_storage
from donewhen.agent.storage.storage import parse_url
from donewhen.agent.stream import RunStream
from donewhen.agent.work.threads import ThreadInfo, list_threads
from donewhen.agent.workspace import workspace_tools
from donewhen.state.errors import ConfigError, GoalError, UnknownThread
from donewhen.state.language.scripts import spoken

QUEUE = "command"
"""Whose workers carry out what the command detaches and schedules: `donewhen worker`."""
SEVERAL = 6
"""Threads that are named where the beginning of an id fits them all."""


@dataclass(frozen=True)
class OutputOptions:
    """What a command writes, and whether it asks."""

    storage: str | None
    yes: bool = False
    json: bool = False
    events: bool = False
    """One JSON object a line for every event, the result last."""
    quiet: bool = False
    once: bool = False
    """Nobody is asked anything; one request only."""

    def terminal(self, config: Config, goal: str = "") -> Terminal:
        """The terminal, which speaks the language of the goal."""
        may_ask = not (self.json or self.events or self.once)
        return open_terminal(plain=config.plain, may_ask=may_ask, language=spoken(goal))

    def desk(self, terminal: Terminal, config: Config, choices: "Choices") -> Desk:
        """Where the run's pauses and its end land."""

        def again(agent: Agent, goal: str, thread_id: str) -> RunStream:
            return agent.stream(goal, thread_id=thread_id, metadata=asdict(choices))

        asks_on = terminal.answers_here and terminal.interactive and not self.yes
        json = self.json or self.events
        desk = Desk(terminal, config, json, self.yes, self.storage, self.quiet, self.events)
        desk.again = again if asks_on else None
        return desk


def run_goal(request: RunOptions, output: OutputOptions) -> int:
    """Start a run and carry it as far as it goes at this terminal."""
    config = configured(output.storage)
    goal = request.goal if request.template else _goal(request, output.terminal(config))
    images = [attached(path) for path in request.images]
    terminal = output.terminal(config, goal)
    unasked = output.yes or request.settings.get("confirm") == "never"
    choices = chosen(request, config, unattended=unasked and not terminal.interactive)
    thread = _conversation(request, config, output.storage)
    if choices.model == DEMO and not output.quiet:
        hint = "" if config.model else f" {terminal.say('real')}"
        terminal.line(f"{terminal.say('demo')}{hint}", "dim")

    given: Any = [{"type": "text", "text": goal}, *images] if images else goal or None
    more: Any = {"thread_id": thread, "metadata": asdict(choices)}
    more |= {"template": request.template, "parameters": request.parameters}
    if request.detach:
        if output.yes:
            choices.settings.setdefault("confirm", "never")
        return _detached(choices, config, output, lambda agent: agent.submit(given, **more))

    async def begin(agent: Agent, progress: Progress) -> Any:
        agent.models("triage")  # a missing key or a wrong name is said before anything is started
        return agent.stream(given, **more)

    return work(lambda stack: open_agent(stack, choices, config), begin, output.desk(terminal, config, choices))


def resume_thread(
    thread: str, reply: AnswerOptions, output: OutputOptions, *, model: str | None, dir: Path | None, detach: bool
) -> int:
    """Answer what a thread waits for, or go on with it, with its own model and folder or with others."""
    value, config = reply.value(), configured(output.storage)
    info = remembered(thread, config, output.storage)
    terminal = output.terminal(config, info.goal)
    choices = Choices.read(info.metadata)
    choices = replace(choices, model=model or choices.model, dir=absolute(dir) if dir else choices.dir)

    if detach:
        if value is NO_ANSWER:
            raise ConfigError("--detach leaves an answer to a worker: give one, such as --approve")
        return _detached(choices, config, output, lambda agent: agent.submit_answer(info.thread_id, value))

    async def begin(agent: Agent, progress: Progress) -> Any:
        run = await agent.get(info.thread_id)
        progress.take(run)
        if value is not NO_ANSWER:
            return agent.stream_resume(info.thread_id, value)
        # Whoever sits at the terminal is asked first; the policy answers overdue questions where nobody is.
        goes_on = run.status in ("running", "queued") or (run.status == "waiting" and not terminal.interactive)
        return agent.stream_resume(info.thread_id) if goes_on else run

    return work(lambda stack: open_agent(stack, choices, config), begin, output.desk(terminal, config, choices))


def _detached(
    choices: Choices, config: Config, output: OutputOptions, submit: Callable[[Agent], Coroutine[Any, Any, str]]
) -> int:
    """Write down what a worker is to do, and print the thread's id."""

    async def write() -> str:
        async with Agent(
            choices.model, storage=config.storage, settings=choices.settings, queue=QUEUE, config=config
        ) as agent:
            agent.models("triage")
            return await submit(agent)

    thread = asyncio.run(write())
    if output.json:
        print_json({"schema_version": SCHEMA_VERSION, "thread_id": thread, "status": "queued"})
    else:
        print(thread)
    return Exit.COMPLETED


def serve_page(request: RunOptions, *, storage: str | None, port: int, browser: bool) -> int:
    """Serve the page until somebody ends it."""
    from donewhen.agent.page.serving import serve

    config = configured(storage)
    choices, terminal = chosen(request, config, unattended=False), open_terminal(plain=config.plain)
    if choices.model == DEMO:
        terminal.line(f"{terminal.say('demo')} {terminal.say('real')}", "dim")

    async def opened(stack: AsyncExitStack) -> Agent:
        return (await open_agent(stack, choices, config)).agent

    def say(link: str) -> None:
        terminal.line(link, whole=True)

    with suppress(KeyboardInterrupt):
        asyncio.run(serve(opened, asdict(choices), port=port, browser=browser, say=say))
    return 0


def serve_mcp(request: RunOptions, *, storage: str | None) -> int:
    """Serve over stdin and stdout until the host hangs up."""
    from donewhen.agent.mcp.server import mcp_server

    config = configured(storage)
    choices = chosen(request, config, unattended=False)

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            opened = await open_agent(stack, choices, config)
            await mcp_server(opened.agent).run_stdio_async()

    with suppress(KeyboardInterrupt):
        asyncio.run(serve())
    return 0


# --- threads


def configured(storage: str | None) -> Config:
    """The configuration, with the storage that an option names."""
    config = read_config()
    set_up(config.log)
    return replace(config, storage=storage) if storage else config


def reader(config: Config) -> Agent:
    """An agent to read threads with: no tools, and a model that is never asked."""
    return Agent(DEMO, storage=config.storage, config=config)


def stored(config: Config, storage: str | None) -> bool:
    """Whether there is anything to read: looking creates no database. Raises ConfigError for a missing one by name."""
    location = parse_url(config.storage)
    missing = location.kind == "sqlite" and not location.path.exists()
    if missing and storage:
        raise ConfigError(f"there is no database {location.display}")
    return not missing


def remembered(thread: str, config: Config, storage: str | None, *, ended: bool = False) -> ThreadInfo:
    """The thread that is meant: by its id or the beginning of it, else the latest that waits or was cut off.

    `ended`: the latest, whatever became of it.
    """

    async def find() -> ThreadInfo:
        states = () if thread or ended else ("waiting", "running")
        async with open_storage(config.storage, key=config.key) as opened:
            found = await list_threads(opened, SEVERAL if thread else 1, status=states, prefix=thread)
        if exact := [info for info in found if info.thread_id == thread] or found[: not thread]:
            return exact[0]
        if len(found) > 1:
            raise UnknownThread(f"several threads begin with {thread!r}: {', '.join(i.thread_id for i in found[:5])}")
        if not found and not thread:
            raise UnknownThread("no run waits or was cut off; `donewhen threads` lists all runs")
        if not found:
            raise UnknownThread(f"there is no thread {thread!r}; `donewhen threads` lists all")
        return found[0]

    if not stored(config, storage):
        raise UnknownThread(f"there is no thread {thread!r}: nothing was run yet" if thread else "nothing was run yet")
    return asyncio.run(find())


async def open_agent(stack: AsyncExitStack, choices: Choices, config: Config) -> ReadyAgent:
    """The agent for these choices; MCP servers stay up until `stack` closes."""
    tools = workspace_tools(choices.dir, commands=choices.allow_commands)
    confined = frozenset(tool.name for tool in tools if tool.name != "run_command")
    if choices.mcp is not None:
        from donewhen.agent.mcp.client import McpServers

        names = [tool.name for tool in tools]
        servers = McpServers(choices.mcp, environment=config.variables, reserved=names)
        tools = [*tools, *(await stack.enter_async_context(servers)).tools]
    agent = Agent(choices.model, tools, storage=config.storage, settings=choices.settings, queue=QUEUE, config=config)
    return ReadyAgent(await stack.enter_async_context(agent), confined)


# --- options


def _goal(request: RunOptions, terminal: Terminal) -> str:
    """The goal from the arguments, from stdin, from both, or typed. Raises GoalError if there is none."""
    given = "" if request.goal == "-" else request.goal
    piped = request.stdin or request.goal == "-" or (not given and not sys.stdin.isatty())
    if not given and not piped and terminal.interactive:
        terminal.line(terminal.say("goal"), "dim")
        with suppress(EOFError):
            given = terminal.read(PROMPT)
    goal = "\n\n".join(part for part in (given, sys.stdin.read() if piped else "") if part.strip())
    if not goal.strip():
        raise GoalError('say what you want done: donewhen run "…", or give it on stdin')
    return goal


def _conversation(request: RunOptions, config: Config, storage: str | None) -> str | None:
    """The thread to go on in: by name, or the latest; None for a new one."""
    if request.latest and request.thread:
        raise ConfigError("--resume goes on in the latest conversation; --thread names another: give one of them")
    return remembered("", config, storage, ended=True).thread_id if request.latest else request.thread
