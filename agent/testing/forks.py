"""Real processes that start in milliseconds: a server imports everything once, then forks for every job. POSIX only."""

import asyncio
import gc
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True)
class Exit:
    """How a process ended."""

    code: int
    """0: it returned; 1: it raised; -n: signal n ended it."""
    result: Any
    """What the function returned, as JSON; None if it did not return."""
    output: str
    """What it printed, a traceback included."""


class ForkServer:
    """Runs `"module:function"` in processes of their own, one after the other; a context manager.

    `preload` names the modules that every process finds imported. They must start no thread and no event loop.
    """

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self._preload = list(preload)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "donewhen.agent.testing.forks", *self._preload]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=env, text=True, bufsize=1, **pipes)  # type: ignore[call-overload]
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.stdin and self._process.stdout:
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()

    def run(
        self, target: str, arguments: Mapping[str, Any], folder: Path, *, name: str = "process", seconds: float = 60.0
    ) -> Exit:
        """Call the function, which may be a coroutine function, with JSON arguments and wait for its end.

        `folder` (created) gets its output and result as files called `name`. After `seconds` SIGALRM ends it.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        folder.mkdir(parents=True, exist_ok=True)
        result, output = folder / f"{name}.json", folder / f"{name}.txt"
        job = {"target": target, "arguments": dict(arguments), "seconds": seconds}
        self._process.stdin.write(json.dumps({**job, "result": str(result), "output": str(output)}) + "\n")
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the fork server ended with {self._process.wait()}; what it printed says why")
        said = json.loads(result.read_text("utf-8")) if result.exists() else None
        return Exit(int(answer), said, output.read_text("utf-8", "replace"))


def resolve(target: str) -> Any:
    """The function that `"module:function"` names."""
    module, _, function = target.partition(":")
    return getattr(import_module(module), function)


def serve(preload: Sequence[str]) -> None:
    """Read jobs from standard input, fork for each, and answer with how it ended."""
    requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    for module in preload:
        import_module(module)
    if threading.active_count() > 1:
        raise RuntimeError(f"importing {', '.join(preload)} started threads; a fork would copy a locked world")
    gc.collect()
    gc.freeze()
    for line in requests:
        if (pid := os.fork()) == 0:
            requests.close()
            replies.close()
            _work(json.loads(line))
        _, status = os.waitpid(pid, 0)
        replies.write(f"{os.waitstatus_to_exitcode(status)}\n")
        replies.flush()


def _work(job: Mapping[str, Any]) -> None:
    """The life of a forked process; does not return."""
    signal.setitimer(signal.ITIMER_REAL, job["seconds"])  # nobody handles SIGALRM, so it ends the process
    output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = 1
    try:
        result = resolve(job["target"])(**job["arguments"])
        result = asyncio.run(result) if inspect.iscoroutine(result) else result
        Path(job["result"]).write_text(json.dumps(result, default=str), "utf-8")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1:])
