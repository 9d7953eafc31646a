"""Tools as they are called here: what they return is text before LangChain prints it, what they raise is harmless."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, get_type_hints

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from donewhen.graph.tools.rendering import rendered

LIMIT = 1_000_000
"""Characters of a result that are kept."""

characters: ContextVar[int] = ContextVar("characters", default=LIMIT)
"""The limit of the call that is being made."""


@dataclass
class Body:
    """What became of the body of the tool that is being called: LangChain turns some of its errors into results."""

    entered: bool = False
    error: BaseException | None = None
    """What it raised."""


at_work_now: ContextVar[Body | None] = ContextVar("at_work_now", default=None)
"""Of the call that is being made."""


class Raised(Exception):
    """Carries a SystemExit or KeyboardInterrupt out of a tool: inside a task of LangChain's it would end the loop."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


def guarded(tool: BaseTool) -> BaseTool:
    """The same tool, its state included, with a guard around its body."""
    try:
        kind = _guarding(type(tool))
    except Exception:
        return tool  # a class that cannot be derived from: LangChain's own printing must do
    return of_kind(kind, tool)


def of_kind(kind: Any, tool: BaseTool) -> BaseTool:
    """The same tool, its state included, of a class derived from its own."""
    twin: BaseTool = kind.__new__(kind)
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"):
        object.__setattr__(twin, slot, getattr(tool, slot))
    return twin


def is_watched(tool: BaseTool) -> bool:
    """Return whether nothing happens in a call before the guarded body is entered: the way to it is LangChain's own."""
    kind: Any = type(tool)
    ways = (kind.invoke, kind.ainvoke, kind.run, kind.arun)
    if not all(way.__module__.startswith("langchain_core.") for way in ways):
        return False
    return guarded(tool) is not tool


def is_synchronous(tool: BaseTool) -> bool:
    """Whether LangChain would run the tool in the loop's thread pool, where a few that hang block everything."""
    kind: Any = type(tool)
    wraps_function = "func" in kind.model_fields and "coroutine" in kind.model_fields
    if kind.arun is not BaseTool.arun or (kind.ainvoke is not BaseTool.ainvoke and not wraps_function):
        return False
    return getattr(tool, "coroutine", None) is None if wraps_function else kind._arun is BaseTool._arun


@functools.lru_cache(maxsize=256)
def _guarding(kind: Any) -> Any:
    return surrounded(kind, _harmless, lambda tool, value: _shown(value, tool.response_format))


@contextmanager
def _harmless(_: BaseTool) -> Iterator[None]:
    at_work = at_work_now.get() or Body()
    at_work.entered = True
    try:
        yield
    except BaseException as error:
        at_work.error = error
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise Raised(error) from error
        raise


def surrounded(
    kind: Any,
    around: Callable[[Any], AbstractContextManager[None]],
    returned: Callable[[Any, Any], Any] = lambda tool, value: value,
) -> Any:
    """The class of such tools with `around` their bodies, `_run` and `_arun`, and what is made of what they return."""

    @functools.wraps(kind._run)
    def run(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        with around(self):
            return returned(self, kind._run(self, *args, **kwargs))

    @functools.wraps(kind._arun)
    async def arun(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        with around(self):
            return returned(self, await kind._arun(self, *args, **kwargs))

    for body in (run, arun):  # LangChain reads them at every call
        with suppress(Exception):
            body.__annotations__ = get_type_hints(body, include_extras=True)
            body.__dict__["__signature__"] = inspect.signature(body)
    bodies: dict[str, Any] = {"_run": run, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    if kind._arun is not BaseTool._arun:  # LangChain asks whether it is
        bodies["_arun"] = arun
    return type(kind)(kind.__name__, (kind,), bodies)


def _shown(value: Any, response_format: str) -> Any:
    """What a body returned, as LangChain is to get it: text, a message of the tool's own, or text and artifact."""
    if response_format == "content_and_artifact":
        if not (isinstance(value, tuple) and len(value) == 2):
            return value  # not what the tool promised: LangChain says so
        return _shown(value[0], "content"), value[1]
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("the tool returned a coroutine; declare it with `async def`")
    if inspect.isasyncgen(value):
        raise TypeError("the tool returned an async generator; return its items as a list")
    if isinstance(value, BaseException):
        raise value
    return value if isinstance(value, ToolMessage) else rendered(value, characters.get())
