"""One call of one tool. Whatever the tool does, the run continues and the model learns what happened (X07).
// A tool's return value becomes text before LangChain prints it, and no exception of a tool can end the event loop.
"""

import asyncio
import functools
import inspect
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_type_hints

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp

from donewhen.graph.sync import WorkEnd, run_aside, start_in_thread
from donewhen.graph.tools.certain import nothing_happened
from donewhen.graph.tools.injection import with_injected
from donewhen.graph.tools.rendering import cap_text, describe_error, render_value
from donewhen.state.secrets import conceal

LIMIT = 1_000_000
"""The most characters of a result."""
GRACE = 0.5
"""Seconds that a tool has to end after it was cancelled."""
ENDING = 5.0
"""Seconds beyond its own limit in which a tool may end what it started."""

_running: set["asyncio.Future[WorkEnd]"] = set()
_limit: ContextVar[int] = ContextVar("limit", default=LIMIT)
"""The limit of the current call."""


@dataclass
class _Body:
    """What happened in a tool's own code during a call; LangChain turns some of its errors into results."""

    entered: bool = False
    error: BaseException | None = None
    """The exception that it raised."""


_body: ContextVar[_Body | None] = ContextVar("body", default=None)
"""The body of the current call's tool."""


class _Exit(Exception):
    """Carries a SystemExit or KeyboardInterrupt out of a tool; in one of LangChain's tasks it would end the loop."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


class RunError(Exception):
    """Carries an error of the run itself, such as of its storage, out of a tool; the call has no result."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True)
class CallResult:
    """The result of a call."""

    ok: bool
    """False if the tool raised, timed out, or reported a failure."""
    text: str
    """The text for the model, within the limit and without secrets."""
    seconds: float
    artifact: Any = None
    """The tool's artifact, unchanged; not suitable for a checkpoint."""
    error: str | None = None
    """None if ok; else `timeout`, `cancelled`, `refused`, `error` (reported by the tool), or the exception's type."""
    unknown: bool = False
    """True if the tool began to work and may have had an effect (X24)."""
    notes: Sequence[str] = ()
    """What hooks observed of the call."""


def seconds_for(tool: BaseTool, arguments: Mapping[str, Any], usual: float | None) -> float | None:
    """Return the time limit of a call: the usual one, or a longer one that the tool's metadata declares.
    // `metadata["seconds"]` is a number, or the name of an argument with the seconds after which the tool ends by
    itself.
    """
    said: Any = (tool.metadata or {}).get("seconds")
    if isinstance(said, str):
        field = getattr(tool.args_schema, "model_fields", {}).get(said)
        given: Any = arguments.get(said, field.default if field is not None else None)
        said = given + ENDING if isinstance(given, int | float) else None
    return max(usual, said) if usual is not None and isinstance(said, int | float) else usual


async def call_tool(
    tool: BaseTool,
    arguments: Mapping[str, Any],
    *,
    timeout: float | None,  # noqa: ASYNC109 - the tool is told to stop, but what it did until then counts
    config: RunnableConfig | None = None,
    idempotency_key: str | None = None,
    call_id: str | None = None,
    limit: int = LIMIT,
    secrets: Sequence[str] = (),
) -> CallResult:
    """Call the tool and return its result as text. `timeout` is in seconds; None means no limit.

    Raises only LangGraph's interrupts, the cancellation of the caller, and errors that a `RunError` carries.
    Synchronous tools run in a daemon thread, which outlives a timeout.
    `idempotency_key` is passed to a tool that declares an argument of this name.
    Credentials in the result become `[redacted]`: `secrets` and recognized ones (`state.secrets`), unless the tool's
    metadata has `"secrets": True` because models need them.
    """
    started, id = time.perf_counter(), call_id or f"call_{uuid.uuid4().hex}"
    try:
        full = with_injected(tool, arguments, idempotency_key, id, config)
    except Exception as error:
        result = CallResult(False, cap_text(str(error), limit), 0.0, error="refused")
    else:
        call = {"type": "tool_call", "id": id, "name": tool.name, "args": full}
        result = await _run(tool, call, timeout, config, limit)
    result = replace(result, seconds=time.perf_counter() - started)
    if (tool.metadata or {}).get("secrets") is True:
        return result
    shown = result.artifact.get("files") if isinstance(result.artifact, Mapping) else None
    files: Mapping[str, Any] = shown if isinstance(shown, Mapping) else {}  # which clients are shown
    size = len(result.text) + sum(len(each) for each in files.values() if isinstance(each, str))
    return await run_aside(size, partial(_conceal, result, files, secrets))


