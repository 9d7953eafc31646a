"""Plain functions as tools."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool

from donewhen.state.errors import ToolError


def from_function(function: Callable[..., Any]) -> BaseTool:
    """The tool, with its schema from signature and docstring; ToolError, with what to do, where it says too little."""
    name = getattr(function, "__name__", "<nameless>")
    if name.startswith("<"):
        raise ToolError(f"{function!r} has no name: define it with `def`, or use StructuredTool.from_function")
    if not (text := inspect.getdoc(function)):
        raise ToolError(f"the function {name!r} needs a docstring: it tells the model what the tool is for")
    body: dict[str, Any] = {"coroutine" if is_async(function) else "func": function}
    try:
        tool = StructuredTool.from_function(name=name, parse_docstring=True, **body)
    except Exception as error:
        raise ToolError(f"the function {name!r} cannot be used as a tool: {error}; annotate its parameters") from error
    if not tool.description.strip():
        tool.description = text
    return tool


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call of it must be awaited, also behind `functools.partial` or `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
