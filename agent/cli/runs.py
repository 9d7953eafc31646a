"""Carry out commands: find the thread, and create the agent for it.

The thread keeps its choices, so that resuming needs only the id.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool

from donewhen import Agent, AgentOptions, ConfigError, GoalError
from donewhen.agent.cli.exits import Exit
from donewhen.agent.cli.options import (
    AnswerOptions,
    Choices,
    OutputOptions,
    RunOptions,
    read_attachment,
    read_choices,
    read_stdin,
    resolve_folder,
)
from donewhen.agent.cli.result import command_line, run_again_words
from donewhen.agent.cli.screen.asking import PROMPT, agrees, is_meant
from donewhen.agent.cli.screen.terminal import Terminal, open_terminal
from donewhen.agent.cli.storage_view import QUEUE, StorageView, agent_without_tools
from donewhen.agent.cli.terminal_run import TerminalRun, mute_log, repeats
from donewhen.agent.config import Config
from donewhen.agent.request import MISSING
from donewhen.agent.storage import CUT_OFF
from donewhen.agent.work.news import Notify, notify_of
from donewhen.agent.workspace.box import find_box
from donewhen.clients import DEMO, Json, known_language, primary_language
from donewhen.workspace import Skills, workspace_tools


def _terminal(output: OutputOptions, settings: Mapping[str, Any]) -> Terminal:
    """Return the terminal; it uses the settings' language until a model declares another one."""
    profiles = (settings.get("profile") or {}, output.view.config.profile)
    language = known_language(*(profile.get("language") for profile in profiles), settings.get("language"))
    may_ask = not (output.view.json or output.once)
    return open_terminal(plain=output.view.config.plain, may_ask=may_ask, language=language)


def _notify(run: TerminalRun) -> Notify | None:
    """Return the webhook of the environment; with --yes it hears nothing of plans that are approved at once."""
    config = run.output.view.config
    if (hook := notify_of(config)) is None or not run.output.yes:
        return hook

    async def tell(event: Json) -> None:
        kinds = {question["kind"] for question in event["data"].get("questions", ())}
        is_plan = event["subject"] == run.progress.thread_id and kinds == {"plan"}
        if not is_plan or any(map(repeats, (await run.agent.get(run.progress.thread_id)).pending)):
            await hook(event)

    return tell


def _terminal_run(output: OutputOptions, terminal: Terminal, choices: Choices) -> TerminalRun:
    """Return a run at this terminal; where a person sees its answer, they may give the next goal."""
    takes_next_goal = terminal.answers_here and terminal.interactive and not output.yes
    return TerminalRun(terminal, output, asdict(choices) if takes_next_goal else None)


def _say_demo(terminal: Terminal, choices: Choices, config: Config) -> None:
    if choices.model == DEMO:
        hint = "" if config.model else f" {terminal.say('real')}"
        terminal.line(f"{terminal.say('demo')}{hint}", "dim")


def _say_language(terminal: Terminal, choices: Choices) -> None:
    """Say that the language that was set is no tag: models are told it, but no texts are known by it."""
    named = (choices.settings.get("profile") or {}).get("language") or choices.settings.get("language")
    if named and not primary_language(named):
        terminal.line(f"“{named}” is no language tag; write one such as de. Models are told it as it is.", "yellow")


def _say_boxless(terminal: Terminal, choices: Choices) -> None:
    """Say what allowed programs can reach if they have no box, because not every one of them asks.

    Raises ConfigError for a program that is not there: nothing is said of that.
    """
    if choices.allow_commands and find_box(choices.box, {}, network=choices.network) is None:
        (command,) = (tool for tool in _folder_tools(choices) if tool.name == "run_command")
        names, rights = ", ".join(choices.allow_commands), (command.metadata or {})["conditions"](terminal.language)
        terminal.line(terminal.say("boxless", names=names, rights=rights), "dim")


def _folder_tools(choices: Choices) -> list[BaseTool]:
    return workspace_tools(
        choices.dir, commands=choices.allow_commands, box=choices.box, network=choices.network, env=choices.env
    )