async def _run(
    tool: BaseTool,
    call: dict[str, Any],
    timeout: float | None,  # noqa: ASYNC109
    config: RunnableConfig | None,
    limit: int,
) -> CallResult:
    body = _Body()
    ended = await _within(timeout, _start(guard(tool), call, config, limit, body))
    if ended is None:
        late = f"no result after {timeout:g} seconds; the "
        late += "tool runs in a thread that cannot be stopped" if is_synchronous(tool) else "call was cancelled"
        return CallResult(False, late, 0.0, error="timeout", unknown=True)
    raised = ended.error.error if isinstance(ended.error, _Exit) else ended.error
    if isinstance(raised, GraphBubbleUp):
        raise raised
    if isinstance(raised, RunError):
        raise raised.error
    if raised is None:
        return _read(ended.value, body, tool, limit)
    unknown = _is_unknown(raised, body, tool)
    if isinstance(raised, asyncio.CancelledError):
        text = "the call was cancelled from within the tool"
        return CallResult(False, text, 0.0, error="cancelled", unknown=unknown)
    return CallResult(False, cap_text(describe_error(raised), limit), 0.0, error=type(raised).__name__, unknown=unknown)


def _is_unknown(raised: BaseException, body: _Body, tool: BaseTool) -> bool:
    """Return whether the call may have had an effect although it raised.
    // If a body ran without an exception, it succeeded, and LangChain failed to convert its result.
    """
    if not _is_watched(tool):
        return not nothing_happened(raised, tool)
    return body.entered and (body.error is None or not nothing_happened(body.error, tool))


def _conceal(result: CallResult, files: Mapping[str, Any], secrets: Sequence[str]) -> CallResult:
    """Return the result with credentials removed from its text and files."""
    text, artifact = conceal(result.text, secrets), result.artifact
    if files:
        shown = {name: conceal(each, secrets) if isinstance(each, str) else each for name, each in files.items()}
        artifact = {**artifact, "files": shown}
    return replace(result, text=text, artifact=artifact)


async def _within(seconds: float | None, run: asyncio.Future[WorkEnd]) -> WorkEnd | None:
    """Return how the call ended, or None if it timed out."""
    _running.add(run)
    run.add_done_callback(_running.discard)
    try:
        await asyncio.wait({run}, timeout=seconds)
        return run.result() if run.done() else None
    finally:
        if not run.done():
            run.cancel()
            await asyncio.wait({run}, timeout=GRACE)


def _start(
    tool: BaseTool, call: dict[str, Any], config: RunnableConfig | None, limit: int, body: _Body
) -> asyncio.Future[WorkEnd]:
    """Start the call in a thread, or in its own task, so that nothing in it can end ours."""

    def invoke() -> Any:
        _limit.set(limit)
        _body.set(body)
        return tool.invoke(call, config)

    async def ainvoke() -> WorkEnd:
        _limit.set(limit)
        _body.set(body)
        try:
            return WorkEnd(await tool.ainvoke(call, config))
        except BaseException as error:  # a SystemExit that leaves a task ends the event loop
            return WorkEnd(error=error)

    return start_in_thread(invoke) if is_synchronous(tool) else asyncio.create_task(ainvoke())


