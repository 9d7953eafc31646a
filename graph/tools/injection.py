"""Tool arguments that no model fills: the idempotency key, the call's id, LangGraph's store and runtime."""

import contextlib
import functools
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId
from langchain_core.tools.base import get_all_basemodel_annotations
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.runtime import Runtime, get_runtime

from donewhen.graph.tools.schema import RUNTIME_ARGUMENT
from donewhen.state.settings import Settings


def with_injected(
    tool: BaseTool, arguments: Mapping[str, Any], key: str | None, call_id: str, config: RunnableConfig | None
) -> dict[str, Any]:
    """Return the arguments with all injected ones; values that the caller set for those are dropped.
    // Raises ValueError if the tool needs a store and there is none.
    """
    declared = _annotations(tool)
    injected = {name: found for name, found in declared.items() if _has(found, InjectedToolArg, ToolRuntime)}
    full = {name: value for name, value in arguments.items() if name not in injected}
    if key is not None and _takes_key(tool, declared):
        full[RUNTIME_ARGUMENT] = key
    for name, annotation in injected.items():
        if name == RUNTIME_ARGUMENT or _has(annotation, InjectedToolCallId):
            continue  # set above; LangChain itself sets the id of the call
        if _has(annotation, ToolRuntime):
            full[name] = _tool_runtime(call_id, config)
        elif _has(annotation, InjectedStore) and (store := _runtime().store) is not None:
            full[name] = store
        elif not _has_default(tool, name):
            raise ValueError(f"the tool {tool.name!r} wants a store in {name!r}, and this run has none")
    return full


def check_injection(tool: BaseTool) -> None:
    """Raise ValueError for a tool that needs an injected value which runs here do not have."""
    for name, annotation in _annotations(tool).items():
        known = name == RUNTIME_ARGUMENT or _has(annotation, ToolRuntime, InjectedStore, InjectedToolCallId)
        if _has(annotation, InjectedToolArg) and not known and not _has_default(tool, name):
            wanted = "the state of a graph" if _has(annotation, InjectedState) else "something from the application"
            raise ValueError(
                f"it wants {wanted} in {name!r}, which tools are not given here. Make it an argument that the model "
                "fills, read it from `config`, or give it a default"
            )


def takes_key(tool: BaseTool) -> bool:
    """Return whether the tool declares an `idempotency_key`, and so promises one effect per key."""
    return _takes_key(tool, _annotations(tool))


def _takes_key(tool: BaseTool, declared: Mapping[str, Any]) -> bool:
    schema = tool.args_schema if isinstance(tool.args_schema, dict) else {}
    return RUNTIME_ARGUMENT in declared or RUNTIME_ARGUMENT in (schema.get("properties") or {})


def _annotations(tool: BaseTool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for body in _bodies(tool):
        with contextlib.suppress(Exception):  # an annotation that cannot be resolved marks nothing
            found |= _hints(body)
    if isinstance(tool.args_schema, type):
        found |= _fields(tool.args_schema)
    return found


@functools.lru_cache(maxsize=1_000)
def _hints(body: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(body, include_extras=True)


_fields = functools.lru_cache(maxsize=1_000)(get_all_basemodel_annotations)


def _bodies(tool: BaseTool) -> list[Callable[..., Any]]:
    wrapped = [getattr(tool, "func", None), getattr(tool, "coroutine", None)]
    return [body for body in wrapped if body] or [type(tool)._run, type(tool)._arun]


def _has(annotation: Any, *marks: type) -> bool:
    return any(
        isinstance(part, marks) or (isinstance(part, type) and issubclass(part, marks)) for part in _parts(annotation)
    )


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield the annotation and its parts: members of unions, metadata, generic origins."""
    yield annotation
    if (origin := typing.get_origin(annotation)) is not None:
        yield origin
        for part in typing.get_args(annotation):
            yield from _parts(part)


def _has_default(tool: BaseTool, name: str) -> bool:
    for body in _bodies(tool):
        parameter = inspect.signature(body).parameters.get(name)
        if parameter is not None and parameter.default is not inspect.Parameter.empty:
            return True
    fields = getattr(tool.args_schema, "model_fields", {})
    return name in fields and not fields[name].is_required()


def _runtime() -> Runtime[Any]:
    try:
        return get_runtime()
    except (RuntimeError, KeyError):  # not inside a graph
        return Runtime()


def _tool_runtime(call_id: str, config: RunnableConfig | None) -> ToolRuntime[Any, Any]:
    """Return the ToolRuntime that LangGraph's ToolNode would pass, with an empty state.
    // Tools see their call and the context of an outer graph, not the run.
    """
    runtime = _runtime()
    return ToolRuntime(
        state={},
        context=None if isinstance(runtime.context, Settings) else runtime.context,
        config=config or {},
        stream_writer=runtime.stream_writer,
        tool_call_id=call_id,
        store=runtime.store,
    )
