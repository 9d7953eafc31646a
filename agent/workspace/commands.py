"""Run an allowed program, in a box if there is one, and end it in time together with everything that it started.

Without a box a program may read and write whatever the user of this process may, and many programs can start others. So
a person is asked about each call with its arguments, unless exactly these arguments were allowed.
"""

import contextlib
import json
import os
import selectors
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from langchain_core.tools import ToolException
from pydantic import Field

from donewhen.agent.workspace import git, supervisor
from donewhen.agent.workspace.box import Box
from donewhen.agent.workspace.root import Root
from donewhen.graph.tools.certain import Unanswered
from donewhen.state.errors import ConfigError

SYSTEM_FOLDERS = ("/usr/local/bin", "/opt/homebrew/bin", "/usr/bin", "/bin")
KEPT_BYTES = 30_000
CHUNK = 65_536
DRAIN_SECONDS = 0.5
END_SECONDS = 5.0
KEPT_VARIABLES = ("LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ")
Argument = Annotated[str, Field(max_length=20_000)]
CommandLine = Annotated[
    list[Argument],
    Field(min_length=1, max_length=200, description="program and arguments, e.g. ['git', 'status']"),
]
RepositoryPrograms = Annotated[
    tuple[Argument, ...],
    Field(max_length=200, description="settings of the repository, as git's refusal lists them; the user is asked"),
]
Seconds = Annotated[float, Field(gt=0, le=600, description="seconds after which it is stopped")]