def _read_skills(terminal: Terminal, choices: Choices) -> Skills:
    """Read the skills; ask once whether to follow the folder's own. If nobody can be asked, they are not followed."""
    skills = Skills(choices.dir, trust=choices.trust_skills)
    if not (names := ", ".join(skills.untrusted)):
        return skills
    if not terminal.interactive:
        terminal.line(terminal.say("untrusted", names=names), "dim")
        return skills
    terminal.line(terminal.say("trust", names=names))
    if agrees(terminal, terminal.say("keys_trust")):
        skills.remember()
    return skills


def run_goal(request: RunOptions, output: OutputOptions) -> int:
    """Start a run and carry it as far as possible at this terminal."""
    config = output.view.config
    request = request.with_assignments()
    choices = read_choices(request, config)
    settings, terminal = choices.settings, _terminal(output, choices.settings)
    goal = request.goal if request.template else _goal(request, terminal)
    images = [read_attachment(path) for path in request.images]
    if output.yes and request.detach:  # the worker knows the settings, and nothing of --yes
        settings["confirm"] = "never"
    if not terminal.interactive and (output.yes or settings.get("confirm") == "never"):
        settings.setdefault("on_exhausted", "deliver")
    thread = _conversation(request, output.view)
    if not output.quiet:
        _say_demo(terminal, choices, config)
        _say_language(terminal, choices)
        _say_boxless(terminal, choices)
    skills = None if output.quiet else _read_skills(terminal, choices)
    if terminal.listens:
        settings.setdefault("when_busy", "next_round")

    goal_input: Any = [{"type": "text", "text": goal}, *images] if images else goal or None
    more: Any = {"thread_id": thread, "metadata": asdict(choices)}
    more |= {"template": request.template, "parameters": request.parameters}
    if request.detach:
        submit = partial(Agent.submit, goal=goal_input, **more)
        return _submit(output.view, QUEUE, submit, choices.model, settings)

    async def begin(agent: Agent) -> Any:
        agent.models("triage")  # raises for a missing key or a wrong name, before anything is started
        return agent.stream(goal_input, **more)

    run = _terminal_run(output, terminal, choices)
    return run.work(lambda stack: open_agent(stack, choices, config, terminal, _notify(run), skills), begin)


def resume_thread(
    thread: str | None,
    reply: AnswerOptions,
    output: OutputOptions,
    *,
    model: str | None,
    dir: Path | None,
    detach: bool,
) -> int:
    """Answer or continue a thread, with its own or another model and folder."""
    value, config = reply.value(), output.view.config
    info = output.view.thread(thread, ("waiting", "running", CUT_OFF) if thread is None else ())
    decides = value is not MISSING or reply.steer or output.yes
    keys = "[y] this one is meant  [n] leave it"
    if decides and thread is None and not is_meant(_terminal(output, {}), info, keys):
        return Exit.FAILED
    at_work = value is not MISSING and info.queue and info.status == "running"
    if detach or at_work or info.queue not in ("", QUEUE):  # only workers that have its tools can continue it
        if value is MISSING:
            raise ConfigError(f"workers of {info.queue or QUEUE!r} go on with it: give an answer, such as --approve")
        if not info.queue:
            Choices.read(info.metadata, f"thread {info.thread_id}")

        async def submit(agent: Agent) -> str:
            return await agent.submit_answer(info.thread_id, value, question=reply.id, by=reply.by)

        return _submit(output.view, info.queue or QUEUE, submit)

    choices = Choices.read(info.metadata, f"thread {info.thread_id}")
    choices = replace(choices, model=model or choices.model, dir=resolve_folder(dir) if dir else choices.dir)
    terminal = _terminal(output, choices.settings)
    terminal_run = _terminal_run(output, terminal, choices)

    async def begin(agent: Agent) -> Any:
        run = await agent.get(info.thread_id)
        terminal_run.take(run)
        if value is not MISSING or reply.steer:
            more: Any = {"question": reply.id, "by": reply.by, "steer": reply.steer}
            return agent.stream_resume(info.thread_id, value, **more)
        # A person at the terminal is asked first; without one, the policy answers overdue questions.
        goes_on = run.status in ("running", "queued") or (run.status == "waiting" and not terminal.interactive)
        return agent.stream_resume(info.thread_id) if goes_on else run

    code = terminal_run.work(lambda stack: open_agent(stack, choices, config, terminal, _notify(terminal_run)), begin)
    if command := run_again_words(info, info.status, output.view.storage):
        terminal.line(terminal.say("go_on_with", command=command), whole=True)
    return code


