"""Call one tool. Whatever the tool does, the run continues and the model learns what happened (X07).

A tool's return value becomes text before LangChain prints it, and no exception of a tool can end the event loop.
"""

import asyncio
import concurrent.futures
import copy
import functools
import inspect
import time
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, is_dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, cast, get_args, get_origin, get_type_hints

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId
from langchain_core.tools.base import get_all_basemodel_annotations
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from pydantic import BaseModel, ValidationError

from donewhen.graph.events import current_runtime
from donewhen.graph.sync import WorkEnd, run_aside, run_in_thread, start_in_thread
from donewhen.graph.tools.certain import may_pass, may_still_work, nothing_happened
from donewhen.graph.tools.images import NOT_KEPT, images_in
from donewhen.graph.tools.rendering import cap_text, describe_error, describe_misfit, is_large, render_value
from donewhen.graph.tools.schema import RUNTIME_ARGUMENT
from donewhen.graph.tools.validation import ArgumentsModel
from donewhen.state.channels import Json
from donewhen.state.ledger import Amounts
from donewhen.state.secrets import conceal, hide_known
from donewhen.state.settings import Settings

MOST_FILES = 1_000
LIMIT = 1_000_000
"""The most characters of a result."""
GRACE = 0.5
"""Seconds that a tool has to end after it was cancelled."""
ENDING = 5.0
"""Seconds beyond its own limit in which a tool may end what it started."""

TIMED_OUT = "timed out"
"""The message of the cancellation at a call's time limit; other cancellations have none."""

_running: set["asyncio.Future[WorkEnd]"] = set()


@dataclass
class _Body:
    """Records a call of a tool's own code, because LangChain turns some of its errors into results."""

    limit: int = LIMIT
    """The most characters of its result."""
    entered: bool = False
    error: BaseException | None = None
    """The exception that it raised."""
    loop: asyncio.AbstractEventLoop | None = None
    """The event loop that awaits the awaitable that a function in a thread returned."""
    awaited: "concurrent.futures.Future[Any] | None" = None
    """The future of that awaitable."""
    check: Callable[[Any], None] | None = None
    """Called with the arguments right before the body gets them; raises if it may not."""
    images: tuple[Sequence[Json], int] = ((), 0)
    """The images that it returned, and how many others cannot be shown."""
    context: Any = None
    """The context for a `ToolRuntime` without a class, added after the validation, in which Pydantic would warn."""


_body: ContextVar[_Body | None] = ContextVar("body", default=None)
"""The body of the current call's tool."""


class _Exit(Exception):
    """Carries a SystemExit or KeyboardInterrupt out of a tool; in one of LangChain's tasks it would end the loop."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


class ArgumentsChanged(Exception):
    """Raised before a tool is called if it would get other arguments than those that were shown."""


class RunError(Exception):
    """Carries an error of the run itself, such as of its storage, out of a tool; the call has no result."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


NOT_CALLED = ("answered", "rejected", "refused")
"""Errors of calls whose tool was not called: a person answered instead; a gate or a person rejected the call; or it was
refused last, by a hook, because what it replaces changed, or because it cannot be passed. Only what was refused last is
a change in the receipt; of the others, people's decisions stand there.
"""


@dataclass(frozen=True)
class CallOutcome:
    """What came of a call."""

    ok: bool
    """False if the tool raised, timed out, or reported a failure."""
    text: str
    """The text for the model, within the limit and without secrets."""
    seconds: float = 0.0
    artifact: Any = None
    """The tool's artifact; when the graph made the call, the parts of it that can be stored (`storable_artifact`)."""
    error: str | None = None
    """None if ok; else `timeout`, `cancelled`, `error` (reported by the tool), the exception's type, or one of
    `NOT_CALLED`.
    """
    unknown: bool = False
    """True if the tool began to work and may have had an effect (X24)."""
    unanswered: bool = False
    """True if it may still be at work."""
    passing: bool = False
    """True if the error only says that the same call may succeed later."""
    notes: Sequence[str] = ()
    """The hooks' notes on the call."""
    images: Sequence[Json] = ()
    """Its images as content blocks; once they are stored, what names them there."""
    spent: Amounts = field(default_factory=dict)
    """The cost of the models that it called."""
    whole: bool = True
    """False if the text was replayed and only its head and tail were stored."""
    key: str = ""
    """The short key of a write with a known outcome; the run keeps it to account for the write."""
    confirmed: bool = False
    """True if it was not made, since a person said that an equal call had taken effect."""
    made_at: str | None = None
    """When the call began, if it was settled later: a person said that it took effect or is not made again, or
    nobody knows what it did. If they did not want it made once more, its outcome is that of an equal call, which was
    made then; "" if that is not known."""

    @property
    def made(self) -> bool:
        """False if the tool was not called, neither now nor before a crash; then the call costs nothing."""
        return self.unknown or self.error not in NOT_CALLED


