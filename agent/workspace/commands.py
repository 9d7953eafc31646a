"""Running an allowed program. The allow-list says what may start; what it does then is not confined."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from langchain_core.tools import ToolException
from pydantic import Field

from donewhen.agent.workspace.root import Root
from donewhen.state.errors import ConfigError

SYSTEM_FOLDERS = ("/usr/local/bin", "/opt/homebrew/bin", "/usr/bin", "/bin")
KEPT_BYTES = 30_000
CHUNK = 65_536
DRAIN_SECONDS = 0.5

Argument = Annotated[str, Field(max_length=20_000)]
Arguments = Annotated[
    list[Argument],
    Field(min_length=1, max_length=200, description="program and arguments, e.g. ['git', 'status']"),
]
Seconds = Annotated[float, Field(gt=0, le=600, description="seconds after which it is stopped")]


@dataclass
class Programs:
    """The allowed programs by name. Raises ConfigError for one that is not installed."""

    names: Sequence[str]
    found: dict[str, str] = field(default_factory=dict)
    """Name → absolute path."""

    def __post_init__(self) -> None:
        if isinstance(self.names, str):
            raise ConfigError(f"commands is a list of program names, not the text {self.names!r}")
        for name in self.names:
            self.found[os.path.basename(name)] = _installed(name)

    def search_path(self) -> str:
        """PATH for the child: where the allowed programs are, and the system's folders."""
        return os.pathsep.join(dict.fromkeys([*map(os.path.dirname, self.found.values()), *SYSTEM_FOLDERS]))


@dataclass
class Output:
    """The first and the last bytes of a stream."""

    head: bytes = b""
    tail: bytes = b""
    size: int = 0

    def add(self, data: bytes) -> None:
        """Take what came next."""
        self.size += len(data)
        room = KEPT_BYTES // 2 - len(self.head)
        self.head += data[:room]
        self.tail = (self.tail + data[room:])[-KEPT_BYTES // 2 :]

    def text(self) -> str:
        """What is kept, with a note where something is left out."""
        cut = self.size - len(self.head) - len(self.tail)
        between = f"\n[… {cut} bytes left out …]\n".encode() if cut else b""
        return (self.head + between + self.tail).decode(errors="replace")


def run_command(root: Root, programs: Programs, command: Arguments, timeout: Seconds = 60) -> str:
    """Run one program, without a shell, in the workspace folder. Returns exit_code, stdout and stderr."""
    name = command[0]
    if name not in programs.found:
        raise ToolException(f"{name[:80]!r} is not allowed; allowed are {', '.join(sorted(programs.found))}.")
    if any("\0" in argument for argument in command):
        raise ToolException("An argument holds a NUL character.")
    try:
        child = subprocess.Popen(
            [programs.found[name], *command[1:]],
            cwd=root.path,
            env={"PATH": programs.search_path(), "LANG": "C.UTF-8", "HOME": root.path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, UnicodeEncodeError) as error:
        raise ToolException(f"{name} could not be started: {error}.") from None
    with child:
        outputs, finished = _watch(child, timeout)
    stdout, stderr = (output.text() for output in outputs)
    if not finished:
        told = f"{name} ran longer than {timeout:g} seconds and was stopped."
        raise ToolException(f"{told} stdout: {stdout[-1000:]!r} stderr: {stderr[-1000:]!r}")
    return json.dumps({"exit_code": child.returncode, "stdout": stdout, "stderr": stderr}, ensure_ascii=False)


def _watch(child: subprocess.Popen[bytes], timeout: float) -> tuple[list[Output], bool]:
    """Read both streams until the program ends; then nothing it started is left running."""
    outputs = [Output(), Output()]
    until = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        try:
            for stream, output in zip((child.stdout, child.stderr), outputs, strict=True):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ, output)
            while selector.get_map() and child.poll() is None and time.monotonic() < until:
                _read(selector, min(0.1, until - time.monotonic()))
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, until - time.monotonic()))
            finished = child.returncode is not None
        finally:
            _stop(child)
        drained = time.monotonic() + DRAIN_SECONDS
        while selector.get_map() and time.monotonic() < drained:
            _read(selector, 0.05)
    return outputs, finished


def _read(selector: selectors.BaseSelector, seconds: float) -> None:
    for key, _ in selector.select(max(0.0, seconds)):
        data = os.read(key.fd, CHUNK)
        if data:
            key.data.add(data)
        else:
            selector.unregister(key.fileobj)


def _stop(child: subprocess.Popen[bytes]) -> None:
    """Kill the program's whole process group; gone already is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _installed(name: str) -> str:
    places = [name] if os.path.isabs(name) else [os.path.join(folder, name) for folder in SYSTEM_FOLDERS]
    if not name or (os.sep in name and not os.path.isabs(name)):
        raise ConfigError(f"commands: {name!r} is neither a program name nor an absolute path")
    for place in places:
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return place
    raise ConfigError(f"commands: no program {name!r} in {', '.join(SYSTEM_FOLDERS)}; give its absolute path")