def audit_thread(thread: str, output: OutputOptions, judge: str | None) -> int:
    """Let a judge audit a thread's answer, with its own folder and model or another judge."""
    info, config = output.view.thread(thread), output.view.config
    stored_choices: Mapping[str, Any] = info.metadata if isinstance(info.metadata.get("dir"), str) else {"dir": ""}
    choices = Choices.read(stored_choices)
    if not stored_choices["dir"]:  # started by other code: the judge has what was observed, and no tools
        choices = replace(choices, model=config.model or DEMO)
    terminal = _terminal(output, choices.settings)

    async def begin(agent: Agent) -> Any:
        return await agent.audit(info.thread_id, {"models": {"judge": judge}} if judge else None)

    async def open_in_stack(stack: AsyncExitStack) -> Agent:
        if stored_choices["dir"]:
            return await open_agent(stack, choices, config, terminal)
        return await stack.enter_async_context(agent_without_tools(config, choices.model))

    return _terminal_run(output, terminal, choices).work(open_in_stack, begin)


def _submit(
    view: StorageView,
    queue: str,
    submit: Callable[[Agent], Coroutine[Any, Any, str]],
    model: str = DEMO,
    settings: Mapping[str, Any] | None = None,
) -> int:
    """Store work for a worker, and print the thread's id."""
    if not view.location.engine.shared:
        raise ConfigError("no worker can reach memory: give --storage sqlite:///… or postgresql://…")

    async def write() -> str:
        async with agent_without_tools(view.config, model, queue=queue, settings=settings) as agent:
            agent.models("triage")
            return await submit(agent)

    thread = asyncio.run(write())
    return view.finish({"thread_id": thread, "status": "queued"}, [thread])


@dataclass(frozen=True)
class ReceiptFiles:
    """Receipts as files for the page, signed with `key` if there is one."""

    key: str = ""

    async def export(self, agent: Agent, thread_id: str) -> str:
        """Return the receipt of a thread. Raises DoneWhenError before the request ends."""
        from donewhen.receipts import export_receipt

        return await export_receipt(agent, thread_id, self.key or None)

    def verify(self, text: str | bytes) -> Json:
        """Check a receipt; return the verification."""
        from donewhen.receipts import verify_receipt

        return verify_receipt(text).to_dict()


def serve_page(view: StorageView, request: RunOptions, *, port: int, browser: bool, also: Sequence[str] = ()) -> int:
    """Serve the page until it is ended; `also` are other models that may be chosen there."""
    from donewhen.agent.page.serving import Address, serve

    choices = read_choices(request.with_assignments(), view.config)
    choices.settings.setdefault("when_busy", "next_round")
    address = Address.read(view.config.state / "pages", choices.dir)
    tokens = {**view.config.tokens, "page": address.token}  # a secret: no tool tells it to a model
    config, terminal = replace(view.config, tokens=tokens), open_terminal(plain=view.config.plain)
    _say_demo(terminal, choices, config)
    _say_language(terminal, choices)
    skills = _read_skills(terminal, choices)

    async def open_in_stack(stack: AsyncExitStack) -> Agent:
        return await open_agent(stack, choices, config, terminal, skills=skills)

    def say(link: str) -> None:
        terminal.line(link, whole=True)

    with suppress(KeyboardInterrupt):
        page = serve(
            open_in_stack,
            asdict(choices),
            address,
            port=port,
            browser=browser,
            say=say,
            receipts=ReceiptFiles(config.receipt_key),
            also=also,
            opener=lambda folder: page_command(view, folder),
        )
        asyncio.run(page)
    return 0