def seconds_for(tool: BaseTool, arguments: Mapping[str, Any], usual: float | None) -> float | None:
    """Return the time limit of a call: the usual one, or a longer one that the tool's metadata declares.

    `metadata["seconds"]` is a number, or the name of an argument with the seconds after which the tool ends by
    itself.
    """
    declared_seconds: Any = (tool.metadata or {}).get("seconds")
    if isinstance(declared_seconds, str):
        field = getattr(tool.args_schema, "model_fields", {}).get(declared_seconds)
        seconds: Any = arguments.get(declared_seconds, field.default if field is not None else None)
        declared_seconds = seconds + ENDING if isinstance(seconds, int | float) else None
    return max(usual, declared_seconds) if usual is not None and isinstance(declared_seconds, int | float) else usual


@dataclass(frozen=True)
class Callee:
    """The facts about a tool that every call of it needs; they are computed once."""

    guarded: BaseTool
    """The same tool, including its state, with a guard around its body."""
    in_thread: bool
    """True if LangChain would run it in the loop's thread pool, where a few hanging tools block all."""
    injected: Mapping[str, Any]
    """The annotations of arguments that no model fills, by name."""
    takes_key: bool
    """True if it declares an `idempotency_key`."""

    @classmethod
    def of(cls, tool: BaseTool) -> "Callee":
        """Return the facts about a tool."""
        declared, kind = _declared(tool), cast("Any", type(tool))
        wraps_function = "func" in kind.model_fields and "coroutine" in kind.model_fields
        if kind.arun is not BaseTool.arun or (kind.ainvoke is not BaseTool.ainvoke and not wraps_function):
            in_thread = False
        elif wraps_function:
            in_thread = getattr(tool, "coroutine", None) is None
        else:
            in_thread = kind._arun is BaseTool._arun
        return cls(guard(tool), in_thread, declared.injected, declared.takes_key)


@dataclass(frozen=True)
class ToolCall:
    """A call that is about to be made."""

    tool: BaseTool
    arguments: Mapping[str, Any]
    timeout: float | None
    """Seconds; None means no limit. The tool is cancelled then, but what it did until then counts."""
    config: RunnableConfig | None = None
    idempotency_key: str | None = None
    """Passed to a tool that declares an argument of this name."""
    call_id: str | None = None
    limit: int = LIMIT
    """The most characters of the result."""
    secrets: Sequence[str] = ()
    """Values that the result must not contain, besides recognized credentials."""
    callee: Callee | None = None
    """The facts about the tool, if they are known already."""
    shown: Mapping[str, Any] | None = None
    """The arguments that people were shown, and that the tool has to get; None if nothing is compared."""
    model: ArgumentsModel | None = None
    """The tool's own model of its arguments."""
    context: Mapping[str, Any] | None = None
    """What the tool reads as `ToolRuntime.context`, unless a graph around the run has a context of its own."""

    def check(self, passed: Any) -> None:
        """Raise ArgumentsChanged if these arguments, which the tool is about to get, are others than were shown."""
        if self.model is None or self.shown is None or not isinstance(passed, Mapping):
            return
        if changed := self.model.changed(passed, self.shown):
            raise ArgumentsChanged(
                f"not called: validating its arguments once more changes {', '.join(changed)[:200]}, so it would get "
                "others than were shown. The tool's schema has to return the same for what it returned"
            )


async def call_tool(call: ToolCall) -> CallOutcome:
    """Call the tool and return its result as text.

    Raises only LangGraph's interrupts, the cancellation of the caller, and errors that a `RunError` carries.
    Synchronous tools run in a daemon thread, which outlives a timeout. Credentials in the result become `[redacted]`:
    `secrets` and recognized ones (`state.secrets`), unless the tool's metadata has `"secrets": True` because models
    need them.
    """
    started, id = time.perf_counter(), call.call_id or f"call_{uuid.uuid4().hex}"
    callee = call.callee or Callee.of(call.tool)
    try:
        arguments = _with_injected(call, callee, id)
    except Exception as error:
        result = CallOutcome(False, cap_text(str(error), call.limit), error="refused")
    else:
        result = await _run(call, callee, {"type": "tool_call", "id": id, "name": call.tool.name, "args": arguments})
    result = _bound_files(replace(result, seconds=time.perf_counter() - started), call.limit)
    if (call.tool.metadata or {}).get("secrets") is True:
        return result
    files = _files_of(result.artifact)
    size = len(result.text) + sum(map(len, files.values()))
    return await run_aside(size, partial(_conceal, result, files, call.secrets))


