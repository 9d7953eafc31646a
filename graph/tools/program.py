"""Run programs that call tools, in an interpreter without clock, chance, files and network that stops at every call.

The interpreter makes no call itself: its caller answers one call after the other, and may answer `LATER` in place of a
result that does not exist yet. Equal answers lead to equal calls, so nothing of a program is stored: to go on, it runs
again from its beginning.
Needs pydantic-monty (the extra `programs`), which runs it in a process of its own.
"""

import builtins
import json
import keyword
import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from donewhen.graph.tools.toolbox import KnownTool
from donewhen.state.channels import Json
from donewhen.state.records import JournalEntry
from donewhen.state.settings import Settings

if TYPE_CHECKING:
    from pydantic_monty import AsyncMonty, AsyncMontySession

MOST_CALLS = 1_000
"""The most calls of one program."""
SECONDS, MEMORY, PRINTED = 10.0, 128 * 2**20, 1_000_000
"""The most that one program may compute, hold and print; waiting for its calls is no computing."""
SCHEMA_CHARS = 400
"""The most characters of what the description of `run_program` says of one tool's results."""
MOST_ROWS = 40
"""The most rows of an index of calls."""
_NO_CHANCE: Any = {"datetime": "call_host", "sleep": "call_host", "random_start": "call_host"}
"""Clock and chance ask the host, which refuses."""


class _NotYet:
    """Stands for the result of a write that is not made yet, as long as a program is only rehearsed."""


LATER = _NotYet()


@dataclass(frozen=True)
class AwaitedCall:
    """A call that a program waits for."""

    tool: str
    arguments: Json
    line: int
    problem: str = ""
    """Why the call cannot be made, such as an argument that is not JSON."""
    early: bool = False
    """True if it needs a result that is not there yet."""


def programs_problem(settings: Settings) -> str | None:
    """Return why the settings cannot be met: programs are on, and their interpreter is not installed."""
    if not settings.programs or find_spec("pydantic_monty") is not None:
        return None
    return "programs=True needs pydantic-monty, which is not installed: pip install 'donewhen[programs]'"


def function_name(tool: str) -> str:
    """Return the name of a tool's function: its own, unless Python cannot call it so."""
    name = re.sub(r"\W", "_", tool)
    name = f"_{name}" if name[:1].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) or hasattr(builtins, name) else name


def function_lines(tools: Iterable[KnownTool]) -> str:
    """Describe tools as functions for a model: those whose function has another name, or whose result has a schema."""
    lines = []
    for tool in tools:
        name, schema = tool.tool.name, (tool.tool.metadata or {}).get("output_schema")
        returns = json.dumps(schema, ensure_ascii=False)[:SCHEMA_CHARS] if schema else ""
        called = function_name(name)
        if returns or called != name:
            lines.append(
                f"- {called}{'' if called == name else f' ({name})'}{f' returns {returns}' if returns else ''}"
            )
    return "\n".join(lines)


def value_of(text: str) -> Any:
    """Return a result as programs get it: JSON objects and lists as such, everything else as its text."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def calls_index(entries: Sequence[JournalEntry]) -> str:
    """Return an index of a program's calls for its model; neighbours of one line that ended alike share a row."""
    groups: list[list[JournalEntry]] = []
    for entry in entries:
        if groups and _row_key(groups[-1][-1]) == _row_key(entry):
            groups[-1].append(entry)
        else:
            groups.append([entry])
    rows = []
    for group in groups[:MOST_ROWS]:
        (first, *_, last), about = (group[0], *group), group[0]["program"]
        ids = first["id"] if len(group) == 1 else f"{first['id']}–{last['id']} ({len(group)})"
        ahead = ", only rehearsed" if about.get("ahead") else ""
        rows.append(f"{ids}: line {about['line']}, {first['tool']} {'ok' if first['ok'] else 'error'}{ahead}")
    rows += [f"… {len(groups) - MOST_ROWS} rows left out …"] if len(groups) > MOST_ROWS else []
    return "\n".join(["Its calls, whose results `recall` reads:", *rows]) if rows else "It made no call."


def _row_key(entry: JournalEntry) -> tuple[Any, ...]:
    about = entry["program"]
    return entry["tool"], entry["ok"], about["line"], about.get("ahead")


