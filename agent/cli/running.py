"""`donewhen run` and `donewhen resume`: from options to a run carried through at this terminal."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from donewhen.agent.agent import Agent
from donewhen.agent.cli.asking import Person
from donewhen.agent.cli.progress import Progress
from donewhen.agent.cli.session import Choices, open_agent, remembered
from donewhen.agent.cli.terminal import Terminal, open_terminal
from donewhen.agent.cli.work import Begin, Desk, work
from donewhen.agent.config import DEMO, Config, read_config
from donewhen.state.errors import ConfigError, GoalError
from donewhen.state.ledger import KEYS, Limits

NO_ANSWER: Any = object()


@dataclass(frozen=True)
class Request:
    """The options of `run`."""

    goal: str
    folder: Path
    model: str | None
    thread: str | None
    commands: list[str]
    mcp: Path | None
    stdin: bool
    settings: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """The options of `resume` that answer; at most one of the first five."""

    answer: str | None = None
    approve: bool = False
    reject: str | None = None
    cancel: bool = False
    file: Path | None = None
    id: str | None = None

    def value(self) -> Any:
        """The answer as it is sent, or NO_ANSWER. Raises ConfigError if there are several."""
        given = [
            *([self.answer] if self.answer is not None else []),
            *([{"type": "approve"}] if self.approve else []),
            *([{"type": "reject", "message": self.reject}] if self.reject is not None else []),
            *([{"type": "cancel"}] if self.cancel else []),
            *([_file_text(self.file)] if self.file is not None else []),
        ]
        if len(given) > 1:
            raise ConfigError("give one answer: --answer, --approve, --reject, --cancel or --answer-file")
        if not given:
            if self.id is not None:
                raise ConfigError("--id says which question is answered; give the answer too")
            return NO_ANSWER
        return given[0] if self.id is None else {self.id: given[0]}


def run_goal(request: Request, *, storage: str | None, yes: bool, json: bool) -> int:
    """Start a run and carry it as far as it goes at this terminal."""
    config = configured(storage)
    goal = _goal(request)
    terminal = _terminal(config, json)
    unasked = yes or request.settings.get("confirm") == "never"
    choices = _choices(request, config, unattended=unasked and not terminal.interactive)
    if choices.model == DEMO:
        _say_demo(terminal, config)

    async def begin(agent: Agent, progress: Progress) -> Any:
        agent.models("triage")  # a missing key or a wrong name is said before anything is started
        return agent.stream(goal, thread_id=request.thread, metadata=choices.kept())

    return _work(begin, choices, config, terminal, storage=storage, yes=yes, json=json)


def resume_thread(thread: str, reply: Reply, *, storage: str | None, yes: bool, json: bool) -> int:
    """Answer what a thread waits for, or go on with it."""
    value = reply.value()
    config = configured(storage)
    info = remembered(thread, config)
    choices, terminal = Choices.read(info.metadata), _terminal(config, json)

    async def begin(agent: Agent, progress: Progress) -> Any:
        run = await agent.get(info.thread_id)
        progress.take(run)
        if value is not NO_ANSWER:
            return agent.stream_resume(info.thread_id, value)
        # Whoever sits at the terminal is asked first; the policy answers overdue questions where nobody is.
        goes_on = run.status == "running" or (run.status == "waiting" and not terminal.interactive)
        return agent.stream_resume(info.thread_id) if goes_on else run

    return _work(begin, choices, config, terminal, storage=storage, yes=yes, json=json)


def _work(
    begin: Begin, choices: Choices, config: Config, terminal: Terminal, *, storage: str | None, yes: bool, json: bool
) -> int:
    person = Person(terminal, terminal.read, config.editor) if terminal.interactive else None
    desk = Desk(terminal, json, yes, storage, person)
    return work(lambda stack: open_agent(stack, choices, config), begin, desk)


def configured(storage: str | None) -> Config:
    """The configuration, with the storage that an option names."""
    config = read_config()
    return replace(config, storage=storage) if storage else config


def _terminal(config: Config, json: bool) -> Terminal:
    return open_terminal(plain=config.plain, may_ask=not json)


def _goal(request: Request) -> str:
    """The goal from the arguments, from stdin, or from both. Raises GoalError if there is none."""
    given = "" if request.goal == "-" else request.goal
    piped = request.stdin or request.goal == "-" or (not given and not sys.stdin.isatty())
    goal = "\n\n".join(part for part in (given, sys.stdin.read() if piped else "") if part.strip())
    if not goal.strip():
        raise GoalError('say what you want done: donewhen run "…", or give it on stdin')
    return goal


def _choices(request: Request, config: Config, *, unattended: bool) -> Choices:
    if not request.folder.is_dir():
        raise ConfigError(f"--dir {str(request.folder)!r} is not a folder")
    if request.mcp is not None and not request.mcp.is_file():
        raise ConfigError(f"--mcp {str(request.mcp)!r} is not a file")
    settings = {key: value for key, value in request.settings.items() if value is not None}
    settings["limits"] = _limits(settings.get("limits") or ())
    if unattended:
        settings.setdefault("on_exhausted", "deliver")
    _check_questions(settings)
    mcp = str(request.mcp.resolve()) if request.mcp else None
    model = request.model or config.model or DEMO
    return Choices(str(request.folder.resolve()), model, request.commands, mcp, settings)


def _check_questions(settings: dict[str, Any]) -> None:
    """A default answer is a policy of its own; a time, or `default`, alone is none. Raises ConfigError."""
    if "default_answer" in settings:
        settings.setdefault("on_question", "default")
    elif settings.get("on_question") == "default":
        raise ConfigError("--on-question default needs --default-answer")
    if "question_seconds" in settings and settings.get("on_question", "wait") == "wait":
        raise ConfigError("--question-seconds needs --on-question: say what answers after that time")


def _limits(given: Sequence[str]) -> dict[str, float]:
    """Limits as they are written on the command line: `cost_usd=0.5`. Raises ConfigError."""
    amounts: dict[str, float] = {}
    for text in given:
        key, _, amount = text.partition("=")
        try:
            amounts[key.strip()] = float(amount.strip().lstrip("$"))
            Limits.model_validate(amounts)
        except ValueError:  # pydantic's errors are ValueErrors
            raise ConfigError(f"--limit {text!r} is no limit; write KEY=AMOUNT, KEY one of {', '.join(KEYS)}") from None
    return amounts


def _say_demo(terminal: Terminal, config: Config) -> None:
    terminal.line(
        "Using the demo model: it follows fixed rules, needs no key, and knows little. "
        + ("" if config.api_key else "Set OPENAI_API_KEY, or name a model with --model, for a real one."),
        "dim",
    )


def _file_text(path: Path) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--answer-file {str(path)!r} cannot be read: {error}") from None