async def _run(call: ToolCall, callee: Callee, message: dict[str, Any]) -> CallOutcome:
    """Pass the tool its call as LangChain's message, wait for the end, and read what came of it.

    It runs in a thread or in a task of its own, so that nothing in it can end ours.
    """
    loop = asyncio.get_running_loop() if callee.in_thread else None
    body = _Body(call.limit, loop=loop, check=call.check, context=_context_of(call))

    def invoke() -> Any:
        _body.set(body)
        return callee.guarded.invoke(message, call.config)

    async def ainvoke() -> WorkEnd:
        _body.set(body)
        try:
            return WorkEnd(await callee.guarded.ainvoke(message, call.config))
        except BaseException as error:  # a SystemExit in a task would end the event loop
            return WorkEnd(error=error)

    run = start_in_thread(invoke) if callee.in_thread else asyncio.create_task(ainvoke())
    _running.add(run)
    run.add_done_callback(_running.discard)
    why = None
    try:
        await asyncio.wait({run}, timeout=call.timeout)
        if run.done():
            ended = run.result()
            if is_large(ended.value):
                return cast("CallOutcome", await run_in_thread(partial(_read, ended, body, call.tool)))
            return _read(ended, body, call.tool)
        why = TIMED_OUT
    finally:
        if not run.done():
            run.cancel(why) if isinstance(run, asyncio.Task) else run.cancel()
            if body.awaited:
                body.awaited.cancel()
            await asyncio.wait({run}, timeout=GRACE)
    late = f"no result after {call.timeout:g} seconds; the "
    late += "tool runs in a thread that cannot be stopped" if callee.in_thread else "call was cancelled"
    return CallOutcome(False, late, error="timeout", unknown=True, unanswered=True)


def _read(ended: WorkEnd, body: _Body, tool: BaseTool) -> CallOutcome:
    """Return what came of a call: a message, or anything a tool class returns; a command is treated as data.

    Raises LangGraph's interrupts, and the error that a `RunError` carries.
    """
    value, raised = ended.value, ended.error.error if isinstance(ended.error, _Exit) else ended.error
    if isinstance(raised, GraphBubbleUp):
        raise raised
    if isinstance(raised, RunError):
        raise raised.error
    if isinstance(raised, asyncio.CancelledError):
        text, unknown = "the call was cancelled from within the tool", _is_unknown(raised, body, tool)
        return CallOutcome(False, text, error="cancelled", unknown=unknown)
    if raised is not None:
        text, unknown = describe_error(raised), _is_unknown(raised, body, tool)
        if isinstance(raised, ValidationError) and not body.entered and not unknown:
            text = f"the tool refused its arguments: {describe_misfit(raised)}"
        failed = CallOutcome(False, cap_text(text, body.limit), error=type(raised).__name__, unknown=unknown)
        return replace(failed, passing=may_pass(raised), unanswered=unknown and may_still_work(raised))
    try:
        text = render_value(value, body.limit)
        images, others = images_in(value) if isinstance(value, BaseMessage | list) else ((), 0)
        images, others = [*body.images[0], *images], body.images[1] + others
    except BaseException as error:  # a tool class that overrides `ainvoke` may return anything
        return CallOutcome(False, describe_error(error), error=type(error).__name__, unknown=True)
    if not (isinstance(value, ToolMessage) and value.status == "error"):
        text = f"{text}\n({NOT_KEPT.format(count=others)})" if others else text
        return CallOutcome(True, text, 0.0, getattr(value, "artifact", None), images=images)
    # `handle_tool_error` turned an error of any cause into a result.
    unknown = body.error is not None and not nothing_happened(body.error, tool)
    passing = body.error is not None and may_pass(body.error)
    unanswered = unknown and body.error is not None and may_still_work(body.error)
    return CallOutcome(False, text, 0.0, value.artifact, "error", unknown, unanswered, passing)


def _is_unknown(raised: BaseException, body: _Body, tool: BaseTool) -> bool:
    """Return whether the call may have had an effect although it raised.

    If a body ran without an exception, it succeeded, and LangChain failed to convert its result.
    """
    if not _is_watched(tool):
        return not nothing_happened(raised, tool)
    return body.entered and (body.error is None or not nothing_happened(body.error, tool))