class Sandbox:
    """The interpreter of one step, whose programs see the variables of those before them."""

    def __init__(self) -> None:
        self.id: str = ""
        """The program that runs, or ended last; "" if there is none."""
        self.finished: list[str] = []
        """The programs that ended here."""
        self.count: int = 0
        """The number of its answered calls."""
        self.awaited: AwaitedCall | None = None
        """The call that it waits for; None once it ended."""
        self.error: str = ""
        """Why it ended before its last line."""
        self._codes: list[str] = []
        self._functions: dict[str, KnownTool] = {}
        self._pool: AsyncMonty | None = None
        self._session: AsyncMontySession | None = None
        self._at: Any = None
        self._out: Any = None

    @property
    def printed(self) -> str:
        """What the program printed so far."""
        return str(self._out.output) if self._out is not None else ""

    async def begin(self, id: str, code: str, tools: Mapping[str, KnownTool]) -> None:
        """Run a program up to its first call, or to its end."""
        import pydantic_monty as monty  # an extra

        self.id, self.count, self.awaited, self.error = id, 0, None, ""
        self._functions = {function_name(name): tool for name, tool in tools.items()}
        self._out = monty.CollectString(max_bytes=PRINTED)
        try:
            session = self._session or await self._open()
        except (OSError, monty.MontyError) as error:
            return self.stop(f"The interpreter could not be started: {error}")
        self._codes.append(code)
        await self._advance(session.feed_start(code, print_callback=self._out))
        return None

    async def _open(self) -> "AsyncMontySession":
        """Start the interpreter's process."""
        import pydantic_monty as monty

        limits: Any = {"max_feed_duration_secs": SECONDS, "max_memory": MEMORY, "max_suspensions": 2**31}
        self._pool = await monty.AsyncMonty(min_processes=0, max_processes=1).__aenter__()
        self._session = await self._pool.checkout(limits=limits, os_policy=_NO_CHANCE).__aenter__()
        return self._session

    async def answer(self, text: Any, *, ok: bool = True) -> None:
        """Give the program the result of its call, or raise a RuntimeError with this text in it, and run it on."""
        import pydantic_monty as monty

        self.count += 1
        if text is LATER:
            result: Any = {"return_value": monty.ClassInstance(LATER)}
        else:
            result = {"return_value": value_of(text)} if ok else {"exc_type": "RuntimeError", "message": text}
        await self._advance(self._at.resume(result))

    async def refuse(self, problem: str) -> None:
        """Raise a TypeError in the program in place of a call that cannot be made, and run it on."""
        await self._advance(self._at.resume({"exc_type": "TypeError", "message": problem}))

    def stop(self, why: str) -> None:
        """End the program before its call. Its variables are lost, and those of earlier programs too."""
        printed = self.printed
        self.drop()
        self.awaited, self.error, self._out = None, why, _Printed(printed)

    def drop(self) -> None:
        """Forget the programs; that ends the interpreter's process."""
        self._session = self._pool = self._at = None
        self.id, self.finished, self._codes = "", [], []

    async def _advance(self, going: Awaitable[Any]) -> None:
        """Run on to the next call of a tool, or to the end."""
        import pydantic_monty as monty

        self.awaited = None
        try:
            at = await going
            while not isinstance(at, monty.MontyComplete):
                if isinstance(at, monty.AsyncNameLookupSnapshot):
                    is_tool = at.object_id is None and at.variable_name in self._functions
                    at = await (at.resume(value=_stub(at.variable_name)) if is_tool else at.resume())
                elif not isinstance(at, monty.AsyncFunctionSnapshot):
                    return self.stop("It waits for something that no call returns. Call tools without `await`.")
                elif at.is_os_function:
                    at = await at.resume_not_handled()
                elif at.object_id is not None or (tool := self._functions.get(at.function_name)) is None:
                    unknown: Any = {"exc_type": "NameError", "message": f"there is no tool {at.function_name}"}
                    at = await at.resume(unknown)
                else:
                    self._at, self.awaited = at, self._read(at, tool)
                    return None
        except (monty.MontySyntaxError, monty.MontyRuntimeError) as error:
            if isinstance(error.exception(), TimeoutError | MemoryError):
                return self.stop(error.display())
            self.error = error.display()
        except monty.MontyError as error:
            return self.stop(f"The interpreter ended: {error}")
        self.finished.append(self.id)
        return None

    def _read(self, at: Any, tool: KnownTool) -> AwaitedCall:
        """Return the call, with its arguments by name and as JSON."""
        line, name = self._line_of(at.position), tool.tool.name
        names = [*tool.schema.get("properties", {})]
        arguments = {**dict(zip(names, at.args, strict=False)), **at.kwargs}
        if len(at.args) > len(names) or len(arguments) < len(at.args) + len(at.kwargs):
            return AwaitedCall(name, {}, line, f"{name} takes these arguments: {', '.join(names) or 'none'}")
        try:
            return AwaitedCall(name, {key: _plain(value) for key, value in arguments.items()}, line)
        except LookupError:
            return AwaitedCall(name, {}, line, early=True)
        except TypeError as error:
            return AwaitedCall(name, {}, line, f"{name}: {error}")

    def _line_of(self, position: Any) -> int:
        """Return the line of a call; a function of an earlier program has its line there."""
        number = re.search(r"\d+", position.filename)
        place = int(number[0]) if number else -1
        code = self._codes[place] if place < len(self._codes) else ""
        return code.encode("utf-8", "surrogatepass")[: position.start].count(b"\n") + 1


@dataclass(frozen=True)
class _Printed:
    output: str


@cache
def _stub(name: str) -> Any:
    """Return a function of this name, for programs that hand one on before they call it."""

    def stub() -> None:
        raise NotImplementedError

    stub.__name__ = name
    return stub


def _plain(value: Any) -> Any:
    """Return a value of a program as JSON. Raises LookupError if it holds LATER, TypeError if it is no JSON."""
    if value is LATER:
        raise LookupError
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("the keys of an object are texts")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} is no JSON value")