def _read(value: Any, body: _Body, tool: BaseTool, limit: int) -> CallResult:
    """Convert a call's return value: a message, or anything a tool class returns; a command is treated as data."""
    try:
        text = render_value(value, limit)
    except BaseException as error:  # a tool class that overrides `ainvoke` may return anything
        return CallResult(False, describe_error(error), 0.0, error=type(error).__name__, unknown=True)
    if not (isinstance(value, ToolMessage) and value.status == "error"):
        return CallResult(True, text, 0.0, getattr(value, "artifact", None))
    # `handle_tool_error` makes a result of an error, which may have had any cause.
    unknown = body.error is not None and not nothing_happened(body.error, tool)
    return CallResult(False, text, 0.0, value.artifact, "error", unknown)


def guard(tool: BaseTool) -> BaseTool:
    """Return the same tool, including its state, with a guard around its body."""
    try:
        kind = _guarded_class(type(tool))
    except Exception:
        return tool  # a class that cannot be derived from: LangChain's own printing must do
    return with_class(kind, tool)


def with_class(kind: Any, tool: BaseTool) -> BaseTool:
    """Return the same tool, including its state, as an instance of a derived class."""
    twin: BaseTool = kind.__new__(kind)
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"):
        object.__setattr__(twin, slot, getattr(tool, slot))
    return twin


def _is_watched(tool: BaseTool) -> bool:
    """Return whether the guarded body is the first own code in a call: everything before it is LangChain's."""
    kind: Any = type(tool)
    ways = (kind.invoke, kind.ainvoke, kind.run, kind.arun)
    if not all(way.__module__.startswith("langchain_core.") for way in ways):
        return False
    return guard(tool) is not tool


def is_synchronous(tool: BaseTool) -> bool:
    """Return whether LangChain would run the tool in the loop's thread pool, where a few hanging tools block all."""
    kind: Any = type(tool)
    wraps_function = "func" in kind.model_fields and "coroutine" in kind.model_fields
    if kind.arun is not BaseTool.arun or (kind.ainvoke is not BaseTool.ainvoke and not wraps_function):
        return False
    return getattr(tool, "coroutine", None) is None if wraps_function else kind._arun is BaseTool._arun


@functools.lru_cache(maxsize=256)
def _guarded_class(kind: Any) -> Any:
    return wrap_bodies(kind, _watch, lambda tool, value: _to_text(value, tool.response_format))


@contextmanager
def _watch(_: BaseTool) -> Iterator[None]:
    body = _body.get() or _Body()
    body.entered = True
    try:
        yield
    except BaseException as error:
        body.error = error
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise _Exit(error) from error
        raise


def wrap_bodies(
    kind: Any,
    around: Callable[[Any], AbstractContextManager[None]],
    returned: Callable[[Any, Any], Any] = lambda tool, value: value,
) -> Any:
    """Return the class with `around` applied to `_run` and `_arun`, and `returned` to their return values."""

    @functools.wraps(kind._run)
    def run(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        with around(self):
            return returned(self, kind._run(self, *args, **kwargs))

    @functools.wraps(kind._arun)
    async def arun(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        with around(self):
            return returned(self, await kind._arun(self, *args, **kwargs))

    for each in (run, arun):  # LangChain reads them at every call
        with suppress(Exception):
            each.__annotations__ = get_type_hints(each, include_extras=True)
            each.__dict__["__signature__"] = inspect.signature(each)
    bodies: dict[str, Any] = {"_run": run, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    if kind._arun is not BaseTool._arun:  # LangChain asks whether it is
        bodies["_arun"] = arun
    return type(kind)(kind.__name__, (kind,), bodies)


def _to_text(value: Any, response_format: str) -> Any:
    """Return a body's value in LangChain's form: text, the tool's own message, or text and artifact."""
    if response_format == "content_and_artifact":
        if not (isinstance(value, tuple) and len(value) == 2):
            return value  # not what the tool promised: LangChain says so
        return _to_text(value[0], "content"), value[1]
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("the tool returned a coroutine; declare it with `async def`")
    if inspect.isasyncgen(value):
        raise TypeError("the tool returned an async generator; return its items as a list")
    if isinstance(value, BaseException):
        raise value
    return value if isinstance(value, ToolMessage) else render_value(value, _limit.get())