@dataclass(frozen=True)
class AllowList:
    """The allowed programs, as configured: `git`, `make test`."""

    programs: Mapping[str, str]
    """Name → absolute path of the allowed programs."""
    lines: Sequence[tuple[list[str], bool]] = ()
    """The command lines allowed without asking, program first; True if more arguments may follow."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Those of our environment that the programs have too."""

    def describe(self) -> str:
        """Return what may run, for a model: the programs, and the command lines allowed in advance."""
        return ", ".join(sorted(self.programs)) + (f"; allowed in advance: {self.free}" if self.free else "")

    @property
    def passed(self) -> list[str]:
        """The variables of our environment that the programs have; PATH with where programs lie elsewhere."""
        theirs = [
            f"{name}: {path}" for name, path in self.programs.items() if os.path.dirname(path) not in SYSTEM_FOLDERS
        ]
        found = {"PATH": f" ({', '.join(theirs)})"} if theirs else {}
        return [name + found.get(name, "") for name in self.variables]

    @property
    def free(self) -> str:
        """The command lines allowed in advance."""
        return ", ".join(shlex.join(line) + (" …" if more else "") for line, more in self.lines)

    def asks(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether a person has to approve a call: its program is allowed, but its arguments are not, or it may
        start programs of the repository.
        """
        is_refused_anyway = find_allowed(self.programs, arguments["command"][0]) is None
        return not (is_refused_anyway or self.allows(arguments))

    def allows(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the call is one of the command lines that are allowed without asking."""
        program, *rest = arguments["command"]
        command = [find_allowed(self.programs, program), *rest]
        is_line = any(command == line or (more and command[: len(line)] == line) for line, more in self.lines)
        return is_line and not arguments.get("repository_programs")


def find_allowed(programs: Mapping[str, str], program: str) -> str | None:
    """Return the name of an allowed program that is called by its name or its path; None if it is not allowed."""
    return program if program in programs else next((name for name, path in programs.items() if path == program), None)


def read_allow_list(commands: Sequence[str], env: Sequence[str] = ()) -> AllowList:
    """Return the allowed programs, and the variables that they have of our environment, by their names.

    Raises ConfigError for invalid entries, and for a program that is not installed or a variable that is not set.
    A program is looked for now, in the folders of PATH if `env` names it, then in the system's.
    By default, a person is asked about each call. An entry with arguments allows exactly this call without asking; one
    that ends with `*` allows every call that begins like this, whatever options follow.
    """
    if isinstance(commands, str):
        raise ConfigError(f"commands is a list of programs and command lines, not the text {commands!r}")
    if isinstance(env, str):
        raise ConfigError(f"env is a list of names of variables, not the text {env!r}")
    if unset := [name for name in env if name not in os.environ]:
        raise ConfigError(f"env: {unset[0]!r} is not set in this environment; give the names of variables that are")
    variables = {name: os.environ[name] for name in env}
    passed = [each for each in variables.get("PATH", "").split(os.pathsep) if os.path.isabs(each)]
    programs, lines = dict[str, str](), list[tuple[list[str], bool]]()
    for text in commands:
        program, *arguments = _split_command(text)
        name = os.path.basename(program)
        programs[name] = _find_executable(program, [*passed, *SYSTEM_FOLDERS])
        more = arguments[-1:] == ["*"]
        if arguments == ["*"]:
            raise ConfigError(
                f"commands: {text!r} allows all that {name} can be told; write the arguments that it may have"
            )
        if arguments:
            lines.append(([name, *arguments[: -1 if more else None]], more))
    return AllowList(programs, lines, variables)


def _split_command(text: str) -> list[str]:
    if os.path.isfile(text):  # also with a space in it
        return [text]
    try:
        return shlex.split(text) or [text]
    except ValueError as error:
        raise ConfigError(f"commands: {text!r} cannot be read: {error}") from None


@dataclass
class Output:
    """The first and the last bytes of a stream, together at most `keep`."""

    keep: int = KEPT_BYTES
    head: bytes = b""
    tail: bytes = b""
    size: int = 0

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self.size += len(data)
        room = self.keep // 2 - len(self.head)
        self.head += data[:room]
        self.tail = (self.tail + data[room:])[-(self.keep // 2) :]

    def text(self) -> str:
        """Return what is kept, with a note if something is left out."""
        cut = self.size - len(self.head) - len(self.tail)
        between = f"\n[… {cut} bytes left out …]\n".encode() if cut else b""
        return (self.head + between + self.tail).decode(errors="replace")


@dataclass
class ProgramEnd:
    """The exit and the output of a program."""

    stdout: Output
    stderr: Output
    code: int | None = None
    """Its exit code, below 0 for a signal; None when it was stopped."""


def run_command(
    root: Root,
    allowed: AllowList,
    command: CommandLine,
    timeout: Seconds = 60,
    repository_programs: RepositoryPrograms = (),
    *,
    box: Box | None = None,
    stop: threading.Event | None = None,
) -> tuple[str, dict[str, Any]]:
    """Run a program in the workspace folder, without a shell. Returns exit_code, stdout and stderr.

    What it leaves running in the background is ended with it.
    """
    programs = allowed.programs
    if (name := find_allowed(programs, command[0])) is None:
        words = command[0].split()
        hint = f" Give the command as a list: {json.dumps(words)[:200]}." if words and words[0] in programs else ""
        raise ToolException(f"{command[0][:80]!r} is not allowed; allowed are {allowed.describe()}.{hint}")
    if any("\0" in argument for argument in command):
        raise ToolException("An argument holds a NUL character.")
    with tempfile.TemporaryDirectory(prefix="donewhen-", ignore_cleanup_errors=True) as home:
        path = dict.fromkeys([*map(os.path.dirname, programs.values()), *SYSTEM_FOLDERS])
        environment = build_environment(os.pathsep.join(path), home, allowed.variables)
        if name == "git":
            own = git.settings_with_programs(programs[name], command, root.path, environment)
            if new := [each for each in own if each not in repository_programs]:
                raise ToolException(
                    "The settings of this repository may start programs that it names itself, so git does not run: "
                    f"{'; '.join(new)[:2_000]}. To run it with them, call again with repository_programs: "
                    f"{json.dumps(own, ensure_ascii=False)[:4_000]}; the user is asked."
                )
        line = [programs[name], *command[1:]]
        line = box.wrap(line, root.path, home) if box else line
        ended = run_process(line, root.path, environment, timeout, stop)
    stdout, stderr = ended.stdout.text(), ended.stderr.text()
    if ended.code is None:
        reason = f"{name} was stopped" if stop and stop.is_set() else f"{name} ran longer than {timeout:g} seconds"
        raise Unanswered(f"{reason}; it was ended. stdout: {stdout[-1000:]!r} stderr: {stderr[-1000:]!r}")
    shown = json.dumps({"exit_code": ended.code, "stdout": stdout, "stderr": stderr}, ensure_ascii=False)
    return shown, {"failed": f"exit_code {ended.code}"} if ended.code else {}


def command_succeeds(
    root: Root,
    allowed: AllowList,
    command: CommandLine,
    timeout: Seconds = 60,
    *,
    box: Box | None = None,
    stop: threading.Event | None = None,
) -> str:
    """Succeed if a program ends with exit code 0, else fail with its output. For checks."""
    if not allowed.allows({"command": command}):
        raise ToolException(f"{shlex.join(command)[:200]!r} may not run unasked; {allowed.describe()}")
    shown, failed = run_command(root, allowed, command, timeout, box=box, stop=stop)
    if failed:
        raise ToolException(shown)
    return shown


def build_environment(path: str, home: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program: of our variables the language, the terminal, the time zone and `variables`.

    HOME is a temporary folder, unless it is one of these. Git reads the repository's settings, and ours instead of the
    user's.
    """
    inherited = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    overrides = {f"GIT_CONFIG_KEY_{at}": key for at, key in enumerate(git.SETTINGS)}
    overrides |= {f"GIT_CONFIG_VALUE_{at}": value for at, value in enumerate(git.SETTINGS.values())}
    return {
        "LANG": "C.UTF-8",
        **inherited,
        **{"PATH": path, "HOME": home, "TMPDIR": home, **variables},
        **git.VARIABLES,
        **overrides,
        "GIT_CONFIG_COUNT": str(len(git.SETTINGS)),
        "GIT_CONFIG_GLOBAL": git.write_settings(home),
    }


def run_process(
    command: Sequence[str],
    folder: str,
    environment: dict[str, str],
    seconds: float,
    stop: threading.Event | None = None,
    stdout: Output | None = None,
) -> ProgramEnd:
    """Run a program until it ends, its time is over or `stop` is set; everything that it started ends with it.

    It also ends when this process dies: see `supervisor`. `stdout` receives its output as it comes. Raises
    ToolException if the program cannot be started.
    """
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, UnicodeEncodeError) as error:
        raise ToolException(f"{os.path.basename(command[0])} could not be started: {error}.") from None
    with child:
        return _watch(child, seconds, stop or threading.Event(), ProgramEnd(stdout or Output(), Output()))


def _watch(child: subprocess.Popen[bytes], seconds: float, stop: threading.Event, ended: ProgramEnd) -> ProgramEnd:
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        try:
            selector.register(child.stdout, selectors.EVENT_READ, ended.stdout)
            selector.register(child.stderr, selectors.EVENT_READ, ended.stderr)
            while child.poll() is None and time.monotonic() < until and not stop.is_set():
                _read(selector, min(0.05, until - time.monotonic()))
            ended.code = child.returncode
        finally:
            child.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(END_SECONDS)
            child.kill()
        drained = time.monotonic() + DRAIN_SECONDS
        while selector.get_map() and time.monotonic() < drained:
            _read(selector, 0.05)
    return ended


def _read(selector: selectors.BaseSelector, seconds: float) -> None:
    for key, _ in selector.select(max(0.0, seconds)):
        data = os.read(key.fd, CHUNK)
        if data:
            key.data.add(data)
        else:
            selector.unregister(key.fileobj)


def _find_executable(name: str, folders: Sequence[str]) -> str:
    places = [name] if os.path.isabs(name) else [os.path.join(folder, name) for folder in folders]
    if not name or (os.sep in name and not os.path.isabs(name)):
        raise ConfigError(f"commands: {name!r} is neither a program name nor an absolute path")
    for place in places:
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return place
    hint = f", such as {path}" if (path := shutil.which(name)) else ""
    raise ConfigError(f"commands: no program {name!r} in {', '.join(folders)}; give its absolute path{hint}")