def _files_of(artifact: Any) -> Mapping[Any, Any]:
    """Return the files of an artifact, which clients are shown."""
    files = artifact.get("files") if isinstance(artifact, Mapping) else None
    return files if isinstance(files, Mapping) else {}


def _bound_files(result: CallOutcome, limit: int) -> CallOutcome:
    """Return the result with its files as texts, MOST_FILES of `limit` characters at most; its text notes a cut."""
    files, room, bounded = _files_of(result.artifact), limit, dict[Any, str]()
    for path, content in islice(files.items(), MOST_FILES):
        if room <= 0:
            break
        text = content if isinstance(content, str) else render_value(content, limit)
        bounded[path], room = cap_text(text, room), room - len(text)
    if not files:
        return result
    note = f"… the files hold more than is kept for display: {MOST_FILES:,} files, {limit:,} characters"
    text = f"{result.text}\n{note}" if room < 0 or len(files) > len(bounded) else result.text
    return replace(result, text=text, artifact={**result.artifact, "files": bounded})


def _conceal(result: CallOutcome, files: Mapping[Any, str], secrets: Sequence[str]) -> CallOutcome:
    """Return the result with credentials removed from its text and files."""
    text, artifact = conceal(result.text, secrets), result.artifact
    if files:
        shown = {hide_known(path, secrets): conceal(content, secrets) for path, content in files.items()}
        artifact = {**artifact, "files": shown}
    return replace(result, text=text, artifact=artifact)


def guard(tool: BaseTool) -> BaseTool:
    """Return the same tool, including its state, with a guard around its body."""
    try:
        kind = _guarded_class(type(tool))
    except Exception:
        return tool  # a final class: LangChain prints its result
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


@functools.lru_cache(maxsize=256)
def _guarded_class(kind: Any) -> Any:
    guarded = wrap_bodies(kind, _watch, lambda tool, value: _to_text(value, tool.response_format))

    def parse(self: Any, tool_input: Any, tool_call_id: str | None) -> Any:
        passed, body = kind._parse_input(self, tool_input, tool_call_id), _body.get() or _Body()
        for each in passed.values() if isinstance(passed, dict) and body.context is not None else ():
            if isinstance(each, ToolRuntime) and each.context is None:
                each.context = body.context
        if body.check:
            body.check(passed)
        return passed

    guarded._parse_input = parse
    return guarded


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
            value = await kind._arun(self, *args, **kwargs)
            if is_large(value):  # the event loop does not wait for the work on it
                return await run_in_thread(functools.partial(returned, self, value))
            return returned(self, value)

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
            return value  # not the promised form: LangChain reports it
        return _to_text(value[0], "content"), value[1]
    if inspect.iscoroutine(value):  # of a function around one that is declared with `async def`
        if (body := _body.get()) is None or body.loop is None:
            value.close()
            raise TypeError("the tool returned a coroutine where it should return its result")
        body.awaited = asyncio.run_coroutine_threadsafe(value, body.loop)
        value = body.awaited.result()
    if inspect.isasyncgen(value):
        raise TypeError("the tool returned an async generator; return its items as a list")
    if isinstance(value, BaseException):
        raise value
    if isinstance(value, ToolMessage):
        return value
    body = _body.get() or _Body()
    body.images = images_in(value)
    return render_value(value, body.limit)


# Arguments that no model fills: the idempotency key, the call's id, LangGraph's store and runtime


def _with_injected(call: ToolCall, callee: Callee, id: str) -> dict[str, Any]:
    """Return the arguments with all injected ones; values that the caller set for those are dropped.

    Raises ValueError if the tool needs a store and there is none.
    """
    full = {name: value for name, value in call.arguments.items() if name not in callee.injected}
    if call.idempotency_key is not None and callee.takes_key:
        full[RUNTIME_ARGUMENT] = call.idempotency_key
    for name, annotation in callee.injected.items():
        if name == RUNTIME_ARGUMENT or _has(annotation, InjectedToolCallId):
            continue  # set above; LangChain itself sets the id of the call
        if _has(annotation, ToolRuntime):
            full[name] = _tool_runtime(id, call, annotation)
        elif _has(annotation, InjectedStore) and (store := current_runtime().store) is not None:
            full[name] = store
        elif not _has_default(call.tool, name):
            raise ValueError(f"the tool {call.tool.name!r} wants a store in {name!r}, and this run has none")
    return full


