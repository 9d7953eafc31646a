"""One call of one tool. Whatever the tool does, the run goes on and the model learns what happened (X07)."""

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp

from donewhen.graph.sync import Ended, begun, read_aside
from donewhen.graph.tools.certain import nothing_happened
from donewhen.graph.tools.guarding import (
    LIMIT,
    Body,
    Raised,
    at_work_now,
    characters,
    guarded,
    is_synchronous,
    is_watched,
)
from donewhen.graph.tools.injection import with_injected
from donewhen.graph.tools.rendering import capped, described, rendered
from donewhen.state.secrets import conceal

GRACE = 0.5
"""Seconds a tool has to end after it was told to."""

ENDING = 5.0
"""Seconds beyond its own limit in which a tool may end what it started."""

_running: set["asyncio.Future[Ended]"] = set()


class NotTheTools(Exception):
    """Carries an error of the run itself, such as of its storage, out of a tool: the call comes to nothing."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True)
class CallResult:
    """What a call came to."""

    ok: bool
    """False if the tool raised, took too long, or said itself that it failed."""
    text: str
    """What the model is to see, at most the limit long, with secrets removed."""
    seconds: float
    artifact: Any = None
    """What the tool returned beside the content, as it is; not fit for a checkpoint."""
    error: str | None = None
    """None if ok; else `timeout`, `cancelled`, `refused`, `error` (said by the tool), or the exception's type."""
    unknown: bool = False
    """Whether the tool was at work, and nothing says for certain that it did nothing (X24)."""


def seconds_for(tool: BaseTool, arguments: Mapping[str, Any], usual: float | None) -> float | None:
    """How long a call may take: as usual, or longer where the tool's metadata says so.

    `metadata["seconds"]` is a number, or the name of the argument that holds it, after which the tool ends by itself.
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
    """Call the tool and turn whatever comes of it into text. `timeout` is in seconds, None means no end.

    Raises only what is not the tool's to decide: LangGraph's interrupts, the cancellation of the caller, and what
    `NotTheTools` carries.
    Synchronous tools run in a daemon thread, which outlives a timeout.
    `idempotency_key` is passed to a tool that declares an argument of this name.
    Credentials in what it returns become `[redacted]`: `secrets` and what certainly is one (`state.secrets`);
    unless the tool's metadata says `"secrets": True`, because models have to work with them.
    """
    result = await _called(tool, arguments, timeout, config, idempotency_key, call_id, limit)
    if (tool.metadata or {}).get("secrets") is True:
        return result
    files = _files_of(result)
    size = len(result.text) + sum(len(each) for each in files.values() if isinstance(each, str))
    return await read_aside(size, partial(_concealed, result, files, secrets))


async def _called(
    tool: BaseTool,
    arguments: Mapping[str, Any],
    timeout: float | None,  # noqa: ASYNC109
    config: RunnableConfig | None,
    idempotency_key: str | None,
    call_id: str | None,
    limit: int,
) -> CallResult:
    started = time.perf_counter()
    call_id = call_id or f"call_{uuid.uuid4().hex}"
    try:
        full = with_injected(tool, arguments, idempotency_key, call_id, config)
    except Exception as error:
        return CallResult(False, capped(str(error), limit), time.perf_counter() - started, error="refused")
    call = {"type": "tool_call", "id": call_id, "name": tool.name, "args": full}
    in_thread, at_work = is_synchronous(tool), Body()
    ended = await _within(timeout, _begun(guarded(tool), call, config, limit, at_work, in_thread=in_thread))
    seconds = time.perf_counter() - started
    if ended is None:
        return CallResult(False, _late(timeout, in_thread), seconds, error="timeout", unknown=True)
    raised = ended.error.error if isinstance(ended.error, Raised) else ended.error
    if isinstance(raised, GraphBubbleUp):
        raise raised
    if isinstance(raised, NotTheTools):
        raise raised.error
    if raised is None:
        return _read(ended.value, at_work, tool, seconds, limit)
    unknown = _is_unknown(raised, at_work, tool)
    if isinstance(raised, asyncio.CancelledError):
        text = "the call was cancelled from within the tool"
        return CallResult(False, text, seconds, error="cancelled", unknown=unknown)
    return CallResult(False, capped(described(raised), limit), seconds, error=type(raised).__name__, unknown=unknown)


def _is_unknown(raised: BaseException, at_work: Body, tool: BaseTool) -> bool:
    """Return whether the call may have had an effect although it raised.

    A body that was entered and raised nothing had ended well: what failed is what LangChain made of its result.
    """
    if not is_watched(tool):
        return not nothing_happened(raised, tool)
    return at_work.entered and (at_work.error is None or not nothing_happened(at_work.error, tool))


def _files_of(result: CallResult) -> Mapping[str, Any]:
    """Return the files of the artifact, which clients are shown."""
    artifact = result.artifact
    files = artifact.get("files") if isinstance(artifact, Mapping) else None
    return files if isinstance(files, Mapping) else {}


def _concealed(result: CallResult, files: Mapping[str, Any], secrets: Sequence[str]) -> CallResult:
    """Return the result without credentials, in its text and its files."""
    text, artifact = conceal(result.text, secrets), result.artifact
    if files:
        shown = {name: conceal(each, secrets) if isinstance(each, str) else each for name, each in files.items()}
        artifact = {**artifact, "files": shown}
    return replace(result, text=text, artifact=artifact)


async def _within(seconds: float | None, body: asyncio.Future[Ended]) -> Ended | None:
    """How the body ended, or None if it took too long."""
    _running.add(body)
    body.add_done_callback(_running.discard)
    try:
        await asyncio.wait({body}, timeout=seconds)
        return body.result() if body.done() else None
    finally:
        if not body.done():
            body.cancel()
            await asyncio.wait({body}, timeout=GRACE)


def _begun(
    tool: BaseTool, call: dict[str, Any], config: RunnableConfig | None, limit: int, at_work: Body, *, in_thread: bool
) -> asyncio.Future[Ended]:
    """The call under way: in a thread, or in a task of its own, so that nothing in it can end ours."""

    def invoked() -> Any:
        characters.set(limit)
        at_work_now.set(at_work)
        return tool.invoke(call, config)

    async def awaited() -> Ended:
        characters.set(limit)
        at_work_now.set(at_work)
        try:
            return Ended(await tool.ainvoke(call, config))
        except BaseException as error:  # a SystemExit that leaves a task ends the event loop
            return Ended(error=error)

    return begun(invoked) if in_thread else asyncio.create_task(awaited())


def _read(value: Any, at_work: Body, tool: BaseTool, seconds: float, limit: int) -> CallResult:
    """The result of a call that ended: a message, or anything a tool class returns; a command is data here."""
    try:
        text = rendered(value, limit)
    except BaseException as error:  # a tool class that overrides `ainvoke` may return anything
        return CallResult(False, described(error), seconds, error=type(error).__name__, unknown=True)
    if not (isinstance(value, ToolMessage) and value.status == "error"):
        return CallResult(True, text, seconds, getattr(value, "artifact", None))
    # `handle_tool_error` makes a result of an error, which may have had any cause.
    unknown = at_work.error is not None and not nothing_happened(at_work.error, tool)
    return CallResult(False, text, seconds, value.artifact, "error", unknown)


def _late(seconds: float | None, in_thread: bool) -> str:
    if in_thread:
        return f"no result after {seconds:g} seconds; the tool runs in a thread that cannot be stopped"
    return f"no result after {seconds:g} seconds; the call was cancelled"