def page_command(view: StorageView, folder: str) -> str:
    """Return the command that opens the page of another folder. Pages show it, so the storage has no password there."""
    return command_line(view.storage and view.location.display, "chat", "--dir", folder)


def serve_mcp(view: StorageView, request: RunOptions) -> int:
    """Serve on stdin and stdout until the host closes them."""
    from donewhen.servers import mcp_server

    config = view.config
    choices = read_choices(request, config)
    skills = _read_skills(open_terminal(plain=config.plain, may_ask=False), choices)

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            await mcp_server(await open_agent(stack, choices, config, skills=skills)).run_stdio_async()

    with suppress(KeyboardInterrupt), mute_log(config.log):
        asyncio.run(serve())
    return 0


def serve_acp(view: StorageView, request: RunOptions) -> int:
    """Serve an editor on stdin and stdout until it closes them; each of its folders has an agent."""
    try:
        from donewhen.agent.acp.server import serve
    except ImportError as error:
        raise ConfigError(f"an ACP server needs {error.name}: pip install 'donewhen[acp]'") from None

    config = view.config
    choices = read_choices(request, config)
    terminal = open_terminal(plain=config.plain, may_ask=False)

    async def serve_editor() -> None:
        async with AsyncExitStack() as stack:

            async def make(folder: str) -> Agent:
                here = replace(choices, dir=folder)
                skills = _read_skills(terminal, here)
                return await open_agent(stack, here, config, skills=skills)

            await serve(make, lambda folder: asdict(replace(choices, dir=folder)))

    with suppress(KeyboardInterrupt), mute_log(config.log):
        asyncio.run(serve_editor())
    return 0


async def open_agent(
    stack: AsyncExitStack,
    choices: Choices,
    config: Config,
    terminal: Terminal | None = None,
    notify: Notify | None = None,
    skills: Skills | None = None,
) -> Agent:
    """Return the agent for these choices; its MCP servers run until `stack` closes. Slow ones are reported."""

    def slow(server: str) -> None:
        if terminal:
            terminal.line(terminal.say("server_starts", server=server), "dim")

    tools = _folder_tools(choices)
    if choices.mcp is not None:
        from donewhen import McpServers

        names = [tool.name for tool in tools]
        servers = McpServers(choices.mcp, environment=config.variables, reserved=names, slow=slow)
        tools = [*tools, *(await stack.enter_async_context(servers)).tools]
    agent = Agent(
        choices.model,
        tools,
        storage=config.storage,
        settings=config.keep(choices.settings),
        skills=skills or Skills(choices.dir, trust=choices.trust_skills),
        notify=notify,
        options=AgentOptions(queue=QUEUE, config=config),
    )
    return await stack.enter_async_context(agent)


# --- options


def _goal(request: RunOptions, terminal: Terminal) -> str:
    """Return the goal from the arguments, from stdin, from both, or typed. Raises GoalError if there is none."""
    text = "" if request.goal == "-" else request.goal
    reads = request.stdin or request.goal == "-" or (not text and not sys.stdin.isatty())
    if not text and not reads and terminal.interactive:
        terminal.line(terminal.say("goal"), "dim")
        with suppress(EOFError):
            text = terminal.read(PROMPT)
    goal = "\n\n".join(part for part in (text, read_stdin() if reads else "") if part.strip())
    if not goal.strip():
        raise GoalError('say what you want done: donewhen run "…", or give it on stdin')
    return goal


def _conversation(request: RunOptions, view: StorageView) -> str | None:
    """Return the thread to continue: by name, or the latest; None for a new one."""
    if request.latest and request.thread:
        raise ConfigError("--resume goes on in the latest conversation; --thread names another: give one of them")
    return view.thread(None).thread_id if request.latest else request.thread