def check_parameters(tool: BaseTool) -> None:
    """Raise ValueError for a function that needs what no call passes: a graph's value, or a positional argument."""
    fields = getattr(tool.args_schema, "model_fields", {})
    for body in _bodies(tool):
        if unnamed := _unnamed(body) & set(fields):
            raise ValueError(
                f"its function takes {min(unnamed)!r} by place, and calls name their arguments. Give the function "
                "itself, not a tool that is made of it, or write the parameter without `*` and `/`"
            )
    for name, annotation in _declared(tool).injected.items():
        is_filled = name == RUNTIME_ARGUMENT or _has(annotation, ToolRuntime, InjectedStore, InjectedToolCallId)
        if not is_filled and not _has_default(tool, name):
            wanted = "the state of a graph" if _has(annotation, InjectedState) else "something from the application"
            raise ValueError(
                f"it wants {wanted} in {name!r}, which tools are not given here. Make it an argument that the model "
                "fills, read it from `config`, or give it a default"
            )


@dataclass(frozen=True)
class _Declared:
    """The arguments that a tool declares for the runtime to fill."""

    injected: Mapping[str, Any]
    """The annotations of arguments that no model fills."""
    takes_key: bool


def _declared(tool: BaseTool) -> _Declared:
    schema, bodies = tool.args_schema, tuple(body for body in _bodies(tool) if isinstance(body, Hashable))
    if isinstance(schema, dict) and RUNTIME_ARGUMENT in (schema.get("properties") or {}):
        return replace(_read_annotations(bodies, None), takes_key=True)
    return _read_annotations(bodies, schema if isinstance(schema, type) else None)


@functools.lru_cache(maxsize=1_000)
def _read_annotations(bodies: tuple[Callable[..., Any], ...], schema: Any) -> _Declared:
    annotations: dict[str, Any] = {}
    for body in bodies:
        with suppress(Exception):  # an annotation that cannot be resolved marks nothing
            annotations |= get_type_hints(body, include_extras=True)
    annotations |= get_all_basemodel_annotations(schema) if schema else {}
    injected = {name: each for name, each in annotations.items() if _has(each, InjectedToolArg, ToolRuntime)}
    return _Declared(injected, RUNTIME_ARGUMENT in annotations)


def _bodies(tool: BaseTool) -> tuple[Any, ...]:
    wrapped = [getattr(tool, "func", None), getattr(tool, "coroutine", None)]
    return tuple(body for body in wrapped if body) or (type(tool)._run, type(tool)._arun)


def _unnamed(body: Callable[..., Any]) -> set[str]:
    """Return the parameters that no call can name."""
    try:
        parameters = inspect.signature(body).parameters.values()
    except (TypeError, ValueError):  # of functions written in C
        return set()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return set()
    return {each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL)}


def _has(annotation: Any, *marks: type) -> bool:
    return any(
        isinstance(part, marks) or (isinstance(part, type) and issubclass(part, marks)) for part in _parts(annotation)
    )


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield the annotation and its parts: members of unions, metadata, generic origins."""
    yield annotation
    if (origin := get_origin(annotation)) is not None:
        yield origin
        for part in get_args(annotation):
            yield from _parts(part)


def _has_default(tool: BaseTool, name: str) -> bool:
    for body in _bodies(tool):
        parameter = inspect.signature(body).parameters.get(name)
        if parameter is not None and parameter.default is not inspect.Parameter.empty:
            return True
    fields = getattr(tool.args_schema, "model_fields", {})
    return name in fields and not fields[name].is_required()


def _context_of(call: ToolCall) -> Any:
    """Return the context of a graph around the run if it has one, else a copy of the run's own."""
    around = current_runtime().context
    return copy.deepcopy(call.context) if around is None or isinstance(around, Settings) else around


def _tool_runtime(call_id: str, call: ToolCall, annotation: Any) -> ToolRuntime[Any, Any]:
    """Return the ToolRuntime that LangGraph's ToolNode would pass, with an empty state.

    Tools see their call and the context of an outer graph or of the run, and nothing else of the run. A context is
    made an instance of the class that a `ToolRuntime[Class]` names; without a class it is added by the guard.
    """
    runtime, context = current_runtime(), None
    named = next((get_args(part)[0] for part in _parts(annotation) if get_origin(part) is ToolRuntime), None)
    if named is not None:
        context = _context_of(call)
        if (
            isinstance(context, dict)
            and isinstance(named, type)
            and (is_dataclass(named) or issubclass(named, BaseModel))
        ):
            try:
                context = named(**context)
            except (TypeError, ValueError) as error:
                raise ValueError(f"the run's context is no {named.__name__}: {describe_error(error)}") from None
    return ToolRuntime(
        state={},
        context=context,
        config=call.config or {},
        stream_writer=runtime.stream_writer,
        tool_call_id=call_id,
        store=runtime.store,
    )
