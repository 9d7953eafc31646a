"""Regular expressions written by a model, matched in a child process that can be killed.

A pattern such as `(a+)+$` would otherwise stop the whole process: Python's `re` holds the interpreter lock while
it backtracks, so no timeout in the same process ever fires.
"""

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import IO

from langchain_core.tools import ToolException

MAX_PATTERN = 500
SECONDS = 2.0
MEMORY = 512 * 1024 * 1024
CHILD = f"""
import json, re, resource, sys
try:
    resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
except (OSError, ValueError):
    pass
pattern, ignore_case = json.loads(sys.stdin.readline())
try:
    search = re.compile(pattern, re.IGNORECASE if ignore_case else 0).search
    problem = None
except (re.error, OverflowError, RecursionError, MemoryError) as error:
    problem = str(error) or type(error).__name__
print(json.dumps(problem), flush=True)
if problem is None:
    for line in sys.stdin:
        print(json.dumps([bool(search(text)) for text in json.loads(line)]), flush=True)
"""


class Pattern:
    """A running search for one regular expression."""

    def __init__(self, child: subprocess.Popen[bytes], source: str) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self._input: IO[bytes] = child.stdin
        self._output: IO[bytes] = child.stdout
        self._source = source

    def found(self, texts: Sequence[str]) -> list[bool]:
        """For each text whether the pattern occurs in it. Raises ToolException when it takes too long."""
        return [bool(one) for one in json.loads(self.exchange(texts))]

    def exchange(self, message: object) -> bytes:
        """One line to the child and one line back."""
        try:
            self._input.write(json.dumps(message).encode() + b"\n")
            self._input.flush()
            ready = select.poll()
            ready.register(self._output, select.POLLIN)
            answered = ready.poll(SECONDS * 1000)
        except BrokenPipeError:
            answered = []
        line = self._output.readline() if answered else b""
        if not line:
            raise ToolException(f"The pattern {self._source[:80]!r} takes too long; write a simpler one.")
        return line


@contextlib.contextmanager
def pattern(source: str, *, ignore_case: bool = False) -> Iterator[Pattern]:
    """Search for a regular expression (Python syntax), for at most two seconds at a time."""
    if len(source) > MAX_PATTERN:
        raise ToolException(f"A regular expression has at most {MAX_PATTERN} characters.")
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
    )
    try:
        running = Pattern(child, source)
        problem = json.loads(running.exchange([source, ignore_case]))
        if problem is not None:
            raise ToolException(f"{source[:80]!r} is not a regular expression: {problem}")
        yield running
    finally:
        child.kill()
        with contextlib.suppress(BrokenPipeError):
            child.communicate()
